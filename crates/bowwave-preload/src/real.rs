//! The next definitions of C library functions, for this library's own descriptors and memory.
#![allow(unsafe_code, reason = "calls C functions looked up by name")]

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use bowwave_interpose::next_in_line;
use libc::{mode_t, off_t, size_t};

/// As memfd_create(2), which glibc has since 2.27.
///
/// # Safety
/// `name` ends with NUL.
pub(crate) unsafe fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    // SAFETY: the caller's promise. Descriptors and -1 fit.
    unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) as c_int }
}

next_in_line! {
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn mmap64(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn munmap(at: *mut c_void, len: size_t) -> c_int;
}
