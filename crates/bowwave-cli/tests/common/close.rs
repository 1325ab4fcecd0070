//! close(2) with its result, which `std` discards.

#![expect(unsafe_code, reason = "std has no close that answers")]

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd as _;

/// Closes a file and returns the result.
pub(crate) fn close(file: File) -> io::Result<()> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the file gave up its descriptor, which is not used elsewhere.
    if unsafe { libc::close(descriptor) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
