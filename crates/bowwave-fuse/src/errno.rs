//! The one place where errors of a store become error numbers.

use bowwave_engine::backend::ErrorKind;
use fuser::Errno;

/// The error number that a program sees for an error of this kind.
pub(crate) fn errno(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => Errno::EACCES,
        ErrorKind::IsADirectory => Errno::EISDIR,
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::Changed => Errno::ESTALE,
        ErrorKind::Unsupported => Errno::ENOTSUP,
        ErrorKind::TimedOut => Errno::ETIMEDOUT,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::CrossDevice => Errno::EXDEV,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::TooLarge => Errno::EFBIG,
        ErrorKind::NoAttribute => Errno::ENODATA,
        ErrorKind::Busy => Errno::EBUSY,
        // A program cannot tell these apart, nor act on them: the cause is in the log of the mount.
        _ => Errno::EIO,
    }
}

/// Whether an error is an everyday answer rather than a failure worth telling.
pub(crate) fn is_everyday(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_map_to_the_errno_that_programs_know() {
        let table = [
            (ErrorKind::NotFound, Errno::ENOENT),
            (ErrorKind::PermissionDenied, Errno::EACCES),
            (ErrorKind::Unauthenticated, Errno::EACCES),
            (ErrorKind::IsADirectory, Errno::EISDIR),
            (ErrorKind::NotADirectory, Errno::ENOTDIR),
            (ErrorKind::Changed, Errno::ESTALE),
            (ErrorKind::Unsupported, Errno::ENOTSUP),
            (ErrorKind::TimedOut, Errno::ETIMEDOUT),
            (ErrorKind::Throttled, Errno::EIO),
            (ErrorKind::Unavailable, Errno::EIO),
            (ErrorKind::Truncated, Errno::EIO),
            (ErrorKind::Protocol, Errno::EIO),
            (ErrorKind::Io, Errno::EIO),
        ];
        for (kind, want) in table {
            assert_eq!(errno(kind).code(), want.code(), "{kind:?}");
        }
    }
}
