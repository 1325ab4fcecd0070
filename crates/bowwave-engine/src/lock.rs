//! A lock that its habitual holder enters without an atomic operation.
//!
//! A shard whose file one thread reads is locked by that thread alone, millions of times a second, and two locked
//! instructions a lock, each waiting for the stores of the copy before it, cost as much as the copy. So a thread that has
//! taken the lock often enough with nobody else coming becomes its *owner*:
//!
//! ```text
//!   owner, in its seat                  anybody else, holding `slow`
//!   inside = this lock                  owner = NOBODY
//!   (nothing: a compiler fence)         barrier on every processor that runs a thread of ours (membarrier)
//!   owner == me?  yes: it is mine       wait until its seat is not inside this lock: it is mine
//!                 no:  inside = 0, take `slow`
//! ```
//!
//! Why both never hold it: the barrier falls, on the owner's processor, either before `inside = this lock` in program order,
//! and then the look at `owner` that follows finds it gone; or after it, and then the waiter finds the owner inside and
//! waits for the release store that ends its turn. This is Dekker's algorithm with the fence of the frequent side paid
//! for by the rare one. `tests` go through every interleaving of a model with store buffers, with and without the barrier.
//!
//! `inside` is the thread's, not the lock's: a thread may lose its processor before it says that it enters, and come back
//! when the lock has been owned by others for long. What it then writes must not look like theirs.
//!
//! Losing ownership costs the newcomer some microseconds. Each time the thread has to show a longer habit before it
//! owns the lock again, so that where threads share a shard, it soon is a plain mutex.
#![allow(unsafe_code, reason = "hands out the value that the lock guards")]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

use crate::sync::atomic::{AtomicUsize, Ordering, compiler_fence, fence};
use crate::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError, StaticMutex, TryLockError, hint, thread, thread_local,
};

/// A mutex that can have an owner.
pub(crate) struct OwnedLock<T> {
    /// Address of the seat whose thread enters by that alone, or `NOBODY`. Written by holders of `slow` only, set only by
    /// that thread.
    owner: AtomicUsize,
    slow: Mutex<Habit>,
    value: UnsafeCell<T>,
}

/// Who has come of late.
struct Habit {
    /// The seat of the owner.
    owner: Option<&'static Seat>,
    last: usize,
    /// How often in a row, with nobody in the way.
    streak: u32,
    /// The streak that makes an owner.
    needed: u32,
}

/// What a thread that owns locks says of itself. On a cache line of its own.
#[repr(align(64))]
struct Seat {
    /// Address of the lock that the thread enters, or is inside of, as its owner; or `OUTSIDE`. Written by the thread only.
    inside: AtomicUsize,
}

impl Seat {
    fn is_at(&self, address: usize) -> bool {
        ptr::from_ref(self).addr() == address
    }
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
    /// A guard seen by several threads shows them the value.
    shows: PhantomData<&'a T>,
}

