//! Descriptors of bowwave in a program that chooses descriptor numbers itself.
//!
//! `bowwave run` loads bowwave into such programs. A shell closes number 0 and then duplicates a
//! file to it, or replaces number 3 without asking whether it is open. In such programs, bowwave
//! moves its descriptors to 512 and above, if the limit of descriptors allows. [`hold`] prevents it
//! from closing a low number that the program has just replaced.

use std::cell::Cell;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static KEEPS_LOW_NUMBERS_FREE: AtomicBool = AtomicBool::new(false);
/// Threads that create descriptors, which have low numbers until they are moved.
static CREATING: AtomicU32 = AtomicU32::new(0);
/// Threads that replace descriptors, or fork.
static HOLDING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is in one of the two counts. Set first, so that a signal handler does
    /// not wait for its own thread.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// One thread in a count.
#[derive(Debug)]
struct Counted(&'static AtomicU32);

impl Counted {
    /// `None` if this thread is counted already.
    fn new(count: &'static AtomicU32) -> Option<Self> {
        if COUNTED.replace(true) {
            return None;
        }
        count.fetch_add(1, Ordering::SeqCst);
        Some(Self(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        COUNTED.set(false);
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
    creating(|| {
        let created = create()?;
        Ok(match KEEPS_LOW_NUMBERS_FREE.load(Ordering::Relaxed) {
            true => above_low_numbers(created.into()).into(),
            false => created,
        })
    })
}

/// Runs `work`, which creates and closes descriptors with low numbers. Waits while another thread
/// holds.
pub fn creating<T>(work: impl FnOnce() -> T) -> T {
    if !KEEPS_LOW_NUMBERS_FREE.load(Ordering::Relaxed) {
        return work();
    }
    let mut counted = Counted::new(&CREATING);
    while counted.is_some() && HOLDING.load(Ordering::SeqCst) > 0 {
        drop(counted);
        thread::sleep(PAUSE);
        counted = Counted::new(&CREATING);
    }
    work()
}

/// While it lives, no thread of bowwave begins to create a descriptor.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub struct Held(Counted);

/// Waits until no thread of bowwave creates a descriptor, and keeps them from it until the result
/// is dropped. `None` if low numbers are not kept free, or if this thread is counted already.
///
/// The open of a file may hang, for example on NFS, so this gives up after 0.1 s. Then, rarely, a
/// thread of bowwave may close the number that the program has just replaced.
pub fn hold() -> Option<Held> {
    if !KEEPS_LOW_NUMBERS_FREE.load(Ordering::Relaxed) {
        return None;
    }
    let counted = Counted::new(&HOLDING)?;
    let begun = Instant::now();
    while CREATING.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
    Some(Held(counted))
}

/// Reports that this process is a forked child: it has none of the counted threads.
pub fn forked() {
    CREATING.store(0, Ordering::SeqCst);
    HOLDING.store(0, Ordering::SeqCst);
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
pub const FD_MIN: i32 = 512;
/// Time between two checks of a count. Longer: slower replacements. Shorter: more processor time.
const PAUSE: Duration = Duration::from_micros(20);
/// Longest wait of [`hold`]. Longer: a program waits longer for a file system that hangs. Shorter:
/// more often, a slow open is not waited for.
const PATIENCE: Duration = Duration::from_millis(100);
