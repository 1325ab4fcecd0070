//! From an entry of a store to the attributes that `stat` shows.

use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{Entry, EntryKind};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

use bowwave_engine::backend::SetTime;

/// What the store does not know about its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Owner of everything.
    pub(crate) uid: u32,
    /// Group of everything.
    pub(crate) gid: u32,
    /// Whether these are to be shown even where the store knows better.
    pub(crate) own: bool,
    /// Permission bits of files without any.
    pub(crate) file_mode: u32,
    /// Permission bits of directories without any.
    pub(crate) dir_mode: u32,
    /// For entries without a modification time: when the mount began, so that it stays the same while mounted.
    pub(crate) modified: SystemTime,
    /// Whether files can be written.
    pub(crate) writable: bool,
    /// Who this process is: as whom the store makes files when nothing else is said.
    pub(crate) process: (u32, u32),
}

impl Defaults {
    /// The attributes of `entry` as inode `number`.
    pub(crate) fn attributes(&self, number: u64, entry: &Entry) -> FileAttr {
        let unix = entry.unix.as_ref();
        let size = if entry.kind == EntryKind::Directory { 0 } else { entry.size };
        let modified = entry.modified.unwrap_or(self.modified);
        let changed = unix.map_or(modified, |unix| unix.changed);
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: unix.map_or_else(|| size.div_ceil(512), |unix| unix.blocks),
            atime: unix.map_or(modified, |unix| unix.accessed),
            mtime: modified,
            ctime: changed,
            crtime: modified,
            kind: file_type(entry.kind),
            perm: self.permissions(entry),
            // 1 for folders too: "number of subfolders unknown", as `find` reads it.
            nlink: unix.map_or(1, |unix| u32::try_from(unix.links).unwrap_or(u32::MAX)),
            uid: unix.filter(|_| !self.own).map(|unix| unix.uid).or(entry.uid).unwrap_or(self.uid),
            gid: unix.filter(|_| !self.own).map(|unix| unix.gid).or(entry.gid).unwrap_or(self.gid),
            rdev: unix.map_or(0, |unix| device_number(unix.special_device)),
            // Not more: C and Python make their stream buffers this large, and a larger one would turn small
            // random reads into large ones before we see them.
            blksize: 4096,
            flags: 0,
        }
    }

    /// A file system's permissions as they are; those of other stores without set-user-id and sticky bits.
    ///
    /// A mount that cannot be written has the same write bits: it refuses changes with EROFS, and copies of its files
    /// can be changed and removed.
    fn permissions(&self, entry: &Entry) -> u16 {
        let mode = match (entry.kind, entry.mode) {
            (EntryKind::Link, None) => 0o777,
            (_, Some(mode)) if entry.unix.is_some() => mode & 0o7777,
            (EntryKind::Link, Some(_)) => 0o777,
            (_, Some(mode)) => mode & 0o777,
            (EntryKind::Directory, None) => self.dir_mode,
            (_, None) => self.file_mode,
        };
        u16::try_from(mode).expect("twelve bits")
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

/// The kind of entry that the type bits of a `mode` name; `None` for what `mknod` does not make.
pub(crate) fn kind_of(mode: u32) -> Option<EntryKind> {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(mode) {
        // Bits of 0 are a regular file, as `mknod` has it.
        FileType::RegularFile => Some(EntryKind::File),
        FileType::Fifo => Some(EntryKind::Fifo),
        FileType::Socket => Some(EntryKind::Socket),
        FileType::CharacterDevice => Some(EntryKind::CharDevice),
        FileType::BlockDevice => Some(EntryKind::BlockDevice),
        _ if mode & !0o7777 == 0 => Some(EntryKind::File),
        _ => None,
    }
}

/// The kernel's 32 bits for FUSE: 12 of the major number between 20 of the minor one.
fn device_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The other way round.
pub(crate) fn device_from(number: u32) -> u64 {
    rustix::fs::makedev(number >> 8 & 0xfff, number & 0xff | (number >> 12 & 0xf_ff00))
}

/// A time that a program wants set.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(mended(time)),
    }
}

