//! Attributes of a store's entry for `stat`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use bowwave_engine::{Entry, EntryKind};
use libc::{stat, statx, statx_timestamp};

use crate::setup::{Place, setup};

/// The entry's attributes as in a mount: writes fail with EROFS, but copies of files are writable.
/// An entry without a time gets the start time of `bowwave run`, the same in all processes.
pub(crate) fn of_entry(place: &Place, entry: &Entry) -> stat {
    let mut attr = zeroed();
    let (kind, bits) = match entry.kind {
        EntryKind::Directory => (libc::S_IFDIR, 0o755),
        EntryKind::Link => (libc::S_IFLNK, 0o777),
        EntryKind::Fifo => (libc::S_IFIFO, 0o644),
        EntryKind::Socket => (libc::S_IFSOCK, 0o644),
        EntryKind::CharDevice => (libc::S_IFCHR, 0o644),
        EntryKind::BlockDevice => (libc::S_IFBLK, 0o644),
        EntryKind::File => (libc::S_IFREG, 0o644),
    };
    let bits = entry.mode.filter(|_| entry.kind != EntryKind::Link).map_or(bits, |mode| mode & 0o7777);
    attr.st_mode = kind | bits;
    attr.st_dev = DEVICE + place.map as u64;
    attr.st_ino = number(place);
    attr.st_nlink = entry.unix.map_or(1, |unix| unix.links.max(1));
    let (uid, gid) = entry.unix.map_or_else(own, |unix| (unix.uid, unix.gid));
    attr.st_uid = uid;
    attr.st_gid = gid;
    attr.st_size = i64::try_from(entry.size).unwrap_or(i64::MAX);
    attr.st_blksize = BLOCK;
    attr.st_blocks = i64::try_from(entry.size.div_ceil(512)).unwrap_or(i64::MAX);
    let modified = time(entry.modified.unwrap_or_else(|| UNIX_EPOCH + setup().started));
    let of_unix = |pick: fn(&bowwave_engine::backend::Unix) -> SystemTime| {
        entry.unix.as_ref().map_or(modified, |unix| time(pick(unix)))
    };
    (attr.st_mtime, attr.st_mtime_nsec) = modified;
    (attr.st_atime, attr.st_atime_nsec) = of_unix(|unix| unix.accessed);
    (attr.st_ctime, attr.st_ctime_nsec) = of_unix(|unix| unix.changed);
    attr
}

/// As `of_entry`, for `statx`.
#[allow(unsafe_code, reason = "zeroes a plain structure")]
pub(crate) fn extended(attr: &stat) -> statx {
    // SAFETY: plain integers, for which zero is valid.
    let mut wide: statx = unsafe { std::mem::zeroed() };
    wide.stx_mask = libc::STATX_BASIC_STATS;
    wide.stx_blksize = attr.st_blksize as u32;
    wide.stx_nlink = attr.st_nlink as u32;
    wide.stx_uid = attr.st_uid;
    wide.stx_gid = attr.st_gid;
    wide.stx_mode = attr.st_mode as u16;
    wide.stx_ino = attr.st_ino;
    wide.stx_size = attr.st_size as u64;
    wide.stx_blocks = attr.st_blocks as u64;
    wide.stx_dev_major = libc::major(attr.st_dev);
    wide.stx_dev_minor = libc::minor(attr.st_dev);
    let time = |into: &mut statx_timestamp, seconds: i64, nanoseconds: i64| {
        into.tv_sec = seconds;
        into.tv_nsec = nanoseconds as u32;
    };
    time(&mut wide.stx_atime, attr.st_atime, attr.st_atime_nsec);
    time(&mut wide.stx_mtime, attr.st_mtime, attr.st_mtime_nsec);
    time(&mut wide.stx_ctime, attr.st_ctime, attr.st_ctime_nsec);
    wide
}

/// An inode number for the place, the same in every process; never 0.
pub(crate) fn number(place: &Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    hasher.finish() | 1
}

#[allow(unsafe_code, reason = "zeroes a plain structure")]
fn zeroed() -> stat {
    // SAFETY: plain integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

#[allow(unsafe_code, reason = "calls geteuid")]
fn own() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn time(time: SystemTime) -> (i64, i64) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), i64::from(after.subsec_nanos())),
        Err(_) => (0, 0),
    }
}

/// Device number of the first map; no disk has it.
const DEVICE: u64 = 0xB0_0000;
/// Recommended read size in bytes (`st_blksize`).
const BLOCK: i64 = 128 << 10;
