//! The next definitions of C library functions, for this library's own descriptors and memory.
#![allow(unsafe_code, reason = "calls C functions looked up by name")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{FromRawFd as _, IntoRawFd, OwnedFd};

use bowwave_engine::backend::descriptors;
use bowwave_interpose::next_in_line;
use libc::{mode_t, off_t, size_t};

/// As memfd_create(2), which glibc has since 2.27.
pub(crate) fn memfd_create(name: &CStr, flags: c_uint) -> c_int {
    // SAFETY: a NUL-terminated name. Descriptors and -1 fit.
    own_number(|| unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) as c_int })
}

/// Creates a descriptor of bowwave by a function of the C library.
pub(crate) fn own_number(create: impl FnOnce() -> c_int) -> c_int {
    let created = descriptors::own(|| match create() {
        number if number < 0 => Err(number),
        // SAFETY: just created, with no other owner.
        number => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
    });
    created.map_or_else(|failed| failed, IntoRawFd::into_raw_fd)
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
