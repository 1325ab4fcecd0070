//! Where runs began: the even distance or the repeated jumps between them, and how long they are.
//!
//! A run is what is read in one direction without a jump. Only the first miss of each is entered here, so the order of
//! reads within runs does not matter, and neither do other streams that go on.

/// Starts remembered.
const STARTS: usize = 32;
/// Starts among which an even distance is looked for; so many strided readers may take turns.
const NEAR: usize = 8;
/// Run lengths remembered (postings on adaptive readahead, 2005: "seek N pages, read M").
const LENGTHS: usize = 6;
/// Lengths are told apart by powers of two, up to this one.
const POWERS: usize = 20;
/// When so many runs are counted, the counts are halved: what was long ago does not matter any more.
const RUNS_MAX: u32 = 1024;

/// What began where, the newest last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    starts: [u64; STARTS],
    len: usize,
    lengths: [u64; LENGTHS],
    /// See [`length`](Self::length).
    expected: u64,
    /// Runs that ended with 1 page, with 2 or 3, with 4 to 7, and so on.
    ended: [u16; POWERS],
}

/// How well the length of a run was foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foretold {
    Exactly,
    /// It was at least half as long.
    Roughly,
    Wrongly,
}

/// A jump that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) to: u64,
    /// Jumps until the series begins anew.
    pub(super) period: u64,
    /// Rounds were the same to the page.
    pub(super) exact: bool,
}

impl Runs {
    pub(super) const fn new() -> Self {
        Self { starts: [0; STARTS], len: 0, lengths: [0; LENGTHS], expected: 0, ended: [0; POWERS] }
    }

    /// A run begins.
    pub(super) fn push(&mut self, start: u64) {
        if self.len == STARTS {
            self.starts.copy_within(1.., 0);
            self.len -= 1;
        }
        self.starts[self.len] = start;
        self.len += 1;
    }

    /// A run has ended of which so many pages were foretold. How well that was, if anything was known: not at all, to a half,
    /// or to the page that was expected.
    pub(super) fn ended_of(&mut self, pages: u64, foretold: u64) -> Option<Foretold> {
        let expected = self.expected;
        self.lengths.rotate_left(1);
        self.lengths[LENGTHS - 1] = pages;
        self.expected = middle(self.lengths);
        (expected > 1).then(|| match pages {
            pages if pages.abs_diff(expected) <= 1 => Foretold::Exactly,
            pages if pages.saturating_mul(2) >= foretold => Foretold::Roughly,
            _ => Foretold::Wrongly,
        })
    }

    /// Counts a run that has ended with so many pages, requests of one piece like all others.
    pub(super) fn count(&mut self, pages: u64) {
        self.ended[power(pages)] += 1;
        if self.ended.iter().map(|&runs| u32::from(runs)).sum::<u32>() >= RUNS_MAX {
            self.ended.iter_mut().for_each(|runs| *runs /= 2);
        }
    }

    /// Whether a run that has come to so many pages more likely than not comes to twice as many, by how the last ones went. As
    /// long as none of that length has ended, it does.
    pub(super) fn goes_on(&self, pages: u64) -> bool {
        let at = power(pages);
        let longer: u32 = self.ended[at + 1..].iter().map(|&runs| u32::from(runs)).sum();
        longer + 1 >= u32::from(self.ended[at])
    }

    /// A run of one request has ended, which says how long requests are, and not how long runs.
    pub(super) fn ended_alone(&self) -> Option<Foretold> {
        (self.expected > 1).then_some(Foretold::Wrongly)
    }

    /// The pages that half of the last runs had.
    pub(super) fn median(&self) -> u64 {
        let mut lengths = self.lengths;
        lengths.sort_unstable();
        let unknown = lengths.iter().filter(|&&pages| pages == 0).count();
        let known = &lengths[unknown..];
        known.get(known.len() / 2).copied().unwrap_or(0)
    }

    /// The pages that a run is expected to have: if the last six are alike, as many as the longest of them, else what is
    /// in their middle. 0 if there was none.
    pub(super) fn length(&self) -> u64 {
        self.expected
    }

    /// The pages that a run has at least, to judge by the last ones: next to nothing of so many is read in vain. Of runs that
    /// differ by a quarter and less what they are expected to have. 0 if there was none.
    pub(super) fn shortest(&self) -> u64 {
        let least = self.lengths.iter().copied().filter(|&pages| pages > 0).min().unwrap_or(0);
        if least >= self.expected / 4 * 3 { self.expected } else { least }
    }

    /// Pages that the last runs would have left unused of so many, on the average.
    pub(super) fn lost(&self, pages: u64) -> u64 {
        let known = self.lengths.iter().filter(|&&length| length > 0);
        let (count, lost) = known.fold((0, 0u64), |(count, lost), &length| {
            (count + 1, lost.saturating_add(pages.saturating_sub(length)))
        });
        lost / u64::max(count, 1)
    }

