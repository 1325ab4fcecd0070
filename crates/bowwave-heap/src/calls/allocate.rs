//! `malloc` and its kin.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::size_t;

use crate::heap;
use crate::libc_heap::{self, set_errno};
use crate::libc_heap::{
    __libc_calloc, __libc_free, __libc_malloc, __libc_memalign, __libc_realloc, ALIGN, PAGE,
};

/// What the swap gives, if the request is for it: an address, or NULL and an error number.
fn of_swap(size: usize, align: usize, zero: bool) -> Option<*mut c_void> {
    if !heap::is_wanted(size) {
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

/// Allocates.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: any size.
    of_swap(size, ALIGN, false).unwrap_or_else(|| unsafe { __libc_malloc(size) })
}

/// Allocates zeros.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let all = count.checked_mul(size).and_then(|bytes| of_swap(bytes, ALIGN, true));
    // SAFETY: any sizes; too much is an error.
    all.unwrap_or_else(|| unsafe { __libc_calloc(count, size) })
}

/// Frees.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    if heap::has(at) {
        heap::free(at);
    } else if !heap::had(at) {
        // SAFETY: as the caller says, from there.
        unsafe { __libc_free(at) };
    }
}

/// Has something be of another size.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, size: size_t) -> *mut c_void {
    if at.is_null() {
        // SAFETY: any size.
        return unsafe { malloc(size) };
    }
    let is_swapped = heap::has(at);
    if !is_swapped && !heap::had(at) && !heap::is_wanted(size) {
        // SAFETY: as the caller says, from there.
        return unsafe { __libc_realloc(at, size) };
    }
    if size == 0 {
        // SAFETY: as the caller says.
        unsafe { free(at) };
        return ptr::null_mut();
    }
    if is_swapped && heap::resize(at, size) {
        return at;
    }
    // SAFETY: as the caller says.
    unsafe { moved(at, size) }
}

/// Copies something to where there is room for it.
///
/// # Safety
/// `at` was allocated, and is nobody else's.
unsafe fn moved(at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    let before = unsafe { malloc_usable_size(at) };
    let grows = size > before && heap::is_wanted(size) && size > GROW_MIN;
    let large = if grows { heap::allocate_to_grow(size).map(or_errno) } else { None };
    // SAFETY: any size.
    let new = large.unwrap_or_else(|| unsafe { malloc(size) });
    if !new.is_null() {
        // SAFETY: as many bytes as both have; nobody holds a lock, so that pages may be waited for.
        unsafe {
            ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), before.min(size));
            free(at);
        }
    }
    new
}

/// The same, of `count` times `size` bytes.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as the caller says.
        Some(bytes) => unsafe { realloc(at, bytes) },
        None => or_errno(ptr::null_mut()),
    }
}

/// Allocates at a multiple of `align`.
///
/// # Safety
/// As the C library's.
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

/// The same by its other name.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { memalign(align, size) }
}

/// The same, which returns its error.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: as the caller says.
    let at = unsafe { memalign(align, size) };
    if at.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: as the caller says.
    unsafe { *into = at };
    0
}

/// Allocates at the start of a page.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { memalign(PAGE, size) }
}

/// Allocates whole pages.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(PAGE) {
        // SAFETY: as the caller says.
        Some(size) => unsafe { memalign(PAGE, size) },
        None => or_errno(ptr::null_mut()),
    }
}

/// How many bytes there are.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> size_t {
    if heap::has(at) {
        heap::usable(at)
    } else if heap::had(at) {
        // Nobody here knows, and the program may not touch it.
        0
    } else {
        // SAFETY: as the caller says, from there.
        unsafe { libc_heap::usable(at) }
    }
}

/// What grows beyond this is given room to grow on.
const GROW_MIN: usize = 128 << 10;
