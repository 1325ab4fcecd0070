//! `stat` and its kin, and what else asks about names.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;

use bowwave_engine::{Entry, EntryKind};
use libc::{size_t, ssize_t, stat as Stat, statx as Statx};

use super::place;
use crate::attributes::{extended, of_entry};
use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::{Place, setup};
use crate::{real, table};

fn look(place: &Place, follow: bool) -> Result<(Place, Entry)> {
    service()?.look(place, follow)
}

fn of_place(place: &Place, follow: bool) -> Result<Stat> {
    let (place, entry) = look(place, follow)?;
    Ok(of_entry(&place, &entry))
}

fn of_open(open: &Open) -> Result<Stat> {
    let live = open.live()?;
    let mut shown = of_entry(&open.place, &live.entry);
    if !live.is_folder() {
        shown.st_size = i64::try_from(live.size()).unwrap_or(i64::MAX);
    }
    Ok(shown)
}

/// Hands a structure over.
///
/// # Safety
/// NULL, or room for it.
unsafe fn put<T>(into: *mut T, found: Result<T>) -> Result<c_int> {
    let found = found?;
    if into.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller says.
    unsafe { into.write(found) };
    Ok(0)
}

macro_rules! stats {
    ($($follow:literal $name:ident($($version:ident)?);)*) => {$(
        /// Describes what has a name.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($version: c_int,)? path: *const c_char, into: *mut Stat) -> c_int {
            // SAFETY: as the caller says.
            match unsafe { place(libc::AT_FDCWD, path) } {
                // SAFETY: as the caller says.
                Some(place) => served(|| unsafe { put(into, of_place(&place, $follow)) }),
                // SAFETY: as the caller says.
                None => unsafe { real::$name($($version,)? path, into) },
            }
        }
    )*};
}

stats! {
    true stat();
    true stat64();
    false lstat();
    false lstat64();
    true __xstat(version);
    true __xstat64(version);
    false __lxstat(version);
    false __lxstat64(version);
}

macro_rules! fstats {
    ($($name:ident($($version:ident)?);)*) => {$(
        /// Describes what is open.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($version: c_int,)? fd: c_int, into: *mut Stat) -> c_int {
            match table::get(fd) {
                // SAFETY: as the caller says.
                Some(open) => served(|| unsafe { put(into, of_open(&open)) }),
                // SAFETY: as the caller says.
                None => unsafe { real::$name($($version,)? fd, into) },
            }
        }
    )*};
}

fstats! {
    fstat();
    fstat64();
    __fxstat(version);
    __fxstat64(version);
}

/// What a folder, a path and flags name: a descriptor of ours itself, or a place of ours.
///
/// # Safety
/// NULL, or a string that ends with a zero byte.
unsafe fn named(folder: c_int, path: *const c_char, flags: c_int) -> Option<Result<Stat>> {
    // SAFETY: as the caller says.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return table::get(folder).map(|open| served_stat(|| of_open(&open)));
    }
    // SAFETY: as the caller says.
    let place = unsafe { place(folder, path) }?;
    Some(served_stat(|| of_place(&place, flags & libc::AT_SYMLINK_NOFOLLOW == 0)))
}

/// As bowwave's own work.
fn served_stat(work: impl FnOnce() -> Result<Stat>) -> Result<Stat> {
    let _inside = bowwave_interpose::Inside::enter();
    work()
}

macro_rules! stats_at {
    ($($name:ident($($version:ident)?);)*) => {$(
        /// Describes what has a name below an open folder.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)?
            folder: c_int,
            path: *const c_char,
            into: *mut Stat,
            flags: c_int,
        ) -> c_int {
            // SAFETY: as the caller says.
            match unsafe { named(folder, path, flags) } {
                // SAFETY: as the caller says.
                Some(found) => served(|| unsafe { put(into, found) }),
                // SAFETY: as the caller says.
                None => unsafe { real::$name($($version,)? folder, path, into, flags) },
            }
        }
    )*};
}

stats_at! {
    fstatat();
    fstatat64();
    __fxstatat(version);
    __fxstatat64(version);
}

/// Describes what has a name, or is open.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut Statx,
) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { named(folder, path, flags) } {
        // SAFETY: as the caller says.
        Some(found) => served(|| unsafe { put(into, found.map(|found| extended(&found))) }),
        // SAFETY: as the caller says.
        None => unsafe { real::statx(folder, path, flags, mask, into) },
    }
}

