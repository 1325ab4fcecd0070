//! Where runs began: their stride or repeating offset deltas, and their lengths.
//!
//! A run is a contiguous range read in one direction. Only its start and its length are entered
//! here, so neither the order of reads within a run nor other streams matter.

use super::tuning::{Tuning, capacity, tuning};
use crate::page::PageRange;

/// See [`Tuning`].
const RECENT: usize = capacity(Tuning::DEFAULT.recent);
const REMEMBERED: usize = capacity(Tuning::DEFAULT.remembered);
/// Counters of run lengths: two for each power of two. Lengths of 3 * 2^17 pages or more share one;
/// the last two counters stay 0.
const SIZES: usize = 40;

/// History of runs, the newest last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    starts: [u64; REMEMBERED],
    len: usize,
    lengths: [u64; RECENT],
    remembered: Lengths,
    /// See [`length`](Self::length).
    expected: u64,
    /// Ended runs by length. Index 0 has runs of 1 page, index 1 is unused, and then follow 2, 3, 4
    /// to 5, 6 to 7, 8 to 11 pages, and so on.
    ended: [u16; SIZES],
    /// The sum of `ended`.
    counted: u64,
}

/// How well the length of a run was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prediction {
    Exactly,
    /// At least half of the prediction.
    Roughly,
    Wrongly,
}

/// A predicted jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) to: u64,
    /// Jumps until the series repeats.
    pub(super) period: u64,
    /// All rounds matched to the page.
    pub(super) exact: bool,
}

impl Runs {
    pub(super) const fn new() -> Self {
        Self {
            starts: [0; REMEMBERED],
            len: 0,
            lengths: [0; RECENT],
            remembered: Lengths::new(),
            expected: 0,
            ended: [0; SIZES],
            counted: 0,
        }
    }

    /// Enters the start of a run.
    pub(super) fn push(&mut self, start: u64) {
        if self.len == tuning().remembered as usize {
            self.starts.copy_within(1.., 0);
            self.len -= 1;
        }
        self.starts[self.len] = start;
        self.len += 1;
    }

    /// How many of the recent runs began in the `pages` pages from `start` on.
    pub(super) fn begun_within(&self, start: u64, pages: u64) -> u64 {
        self.starts[..self.len].iter().map(|&begun| u64::from(begun.wrapping_sub(start) < pages)).sum()
    }

    /// The longest series of the last runs that began near each other, in no order, within `most`
    /// pages. In a file of `file` pages, uniformly random runs begin so near each other at most
    /// once in `2^bits` times. Returns the number of runs, and the lowest and highest start.
    pub(super) fn near(&self, file: u64, bits: u64, most: u64) -> Option<(u64, PageRange)> {
        let newest = self.starts[..self.len].iter().rev();
        let (mut lowest, mut highest) = (u64::MAX, 0);
        let (mut later, mut rises, mut falls) = (None, false, false);
        let mut found = None;
        for (runs, &start) in (1..).zip(newest) {
            (lowest, highest) = (lowest.min(start), highest.max(start));
            if highest - lowest >= most {
                break;
            }
            rises |= later.is_some_and(|later| later > start);
            falls |= later.is_some_and(|later| later < start);
            later = Some(start);
            let rare = (runs - 1) * u64::from((file / (highest - lowest + 1)).max(1).ilog2());
            if rises && falls && rare >= bits {
                found = Some((runs, PageRange::new(lowest, highest)));
            }
        }
        found
    }

    /// Removes a start that belonged to another run.
    pub(super) fn forget(&mut self, start: u64) {
        let from = self.len.saturating_sub(tuning().recent as usize);
        if let Some(at) = self.starts[from..self.len].iter().rposition(|&known| known == start) {
            self.starts.copy_within(from + at + 1..self.len, from + at);
            self.len -= 1;
        }
    }

