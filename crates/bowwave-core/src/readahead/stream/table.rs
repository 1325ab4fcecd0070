//! The streams of a file, and to which of them an access belongs.
//!
//! ```text
//!                lo          hi                edge
//!   Up     ......|===========|-----------------|......       read upward from lo, read ahead to edge
//!   Down   ......|-----------|=================|......       read downward from hi, read ahead to edge
//!               edge         lo                hi
//! ```
//!
//! A stream knows the pages that its readers have asked for in one piece. Reads out of order begin streams of their own,
//! which join when the gap between them closes; so a reader whose requests arrive in another order than it made them is
//! one stream again a moment later. Sparse reads go on with a stream as long as they leave out no more than a third of
//! what was read.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::pace::Pace;

/// Most pages between two reads of one stream.
const SLACK_MAX: u64 = 64;
/// For each stream of the table, so many that are remembered only by the page that they are expected at.
const PARKED: usize = 2;

/// How a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One run so far: nothing to tell by.
    New,
    Up,
    Down,
    /// `block` pages each `step` pages, up or down. `lo` is where the block that was reached last begins, and `edge`
    /// where the first one begins that is not read ahead.
    Stride {
        step: i64,
        block: u64,
    },
    /// Read ahead where a jump was expected: nobody has come so far.
    Expected,
}

/// One stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) way: Way,
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// How far it is read ahead: the end, or, downward, the lowest page.
    pub(super) edge: u64,
    /// Pages of the last window; 0 if there was none.
    pub(super) window: u64,
    /// Pages that there should be ahead of the reader.
    pub(super) distance: u64,
    /// Pages that its readers have used, as far as it knows.
    pub(super) consumed: u64,
    /// The first mark that was set ahead, and how far apart the others are; 0 if there are none.
    pub(super) mark: Option<u64>,
    pub(super) mark_every: u64,
    /// Downward reads in a row, or strides that came as foretold.
    pub(super) proven: u8,
    /// Where the last read that left something out began, and how far behind the one before.
    pub(super) piece: u64,
    pub(super) apart: i64,
    /// Its reader came back after others had read.
    pub(super) returned: bool,
    /// When it was looked at last ([`Pace::look`]), and how fast it goes.
    pub(super) pace: Pace,
    /// Pages that it was expected to have when it began; 0 if nothing was.
    pub(super) expected: u64,
    /// It was no stride after all.
    pub(super) over: bool,
    /// Its reader has waited for what was read ahead, or overtaken it.
    pub(super) waited: bool,
    pub(super) used: u64,
}

/// How an access goes on with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Up,
    Down,
    /// Within the block that was reached last, or at a later one.
    Stride,
    /// Behind a block of a stride: that was where another stream began.
    Behind,
}

/// The streams of a file, and those that had to go, by the page that they are expected at: their mark, or where they
/// end.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    max: usize,
    clock: u64,
    parked: BTreeMap<u64, Entry>,
    /// These pages in the order in which they were parked; some may be gone.
    order: VecDeque<u64>,
}

impl Entry {
    /// A run that nothing is known about.
    pub(super) fn new(lo: u64, hi: u64) -> Self {
        Self {
            way: Way::New,
            lo,
            hi,
            edge: hi,
            window: 0,
            distance: 0,
            consumed: hi - lo,
            mark: None,
            mark_every: 0,
            proven: 0,
            piece: lo,
            apart: 0,
            returned: false,
            pace: Pace::default(),
            expected: 0,
            over: false,
            waited: false,
            used: 0,
        }
    }

    /// Pages read ahead that its readers have not come to.
    pub(super) fn ahead(&self) -> u64 {
        match self.way {
            Way::New | Way::Up | Way::Expected => self.edge.saturating_sub(self.hi),
            Way::Down => self.lo.saturating_sub(self.edge),
            Way::Stride { step, block } => {
                let blocks = self.steps_to(self.edge, step).0.max(1).unsigned_abs() - 1;
                blocks.saturating_mul(block)
            }
        }
    }

