//! `mmap` and related functions.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;

use bowwave_interpose::say;
use bowwave_region::RegionAdvice;
use libc::{off_t, size_t};

use crate::libc_heap::{PAGE, set_errno};
use crate::{heap, real};

/// Whole pages; `None` for unaligned or too long ranges, which the kernel rejects.
fn pages(at: *const c_void, len: size_t) -> Option<Range<usize>> {
    let (start, len) = (at as usize, len.checked_next_multiple_of(PAGE)?);
    (start.is_multiple_of(PAGE) && len > 0).then_some(start..start.checked_add(len)?)
}

/// Whether part of a range is in the swap.
fn is_ours(at: *const c_void, len: size_t) -> bool {
    heap::is_on() && (heap::has(at) || heap::has(at.wrapping_byte_add(len.saturating_sub(1))))
}

fn failed<T>(result: T, number: c_int) -> T {
    set_errno(number);
    result
}

/// Maps memory from the swap if it serves the request.
fn map(at: *mut c_void, len: size_t, prot: c_int, flags: c_int) -> Option<*mut c_void> {
    if !heap::is_on() {
        return None;
    }
    if flags & libc::MAP_FIXED != 0 {
        return if is_ours(at, len) { Some(replace(at, len, prot, flags)) } else { None };
    }
    let is_plain = flags & !HARMLESS == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if !is_plain || prot != libc::PROT_READ | libc::PROT_WRITE || len < MAP_MIN || !heap::serves(len) {
        return None;
    }
    let at = heap::map(len.checked_next_multiple_of(PAGE)?)?;
    Some(if at.is_null() { failed(libc::MAP_FAILED, libc::ENOMEM) } else { at })
}

/// A map over swapped memory: allocators use it to free memory or to zero it.
fn replace(at: *mut c_void, len: size_t, prot: c_int, flags: c_int) -> *mut c_void {
    let is_memory = flags & libc::MAP_ANONYMOUS != 0
        && flags & libc::MAP_TYPE == libc::MAP_PRIVATE
        && prot & libc::PROT_EXEC == 0;
    let range = pages(at, len).filter(|range| {
        let last = ptr::without_provenance(range.end - 1);
        is_memory && heap::has(at) && heap::has(last)
    });
    match range {
        Some(range) if heap::advise(&range, RegionAdvice::DontNeed) => at,
        _ => {
            say(&format_args!("mmap({at:p}, {len}): nothing else can be mapped over swapped memory"));
            failed(libc::MAP_FAILED, libc::ENOMEM)
        }
    }
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            len: size_t,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            // SAFETY: guaranteed by the caller.
            map(at, len, prot, flags).unwrap_or_else(|| unsafe { real::$name(at, len, prot, flags, fd, offset) })
        }
    )*};
}

mmaps! { mmap mmap64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    if heap::was_parents(at) && len > 0 {
        // In a child, the addresses stay reserved: a new map there would be mistaken for the
        // parent's.
        return 0;
    }
    let range = if is_ours(at, len) { pages(at, len) } else { None };
    let Some(range) = range else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::munmap(at, len) };
    };
    let mut result = 0;
    for other in heap::unmap(&range) {
        // SAFETY: guaranteed by the caller.
        result |= unsafe { real::munmap(ptr::with_exposed_provenance_mut(other.start), other.len()) };
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if !is_ours(at, len) {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::mremap(at, len, new_len, flags, to) };
    }
    let (Some(old), Some(new)) = (pages(at, len), pages(at, new_len)) else {
        return failed(libc::MAP_FAILED, libc::EINVAL);
    };
    let Some(part) = heap::part(old.start).filter(|part| old.end <= part.used.end) else {
        return failed(libc::MAP_FAILED, libc::EFAULT);
    };
    if flags & !libc::MREMAP_MAYMOVE != 0 {
        say(&"mremap: swapped memory goes to no given address");
        return failed(libc::MAP_FAILED, libc::EINVAL);
    }
    if new.len() <= old.len() {
        if new.len() < old.len() {
            heap::unmap(&(new.end..old.end));
        }
        return at;
    }
    if part.used == old && heap::resize(at, new.len()) {
        return at;
    }
    let to = if flags & libc::MREMAP_MAYMOVE == 0 { None } else { heap::allocate_to_grow(new.len()) };
    let Some(to) = to.filter(|to| !to.is_null()) else { return failed(libc::MAP_FAILED, libc::ENOMEM) };
    // SAFETY: both have that many bytes. No lock is held, so the copy may wait for pages.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), to.cast::<u8>(), old.len()) };
    heap::unmap(&old);
    to
}

