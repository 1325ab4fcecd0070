//! `stat` and its kin, and what else asks about names.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;

use bowwave_engine::{Entry, EntryKind};
use libc::{AT_FDCWD, size_t, ssize_t, stat as Stat, statx as Statx};

use super::place;
use crate::attributes::{extended, of_entry};
use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::{Place, setup};
use crate::table;

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
    if !live.is_directory() {
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

/// Gives the descriptor itself with `AT_EMPTY_PATH`, if it is ours, else the place that `directory` and `path` name.
///
/// # Safety
/// NULL, or a string that ends with a zero byte.
unsafe fn named(directory: c_int, path: *const c_char, flags: c_int) -> Option<Result<Stat>> {
    // SAFETY: as the caller says.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return table::get(directory).map(|open| served_stat(|| of_open(&open)));
    }
    // SAFETY: as the caller says.
    let place = unsafe { place(directory, path) }?;
    Some(served_stat(|| of_place(&place, flags & libc::AT_SYMLINK_NOFOLLOW == 0)))
}

/// Calls that `work` makes are not served.
fn served_stat(work: impl FnOnce() -> Result<Stat>) -> Result<Stat> {
    let _inside = bowwave_interpose::Inside::enter();
    work()
}

/// access(2): nothing may be written; a file may be executed if the store says so.
fn may(place: &Place, mode: c_int) -> Result<c_int> {
    let (place, entry) = look(place, true)?;
    if mode & libc::W_OK != 0 {
        return Err(Errno(libc::EROFS));
    }
    let runs = of_entry(&place, &entry).st_mode & 0o111 != 0;
    if mode & libc::X_OK != 0 && !runs { Err(Errno(libc::EACCES)) } else { Ok(0) }
}

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

/// # Safety
/// NULL, or `PATH_MAX` bytes at `into`.
unsafe fn real_path(place: &Place, into: *mut c_char) -> Result<*mut c_char> {
    let place = service()?.without_links(place)?;
    let shown = CString::new(setup().shown(&place).into_os_string().into_encoded_bytes());
    let shown = shown.map_err(|_| Errno(libc::ENOENT))?;
    let bytes = shown.as_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    // SAFETY: `into` has `PATH_MAX` bytes; memory allocated here is freed by the program.
    unsafe {
        let to = if into.is_null() { libc::malloc(bytes.len()).cast::<c_char>() } else { into };
        if to.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
        Ok(to)
    }
}

interpose! {
    /// The attributes of a path.
    fn [stat stat64] (path: *const c_char, into: *mut Stat) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| put(into, of_place(&place, true)));
    /// The attributes of a path, of a link itself.
    fn [lstat lstat64] (path: *const c_char, into: *mut Stat) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| put(into, of_place(&place, false)));
    /// `stat` of programs linked with glibc before 2.33.
    fn [__xstat __xstat64] (version: c_int, path: *const c_char, into: *mut Stat) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| put(into, of_place(&place, true)));
    /// `lstat` of programs linked with glibc before 2.33.
    fn [__lxstat __lxstat64] (version: c_int, path: *const c_char, into: *mut Stat) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| put(into, of_place(&place, false)));
    /// The attributes of an open file.
    fn [fstat fstat64] (fd: c_int, into: *mut Stat) -> c_int,
        table::get(fd) => |open| served(|| put(into, of_open(&open)));
    /// `fstat` of programs linked with glibc before 2.33.
    fn [__fxstat __fxstat64] (version: c_int, fd: c_int, into: *mut Stat) -> c_int,
        table::get(fd) => |open| served(|| put(into, of_open(&open)));
    /// The attributes of a path below an open directory.
    fn [fstatat fstatat64] (directory: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int,
        named(directory, path, flags) => |found| served(|| put(into, found));
    /// `fstatat` of programs linked with glibc before 2.33.
    fn [__fxstatat __fxstatat64] (
        version: c_int, directory: c_int, path: *const c_char, into: *mut Stat, flags: c_int
    ) -> c_int,
        named(directory, path, flags) => |found| served(|| put(into, found));
    /// The attributes of a path, or of an open file.
    fn [statx] (
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx
    ) -> c_int,
        named(directory, path, flags) => |found| served(|| put(into, found.map(|found| extended(&found))));
    /// Whether a path may be used.
    fn [access euidaccess eaccess] (path: *const c_char, mode: c_int) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| may(&place, mode));
    /// Whether a path below an open directory may be used.
    fn [faccessat] (directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int,
        place(directory, path) => |place| served(|| may(&place, mode));
    /// The target of a link.
    fn [readlink] (path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t,
        place(AT_FDCWD, path) => |place| served(|| read_link(&place, buf, len));
    /// The target of a link below an open directory.
    fn [readlinkat] (directory: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t,
        place(directory, path) => |place| served(|| read_link(&place, buf, len));
    /// The path without links and dots.
    fn [realpath] (path: *const c_char, into: *mut c_char) -> *mut c_char,
        place(AT_FDCWD, path) => |place| served(|| real_path(&place, into));
    /// Extended attributes: no file of a store has any.
    fn [getxattr lgetxattr] (
        path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t
    ) -> ssize_t,
        place(AT_FDCWD, path) => |_place| served(|| Err(Errno(libc::ENOTSUP)));
    /// The names of extended attributes: no file of a store has any.
    fn [listxattr llistxattr] (path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t,
        place(AT_FDCWD, path) => |_place| served(|| Err(Errno(libc::ENOTSUP)));
}
