//! How served calls end: a value, or `-1` and an error number.
#![allow(unsafe_code, reason = "sets the thread's error number")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use bowwave_interpose::{Inside, say};

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Of a call.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// What a call returns when it fails.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for i32 {
    const FAILED: Self = -1;
}

impl Failed for i64 {
    const FAILED: Self = -1;
}

impl Failed for isize {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// Carries out a call as bowwave's own work: what it does itself is not served again, a panic is `EIO`, and what it leaves in
/// `errno` is the program's, unless it fails.
pub(crate) fn served<T: Failed>(work: impl FnOnce() -> Result<T>) -> T {
    let before = errno();
    let done = {
        let _inside = Inside::enter();
        catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno(libc::EIO)))
    };
    match done {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(Errno(number)) => {
            set_errno(number);
            T::FAILED
        }
    }
}

pub(crate) fn errno() -> i32 {
    // SAFETY: always there, this thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(number: i32) {
    // SAFETY: always there, this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// The number of an error of ours, whose text is said where the number says little.
pub(crate) fn of_engine(error: &bowwave_engine::Error) -> Errno {
    match error {
        bowwave_engine::Error::Store(cause) => {
            let number = cause.program_errno();
            if matches!(number, libc::EIO | libc::ESTALE | libc::EACCES | libc::ETIMEDOUT | libc::ENOTSUP) {
                say(error);
            }
            Errno(number)
        }
        _ => {
            say(error);
            Errno(libc::EINVAL)
        }
    }
}

/// The number of an error of a region.
pub(crate) fn of_region(error: &bowwave_region::Error) -> Errno {
    match error {
        bowwave_region::Error::Engine(error) => of_engine(error),
        bowwave_region::Error::Store(error) => of_engine(&error.clone().into()),
        bowwave_region::Error::System { error: cause, .. } => {
            say(error);
            Errno(cause.raw_os_error().unwrap_or(libc::EIO))
        }
        _ => Errno(libc::EINVAL),
    }
}
