//! close(2) with its answer, which `std` throws away.

#![expect(unsafe_code, reason = "std has no close that answers")]

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd as _;

/// Closes a file, and says what the file system said to that.
pub(crate) fn close(file: File) -> io::Result<()> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the descriptor was the file's alone, which has given it up.
    if unsafe { libc::close(descriptor) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