/// Whether it is there, and may be read; nothing may be written. Files may be run if the store says so.
fn may(place: &Place, mode: c_int) -> Result<c_int> {
    let (place, entry) = look(place, true)?;
    if mode & libc::W_OK != 0 {
        return Err(Errno(libc::EROFS));
    }
    let runs = of_entry(&place, &entry).st_mode & 0o111 != 0;
    if mode & libc::X_OK != 0 && !runs { Err(Errno(libc::EACCES)) } else { Ok(0) }
}

macro_rules! accesses {
    ($($name:ident)*) => {$(
        /// Whether what has a name may be used.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: c_int) -> c_int {
            // SAFETY: as the caller says.
            match unsafe { place(libc::AT_FDCWD, path) } {
                Some(place) => served(|| may(&place, mode)),
                // SAFETY: as the caller says.
                None => unsafe { real::$name(path, mode) },
            }
        }
    )*};
}

accesses! { access euidaccess eaccess }

/// Whether what has a name below an open folder may be used.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { place(folder, path) } {
        Some(place) => served(|| may(&place, mode)),
        // SAFETY: as the caller says.
        None => unsafe { real::faccessat(folder, path, mode, flags) },
    }
}

/// Where a link leads.
///
/// # Safety
/// `len` bytes at `buf`.
unsafe fn read_link(place: &Place, buf: *mut c_char, len: size_t) -> Result<ssize_t> {
    let (place, entry) = look(place, false)?;
    if entry.kind != EntryKind::Link {
        return Err(Errno(libc::EINVAL));
    }
    let store = service()?.store(place.map)?;
    let target = store.read_link(&place.path).map_err(|error| crate::errno::of_engine(&error))?;
    let target = target.as_os_str().as_bytes();
    let count = target.len().min(len);
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), buf.cast(), count) };
    Ok(isize::try_from(count).expect("paths are short"))
}

/// Where a link leads.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: as the caller says.
    match unsafe { place(libc::AT_FDCWD, path) } {
        // SAFETY: as the caller says.
        Some(place) => served(|| unsafe { read_link(&place, buf, len) }),
        // SAFETY: as the caller says.
        None => unsafe { real::readlink(path, buf, len) },
    }
}

/// Where a link below an open folder leads.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    folder: c_int,
    path: *const c_char,
    buf: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: as the caller says.
    match unsafe { place(folder, path) } {
        // SAFETY: as the caller says.
        Some(place) => served(|| unsafe { read_link(&place, buf, len) }),
        // SAFETY: as the caller says.
        None => unsafe { real::readlinkat(folder, path, buf, len) },
    }
}

/// The path without links and dots.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: as the caller says.
    let Some(place) = (unsafe { place(libc::AT_FDCWD, path) }) else {
        // SAFETY: as the caller says.
        return unsafe { real::realpath(path, into) };
    };
    served(|| {
        let place = service()?.without_links(&place)?;
        let shown = CString::new(setup().shown(&place).into_os_string().into_encoded_bytes());
        let shown = shown.map_err(|_| Errno(libc::ENOENT))?;
        let bytes = shown.as_bytes_with_nul();
        if bytes.len() > libc::PATH_MAX as usize {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        // SAFETY: the caller's room is for the longest of paths; without any, he frees what we take.
        unsafe {
            let to = if into.is_null() { libc::malloc(bytes.len()).cast::<c_char>() } else { into };
            if to.is_null() {
                return Err(Errno(libc::ENOMEM));
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
            Ok(to)
        }
    })
}

macro_rules! extended_attributes {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// Extended attributes: there are none here.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char $(, $argument: $kind)*) -> ssize_t {
            // SAFETY: as the caller says.
            match unsafe { place(libc::AT_FDCWD, path) } {
                Some(_) => served(|| Err(Errno(libc::ENOTSUP))),
                // SAFETY: as the caller says.
                None => unsafe { real::$name(path $(, $argument)*) },
            }
        }
    )*};
}

extended_attributes! {
    getxattr(name: *const c_char, value: *mut c_void, len: size_t);
    lgetxattr(name: *const c_char, value: *mut c_void, len: size_t);
    listxattr(list: *mut c_char, len: size_t);
    llistxattr(list: *mut c_char, len: size_t);
}
