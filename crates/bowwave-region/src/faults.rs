//! The last page faults of a region, for pictures of how its memory was read.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bowwave_core::named_enum;
use bowwave_engine::Stats;
use bowwave_engine::sync::Mutex;

/// A page fault that was served, or a range that was populated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When its handler began to serve it, or `populate` to fetch it. Time in the queue before does
    /// not count.
    pub begun: Instant,
    /// When its pages were mapped.
    pub ended: Instant,
    /// File offsets in bytes: from the page to the end of the range that was mapped with it.
    pub bytes: Range<u64>,
    /// What it waited for.
    pub outcome: FaultOutcome,
}

named_enum! {
    /// What a page fault waited for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FaultOutcome {
        /// Nothing: its page was cached.
        Hit = "hit",
        /// A fill in flight.
        Late = "late",
        /// The store.
        Miss = "miss",
    }
}

/// The last faults, if they are remembered.
#[derive(Debug)]
pub(crate) struct Faults {
    capacity: usize,
    last: Mutex<VecDeque<Fault>>,
}

impl Faults {
    /// Remembers the last `capacity` faults.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, last: Mutex::default() }
    }

    /// The time, if faults are remembered.
    pub(crate) fn now(&self) -> Option<Instant> {
        (self.capacity > 0).then(Instant::now)
    }

    /// Remembers a fault that ends now.
    pub(crate) fn note(&self, begun: Option<Instant>, bytes: Range<u64>, outcome: FaultOutcome) {
        let Some(begun) = begun else { return };
        let mut last = self.last.lock();
        if last.len() == self.capacity {
            last.pop_front();
        }
        last.push_back(Fault { begun, ended: Instant::now(), bytes, outcome });
    }

    /// The remembered faults, in the order in which they ended.
    pub(crate) fn last(&self) -> Vec<Fault> {
        self.last.lock().iter().cloned().collect()
    }
}

impl FaultOutcome {
    /// Derives the outcome from the counters of the file before and after the fault. Concurrent
    /// faults and reads of the file have the worst of their outcomes.
    pub(crate) fn between(before: &Stats, after: &Stats) -> Self {
        if after.misses > before.misses {
            Self::Miss
        } else if after.late > before.late {
            Self::Late
        } else {
            Self::Hit
        }
    }
}