    /// The mark that the reader comes to next, as far as it is known where that is.
    fn next_mark(&self) -> Option<u64> {
        let mark = self.mark?;
        if self.mark_every == 0 || mark >= self.hi || !matches!(self.way, Way::New | Way::Up) {
            return Some(mark);
        }
        Some(self.hi.saturating_add((self.mark_every - (self.hi - mark) % self.mark_every) % self.mark_every))
    }

    /// Strides from the block reached last to that of `page`, and how far behind its begin that is. More than 2^63 pages
    /// apart it is nonsense, and harmless.
    pub(super) fn steps_to(&self, page: u64, step: i64) -> (i64, u64) {
        let past = page.wrapping_sub(self.lo).cast_signed();
        // A step is longer than its block, so never −1, and there is always a quotient.
        (past.div_euclid(step), past.rem_euclid(step).unsigned_abs())
    }

    /// Pages that a reader of this stream may leave out.
    fn slack(&self) -> u64 {
        (self.consumed / 3).min(SLACK_MAX)
    }

    /// How a miss of the pages `lo..hi` goes on with this stream, if it does.
    pub(super) fn join(&self, lo: u64, hi: u64) -> Option<Join> {
        let up = lo >= self.hi && lo <= self.edge.saturating_add(self.slack());
        let down = |edge: u64| lo < self.lo && hi >= edge.saturating_sub(self.slack()) && hi <= self.hi;
        match self.way {
            Way::New if up => Some(Join::Up),
            Way::New if down(self.lo) => Some(Join::Down),
            Way::Up | Way::Expected if up => Some(Join::Up),
            Way::Down if down(self.edge) => Some(Join::Down),
            Way::Stride { step, block } => {
                let (steps, within) = self.steps_to(lo, step);
                let blocks = (self.consumed / block.max(1)).cast_signed();
                if within == block && (-blocks..=0).contains(&steps) {
                    return Some(Join::Behind);
                }
                if self.over {
                    return None;
                }
                ((0..=self.steps_to(self.edge, step).0 + 1).contains(&steps) && within < block)
                    .then_some(Join::Stride)
            }
            _ => None,
        }
    }

    /// Whether a mark at `page` may be of this stream.
    fn covers(&self, page: u64) -> bool {
        match self.way {
            Way::New | Way::Up | Way::Expected => (self.lo..self.edge).contains(&page) && self.window > 0,
            Way::Down => (self.edge..self.hi).contains(&page),
            Way::Stride { step, block } => {
                let (steps, within) = self.steps_to(page, step);
                (0..self.steps_to(self.edge, step).0).contains(&steps) && within < block
            }
        }
    }

