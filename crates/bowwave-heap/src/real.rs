//! The C library's own definitions (`RTLD_NEXT`) of functions that this library replaces.
#![allow(unsafe_code, reason = "calls C functions looked up by name")]

use std::ffi::{c_int, c_void};

use bowwave_interpose::next_in_line;
use libc::{off_t, size_t};

next_in_line! {
    look_up;
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
}
