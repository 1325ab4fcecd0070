//! The C library's own functions: the next in line after ours.
#![allow(unsafe_code, reason = "calls C functions that are found by name")]

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use bowwave_interpose::next_in_line;
use libc::{DIR, FILE, dirent, mode_t, off_t, size_t, ssize_t, stat as Stat, statx as Statx};

next_in_line! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn fileno(stream: *mut FILE) -> c_int;
    fn fileno_unlocked(stream: *mut FILE) -> c_int;

    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn pread(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    fn pread64(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    fn __pread_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    fn __pread64_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv64(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn preadv64v2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    fn copy_file_range(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn splice(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int;
    fn posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int;
    fn readahead(fd: c_int, offset: off_t, len: size_t) -> ssize_t;

    fn stat(path: *const c_char, into: *mut Stat) -> c_int;
    fn stat64(path: *const c_char, into: *mut Stat) -> c_int;
    fn lstat(path: *const c_char, into: *mut Stat) -> c_int;
    fn lstat64(path: *const c_char, into: *mut Stat) -> c_int;
    fn fstat(fd: c_int, into: *mut Stat) -> c_int;
    fn fstat64(fd: c_int, into: *mut Stat) -> c_int;
    fn fstatat(folder: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int;
    fn fstatat64(folder: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int;
    fn __xstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int;
    fn __xstat64(version: c_int, path: *const c_char, into: *mut Stat) -> c_int;
    fn __lxstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int;
    fn __lxstat64(version: c_int, path: *const c_char, into: *mut Stat) -> c_int;
    fn __fxstat(version: c_int, fd: c_int, into: *mut Stat) -> c_int;
    fn __fxstat64(version: c_int, fd: c_int, into: *mut Stat) -> c_int;
    fn __fxstatat(version: c_int, folder: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, folder: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int;
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx) -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int;
    fn eaccess(path: *const c_char, mode: c_int) -> c_int;
    fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    fn readlink(path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t;
    fn readlinkat(folder: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t;
    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t;
    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t;
    fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;

    fn mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn mmap64(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn munmap(at: *mut c_void, len: size_t) -> c_int;
    fn mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int;
    fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    fn posix_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;

    fn opendir(path: *const c_char) -> *mut DIR;
    fn fdopendir(fd: c_int) -> *mut DIR;
    fn readdir(folder: *mut DIR) -> *mut dirent;
    fn readdir64(folder: *mut DIR) -> *mut dirent;
    fn closedir(folder: *mut DIR) -> c_int;
    fn rewinddir(folder: *mut DIR);
    fn telldir(folder: *mut DIR) -> c_long;
    fn seekdir(folder: *mut DIR, at: c_long);
    fn dirfd(folder: *mut DIR) -> c_int;
}