    /// Enters the length of an ended run. Returns how well it was predicted, if there was a
    /// prediction.
    pub(super) fn ended_of(&mut self, pages: u64, predicted: u64) -> Option<Prediction> {
        let expected = self.expected;
        self.lengths.rotate_left(1);
        self.lengths[RECENT - 1] = pages;
        // The newest lengths are the last ones.
        self.lengths[..RECENT - tuning().recent as usize].fill(0);
        self.remembered.push(pages);
        self.expected = match alike(self.lengths) {
            Alike::Up(most) => self.remembered.longest(most),
            Alike::Not(middle) => middle,
        };
        (expected > 1).then(|| match pages {
            pages if pages.abs_diff(expected) <= 1 => Prediction::Exactly,
            pages if pages.saturating_mul(2) >= predicted => Prediction::Roughly,
            _ => Prediction::Wrongly,
        })
    }

    /// Counts an ended run by its length.
    pub(super) fn count(&mut self, pages: u64) {
        self.ended[counter_of(pages)] += 1;
        self.counted += 1;
        if self.counted >= tuning().runs_max {
            self.ended.iter_mut().for_each(|runs| *runs /= 2);
            self.counted = runs_in(&self.ended);
        }
    }

    /// Whether reading a run of `pages` pages ahead until it has doubled is expected to pay: an
    /// unused page costs `cost`, a used one saves `benefit`. Compares the runs that doubled, and
    /// one more, with the runs that ended before that. To bound the bytes, `benefit` is at most
    /// `seldom` times `cost`, and the runs that ended are counted from the power of two below
    /// `pages`.
    pub(super) fn continues(&self, pages: u64, (cost, benefit): (u64, u64)) -> bool {
        let [ended, doubled] = self.outcomes(pages);
        let benefit = benefit.min(cost.saturating_mul(tuning().seldom));
        doubled.saturating_mul(benefit) >= ended.saturating_mul(cost)
    }