impl<T> OwnedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with_streak(value, STREAK_MIN)
    }

    /// A lock that a streak of `needed` turns makes its thread's own.
    fn with_streak(value: T, needed: u32) -> Self {
        Self {
            owner: AtomicUsize::new(NOBODY),
            slow: Mutex::new(Habit { owner: None, last: NOBODY, streak: 0, needed }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. Whether a holder has panicked does not matter to it.
    ///
    /// # Panics
    /// If this thread owns the lock and is inside already; without an owner that is a deadlock, as with any mutex.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let seat = SEAT.with(Cell::get);
        if seat.is_at(self.owner.load(Ordering::Relaxed)) {
            #[cfg(test)]
            if let Some(wait) = BEFORE_ENTRY.take() {
                wait();
            }
            let inside = seat.inside.load(Ordering::Relaxed);
            assert!(inside != self.address(), "a thread locks what it has locked");
            if inside == OUTSIDE {
                // Release: who waits for another lock may see this instead of the end of the turn before.
                seat.inside.store(self.address(), Ordering::Release);
                compiler_fence(Ordering::SeqCst);
                // Acquire: nothing of the turn moves before this look.
                if seat.is_at(self.owner.load(Ordering::Acquire)) {
                    return Guard { lock: self, slow: None, shows: PhantomData };
                }
                seat.inside.store(OUTSIDE, Ordering::Release);
            }
        }
        self.lock_slow()
    }

    /// Whether this thread enters without waiting: what it does inside then keeps nobody waiting, or hardly ever.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        SEAT.with(Cell::get).is_at(self.owner.load(Ordering::Relaxed))
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> Guard<'_, T> {
        // Threads that have ended may have had the same: a streak may then be of two.
        let me = SEAT.with(|seat| ptr::from_ref(seat).addr());
        let (mut habit, alone) = match self.slow.try_lock() {
            Ok(habit) => (habit, true),
            Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), true),
            Err(TryLockError::WouldBlock) => {
                (self.slow.lock().unwrap_or_else(PoisonError::into_inner), false)
            }
        };
        if let Some(owner) = habit.owner {
            self.disown(owner);
            habit.owner = None;
            habit.needed = habit.needed.saturating_mul(2).min(STREAK_MAX);
            (habit.last, habit.streak) = (me, 0);
        } else if alone && habit.last == me {
            habit.streak += 1;
            if habit.streak >= habit.needed {
                habit.streak = 0;
                habit.owner = if barrier_works() { take_seat() } else { None };
                if let Some(seat) = habit.owner {
                    self.owner.store(ptr::from_ref(seat).addr(), Ordering::Relaxed);
                }
            }
        } else {
            (habit.last, habit.streak) = (me, 0);
        }
        Guard { lock: self, slow: Some(habit), shows: PhantomData }
    }

    /// Takes ownership away and waits until the owner is outside. The caller holds `slow`.
    ///
    /// # Panics
    /// If the system no longer has the barrier that it had; the owner then stays.
    fn disown(&self, owner: &'static Seat) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        // A thread that is here is not inside as the owner.
        if !ptr::eq(owner, SEAT.with(Cell::get)) && !barrier() {
            self.owner.store(ptr::from_ref(owner).addr(), Ordering::Relaxed);
            panic!("membarrier(2) worked before this lock had an owner, and has been forbidden since");
        }
        let mut looks = 0u32;
        // Acquire: what the owner did happens before what comes now.
        while owner.inside.load(Ordering::Acquire) == self.address() {
            looks = looks.saturating_add(1);
            match looks {
                0..100 => hint::spin_loop(),
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
            SEAT.with(Cell::get).inside.store(OUTSIDE, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for OwnedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLock").finish_non_exhaustive()
    }
}

/// No seat's address.
const NOBODY: usize = 0;
/// No lock's address.
const OUTSIDE: usize = 0;
/// Turns in a row that make a thread the owner: they save ten times what taking ownership away costs.
const STREAK_MIN: u32 = if cfg!(feature = "model") { 2 } else { 1 << 11 };
/// What that grows to.
const STREAK_MAX: u32 = 1 << 17;

#[cfg(test)]
thread_local! {
    /// What this thread does when it next comes to enter a lock of its own.
    static BEFORE_ENTRY: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Of threads that own nothing; no lock's owner.
static NO_SEAT: Seat = Seat { inside: AtomicUsize::new(OUTSIDE) };
/// Of threads that have ended. Who gets one owns what they owned.
static FREE_SEATS: StaticMutex<Vec<&'static Seat>> = StaticMutex::new(Vec::new());

thread_local! {
    /// This thread's seat. Still there while the thread ends.
    static SEAT: Cell<&'static Seat> = const { Cell::new(&NO_SEAT) };
    /// Gives it back.
    static SEAT_KEEPER: SeatKeeper = const { SeatKeeper };
}

struct SeatKeeper;

impl Drop for SeatKeeper {
    fn drop(&mut self) {
        // It has nothing to drop, so it is still there; in the model it need not be, and is lost.
        let Ok(seat) = SEAT.try_with(|seat| seat.replace(&NO_SEAT)) else { return };
        // A guard may have been forgotten: then the lock stays locked.
        if !ptr::eq(seat, &raw const NO_SEAT) && seat.inside.load(Ordering::Relaxed) == OUTSIDE {
            FREE_SEATS.lock().unwrap_or_else(PoisonError::into_inner).push(seat);
        }
    }
}

/// The seat of this thread, a new one if it has none; `None` if the thread is about to end.
fn take_seat() -> Option<&'static Seat> {
    SEAT_KEEPER.try_with(|_| ()).ok()?;
    if ptr::eq(SEAT.with(Cell::get), &raw const NO_SEAT) {
        let free = FREE_SEATS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let seat = free.unwrap_or_else(|| Box::leak(Box::new(Seat { inside: AtomicUsize::new(OUTSIDE) })));
        SEAT.with(|of_thread| of_thread.set(seat));
    }
    Some(SEAT.with(Cell::get))
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

/// A full barrier on every processor that runs a thread of this process; tells whether there was one.
fn barrier() -> bool {
    fence(Ordering::SeqCst);
    // If somebody has forbidden the fast one since it worked, the slow one may be left.
    let passed = membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        || membarrier(MembarrierCommand::Global).is_ok();
    fence(Ordering::SeqCst);
    passed
}

/// The lock, to be tried out in the model.
#[cfg(feature = "model")]
#[derive(Debug)]
pub struct TriedLock<T>(OwnedLock<T>);

#[cfg(feature = "model")]
impl<T> TriedLock<T> {
    /// `streak` turns in a row make a thread the owner.
    pub fn new(value: T, streak: u32) -> Self {
        Self(OwnedLock::with_streak(value, streak))
    }

    /// Does something inside.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.0.lock())
    }
}

#[cfg(test)]
mod tests;
