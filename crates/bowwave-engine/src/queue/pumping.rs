//! Which thread sends for a queue: one pump at a time for each thread.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// Addresses of the queues that this thread pumps, else 0, so that a backend that completes
    /// inline does not recurse. An array: a vector would be destroyed before files are closed at
    /// the end of a thread.
    static PUMPED: Cell<[usize; NESTED_MAX]> = const { Cell::new([0; NESTED_MAX]) };
}

/// Queues that a thread may pump at once: a store that reads from another store makes two.
const NESTED_MAX: usize = 8;

/// While it lives, this thread pumps a queue. (A flag of the queue would make one reader send all
/// others' requests, and a panicking backend would leave it set.)
pub(super) struct Pumping(usize);

impl Pumping {
    /// `None` if this thread pumps the queue already.
    pub(super) fn enter(queue: usize) -> Option<Self> {
        let mut pumped = PUMPED.with(Cell::get);
        if pumped.contains(&queue) {
            return None;
        }
        // If all entries are used it recurses, which takes stack but works.
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
