//! A reader's plan: the ranges that it says it will go through, in order, laid end to end.
//!
//! ```text
//!   ranges as given          900..904   10..50        300..310
//!   positions                0──────────4─────────────44───────54
//!                                           ^ at            ^ edge
//!                                           the reader      read ahead up to here
//! ```
//!
//! Positions count pages of the plan, so that a plan, whatever places it leads to, is read ahead like one stream.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::page::{PageCount, PageIndex, PageRange};

/// Ranges that may wait to be used: what they take is bounded, as everything here.
pub(super) const RANGES_MAX: usize = 1 << 20;
/// Ranges that begin at different pages which are looked at for one that has a page.
const PLACES_MAX: usize = 64;
/// Ranges behind the reader that are forgotten together: it costs a pass over those that stay.
const FORGET_MIN: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ReadPlan {
    legs: Vec<Leg>,
    /// Legs by their first pages, then in order; made when it is needed.
    by_start: Vec<u32>,
    /// The end of whatever of `by_start` reaches furthest, up to each.
    reach: Vec<u64>,
    /// The leg that `at` is in, or behind the last one.
    here: usize,
    /// Where the reader was seen last.
    pub(super) at: u64,
    /// Up to where it was read ahead.
    pub(super) edge: u64,
    /// Most pages that are to be ahead of the reader.
    pub(super) distance: u64,
    /// The distance grows again when the reader has come so far.
    pub(super) grown_at: u64,
    /// The reader had to wait for what was read ahead, or has come to its end.
    pub(super) waited: bool,
    /// Misses that it does not lead to, in a row.
    pub(super) away: u32,
    /// It has its share of memory: there is something left to be read ahead.
    pub(super) shares: bool,
    /// Pages that were read ahead for it so far.
    issued: u64,
    /// Of these, pages up to the last mark that the reader has passed.
    passed: u64,
    /// Marks ahead of the reader: the position, and pages read ahead up to there.
    marks: VecDeque<(u64, u64)>,
    /// Pages read ahead since the last mark.
    pub(super) since_mark: u64,
    /// Positions that were read ahead and not looked at since, in order.
    behind: VecDeque<(u64, u64)>,
}

/// A range, and the position of its first page.
#[derive(Clone, Copy, Debug)]
struct Leg {
    start: u64,
    pages: u64,
    before: u64,
}

impl Leg {
    /// With a range that goes on where this one ends, or begins in its last page.
    fn joined(self, range: PageRange) -> Option<Self> {
        let end = self.start + self.pages;
        let joins = range.start.0 == end || range.start.0 + 1 == end;
        joins.then(|| Self { pages: self.pages.max(range.end.0 - self.start), ..self })
    }

    fn position(&self, page: u64) -> Option<u64> {
        (self.start..self.start + self.pages).contains(&page).then(|| self.before + (page - self.start))
    }
}

impl ReadPlan {
    /// One that leads nowhere so far.
    pub(super) fn new(distance: u64) -> Self {
        Self {
            legs: Vec::new(),
            by_start: Vec::new(),
            reach: Vec::new(),
            here: 0,
            at: 0,
            edge: 0,
            distance,
            grown_at: 0,
            waited: false,
            away: 0,
            shares: false,
            issued: 0,
            passed: 0,
            marks: VecDeque::new(),
            since_mark: 0,
            behind: VecDeque::new(),
        }
    }

    /// The position behind the last page.
    pub(super) fn end(&self) -> u64 {
        self.legs.last().map_or(0, |leg| leg.before + leg.pages)
    }

    /// How many ranges would be kept with these at the end.
    pub(super) fn len_with(&self, ranges: impl Iterator<Item = PageRange>) -> usize {
        let mut last = self.legs.last().copied();
        let mut len = self.legs.len();
        for range in ranges.filter(|range| range.start < range.end) {
            let joined = last.and_then(|last| last.joined(range));
            len += usize::from(joined.is_none());
            let apart = || Leg { start: range.start.0, pages: range.count().0, before: 0 };
            last = Some(joined.unwrap_or_else(apart));
        }
        len
    }

    /// Adds a range at the end. One that goes on where the last one ends is part of it, also if they share a page.
    pub(super) fn append(&mut self, range: PageRange) {
        if range.start >= range.end {
            return;
        }
        self.by_start.clear();
        let before = self.end();
        if let Some(last) = self.legs.last_mut()
            && let Some(joined) = last.joined(range)
        {
            *last = joined;
            return;
        }
        self.legs.push(Leg { start: range.start.0, pages: range.count().0, before });
    }

