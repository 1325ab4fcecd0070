//! Kernel interface of a mapped file: reports page faults until it is stopped; maps and unmaps.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use bowwave_backend::descriptors::own;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise, munmap};

use crate::uffd::{Modes, Partial, Touch, Uffd};

/// A userfaultfd with an eventfd that stops its readers.
#[derive(Debug)]
pub(crate) struct Kernel {
    uffd: Uffd,
    stop: OwnedFd,
}

impl Kernel {
    /// # Errors
    /// If no more descriptors are available.
    pub(crate) fn new(uffd: Uffd) -> io::Result<Self> {
        Ok(Self { uffd, stop: own(|| eventfd(0, EventfdFlags::CLOEXEC))? })
    }

    /// Reports page faults of missing pages in `range` from now on.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Safety
    /// As of [`Uffd::register`].
    pub(crate) unsafe fn watch(&self, range: Range<usize>) -> io::Result<()> {
        let modes = Modes { missing: true, minor: true, protected: false };
        // SAFETY: guaranteed by the caller.
        unsafe { self.uffd.register(range, modes) }
    }

    /// Waits for page faults; `false` once stopped.
    pub(crate) fn touches(&self, touches: &mut Vec<Touch>) -> bool {
        let mut ready = [
            PollFd::from_borrowed_fd(self.uffd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
            Err(error) => unreachable!("polling two descriptors of our own: {error}"),
        }
        if !ready[1].revents().is_empty() {
            return false;
        }
        self.uffd.receive(touches).expect("a userfaultfd is readable while it is open");
        true
    }

    /// Whether a page fault is waiting to be read.
    pub(crate) fn has_touches(&self) -> bool {
        let mut ready = [PollFd::from_borrowed_fd(self.uffd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut ready, Some(&now)), Ok(1..))
    }

    /// Waits until it is stopped, at most for `time`. Returns whether it is stopped.
    pub(crate) fn is_stopped_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let mut ready = [PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN)];
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut ready, Some(&left)) {
                Err(Errno::INTR) => {}
                result => return matches!(result, Ok(1..)),
            }
        }
    }

    /// Stops all readers.
    pub(crate) fn stop(&self) {
        // Wakes all readers: the eventfd is never read back to zero.
        let written = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "{written:?}");
    }

    /// # Errors
    /// As [`Uffd::map`].
    ///
    /// # Safety
    /// As of [`Uffd::map`].
    pub(crate) unsafe fn map(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.uffd.map(range, false) }
    }

    /// Copies pages to missing pages of a private mapping, except pages that cannot be read.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Safety
    /// As of [`Uffd::copy`].
    pub(crate) unsafe fn put(&self, target: usize, source: *const u8, len: usize) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            // SAFETY: guaranteed by the caller.
            match unsafe { self.uffd.copy(target + done, source.wrapping_add(done), len - done, false) } {
                Ok(()) => return Ok(()),
                Err(Partial { done: copied, error: Errno::AGAIN }) => done += copied,
                // Poisoned.
                Err(Partial { done: copied, error: Errno::FAULT }) => {
                    done += copied + crate::uffd::SYSTEM_PAGE;
                }
                Err(Partial { error, .. }) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// # Errors
    /// As [`Uffd::poison`].
    ///
    /// # Safety
    /// As of [`Uffd::poison`].
    pub(crate) unsafe fn poison(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.uffd.poison(range) }
    }

    /// Wakes threads that sleep on whole pages of the caller's mapping.
    pub(crate) fn wake(&self, range: Range<usize>) {
        // Cannot fail for whole pages of a mapping.
        let woken = self.uffd.wake(range);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    /// Unmaps `range`, so that accesses fault again.
    ///
    /// # Safety
    /// The range lies in a shared mapping of the caller: its content returns at the next access.
    pub(crate) unsafe fn unmap(&self, range: Range<usize>) {
        // SAFETY: guaranteed by the caller. If it fails, accesses are merely not seen.
        let _touches_unseen =
            unsafe { madvise(range.start as *mut _, range.end - range.start, Advice::LinuxDontNeed) };
    }

    /// Removes a mapping.
    ///
    /// # Safety
    /// The range is a mapping of the caller, released by this call.
    pub(crate) unsafe fn end(&self, range: Range<usize>) {
        // SAFETY: guaranteed by the caller.
        let unmapped = unsafe { munmap(range.start as *mut _, range.end - range.start) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        // Threads that still sleep there fault on unmapped memory now, instead of when the store
        // responds.
        self.wake(range);
    }
}
