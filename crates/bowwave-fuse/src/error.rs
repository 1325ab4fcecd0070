//! Errors of mounting and unmounting.

use std::fmt;

/// Result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

/// One line with the cause and, if there is one, the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
