//! Errors as builtin exceptions.

use bowwave_engine::ErrorKind;
use pyo3::exceptions::{
    PyException, PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyNotImplementedError,
    PyOSError, PyPermissionError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;

/// `ValueError` for options and URLs; otherwise `OSError`, which Python turns into
/// `FileNotFoundError`, `PermissionError`, `TimeoutError` … by its number.
pub(crate) fn raised(error: &bowwave_engine::Error) -> PyErr {
    match error {
        bowwave_engine::Error::Store(store) => store_raised(store),
        _ => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn store_raised(error: &bowwave_engine::backend::Error) -> PyErr {
    let text = worded(&error.to_string());
    let errno = match error.kind() {
        ErrorKind::InvalidUrl => return PyValueError::new_err(text),
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Unauthenticated => libc::EACCES,
        _ => error.program_errno(),
    };
    PyOSError::new_err((errno, text))
}

/// Replaces the names of the command's options in a message by the names of Python's settings.
fn worded(text: &str) -> String {
    // The limit for files of servers without ranges is no setting of Python.
    let text = text.replace("; raise it, download", "; download").replace(" (--no-range-max ", " (at most ");
    OPTIONS.iter().fold(text, |text, (option, setting)| text.replace(option, setting))
}

/// Options of the command in messages of stores, and what Python's messages have instead.
const OPTIONS: [(&str, &str); 17] = [
    (" (--list-max)", "; check the URL, or list a directory below it"),
    (", fewer than --min-rate allows", "; try again later"),
    (", or leave out --require-version", ""),
    (", with --no-index to request no listing", ""),
    ("open files by name with --no-index", "open files by name"),
    (" (--no-range-max)", ""),
    ("(--deadline)", "(raise timeout)"),
    ("(--timeout)", "(raise timeout)"),
    ("--allow-http", "allow_http=True"),
    ("--anonymous", "anonymous=True"),
    ("--connections", "connections"),
    ("--deadline", "deadline"),
    ("--endpoint", "endpoint"),
    ("--region ", "region="),
    ("--region", "region"),
    ("--retries", "retries"),
    ("--timeout", "timeout"),
];

pub(crate) fn region_raised(error: &bowwave_region::Error) -> PyErr {
    match error {
        bowwave_region::Error::Engine(error) => raised(error),
        bowwave_region::Error::Store(error) => store_raised(error),
        bowwave_region::Error::System { .. } => PyOSError::new_err((error.errno(), error.to_string())),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The store's error for an exception of a Python fetcher.
pub(crate) fn of_exception(py: Python<'_>, place: &str, raised: &PyErr) -> bowwave_engine::backend::Error {
    let is = |kind: &Bound<'_, PyAny>| raised.matches(py, kind).unwrap_or(false);
    let kind = if is(py.get_type::<PyFileNotFoundError>().as_any()) {
        ErrorKind::NotFound
    } else if is(py.get_type::<PyPermissionError>().as_any()) {
        ErrorKind::PermissionDenied
    } else if is(py.get_type::<PyTimeoutError>().as_any()) {
        ErrorKind::TimedOut
    } else if is(py.get_type::<PyIsADirectoryError>().as_any()) {
        ErrorKind::IsADirectory
    } else if is(py.get_type::<PyNotADirectoryError>().as_any()) {
        ErrorKind::NotADirectory
    } else if is(py.get_type::<PyNotImplementedError>().as_any()) {
        ErrorKind::Unsupported
    } else if is(py.get_type::<PyException>().as_any()) {
        ErrorKind::Io
    } else {
        // KeyboardInterrupt and SystemExit.
        ErrorKind::Unavailable
    };
    let text = raised.value(py).str().map(|text| text.to_string()).unwrap_or_default();
    let class = raised.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    // The file system below has retried already.
    bowwave_engine::backend::Error::new(kind, format!("{place}: {class}: {text}")).retryable(false)
}
