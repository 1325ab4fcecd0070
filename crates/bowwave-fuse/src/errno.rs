//! Maps store errors to error numbers.

use bowwave_engine::backend::{Error, ErrorKind};
use fuser::Errno;

/// The error number that a program receives.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.program_errno())
}

/// Whether an error is an ordinary result, not a failure to report.
pub(crate) fn is_ordinary(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::Exists
            | ErrorKind::NotEmpty
            | ErrorKind::NameTooLong
            | ErrorKind::Invalid
            | ErrorKind::NoAttribute
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn error_kinds_map_to_errno() {
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
            (ErrorKind::Corrupt, Errno::EIO),
            (ErrorKind::Io, Errno::EIO),
            (ErrorKind::Exists, Errno::EEXIST),
            (ErrorKind::NotEmpty, Errno::ENOTEMPTY),
            (ErrorKind::NoSpace, Errno::ENOSPC),
            (ErrorKind::ReadOnly, Errno::EROFS),
            (ErrorKind::NameTooLong, Errno::ENAMETOOLONG),
            (ErrorKind::CrossDevice, Errno::EXDEV),
            (ErrorKind::Invalid, Errno::EINVAL),
            (ErrorKind::TooLarge, Errno::EFBIG),
            (ErrorKind::NoAttribute, Errno::ENODATA),
            (ErrorKind::Busy, Errno::EBUSY),
        ];
        for (kind, want) in table {
            assert_eq!(errno(&Error::new(kind, "x")).code(), want.code(), "{kind:?}");
        }
    }

    #[test]
    fn errno_of_the_system_is_preserved() {
        for number in [1, 27, 40, 122] {
            let error = Error::from_os("x", &io::Error::from_raw_os_error(number));
            assert_eq!(errno(&error).code(), number);
        }
        let odd = Error::from_os("x", &io::Error::from_raw_os_error(524));
        assert_eq!(errno(&odd).code(), Errno::EIO.code(), "a number that the kernel keeps to itself");
    }
}
