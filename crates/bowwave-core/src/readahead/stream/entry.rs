//! One stream of a file, and whether an access continues it.
//!
//! ```text
//!                lo          hi                edge
//!   Up     ......|===========|-----------------|......   read upward from lo, read ahead to edge
//!   Down   ......|-----------|=================|......   read downward from hi, read ahead to edge
//!               edge         lo                hi
//! ```
//!
//! A stream covers one contiguous range of requested pages. Reads out of order begin streams of
//! their own, which merge when the gap between them closes. So a reader whose requests arrive
//! reordered is one stream again a moment later. A read that skips pages continues a stream if it
//! skips at most 64, and at most a third of the pages used.

use super::blocks::Blocks;
use super::pace::Pace;
use super::tuning::tuning;
use crate::page::PageIndex;
use crate::readahead::View;

/// The direction of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    /// One run so far: the direction is unknown.
    #[default]
    New,
    Up,
    Down,
    /// Blocks at equal distances, upward or downward. `lo` is the start of the last block reached;
    /// `edge` is the start of the first block not read ahead.
    Stride(Blocks),
    /// Read ahead where a jump was predicted; not reached yet.
    Expected,
}

/// One stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) direction: Direction,
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// End of the readahead; downward, its lowest page.
    pub(super) edge: u64,
    /// Pages of the last window; 0 if there was none.
    pub(super) window: u64,
    /// Pages to keep in flight or cached ahead of the reader.
    pub(super) distance: u64,
    /// Pages used by its readers, as far as the stream can tell.
    pub(super) consumed: u64,
    /// The first mark ahead, and the distance between marks; 0 if there is one mark.
    pub(super) mark: Option<u64>,
    pub(super) mark_every: u64,
    /// A mark that requests nothing: its fault shows that the reader of a mapping came so far.
    pub(super) tripwire: Option<u64>,
    /// Consecutive downward reads, or strided blocks that came as predicted.
    pub(super) proven: u8,
    /// Pages of its first request.
    pub(super) request: u64,
    /// Start of the last read that skipped pages, and its distance from the previous such start.
    pub(super) piece: u64,
    pub(super) apart: i64,
    /// A reader returned to it after reads elsewhere.
    pub(super) returned: bool,
    /// The last stream that its reader used.
    pub(super) current: bool,
    /// How fast it is read.
    pub(super) pace: Pace,
    /// Predicted length in pages, at its start; 0 without a prediction.
    pub(super) expected: u64,
    /// The stride was disproved: sequential streams began at its blocks, or its reader used less
    /// than half of a block.
    pub(super) over: bool,
    /// Its reader waited for its readahead, or overtook it.
    pub(super) waited: bool,
}

/// How an access continues a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Up,
    Down,
    /// Within the last block reached, or at a later block or the pages around it.
    Stride,
    /// Directly after a strided block: a sequential stream began there.
    Behind,
}

impl Entry {
    /// A run without a prediction.
    pub(super) fn new(lo: u64, hi: u64) -> Self {
        Self { lo, hi, edge: hi, consumed: hi - lo, request: hi - lo, piece: lo, ..Self::default() }
    }

    /// Whether it still has a reader, as far as the stream can tell.
    pub(super) fn is_read(&self) -> bool {
        self.returned || self.current
    }

    /// Records hits: the reader of an upward stream has reached `hi`.
    pub(super) fn come_to(&mut self, hi: u64) {
        self.consumed = self.consumed.saturating_add(hi.saturating_sub(self.hi));
        self.hi = self.hi.max(hi);
    }

    /// Records that the reader of a strided stream came to a later block as predicted.
    pub(super) fn advance_by(&mut self, steps: i64) {
        let Direction::Stride(mut blocks) = self.direction else { return };
        self.proven = self.proven.saturating_add(steps.clamp(0, 255) as u8);
        self.consumed = self.consumed.saturating_add(blocks.pages.saturating_mul(steps.unsigned_abs()));
        self.lo = blocks.advance(self.lo, steps);
        self.direction = Direction::Stride(blocks);
    }

    /// Records hits: the reader of a strided stream came to the last block whose first page was
    /// used.
    pub(super) fn advance_to_last_used(&mut self, view: &View<'_>) {
        let Direction::Stride(blocks) = self.direction else { return };
        let ahead = blocks.steps_to(self.lo, self.edge).0;
        let is_used = |&steps: &i64| view.is_used(PageIndex(blocks.start(self.lo, steps)));
        if let Some(steps) = (1..ahead).rev().find(is_used) {
            self.advance_by(steps);
        }
    }

    /// Where readahead of a run without a prediction ends. `usual` is the usual length of runs;
    /// until the run exceeds it, the run is read ahead only slightly beyond.
    pub(super) fn usual_end(&self, usual: u64) -> u64 {
        let end = self.lo.saturating_add(usual).saturating_add(usual / tuning().usual_spare);
        if self.expected > 0 || self.lo == 0 || self.hi >= end { u64::MAX } else { end }
    }

    /// Whether a page was read ahead for this upward stream, and its readers have not reached it.
    pub(super) fn has_ahead(&self, page: u64) -> bool {
        matches!(self.direction, Direction::New | Direction::Up) && (self.hi..self.edge).contains(&page)
    }

    /// Whether the readers of a sequential stream have come further than this page.
    pub(super) fn is_past(&self, page: u64) -> bool {
        match self.direction {
            Direction::New | Direction::Up => page < self.hi,
            Direction::Down => self.lo <= page,
            Direction::Stride(_) | Direction::Expected => false,
        }
    }

