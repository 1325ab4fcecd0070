//! The last reads of a file and how each ended, which its picture shows.

use std::collections::VecDeque;

use bowwave_engine::backend::sync::Mutex;
use bowwave_region::FaultOutcome as Outcome;
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::bytes::waited;
use crate::handle::Handle;

/// Seconds after which a read may have waited for the store. Smaller: more reads check the
/// counters; larger: a miss of a fast store counts as a hit.
const SLOW_S: f64 = 20e-6;
/// Samples of the counters. If more reads than this are concurrent, some hits count as misses.
const SAMPLES: usize = 256;

/// The last reads of a file. Any number of threads may use it.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Reads {
    /// Reads that it remembers.
    max: usize,
    /// A panic under the lock may leave a read out, which affects pictures only.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reads: VecDeque<Read>,
    samples: VecDeque<Sample>,
}

struct Read {
    begin: f64,
    end: f64,
    offset: u64,
    length: u64,
    outcome: Outcome,
}

/// Counters of a file at a time.
struct Sample {
    at: f64,
    late: u64,
    misses: u64,
}

/// Begin and end in seconds of `time.monotonic`, offset and length in bytes, and outcome.
type Shown<Name> = (f64, f64, u64, u64, Name);

#[pymethods]
impl Reads {
    #[new]
    fn new(max: usize) -> Self {
        Self { max, state: Mutex::default() }
    }

    /// Reads go through this handle from now on.
    fn bind(&self, py: Python<'_>, handle: &Handle) -> PyResult<()> {
        let sample = Sample::of(py, handle)?;
        self.state.lock().samples = VecDeque::from([sample]);
        Ok(())
    }

    /// Remembers reads of offsets and lengths that began together and end now. Without a handle, or
    /// if they have not `waited` for the store, they are hits.
    fn note(
        &self,
        py: Python<'_>,
        handle: Option<&Handle>,
        begin: f64,
        ranges: Vec<(u64, u64)>,
        waited: bool,
    ) -> PyResult<()> {
        let end = now();
        let outcome = match handle {
            Some(handle) if waited && end - begin >= SLOW_S => self.outcome(py, handle, begin)?,
            _ => Outcome::Hit,
        };
        let mut state = self.state.lock();
        for (offset, length) in ranges {
            state.push(self.max, Read { begin, end, offset, length, outcome });
        }
        Ok(())
    }

    /// Remembers reads that are known from elsewhere.
    fn extend(&self, reads: Vec<Shown<String>>) {
        let mut state = self.state.lock();
        for (begin, end, offset, length, outcome) in reads {
            let known = Outcome::ALL.into_iter().find(|known| known.name() == outcome);
            let outcome = known.unwrap_or(Outcome::Hit);
            state.push(self.max, Read { begin, end, offset, length, outcome });
        }
    }

    /// The reads, about in the order of their ends.
    fn all(&self) -> Vec<Shown<&'static str>> {
        let shown = |read: &Read| (read.begin, read.end, read.offset, read.length, read.outcome.name());
        self.state.lock().reads.iter().map(shown).collect()
    }
}

impl Reads {
    /// Remembers a read through `handle` that this thread began at `begin` and ends now.
    pub(crate) fn end(
        &self,
        py: Python<'_>,
        handle: &Handle,
        begin: f64,
        offset: u64,
        length: usize,
    ) -> PyResult<()> {
        let end = now();
        let outcome =
            if end - begin >= SLOW_S && waited() { self.outcome(py, handle, begin)? } else { Outcome::Hit };
        self.state.lock().push(self.max, Read { begin, end, offset, length: length as u64, outcome });
        Ok(())
    }

    /// The outcome of a slow read that ends now, by the counters of the file since it began. Reads
    /// at the same time have the worst of their outcomes.
    fn outcome(&self, py: Python<'_>, handle: &Handle, begin: f64) -> PyResult<Outcome> {
        let sample = Sample::of(py, handle)?;
        let mut state = self.state.lock();
        let earlier = state.samples.iter().rev().find(|sample| sample.at <= begin);
        let outcome = match earlier.or_else(|| state.samples.front()) {
            Some(earlier) if sample.misses > earlier.misses => Outcome::Miss,
            Some(earlier) if sample.late > earlier.late => Outcome::Late,
            _ => Outcome::Hit,
        };
        if state.samples.len() == SAMPLES {
            state.samples.pop_front();
        }
        state.samples.push_back(sample);
        Ok(outcome)
    }
}

impl State {
    fn push(&mut self, max: usize, read: Read) {
        if self.reads.len() >= max {
            self.reads.pop_front();
        }
        self.reads.push_back(read);
    }
}

impl Sample {
    fn of(py: Python<'_>, handle: &Handle) -> PyResult<Self> {
        let file = handle.file()?;
        let stats = py.detach(|| file.stats());
        Ok(Self { at: now(), late: stats.late, misses: stats.misses })
    }
}

/// Seconds of `time.monotonic`.
pub(crate) fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
