//! Readahead across the files of a directory: which files a program opens next.
//!
//! The same questions as within a file, one level up. A file is its position in the order of the
//! directory's listing.
//!
//! | opens | reason | read ahead |
//! |---|---|---|
//! | three at one distance, forwards or backwards | [`Sequence`](SiblingReason::Sequence), [`Stride`](SiblingReason::Stride) | the next at that distance, as many as the run has had |
//! | eight in no order, none twice | [`Sample`](SiblingReason::Sample) | files that were not opened |
//!
//! **Waste is bounded.** Files that were read ahead and not opened, in memory or dropped from it,
//! are at most as many as the opened ones; for samples, half as many.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Why a file is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiblingReason {
    /// The program opens neighbours, in either direction.
    Sequence,
    /// The program opens each n-th file.
    Stride,
    /// The program opens files in no order, and none twice.
    Sample,
}

/// A file to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Its position in the listing.
    pub index: u32,
    /// Why.
    pub reason: SiblingReason,
}

/// The opens of one directory.
#[derive(Clone, Debug)]
pub struct Siblings {
    files: Vec<State>,
    recent: VecDeque<u32>,
    runs: VecDeque<Run>,
    opened: u32,
    repeated: u32,
    /// Files read ahead that are neither opened nor dropped.
    ahead: u32,
    /// Files read ahead that were dropped before they were opened.
    wasted: u32,
    /// Where the next sample begins.
    cursor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unread,
    Ahead,
    Opened,
}

/// Opens at one distance. Several readers have one each.
#[derive(Clone, Copy, Debug)]
struct Run {
    next: i64,
    distance: i64,
    length: u32,
    /// It opens files that were opened before: a later epoch.
    again: bool,
}

impl Siblings {
    /// A directory of `files` files, of which none was opened.
    #[must_use]
    pub fn new(files: u32) -> Self {
        Self {
            files: vec![State::Unread; files as usize],
            recent: VecDeque::with_capacity(RECENT),
            runs: VecDeque::with_capacity(RUNS),
            opened: 0,
            repeated: 0,
            ahead: 0,
            wasted: 0,
            cursor: 0,
        }
    }

    /// Files that were read ahead and not opened yet.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// A program opens a file. Appends the files to read ahead, in this order; memory has space for
    /// `room` more.
    pub fn opened(&mut self, index: u32, room: u32, out: &mut Vec<Sibling>) {
        let Some(state) = self.files.get_mut(index as usize) else { return };
        let before = core::mem::replace(state, State::Opened);
        match before {
            State::Opened => self.repeated += 1,
            State::Ahead => {
                self.ahead -= 1;
                self.opened += 1;
            }
            State::Unread => self.opened += 1,
        }
        let run = self.follow(index, before);
        self.recent.push_back(index);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        match run {
            Some(run) => self.extend(run, room, out),
            None => self.sample(index, room, out),
        }
    }

    /// A file that was read ahead lost its memory before it was opened, or could not be read.
    pub fn dropped(&mut self, index: u32) {
        let Some(state) = self.files.get_mut(index as usize) else { return };
        if *state == State::Ahead {
            *state = State::Unread;
            self.ahead -= 1;
            self.wasted += 1;
        }
    }

    /// A planned file needs no readahead: memory has it.
    pub fn resident(&mut self, index: u32) {
        if let Some(state) = self.files.get_mut(index as usize).filter(|state| **state == State::Ahead) {
            *state = State::Opened;
            self.ahead -= 1;
        }
    }

    /// Whether a file is read ahead and not opened yet.
    #[must_use]
    pub fn is_ahead(&self, index: u32) -> bool {
        self.files.get(index as usize) == Some(&State::Ahead)
    }

    /// The run that an open continues or begins.
    fn follow(&mut self, index: u32, before: State) -> Option<Run> {
        let index = i64::from(index);
        if let Some(at) = self.runs.iter().position(|run| run.next == index) {
            let run = self.runs.remove(at)?;
            let again = before == State::Opened || before == State::Ahead && run.again;
            let run = Run { next: index + run.distance, length: run.length + 1, again, ..run };
            self.runs.push_back(run);
            return Some(run);
        }
        // Two earlier opens at the same distance; the shortest distance wins.
        let has = |place: i64| self.recent.iter().any(|&other| i64::from(other) == place);
        let distances = self.recent.iter().map(|&other| index - i64::from(other));
        let fits = distances.filter(|distance| (1..=DISTANCE_MAX).contains(&distance.abs()));
        let distance = fits.filter(|distance| has(index - 2 * distance)).min_by_key(|d| d.abs())?;
        let again = before == State::Opened;
        let run = Run { next: index + distance, distance, length: 3, again };
        self.runs.push_back(run);
        if self.runs.len() > RUNS {
            self.runs.pop_front();
        }
        Some(run)
    }

    fn extend(&mut self, run: Run, room: u32, out: &mut Vec<Sibling>) {
        let reason = if run.distance.abs() == 1 { SiblingReason::Sequence } else { SiblingReason::Stride };
        let mut left = self.budget(self.opened).min(room);
        for step in 0..i64::from(run.length.min(WINDOW_MAX)) {
            let index = u32::try_from(run.next + step * run.distance).ok();
            let Some(index) = index.filter(|&index| (index as usize) < self.files.len()) else { break };
            if left == 0 {
                break;
            }
            let state = self.files[index as usize];
            if state == State::Unread || run.again && state == State::Opened {
                self.read_ahead(index, reason, out);
                left -= 1;
            }
        }
    }

