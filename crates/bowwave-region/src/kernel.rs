//! What the kernel does for a mapped file: tells of touches until it is told to stop, maps and unmaps.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise, munmap};

use crate::uffd::{Modes, Partial, Touch, Uffd};

/// A userfaultfd with a bell that ends it.
#[derive(Debug)]
pub(crate) struct Kernel {
    uffd: Uffd,
    stop: OwnedFd,
}

impl Kernel {
    /// # Errors
    /// If the system gives no more descriptors.
    pub(crate) fn new(uffd: Uffd) -> io::Result<Self> {
        Ok(Self { uffd, stop: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// From now on touches of missing pages of `range` are told.
    ///
    /// # Errors
    /// As the kernel says.
    ///
    /// # Safety
    /// As of [`Uffd::register`].
    pub(crate) unsafe fn watch(&self, range: Range<usize>) -> io::Result<()> {
        let modes = Modes { missing: true, minor: true, protected: false };
        // SAFETY: as the caller promises.
        unsafe { self.uffd.register(range, modes) }
    }

    /// Waits for touches; `false` if there is nothing to wait for any more.
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

    /// Whether somebody has touched and nobody has taken that.
    pub(crate) fn has_touches(&self) -> bool {
        let mut ready = [PollFd::from_borrowed_fd(self.uffd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut ready, Some(&now)), Ok(1..))
    }

    /// Ends the waiting of all who wait for touches.
    pub(crate) fn stop(&self) {
        // Wakes all of them: nobody reads it back to zero.
        let told = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "{told:?}");
    }

    /// # Errors
    /// As [`Uffd::map`].
    ///
    /// # Safety
    /// As of [`Uffd::map`].
    pub(crate) unsafe fn map(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: as the caller promises.
        unsafe { self.uffd.map(range) }
    }

    /// # Errors
    /// As [`Uffd::poison`].
    ///
    /// # Safety
    /// As of [`Uffd::poison`].
    pub(crate) unsafe fn poison(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: as the caller promises.
        unsafe { self.uffd.poison(range) }
    }

    /// Wakes who sleeps on whole pages of a mapping of the caller's.
    pub(crate) fn wake(&self, range: Range<usize>) {
        // It cannot fail then.
        let woken = self.uffd.wake(range);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    /// Has the next touches of `range` told again.
    ///
    /// # Safety
    /// The range lies in a shared mapping of the caller's: what it shows comes back at the next touch.
    pub(crate) unsafe fn unmap(&self, range: Range<usize>) {
        // SAFETY: as the caller promises. If it fails, touches are merely not seen.
        let _touches_unseen =
            unsafe { madvise(range.start as *mut _, range.end - range.start, Advice::LinuxDontNeed) };
    }

    /// Takes a mapping away.
    ///
    /// # Safety
    /// The range is a mapping of the caller's, who lets go of it.
    pub(crate) unsafe fn end(&self, range: Range<usize>) {
        // SAFETY: as the caller promises.
        let unmapped = unsafe { munmap(range.start as *mut _, range.end - range.start) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        // Who still sleeps there finds nothing mapped, which is better than to find out when the store answers.
        self.wake(range);
    }
}
