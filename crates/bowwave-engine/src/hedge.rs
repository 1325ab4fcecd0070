//! Hedged reads: a late demand read is requested a second time, and the first response counts.
//!
//! ```text
//!   first request   ├────────────────────────────── late ···✕ no longer needed
//!   second request              ├───────────┤ its bytes go to the reader
//!                        the read is late
//! ```
//!
//! Each request has its own memory, since a store may write to a buffer until it returns it, however
//! late. A read is late after the mean latency plus four times its deviation, as in TCP. The options
//! limit the share of hedged reads: where all reads are late, hedging only adds load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bowwave_backend::{Error as StoreError, Object, Profile, ReadBuf, ReadSink};
use bowwave_core::network::Hedging;

use crate::engine::Inner;
use crate::queue::Queue;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::timer::Job;

/// Longer requests are few, and their times depend on their length.
const BYTES_MAX: usize = 256 << 10;
/// Stores with a lower latency respond before a timer could fire.
const LATENCY_MIN: Duration = Duration::from_millis(1);

/// Latencies of a store's reads, and the number of hedged reads.
#[derive(Debug)]
pub(crate) struct Hedges {
    hedging: Mutex<Hedging>,
}

/// A read that may be hedged.
#[derive(Debug)]
pub(crate) struct Race {
    queue: Arc<Queue>,
    object: Arc<dyn Object>,
    offset: u64,
    state: Mutex<State>,
    /// The other request is no longer needed.
    unwanted: Arc<AtomicBool>,
}

struct State {
    /// Destination of the bytes, until they arrive.
    prize: Option<(ReadBuf, Box<dyn ReadSink>)>,
    running: u32,
    error: Option<StoreError>,
}

/// One of the requests.
struct Runner {
    race: Arc<Race>,
    begun: Instant,
    is_second: bool,
    ended: bool,
}

impl Hedges {
    /// For stores of sufficient latency, if enabled: hedges at most `percent` percent of demand
    /// reads.
    pub(crate) fn new(profile: &Profile, percent: u32) -> Option<Self> {
        let suits = percent > 0 && profile.latency >= LATENCY_MIN && profile.alignment <= 1;
        let latency_ns = u64::try_from(profile.latency.as_nanos()).unwrap_or(u64::MAX);
        suits.then(|| Self { hedging: Mutex::new(Hedging::new(latency_ns, percent)) })
    }

    fn lock(&self) -> MutexGuard<'_, Hedging> {
        self.hedging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Race {
    /// Reads `buf.len()` bytes, with a second request if the read is late and hedging is allowed.
    pub(crate) fn run(
        engine: &Arc<Inner>,
        queue: &Arc<Queue>,
        object: Arc<dyn Object>,
        offset: u64,
        (buf, sink): (ReadBuf, Box<dyn ReadSink>),
    ) {
        let Some(hedges) = queue.hedges().filter(|_| buf.len() <= BYTES_MAX) else {
            return object.read(offset, buf, sink);
        };
        let late = Instant::now() + Duration::from_nanos(hedges.lock().begin());
        let state = Mutex::new(State { prize: Some((buf, sink)), running: 0, error: None });
        let unwanted = Arc::new(AtomicBool::new(false));
        let race = Arc::new(Self { queue: Arc::clone(queue), object, offset, state, unwanted });
        race.start(false);
        if !race.unwanted.load(Ordering::Relaxed) {
            engine.at(late, Job::Hedge(Arc::downgrade(&race)));
        }
    }

    /// The read is late.
    pub(crate) fn hedge(self: &Arc<Self>) {
        let granted = || self.queue.hedges().is_some_and(|hedges| hedges.lock().grant());
        if !self.unwanted.load(Ordering::Relaxed) && granted() {
            self.queue.hedged();
            self.start(true);
        }
    }

    fn start(self: &Arc<Self>, is_second: bool) {
        let mut state = self.lock();
        // It may have ended just now; then the hedge was counted in vain.
        let Some(len) = state.prize.as_ref().map(|(buf, _)| buf.len()) else { return };
        state.running += 1;
        drop(state);
        let runner = Runner { race: Arc::clone(self), begun: Instant::now(), is_second, ended: false };
        self.object.read(self.offset, ReadBuf::zeroed(len), Box::new(runner));
    }

    /// A request returned bytes.
    fn win(&self, from: &ReadBuf, bytes: usize, runner: &Runner) {
        let prize = {
            let mut state = self.lock();
            state.running -= 1;
            state.prize.take()
        };
        let Some((mut buf, sink)) = prize else { return };
        self.unwanted.store(true, Ordering::Relaxed);
        if let Some(hedges) = self.queue.hedges() {
            let ns = u64::try_from(runner.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            hedges.lock().took(ns);
        }
        if runner.is_second {
            self.queue.hedge_won();
        }
        buf.copy_in(0, &from.to_vec()[..bytes]);
        sink.done(buf, Ok(bytes));
    }

    /// A request failed or was dropped.
    fn lose(&self, error: Option<StoreError>) {
        let (prize, error) = {
            let mut state = self.lock();
            state.running -= 1;
            let before = state.error.take();
            state.error = error.or(before);
            // The other request may still succeed.
            let prize = if state.running == 0 { state.prize.take() } else { None };
            (prize, state.error.clone())
        };
        let Some((buf, sink)) = prize else { return };
        self.unwanted.store(true, Ordering::Relaxed);
        match error {
            Some(error) => sink.done(buf, Err(error)),
            // The sink reports that itself.
            None => drop((buf, sink)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("running", &self.running).finish_non_exhaustive()
    }
}

impl ReadSink for Runner {
    fn progress(&mut self, _bytes: usize) {
        // The bytes are checked when the buffer returns.
    }

    fn done(mut self: Box<Self>, buf: ReadBuf, result: bowwave_backend::Result<usize>) {
        self.ended = true;
        match result {
            Ok(bytes) => self.race.win(&buf, bytes, &self),
            Err(error) => self.race.lose(Some(error)),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.race.lock().prize.as_ref().and_then(|(_, sink)| sink.deadline())
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.race.unwanted))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.ended {
            self.race.lose(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_latency_or_aligned_stores_are_not_hedged() {
        let far = Profile { latency: Duration::from_millis(30), ..Profile::read_only("far") };
        assert!(Hedges::new(&far, 0).is_none() && Hedges::new(&far, 1).is_some());
        assert!(Hedges::new(&Profile { alignment: 512, ..far.clone() }, 5).is_none());
        assert!(Hedges::new(&Profile { latency: Duration::from_micros(900), ..far }, 5).is_none());
    }
}