    /// Expected gain of a page after a run of `pages` pages, as
    /// [`continues`](Self::continues) weighs it.
    pub(super) fn gain(&self, pages: u64, (cost, benefit): (u64, u64)) -> i64 {
        let [ended, doubled] = self.outcomes(pages);
        let benefit = benefit.min(cost.saturating_mul(tuning().seldom));
        let gain = i128::from(doubled) * i128::from(benefit) - i128::from(ended) * i128::from(cost);
        (gain / i128::from(ended + doubled)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Two numbers: the runs that ended before they doubled, from the power of two below `pages`,
    /// and one more than the runs that doubled.
    fn outcomes(&self, pages: u64) -> [u64; 2] {
        let at = counter_of(pages);
        // Most runs are short, and have few counters below theirs.
        let [shorter, ended] = [0..at & !1, at & !1..at + 2].map(|sizes| runs_in(&self.ended[sizes]));
        [ended, self.counted - shorter - ended + 1]
    }

    /// Pages beyond a run of `read` pages that are worth reading ahead. A page that the run reaches
    /// saves `benefit`, another one costs `cost`. Pages are worth reading while the expected gain
    /// covers the expected cost. A run doubles as often as earlier runs of its length did, if one
    /// that doubled and one that ended are added to these.
    pub(super) fn reach(&self, read: u64, (cost, benefit): (u64, u64)) -> u64 {
        const CERTAIN: u64 = 1 << 16;
        let least = cost.saturating_mul(CERTAIN) / cost.saturating_add(benefit).max(1);
        let (mut chance, mut length) = (CERTAIN, read.max(1));
        let (shorter, known) = self.ended.split_at(counter_of(read) & !1);
        let known = known.chunks(2).map(runs_in);
        let mut longer = self.counted - runs_in(shorter);
        for ended in known {
            longer -= ended;
            let next = chance * (longer + 1) / (ended + longer + 2);
            if next < least {
                return length + length.saturating_mul(chance - least) / (chance - next) - read.min(length);
            }
            (chance, length) = (next, length.saturating_mul(2));
        }
        u64::MAX
    }

    /// A run of one request ended. It shows the size of requests, not the length of runs.
    pub(super) fn ended_alone(&self) -> Option<Prediction> {
        (self.expected > 1).then_some(Prediction::Wrongly)
    }

    /// Median length of the last runs, in pages.
    pub(super) fn median(&self) -> u64 {
        let mut lengths = self.lengths;
        lengths.sort_unstable();
        let unknown = lengths.iter().filter(|&&pages| pages == 0).count();
        let known = &lengths[unknown..];
        known.get(known.len() / 2).copied().unwrap_or(0)
    }

    /// Expected length of a run, in pages. If the last lengths are alike, it is the longest
    /// remembered length that is alike; else their median. 0 if unknown.
    pub(super) fn length(&self) -> u64 {
        self.expected
    }

    /// Shortest of the last runs, in pages; 0 if unknown.
    pub(super) fn least(&self) -> u64 {
        self.lengths.iter().copied().filter(|&pages| pages > 0).min().unwrap_or(0)
    }

    /// A safe length, in pages: reading this much of a new run wastes almost nothing. It is the
    /// expected length if the shortest is at least three quarters of it; else the shortest. 0 if
    /// unknown.
    pub(super) fn shortest(&self) -> u64 {
        let least = self.least();
        if least >= self.expected / 4 * 3 { self.expected } else { least }
    }

    /// Mean waste over the remembered runs if each had been read `pages` far.
    pub(super) fn mean_waste(&self, pages: u64) -> u64 {
        self.remembered.mean_waste(pages)
    }

    /// The largest number of pages, at most `most`, whose mean waste over the remembered runs is at
    /// most `waste`.
    pub(super) fn pages_for_waste(&self, waste: u64, most: u64) -> u64 {
        self.remembered.pages_for_waste(waste, most)
    }

    /// Mean length of the remembered runs, in pages.
    pub(super) fn mean(&self) -> u64 {
        self.remembered.mean()
    }

    /// The stride that ends at `start`: its distance from an earlier start, if a third start lies
    /// as far before the earlier one. Call it before `start` is entered.
    pub(super) fn step_to(&self, start: u64) -> Option<i64> {
        let known = &self.starts[..self.len];
        let recent = &known[self.len.saturating_sub(tuning().recent as usize)..];
        let far = &known[self.len.saturating_sub(2 * tuning().recent as usize)..];
        // Usually there is none. A 64-bit filter shows that: an absent start rarely has its bit
        // set.
        let there = far.iter().fold(0, |bits, &start| bits | bit(start));
        recent.iter().rev().find_map(|&before| {
            let first = before.wrapping_sub(start.wrapping_sub(before));
            if there & bit(first) == 0 {
                return None;
            }
            let step = start.wrapping_sub(before).cast_signed();
            // Excludes distances that wrapped.
            let sound = step != 0 && (step > 0) == (start > before) && (step > 0) == (before > first);
            (sound && far.contains(&first)).then_some(step)
        })
    }

    /// Finds rows at a distance between whole pages. If the last three distances differ by exactly
    /// one page, returns where the first of the four runs began. Call it before `start` is entered.
    pub(super) fn even_to(&self, start: u64) -> Option<u64> {
        let &[first, second, third] = self.starts[..self.len].last_chunk()?;
        let jump = |from: u64, to: u64| to.wrapping_sub(from).cast_signed();
        let jumps = [jump(first, second), jump(second, third), jump(third, start)];
        let (least, most) = (*jumps.iter().min()?, *jumps.iter().max()?);
        // Whole distances are found by `step_to`.
        (most == least.saturating_add(1) && (least > 1 || most < -1)).then_some(first)
    }

    /// Start of the next run, if offset deltas repeat: two rounds of a series of two or more
    /// deltas. Rounds may differ by one page, since rows aligned to bytes are not aligned to pages.
    pub(super) fn next_jump(&self) -> Option<Jump> {
        let known = &self.starts[..self.len];
        let jump = |back: usize| {
            let at = known.len() - 1 - back;
            known[at].wrapping_sub(known[at - 1])
        };
        let apart = |back: usize, period: usize| {
            jump(back).wrapping_sub(jump(back + period)).cast_signed().unsigned_abs()
        };
        let [.., before, last] = known else { return None };
        let newest = last.wrapping_sub(*before);
        let most = (known.len() - 1) / 2;
        if most < 2 {
            return None;
        }
        // Usually no earlier jump is like the newest one; one pass shows that.
        let from = known.len() - 2 - most;
        let ends = known[from + 1..].iter().take(most - 1);
        let alike = known[from..].iter().zip(ends).fold(false, |alike, (&start, &end)| {
            let difference = end.wrapping_sub(start).wrapping_sub(newest);
            // From −1 to 2: close enough to be examined.
            alike | (difference.wrapping_add(1) >> 2 == 0)
        });
        if !alike {
            return None;
        }
        (2..=most).find(|&period| (0..period).all(|back| apart(back, period) <= 1)).map(|period| Jump {
            to: last.wrapping_add(jump(period - 1)),
            period: period as u64,
            exact: (0..period).all(|back| apart(back, period) == 0),
        })
    }
}

/// Whether lengths are alike.
enum Alike {
    /// Alike; similar lengths have at most this many pages.
    Up(u64),
    /// Not alike; their median, or 0 if there are none.
    Not(u64),
}

/// Compares lengths; 0 means unknown.
fn alike(mut lengths: [u64; RECENT]) -> Alike {
    lengths.sort_unstable();
    let unknown = lengths.iter().filter(|&&pages| pages == 0).count();
    let known = &lengths[unknown..];
    match (known.first(), known.last()) {
        (Some(&least), Some(&most)) if most / tuning().alike <= least => {
            Alike::Up(most.max(least.saturating_mul(tuning().alike)))
        }
        (Some(_), Some(_)) => Alike::Not(known[(known.len() - 1) / 2]),
        _ => Alike::Not(0),
    }
}

/// Lengths of the last runs, in pages.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// In order of their end; `next` is replaced next.
    last: [u32; REMEMBERED],
    next: usize,
    /// The first `known` are the same lengths, sorted.
    sorted: [u32; REMEMBERED],
    known: usize,
    sum: u64,
}

impl Lengths {
    const fn new() -> Self {
        Self { last: [0; REMEMBERED], next: 0, sorted: [0; REMEMBERED], known: 0, sum: 0 }
    }

