//! The lock under threads, and its protocol under every interleaving.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use super::*;

/// A pair that is equal whenever nobody is inside.
fn bump(pair: &mut (u64, u64)) {
    assert_eq!(pair.0, pair.1, "somebody else is inside");
    pair.0 += 1;
    black_box(&mut *pair);
    pair.1 += 1;
}

#[test]
fn threads_that_come_in_turns_and_at_once_are_never_inside_together() {
    // A streak of 2 makes an owner, and doubles up to 32 only, so that ownership changes hands all the time.
    const TURNS: u64 = 300_000;
    let lock = Arc::new(OwnedLock::with_streak((0, 0), 2));
    let threads: Vec<_> = (0..3u64)
        .map(|number| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let mut owned = 0u64;
                for turn in 0..TURNS {
                    owned += u64::from(lock.is_own());
                    let mut guard = lock.lock();
                    bump(&mut guard);
                    if let Some(habit) = &mut guard.slow {
                        habit.needed = habit.needed.min(32);
                    }
                    drop(guard);
                    // Let the others have their streaks.
                    if (turn + number * 700) % 2100 == 0 {
                        thread::yield_now();
                    }
                }
                owned
            })
        })
        .collect();
    let owned: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(*lock.lock(), (3 * TURNS, 3 * TURNS));
    assert!(owned > 0 || !barrier_works(), "no thread ever owned the lock");
}

#[test]
fn a_lone_thread_becomes_owner_and_a_second_one_ends_that() {
    if !barrier_works() {
        return;
    }
    let lock = OwnedLock::with_streak((0, 0), 8);
    for _ in 0..20 {
        bump(&mut lock.lock());
    }
    assert!(lock.is_own());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!lock.is_own());
            bump(&mut lock.lock());
        });
    });
    assert!(!lock.is_own(), "the newcomer has taken ownership away");
    assert_eq!(lock.lock().slow.as_ref().expect("nobody owns it").needed, 16);
}

#[test]
#[should_panic(expected = "a thread locks what it has locked")]
fn an_owner_that_locks_twice_is_told() {
    let lock = OwnedLock::with_streak((), 1);
    for _ in 0..4 {
        drop(lock.lock());
    }
    assert!(lock.is_own() || !barrier_works(), "a thread locks what it has locked");
    let _first = lock.lock();
    if barrier_works() {
        let _second = lock.lock();
    }
    panic!("a thread locks what it has locked");
}

#[test]
fn the_value_outlives_a_panic_inside() {
    let lock = OwnedLock::with_streak(0, 1);
    for _ in 0..4 {
        *lock.lock() += 1;
    }
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = lock.lock();
        panic!("inside");
    }));
    assert!(caught.is_err());
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 5);
}

/// A thread that owned the lock until it lost its processor between finding that out and saying that it enters.
#[test]
fn a_former_owner_that_comes_to_enter_late_neither_gets_in_nor_lets_others_in() {
    if !barrier_works() {
        return;
    }
    let lock = &OwnedLock::with_streak((0, 0), 8);
    let own = move || {
        for _ in 0..40 {
            bump(&mut lock.lock());
        }
        assert!(lock.is_own());
    };
    let (stop, stopped) = std::sync::mpsc::sync_channel(1);
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel::<()>(1);
    thread::scope(|scope| {
        let late = scope.spawn(move || {
            own();
            BEFORE_ENTRY.set(Some(Box::new(move || {
                stop.send(()).expect("the test listens");
                may_go_on.recv().expect("the test tells");
            })));
            bump(&mut lock.lock());
        });
        stopped.recv().expect("the thread comes to enter");
        own();
        let mut inside = lock.lock();
        go_on.send(()).expect("the thread listens");
        // Long enough for it to get wherever it gets.
        let third = scope.spawn(move || bump(&mut lock.lock()));
        thread::sleep(Duration::from_millis(100));
        assert!(!late.is_finished() && !third.is_finished(), "somebody else was inside");
        bump(&mut inside);
        drop(inside);
        third.join().expect("no panic");
        late.join().expect("no panic");
    });
    assert_eq!(lock.lock().0, 40 + 40 + 3);
}

