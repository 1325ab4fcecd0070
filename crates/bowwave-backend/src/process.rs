//! What a process has once, and a child of it again: threads are not inherited.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often this process and those before it have forked, each child being told.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Tells this process that it is a child: threads that all stores share are started anew when they are next needed. To be
/// called before anything else of this crate; stores opened before the fork must not be used, nor dropped.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A value that each process makes for itself. Those of parents stay, unused.
pub(crate) struct PerProcess<T> {
    /// By generation; a child never waits for one that its parent was about to make.
    values: [OnceLock<T>; GENERATIONS],
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { values: [const { OnceLock::new() }; GENERATIONS] }
    }

    /// The value, made now if there is none.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let generation = GENERATION.load(Ordering::Relaxed);
        assert!(
            generation < GENERATIONS,
            "a child of more than {GENERATIONS} parents, each of which used a store"
        );
        self.values[generation].get_or_init(make)
    }
}

/// Most parents in a row, each a child of the one before without an exec.
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
