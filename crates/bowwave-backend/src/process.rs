//! State that each process creates once, and each forked child again: threads are not inherited.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Owner;

/// Number of forks of this process and its ancestors, as reported by [`forked`].
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Reports that this process is a forked child: shared threads are started again when they are next
/// needed. Call it before anything else of this crate. Stores opened before the fork must not be
/// used or dropped.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

impl Owner {
    /// This process's effective user and group.
    pub(crate) fn of_process() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// A value that each process creates for itself. Values of parents stay, unused.
pub(crate) struct PerProcess<T> {
    /// By generation; a child never waits for a value that its parent was creating.
    values: [OnceLock<T>; GENERATIONS],
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { values: [const { OnceLock::new() }; GENERATIONS] }
    }

    /// The value, created now if there is none.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let generation = GENERATION.load(Ordering::Relaxed);
        assert!(
            generation < GENERATIONS,
            "a child of more than {GENERATIONS} parents, each of which used a store"
        );
        self.values[generation].get_or_init(make)
    }
}

/// Most successive forks without an exec.
const GENERATIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_makes_its_own() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        static VALUE: PerProcess<usize> = PerProcess::new();
        let value = || *VALUE.get_or_init(|| MADE.fetch_add(1, Ordering::Relaxed));
        assert_eq!((value(), value()), (0, 0));
        forked();
        assert_eq!((value(), value()), (1, 1));
    }
}
