//! `open` and its kin.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use bowwave_engine::EntryKind;
use libc::mode_t;

use super::place;
use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::service::service;
use crate::setup::Place;
use crate::{placeholder, real};

/// Opens a place: for reading, since nothing can be written.
pub(super) fn open_place(place: &Place, flags: c_int) -> Result<c_int> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    let found = service()?.look(place, flags & libc::O_NOFOLLOW == 0);
    let (place, entry) = match found {
        Err(Errno(libc::ENOENT)) if flags & libc::O_CREAT != 0 => return Err(Errno(libc::EROFS)),
        found => found?,
    };
    let is_folder = entry.kind == EntryKind::Directory;
    let refusal = if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
        Some(libc::EEXIST)
    } else if is_folder && (writes || flags & libc::O_CREAT != 0) {
        Some(libc::EISDIR)
    } else if writes {
        Some(libc::EROFS)
    } else if flags & libc::O_DIRECTORY != 0 && !is_folder {
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

macro_rules! opens {
    ($($(#[$doc:meta])* $name:ident($($folder:ident,)? | $($mode:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($folder: c_int,)? path: *const c_char, flags: c_int $(, $mode: $kind)*) -> c_int {
            // SAFETY: as the caller says.
            match unsafe { place(opens!(@from $($folder)?), path) } {
                Some(place) => served(|| open_place(&place, flags)),
                // SAFETY: as the caller says. Without O_CREAT the mode is whatever is there, and nobody reads it.
                None => unsafe { real::$name($($folder,)? path, flags $(, $mode)*) },
            }
        }
    )*};
    (@from) => { libc::AT_FDCWD };
    (@from $folder:ident) => { $folder };
}

opens! {
    /// Opens a file.
    open(| mode: mode_t);
    /// Opens a file of any size.
    open64(| mode: mode_t);
    /// Opens a file below an open folder.
    openat(folder, | mode: mode_t);
    /// Opens a file of any size below an open folder.
    openat64(folder, | mode: mode_t);
    /// `open` of fortified programs.
    __open_2(|);
    /// `open64` of fortified programs.
    __open64_2(|);
    /// `openat` of fortified programs.
    __openat_2(folder, |);
    /// `openat64` of fortified programs.
    __openat64_2(folder, |);
}

macro_rules! creates {
    ($($name:ident)*) => {$(
        /// Makes a file: not here.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: mode_t) -> c_int {
            // SAFETY: as the caller says.
            match unsafe { place(libc::AT_FDCWD, path) } {
                Some(place) => {
                    served(|| open_place(&place, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC))
                }
                // SAFETY: as the caller says.
                None => unsafe { real::$name(path, mode) },
            }
        }
    )*};
}

creates! { creat creat64 }
