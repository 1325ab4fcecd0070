//! The C library's heap, by names that are not interposed.
#![allow(unsafe_code, reason = "calls the C library")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::size_t;

unsafe extern "C" {
    pub(crate) fn __libc_malloc(size: size_t) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_realloc(at: *mut c_void, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_memalign(align: size_t, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_free(at: *mut c_void);
}

/// The allocator of this library itself.
struct LibcHeap;

#[global_allocator]
static HEAP: LibcHeap = LibcHeap;

// SAFETY: the C library's heap fulfils the contract.
unsafe impl GlobalAlloc for LibcHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size, and a power of two.
        unsafe {
            if layout.align() <= ALIGN {
                __libc_malloc(layout.size()).cast()
            } else {
                __libc_memalign(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, _layout: Layout) {
        // SAFETY: allocated there.
        unsafe { __libc_free(at.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        // SAFETY: guaranteed by the caller; both have that many bytes.
        unsafe {
            let at = self.alloc(layout);
            if !at.is_null() {
                at.write_bytes(0, layout.size());
            }
            at
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: allocated there; guaranteed by the caller.
        unsafe {
            if layout.align() <= ALIGN {
                return __libc_realloc(at.cast(), size).cast();
            }
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(at, new, layout.size().min(size));
                self.dealloc(at, layout);
            }
            new
        }
    }
}

/// Usable bytes of an allocation from the C library's heap.
///
/// # Safety
/// Allocated there, and not freed.
pub(crate) unsafe fn usable(at: *mut c_void) -> usize {
    static FUNCTION: AtomicUsize = AtomicUsize::new(0);
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == 0 {
        // The C library's own function, not one that another heap interposes. The library stays
        // loaded. SAFETY: NUL-terminated strings.
        function = unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() { 0 } else { libc::dlsym(library, c"malloc_usable_size".as_ptr()) as usize }
        };
        if function == 0 {
            // Every version has it.
            std::process::abort();
        }
        FUNCTION.store(function, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(function)(at) }
}

/// Looks up symbols early, so that no thread of ours has to.
pub(crate) fn look_up() {
    // SAFETY: NULL is valid and gives 0.
    let nothing = unsafe { usable(std::ptr::null_mut()) };
    debug_assert_eq!(nothing, 0);
}

/// Default alignment of the C library's heap in bytes.
pub(crate) const ALIGN: usize = 16;

/// Page size in bytes.
pub(crate) const PAGE: usize = 4096;

/// Sets `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: always valid, this thread's own.
    unsafe { *libc::__errno_location() = number };
}
