//! A lock that its habitual holder enters without an atomic operation.
//!
//! A shard whose file one thread reads is locked by that thread alone, millions of times a second, and two locked
//! instructions a lock, each waiting for the stores of the copy before it, cost as much as the copy. So a thread that has
//! taken the lock often enough with nobody else coming becomes its *owner*:
//!
//! ```text
//!   owner                               anybody else, holding `slow`
//!   busy = true                         owner = NOBODY
//!   (nothing: a compiler fence)         barrier on every processor that runs a thread of ours (membarrier)
//!   owner == me?  yes: it is mine       wait until busy == false: it is mine
//!                 no:  busy = false, take `slow`
//! ```
//!
//! Why both never hold it: the barrier falls, on the owner's processor, either before `busy = true` in program order,
//! and then the look at `owner` that follows finds it gone; or after it, and then the waiter finds `busy` set and waits
//! for the release store that ends the owner's turn. This is Dekker's algorithm with the fence of the frequent side paid
//! for by the rare one. `tests` go through every interleaving of a model with store buffers, with and without the barrier.
//!
//! Losing ownership costs the newcomer some microseconds. Each time the thread has to show a longer habit before it
//! owns the lock again, so that where threads share a shard, it soon is a plain mutex.
#![allow(unsafe_code, reason = "hands out the value that the lock guards")]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// A mutex that can have an owner.
pub(crate) struct OwnedLock<T> {
    /// The thread that enters by `busy` alone, or `NOBODY`. Written by holders of `slow` only, set only by that thread.
    owner: AtomicU64,
    /// The owner is inside. Written by the owner only.
    busy: AtomicBool,
    slow: Mutex<Habit>,
    value: UnsafeCell<T>,
}

/// Who has come of late.
struct Habit {
    last: u64,
    /// How often in a row, with nobody in the way.
    streak: u32,
    /// The streak that makes an owner.
    needed: u32,
}

// SAFETY: the lock lets one thread at a time at the value, as a mutex does.
unsafe impl<T: Send> Send for OwnedLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

/// The value, for as long as it lives. Stays on its thread.
pub(crate) struct Guard<'a, T> {
    lock: &'a OwnedLock<T>,
    /// `None` for the owner.
    slow: Option<MutexGuard<'a, Habit>>,
}

impl<T> OwnedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with_streak(value, STREAK_MIN)
    }

    /// A lock that a streak of `needed` turns makes its thread's own.
    fn with_streak(value: T, needed: u32) -> Self {
        Self {
            owner: AtomicU64::new(NOBODY),
            busy: AtomicBool::new(false),
            slow: Mutex::new(Habit { last: NOBODY, streak: 0, needed }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. Whether a holder has panicked does not matter to it.
    ///
    /// # Panics
    /// If this thread owns the lock and is inside already; without an owner that is a deadlock, as with any mutex.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.is_own() {
            assert!(!self.busy.load(Ordering::Relaxed), "a thread locks what it has locked");
            self.busy.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // Acquire: nothing of the turn moves before this look.
            if self.owner.load(Ordering::Acquire) == THREAD.get() {
                return Guard { lock: self, slow: None };
            }
            self.busy.store(false, Ordering::Release);
        }
        self.lock_slow()
    }

    /// Whether this thread enters without waiting: what it does inside then keeps nobody waiting, or hardly ever.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == THREAD.get()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> Guard<'_, T> {
        let me = thread_number();
        let (mut habit, alone) = match self.slow.try_lock() {
            Ok(habit) => (habit, true),
            Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), true),
            Err(TryLockError::WouldBlock) => {
                (self.slow.lock().unwrap_or_else(PoisonError::into_inner), false)
            }
        };
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.disown();
            habit.needed = habit.needed.saturating_mul(2).min(STREAK_MAX);
            (habit.last, habit.streak) = (me, 0);
        } else if alone && habit.last == me {
            habit.streak += 1;
            if habit.streak >= habit.needed {
                habit.streak = 0;
                if barrier_works() {
                    self.owner.store(me, Ordering::Relaxed);
                }
            }
        } else {
            (habit.last, habit.streak) = (me, 0);
        }
        Guard { lock: self, slow: Some(habit) }
    }

    /// Takes ownership away and waits until the owner is outside. The caller holds `slow`.
    fn disown(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        barrier();
        let mut looks = 0u32;
        // Acquire: what the owner did happens before what comes now.
        while self.busy.load(Ordering::Acquire) {
            looks = looks.saturating_add(1);
            match looks {
                0..100 => std::hint::spin_loop(),
                100..200 => thread::yield_now(),
                // It lost its processor inside, perhaps to us.
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread is the only one inside (see the head of this file).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.slow.is_none() {
            self.lock.busy.store(false, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for OwnedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLock").finish_non_exhaustive()
    }
}

/// No thread's number.
const NOBODY: u64 = u64::MAX;
/// Turns in a row that make a thread the owner: they save ten times what taking ownership away costs.
const STREAK_MIN: u32 = 1 << 11;
/// What that grows to.
const STREAK_MAX: u32 = 1 << 17;

thread_local! {
    /// This thread's number; 0 before it has one. Never used twice, so a thread that has ended owns nothing anew.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Whether the system has the barrier; without it no lock ever has an owner.
fn barrier_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let wanted = MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        membarrier_query().contains(wanted)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// A full barrier on every processor that runs a thread of this process.
fn barrier() {
    fence(Ordering::SeqCst);
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // Somebody has forbidden it since it worked; the slow one may be left.
        membarrier(MembarrierCommand::Global).expect("membarrier worked before this lock had an owner");
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests;