    fn sorted(&self) -> &[u32] {
        &self.sorted[..self.known]
    }

    fn push(&mut self, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        if self.known == tuning().remembered as usize {
            let oldest = self.last[self.next];
            let at = self.sorted().partition_point(|&known| known < oldest);
            self.sorted.copy_within(at + 1.., at);
            self.known -= 1;
            self.sum -= u64::from(oldest);
        }
        let at = self.sorted().partition_point(|&known| known < pages);
        self.sorted.copy_within(at..self.known, at + 1);
        self.sorted[at] = pages;
        self.known += 1;
        self.sum += u64::from(pages);
        self.last[self.next] = pages;
        self.next = (self.next + 1) % tuning().remembered as usize;
    }

    /// Longest length of at most `most` pages; 0 if there is none.
    fn longest(&self, most: u64) -> u64 {
        self.sorted().iter().rev().map(|&pages| u64::from(pages)).find(|&pages| pages <= most).unwrap_or(0)
    }

    fn mean(&self) -> u64 {
        self.sum / (self.known as u64).max(1)
    }

    fn mean_waste(&self, pages: u64) -> u64 {
        let shorter =
            self.sorted().iter().map(|&length| u64::from(length)).take_while(|&length| length < pages);
        let (count, sum) = shorter.fold((0, 0), |(count, sum), length| (count + 1, sum + length));
        pages.saturating_mul(count).saturating_sub(sum) / (self.known as u64).max(1)
    }

