//! Keeps the server's thread and socket apart from the program's signals and forks.
#![allow(unsafe_code, reason = "registers a fork handler, and changes the thread's signals")]

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Descriptors that are closed in children of a fork, with their inodes. Otherwise clients could
/// connect to a child, where no thread accepts.
static SLOTS: [Slot; SLOTS_MAX] =
    [const { Slot { fd: AtomicI32::new(FREE), inode: AtomicU64::new(0) } }; SLOTS_MAX];

struct Slot {
    fd: AtomicI32,
    inode: AtomicU64,
}

/// Registers the fork handler. [`Server::start`](crate::Server::start) calls this. Call it earlier
/// if you start a server while holding a lock that your own fork handlers take.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function with static lifetime.
        let watched = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        debug_assert_eq!(watched, 0, "no memory");
    });
}

extern "C" fn in_child() {
    for slot in &SLOTS {
        let fd = slot.fd.swap(FREE, Ordering::Relaxed);
        if fd < 0 {
            continue;
        }
        // SAFETY: only its inode is read.
        let inode = inode(unsafe { BorrowedFd::borrow_raw(fd) });
        // The program may have closed it and reused the number.
        if inode == Some(slot.inode.load(Ordering::Relaxed)) {
            // SAFETY: ours. No thread of the child uses it; the child's `Server` does not close it.
            unsafe { rustix::io::close(fd) };
        }
    }
}

/// Closes a descriptor in children, until this is dropped.
#[derive(Debug)]
pub(crate) struct ClosedInChildren(Option<usize>);

impl ClosedInChildren {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Self {
        prepare();
        let Some(inode) = inode(fd) else { return Self(None) };
        let free = SLOTS.iter().position(|slot| {
            slot.fd.compare_exchange(FREE, RESERVED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if let Some(at) = free {
            SLOTS[at].inode.store(inode, Ordering::Relaxed);
            SLOTS[at].fd.store(fd.as_raw_fd(), Ordering::Release);
        }
        Self(free)
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            SLOTS[at].fd.store(FREE, Ordering::Relaxed);
        }
    }
}

/// Identifies the socket behind a descriptor.
pub(crate) fn inode(fd: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(fd).ok().map(|stat| stat.st_ino)
}

/// While it lives, this thread gets no signals; threads that it starts never get any. A handler of
/// the program must not run on a thread of ours.
#[must_use]
pub struct Quiet(libc::sigset_t);

impl fmt::Debug for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quiet").finish_non_exhaustive()
    }
}

impl Quiet {
    /// Blocks the signals of this thread.
    pub fn begin() -> Self {
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

/// Servers of one process whose sockets are closed in its children.
const SLOTS_MAX: usize = 16;
const FREE: i32 = -1;
const RESERVED: i32 = -2;
