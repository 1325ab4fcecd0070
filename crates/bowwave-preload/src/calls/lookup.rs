//! `stat` and related functions, and other queries by name.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use bowwave_engine::{Entry, EntryKind, Namespace as _};
use libc::{AT_FDCWD, size_t, ssize_t, stat as Stat, statx as Statx};

use super::place;
use crate::attributes::{extended, of_entry};
use crate::errno::{Errno, Result, of_error, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::{Place, setup};
use crate::table;

fn lookup(place: &Place, follow: bool) -> Result<(Place, Entry)> {
    service()?.lookup(place, follow)
}

fn of_place(place: &Place, follow: bool) -> Result<Stat> {
    let (place, entry) = lookup(place, follow)?;
    Ok(of_entry(&place, &entry))
}

fn of_open(open: &Open) -> Result<Stat> {
    let live = open.live()?;
    let mut attr = of_entry(&open.place, &live.entry);
    if !live.is_directory() {
        attr.st_size = i64::try_from(live.size()).unwrap_or(i64::MAX);
    }
    Ok(attr)
}

/// Writes a structure to the caller.
///
/// # Safety
/// NULL, or valid for a write.
unsafe fn put<T>(into: *mut T, found: Result<T>) -> Result<c_int> {
    let found = found?;
    if into.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { into.write(found) };
    Ok(0)
}

/// What `fstatat` and `statx` name.
enum Named {
    Open(Arc<Open>),
    Place { place: Place, follow: bool },
}

impl Named {
    fn attributes(&self) -> Result<Stat> {
        match self {
            Self::Open(open) => of_open(open),
            Self::Place { place, follow } => of_place(place, *follow),
        }
    }
}

/// The descriptor itself with `AT_EMPTY_PATH`, if it is served; otherwise the place named by
/// `directory` and `path`.
///
/// # Safety
/// NULL, or a NUL-terminated string.
unsafe fn named(directory: c_int, path: *const c_char, flags: c_int) -> Option<Named> {
    // SAFETY: guaranteed by the caller.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return table::get(directory).map(Named::Open);
    }
    // SAFETY: guaranteed by the caller.
    let place = unsafe { place(directory, path) }?;
    Some(Named::Place { place, follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0 })
}

/// access(2): writes are denied; execution is allowed if the store's mode allows it.
fn may(place: &Place, mode: c_int) -> Result<c_int> {
    let (place, entry) = lookup(place, true)?;
    if mode & libc::W_OK != 0 {
        return Err(Errno(libc::EROFS));
    }
    let runs = of_entry(&place, &entry).st_mode & 0o111 != 0;
    if mode & libc::X_OK != 0 && !runs { Err(Errno(libc::EACCES)) } else { Ok(0) }
}

/// # Safety
/// `buf` is valid for `len` bytes.
unsafe fn read_link(place: &Place, buf: *mut c_char, len: size_t) -> Result<ssize_t> {
    let (place, entry) = lookup(place, false)?;
    if entry.kind != EntryKind::Link {
        return Err(Errno(libc::EINVAL));
    }
    let store = service()?.store(place.map)?;
    let target = store.read_link(&place.path).map_err(of_error)?;
    let target = target.as_os_str().as_bytes();
    let count = target.len().min(len);
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), buf.cast(), count) };
    Ok(isize::try_from(count).expect("paths are short"))
}

/// # Safety
/// NULL, or valid for `PATH_MAX` bytes.
unsafe fn real_path(place: &Place, into: *mut c_char) -> Result<*mut c_char> {
    let place = service()?.without_links(place)?;
    let path = CString::new(setup().visible_path(&place).into_os_string().into_encoded_bytes());
    let path = path.map_err(|_| Errno(libc::ENOENT))?;
    let bytes = path.as_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    // SAFETY: `into` has `PATH_MAX` bytes; the program frees memory allocated here.
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
    /// The attributes of a path, without following a link.
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
        named(directory, path, flags) => |named| served(|| put(into, named.attributes()));
    /// `fstatat` of programs linked with glibc before 2.33.
    fn [__fxstatat __fxstatat64] (
        version: c_int, directory: c_int, path: *const c_char, into: *mut Stat, flags: c_int
    ) -> c_int,
        named(directory, path, flags) => |named| served(|| put(into, named.attributes()));
    /// The attributes of a path, or of an open file.
    fn [statx] (
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx
    ) -> c_int,
        named(directory, path, flags) => |named| served(|| put(into, named.attributes().map(|found| extended(&found))));
    /// Checks permissions of a path.
    fn [access euidaccess eaccess] (path: *const c_char, mode: c_int) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| may(&place, mode));
    /// Checks permissions of a path below an open directory.
    fn [faccessat] (directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int,
        place(directory, path) => |place| served(|| may(&place, mode));
    /// The target of a link.
    fn [readlink] (path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t,
        place(AT_FDCWD, path) => |place| served(|| read_link(&place, buf, len));
    /// The target of a link below an open directory.
    fn [readlinkat] (directory: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t,
        place(directory, path) => |place| served(|| read_link(&place, buf, len));
    /// The canonical path, without links and dots.
    fn [realpath] (path: *const c_char, into: *mut c_char) -> *mut c_char,
        place(AT_FDCWD, path) => |place| served(|| real_path(&place, into));
    /// Extended attributes are not served: `ENOTSUP`.
    fn [getxattr lgetxattr] (
        path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t
    ) -> ssize_t,
        place(AT_FDCWD, path) => |_place| served(|| Err(Errno(libc::ENOTSUP)));
    /// Names of extended attributes are not served: `ENOTSUP`.
    fn [listxattr llistxattr] (path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t,
        place(AT_FDCWD, path) => |_place| served(|| Err(Errno(libc::ENOTSUP)));
}