/// Sets the protection of memory. Swapped memory always stays readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
    if !is_ours(at, len) {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::mprotect(at, len, prot) };
    }
    if prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) == libc::PROT_READ | libc::PROT_WRITE {
        return 0;
    }
    say(&format_args!(
        "mprotect({at:p}, {len}, {prot}): swapped memory can always be read and written, and not executed"
    ));
    failed(-1, libc::EACCES)
}

/// How advice is handled.
enum Handling {
    By(RegionAdvice),
    /// Ignored.
    Nothing,
    /// Passed to the kernel.
    Kernel,
    Invalid,
}

fn handling(advice: c_int) -> Handling {
    match advice {
        libc::MADV_NORMAL => Handling::By(RegionAdvice::Normal),
        libc::MADV_SEQUENTIAL => Handling::By(RegionAdvice::Sequential),
        libc::MADV_RANDOM => Handling::By(RegionAdvice::Random),
        libc::MADV_WILLNEED => Handling::By(RegionAdvice::WillNeed),
        libc::MADV_DONTNEED | libc::MADV_FREE => Handling::By(RegionAdvice::DontNeed),
        libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DONTFORK
        | libc::MADV_DOFORK
        | libc::MADV_DONTDUMP
        | libc::MADV_COLD => Handling::Nothing,
        libc::MADV_PAGEOUT => Handling::By(RegionAdvice::PageOut),
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Handling::Kernel,
        _ => Handling::Invalid,
    }
}

/// 0 or an error number; `None` if the kernel should apply the advice.
fn advise(at: *mut c_void, len: size_t, advice: c_int) -> Option<c_int> {
    if !is_ours(at, len) {
        return None;
    }
    match handling(advice) {
        Handling::Nothing => Some(0),
        Handling::Kernel => None,
        Handling::Invalid => Some(libc::EINVAL),
        Handling::By(advice) => Some(match pages(at, len) {
            Some(range) if heap::advise(&range, advice) => 0,
            Some(_) => libc::ENOMEM,
            None if len == 0 => 0,
            None => libc::EINVAL,
        }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    match advise(at, len, advice) {
        Some(0) => 0,
        Some(number) => failed(-1, number),
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::madvise(at, len, advice) },
    }
}

/// Advises how memory will be accessed. Returns the error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // POSIX advice has Linux's numbers. Like the C library, ignores the one that drops pages.
    if advice == libc::POSIX_MADV_DONTNEED && is_ours(at, len) {
        return 0;
    }
    match advise(at, len, advice) {
        Some(number) => number,
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::posix_madvise(at, len, advice) },
    }
}

macro_rules! locks {
    ($($name:ident($($flags:ident)?);)*) => {$(
        /// Locks memory, which swapped memory rejects.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: *const c_void, len: size_t $(, $flags: c_uint)?) -> c_int {
            if is_ours(at, len) {
                return failed(-1, libc::ENOMEM);
            }
            // SAFETY: guaranteed by the caller.
            unsafe { real::$name(at, len $(, $flags)?) }
        }
    )*};
}

locks! {
    mlock();
    mlock2(flags);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if heap::is_on() {
        say(&"mlockall: the memory of this program is to be swapped; it is not locked");
        return failed(-1, libc::ENOMEM);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::mlockall(flags) }
}

/// Minimum size of served maps in bytes. Smaller ones, such as tables, stacks and library buffers,
/// are the kernel's.
const MAP_MIN: usize = 2 << 20;
/// Flags without effect here.
const HARMLESS: c_int = libc::MAP_NORESERVE | libc::MAP_POPULATE;
