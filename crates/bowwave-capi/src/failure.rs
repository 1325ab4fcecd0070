//! Errors: a return value that signals failure, and a message per thread.
#![allow(unsafe_code, reason = "functions exported to C")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bowwave_engine::ErrorKind;
use bowwave_region::Error;

/// Error of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A positive number from `errno.h`.
    code: c_int,
    message: String,
}

/// A function's return value on failure.
pub(crate) trait Failed {
    fn failed(code: c_int) -> Self;
}

thread_local! {
    /// Number and message of the last failed call.
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Runs a call and returns its result, or its failure value, and stores the message for this
/// thread.
pub(crate) fn call<T: Failed>(work: impl FnOnce() -> Result<T, Failure>) -> T {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
    done.unwrap_or_else(|Failure { code, message }| {
        // C would end the message at an inner NUL: remove them.
        let message = CString::new(message.replace('\0', "")).unwrap_or_default();
        // A thread that is exiting can no longer read the message.
        let _kept = LAST.try_with(|last| *last.borrow_mut() = (code, message));
        T::failed(code)
    })
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { code: libc::EINVAL, message: message.into() }
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Self { code: libc::EIO, message: format!("a defect of bowwave, please report it: {text}") }
    }
}

impl From<bowwave_engine::Error> for Failure {
    fn from(error: bowwave_engine::Error) -> Self {
        let code = if error.kind() == Some(ErrorKind::InvalidUrl) { libc::EINVAL } else { error.errno() };
        Self { code, message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(error) => error.into(),
            error => Self { code: error.errno(), message: error.to_string() },
        }
    }
}

impl From<bowwave_control::Error> for Failure {
    fn from(error: bowwave_control::Error) -> Self {
        let code = match error {
            bowwave_control::Error::NoMount(_) | bowwave_control::Error::NoProcess(_) => libc::ENOENT,
            bowwave_control::Error::Silent(_) => libc::ETIMEDOUT,
            _ => libc::EINVAL,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    /// An error of the control channel. If it has no `errno`, no directory can hold the socket.
    fn from(error: std::io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(libc::EACCES);
        Self { code, message: format!("cannot serve the control channel: {error}") }
    }
}

impl<T> Failed for *mut T {
    fn failed(_: c_int) -> Self {
        std::ptr::null_mut()
    }
}

impl Failed for c_int {
    fn failed(code: c_int) -> Self {
        -code
    }
}

impl Failed for i64 {
    fn failed(code: c_int) -> Self {
        -Self::from(code)
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn bowwave_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("versions hold no zero"),
        };
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn bowwave_last_error() -> *const c_char {
    // Valid until the next failure of this thread.
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn bowwave_last_errno() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_of_this_thread_alone() {
        let code: c_int = call(|| panic!("so {}", "what"));
        assert_eq!((code, bowwave_last_errno()), (-libc::EIO, libc::EIO));
        // SAFETY: a string of this thread, which makes no other call meanwhile.
        let message = unsafe { CStr::from_ptr(bowwave_last_error()) };
        assert_eq!(message, c"a defect of bowwave, please report it: so what");
        let other = std::thread::spawn(|| bowwave_last_errno()).join().expect("it ends");
        assert_eq!(other, 0);
    }
}
