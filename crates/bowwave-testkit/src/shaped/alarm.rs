//! Timers accurate to tens of microseconds. The runtime's timers round up to milliseconds: a
//! response of 30 ms took 32, which distorts random reads.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

/// Maximum number of waiters that the thread has not seen yet. With more, `wait_until` blocks.
const ADDED_MAX: usize = 1024;

/// Wakes waiters from a thread of its own, which ends on drop.
#[derive(Debug)]
pub(super) struct Alarm(SyncSender<Waiter>);

/// Due time, and the channel that wakes the waiter.
type Waiter = (Instant, oneshot::Sender<()>);

impl Alarm {
    /// # Errors
    ///
    /// If no thread is available.
    pub(super) fn start() -> io::Result<Self> {
        let (added, waiters) = mpsc::sync_channel(ADDED_MAX);
        thread::Builder::new().name("testkit-alarm".to_owned()).spawn(move || run(&waiters))?;
        Ok(Self(added))
    }

    /// Returns when `due`, at once if that is past.
    pub(super) async fn wait_until(&self, due: Instant) {
        if due <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        self.0.send((due, wake)).ok();
        // An error means that the thread ended with its server: no request is left.
        woken.await.ok();
    }
}

fn run(added: &Receiver<Waiter>) {
    // Key: due time, then a number that breaks ties.
    let mut waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>> = BTreeMap::new();
    for number in 0_u64.. {
        let now = Instant::now();
        while waiting.first_key_value().is_some_and(|(&(due, _), _)| due <= now) {
            let (_, wake) = waiting.pop_first().expect("it is due");
            // The waiter may be gone.
            wake.send(()).ok();
        }
        let next = match waiting.first_key_value() {
            Some((&(due, _), _)) => added.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => added.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Ok((due, wake)) => drop(waiting.insert((due, number), wake)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
