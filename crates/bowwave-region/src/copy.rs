//! Copies of a region's memory that return errors instead of `SIGBUS`.
#![allow(unsafe_code, reason = "a system call that reads the process's own memory")]

use std::io;

use crate::error::{Error, Result};
use crate::region::{Protection, Region};

/// Bytes fetched before they are copied. Larger: in a small cache, the first pages are evicted
/// before they are copied; smaller: fewer requests at once.
const STEP: usize = 1 << 20;
/// Repetitions in a row for a page that is evicted between its fetch and its copy.
const ATTEMPTS: u32 = 100;

impl Region {
    /// Copies memory from `offset` of the region, with what the program has written to it. Errors
    /// are returned: no access of the program faults.
    ///
    /// # Errors
    /// The store's error; [`Error::Range`] beyond the end; [`Error::System`] if the system forbids
    /// a process to read its own memory by `process_vm_readv`.
    pub fn copy(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.options.protection == Protection::ReadOnly {
            return self.read(offset, buf);
        }
        let (mut at, mut attempts) = (offset, 0);
        for part in buf.chunks_mut(STEP) {
            self.populate(at, part.len() as u64)?;
            let mut done = 0;
            while done < part.len() {
                // SAFETY: `populate` has checked the range.
                let from = unsafe { self.as_ptr().add(at as usize + done) };
                match read_own(from, &mut part[done..]) {
                    Ok(count @ 1..) => (done, attempts) = (done + count, 0),
                    Err(error) if error.raw_os_error() != Some(libc::EFAULT) => return Err(refused(error)),
                    // Evicted again.
                    _ if attempts < ATTEMPTS => {
                        attempts += 1;
                        self.populate(at + done as u64, 1)?;
                    }
                    Ok(_) => return Err(refused(io::ErrorKind::UnexpectedEof.into())),
                    Err(error) => return Err(refused(error)),
                }
            }
            at += part.len() as u64;
        }
        Ok(())
    }
}

fn refused(error: io::Error) -> Error {
    let hint = "the sandbox must allow process_vm_readv, and the cache must be larger than the pages in use";
    Error::System { wanted: "copy mapped memory", error, hint }
}

/// Copies memory of this process as far as it is readable; `EFAULT` if none is.
fn read_own(from: *const u8, to: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: to.len() };
    // SAFETY: the kernel checks the remote range and writes only the local one, which is borrowed.
    let count =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_negative| io::Error::last_os_error())
}
