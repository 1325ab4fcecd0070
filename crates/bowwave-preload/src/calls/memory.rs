//! `mmap` and its kin.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use bowwave_engine::Advice;
use bowwave_interpose::Inside;
use libc::{off_t, size_t};

use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::maps::{self, PAGE, View, Wish};
use crate::{real, table};

/// Whole pages; none for what is not page-aligned, or too long, which the kernel refuses.
fn pages(at: *mut c_void, len: size_t) -> Option<Range<usize>> {
    let (start, len) = (at as usize, len.checked_next_multiple_of(PAGE)?);
    (start.is_multiple_of(PAGE) && len > 0).then_some(start..start.checked_add(len)?)
}

fn map(
    open: &Arc<Open>,
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<usize> {
    let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    let is_private = match flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => true,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => false,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if len == 0 || !offset.is_multiple_of(PAGE as u64) {
        return Err(Errno(libc::EINVAL));
    }
    if open.live()?.is_folder() {
        return Err(Errno(libc::ENODEV));
    }
    let writable = prot & libc::PROT_WRITE != 0;
    if writable && !is_private || prot & libc::PROT_EXEC != 0 {
        return Err(Errno(libc::EACCES));
    }
    maps::map(open, Wish { at: at as usize, len, flags, writable, offset })
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// Maps a file, or memory.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            len: size_t,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let open = if flags & libc::MAP_ANONYMOUS == 0 { table::get(fd) } else { None };
            if let Some(open) = open {
                let address = served(|| Ok(map(&open, at, len, prot, flags, offset)? as isize));
                return address as *mut c_void;
            }
            if flags & libc::MAP_FIXED != 0
                && !Inside::is()
                && let Some(range) = pages(at, len)
            {
                let _inside = Inside::enter();
                // What of ours was there is unmapped; the rest the kernel replaces.
                drop(maps::unmap(range));
            }
            // SAFETY: as the caller says.
            unsafe { real::$name(at, len, prot, flags, fd, offset) }
        }
    )*};
}

mmaps! { mmap mmap64 }

/// Unmaps.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let range = if Inside::is() { None } else { pages(at, len) };
    let Some(range) = range else {
        // SAFETY: as the caller says.
        return unsafe { real::munmap(at, len) };
    };
    let others = {
        let _inside = Inside::enter();
        maps::unmap(range)
    };
    let mut result = 0;
    for other in others {
        // SAFETY: as the caller says.
        result |= unsafe { real::munmap(other.start as *mut c_void, other.len()) };
    }
    result
}

/// What to do with memory, if it is ours.
fn of_ours<T>(at: *mut c_void, len: size_t, work: impl FnOnce(&View<'_>) -> T) -> Option<T> {
    if Inside::is() {
        return None;
    }
    let range = pages(at, len)?;
    let _inside = Inside::enter();
    maps::with(&range, work)
}

/// Moves or resizes a map. One of ours shrinks, and does nothing else: programs then map anew.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if of_ours(at, len.max(1), |_| ()).is_none() {
        // SAFETY: as the caller says.
        return unsafe { real::mremap(at, len, new_len, flags, to) };
    }
    let address = served(|| {
        let (old, new) = (pages(at, len), pages(at, new_len));
        match (old, new) {
            (Some(old), Some(new)) if new.end <= old.end && flags & libc::MREMAP_FIXED == 0 => {
                if new.end < old.end {
                    drop(maps::unmap(new.end..old.end));
                }
                Ok(at as isize)
            }
            (Some(_), Some(_)) => Err(Errno(libc::ENOMEM)),
            _ => Err(Errno(libc::EINVAL)),
        }
    });
    address as *mut c_void
}

/// Says who may touch memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
    let refused = of_ours(at, len, |view| {
        prot & libc::PROT_EXEC != 0 || prot & libc::PROT_WRITE != 0 && !view.is_writable()
    });
    if refused == Some(true) {
        return served(|| Err(Errno(libc::EACCES)));
    }
    // SAFETY: as the caller says.
    unsafe { real::mprotect(at, len, prot) }
}

/// What a program's advice on memory of ours comes to; none if it is the kernel's to follow.
fn follow(view: &View<'_>, advice: c_int) -> Option<Result<c_int>> {
    let advice = match advice {
        libc::MADV_NORMAL => Advice::Normal,
        libc::MADV_SEQUENTIAL => Advice::Sequential,
        libc::MADV_RANDOM => Advice::Random,
        libc::MADV_WILLNEED => Advice::WillNeed,
        libc::MADV_POPULATE_READ => return Some(view.populate().map(|()| 0)),
        // Regions are never inherited; their maps are made anew.
        libc::MADV_DOFORK | libc::MADV_DONTFORK => return Some(Ok(0)),
        libc::MADV_DONTNEED | libc::MADV_DONTDUMP | libc::MADV_DODUMP => return None,
        _ => return Some(Err(Errno(libc::EINVAL))),
    };
    Some(view.advise(advice).map(|()| 0))
}

/// Says how memory will be touched.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    match of_ours(at, len, |view| follow(view, advice)).flatten() {
        Some(result) => served(|| result),
        // SAFETY: as the caller says.
        None => unsafe { real::madvise(at, len, advice) },
    }
}

/// Says how memory will be touched. Its error is what it returns.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // Those of POSIX have Linux's numbers; the one that drops pages does nothing in the C library, either.
    let ours = of_ours(at, len, |view| {
        if advice == libc::POSIX_MADV_DONTNEED { Some(Ok(0)) } else { follow(view, advice) }
    });
    match ours.flatten() {
        Some(Ok(_)) => 0,
        Some(Err(Errno(number))) => number,
        // SAFETY: as the caller says.
        None => unsafe { real::posix_madvise(at, len, advice) },
    }
}