    /// How far `page` is from where this stream was expected to go on.
    fn distance_to(&self, page: u64) -> u64 {
        let expected = match self.way {
            Way::Down => self.edge,
            _ => self.edge.max(self.hi),
        };
        expected.abs_diff(page)
    }
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: Vec::new(), max, clock: 0, parked: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }

    /// Counts a use.
    pub(super) fn touch(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        entry.returned |= entry.used != self.clock;
        self.clock += 1;
        entry.used = self.clock;
    }

    /// The stream used last.
    pub(super) fn last(&mut self) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.used == self.clock)
    }

    /// The stream that a miss of `lo..hi` goes on with, and how.
    pub(super) fn joined(&self, lo: u64, hi: u64) -> Option<(usize, Join)> {
        let joins = self.entries.iter().enumerate();
        let joins = joins.filter_map(|(at, entry)| Some((at, entry.join(lo, hi)?)));
        joins.min_by_key(|&(at, join)| {
            let entry = &self.entries[at];
            (
                join == Join::Behind,
                join == Join::Down && entry.way == Way::New,
                entry.distance_to(lo),
                u64::MAX - entry.used,
            )
        })
    }

    /// The stream that pages `lo..hi` were read ahead for.
    pub(super) fn filled(&mut self, lo: u64, hi: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.window > 0 && (entry.covers(lo) || entry.covers(hi - 1)))
    }

    /// The stream that a mark at `page` is of: one in the table, or one that only its mark remembers.
    pub(super) fn marked(&mut self, page: u64) -> Option<usize> {
        let exact = self.entries.iter().position(|entry| entry.mark == Some(page));
        if let Some(at) = exact.or_else(|| self.entries.iter().position(|entry| entry.covers(page))) {
            return Some(at);
        }
        self.unpark(page)
    }

    /// Brings back a stream that is expected at `page`.
    pub(super) fn unpark(&mut self, page: u64) -> Option<usize> {
        let parked = self.parked.remove(&page)?;
        Some(self.insert(Entry { returned: true, ..parked }).0)
    }

    /// Whether a stream other than that at `at` has come to somewhere in `lo..hi`.
    pub(super) fn any_up_to(&self, at: usize, lo: u64, hi: u64) -> bool {
        let mut others = self.entries.iter().enumerate().filter(|&(other, _)| other != at);
        others.any(|(_, entry)| (lo..hi).contains(&entry.hi))
    }

    /// The place of the stream that begins or began at `lo`.
    pub(super) fn begun_at(&self, lo: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.lo == lo)
    }

    /// Enters a stream, in place of the one used least recently if there are too many, which is returned.
    pub(super) fn insert(&mut self, entry: Entry) -> (usize, Option<Entry>) {
        self.clock += 1;
        let entry = Entry { used: self.clock, ..entry };
        if self.entries.len() < self.max {
            self.entries.push(entry);
            return (self.entries.len() - 1, None);
        }
        let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
        let at = oldest.map_or(0, |(at, _)| at);
        let gone = core::mem::replace(&mut self.entries[at], entry);
        self.park(gone);
        (at, Some(gone))
    }

    /// Pages ahead of the streams that are still read, as far as one can tell: the last one, and those that were come back
    /// to. Of each no more than `most`.
    pub(super) fn ahead(&self, most: u64) -> u64 {
        let read = |entry: &&Entry| entry.returned || entry.used == self.clock;
        self.entries
            .iter()
            .chain(self.parked.values())
            .filter(read)
            .map(|entry| entry.ahead().min(most))
            .sum()
    }

    /// Forgets a stream. The last one takes its place.
    pub(super) fn remove(&mut self, at: usize) -> Entry {
        self.entries.swap_remove(at)
    }

    /// Joins the stream at `at` with those that begin where it has come to; its place now.
    pub(super) fn close_gaps(&mut self, at: usize) -> usize {
        let mut at = at;
        while let Some(next) = self.touching(at) {
            let other = self.remove(next);
            if at == self.entries.len() {
                at = next;
            }
            let entry = &mut self.entries[at];
            if entry.way == Way::Down {
                entry.lo = other.lo;
                entry.edge = entry.edge.min(other.lo);
            } else {
                entry.hi = other.hi;
                if other.edge > entry.edge {
                    (entry.edge, entry.mark) = (other.edge, other.mark.or(entry.mark));
                }
            }
            entry.consumed = entry.consumed.saturating_add(other.consumed);
            entry.window = entry.window.max(other.window);
            entry.distance = entry.distance.max(other.distance);
        }
        at
    }

    /// A run that the stream at `at` has come up to.
    fn touching(&self, at: usize) -> Option<usize> {
        let entry = &self.entries[at];
        let upward = |other: &Entry| {
            matches!(other.way, Way::New | Way::Up) && other.lo <= entry.hi && entry.hi < other.hi
        };
        let downward = |other: &Entry| {
            other.way == Way::New && other.hi >= entry.lo && entry.lo > other.lo && other.window == 0
        };
        let meets = |other: &Entry| match entry.way {
            Way::Up => upward(other),
            Way::Down => downward(other),
            _ => false,
        };
        (0..self.entries.len()).find(|&other| other != at && meets(&self.entries[other]))
    }

    fn park(&mut self, entry: Entry) {
        let upward = matches!(entry.way, Way::New | Way::Up);
        let expected = if entry.ahead() > 0 { entry.next_mark() } else { upward.then_some(entry.hi) };
        let Some(page) = expected else { return };
        if self.order.len() >= self.max * PARKED
            && let Some(oldest) = self.order.pop_front()
        {
            self.parked.remove(&oldest);
        }
        self.order.push_back(page);
        self.parked.insert(page, entry);
    }
}
