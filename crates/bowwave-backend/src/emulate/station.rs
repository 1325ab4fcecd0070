//! The timer thread of an emulated device: lets bytes through when the schedule says so.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::driver::Driver;
use super::link::Link;
use super::transfer::Transfer;
use super::{Device, Release};

/// The sending side; dropping it lets the transfers on their way end, then ends the thread.
#[derive(Debug)]
pub(super) struct Station {
    shared: Arc<Shared>,
}

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Nothing but to make what was written last.
    Flush,
}

impl Station {
    pub(super) fn start(device: &Device) -> io::Result<Self> {
        let model = match device.model().map_err(io::Error::other)? {
            Some(model) => Model::Driver(Box::new(Driver::new(model))),
            None => Model::Link(Box::new(Link::new(device))),
        };
        // Bytes are let through in batches this far apart at most: far below any latency that the device has.
        let quantum = (device.first_byte() / 64).min(QUANTUM_MAX);
        let state = State { model, transfers: BTreeMap::new(), count: 0, wake_at: None, stopping: false };
        let shared =
            Shared { epoch: Instant::now(), quantum, state: Mutex::new(state), wake: Condvar::new() };
        let station = Self { shared: Arc::new(shared) };
        let shared = Arc::clone(&station.shared);
        thread::Builder::new().name("bowwave-emulate".to_owned()).spawn(move || shared.run())?;
        Ok(station)
    }

    /// Puts a transfer of `len > 0` bytes at `address` on the schedule, or a flush; `false` if too many wait.
    pub(super) fn add(&self, kind: Kind, address: u64, len: u64, transfer: &Arc<Transfer>) -> bool {
        let mut state = self.shared.lock();
        let (id, now) = (state.count, self.shared.now());
        let taken = match &mut state.model {
            Model::Link(link) => link.arrive(now, id, kind, len),
            Model::Driver(driver) => driver.arrive(now, id, kind, address, len),
        };
        if taken {
            state.count += 1;
            state.transfers.insert(id, Arc::clone(transfer));
            if state.wake_at.is_some_and(|wake_at| state.model.next().is_some_and(|next| next < wake_at)) {
                self.shared.wake.notify_one();
            }
        }
        taken
    }
}

#[cfg(test)]
impl Station {
    /// What the device model was sent, and when it served it.
    pub(super) fn log(&self) -> super::driver::Log {
        match &self.shared.lock().model {
            Model::Driver(driver) => driver.log.clone(),
            Model::Link(_) => panic!("this device has no model of bowwave-device"),
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_one();
    }
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    quantum: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    model: Model,
    transfers: BTreeMap<u64, Arc<Transfer>>,
    /// Requests so far: the next one's number.
    count: u64,
    /// What the thread sleeps until; `u64::MAX` for "until called", `None` while it is awake.
    wake_at: Option<u64>,
    stopping: bool,
}

#[derive(Debug)]
enum Model {
    Link(Box<Link>),
    Driver(Box<Driver>),
}

impl Model {
    fn next(&self) -> Option<u64> {
        match self {
            Self::Link(link) => link.next(),
            Self::Driver(driver) => driver.next(),
        }
    }

    fn advance(&mut self, now: u64, out: &mut Vec<Release>) {
        match self {
            Self::Link(link) => link.advance(now, out),
            Self::Driver(driver) => driver.advance(now, out),
        }
    }

    fn cut(&mut self, now: u64, id: u64) {
        match self {
            Self::Link(link) => link.cut(now, id),
            // A device reads on whatever becomes of the bytes.
            Self::Driver(_) => {}
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned schedule is still whole: foreign code runs outside the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(&self) {
        sharpen_timer();
        let (mut releases, mut due) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        loop {
            let now = self.now();
            state.model.advance(now, &mut releases);
            for Release { id, bytes, over } in releases.drain(..) {
                let transfer =
                    if over { state.transfers.remove(&id) } else { state.transfers.get(&id).cloned() };
                due.extend(transfer.map(|transfer| (id, transfer, bytes, over)));
            }
            if due.is_empty() {
                if state.stopping && state.transfers.is_empty() {
                    return;
                }
                state = self.sleep(state, now);
                continue;
            }
            drop(state);
            let mut cut = Vec::new();
            for (id, transfer, bytes, over) in due.drain(..) {
                if transfer.release(bytes, over) {
                    cut.push(id);
                }
            }
            state = self.lock();
            for id in cut {
                if state.transfers.remove(&id).is_some() {
                    state.model.cut(now, id);
                }
            }
            state = self.pause(state, now);
        }
    }

    /// Sleeps until the next event or a call.
    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, now: u64) -> MutexGuard<'a, State> {
        let next = state.model.next();
        state.wake_at = Some(next.unwrap_or(u64::MAX));
        let mut state = match next {
            Some(next) => {
                let time = Duration::from_nanos(next.saturating_sub(now));
                self.wake.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.wake_at = None;
        state
    }

    /// Lets a quantum pass since `now`, so that events close together cost one wake-up.
    fn pause<'a>(&'a self, state: MutexGuard<'a, State>, now: u64) -> MutexGuard<'a, State> {
        let since = Duration::from_nanos(self.now().saturating_sub(now));
        match self.quantum.checked_sub(since) {
            Some(rest) if rest > PAUSE_MIN => {
                drop(state);
                thread::sleep(rest);
                self.lock()
            }
            _ => state,
        }
    }
}

/// Asks the kernel to wake this thread to the microsecond; it rounds to 50 µs otherwise. Does without if refused.
fn sharpen_timer() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_ref().and_then(|path| path.file_name()?.to_str()) {
        std::fs::write(format!("/proc/{id}/timerslack_ns"), "1").ok();
    }
}

/// Longest time between a byte's schedule and its delivery that batching adds.
const QUANTUM_MAX: Duration = Duration::from_micros(250);
/// A shorter pause costs more than the wake-up that it saves.
const PAUSE_MIN: Duration = Duration::from_micros(10);