    /// Forgets ranges that the reader is done with.
    pub(super) fn forget_used(&mut self) {
        let kept = self.behind.front().map_or(self.at, |&(from, _)| from.min(self.at));
        let used = self.legs.partition_point(|leg| leg.before + leg.pages <= kept);
        // The end of the last one is that of the plan.
        let used = used.min(self.legs.len().saturating_sub(1));
        if used >= FORGET_MIN {
            self.legs.drain(..used);
            self.here -= used.min(self.here);
            self.by_start.clear();
        }
    }

    /// Where in the plan a page is: of several places the next one from the reader on, or else the last one behind it.
    pub(super) fn find(&mut self, page: PageIndex) -> Option<u64> {
        let PageIndex(page) = page;
        let near = self.legs.iter().skip(self.here).take(2);
        if let Some(position) = near.filter_map(|leg| leg.position(page)).next() {
            return Some(position);
        }
        self.sort();
        let Self { legs, by_start, reach, here, .. } = self;
        let leg = |place: usize| (&legs[by_start[place] as usize], by_start[place] as usize);
        let mut best: Option<(bool, u64, u64)> = None;
        let mut below = by_start.partition_point(|&number| legs[number as usize].start <= page);
        for _ in 0..PLACES_MAX {
            if below == 0 || reach[below - 1] <= page {
                break;
            }
            let start = leg(below - 1).0.start;
            // The first from the reader on, and the one before, of those that begin here.
            let from = by_start[..below].partition_point(|&number| legs[number as usize].start < start);
            let next = from + by_start[from..below].partition_point(|&number| (number as usize) < *here);
            for place in
                [next.checked_sub(1).filter(|&place| place >= from), Some(next).filter(|&n| n < below)]
            {
                let Some((found, number)) = place.map(leg) else { continue };
                let Some(position) = found.position(page) else { continue };
                let far = number.abs_diff(*here) as u64;
                let key = (number < *here, far, position);
                best = Some(best.map_or(key, |best| best.min(key)));
            }
            below = from;
        }
        best.map(|(_, _, position)| position)
    }

    fn sort(&mut self) {
        if !self.by_start.is_empty() {
            return;
        }
        let Self { legs, by_start, reach, .. } = self;
        // Fewer than RANGES_MAX.
        by_start.extend(0..legs.len() as u32);
        by_start.sort_unstable_by_key(|&number| (legs[number as usize].start, number));
        reach.clear();
        let mut furthest = 0;
        reach.extend(by_start.iter().map(|&number| {
            let leg = &legs[number as usize];
            furthest = furthest.max(leg.start + leg.pages);
            furthest
        }));
    }

    /// The pages from a position to the end of its range; nothing at the end of the plan.
    pub(super) fn pages_from(&self, position: u64) -> Option<PageRange> {
        let leg = self.legs.get(self.leg_of(position))?;
        let skip = position.checked_sub(leg.before)?;
        (skip < leg.pages)
            .then(|| PageRange::from_start(PageIndex(leg.start + skip), PageCount(leg.pages - skip)))
    }

    fn leg_of(&self, position: u64) -> usize {
        self.legs.partition_point(|leg| leg.before + leg.pages <= position)
    }

    /// The reader is at a position now.
    pub(super) fn go_to(&mut self, position: u64) {
        if position < self.at {
            self.marks.clear();
            self.passed = self.issued;
        }
        self.at = position;
        while self.marks.front().is_some_and(|&(mark, _)| mark <= position) {
            self.passed = self.marks.pop_front().map_or(self.passed, |(_, issued)| issued);
        }
        self.here = self.leg_of(position);
    }

    /// From here on it is to be read ahead anew.
    pub(super) fn begin_at(&mut self, position: u64) {
        self.edge = position;
        self.marks.clear();
        self.passed = self.issued;
        self.since_mark = 0;
    }

    /// Pages that were read ahead and that the reader has not passed; by one mark too many.
    pub(super) fn ahead(&self) -> u64 {
        self.issued - self.passed
    }

    /// Whether no mark is ahead.
    pub(super) fn is_unmarked(&self) -> bool {
        self.marks.is_empty()
    }

    /// So many pages from a position on are read ahead now; the first, and one in `every` of the others, bear marks.
    pub(super) fn marked(&mut self, position: u64, pages: u64, every: u64) {
        for mark in (0..pages).step_by(usize::try_from(every.max(1)).unwrap_or(usize::MAX)) {
            self.marks.push_back((position + mark, self.issued + mark));
        }
    }

    /// So many pages from a position on are read ahead.
    pub(super) fn went(&mut self, position: u64, pages: u64) {
        self.issued += pages;
        match self.behind.back_mut() {
            Some((_, to)) if *to == position => *to += pages,
            _ => self.behind.push_back((position, position + pages)),
        }
    }