    fn pages_for_waste(&self, waste: u64, most: u64) -> u64 {
        let waste = waste.saturating_mul(self.known as u64);
        // Reading up to one of the lengths wastes the rest of each shorter run.
        let mut sum = 0;
        for (shorter, &length) in self.sorted().iter().enumerate() {
            let (shorter, length) = (shorter as u64, u64::from(length));
            if length >= most || shorter * length - sum > waste {
                return most.min((waste + sum).checked_div(shorter).unwrap_or(most));
            }
            sum += length;
        }
        most.min((waste.saturating_add(sum)).checked_div(self.known as u64).unwrap_or(most))
    }
}

/// Index of the counter of a length; two counters follow it.
fn counter_of(pages: u64) -> usize {
    let pages = pages.max(1);
    let log = pages.ilog2();
    let upper_half = pages >> log.saturating_sub(1) & u64::from(log > 0);
    (2 * log as usize + upper_half as usize).min(SIZES - 3)
}

fn runs_in(counts: &[u16]) -> u64 {
    counts.iter().map(|&runs| u64::from(runs)).sum()
}

/// One of 64 bits, for a page.
fn bit(page: u64) -> u64 {
    1 << (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Runs {
        /// Ends a run whose prediction was the expected length.
        fn ended(&mut self, pages: u64) -> Option<Prediction> {
            self.ended_of(pages, self.expected)
        }
    }

    fn runs(starts: &[u64]) -> Runs {
        let mut runs = Runs::new();
        starts.iter().for_each(|&start| runs.push(start));
        runs
    }

    #[test]
    fn rows_at_a_distance_of_no_whole_pages_are_found_after_four() {
        assert_eq!(runs(&[100, 112, 125]).even_to(137), Some(100));
        assert_eq!(runs(&[900, 137, 125, 112]).even_to(100), Some(137));
        assert_eq!(runs(&[100, 112, 124]).even_to(136), None, "whole pages");
        assert_eq!(runs(&[100, 112, 125]).even_to(139), None);
        assert_eq!(runs(&[100, 101, 103]).even_to(104), None, "one page is a run");
        assert_eq!(runs(&[112, 125]).even_to(137), None);
        assert_eq!(runs(&[0, 1 << 63, u64::MAX]).even_to(5), None);
    }

    #[test]
    fn a_stride_is_found_among_other_runs() {
        assert_eq!(runs(&[100, 300]).step_to(500), Some(200));
        assert_eq!(runs(&[500, 300]).step_to(100), Some(-200));
        assert_eq!(runs(&[100, 7, 300, 90_000]).step_to(500), Some(200));
        assert_eq!(runs(&[100, 300]).step_to(501), None);
        assert_eq!(runs(&[100]).step_to(500), None);
        assert_eq!(runs(&[0, 200]).step_to(u64::MAX), None);
        assert_eq!(runs(&[]).step_to(0), None);
    }

    fn next(starts: &[u64]) -> Option<u64> {
        runs(starts).next_jump().map(|jump| jump.to)
    }

    #[test]
    fn a_series_of_jumps_is_found_after_two_rounds() {
        // +5, +90, and again.
        assert_eq!(next(&[0, 5, 95, 100, 190]), Some(195));
        assert_eq!(next(&[0, 5, 95, 100]), None);
        // Three jumps, one of them back.
        assert_eq!(next(&[50, 60, 80, 10, 20, 40, 4_000_000]), None);
        assert_eq!(next(&[150, 160, 180, 110, 120, 140, 70]), Some(80));
        assert_eq!(next(&[]), None);
    }

    #[test]
    fn byte_aligned_rounds_may_differ_by_a_page() {
        let starts = [0, 4101, 8203, 11_718, 15_820, 19_921, 23_437];
        assert_eq!(runs(&starts).next_jump(), Some(Jump { to: 27_539, period: 3, exact: false }));
        assert_eq!(next(&[0, 4101, 8203, 11_718, 15_820, 19_921, 23_440]), None);
    }

    #[test]
    fn a_run_continues_unless_runs_of_its_length_end_more_often() {
        const EVEN: (u64, u64) = (1, 1);
        let mut runs = Runs::new();
        assert!([1, 2, 700, u64::MAX].iter().all(|&pages| runs.continues(pages, EVEN)), "nothing is known");
        // Of ten runs, seven end with 2 pages, two with 5, one with 900.
        for pages in [2, 2, 2, 5, 2, 2, 900, 2, 2, 5] {
            runs.count(pages);
        }
        assert_eq!(
            [1, 2, 4, 8, 900, 2000].map(|pages| runs.continues(pages, EVEN)),
            [true, false, true, true, true, true]
        );
        runs.count(6);
        assert!(!runs.continues(4, EVEN), "three end there, and one continues");
        assert!(runs.continues(4, (2, 3)), "a used page saves more than an unused one costs");
        assert!(!runs.continues(900, (2, 1)) && runs.continues(64, (2, 1)), "none ended with 64");
        (0..30).for_each(|_| runs.count(2));
        assert!(!runs.continues(2, (1, 1000)), "fewer than one in four doubles, whatever that saves");
        // Old runs lose weight.
        (0..10_000).for_each(|_| runs.count(1 << 15));
        assert!(runs.continues(2, EVEN) && runs.continues(4, EVEN));
        (0..1000).for_each(|_| runs.count(u64::MAX));
    }

    #[test]
    fn readahead_reaches_as_far_as_its_chance_pays() {
        let mut runs = Runs::new();
        assert_eq!(runs.reach(10, (0, 1000)), u64::MAX, "pages cost nothing");
        assert_eq!(runs.reach(10, (1000, 1000)), 10, "half of all runs double");
        assert_eq!(runs.reach(10, (1000, 3000)), 30);
        assert_eq!(runs.reach(10, (1000, 0)), 0);
        // Runs end with 12 pages.
        (0..100).for_each(|_| runs.count(12));
        assert!((8..=12).contains(&runs.reach(1, (1000, 1000))));
        assert!(runs.reach(10, (1000, 1000)) <= 5);
        // Runs are long.
        let mut runs = Runs::new();
        (0..100).for_each(|_| runs.count(1000));
        assert!(runs.reach(2, (1000, 1000)) > 500);
    }

    #[test]
    fn the_expected_length_is_the_longest_alike() {
        let mut runs = Runs::new();
        assert_eq!((runs.length(), runs.ended(90)), (0, None));
        assert_eq!([runs.ended(80), runs.ended(100)], [Some(Prediction::Roughly); 2]);
        assert_eq!((runs.ended(99), runs.length()), (Some(Prediction::Exactly), 100));
        assert_eq!(runs.shortest(), 100, "80 to 100 are alike");
        assert_eq!((runs.ended(49), runs.length(), runs.median()), (Some(Prediction::Wrongly), 100, 90));
        assert_eq!(runs.shortest(), 49);
        assert_eq!((runs.ended_alone(), runs.length()), (Some(Prediction::Wrongly), 100));
        // One long run among short ones is no prediction.
        for pages in [3, 3, 3, 900, 3, 3, 3, 3] {
            runs.ended(pages);
        }
        assert_eq!(runs.length(), 3);
    }

    #[test]
    fn a_longer_run_is_remembered_if_it_is_like_the_last_ones() {
        let mut runs = Runs::new();
        for pages in [250, 900, 100, 100, 100, 100, 100, 100, 100, 100] {
            runs.ended(pages);
        }
        assert_eq!(runs.length(), 250, "900 is not like 100");
        (0..REMEMBERED).for_each(|_| {
            runs.ended(100);
        });
        assert_eq!((runs.length(), runs.mean_waste(100), runs.mean()), (100, 0, 100));
    }

    #[test]
    fn waste_grows_with_the_pages_read_for_each_run() {
        let mut runs = Runs::new();
        assert_eq!(
            (runs.mean_waste(9), runs.pages_for_waste(0, 9), runs.pages_for_waste(u64::MAX, u64::MAX)),
            (0, 9, u64::MAX),
            "nothing is known"
        );
        // One in six of each length from 65 to 256; the last ones are remembered.
        (0..1000u64).for_each(|n| {
            runs.ended(65 + n * 37 % 192);
        });
        assert_eq!(runs.mean_waste(65), 0);
        assert!(runs.mean_waste(256).abs_diff(256 - runs.mean()) <= 1, "except for rounding");
        let mut before = 0;
        for waste in 0..120 {
            let pages = runs.pages_for_waste(waste, 256);
            assert!(
                pages >= before && runs.mean_waste(pages) <= waste,
                "{pages} pages waste {}",
                runs.mean_waste(pages)
            );
            assert!(
                pages == 256 || runs.mean_waste(pages + 1) >= waste,
                "{pages} pages, and one page more wastes no more"
            );
            before = pages;
        }
        assert_eq!(before, 256);
        assert_eq!(runs.pages_for_waste(0, 50), 50, "no more than is allowed");
    }
}
