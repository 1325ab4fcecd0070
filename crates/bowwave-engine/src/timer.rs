//! Fills that wait for their next try.

use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use crate::engine::Inner;
use crate::queue::QueuedFill;

/// Hands fills back to their queues when their pause is over.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: BinaryHeap<Waiting>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    fill: QueuedFill,
}

impl Timer {
    /// Starts the thread, which ends when the engine does.
    pub(crate) fn start(self: &Arc<Self>, engine: Weak<Inner>) -> std::io::Result<()> {
        let timer = Arc::clone(self);
        thread::Builder::new().name("bowwave-timer".into()).spawn(move || timer.run(&engine)).map(drop)
    }

    /// Keeps a fill until `due`.
    pub(crate) fn add(&self, due: Instant, fill: QueuedFill) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(Waiting { due, fill });
        self.changed.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_one();
    }

    fn run(&self, engine: &Weak<Inner>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let now = Instant::now();
            let Some(first) = state.waiting.peek() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if first.due > now {
                let pause = first.due - now;
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Waiting { fill, .. } = state.waiting.pop().expect("peeked above");
            drop(state);
            let Some(engine) = engine.upgrade() else { return };
            let queue = Arc::clone(&fill.entry.queue);
            queue.push(fill);
            queue.pump(&engine);
            drop(engine);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
/// The heap gives the largest first; the largest is the one due first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}