    /// The distance from an earlier start to `start`, if there was one just as far before that. Not found for `start` if
    /// that is among the starts already.
    pub(super) fn step_to(&self, start: u64) -> Option<i64> {
        let known = &self.starts[..self.len];
        let recent = &known[self.len.saturating_sub(NEAR)..];
        let far = &known[self.len.saturating_sub(2 * NEAR)..];
        // Most often there is none, and that is seen by a bit for each: a start that was not there hardly has its bit set.
        let there = far.iter().fold(0, |bits, &start| bits | bit(start));
        recent.iter().rev().find_map(|&before| {
            let first = before.wrapping_sub(start.wrapping_sub(before));
            if there & bit(first) == 0 {
                return None;
            }
            let step = start.wrapping_sub(before).cast_signed();
            // Further apart than that it is nonsense.
            let sound = step != 0 && (step > 0) == (start > before) && (step > 0) == (before > first);
            (sound && far.contains(&first)).then_some(step)
        })
    }

    /// Where the next run begins, if the jumps between the last ones repeat: after at least two of one kind of jump,
    /// or two rounds of a longer series. And after how many jumps, and whether they repeat to the page: what is even in bytes
    /// may be a page more or less.
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
        // Most often no jump is like the newest one, which is seen in one go.
        let from = known.len() - 2 - most;
        let ends = known[from + 1..].iter().take(most - 1);
        let alike = known[from..].iter().zip(ends).fold(false, |alike, (&start, &end)| {
            let difference = end.wrapping_sub(start).wrapping_sub(newest);
            // From −1 to 2, which is enough to look closer.
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

/// Pages that a run is expected to have after some of these lengths; 0 are not known.
fn middle(mut lengths: [u64; LENGTHS]) -> u64 {
    lengths.sort_unstable();
    let unknown = lengths.iter().filter(|&&pages| pages == 0).count();
    let known = &lengths[unknown..];
    match (known.first(), known.last()) {
        (Some(&least), Some(&most)) if most / 4 <= least => most,
        (Some(_), Some(_)) => known[(known.len() - 1) / 2],
        _ => 0,
    }
}

/// The power of two that so many pages are put to; there is always one above it.
fn power(pages: u64) -> usize {
    (pages.max(1).ilog2() as usize).min(POWERS - 2)
}

/// One of 64 bits, by the page.
fn bit(page: u64) -> u64 {
    1 << (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Runs {
        /// A run has ended of which as much was foretold as there is to say.
        fn ended(&mut self, pages: u64) -> Option<Foretold> {
            self.ended_of(pages, self.expected)
        }
    }

    fn runs(starts: &[u64]) -> Runs {
        let mut runs = Runs::new();
        starts.iter().for_each(|&start| runs.push(start));
        runs
    }

    #[test]
    fn an_even_distance_is_found_through_what_lies_between() {
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
    fn what_is_even_in_bytes_may_be_a_page_more_or_less() {
        let starts = [0, 4101, 8203, 11_718, 15_820, 19_921, 23_437];
        assert_eq!(runs(&starts).next_jump(), Some(Jump { to: 27_539, period: 3, exact: false }));
        assert_eq!(next(&[0, 4101, 8203, 11_718, 15_820, 19_921, 23_440]), None);
    }

    #[test]
    fn a_run_goes_on_unless_runs_of_its_length_end_more_often() {
        let mut runs = Runs::new();
        assert!([1, 2, 700, u64::MAX].iter().all(|&pages| runs.goes_on(pages)), "nothing is known");
        // Of ten runs, seven end with 2 pages, two with 5, one with 900.
        for pages in [2, 2, 2, 5, 2, 2, 900, 2, 2, 5] {
            runs.count(pages);
        }
        assert_eq!(
            [1, 2, 4, 8, 900, 2000].map(|pages| runs.goes_on(pages)),
            [true, false, true, true, true, true]
        );
        runs.count(6);
        assert!(!runs.goes_on(4), "three end there, and one goes on");
        // What was once does not count for ever.
        (0..10_000).for_each(|_| runs.count(1 << 15));
        assert!(runs.goes_on(2) && runs.goes_on(4));
        (0..1000).for_each(|_| runs.count(u64::MAX));
    }

    #[test]
    fn runs_are_as_long_as_the_longest_of_those_that_are_alike() {
        let mut runs = Runs::new();
        assert_eq!((runs.length(), runs.ended(90)), (0, None));
        assert_eq!([runs.ended(80), runs.ended(100)], [Some(Foretold::Roughly); 2]);
        assert_eq!((runs.ended(99), runs.length()), (Some(Foretold::Exactly), 100));
        assert_eq!(runs.shortest(), 100, "80 to 100 are alike");
        assert_eq!((runs.ended(49), runs.length(), runs.median()), (Some(Foretold::Wrongly), 100, 90));
        assert_eq!(runs.shortest(), 49);
        assert_eq!((runs.ended_alone(), runs.length()), (Some(Foretold::Wrongly), 100));
        // One long run among short ones is not what to expect.
        for pages in [3, 3, 3, 900, 3, 3, 3, 3] {
            runs.ended(pages);
        }
        assert_eq!(runs.length(), 3);
    }
}