/// The protocol as two programs on a machine where a store waits in its processor's buffer until it pleases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    /// Of the owner and of the newcomer.
    step: [u8; 2],
    /// In memory.
    owned: bool,
    busy: bool,
    /// Stores on their way, oldest first: the owner's to `busy`, the newcomer's to `owned`.
    buffered_busy: [Option<bool>; 2],
    buffered_owned: Option<bool>,
    turns_left: u8,
}

const INSIDE: [u8; 2] = [2, 3];
const END: [u8; 2] = [9, 9];

impl Machine {
    /// What can happen next.
    fn next(self, with_barrier: bool) -> Vec<Self> {
        let mut next = Vec::new();
        // A store arrives.
        if let [Some(busy), later] = self.buffered_busy {
            next.push(Self { busy, buffered_busy: [later, None], ..self });
        }
        if let Some(owned) = self.buffered_owned {
            next.push(Self { owned, buffered_owned: None, ..self });
        }
        next.extend(self.owner_step());
        next.extend(self.newcomer_step(with_barrier));
        next
    }

    fn store_busy(self, busy: bool, step: u8) -> Option<Self> {
        let buffered_busy = match self.buffered_busy {
            [None, None] => [Some(busy), None],
            [first, None] => [first, Some(busy)],
            // Full: the processor waits until one has arrived.
            _ => return None,
        };
        Some(Self { buffered_busy, step: [step, self.step[1]], ..self })
    }

    /// `busy = true; if owned { inside; busy = false; again } else { busy = false; end }`.
    fn owner_step(self) -> Option<Self> {
        match self.step[0] {
            0 => self.store_busy(true, 1),
            1 => Some(Self { step: [if self.owned { 2 } else { 3 }, self.step[1]], ..self }),
            2 if self.turns_left > 0 => Self { turns_left: self.turns_left - 1, ..self }.store_busy(false, 0),
            2 => self.store_busy(false, 9),
            3 => self.store_busy(false, 9),
            _ => None,
        }
    }

    /// `owned = false; barrier; wait until !busy; inside`.
    fn newcomer_step(self, with_barrier: bool) -> Option<Self> {
        let to = |step: u8| Self { step: [self.step[0], step], ..self };
        match self.step[1] {
            0 => Some(Self { buffered_owned: Some(false), ..to(1) }),
            1 if with_barrier => {
                let [first, second] = self.buffered_busy;
                let busy = second.or(first).unwrap_or(self.busy);
                let owned = self.buffered_owned.unwrap_or(self.owned);
                Some(Self { busy, owned, buffered_busy: [None; 2], buffered_owned: None, ..to(2) })
            }
            1 => Some(to(2)),
            2 => (!self.busy).then(|| to(3)),
            3 => Some(to(9)),
            _ => None,
        }
    }
}

/// Goes through all states; returns how many there are, and how many of them have both inside or are stuck.
fn explore(with_barrier: bool) -> (usize, usize) {
    let start = Machine {
        step: [0, 0],
        owned: true,
        busy: false,
        buffered_busy: [None; 2],
        buffered_owned: None,
        turns_left: 3,
    };
    let (mut seen, mut to_do, mut bad) = (BTreeSet::from([start]), vec![start], 0);
    while let Some(machine) = to_do.pop() {
        let next = machine.next(with_barrier);
        let stuck = next.is_empty() && machine.step != END;
        bad += usize::from(machine.step == INSIDE || stuck);
        to_do.extend(next.into_iter().filter(|&state| seen.insert(state)));
    }
    (seen.len(), bad)
}

#[test]
fn in_no_interleaving_are_both_inside_and_without_the_barrier_in_some() {
    let (states, bad) = explore(true);
    assert!(states > 50, "only {states} states");
    assert_eq!(bad, 0, "of {states} states");
    assert!(explore(false).1 > 0, "the model does not see what the barrier is for");
}
