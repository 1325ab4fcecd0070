//! What can go wrong with a region.

use std::fmt;
use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine or the store says no; the kind tells whether to try again.
    Engine(bowwave_engine::Error),
    /// The store that pages go to says no.
    Store(bowwave_backend::Error),
    /// The system says no: what was wanted, and what to do about it.
    System {
        /// What was wanted.
        wanted: &'static str,
        /// What the system said.
        error: io::Error,
        /// What may help.
        hint: &'static str,
    },
    /// What was asked for does not exist: a range beyond the end, an offset that is not the start of a page.
    Range(String),
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

/// Writes a line to standard error: for failures without a caller, in programs that have set up no logger. The
/// signal that follows, or the wait, tells the user nothing.
#[allow(clippy::print_stderr, reason = "there is no caller to return an error to")]
pub(crate) fn report(message: fmt::Arguments<'_>) {
    eprintln!("{message}");
}
