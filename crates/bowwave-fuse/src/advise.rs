//! The client's side of advice on files of a mount.
#![allow(unsafe_code, reason = "an ioctl")]

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Setter, ioctl};

use crate::operations::advice::{AdviceRequest, IOCTL_ADVISE, IOCTL_BYTES};

/// Gives advice on an open file of a mount.
///
/// # Errors
/// `ENOTTY` if the file is in no mount of bowwave, `EPERM` if this user may not advise other
/// descriptors, or as the mount says.
pub fn advise(file: impl AsFd, request: AdviceRequest) -> io::Result<()> {
    // SAFETY: the kernel reads `IOCTL_BYTES` bytes, as the number of the ioctl says.
    let setter = unsafe { Setter::<IOCTL_ADVISE, [u8; IOCTL_BYTES]>::new(request.to_bytes()) };
    // SAFETY: as above. Other file systems reply ENOTTY, or read as many bytes.
    Ok(unsafe { ioctl(file, setter) }?)
}