/// Times before 1970 come from fuser with their nanoseconds counted backwards.
fn mended(time: SystemTime) -> SystemTime {
    match SystemTime::UNIX_EPOCH.duration_since(time) {
        Ok(before) => {
            let nanoseconds = Duration::from_nanos(u64::from(before.subsec_nanos()));
            SystemTime::UNIX_EPOCH - Duration::from_secs(before.as_secs()) + nanoseconds
        }
        Err(_) => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_engine::backend::Unix;

    const READ_ONLY: Defaults = Defaults {
        uid: 7,
        gid: 8,
        own: false,
        file_mode: 0o644,
        dir_mode: 0o755,
        modified: SystemTime::UNIX_EPOCH,
        writable: false,
        process: (7, 8),
    };

    #[test]
    fn a_read_only_object_store_has_plain_permissions_and_blocks_of_512_bytes() {
        let entry = |kind, mode, size| Entry { size, mode, ..Entry::new("x", kind) };
        let shown = |entry: &Entry| {
            let attr = READ_ONLY.attributes(9, entry);
            (attr.perm, attr.size, attr.blocks)
        };
        assert_eq!(shown(&entry(EntryKind::File, None, 513)), (0o644, 513, 2));
        assert_eq!(shown(&entry(EntryKind::File, Some(0o104_755), 0)), (0o755, 0, 0));
        assert_eq!(shown(&entry(EntryKind::File, Some(0o600), 512)), (0o600, 512, 1));
        assert_eq!(shown(&entry(EntryKind::Directory, None, 77)), (0o755, 0, 0));
        let writable = Defaults { writable: true, ..READ_ONLY };
        assert_eq!(writable.attributes(9, &entry(EntryKind::File, None, 0)).perm, 0o644);
        assert_eq!(writable.attributes(9, &entry(EntryKind::Directory, None, 0)).perm, 0o755);
    }

    #[test]
    fn a_file_systems_entry_is_shown_as_it_is() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let unix = Unix {
            device: 1,
            inode: 2,
            links: 3,
            uid: 4,
            gid: 5,
            special_device: rustix::fs::makedev(0x123, 0x4_5678),
            accessed: at(6),
            changed: at(7),
            blocks: 8,
        };
        let entry = Entry {
            mode: Some(0o4755),
            modified: Some(at(9)),
            unix: Some(unix),
            ..Entry::new("x", EntryKind::CharDevice)
        };
        let shown = READ_ONLY.attributes(2, &entry);
        assert_eq!((shown.perm, shown.nlink, shown.uid, shown.gid, shown.blocks), (0o4755, 3, 4, 5, 8));
        assert_eq!((shown.atime, shown.ctime, shown.mtime), (at(6), at(7), at(9)));
        assert_eq!(device_from(shown.rdev), unix.special_device);
        let owned = Defaults { own: true, ..READ_ONLY }.attributes(2, &entry);
        assert_eq!((owned.uid, owned.gid), (7, 8));
    }

    #[test]
    fn times_before_1970_are_what_the_program_said() {
        // One second before 1970 and a quarter more, as fuser gives (-1 s, 250 ms).
        let given = SystemTime::UNIX_EPOCH - Duration::from_millis(1250);
        assert_eq!(mended(given), SystemTime::UNIX_EPOCH - Duration::from_millis(750));
        let later = SystemTime::UNIX_EPOCH + Duration::from_millis(1250);
        assert_eq!(mended(later), later);
    }

    #[test]
    fn the_type_bits_of_a_mode_say_what_to_make() {
        for (mode, kind) in [
            (0o644, Some(EntryKind::File)),
            (0o100_644, Some(EntryKind::File)),
            (0o010_644, Some(EntryKind::Fifo)),
            (0o140_644, Some(EntryKind::Socket)),
            (0o020_644, Some(EntryKind::CharDevice)),
            (0o060_644, Some(EntryKind::BlockDevice)),
            (0o040_755, None),
            (0o120_777, None),
        ] {
            assert_eq!(kind_of(mode), kind, "{mode:o}");
        }
    }
}