    fn sample(&mut self, index: u32, room: u32, out: &mut Vec<Sibling>) {
        let returns = self.repeated.saturating_mul(REPEATED_SHARE) > self.opened;
        if self.opened < SAMPLE_MIN || returns {
            return;
        }
        if self.cursor == 0 {
            self.cursor = index;
        }
        let mut left = self.budget(self.opened / 2).min(room).min(SAMPLE_STEP);
        for _ in 0..self.files.len() {
            if left == 0 {
                break;
            }
            self.cursor = (self.cursor + 1) % self.files.len() as u32;
            if self.files[self.cursor as usize] == State::Unread {
                self.read_ahead(self.cursor, SiblingReason::Sample, out);
                left -= 1;
            }
        }
    }

    fn read_ahead(&mut self, index: u32, reason: SiblingReason, out: &mut Vec<Sibling>) {
        self.files[index as usize] = State::Ahead;
        self.ahead += 1;
        out.push(Sibling { index, reason });
    }

    /// Files that may be read ahead now, if `most` may be unopened.
    fn budget(&self, most: u32) -> u32 {
        most.saturating_sub(self.ahead + self.wasted)
    }
}

/// Opens that are compared with the next one. More: more runs that are none.
const RECENT: usize = 32;
/// Runs that are followed at once.
const RUNS: usize = 32;
/// Longest distance of a run: ranks of a job read each n-th file.
const DISTANCE_MAX: i64 = 64;
/// Most files ahead of one run.
const WINDOW_MAX: u32 = 64;
/// Opens in no order before the rest of the directory is read ahead.
const SAMPLE_MIN: u32 = 8;
/// Files that one open in no order adds. More: a burst of requests before the next open.
const SAMPLE_STEP: u32 = 4;
/// If more than one in this many opens is of a file that was opened before, the program does not
/// sample without replacement.
const REPEATED_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Opens files in order; returns what is read ahead after each.
    fn run(siblings: &mut Siblings, opens: &[u32]) -> Vec<Vec<u32>> {
        opens
            .iter()
            .map(|&index| {
                let mut out = Vec::new();
                siblings.opened(index, u32::MAX, &mut out);
                out.iter().map(|sibling| sibling.index).collect()
            })
            .collect()
    }

    #[test]
    fn neighbours_are_read_ahead_in_both_directions() {
        let mut forwards = Siblings::new(1000);
        assert_eq!(run(&mut forwards, &[0, 1, 2, 3]), [vec![], vec![], vec![3, 4, 5], vec![6, 7]]);
        let mut backwards = Siblings::new(1000);
        assert_eq!(run(&mut backwards, &[9, 8, 7]), [vec![], vec![], vec![6, 5, 4]]);
    }

    #[test]
    fn each_rank_of_a_stride_is_followed() {
        let mut siblings = Siblings::new(1000);
        let opens: Vec<u32> = (0..10).flat_map(|step| [step * 8, 500 + step * 8]).collect();
        let ahead: Vec<u32> = run(&mut siblings, &opens).concat();
        assert!(ahead.contains(&80) && ahead.contains(&580), "{ahead:?}");
        assert!(ahead.iter().all(|index| index % 8 == 0 || (index - 500) % 8 == 0), "{ahead:?}");
    }

    #[test]
    fn a_shuffled_epoch_is_read_ahead_and_each_file_once() {
        let mut random = Random::new(5);
        let mut order: Vec<u32> = (0..2000).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut siblings = Siblings::new(2000);
        let (mut seen, mut hits) = (vec![0; 2000], 0);
        for (done, &index) in order.iter().enumerate() {
            hits += seen[index as usize];
            let mut out = Vec::new();
            siblings.opened(index, u32::MAX, &mut out);
            assert!(siblings.ahead() as usize <= done + 1, "waste");
            out.iter().for_each(|sibling| seen[sibling.index as usize] += 1);
        }
        assert!(seen.iter().all(|&times| times <= 1));
        assert!(hits > 900, "{hits} of 2000 were read ahead");
        assert_eq!(siblings.ahead(), 0);
    }

    #[test]
    fn a_second_epoch_in_order_is_read_ahead_again() {
        let mut siblings = Siblings::new(50);
        let order: Vec<u32> = (0..50).collect();
        assert_eq!(run(&mut siblings, &order).concat().len(), 47);
        assert_eq!(run(&mut siblings, &order).concat().len(), 47);
    }

    #[test]
    fn files_that_are_opened_again_and_again_end_samples() {
        let mut siblings = Siblings::new(10_000);
        let opens: Vec<u32> = (0..400).map(|step| (step * 7919 % 40) * 211).collect();
        let ahead = run(&mut siblings, &opens);
        assert!(ahead[80..].iter().all(Vec::is_empty), "{ahead:?}");
    }

    #[test]
    fn waste_ends_readahead() {
        let mut siblings = Siblings::new(100_000);
        let (mut out, mut total) = (Vec::new(), 0);
        for step in 0..1000_u32 {
            out.clear();
            // No order, and nothing that was read ahead is ever opened.
            siblings.opened(step * step * 97 % 99_991, u32::MAX, &mut out);
            total += out.len();
            out.iter().for_each(|sibling| siblings.dropped(sibling.index));
        }
        assert!(total <= 1000, "{total}");
    }

    #[test]
    fn memory_bounds_what_is_read_ahead() {
        let mut siblings = Siblings::new(100);
        let mut out = Vec::new();
        (0..10).for_each(|index| siblings.opened(index, 1, &mut out));
        assert!(out.len() <= 10, "{out:?}");
        siblings.opened(10, 0, &mut out);
        siblings.opened(1_000_000, 9, &mut out);
        assert!(out.len() <= 10, "{out:?}");
    }
}
