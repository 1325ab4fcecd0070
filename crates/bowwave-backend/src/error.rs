//! What can go wrong in a store.

use std::fmt;
use std::time::Duration;

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a store: its kind, whether trying again may help, and one line that names cause and remedy.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    retryable: bool,
    retry_after: Option<Duration>,
    message: String,
}

/// What happened, for callers that must act on it (errno, retry, exit code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such object or folder.
    NotFound,
    /// The store refused: credentials are there but do not suffice.
    PermissionDenied,
    /// Credentials are missing or wrong.
    Unauthenticated,
    /// A folder where an object was wanted.
    IsADirectory,
    /// An object where a folder was wanted.
    NotADirectory,
    /// The object is no longer the one that was opened.
    Changed,
    /// The URL or an option cannot be understood.
    InvalidUrl,
    /// The store cannot do this.
    Unsupported,
    /// No answer in time.
    TimedOut,
    /// The store asks to slow down (503, 429).
    Throttled,
    /// The store cannot be reached, or the connection broke.
    Unavailable,
    /// The body ended before its announced length.
    Truncated,
    /// The store broke its protocol (wrong range, wrong length, no range support).
    Protocol,
    /// The operating system or server reported an I/O error.
    Io,
}

impl Error {
    /// An error; retryable if its kind usually is.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::TimedOut | ErrorKind::Throttled | ErrorKind::Unavailable | ErrorKind::Truncated
        );
        Self { kind, retryable, retry_after: None, message: message.into() }
    }

    /// The same error with the given answer to "may trying again help?".
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same error with the pause that the server asked for.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether trying again may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// The pause that the server asked for, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
