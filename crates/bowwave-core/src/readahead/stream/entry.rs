//! One stream of a file, and whether an access goes on with it.
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

use super::pace::Pace;
use super::tuning::tuning;

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
    /// A mark that asks for nothing: it tells that the reader of a mapping has come so far.
    pub(super) tripwire: Option<u64>,
    /// Downward reads in a row, or strides that came as foretold.
    pub(super) proven: u8,
    /// Pages of its first request.
    pub(super) request: u64,
    /// Where the last read that left something out began, and how far behind the one before.
    pub(super) piece: u64,
    pub(super) apart: i64,
    /// Its reader came back after others had read.
    pub(super) returned: bool,
    /// It is what its reader used last.
    pub(super) current: bool,
    /// When it was looked at last ([`Pace::look`]), and how fast it goes.
    pub(super) pace: Pace,
    /// Pages that it was expected to have when it began; 0 if nothing was.
    pub(super) expected: u64,
    /// It was no stride after all.
    pub(super) over: bool,
    /// Its reader has waited for what was read ahead, or overtaken it.
    pub(super) waited: bool,
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
            tripwire: None,
            proven: 0,
            request: hi - lo,
            piece: lo,
            apart: 0,
            returned: false,
            current: false,
            pace: Pace::default(),
            expected: 0,
            over: false,
            waited: false,
        }
    }

    /// Whether somebody still reads it, as far as one can tell.
    pub(super) fn is_read(&self) -> bool {
        self.returned || self.current
    }

    /// Its reader, who goes upward, has come to `hi` without asking.
    pub(super) fn come_to(&mut self, hi: u64) {
        self.consumed = self.consumed.saturating_add(hi.saturating_sub(self.hi));
        self.hi = self.hi.max(hi);
    }

    /// The page up to which it should be read ahead if it is not foretold to be as long as the runs before, of which most have `usual`
    /// pages: until it has come so far it may be like them, or little longer.
    pub(super) fn usual_end(&self, usual: u64) -> u64 {
        let end = self.lo.saturating_add(usual).saturating_add(usual / tuning().usual_spare);
        if self.expected > 0 || self.lo == 0 || self.hi >= end { u64::MAX } else { end }
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
    pub(super) fn next_mark(&self) -> Option<u64> {
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

    /// A page was evicted before its reader came to it.
    pub(super) fn thrashed(&mut self) {
        self.pace.thrashed(self.ahead().max(self.window.saturating_mul(2)));
    }

    /// Pages that a reader of this stream may leave out.
    pub(super) fn slack(&self) -> u64 {
        (self.consumed / tuning().slack_share).min(tuning().slack_max)
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
                // As long as it was not foretold right once, its block is a run like any other, which is in the table, too.
                let least = i64::from(self.proven == 0);
                ((least..=self.steps_to(self.edge, step).0 + 1).contains(&steps) && within < block)
                    .then_some(Join::Stride)
            }
            _ => None,
        }
    }

    /// Whether a mark at `page` may be of this stream.
    pub(super) fn covers(&self, page: u64) -> bool {
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
    pub(super) fn distance_to(&self, page: u64) -> u64 {
        let expected = match self.way {
            Way::Down => self.edge,
            _ => self.edge.max(self.hi),
        };
        expected.abs_diff(page)
    }

    /// Where this stream has been, is read ahead, and may go on: nothing outside of it is of this stream.
    pub(super) fn zone(&self) -> (u64, u64) {
        let reach = match self.way {
            Way::Stride { step, block } => {
                let steps = (self.consumed / block.max(1)).saturating_add(2);
                steps.saturating_mul(step.unsigned_abs())
            }
            _ => self.slack(),
        };
        let lowest = self.lo.min(self.edge).min(self.hi);
        let highest = self.lo.max(self.edge).max(self.hi);
        (lowest.saturating_sub(reach), highest.saturating_add(reach))
    }
}
