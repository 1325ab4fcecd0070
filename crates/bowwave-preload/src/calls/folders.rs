//! `opendir` and its kin.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_engine::EntryKind;
use libc::{DIR, dirent};

use super::open::open_place;
use super::{descriptors, place};
use crate::attributes::number;
use crate::errno::{Errno, Result, of_engine, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::Place;
use crate::{real, table};

/// An open folder: what the program has a pointer to, and never looks into.
pub(super) struct Folder {
    fd: c_int,
    open: Arc<Open>,
    /// Read when first wanted, and again after a rewind.
    entries: Option<Vec<dirent>>,
    next: usize,
}

/// Those of ours, by address.
static FOLDERS: Mutex<BTreeMap<usize, Box<Folder>>> = Mutex::new(BTreeMap::new());
/// How many there are: without any, nothing takes the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// All folders, locked.
pub(super) type Guard = MutexGuard<'static, BTreeMap<usize, Box<Folder>>>;

pub(super) fn lock() -> Guard {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do with a folder, if it is ours.
fn with<T>(folder: *mut DIR, work: impl FnOnce(&mut Folder) -> T) -> Option<T> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock().get_mut(&(folder as usize)).map(|folder| work(folder))
}

fn open(fd: c_int, open: Arc<Open>) -> *mut DIR {
    let folder = Box::new(Folder { fd, open, entries: None, next: 0 });
    let address = &raw const *folder as usize;
    let mut folders = lock();
    folders.insert(address, folder);
    COUNT.store(folders.len(), Ordering::Release);
    address as *mut DIR
}

impl Folder {
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

/// The folder's entries, itself and its parent first.
fn list(place: &Place) -> Result<Vec<dirent>> {
    let store = service()?.store(place.map)?;
    let listed = store.list(&place.path).map_err(|error| of_engine(&error))?;
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
        // Longer names have no room here, nor anywhere in Linux.
        if name.len() <= NAME_MAX {
            let place = Place { map: place.map, path: place.path.join(&one.name) };
            entries.push(entry(name, number(&place), kind));
        }
    }
    (0..).zip(&mut entries).for_each(|(at, entry)| entry.d_off = at + 1);
    Ok(entries)
}

fn entry(name: &[u8], number: u64, kind: u8) -> dirent {
    // SAFETY: numbers, of which 0 is one.
    let mut entry: dirent = unsafe { std::mem::zeroed() };
    entry.d_ino = number;
    entry.d_type = kind;
    entry.d_reclen = size_of::<dirent>() as u16;
    entry.d_name.iter_mut().zip(name).for_each(|(to, &from)| *to = from as c_char);
    entry
}

/// Opens a folder.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: as the caller says.
    let Some(place) = (unsafe { place(libc::AT_FDCWD, path) }) else {
        // SAFETY: as the caller says.
        return unsafe { real::opendir(path) };
    };
    served(|| {
        let fd = open_place(&place, libc::O_DIRECTORY | libc::O_CLOEXEC)?;
        let open = table::get(fd).ok_or(Errno(libc::EBADF))?;
        Ok(self::open(fd, open))
    })
}

/// The folder that a descriptor stands for.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    let Some(open) = table::get(fd) else {
        // SAFETY: as the caller says.
        return unsafe { real::fdopendir(fd) };
    };
    served(|| if open.live()?.is_folder() { Ok(self::open(fd, open)) } else { Err(Errno(libc::ENOTDIR)) })
}

macro_rules! reads {
    ($($name:ident)*) => {$(
        /// The next entry.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: *mut DIR) -> *mut dirent {
            match with(folder, |folder| served(|| folder.next())) {
                Some(entry) => entry,
                // SAFETY: as the caller says.
                None => unsafe { real::$name(folder) },
            }
        }
    )*};
}

reads! { readdir readdir64 }

/// Closes a folder.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut DIR) -> c_int {
    let ours = if COUNT.load(Ordering::Acquire) == 0 { None } else { lock().remove(&(folder as usize)) };
    match ours {
        Some(folder) => {
            COUNT.fetch_sub(1, Ordering::AcqRel);
            // SAFETY: the folder's own.
            unsafe { descriptors::close(folder.fd) }
        }
        // SAFETY: as the caller says.
        None => unsafe { real::closedir(folder) },
    }
}

/// Begins anew.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(folder: *mut DIR) {
    let begun = with(folder, |folder| {
        folder.entries = None;
        folder.next = 0;
    });
    if begun.is_none() {
        // SAFETY: as the caller says.
        unsafe { real::rewinddir(folder) };
    }
}

/// Where in a folder.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(folder: *mut DIR) -> c_long {
    match with(folder, |folder| folder.next) {
        Some(at) => at as c_long,
        // SAFETY: as the caller says.
        None => unsafe { real::telldir(folder) },
    }
}

/// Goes on from where `telldir` said.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(folder: *mut DIR, at: c_long) {
    if with(folder, |folder| folder.next = usize::try_from(at).unwrap_or(0)).is_none() {
        // SAFETY: as the caller says.
        unsafe { real::seekdir(folder, at) };
    }
}

/// The descriptor of a folder.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dirfd(folder: *mut DIR) -> c_int {
    match with(folder, |folder| folder.fd) {
        Some(fd) => fd,
        // SAFETY: as the caller says.
        None => unsafe { real::dirfd(folder) },
    }
}

/// Longest name, in bytes.
const NAME_MAX: usize = 255;
