//! Descriptors themselves: closed, duplicated, asked about.

use std::ffi::{c_int, c_long, c_uint};
use std::sync::Arc;

use crate::errno::{Errno, served};
use crate::live::Open;
use crate::{real, table};

/// Closes a descriptor.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    table::forget(fd);
    // SAFETY: as the caller says.
    unsafe { real::close(fd) }
}

/// Closes descriptors.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: as the caller says.
    let result = unsafe { real::close_range(first, last, flags) };
    if result == 0 && flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
        table::between(first, last).into_iter().for_each(table::forget);
    }
    result
}

/// Closes all descriptors from `first` on.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    table::between(c_uint::try_from(first).unwrap_or(0), c_uint::MAX).into_iter().for_each(table::forget);
    // SAFETY: as the caller says.
    unsafe { real::closefrom(first) };
}

/// A duplicate stands for the same.
fn duplicated(of: Option<Arc<Open>>, fd: c_int) -> c_int {
    let Some(open) = of else {
        if fd >= 0 {
            // Something else was in its place until now.
            table::forget(fd);
        }
        return fd;
    };
    if fd < 0 || table::put(fd, open) {
        return fd;
    }
    // SAFETY: opened just now, and not handed out.
    unsafe { real::close(fd) };
    served(|| Err(Errno(libc::EMFILE)))
}

/// Duplicates a descriptor.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: as the caller says.
    duplicated(table::get(fd), unsafe { real::dup(fd) })
}

/// Duplicates a descriptor to a number.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: as the caller says.
    duplicated(table::get(fd), unsafe { real::dup2(fd, to) })
}

/// Duplicates a descriptor to a number, with flags.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller says.
    duplicated(table::get(fd), unsafe { real::dup3(fd, to, flags) })
}

/// What `fcntl` does with a descriptor of ours, where it is not the kernel's to say.
///
/// # Safety
/// As the C library's.
unsafe fn control(fd: c_int, command: c_int, argument: c_long, open: Arc<Open>) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: as the caller says.
            duplicated(Some(open), unsafe { real::fcntl64(fd, command, argument) })
        }
        libc::F_GETFL => {
            // SAFETY: as the caller says.
            let flags = unsafe { real::fcntl64(fd, command, argument) };
            if flags < 0 { flags } else { flags & !libc::O_ACCMODE | libc::O_RDONLY }
        }
        // The file cannot be written: read locks always succeed, and write locks fail.
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => served(|| {
            // SAFETY: as the caller says.
            let lock = unsafe { (argument as *const libc::flock).as_ref() }.ok_or(Errno(libc::EFAULT))?;
            if c_int::from(lock.l_type) == libc::F_WRLCK { Err(Errno(libc::EBADF)) } else { Ok(0) }
        }),
        libc::F_GETLK | libc::F_OFD_GETLK => served(|| {
            // SAFETY: as the caller says.
            let lock = unsafe { (argument as *mut libc::flock).as_mut() }.ok_or(Errno(libc::EFAULT))?;
            lock.l_type = libc::F_UNLCK as _;
            Ok(0)
        }),
        // SAFETY: as the caller says.
        _ => unsafe { real::fcntl64(fd, command, argument) },
    }
}

interpose! {
    /// Does something with a descriptor.
    fn [fcntl fcntl64] (fd: c_int, command: c_int, argument: c_long) -> c_int,
        table::get(fd) => |open| control(fd, command, argument, open);
}