    /// Pages read ahead that its readers have not reached.
    pub(super) fn ahead(&self) -> u64 {
        match self.direction {
            Direction::New | Direction::Up | Direction::Expected => self.edge.saturating_sub(self.hi),
            Direction::Down => self.lo.saturating_sub(self.edge),
            Direction::Stride(blocks) => {
                let ahead = blocks.steps_to(self.lo, self.edge).0.max(1).unsigned_abs() - 1;
                ahead.saturating_mul(blocks.pages)
            }
        }
    }

    /// The next mark that the reader reaches, if that is known.
    pub(super) fn next_mark(&self) -> Option<u64> {
        let mark = self.mark?;
        if self.mark_every == 0
            || mark >= self.hi
            || !matches!(self.direction, Direction::New | Direction::Up)
        {
            return Some(mark);
        }
        Some(self.hi.saturating_add((self.mark_every - (self.hi - mark) % self.mark_every) % self.mark_every))
    }

    /// A page was evicted before its reader came to it.
    pub(super) fn thrashed(&mut self) {
        self.pace.thrashed(self.ahead().max(self.window.saturating_mul(2)));
    }

    /// A fill of the pages `lo..hi` failed, so the readahead ends before them. Without this, they
    /// would appear evicted before they were read. A reader whose request failed reads it again.
    pub(super) fn failed(&mut self, lo: u64, hi: u64) {
        if self.mark.is_some_and(|mark| (lo..hi).contains(&mark)) {
            self.mark = None;
        }
        match self.direction {
            Direction::New | Direction::Up | Direction::Expected if hi >= self.hi => {
                let again = self.hi.saturating_sub(lo.max(self.lo));
                (self.hi, self.consumed) = (self.hi - again, self.consumed.saturating_sub(again));
                self.edge = self.edge.min(lo.max(self.hi));
            }
            Direction::Down if lo < self.lo => self.edge = self.edge.max(hi.min(self.lo)),
            // A strided reader misses in the failed block; the blocks beyond it stay.
            _ => {}
        }
    }

    /// Whether no page of an upward stream was read.
    pub(super) fn is_unread(&self) -> bool {
        self.lo == self.hi && matches!(self.direction, Direction::New | Direction::Up)
    }

    /// Pages that a reader of this stream may skip.
    pub(super) fn slack(&self) -> u64 {
        (self.consumed / tuning().slack_share).min(tuning().nearby)
    }

    /// How a miss of the pages `lo..hi` continues this stream, if it does.
    pub(super) fn join(&self, lo: u64, hi: u64) -> Option<Join> {
        let up = lo >= self.hi && lo <= self.edge.saturating_add(self.slack());
        let down = |edge: u64| lo < self.lo && hi >= edge.saturating_sub(self.slack()) && hi <= self.hi;
        match self.direction {
            Direction::New if up => Some(Join::Up),
            Direction::New if down(self.lo) => Some(Join::Down),
            Direction::Up | Direction::Expected if up => Some(Join::Up),
            Direction::Down if down(self.edge) => Some(Join::Down),
            Direction::Stride(blocks) => {
                let (steps, within) = blocks.steps_to(self.lo, lo);
                let read = (self.consumed / blocks.pages.max(1)).cast_signed();
                if within == blocks.pages && (-read..=0).contains(&steps) {
                    return Some(Join::Behind);
                }
                if self.over {
                    return None;
                }
                // Until the first correct prediction, the block is also a run of its own in the
                // table.
                let least = i64::from(self.proven == 0);
                let known = |steps| (least..=blocks.steps_to(self.lo, self.edge).0 + 1).contains(&steps);
                let beside = || blocks.beside(self.lo, lo).is_some_and(|steps| steps > 0 && known(steps));
                let close = || self.proven > 0 && (within == blocks.pages && known(steps) || beside());
                (within < blocks.pages && known(steps) || close()).then_some(Join::Stride)
            }
            _ => None,
        }
    }

    /// Whether a page that continues the stream was read ahead for it. If it was used since, and
    /// evicted, its miss is a second read, not a continuation.
    pub(super) fn has_read_ahead(&self, page: u64, join: Join) -> bool {
        match join {
            Join::Up => page < self.edge,
            Join::Down => self.direction == Direction::Down && self.edge <= page,
            Join::Stride | Join::Behind => false,
        }
    }

    /// Whether a mark at `page` may be of this stream.
    pub(super) fn covers(&self, page: u64) -> bool {
        match self.direction {
            Direction::New | Direction::Up | Direction::Expected => {
                (self.lo..self.edge).contains(&page) && self.window > 0
            }
            Direction::Down => (self.edge..self.hi).contains(&page),
            Direction::Stride(blocks) => {
                let (steps, within) = blocks.steps_to(self.lo, page);
                (0..blocks.steps_to(self.lo, self.edge).0).contains(&steps) && within < blocks.pages
            }
        }
    }

    /// Distance of `page` from the page expected next.
    pub(super) fn distance_to(&self, page: u64) -> u64 {
        let expected = match self.direction {
            Direction::Down => self.edge,
            _ => self.edge.max(self.hi),
        };
        expected.abs_diff(page)
    }

    /// Range outside which no page belongs to this stream.
    pub(super) fn zone(&self) -> (u64, u64) {
        let reach = match self.direction {
            Direction::Stride(blocks) => {
                let steps = (self.consumed / blocks.pages.max(1)).saturating_add(2);
                steps.saturating_mul(blocks.distance().0)
            }
            _ => self.slack(),
        };
        let lowest = self.lo.min(self.edge).min(self.hi);
        let highest = self.lo.max(self.edge).max(self.hi);
        (lowest.saturating_sub(reach), highest.saturating_add(reach))
    }
}
