//! `malloc` and related functions.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::size_t;

use crate::heap;
use crate::libc_heap::{self, set_errno};
use crate::libc_heap::{
    __libc_calloc, __libc_free, __libc_malloc, __libc_memalign, __libc_realloc, ALIGN, PAGE,
};

/// Allocates from the swap if it serves the request: an address, or NULL and `errno`.
fn of_swap(size: usize, align: usize, zero: bool) -> Option<*mut c_void> {
    if !heap::serves(size) {
        return None;
    }
    heap::allocate(size, align, zero).map(or_errno)
}

fn or_errno(at: *mut c_void) -> *mut c_void {
    if at.is_null() {
        set_errno(libc::ENOMEM);
    }
    at
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: any size.
    of_swap(size, ALIGN, false).unwrap_or_else(|| unsafe { __libc_malloc(size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let all = count.checked_mul(size).and_then(|bytes| of_swap(bytes, ALIGN, true));
    // SAFETY: any sizes; an overflow is an error.
    all.unwrap_or_else(|| unsafe { __libc_calloc(count, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    if heap::has(at) {
        heap::free(at);
    } else if !heap::was_parents(at) {
        // SAFETY: guaranteed by the caller; from that heap.
        unsafe { __libc_free(at) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, size: size_t) -> *mut c_void {
    if at.is_null() {
        // SAFETY: any size.
        return unsafe { malloc(size) };
    }
    let is_swapped = heap::has(at);
    if !is_swapped && !heap::was_parents(at) && !heap::serves(size) {
        // SAFETY: guaranteed by the caller; from that heap.
        return unsafe { __libc_realloc(at, size) };
    }
    if size == 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { free(at) };
        return ptr::null_mut();
    }
    if is_swapped && heap::resize(at, size) {
        return at;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { moved(at, size) }
}

/// Moves an allocation to a new place.
///
/// # Safety
/// `at` was allocated and is owned by the caller.
unsafe fn moved(at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    let before = unsafe { malloc_usable_size(at) };
    let grows = size > before && heap::serves(size) && size > GROW_MIN;
    let large = if grows { heap::allocate_to_grow(size).map(or_errno) } else { None };
    // SAFETY: any size.
    let new = large.unwrap_or_else(|| unsafe { malloc(size) });
    if !new.is_null() {
        // SAFETY: both have that many bytes. No lock is held, so the copy may wait for pages.
        unsafe {
            ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), before.min(size));
            free(at);
        }
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: guaranteed by the caller.
        Some(bytes) => unsafe { realloc(at, bytes) },
        None => or_errno(ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    let align = align.max(ALIGN);
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: any size, and a power of two.
    of_swap(size, align, false).unwrap_or_else(|| unsafe { __libc_memalign(align, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { memalign(align, size) }
}

/// As `memalign`; returns the error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    let at = unsafe { memalign(align, size) };
    if at.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { *into = at };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { memalign(PAGE, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(PAGE) {
        // SAFETY: guaranteed by the caller.
        Some(size) => unsafe { memalign(PAGE, size) },
        None => or_errno(ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> size_t {
    if heap::has(at) {
        heap::usable(at)
    } else if heap::was_parents(at) {
        // A parent's memory: unknown here, and not accessible.
        0
    } else {
        // SAFETY: guaranteed by the caller; from that heap.
        unsafe { libc_heap::usable(at) }
    }
}

/// Minimum size in bytes from which a growing allocation gets spare address space.
const GROW_MIN: usize = 128 << 10;
