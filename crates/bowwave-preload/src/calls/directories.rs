//! `opendir` and related functions.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use bowwave_engine::EntryKind;
use bowwave_engine::backend::sync::Mutex;
use libc::{DIR, dirent};

use super::open::open_place;
use super::{descriptors, place};
use crate::attributes::number;
use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::Place;
use crate::table;

/// An open directory; the program has an opaque pointer to it.
pub(super) struct Directory {
    fd: c_int,
    open: Arc<Open>,
    /// Read on first use, and again after a rewind.
    entries: Option<Vec<dirent>>,
    next: usize,
}

/// Served directories by address.
static DIRECTORIES: Mutex<BTreeMap<usize, Box<Directory>>> = Mutex::new(BTreeMap::new());
/// Number of directories: 0 avoids the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// All directories, locked.
pub(super) type Guard = MutexGuard<'static, BTreeMap<usize, Box<Directory>>>;

pub(super) fn lock() -> Guard {
    DIRECTORIES.lock()
}

/// Applies `work` to a directory, if it is served.
fn with<T>(directory: *mut DIR, work: impl FnOnce(&mut Directory) -> T) -> Option<T> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock().get_mut(&(directory as usize)).map(|directory| work(directory))
}

fn open(fd: c_int, open: Arc<Open>) -> *mut DIR {
    let directory = Box::new(Directory { fd, open, entries: None, next: 0 });
    let address = &raw const *directory as usize;
    let mut directories = lock();
    directories.insert(address, directory);
    COUNT.store(directories.len(), Ordering::Release);
    address as *mut DIR
}

impl Directory {
    fn next(&mut self) -> Result<*mut dirent> {
        if self.entries.is_none() {
            self.entries = Some(list(&self.open.place)?);
        }
        let entries = self.entries.get_or_insert_default();
        let entry = entries.get_mut(self.next).map_or(std::ptr::null_mut(), |entry| &raw mut *entry);
        self.next += usize::from(!entry.is_null());
        Ok(entry)
    }
}

/// The directory's entries; `.` and `..` first.
fn list(place: &Place) -> Result<Vec<dirent>> {
    let listed = service()?.list(place)?;
    let parent = Place { map: place.map, path: place.path.parent().unwrap_or(&place.path).to_owned() };
    let mut entries =
        vec![entry(b".", number(place), libc::DT_DIR), entry(b"..", number(&parent), libc::DT_DIR)];
    for one in &listed {
        let kind = match one.kind {
            EntryKind::File => libc::DT_REG,
            EntryKind::Directory => libc::DT_DIR,
            EntryKind::Link => libc::DT_LNK,
            EntryKind::Fifo => libc::DT_FIFO,
            EntryKind::Socket => libc::DT_SOCK,
            EntryKind::CharDevice => libc::DT_CHR,
            EntryKind::BlockDevice => libc::DT_BLK,
        };
        let name = one.name.as_bytes();
        // Longer names do not fit, here or elsewhere in Linux.
        if name.len() <= NAME_MAX {
            let place = Place { map: place.map, path: place.path.join(&one.name) };
            entries.push(entry(name, number(&place), kind));
        }
    }
    (0..).zip(&mut entries).for_each(|(at, entry)| entry.d_off = at + 1);
    Ok(entries)
}

fn entry(name: &[u8], number: u64, kind: u8) -> dirent {
    // SAFETY: plain integers, for which zero is valid.
    let mut entry: dirent = unsafe { std::mem::zeroed() };
    entry.d_ino = number;
    entry.d_type = kind;
    entry.d_reclen = size_of::<dirent>() as u16;
    entry.d_name.iter_mut().zip(name).for_each(|(to, &from)| *to = from as c_char);
    entry
}

fn open_at(place: &Place) -> Result<*mut DIR> {
    let fd = open_place(place, libc::O_DIRECTORY | libc::O_CLOEXEC)?;
    let open = table::get(fd).ok_or(Errno(libc::EBADF))?;
    Ok(self::open(fd, open))
}

fn open_descriptor(fd: c_int, open: Arc<Open>) -> Result<*mut DIR> {
    if open.live()?.is_directory() { Ok(self::open(fd, open)) } else { Err(Errno(libc::ENOTDIR)) }
}

/// Removes a directory from the table, if it is served.
fn remove(directory: *mut DIR) -> Option<Box<Directory>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let removed = lock().remove(&(directory as usize));
    COUNT.fetch_sub(usize::from(removed.is_some()), Ordering::AcqRel);
    removed
}

interpose! {
    /// Opens a directory.
    fn [opendir] (path: *const c_char) -> *mut DIR,
        place(libc::AT_FDCWD, path) => |place| served(|| open_at(&place));
    /// Opens the directory of a descriptor.
    fn [fdopendir] (fd: c_int) -> *mut DIR, table::get(fd) => |open| served(|| open_descriptor(fd, open));
    /// The next entry.
    fn [readdir readdir64] (directory: *mut DIR) -> *mut dirent,
        with(directory, |directory| served(|| directory.next())) => |entry| entry;
    /// Closes a directory.
    fn [closedir] (directory: *mut DIR) -> c_int,
        remove(directory) => |directory| descriptors::close(directory.fd);
    /// Restarts with a new listing.
    fn [rewinddir] (directory: *mut DIR) -> (),
        with(directory, |directory| (directory.entries, directory.next) = (None, 0)) => |done| done;
    /// The position of the next entry.
    fn [telldir] (directory: *mut DIR) -> c_long, with(directory, |directory| directory.next) => |at| at as c_long;
    /// Continues at a position from `telldir`.
    fn [seekdir] (directory: *mut DIR, at: c_long) -> (),
        with(directory, |directory| directory.next = usize::try_from(at).unwrap_or(0)) => |done| done;
    /// The descriptor of a directory.
    fn [dirfd] (directory: *mut DIR) -> c_int, with(directory, |directory| directory.fd) => |fd| fd;
}

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 255;
