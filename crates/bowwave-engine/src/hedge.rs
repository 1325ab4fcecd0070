//! Reads that somebody waits for and that run late are asked for a second time: what comes first counts.
//!
//! ```text
//!   first try  ├────────────────────────────── late ···✕ no longer wanted
//!   second try             ├───────────┤ its bytes go to the reader
//!                 the time that is late
//! ```
//!
//! Each try has memory of its own, for a store may write to what it was lent until it gives that back, however late. Late is
//! what takes longer than nearly all do: the mean of what reads have taken and four times their deviation, as TCP has it. Of
//! hundred reads at most so many are asked for again as the options say: where all are late, that helps nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bowwave_backend::{Error as StoreError, Object, Profile, ReadBuf, ReadSink};
use bowwave_core::network::Hedging;

use crate::engine::Inner;
use crate::queue::Queue;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::timer::Job;

/// Longer requests are few, and their time says how long they are.
const BYTES_MAX: usize = 256 << 10;
/// Nearer stores are done before anybody could look.
const LATENCY_MIN: Duration = Duration::from_millis(1);

/// When reads of a store are late, and how many were asked for again.
#[derive(Debug)]
pub(crate) struct Hedges {
    hedging: Mutex<Hedging>,
}

/// A read that may be asked for twice.
#[derive(Debug)]
pub(crate) struct Race {
    queue: Arc<Queue>,
    object: Arc<dyn Object>,
    offset: u64,
    state: Mutex<State>,
    /// Nobody wants what is still on its way.
    unwanted: Arc<AtomicBool>,
}

struct State {
    /// Where the bytes go, until they have.
    prize: Option<(ReadBuf, Box<dyn ReadSink>)>,
    running: u32,
    error: Option<StoreError>,
}

/// One try.
struct Runner {
    race: Arc<Race>,
    begun: Instant,
    is_second: bool,
    ended: bool,
}

impl Hedges {
    /// For a store that is far enough, if that is wanted: of hundred reads that somebody waits for, at most `percent`.
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
    /// Reads `buf.len()` bytes; once more, if they are late and that is worth it.
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

    /// It is late now.
    pub(crate) fn hedge(self: &Arc<Self>) {
        let granted = || self.queue.hedges().is_some_and(|hedges| hedges.lock().grant());
        if !self.unwanted.load(Ordering::Relaxed) && granted() {
            self.queue.hedged();
            self.start(true);
        }
    }

    fn start(self: &Arc<Self>, is_second: bool) {
        let mut state = self.lock();
        // It may have ended just now; then it was counted in vain.
        let Some(len) = state.prize.as_ref().map(|(buf, _)| buf.len()) else { return };
        state.running += 1;
        drop(state);
        let runner = Runner { race: Arc::clone(self), begun: Instant::now(), is_second, ended: false };
        self.object.read(self.offset, ReadBuf::zeroed(len), Box::new(runner));
    }

    /// A try has brought so many bytes.
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

    /// A try has failed, or was lost.
    fn lose(&self, error: Option<StoreError>) {
        let (prize, error) = {
            let mut state = self.lock();
            state.running -= 1;
            let before = state.error.take();
            state.error = error.or(before);
            // The other one may still make it.
            let prize = if state.running == 0 { state.prize.take() } else { None };
            (prize, state.error.clone())
        };
        let Some((buf, sink)) = prize else { return };
        self.unwanted.store(true, Ordering::Relaxed);
        match error {
            Some(error) => sink.done(buf, Err(error)),
            // The sink says so itself.
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
        // The bytes are seen when the buffer comes back.
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
    fn stores_that_are_near_or_want_alignment_are_asked_once() {
        let far = Profile { latency: Duration::from_millis(30), ..Profile::read_only("far") };
        assert!(Hedges::new(&far, 0).is_none() && Hedges::new(&far, 1).is_some());
        assert!(Hedges::new(&Profile { alignment: 512, ..far.clone() }, 5).is_none());
        assert!(Hedges::new(&Profile { latency: Duration::from_micros(900), ..far }, 5).is_none());
    }
}
