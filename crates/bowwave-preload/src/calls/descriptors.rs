//! Operations on descriptors: close, duplicate, control.

use std::ffi::{c_int, c_long, c_uint};
use std::sync::Arc;

use bowwave_engine::backend::descriptors::{self, FD_MIN};
use bowwave_interpose::Inside;

use crate::errno::{Errno, served};
use crate::live::Open;
use crate::{real, table};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    table::forget(fd);
    // SAFETY: guaranteed by the caller.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { real::close_range(first, last, flags) };
    if result == 0 && flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
        table::between(first, last).into_iter().for_each(table::forget);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    table::between(c_uint::try_from(first).unwrap_or(0), c_uint::MAX).into_iter().for_each(table::forget);
    // SAFETY: guaranteed by the caller.
    unsafe { real::closefrom(first) };
}

/// Records a duplicate.
fn duplicated(of: Option<Arc<Open>>, fd: c_int) -> c_int {
    let Some(open) = of else {
        if fd >= 0 {
            // The new number may have been a served descriptor.
            table::forget(fd);
        }
        return fd;
    };
    if fd < 0 || table::put(fd, open) {
        return fd;
    }
    // SAFETY: just opened, not returned yet.
    unsafe { real::close(fd) };
    served(|| Err(Errno(libc::EMFILE)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    duplicated(table::get(fd), unsafe { real::dup(fd) })
}

/// Replaces a descriptor. A thread of bowwave must not close it then, in the belief that the number
/// is still its own.
fn replace(fd: c_int, replace: impl FnOnce() -> c_int) -> c_int {
    let open = table::get(fd);
    // A child of `vfork` has its own descriptors.
    let held = if table::is_own() { descriptors::hold() } else { None };
    let replaced = replace();
    // The table is locked during a fork, which waits for this.
    drop(held);
    duplicated(open, replaced)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    replace(fd, || unsafe { real::dup2(fd, to) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    replace(fd, || unsafe { real::dup3(fd, to, flags) })
}

/// Serves the `fcntl` commands that the kernel would answer wrongly for a served descriptor.
///
/// # Safety
/// As for the C library's function.
unsafe fn control(fd: c_int, command: c_int, argument: c_long, open: Arc<Open>) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: guaranteed by the caller.
            duplicated(Some(open), unsafe { real::fcntl64(fd, command, argument) })
        }
        libc::F_GETFL => {
            // SAFETY: guaranteed by the caller.
            let flags = unsafe { real::fcntl64(fd, command, argument) };
            if flags < 0 { flags } else { flags & !libc::O_ACCMODE | libc::O_RDONLY }
        }
        // The file is read-only: read locks always succeed, and write locks fail.
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => served(|| {
            // SAFETY: guaranteed by the caller.
            let lock = unsafe { (argument as *const libc::flock).as_ref() }.ok_or(Errno(libc::EFAULT))?;
            if c_int::from(lock.l_type) == libc::F_WRLCK { Err(Errno(libc::EBADF)) } else { Ok(0) }
        }),
        libc::F_GETLK | libc::F_OFD_GETLK => served(|| {
            // SAFETY: guaranteed by the caller.
            let lock = unsafe { (argument as *mut libc::flock).as_mut() }.ok_or(Errno(libc::EFAULT))?;
            lock.l_type = libc::F_UNLCK as _;
            Ok(0)
        }),
        // SAFETY: guaranteed by the caller.
        _ => unsafe { real::fcntl64(fd, command, argument) },
    }
}

/// A descriptor that the program controls here, or bowwave's own that a library below it
/// duplicates.
enum Controlled {
    Served(Arc<Open>),
    Own,
}

fn controlled(fd: c_int, command: c_int) -> Option<Controlled> {
    let duplicates = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if duplicates && Inside::is() {
        return Some(Controlled::Own);
    }
    table::get(fd).map(Controlled::Served)
}

interpose! {
    /// Controls a descriptor.
    fn [fcntl fcntl64] (fd: c_int, command: c_int, argument: c_long) -> c_int,
        controlled(fd, command) => |found| match found {
            Controlled::Served(open) => control(fd, command, argument, open),
            Controlled::Own => real::fcntl64(fd, command, argument.max(FD_MIN.into())),
        };
}
