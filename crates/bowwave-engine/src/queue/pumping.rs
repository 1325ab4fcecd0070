//! Who sends for a queue: a thread, once at a time.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// Addresses of the queues that this thread sends for, else 0, so that a backend that answers at once does not recurse.
    /// No vector: that would be gone when files are read and closed in the end of a thread.
    static PUMPED: Cell<[usize; NESTED_MAX]> = const { Cell::new([0; NESTED_MAX]) };
}

/// Queues that a thread may send for at once: a store whose requests read from another store makes two.
const NESTED_MAX: usize = 8;

/// While it lives, this thread sends for a queue. (Not a flag of the queue: one reader would send what all others ask
/// for, and a backend that panics would leave it set.)
pub(super) struct Pumping(usize);

impl Pumping {
    /// `None` if this thread sends for the queue already.
    pub(super) fn enter(queue: usize) -> Option<Self> {
        let mut pumped = PUMPED.with(Cell::get);
        if pumped.contains(&queue) {
            return None;
        }
        // Deeper down it recurses, which takes stack but works.
        if let Some(free) = pumped.iter_mut().find(|place| **place == 0) {
            *free = queue;
            PUMPED.with(|of_thread| of_thread.set(pumped));
        }
        Some(Self(queue))
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        PUMPED.with(|pumped| pumped.set(pumped.get().map(|queue| if queue == self.0 { 0 } else { queue })));
    }
}
