//! An entry of a store as `stat` shows it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use bowwave_engine::{Entry, EntryKind};
use libc::{stat, statx, statx_timestamp};

use crate::setup::{Place, setup};

/// The entry's attributes, as a mount shows them: writes fail with EROFS, and copies of files can be changed and removed.
/// An entry without a time has the time at which `bowwave run` started, the same in all processes.
pub(crate) fn of_entry(place: &Place, entry: &Entry) -> stat {
    let mut shown = zeroed();
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
    shown.st_mode = kind | bits;
    shown.st_dev = DEVICE + place.map as u64;
    shown.st_ino = number(place);
    shown.st_nlink = entry.unix.map_or(1, |unix| unix.links.max(1));
    let (uid, gid) = entry.unix.map_or_else(own, |unix| (unix.uid, unix.gid));
    shown.st_uid = uid;
    shown.st_gid = gid;
    shown.st_size = i64::try_from(entry.size).unwrap_or(i64::MAX);
    shown.st_blksize = BLOCK;
    shown.st_blocks = i64::try_from(entry.size.div_ceil(512)).unwrap_or(i64::MAX);
    let modified = time(entry.modified.unwrap_or_else(|| UNIX_EPOCH + setup().started));
    let of_unix = |pick: fn(&bowwave_engine::backend::Unix) -> SystemTime| {
        entry.unix.as_ref().map_or(modified, |unix| time(pick(unix)))
    };
    (shown.st_mtime, shown.st_mtime_nsec) = modified;
    (shown.st_atime, shown.st_atime_nsec) = of_unix(|unix| unix.accessed);
    (shown.st_ctime, shown.st_ctime_nsec) = of_unix(|unix| unix.changed);
    shown
}

/// The same for `statx`.
#[allow(unsafe_code, reason = "a structure of numbers")]
pub(crate) fn extended(shown: &stat) -> statx {
    // SAFETY: numbers, of which 0 is one.
    let mut wide: statx = unsafe { std::mem::zeroed() };
    wide.stx_mask = libc::STATX_BASIC_STATS;
    wide.stx_blksize = shown.st_blksize as u32;
    wide.stx_nlink = shown.st_nlink as u32;
    wide.stx_uid = shown.st_uid;
    wide.stx_gid = shown.st_gid;
    wide.stx_mode = shown.st_mode as u16;
    wide.stx_ino = shown.st_ino;
    wide.stx_size = shown.st_size as u64;
    wide.stx_blocks = shown.st_blocks as u64;
    wide.stx_dev_major = libc::major(shown.st_dev);
    wide.stx_dev_minor = libc::minor(shown.st_dev);
    let time = |into: &mut statx_timestamp, seconds: i64, nanoseconds: i64| {
        into.tv_sec = seconds;
        into.tv_nsec = nanoseconds as u32;
    };
    time(&mut wide.stx_atime, shown.st_atime, shown.st_atime_nsec);
    time(&mut wide.stx_mtime, shown.st_mtime, shown.st_mtime_nsec);
    time(&mut wide.stx_ctime, shown.st_ctime, shown.st_ctime_nsec);
    wide
}

/// A number that stands for the place, in every process; never 0.
pub(crate) fn number(place: &Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    hasher.finish() | 1
}

#[allow(unsafe_code, reason = "a structure of numbers")]
fn zeroed() -> stat {
    // SAFETY: numbers, of which 0 is one.
    unsafe { std::mem::zeroed() }
}

#[allow(unsafe_code, reason = "asks the system who we are")]
fn own() -> (u32, u32) {
    // SAFETY: neither takes anything, nor fails.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn time(time: SystemTime) -> (i64, i64) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), i64::from(after.subsec_nanos())),
        Err(_) => (0, 0),
    }
}

/// Device number of the first map, which no disk has.
const DEVICE: u64 = 0xB0_0000;
/// What programs should read at once.
const BLOCK: i64 = 128 << 10;
