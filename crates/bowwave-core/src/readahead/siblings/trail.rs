//! The reads of one file, in their order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::pages::PageSet;

/// The reads of a file.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) file: u64,
    pub(super) size: u64,
    /// Pages that were read, in the order of their first reads. Reads in order are one run.
    pub(super) runs: Vec<Range<u64>>,
    /// Index of each run, by its first page.
    pub(super) at: BTreeMap<u64, usize>,
    /// Runs in the order of another file.
    pub(super) alike: usize,
    pub(super) read: PageSet,
    /// Pages that were read in earlier opens, which a cache above this one may have.
    pub(super) had: PageSet,
    /// How many of them were read again.
    pub(super) again: u64,
    /// Pages that were fetched and not read yet.
    pub(super) unread: PageSet,
    /// The file whose runs were fetched last of this one. `None` without one.
    pub(super) like: Option<Like>,
    /// The file whose runs are expected, and indices of the first one and the one after the last.
    pub(super) expected: Option<(u64, usize, usize)>,
    /// Runs in the order of others; half of them after each exception.
    pub(super) same: u32,
    /// Whether the last run was in the order of another file.
    pub(super) is_alike: bool,
    /// Whether the last pages were fetched before they were read, or the next ones are now.
    pub(super) is_fetched: bool,
    pub(super) used: u64,
    pub(super) is_open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Like {
    pub(super) trail: u64,
    /// The index before which its runs were fetched.
    pub(super) fetched: usize,
}

impl Trail {
    pub(super) fn new(file: u64, size: u64) -> Self {
        Self {
            file,
            size,
            runs: Vec::new(),
            at: BTreeMap::new(),
            alike: 0,
            read: PageSet::default(),
            had: PageSet::default(),
            again: 0,
            unread: PageSet::default(),
            like: None,
            expected: None,
            same: 0,
            is_alike: false,
            is_fetched: false,
            used: 0,
            is_open: false,
        }
    }

    /// Whether these pages continue one of the last runs, which then has them, too.
    pub(super) fn goes_on(&mut self, pages: &Range<u64>) -> bool {
        let last = self.runs.iter_mut().rev().take(READERS);
        let run = last.into_iter().find(|run| (run.start + 1..=run.end).contains(&pages.start));
        run.map(|run| run.end = run.end.max(pages.end)).is_some()
    }

    /// Whether most of its runs, after the first one, were in the order of other files.
    pub(super) fn predicts(&self) -> bool {
        self.alike > 0 && (self.alike + 1) * 2 > self.runs.len()
    }
}

/// Readers of a file whose reads in order are told apart.
const READERS: usize = 4;
