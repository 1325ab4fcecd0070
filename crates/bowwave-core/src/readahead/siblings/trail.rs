//! The reads of one file, in their order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::ranges::RangeSet;

/// The reads of a file.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub(super) file: u64,
    pub(super) size: u64,
    /// Runs of pages, in the order of their first reads. Reads that continue each other are one
    /// run.
    pub(super) runs: Vec<Range<u64>>,
    /// Index of each run, by its first page.
    pub(super) at: BTreeMap<u64, usize>,
    /// How many runs were in the order of another file.
    pub(super) alike: usize,
    pub(super) read: RangeSet,
    /// Pages that were read in earlier opens, which a cache above this one may have.
    pub(super) had: RangeSet,
    /// How many of them were read again.
    pub(super) again: u64,
    /// Pages that were fetched and not read yet.
    pub(super) unread: RangeSet,
    /// The trail whose runs were fetched last, and how far. `None` without one.
    pub(super) like: Option<Like>,
    /// The file whose runs are expected, and indices of the first one and the one after the last.
    pub(super) expected: Option<(u64, usize, usize)>,
    /// Grows by one with each run in order; halved by a run that another file has out of order.
    pub(super) same: u32,
    /// Whether the last run was in the order of another file.
    pub(super) is_alike: bool,
    /// See [`follows`](super::trails::SiblingTrails::follows).
    pub(super) is_fetched: bool,
    pub(super) used: u64,
    pub(super) is_open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Like {
    pub(super) trail: u64,
    /// Index of the next run to fetch.
    pub(super) fetched: usize,
}

impl Trail {
    pub(super) fn new(file: u64, size: u64) -> Self {
        Self { file, size, ..Self::default() }
    }

    /// Extends one of the last runs by these pages if they continue it. Returns whether they do.
    pub(super) fn extends_run(&mut self, pages: &Range<u64>) -> bool {
        let last = self.runs.iter_mut().rev().take(READERS);
        let run = last.into_iter().find(|run| (run.start + 1..=run.end).contains(&pages.start));
        run.map(|run| run.end = run.end.max(pages.end)).is_some()
    }

    /// Whether at least half of its runs after the first one were in the order of other files.
    pub(super) fn predicts(&self) -> bool {
        self.alike > 0 && (self.alike + 1) * 2 > self.runs.len()
    }
}

/// Runs of a file that may grow at the same time: one for each reader.
const READERS: usize = 4;
