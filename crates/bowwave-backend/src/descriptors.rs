//! Descriptors of bowwave in a program that chooses descriptor numbers itself.
//!
//! `bowwave run` loads bowwave into such programs. A shell closes number 0 and then duplicates a
//! file there, or replaces number 3 unasked. There, bowwave's descriptors lie above the low
//! numbers, and a thread of bowwave never closes a low number that the program has just replaced.

use std::cell::Cell;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

static KEEPS_LOW_NUMBERS_FREE: AtomicBool = AtomicBool::new(false);

/// Shared while a descriptor is created and moved; exclusive while the program replaces one.
static MOVES: RwLock<()> = RwLock::new(());

thread_local! {
    /// Whether this thread holds `MOVES`. Set before it is locked, so that a signal handler does
    /// not wait for its own thread.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// No thread of bowwave has a low number while it lives.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub struct Held(Locked<RwLockWriteGuard<'static, ()>>);

/// `MOVES`, locked by this thread.
#[derive(Debug)]
struct Locked<G>(Option<G>);

impl<G> Locked<G> {
    /// `None` if this thread has locked it already.
    fn new(lock: impl FnOnce() -> G) -> Option<Self> {
        (!HOLDS.replace(true)).then(|| Self(Some(lock())))
    }
}

impl<G> Drop for Locked<G> {
    fn drop(&mut self) {
        drop(self.0.take());
        HOLDS.set(false);
    }
}

/// From now on, [`own`] moves descriptors above the low numbers.
pub fn keep_low_numbers_free() {
    KEEPS_LOW_NUMBERS_FREE.store(true, Ordering::Relaxed);
}

/// Creates a descriptor of bowwave.
///
/// # Errors
/// Those of `create`.
pub fn own<D, E>(create: impl FnOnce() -> Result<D, E>) -> Result<D, E>
where
    D: Into<OwnedFd> + From<OwnedFd>,
{
    if !KEEPS_LOW_NUMBERS_FREE.load(Ordering::Relaxed) {
        return create();
    }
    let _locked = Locked::new(|| MOVES.read().unwrap_or_else(PoisonError::into_inner));
    create().map(|created| above_low_numbers(created.into()).into())
}

/// Waits until no thread of bowwave has a low number, and prevents it until the result is dropped.
/// `None` if this thread prevents it already.
pub fn hold() -> Option<Held> {
    if !KEEPS_LOW_NUMBERS_FREE.load(Ordering::Relaxed) {
        return None;
    }
    Locked::new(|| MOVES.write().unwrap_or_else(PoisonError::into_inner)).map(Held)
}

/// Moves a descriptor, unless the limit of descriptors is too low.
fn above_low_numbers(descriptor: OwnedFd) -> OwnedFd {
    if descriptor.as_raw_fd() >= FD_MIN {
        return descriptor;
    }
    rustix::io::fcntl_dupfd_cloexec(&descriptor, FD_MIN).unwrap_or(descriptor)
}

/// Lowest number of our descriptors in programs. Higher: beyond the usual limit of 1024. Lower:
/// programs use it.
const FD_MIN: i32 = 512;
