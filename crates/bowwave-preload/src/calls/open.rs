//! `open` and related functions.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use bowwave_engine::EntryKind;
use libc::{AT_FDCWD, mode_t};

use super::place;
use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::placeholder;
use crate::service::service;
use crate::setup::Place;

/// Opens a place for reading; writing is rejected.
pub(super) fn open_place(place: &Place, flags: c_int) -> Result<c_int> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    let found = service()?.lookup(place, flags & libc::O_NOFOLLOW == 0);
    let (place, entry) = match found {
        Err(Errno(libc::ENOENT)) if flags & libc::O_CREAT != 0 => return Err(Errno(libc::EROFS)),
        found => found?,
    };
    let is_directory = entry.kind == EntryKind::Directory;
    let refusal = if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
        Some(libc::EEXIST)
    } else if is_directory && (writes || flags & libc::O_CREAT != 0) {
        Some(libc::EISDIR)
    } else if writes {
        Some(libc::EROFS)
    } else if flags & libc::O_DIRECTORY != 0 && !is_directory {
        Some(libc::ENOTDIR)
    } else {
        None
    };
    if let Some(number) = refusal {
        return Err(Errno(number));
    }
    let open = Arc::new(Open::new(place, entry)?);
    let size = open.live()?.size();
    placeholder::make(open, size, flags & libc::O_CLOEXEC != 0)
}

interpose! {
    /// Opens a file. Without `O_CREAT` the mode is undefined and never read.
    fn [open open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| open_place(&place, flags));
    /// Opens a file below an open directory.
    fn [openat openat64] (directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        place(directory, path) => |place| served(|| open_place(&place, flags));
    /// `open` for fortified programs.
    fn [__open_2 __open64_2] (path: *const c_char, flags: c_int) -> c_int,
        place(AT_FDCWD, path) => |place| served(|| open_place(&place, flags));
    /// `openat` for fortified programs.
    fn [__openat_2 __openat64_2] (directory: c_int, path: *const c_char, flags: c_int) -> c_int,
        place(directory, path) => |place| served(|| open_place(&place, flags));
    /// Creates a file: rejected.
    fn [creat creat64] (path: *const c_char, mode: mode_t) -> c_int,
        place(AT_FDCWD, path) => |place|
        served(|| open_place(&place, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC));
}
