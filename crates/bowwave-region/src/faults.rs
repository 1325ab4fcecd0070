//! The last page faults of a region, for pictures of how its memory was read.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bowwave_engine::Stats;

use crate::sync::{Mutex, PoisonError};

/// A page fault that was served, or a range that was populated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it was reported.
    pub begun: Instant,
    /// When its pages were mapped.
    pub ended: Instant,
    /// From the page to the end of what was mapped with it, as offsets in the file in bytes.
    pub bytes: Range<u64>,
    /// What it waited for.
    pub outcome: FaultOutcome,
}

/// What a page fault waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// Nothing: its page was cached.
    Hit,
    /// A fill in flight.
    Late,
    /// The store.
    Miss,
}

/// The last faults, if they are remembered.
#[derive(Debug)]
pub(crate) struct Faults {
    most: usize,
    last: Mutex<VecDeque<Fault>>,
}

impl Faults {
    /// Remembers the last `most` faults.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, last: Mutex::default() }
    }

    /// The time, if faults are remembered.
    pub(crate) fn now(&self) -> Option<Instant> {
        (self.most > 0).then(Instant::now)
    }

    /// Remembers a fault that ends now.
    pub(crate) fn note(&self, begun: Option<Instant>, bytes: Range<u64>, outcome: FaultOutcome) {
        let Some(begun) = begun else { return };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == self.most {
            last.pop_front();
        }
        last.push_back(Fault { begun, ended: Instant::now(), bytes, outcome });
    }

    /// The remembered faults, in the order in which they ended.
    pub(crate) fn last(&self) -> Vec<Fault> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl FaultOutcome {
    /// By the counters of the file before and after. Faults at the same time have the worst of
    /// their outcomes.
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
