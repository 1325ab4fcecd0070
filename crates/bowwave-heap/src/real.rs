//! The next in line after ours, for what is not of the heap.
#![allow(unsafe_code, reason = "calls C functions that are found by name")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{off_t, size_t};

/// Address of the next function of this name; looked up once.
fn next(kept: &AtomicUsize, name: &CStr) -> usize {
    let known = kept.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: a string that ends; the dynamic linker does the rest.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if found == 0 {
        // Whoever calls it is linked with it, so that cannot be.
        std::process::abort();
    }
    kept.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            /// The next in line.
            ///
            /// # Safety
            /// As the C library's.
            pub(crate) unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                let address = next(&addresses::$name, names::$name);
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C" fn($($kind),*) $(-> $result)? = unsafe { std::mem::transmute(address) };
                // SAFETY: as the caller says.
                unsafe { function($($argument),*) }
            }
        )*

        /// Where they are.
        #[allow(non_upper_case_globals, reason = "by the functions' names")]
        mod addresses {
            use super::AtomicUsize;
            $(pub(super) static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        /// What they are called.
        #[allow(non_upper_case_globals, reason = "by the functions' names")]
        mod names {
            use super::CStr;
            $(pub(super) const $name: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("names hold no zero"),
            };)*
        }

        /// Looks all of them up: later that could wait for a lock of the dynamic linker's, whose holder may wait for us.
        pub(crate) fn look_up() {
            $(next(&addresses::$name, names::$name);)*
        }
    };
}

/// A thread's work.
pub(crate) type ThreadMain = extern "C" fn(*mut c_void) -> *mut c_void;

real! {
    fn mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn mmap64(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn munmap(at: *mut c_void, len: size_t) -> c_int;
    fn mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int;
    fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    fn mlock(at: *const c_void, len: size_t) -> c_int;
    fn mlock2(at: *const c_void, len: size_t, flags: std::ffi::c_uint) -> c_int;
    fn mlockall(flags: c_int) -> c_int;
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        main: ThreadMain,
        argument: *mut c_void,
    ) -> c_int;
    fn _exit(status: c_int) -> !;
}
