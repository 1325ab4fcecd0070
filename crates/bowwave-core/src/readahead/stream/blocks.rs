//! The blocks of a strided stream: at equal distances, which need not be whole pages.
//!
//! In a table with rows of 320 000 bytes, a field begins 78 pages after the same field of the row
//! before, and every eighth time 79 pages. So the distance is kept in 1024ths of a page. Three
//! blocks at equal distances show whole pages. Four in a row whose distances differ by a page show
//! a fraction. A block that begins one page before or after its predicted page corrects it.

use super::entry::{Direction, Entry};
use super::{Detector, Stream, Wanted};
use crate::readahead::stride::PARTS_LOG;
use crate::readahead::{Candidate, Plan, Verdict, View};

/// Parts of a page.
const PARTS: i64 = 1 << PARTS_LOG;
/// After a correction, a block is assumed this many parts from the boundary of two pages. Larger:
/// more blocks near the boundary are predicted a page off. Smaller: a small error of the distance
/// moves a block across it.
const MARGIN: i64 = 16;

/// Blocks at equal distances. Methods take `lo`, the first page of the last block reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Pages of a block; fewer than its distance from the next.
    pub(super) pages: u64,
    /// Parts of a page from block to block; negative downward.
    step: i64,
    /// Parts of a page by which the last block reached begins after `lo`.
    phase: i64,
    /// First page of an earlier block, the parts by which it begins after that page, and the steps
    /// from there to `lo`.
    origin: u64,
    origin_phase: i64,
    steps: i64,
    /// Wrong predictions so far.
    wrong: u32,
}

impl Blocks {
    /// Blocks of `pages` pages. Three began `step` pages apart, the last of them at `lo`.
    pub(super) fn new(lo: u64, step: i64, pages: u64) -> Self {
        let origin = lo.wrapping_sub(step.cast_unsigned().wrapping_mul(2));
        Self { pages, step: step.wrapping_mul(PARTS), phase: 0, origin, origin_phase: 0, steps: 2, wrong: 0 }
    }

    /// Blocks of `pages` pages at a distance that is no whole number of pages. The third one before
    /// the last began at `origin`.
    pub(super) fn uneven(origin: u64, lo: u64, pages: u64) -> Self {
        let (past, phase) = (lo.wrapping_sub(origin).cast_signed(), PARTS / 2);
        let step = past.wrapping_mul(PARTS).wrapping_div(3);
        Self { pages, step, phase, origin, origin_phase: phase, steps: 3, wrong: 0 }
    }

    pub(super) fn is_upward(&self) -> bool {
        self.step > 0
    }

    /// Whole pages from block to block, and the parts of a page beyond them.
    pub(super) fn distance(&self) -> (u64, u64) {
        let step = self.step.unsigned_abs();
        (step >> PARTS_LOG, step % PARTS.unsigned_abs())
    }

    /// The first page of a block, or the first or last page index if there is no such block.
    pub(super) fn start(&self, lo: u64, steps: i64) -> u64 {
        lo.saturating_add_signed(self.parts(steps) >> PARTS_LOG)
    }

    /// Parts of a page by which a block begins after its first page.
    pub(super) fn phase(&self, steps: i64) -> u64 {
        (self.parts(steps) % PARTS + PARTS).unsigned_abs() % PARTS.unsigned_abs()
    }

    /// Steps to the block that `page` belongs to or follows, and the offset of `page` in it. Wraps,
    /// harmlessly, for pages more than 2^53 apart.
    pub(super) fn steps_to(&self, lo: u64, page: u64) -> (i64, u64) {
        let past = page.wrapping_sub(lo).cast_signed();
        // A step is longer than its block, so it is never −1 and the quotient always exists.
        let steps = past.wrapping_mul(PARTS).wrapping_add(PARTS - 1 - self.phase).div_euclid(self.step);
        (steps, past.wrapping_sub(self.parts(steps) >> PARTS_LOG).unsigned_abs())
    }

    /// Steps to the block that begins a page before or after `page`.
    pub(super) fn beside(&self, lo: u64, page: u64) -> Option<i64> {
        let (steps, within) = self.steps_to(lo, page);
        if within == 1 {
            return Some(steps);
        }
        let above = steps + self.step.signum();
        (self.start(lo, above) == page.saturating_add(1)).then_some(above)
    }

    /// The reader reached a later block. Returns its first page.
    pub(super) fn advance(&mut self, lo: u64, steps: i64) -> u64 {
        let (start, phase) = (self.start(lo, steps), self.phase(steps));
        self.phase = phase.cast_signed();
        self.steps = self.steps.saturating_add(steps);
        start
    }

    /// The blocks of the next column, at the same distance. `page` directly follows one of these
    /// blocks, and is the first page of the last block reached.
    pub(super) fn moved(mut self, lo: u64, page: u64) -> Self {
        let (steps, within) = self.steps_to(lo, page);
        self.advance(lo, steps);
        Self { origin: self.origin.wrapping_add(within), ..self }
    }

