//! Attributes of local files: reading and changing them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::open::OpenFile;
use super::root::{At, descriptor_path};
use crate::{Attributes, Entry, EntryKind, Identity, Result, SetAttributes, SetTime, SetXattr, Unix};

/// Result of a rustix call.
type Answer<T> = std::result::Result<T, Errno>;

/// The entry for the result of `stat`.
pub(super) fn entry(name: &OsStr, stat: &Stat) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::CharacterDevice => EntryKind::CharDevice,
        FileType::BlockDevice => EntryKind::BlockDevice,
        _ => EntryKind::File,
    };
    let size = stat.st_size.cast_unsigned();
    Entry {
        size: if matches!(kind, EntryKind::File | EntryKind::Link) { size } else { 0 },
        modified: Some(time(stat.st_mtime, stat.st_mtime_nsec)),
        mode: Some(stat.st_mode & 0o7777),
        identity: (kind == EntryKind::File).then(|| identity(stat)),
        unix: Some(Unix {
            device: stat.st_dev,
            inode: stat.st_ino,
            links: wide(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            special_device: stat.st_rdev,
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            blocks: stat.st_blocks.cast_unsigned(),
        }),
        ..Entry::new(name, kind)
    }
}

/// Widens a count whose width depends on the machine.
fn wide(count: impl Into<u64>) -> u64 {
    count.into()
}

/// Identity of the file's version.
pub(super) fn identity(stat: &Stat) -> Identity {
    Identity {
        etag: None,
        modified_ns: Some(i128::from(stat.st_mtime) * 1_000_000_000 + stat.st_mtime_nsec as i128),
        device: Some(stat.st_dev),
        inode: Some(stat.st_ino),
        size: stat.st_size.cast_unsigned(),
    }
}

/// The time `seconds`, which may be negative, and `nanoseconds` after the epoch; the epoch if it is
/// out of range.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(nanoseconds)))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The reverse of [`time`]: whole seconds rounded down, and nanoseconds.
fn timespec(time: SystemTime) -> Timespec {
    let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanoseconds => (seconds - 1, 1_000_000_000 - nanoseconds),
            }
        }
    };
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
}

/// The times to set; `None` if both are unchanged.
pub(super) fn timestamps(attributes: &SetAttributes) -> Option<Timestamps> {
    let one = |set: Option<SetTime>| match set {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => timespec(time),
    };
    (attributes.accessed.is_some() || attributes.modified.is_some()).then(|| Timestamps {
        last_access: one(attributes.accessed),
        last_modification: one(attributes.modified),
    })
}

/// Sets the permission bits of the entry itself; links have none.
pub(super) fn set_mode(at: &At<'_>, mode: Mode) -> Answer<()> {
    // Through a handle: the plain call would follow a link.
    let handle = at.handle()?;
    rustix::fs::chmod(descriptor_path(&handle), mode)
}

impl Attributes for OpenFile {
    fn stat(&self) -> Result<Entry> {
        self.answer(rustix::fs::fstat(&self.buffered)).map(|stat| entry(OsStr::new(""), &stat))
    }

    fn set(&self, attributes: &SetAttributes) -> Result<()> {
        let (uid, gid) = (attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw));
        if uid.is_some() || gid.is_some() || attributes.is_empty() {
            self.answer(rustix::fs::fchown(&self.buffered, uid, gid))?;
        }
        if let Some(mode) = attributes.mode {
            self.answer(rustix::fs::fchmod(&self.buffered, Mode::from_raw_mode(mode & 0o7777)))?;
        }
        match timestamps(attributes) {
            Some(times) => self.answer(rustix::fs::futimens(&self.buffered, &times)),
            None => Ok(()),
        }
    }
}

/// Calls `fill` with a buffer that grows until it suffices; returns the bytes.
pub(super) fn bytes(fill: impl Fn(&mut [u8]) -> Answer<usize>) -> Answer<Vec<u8>> {
    let mut buffer = vec![0; 256];
    let mut count = fill(&mut buffer);
    if count == Err(Errno::RANGE) {
        // The kernel's own limit of a value and of a list.
        buffer.resize(64 << 10, 0);
        count = fill(&mut buffer);
    }
    buffer.truncate(count?);
    Ok(buffer)
}

/// Names, each terminated by a NUL.
pub(super) fn split_names(bytes: &[u8]) -> Vec<OsString> {
    bytes
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect()
}

pub(super) fn xattr_flags(how: SetXattr) -> XattrFlags {
    match how {
        SetXattr::Any => XattrFlags::empty(),
        SetXattr::Create => XattrFlags::CREATE,
        SetXattr::Replace => XattrFlags::REPLACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_nanoseconds() {
        for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2, 999_999_999), (-5, 5)]
        {
            let back = timespec(time(seconds, nanoseconds));
            assert_eq!(
                (back.tv_sec, back.tv_nsec),
                (seconds, nanoseconds.cast_signed()),
                "{seconds} {nanoseconds}"
            );
        }
    }
}
