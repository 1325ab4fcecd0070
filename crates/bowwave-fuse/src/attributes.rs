//! Converts a store's entry to the attributes that `stat` returns.

use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{Entry, EntryKind};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

use bowwave_engine::backend::SetTime;

/// Attributes of entries whose store has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Owner of entries without a stored owner.
    pub(crate) uid: u32,
    /// Group of entries without a stored group.
    pub(crate) gid: u32,
    /// Whether `uid` and `gid` replace the owners of a file system. Stored owners of objects stay.
    pub(crate) own: bool,
    /// Permission bits of files whose store has none.
    pub(crate) file_mode: u32,
    /// Permission bits of directories whose store has none.
    pub(crate) dir_mode: u32,
    /// Modification time of entries without one: the time of the mount, so that it stays constant.
    pub(crate) modified: SystemTime,
    /// Whether files can be written.
    pub(crate) writable: bool,
    /// User and group of this process, which own new files unless an owner is given.
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
            // 1 also for directories: `find` reads it as "number of subdirectories unknown".
            nlink: unix.map_or(1, |unix| u32::try_from(unix.links).unwrap_or(u32::MAX)),
            uid: unix.filter(|_| !self.own).map(|unix| unix.uid).or(entry.uid).unwrap_or(self.uid),
            gid: unix.filter(|_| !self.own).map(|unix| unix.gid).or(entry.gid).unwrap_or(self.gid),
            rdev: unix.map_or(0, |unix| device_number(unix.special_device)),
            // C and Python size their stream buffers by this value. A larger value would turn small
            // random reads into large ones.
            blksize: 4096,
            flags: 0,
        }
    }

    /// Permissions of a file system are passed on; set-user-id and sticky bits of other stores are
    /// not.
    ///
    /// A read-only mount keeps the write bits: it rejects changes with EROFS, and copies of its
    /// files stay writable.
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

/// The kind of entry in the type bits of a `mode`; `None` for types that `mknod` does not create.
pub(crate) fn kind_of(mode: u32) -> Option<EntryKind> {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Some(EntryKind::File),
        FileType::Fifo => Some(EntryKind::Fifo),
        FileType::Socket => Some(EntryKind::Socket),
        FileType::CharacterDevice => Some(EntryKind::CharDevice),
        FileType::BlockDevice => Some(EntryKind::BlockDevice),
        // As in `mknod`: without type bits, a regular file.
        _ if mode & !0o7777 == 0 => Some(EntryKind::File),
        _ => None,
    }
}

/// FUSE's 32-bit device number: 12 bits of the major number between 20 bits of the minor number.
fn device_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The inverse of `device_number`.
pub(crate) fn device_from(number: u32) -> u64 {
    rustix::fs::makedev(number >> 8 & 0xfff, number & 0xff | (number >> 12 & 0xf_ff00))
}

/// Converts a requested time.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(corrected(time)),
    }
}

/// Corrects times before 1970: fuser subtracts their nanoseconds instead of adding them.
fn corrected(time: SystemTime) -> SystemTime {
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
    fn a_file_systems_attributes_are_unchanged() {
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
    fn times_before_1970_are_set_exactly() {
        // 750 ms before 1970, which the protocol encodes as (-1 s, 250 ms).
        let given = SystemTime::UNIX_EPOCH - Duration::from_millis(1250);
        assert_eq!(corrected(given), SystemTime::UNIX_EPOCH - Duration::from_millis(750));
        let later = SystemTime::UNIX_EPOCH + Duration::from_millis(1250);
        assert_eq!(corrected(later), later);
    }

    #[test]
    fn the_type_bits_of_a_mode_select_the_kind() {
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
