//! Blocks signals for a while: a program's signal handler may access swapped-out memory, and the
//! thread that reads it back may need a lock that we hold.
#![allow(unsafe_code, reason = "changes the thread's signals")]

use std::mem::MaybeUninit;
use std::ptr;

/// While it lives, this thread gets no signals; threads that it starts never get any.
pub(crate) struct Quiet(libc::sigset_t);

impl Quiet {
    pub(crate) fn begin() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sets of this thread; fault signals are delivered anyway.
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
        // SAFETY: the previous set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