    /// The block predicted at `lo` begins at `start`, the page before or after. Its position is
    /// then known almost exactly: next to the boundary of the two pages. It is set [`MARGIN`] away:
    /// blocks exactly at the boundary would be predicted a page off each time. The distance is
    /// measured between such blocks, from the origin to this one. The first, second, fourth, eighth
    /// and so on wrong block becomes the new origin.
    pub(super) fn correct(&mut self, lo: u64, start: u64) {
        self.phase = if start > lo { MARGIN } else { PARTS - 1 - MARGIN };
        let past = start.wrapping_sub(self.origin).cast_signed().wrapping_mul(PARTS);
        let step = past.wrapping_add(self.phase - self.origin_phase).wrapping_div(self.steps.max(1));
        // Left out: sums that overflowed, and distances at which blocks would overlap.
        let near = step.wrapping_sub(self.step).unsigned_abs() <= PARTS.unsigned_abs();
        let apart = step.signum() == self.step.signum() && step.unsigned_abs() >> PARTS_LOG > self.pages;
        if near && apart {
            self.step = step;
        }
        self.wrong = self.wrong.saturating_add(1);
        if self.wrong.is_power_of_two() {
            (self.origin, self.origin_phase, self.steps) = (start, self.phase, 0);
        }
    }

    /// Parts of a page from the first page of the last block reached to the start of another.
    fn parts(&self, steps: i64) -> i64 {
        self.phase.wrapping_add(self.step.wrapping_mul(steps))
    }
}

impl Stream {
    /// The stride that ends at `page`, in whole pages. If the distance is a fraction, also the
    /// start of the third run before. Call it before `page` is entered.
    pub(super) fn stride_to(&self, page: u64) -> Option<(i64, Option<u64>)> {
        match self.runs.even_to(page) {
            Some(first) => Some((page.wrapping_sub(first).cast_signed() / 3, Some(first))),
            None => self.runs.step_to(page).map(|step| (step, None)),
        }
    }

    /// Enters a strided stream: after three runs at equal distances, which a fourth must confirm,
    /// or after four at distances that differ by a page.
    pub(super) fn stride_begun(
        &mut self,
        wanted: &Wanted,
        (step, uneven): (i64, Option<u64>),
        view: &View<'_>,
    ) -> Option<Plan> {
        let before = wanted.page.wrapping_add_signed(step.wrapping_neg());
        let block = match self.table.begun_at(before) {
            Some(at) => {
                let entry = self.table.get(at);
                entry.hi.saturating_sub(entry.lo)
            }
            None => wanted.end - wanted.page,
        };
        let edge = wanted.page.checked_add_signed(step)?;
        if block >= step.unsigned_abs() || wanted.end - wanted.page > block {
            return None;
        }
        let blocks = match uneven {
            Some(first) => Blocks::uneven(first, wanted.page, block),
            None => Blocks::new(wanted.page, step, block),
        };
        // Four runs show an uneven stride, so it is confirmed once.
        let proven = u8::from(uneven.is_some());
        let direction = Direction::Stride(blocks);
        let at = self.enter(Entry { direction, edge, proven, ..Entry::new(wanted.page, wanted.end) });
        // It may still be several sequential readers of one partitioned file, which start at equal
        // distances.
        if !self.scores.trusts(Detector::Stride) {
            self.weigh(Candidate::Stride, block, None, Verdict::NotTrusted);
            return None;
        }
        Some(self.window_strided(at, wanted, view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_belongs_to_the_block_that_begins_at_or_before_it() {
        for step in [78, 3, -78, -3] {
            for drift in [0, 128, 700, -300] {
                let lo = 100_000;
                let blocks = Blocks { step: step * PARTS + drift, phase: 17, ..Blocks::new(lo, step, 2) };
                for page in lo - 1000..lo + 1000 {
                    let (steps, within) = blocks.steps_to(lo, page);
                    assert_eq!(blocks.start(lo, steps) + within, page, "{step} {drift} {page}");
                    assert!(blocks.start(lo, steps + i64::from(step > 0) * 2 - 1) > page);
                }
            }
        }
    }

    #[test]
    fn a_distance_that_is_no_whole_number_of_pages_is_learned() {
        for bytes in [320_000u64, 100_100, 16_000, 12_345, 1_300_000] {
            let begins = |row: u64| (40_000_128 + bytes * row) / 4096;
            let (mut lo, mut off) = (begins(2), 0);
            let mut blocks = Blocks::new(lo, (begins(2) - begins(1)).cast_signed(), 1);
            for row in 3..2000 {
                lo = blocks.advance(lo, 1);
                let start = begins(row);
                assert!(lo.abs_diff(start) <= 1, "{bytes} {row}");
                if lo != start {
                    assert_eq!(blocks.beside(lo, start), Some(0));
                    blocks.correct(lo, start);
                    lo = start;
                    off += u32::from(row >= 100);
                }
            }
            assert!(off < 1900 / 30, "{bytes}: {off} wrong predictions");
        }
    }

    /// Regression: corrections of a distance of two pages made it zero, so a division failed.
    #[test]
    fn corrections_keep_blocks_apart() {
        for (step, off) in [(2i64, -1i64), (2, 1), (-2, 1), (-2, -1), (3, -1), (-3, 1)] {
            let mut lo = 1 << 20;
            let mut blocks = Blocks::new(lo, step, step.unsigned_abs() - 1);
            for _ in 0..64 {
                lo = blocks.advance(lo, 1);
                let start = lo.wrapping_add_signed(off);
                blocks.correct(lo, start);
                lo = start;
                assert!(blocks.distance().0 > blocks.pages && blocks.is_upward() == (step > 0));
            }
        }
    }
}