    /// The pages that were read ahead and lie before a position, as ranges of the file, which the caller looks at now.
    pub(super) fn look_behind(&mut self, position: u64) -> Vec<PageRange> {
        let mut seen = Vec::new();
        while let Some(&(from, to)) = self.behind.front()
            && from < position
        {
            let to = to.min(position);
            let mut at = from;
            while at < to
                && let Some(pages) = self.pages_from(at)
            {
                let pages = pages.clip(PageIndex(pages.start.0 + (to - at)));
                at += pages.count().0;
                seen.push(pages);
            }
            self.behind[0].0 = to;
            if self.behind[0].0 >= self.behind[0].1 {
                self.behind.pop_front();
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_plan(ranges: &[(u64, u64)]) -> ReadPlan {
        let mut read_plan = ReadPlan::new(64);
        ranges.iter().for_each(|&(start, end)| read_plan.append(PageRange::new(start, end)));
        read_plan
    }

    fn find(read_plan: &mut ReadPlan, page: u64) -> Option<u64> {
        read_plan.find(PageIndex(page))
    }

    #[test]
    fn positions_count_the_pages_of_the_ranges_in_their_order() {
        let mut plan = read_plan(&[(900, 904), (10, 50), (50, 60), (300, 300), (300, 310)]);
        assert_eq!(
            (plan.legs.len(), plan.end()),
            (3, 64),
            "what goes on is one range, and an empty one is none"
        );
        for (page, position) in [(900, 0), (903, 3), (10, 4), (59, 53), (300, 54), (309, 63)] {
            assert_eq!(find(&mut plan, page), Some(position), "page {page}");
        }
        assert_eq!([9, 60, 310, 899, 904].map(|page| find(&mut plan, page)), [None; 5]);
        assert_eq!(plan.pages_from(5), Some(PageRange::new(11, 60)));
        assert_eq!(plan.pages_from(64), None);
    }

    #[test]
    fn ranges_that_share_a_page_are_one() {
        let plan = read_plan(&[(0, 3), (2, 5), (4, 5), (5, 7)]);
        assert_eq!((plan.legs.len(), plan.end()), (1, 7));
    }

    #[test]
    fn of_a_page_that_comes_again_the_next_place_from_the_reader_on_counts() {
        // Three rounds over the same ranges.
        let round = [(0, 8), (100, 108), (4, 6)];
        let mut plan = read_plan(&[round, round, round].concat());
        plan.go_to(9);
        assert_eq!(find(&mut plan, 4), Some(16));
        assert_eq!(find(&mut plan, 7), Some(18 + 7));
        plan.go_to(plan.end());
        assert_eq!(find(&mut plan, 7), Some(36 + 7), "behind the reader the last one");
    }

    #[test]
    fn many_overlapping_ranges_are_found_and_few_are_looked_at() {
        let mut plan = read_plan(&[(0, 1 << 20)]);
        (0..10_000).for_each(|n| plan.append(PageRange::new(n * 100, n * 100 + 10)));
        plan.go_to((1 << 20) + 5);
        assert_eq!(find(&mut plan, 5_003), Some((1 << 20) + 503));
        assert_eq!(find(&mut plan, 5_050), Some(5_050), "only the long one has it");
    }

    #[test]
    fn what_was_used_is_forgotten_and_positions_stay() {
        let mut plan = ReadPlan::new(64);
        (0..1000).for_each(|n| plan.append(PageRange::new(n * 10, n * 10 + 2)));
        plan.go_to(1600);
        plan.forget_used();
        assert_eq!((plan.legs.len(), plan.end()), (200, 2000));
        assert_eq!((find(&mut plan, 8000), find(&mut plan, 7990)), (Some(1600), None));
        plan.go_to(plan.end());
        plan.forget_used();
        plan.append(PageRange::new(5, 6));
        assert_eq!((plan.legs.len(), find(&mut plan, 5)), (2, Some(2000)));
    }

    #[test]
    fn what_lies_behind_is_looked_at_once() {
        let mut plan = read_plan(&[(0, 10), (50, 60), (20, 30)]);
        plan.went(2, 6);
        plan.went(8, 10);
        plan.went(25, 5);
        assert_eq!(plan.look_behind(12), [PageRange::new(2, 10), PageRange::new(50, 52)]);
        assert_eq!(plan.look_behind(30), [PageRange::new(52, 58), PageRange::new(25, 30)]);
        assert!(plan.look_behind(30).is_empty());
    }
}
