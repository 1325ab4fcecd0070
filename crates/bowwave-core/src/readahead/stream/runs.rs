//! Where runs began: the even distance or the repeated jumps between them, and how long they are.
//!
//! A run is what is read in one direction without a jump. Only the first miss of each is entered here, so the order of
//! reads within runs does not matter, and neither do other streams that go on.

/// Starts remembered.
const STARTS: usize = 32;
/// Starts among which an even distance is looked for; so many strided readers may take turns.
const NEAR: usize = 8;
/// Run lengths remembered (postings on adaptive readahead, 2005: "seek N pages, read M").
const LENGTHS: usize = 4;

/// What began where, the newest last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    starts: [u64; STARTS],
    len: usize,
    lengths: [u64; LENGTHS],
    /// See [`length`](Self::length).
    expected: u64,
}

impl Runs {
    pub(super) const fn new() -> Self {
        Self { starts: [0; STARTS], len: 0, lengths: [0; LENGTHS], expected: 0 }
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

    /// A run has ended; tells whether it was at least half as long as [`length`](Self::length) had it, if that said
    /// anything.
    pub(super) fn ended(&mut self, pages: u64) -> Option<bool> {
        let expected = self.expected;
        self.lengths.rotate_left(1);
        self.lengths[LENGTHS - 1] = pages;
        let mut lengths = self.lengths;
        lengths.sort_unstable();
        self.expected = if lengths[0] == 0 { 0 } else { lengths[1].midpoint(lengths[2]) };
        (expected > 0).then_some(pages.saturating_mul(2) >= expected)
    }

    /// The pages that a run is expected to have: the middle of the last four. 0 if there were too few.
    pub(super) fn length(&self) -> u64 {
        self.expected
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
            let step = start.wrapping_sub(before).cast_signed();
            // Further apart than that it is nonsense.
            if step == 0 || (step > 0) != (start > before) {
                return None;
            }
            let first = before.checked_add_signed(step.checked_neg()?)?;
            (there & bit(first) != 0 && far.contains(&first)).then_some(step)
        })
    }

    /// Where the next run begins, if the jumps between the last ones repeat: after at least two of one kind of jump,
    /// or two rounds of a longer series.
    pub(super) fn next_jump(&self) -> Option<u64> {
        let known = &self.starts[..self.len];
        let jump = |back: usize| {
            let at = known.len() - 1 - back;
            known[at].wrapping_sub(known[at - 1])
        };
        (2..=(known.len().max(1) - 1) / 2)
            .find(|&period| (0..period).all(|back| jump(back) == jump(back + period)))
            .map(|period| known[known.len() - 1].wrapping_add(jump(period - 1)))
    }
}

/// One of 64 bits, by the page.
fn bit(page: u64) -> u64 {
    1 << (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_series_of_jumps_is_found_after_two_rounds() {
        // +5, +90, and again.
        assert_eq!(runs(&[0, 5, 95, 100, 190]).next_jump(), Some(195));
        assert_eq!(runs(&[0, 5, 95, 100]).next_jump(), None);
        // Three jumps, one of them back.
        assert_eq!(runs(&[50, 60, 80, 10, 20, 40, 4_000_000]).next_jump(), None);
        assert_eq!(runs(&[150, 160, 180, 110, 120, 140, 70]).next_jump(), Some(80));
        assert_eq!(runs(&[]).next_jump(), None);
    }

    #[test]
    fn runs_are_as_long_as_the_middle_of_the_last_four() {
        let mut runs = Runs::new();
        assert_eq!([runs.ended(9), runs.ended(8), runs.ended(10), runs.ended(11)], [None; 4]);
        assert_eq!(runs.length(), 9);
        assert_eq!((runs.ended(5), runs.length()), (Some(true), 9));
        assert_eq!(runs.ended(4), Some(false));
    }
}
