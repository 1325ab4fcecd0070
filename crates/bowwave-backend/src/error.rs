//! What can go wrong in a store.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a store: its kind, whether trying again may help, and one line that names cause and remedy.
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
    /// The bytes do not match the store's checksum.
    Corrupt,
    /// The operating system or server reported an I/O error.
    Io,
    /// Something has this name already.
    Exists,
    /// The folder is not empty.
    NotEmpty,
    /// No room left, or no quota.
    NoSpace,
    /// The store, or the file system that it is on, is only read.
    ReadOnly,
    /// A name or path is too long.
    NameTooLong,
    /// The two names are on different file systems.
    CrossDevice,
    /// The request makes no sense (a range past the largest file, a folder moved into itself).
    Invalid,
    /// The file would be larger than the store can hold.
    TooLarge,
    /// No extended attribute of this name.
    NoAttribute,
    /// In use by somebody else.
    Busy,
}

impl Error {
    /// An error; retryable if its kind usually is.
    #[must_use]
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

    /// The error for what the operating system said about `place`: its kind, and the number itself.
    #[must_use]
    pub fn from_os(place: impl fmt::Display, error: &io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(errno) => kind(errno),
            None if error.kind() == io::ErrorKind::TimedOut => ErrorKind::TimedOut,
            // A NUL in a name, or an offset that no system call takes.
            None if error.kind() == io::ErrorKind::InvalidInput => ErrorKind::Invalid,
            None => ErrorKind::Io,
        };
        let errno = error.raw_os_error();
        let cause = errno.map(|errno| Arc::new(io::Error::from_raw_os_error(errno)));
        Self { errno, cause, ..Self::new(kind, format!("{place}: {error}")) }
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

    /// The same error with this error number.
    #[must_use]
    pub(crate) fn with_errno(mut self, errno: i32) -> Self {
        self.errno = Some(errno);
        self
    }

    /// The same error in other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's error number, where the error came from there: what a program sees without us.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// The error number that a program sees which knows system calls only: the operating system's where the error came
    /// from there, else that of the kind.
    #[must_use]
    pub fn program_errno(&self) -> i32 {
        match self.errno {
            // The kernel takes 1 to 511 from file systems, and keeps the others to itself.
            Some(number @ 1..512) => number,
            _ => errno_of(self.kind),
        }
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

/// The cause is the error of the operating system, where there is one. Messages name all causes, also those of network
/// libraries.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// The kind of an error number of Linux.
fn kind(errno: i32) -> ErrorKind {
    match errno {
        libc::ENOENT => ErrorKind::NotFound,
        libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
        libc::EISDIR => ErrorKind::IsADirectory,
        libc::ENOTDIR => ErrorKind::NotADirectory,
        libc::ESTALE => ErrorKind::Changed,
        libc::ETIMEDOUT => ErrorKind::TimedOut,
        libc::EEXIST => ErrorKind::Exists,
        libc::ENOTEMPTY => ErrorKind::NotEmpty,
        libc::ENOSPC | libc::EDQUOT => ErrorKind::NoSpace,
        libc::EROFS => ErrorKind::ReadOnly,
        libc::ENAMETOOLONG => ErrorKind::NameTooLong,
        libc::EXDEV => ErrorKind::CrossDevice,
        libc::EINVAL => ErrorKind::Invalid,
        libc::EFBIG | libc::EOVERFLOW => ErrorKind::TooLarge,
        libc::ENODATA => ErrorKind::NoAttribute,
        libc::EBUSY | libc::ETXTBSY => ErrorKind::Busy,
        libc::EOPNOTSUPP | libc::ENOSYS => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

/// The error number of Linux for a kind.
fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => libc::EACCES,
        ErrorKind::IsADirectory => libc::EISDIR,
        ErrorKind::NotADirectory => libc::ENOTDIR,
        ErrorKind::Changed => libc::ESTALE,
        ErrorKind::Unsupported => libc::ENOTSUP,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Exists => libc::EEXIST,
        ErrorKind::NotEmpty => libc::ENOTEMPTY,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::ReadOnly => libc::EROFS,
        ErrorKind::NameTooLong => libc::ENAMETOOLONG,
        ErrorKind::CrossDevice => libc::EXDEV,
        ErrorKind::Invalid => libc::EINVAL,
        ErrorKind::TooLarge => libc::EFBIG,
        ErrorKind::NoAttribute => libc::ENODATA,
        ErrorKind::Busy => libc::EBUSY,
        // A program cannot tell these apart, nor act on them: the cause is in the message.
        ErrorKind::InvalidUrl
        | ErrorKind::Throttled
        | ErrorKind::Unavailable
        | ErrorKind::Truncated
        | ErrorKind::Protocol
        | ErrorKind::Corrupt
        | ErrorKind::Io => libc::EIO,
    }
}
