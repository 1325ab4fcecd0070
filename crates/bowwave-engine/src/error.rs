//! Errors of the engine.

use std::fmt;

use bowwave_backend::ErrorKind;
use rustix::io::Errno;

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with one line that names cause and remedy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An option is out of bounds, or options do not fit together.
    Options(String),
    /// The store failed, after retries where those could help.
    Store(bowwave_backend::Error),
}

impl Error {
    /// The kind, if the store reports one.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Options(_) => None,
            Self::Store(error) => Some(error.kind()),
        }
    }

    /// The error number for programs: the store's, or `EINVAL`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Options(_) => Errno::INVAL.raw_os_error(),
            Self::Store(error) => error.program_errno(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(message) => f.write_str(message),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Options(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}

/// The store's error, for interfaces that know only stores.
impl From<Error> for bowwave_backend::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error,
            Error::Options(message) => Self::new(ErrorKind::Io, message),
        }
    }
}

impl From<bowwave_backend::Error> for Error {
    fn from(error: bowwave_backend::Error) -> Self {
        Self::Store(error)
    }
}
