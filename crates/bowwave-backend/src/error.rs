//! Errors of stores.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a store: its kind, whether a retry may help, and one line with cause and remedy.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    retryable: bool,
    retry_after: Option<Duration>,
    errno: Option<i32>,
    /// What the operating system reported.
    cause: Option<Arc<io::Error>>,
    message: String,
}

/// Kind of an error, for callers that act on it (errno, retry, exit code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such object or directory.
    NotFound,
    /// Permission denied: the credentials are insufficient.
    PermissionDenied,
    /// Credentials are missing or wrong.
    Unauthenticated,
    /// A directory in place of an object.
    IsADirectory,
    /// An object in place of a directory.
    NotADirectory,
    /// The object is no longer the one that was opened.
    Changed,
    /// The URL or an option cannot be parsed.
    InvalidUrl,
    /// The store cannot do this.
    Unsupported,
    /// No response in time.
    TimedOut,
    /// The store rejects the request because it gets too many (503, 429).
    Throttled,
    /// The store cannot be reached, or the connection broke.
    Unavailable,
    /// The body ended before its announced length.
    Truncated,
    /// The store broke its protocol (wrong range, wrong length, no range support).
    Protocol,
    /// The bytes do not match the store's checksum.
    Corrupt,
    /// The operating system or server reported an I/O error.
    Io,
    /// The name exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// No space left, or the quota is exhausted.
    NoSpace,
    /// The store, or its file system, is read-only.
    ReadOnly,
    /// A name or path is too long.
    NameTooLong,
    /// The two names are on different file systems.
    CrossDevice,
    /// The request is invalid (a range past the largest file, a directory moved into itself).
    Invalid,
    /// The file would be larger than the store can hold.
    TooLarge,
    /// No extended attribute of this name.
    NoAttribute,
    /// In use by another program.
    Busy,
}

impl Error {
    /// An error; retryable if its kind usually is.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::TimedOut
                | ErrorKind::Throttled
                | ErrorKind::Unavailable
                | ErrorKind::Truncated
                | ErrorKind::Corrupt
        );
        Self { kind, retryable, retry_after: None, errno: None, cause: None, message: message.into() }
    }

    /// The error for an operating system error at `place`: its kind, and the number itself.
    pub fn from_os(place: impl fmt::Display, error: &io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(errno) => kind(errno),
            None if error.kind() == io::ErrorKind::TimedOut => ErrorKind::TimedOut,
            // A NUL in a name, or an offset out of range for system calls.
            None if error.kind() == io::ErrorKind::InvalidInput => ErrorKind::Invalid,
            None => ErrorKind::Io,
        };
        let errno = error.raw_os_error();
        let cause = errno.map(|errno| Arc::new(io::Error::from_raw_os_error(errno)));
        Self { errno, cause, ..Self::new(kind, format!("{place}: {error}")) }
    }

    /// Sets whether a retry may help.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Sets the pause that the server requested.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Sets the error number.
    #[must_use]
    pub(crate) fn with_errno(mut self, errno: i32) -> Self {
        self.errno = Some(errno);
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's error number, if the error came from there.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// The error number for programs: the operating system's if the error came from there, else
    /// that of the kind.
    pub fn program_errno(&self) -> i32 {
        match self.errno {
            // The kernel accepts 1 to 511 from file systems.
            Some(number @ 1..512) => number,
            _ => errno_of(self.kind),
        }
    }

    /// Whether a retry may help.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// The pause that the server requested, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The source is the operating system's error, if there is one. Messages name all causes, also
/// those of network libraries.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// Kind of a Linux error number.
fn kind(errno: i32) -> ErrorKind {
    ERRNOS.iter().find(|(_, numbers)| numbers.contains(&errno)).map_or(ErrorKind::Io, |(kind, _)| *kind)
}

/// Linux error number of a kind.
fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Unauthenticated => libc::EACCES,
        // Programs cannot distinguish kinds without a number; the message has the cause.
        kind => ERRNOS.iter().find(|(known, _)| *known == kind).map_or(libc::EIO, |(_, numbers)| numbers[0]),
    }
}

/// Kinds that have error numbers; the first one is for programs.
const ERRNOS: [(ErrorKind, &[i32]); 17] = [
    (ErrorKind::NotFound, &[libc::ENOENT]),
    (ErrorKind::PermissionDenied, &[libc::EACCES, libc::EPERM]),
    (ErrorKind::IsADirectory, &[libc::EISDIR]),
    (ErrorKind::NotADirectory, &[libc::ENOTDIR]),
    (ErrorKind::Changed, &[libc::ESTALE]),
    (ErrorKind::TimedOut, &[libc::ETIMEDOUT]),
    (ErrorKind::Exists, &[libc::EEXIST]),
    (ErrorKind::NotEmpty, &[libc::ENOTEMPTY]),
    (ErrorKind::NoSpace, &[libc::ENOSPC, libc::EDQUOT]),
    (ErrorKind::ReadOnly, &[libc::EROFS]),
    (ErrorKind::NameTooLong, &[libc::ENAMETOOLONG]),
    (ErrorKind::CrossDevice, &[libc::EXDEV]),
    (ErrorKind::Invalid, &[libc::EINVAL]),
    (ErrorKind::TooLarge, &[libc::EFBIG, libc::EOVERFLOW]),
    (ErrorKind::NoAttribute, &[libc::ENODATA]),
    (ErrorKind::Busy, &[libc::EBUSY, libc::ETXTBSY]),
    (ErrorKind::Unsupported, &[libc::EOPNOTSUPP, libc::ENOSYS]),
];
