//! Timers accurate to tens of microseconds. The runtime's timers round up to milliseconds: a
//! response of 30 ms took 32, which distorts random reads.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot::{Sender, channel};

/// Wakes waiters from a thread of its own, which ends on drop.
#[derive(Debug)]
pub(super) struct Alarm(Arc<Clock>);

#[derive(Debug, Default)]
struct Clock {
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
    wake: Sender<()>,
}

impl Alarm {
    /// # Errors
    ///
    /// If no thread is available.
    pub(super) fn start() -> io::Result<Self> {
        let clock = Arc::new(Clock::default());
        let own = Arc::clone(&clock);
        thread::Builder::new().name("testkit-alarm".to_owned()).spawn(move || own.run())?;
        Ok(Self(clock))
    }

    /// Returns when `due`, at once if that is past.
    pub(super) async fn wait_until(&self, due: Instant) {
        if due <= Instant::now() {
            return;
        }
        let (wake, woken) = channel();
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(Waiting { due, wake });
        self.0.changed.notify_one();
        // An error means that the clock ended with its server: no request is left.
        woken.await.ok();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.0.changed.notify_one();
    }
}

impl Clock {
    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let now = Instant::now();
            while let Some(waiting) = state.waiting.pop() {
                if waiting.due > now {
                    state.waiting.push(waiting);
                    break;
                }
                // The waiter may be gone.
                waiting.wake.send(()).ok();
            }
            let next =
                state.waiting.peek().map(|waiting| waiting.due.saturating_duration_since(Instant::now()));
            state = match next {
                Some(pause) => {
                    self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.waiting.clear();
    }
}

/// Reversed: the earliest is the greatest, because a heap returns that first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Waiting {}
