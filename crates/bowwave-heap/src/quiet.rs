//! No signals for a while: what a program's handler touches may be out, and who brings it back may want what we hold.
#![allow(unsafe_code, reason = "changes the thread's signals")]

use std::mem::MaybeUninit;
use std::ptr;

/// As long as it lives, this thread gets no signals, and threads that it starts never get any.
pub(crate) struct Quiet(libc::sigset_t);

impl Quiet {
    pub(crate) fn begin() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sets of this thread's; those of faults come in spite of it.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let set = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            debug_assert_eq!(set, 0, "sets that exist");
            Self(before.assume_init())
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as it was.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
