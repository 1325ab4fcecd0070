//! From an entry of a store to the attributes that `stat` shows.

use std::time::SystemTime;

use bowwave_engine::backend::{Entry, EntryKind};
use fuser::{FileAttr, FileType, INodeNo};

/// What the store does not know about its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Owner of everything.
    pub(crate) uid: u32,
    /// Group of everything.
    pub(crate) gid: u32,
    /// For entries without a modification time: when the mount began, so that it stays the same while mounted.
    pub(crate) modified: SystemTime,
}

impl Defaults {
    /// The attributes of `entry` as inode `number`.
    pub(crate) fn attributes(&self, number: u64, entry: &Entry) -> FileAttr {
        let size = if entry.kind == EntryKind::Directory { 0 } else { entry.size };
        let modified = entry.modified.unwrap_or(self.modified);
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind: file_type(entry.kind),
            perm: permissions(entry),
            // 1 for folders too: "number of subfolders unknown", as `find` reads it.
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            // Not more: C and Python make their stream buffers this large, and a larger one would turn small
            // random reads into large ones before we see them.
            blksize: 4096,
            flags: 0,
        }
    }
}

/// The type of a directory entry.
pub(crate) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
        EntryKind::Fifo => FileType::NamedPipe,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice => FileType::CharDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The store's permissions without write, set-user-id and sticky bits; everyone may read where it has none.
fn permissions(entry: &Entry) -> u16 {
    let unknown = match entry.kind {
        EntryKind::Directory => 0o555,
        EntryKind::Link => return 0o777,
        _ => 0o444,
    };
    u16::try_from(entry.mode.unwrap_or(unknown) & 0o555).expect("nine bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_writable_and_blocks_are_of_512_bytes() {
        let defaults = Defaults { uid: 7, gid: 8, modified: SystemTime::UNIX_EPOCH };
        let entry = |kind, mode, size| Entry { size, mode, ..Entry::new("x", kind) };
        let shown = |entry: &Entry| {
            let attr = defaults.attributes(9, entry);
            (attr.perm, attr.size, attr.blocks)
        };
        assert_eq!(shown(&entry(EntryKind::File, None, 513)), (0o444, 513, 2));
        assert_eq!(shown(&entry(EntryKind::File, Some(0o104_755), 0)), (0o555, 0, 0));
        assert_eq!(shown(&entry(EntryKind::File, Some(0o600), 512)), (0o400, 512, 1));
        assert_eq!(shown(&entry(EntryKind::Directory, None, 77)), (0o555, 0, 0));
    }
}
