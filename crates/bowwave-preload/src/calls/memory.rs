//! `mmap` and related functions.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use bowwave_engine::Advice;
use bowwave_interpose::Inside;
use libc::{off_t, size_t};

use crate::errno::{Errno, Result, served};
use crate::live::Open;
use crate::maps::{self, MapRequest, PAGE, View};
use crate::{real, table};

/// Whole pages; `None` for unaligned or too long ranges, which the kernel rejects.
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
    if open.live()?.is_directory() {
        return Err(Errno(libc::ENODEV));
    }
    let writable = prot & libc::PROT_WRITE != 0;
    if writable && !is_private || prot & libc::PROT_EXEC != 0 {
        return Err(Errno(libc::EACCES));
    }
    maps::map(open, MapRequest { at: at as usize, len, flags, writable, offset })
}

/// The served file to map, if any. Otherwise unmaps our pages at a fixed address, which the kernel
/// replaces.
fn to_map(at: *mut c_void, len: size_t, flags: c_int, fd: c_int) -> Option<Arc<Open>> {
    let open = if flags & libc::MAP_ANONYMOUS == 0 { table::get(fd) } else { None };
    if open.is_none()
        && flags & libc::MAP_FIXED != 0
        && !Inside::is()
        && let Some(range) = pages(at, len)
    {
        let _inside = Inside::enter();
        drop(maps::unmap(range));
    }
    open
}

/// Unmaps.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let range = if Inside::is() { None } else { pages(at, len) };
    let Some(range) = range else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::munmap(at, len) };
    };
    let others = {
        let _inside = Inside::enter();
        maps::unmap(range)
    };
    let mut result = 0;
    for other in others {
        // SAFETY: guaranteed by the caller.
        result |= unsafe { real::munmap(other.start as *mut c_void, other.len()) };
    }
    result
}

/// Applies `work` to a served map at these addresses, if any.
fn with_served<T>(at: *mut c_void, len: size_t, work: impl FnOnce(&View<'_>) -> T) -> Option<T> {
    if Inside::is() {
        return None;
    }
    let range = pages(at, len)?;
    let _inside = Inside::enter();
    maps::with(&range, work)
}

/// Shrinks a served map; rejects other changes, after which programs map again.
fn remap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int) -> Result<isize> {
    match (pages(at, len), pages(at, new_len)) {
        (Some(old), Some(new)) if new.end <= old.end && flags & libc::MREMAP_FIXED == 0 => {
            if new.end < old.end {
                drop(maps::unmap(new.end..old.end));
            }
            Ok(at as isize)
        }
        (Some(_), Some(_)) => Err(Errno(libc::ENOMEM)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Whether a served map rejects this protection; `None` if it allows it.
fn rejects(at: *mut c_void, len: size_t, prot: c_int) -> Option<()> {
    with_served(at, len, |view| {
        prot & libc::PROT_EXEC != 0 || prot & libc::PROT_WRITE != 0 && !view.is_writable()
    })?
    .then_some(())
}

/// Applies a program's advice to a served map; `None` if the kernel should apply it.
fn apply(view: &View<'_>, advice: c_int) -> Option<Result<c_int>> {
    let advice = match advice {
        libc::MADV_NORMAL => Advice::Normal,
        libc::MADV_SEQUENTIAL => Advice::Sequential,
        libc::MADV_RANDOM => Advice::Random,
        libc::MADV_WILLNEED => Advice::WillNeed,
        libc::MADV_POPULATE_READ => return Some(view.populate().map(|()| 0)),
        // Regions are never inherited; a child recreates their maps.
        libc::MADV_DOFORK | libc::MADV_DONTFORK => return Some(Ok(0)),
        libc::MADV_DONTNEED | libc::MADV_DONTDUMP | libc::MADV_DODUMP => return None,
        _ => return Some(Err(Errno(libc::EINVAL))),
    };
    Some(view.advise(advice).map(|()| 0))
}

/// POSIX advice has Linux's numbers. Like the C library, ignores the one that drops pages.
fn apply_posix(view: &View<'_>, advice: c_int) -> Option<Result<c_int>> {
    if advice == libc::POSIX_MADV_DONTNEED { Some(Ok(0)) } else { apply(view, advice) }
}

interpose! {
    /// Maps a file, or memory.
    fn [mmap mmap64] (
        at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void,
        to_map(at, len, flags, fd) => |open|
        served(|| Ok(map(&open, at, len, prot, flags, offset)? as isize)) as *mut c_void;
    /// Moves or resizes a map.
    fn [mremap] (
        at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void
    ) -> *mut c_void,
        with_served(at, len.max(1), |_| ()) => |()| served(|| remap(at, len, new_len, flags)) as *mut c_void;
    /// Sets the protection of memory.
    fn [mprotect] (at: *mut c_void, len: size_t, prot: c_int) -> c_int,
        rejects(at, len, prot) => |()| served(|| Err(Errno(libc::EACCES)));
    /// Advice on memory.
    fn [madvise] (at: *mut c_void, len: size_t, advice: c_int) -> c_int,
        with_served(at, len, |view| apply(view, advice)).flatten() => |result| served(|| result);
    /// Advice on memory. Returns the error number.
    fn [posix_madvise] (at: *mut c_void, len: size_t, advice: c_int) -> c_int,
        with_served(at, len, |view| apply_posix(view, advice)).flatten() => |result| match result {
            Ok(_) => 0,
            Err(Errno(number)) => number,
        };
}
