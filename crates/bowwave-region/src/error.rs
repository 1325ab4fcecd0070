//! Errors of regions.

use std::fmt;
use std::io;

/// Result of a region operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a region operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine or the store. Its kind says whether a retry may help.
    Engine(bowwave_engine::Error),
    /// An error of the spill's store.
    Store(bowwave_backend::Error),
    /// An error of the operating system.
    System {
        /// The failed operation.
        wanted: &'static str,
        /// The system's error.
        error: io::Error,
        /// Possible remedy.
        hint: &'static str,
    },
    /// An invalid range: beyond the end, or an offset that is not page-aligned.
    Range(String),
}

impl Error {
    /// The error number for programs: the store's, the system's, or `EINVAL`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Engine(error) => error.errno(),
            Self::Store(error) => error.program_errno(),
            Self::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Range(_) => libc::EINVAL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::System { wanted, error, hint: "" } => write!(f, "cannot {wanted}: {error}"),
            Self::System { wanted, error, hint } => write!(f, "cannot {wanted}: {error}; {hint}"),
            Self::Range(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::System { error, .. } => Some(error),
            Self::Range(_) => None,
        }
    }
}

impl From<bowwave_engine::Error> for Error {
    fn from(error: bowwave_engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<bowwave_backend::Error> for Error {
    fn from(error: bowwave_backend::Error) -> Self {
        Self::Store(error)
    }
}

/// Writes a line to standard error. For failures without a caller, in programs without a logger:
/// the following signal or wait explains nothing to the user.
#[allow(clippy::print_stderr, reason = "there is no caller to return an error to")]
pub(crate) fn report(message: fmt::Arguments<'_>) {
    eprintln!("{message}");
}
