//! Results of served calls: a value, or `-1` and an error number.
#![allow(unsafe_code, reason = "sets the thread's error number")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use bowwave_interpose::{Inside, say};
use bowwave_region::Error;

/// A Linux error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Result of a served call.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A function's return value on failure.
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

/// Runs a served call. Its own C library calls are not served again, a panic becomes `EIO`, and the
/// program's `errno` is preserved unless the call fails.
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
    // SAFETY: always valid, this thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(number: i32) {
    // SAFETY: always valid, this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// The error number for an error; prints the message if the number is not specific.
pub(crate) fn of_error(error: impl Into<Error>) -> Errno {
    let error = error.into();
    let number = error.errno();
    let is_specific = match error {
        Error::Engine(bowwave_engine::Error::Options(_)) | Error::System { .. } => false,
        _ => !matches!(number, libc::EIO | libc::ESTALE | libc::EACCES | libc::ETIMEDOUT | libc::ENOTSUP),
    };
    if !is_specific {
        say(&error);
    }
    Errno(number)
}
