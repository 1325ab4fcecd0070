//! Files that are read alike: at the same places as one before, such as the files of a model run.
//!
//! A read of a file that another file had, too, predicts the reads that followed it there. If the
//! other file is the one that was opened before or after this one, it also predicts the same reads
//! of the next files in that order. Pages that are fetched and not used are bounded by those that
//! were read in the order of another file: two files of a database have many pages in common by
//! chance, and no order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use super::pages::PageSet;
use super::trail::{Like, Trail};

/// What programs have read of the files that they opened last, in the order of their reads. The
/// driver numbers files.
#[derive(Debug)]
pub struct SiblingTrails {
    /// By number, which is that of the open.
    trails: BTreeMap<u64, Trail>,
    /// The open files.
    open: BTreeMap<u64, Open>,
    /// Files that no program has opened.
    ahead: BTreeMap<u64, Trail>,
    /// By first page of a run, the last trails that have it.
    having: BTreeMap<u64, Vec<u64>>,
    opens: u64,
    uses: u64,
    /// Runs of all trails.
    runs: usize,
    /// Pages of open files that were fetched and not used yet.
    out: u64,
    /// How many more may be fetched.
    left: u64,
    /// Most pages that are fetched and not used.
    most: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    trail: u64,
    handles: u32,
}

/// Bytes to fetch of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingFetch {
    /// The file.
    pub file: u64,
    /// Its bytes.
    pub bytes: Range<u64>,
}

impl SiblingTrails {
    /// Of no file. At most `most` bytes are fetched and not used.
    pub fn new(most: u64) -> Self {
        let most = most.min(UNUSED_BYTES_MAX) / PAGE;
        Self {
            trails: BTreeMap::new(),
            open: BTreeMap::new(),
            ahead: BTreeMap::new(),
            having: BTreeMap::new(),
            opens: 0,
            uses: 0,
            runs: 0,
            out: 0,
            left: FIRST.min(most),
            most,
        }
    }

    /// A program opens a file of `size` bytes.
    pub fn opened(&mut self, file: u64, size: u64) {
        let is_open = |open: &&mut Open| self.trails.get(&open.trail).is_some_and(|trail| trail.size == size);
        if let Some(open) = self.open.get_mut(&file).filter(is_open) {
            open.handles += 1;
            return;
        }
        self.end(file);
        let fetched = self.ahead.remove(&file).filter(|trail| trail.size == size);
        let mut trail = fetched.unwrap_or_else(|| self.trail_of(file, size));
        (trail.is_open, trail.used) = (true, self.uses);
        self.out += trail.unread.count();
        self.open.insert(file, Open { trail: self.opens, handles: 1 });
        self.trails.insert(self.opens, trail);
        self.opens += 1;
        self.forget();
    }

    /// A program closes a file.
    pub fn closed(&mut self, file: u64) {
        if let Some(open) = self.open.get_mut(&file) {
            open.handles -= 1;
            if open.handles == 0 {
                self.end(file);
            }
        }
    }

    /// Whether a file is open and remembered.
    pub fn is_open(&self, file: u64) -> bool {
        self.open.contains_key(&file)
    }

    /// A program reads bytes of a file. Appends what to fetch. Returns whether further reads of it
    /// matter.
    pub fn read(&mut self, file: u64, offset: u64, bytes: u64, out: &mut Vec<SiblingFetch>) -> bool {
        let Some(&Open { trail: number, .. }) = self.open.get(&file) else { return false };
        self.uses += 1;
        let Some(trail) = self.trails.get_mut(&number) else { return false };
        let end = offset.saturating_add(bytes).min(trail.size);
        if offset >= end {
            return true;
        }
        let pages = offset / PAGE..end.div_ceil(PAGE);
        trail.used = self.uses;
        trail.again += trail.had.common(pages.clone());
        if trail.again * HAD_SHARE > trail.had.count() {
            // No cache above has them any more.
            (trail.had, trail.again) = (PageSet::default(), 0);
        }
        // Used pages return their cost.
        let used = trail.unread.remove(pages.clone());
        self.out -= used;
        self.left = self.left.saturating_add(used).min(self.most);
        let is_new = !trail.goes_on(&pages) && !trail.at.contains_key(&pages.start);
        if is_new && trail.runs.len() == RUNS_MAX {
            return false;
        }
        let other = if is_new { self.add(number, &pages) } else { None };
        let new = self.earn(number, pages);
        if let Some((other, at)) = other {
            self.follow(number, other, at);
        }
        if new > 0 && self.left > 0 {
            self.fetch_next(number, out);
        }
        self.forget();
        true
    }

    /// Whether a file is read as another one was, which was itself read as others were: all that
    /// its reads want is fetched as the budget allows.
    pub fn follows(&self, file: u64) -> bool {
        let trail = self.open.get(&file).and_then(|open| self.trails.get(&open.trail));
        trail.is_some_and(|trail| trail.is_known && trail.same > 1)
    }

    /// A file is opened ahead of a program, which has not opened it. Returns what to fetch, at most
    /// `most` bytes.
    pub fn ahead(&mut self, file: u64, size: u64, most: u64) -> Vec<Range<u64>> {
        // The rest is for files that are open, which are read first.
        let leaves_as_many = |like: &(u64, &Trail)| self.left >= 2 * like.1.read.count();
        let like = self.like_of(size).filter(leaves_as_many).filter(|_| !self.is_open(file));
        let Some((like, runs)) = like.map(|(like, trail)| (like, trail.runs.len())) else {
            return Vec::new();
        };
        let (mut trail, mut found) = (self.trail_of(file, size), Vec::new());
        trail.used = self.uses;
        let left = self.left;
        self.left = left.min(most / PAGE);
        self.fetch(&mut trail, like, 0..runs, &mut found);
        // They use up the budget now. They count as unused only once the file is opened.
        self.out -= trail.unread.count();
        self.left = left - trail.unread.count();
        if self.ahead.len() == AHEAD_MAX {
            let oldest = self.ahead.iter().min_by_key(|(_, trail)| trail.used).map(|(&file, _)| file);
            oldest.and_then(|oldest| self.ahead.remove(&oldest));
        }
        self.ahead.insert(file, trail);
        found.into_iter().map(|fetch| fetch.bytes).collect()
    }

    /// A file that was opened ahead is closed.
    pub fn dropped(&mut self, file: u64) {
        self.ahead.remove(&file);
    }

    /// How many files of `size` bytes may be opened ahead, because those before were read alike.
    pub fn room(&self, size: u64) -> u32 {
        let Some((_, like)) = self.like_of(size) else { return 0 };
        u32::try_from(self.left / like.read.count().max(1)).unwrap_or(u32::MAX).min(NEXT)
    }

    /// Of the last files of `size` bytes that were read as others were, the one with most runs: the
    /// very last one is often still being read.
    fn like_of(&self, size: u64) -> Option<(u64, &Trail)> {
        let alike = self.trails.iter().rev().filter(|(_, trail)| trail.size == size && trail.predicts());
        alike.take(AMONG).max_by_key(|(_, trail)| trail.runs.len()).map(|(&number, trail)| (number, trail))
    }

    /// A trail of a file that is opened, perhaps again.
    fn trail_of(&self, file: u64, size: u64) -> Trail {
        let mut trail = Trail::new(file, size);
        let before = self.trails.values().rev().find(|before| before.file == file && before.size == size);
        if let Some(before) = before {
            trail.had = before.had.clone();
            for pages in before.read.ranges() {
                trail.had.insert(pages);
            }
        }
        trail
    }

    /// Adds a run to a trail. Returns another trail that has it, if possible in the same order and
    /// with most runs after it, and its index there.
    fn add(&mut self, number: u64, pages: &Range<u64>) -> Option<(u64, usize)> {
        let trail = self.trails.get_mut(&number)?;
        trail.at.insert(pages.start, trail.runs.len());
        trail.runs.push(pages.clone());
        self.runs += 1;
        let before = trail.runs.len().checked_sub(2).map(|before| trail.runs[before].start);
        let (size, having) = (trail.size, self.having.entry(pages.start).or_default());
        let others = having.iter().enumerate().filter_map(|(age, &other)| {
            let trail = self.trails.get(&other)?;
            let at = *trail.at.get(&pages.start)?;
            let before = before.and_then(|before| trail.at.get(&before));
            let is_in_order = before.is_some_and(|before| before.abs_diff(at) <= FURTHER);
            // Files of other sizes may have the same beginning by their format alone.
            let is_of_kind = trail.size == size || pages.start >= BEGINNING;
            is_of_kind.then_some((is_in_order, trail.runs.len() - at, age, other, at))
        });
        // Of equal ones the last that had it. A file that is read at the same time has few runs
        // after this one.
        let other = others.max();
        if having.len() == AMONG {
            having.remove(0);
        }
        having.push(number);
        let trail = self.trails.get_mut(&number)?;
        trail.is_known = other.is_some();
        trail.is_alike = other.is_some_and(|(is_in_order, ..)| is_in_order);
        trail.alike += usize::from(trail.is_alike);
        other.map(|(.., other, at)| (other, at))
    }

    /// Pages that are read in the order of another file pay for as many. Returns how many pages are
    /// new.
    fn earn(&mut self, number: u64, pages: Range<u64>) -> u64 {
        let Some(trail) = self.trails.get(&number) else { return 0 };
        let like = trail.like.filter(|_| trail.is_alike).and_then(|like| self.trails.get(&like.trail));
        let (mut earned, mut rest) = (0, pages.clone());
        while !rest.is_empty() {
            let gap = trail.read.gap(rest.clone());
            earned += like.map_or(0, |like| like.read.common(gap.clone()));
            rest.start = gap.end.max(rest.start + 1);
        }
        self.left = self.left.saturating_add(earned).min(self.most);
        self.trails.get_mut(&number).map_or(0, |trail| trail.read.insert(pages))
    }

    /// A file has the run with index `at` of another one: expects what followed there.
    fn follow(&mut self, number: u64, other: u64, at: usize) {
        let before = self.trails.get(&other).map_or(0, |other| other.same);
        let Some(trail) = self.trails.get_mut(&number) else { return };
        trail.same = match trail.is_alike {
            true => trail.same + 1,
            // A file that was itself read as others were is followed at once.
            false if trail.runs.len() == 1 => (before / 2).max(1),
            false => trail.same / 2,
        };
        let further = if trail.same > 0 { FURTHER << (trail.same - 1).min(8) } else { 0 };
        trail.expected = Some((other, at, at.saturating_add(1 + further)));
    }

    /// Fetches the runs that a file is expected to have, and the same ones of the next files.
    fn fetch_next(&mut self, number: u64, out: &mut Vec<SiblingFetch>) {
        let Some(mut trail) = self.trails.remove(&number) else { return };
        let (expected, size) = (trail.expected, trail.size);
        if let Some((other, from, to)) = expected {
            self.fetch(&mut trail, other, from..to, out);
        }
        self.trails.insert(number, trail);
        let Some((other, from, to)) = expected else { return };
        // Schedulers of tasks also go backwards.
        let after = |distance: u64| match other {
            _ if other + 1 == number => number.checked_add(distance),
            _ if number + 1 == other => number.checked_sub(distance),
            _ => None,
        };
        for next in (1..=NEXT.into()).filter_map(after) {
            if let Some(mut trail) = self.trails.remove(&next) {
                if trail.is_open && trail.size == size {
                    self.fetch(&mut trail, other, from..to, out);
                }
                self.trails.insert(next, trail);
            }
        }
    }

    /// Fetches the runs of another file that a file has not had, as far as the budget allows.
    fn fetch(&mut self, trail: &mut Trail, other: u64, runs: Range<usize>, out: &mut Vec<SiblingFetch>) {
        let Some(other_runs) = self.trails.get(&other).map(|other| &other.runs) else { return };
        let like = match &mut trail.like {
            Some(like) if like.trail == other => like,
            like => like.insert(Like { trail: other, fetched: runs.start }),
        };
        like.fetched = like.fetched.max(runs.start);
        while like.fetched < runs.end.min(other_runs.len()) {
            let run = &other_runs[like.fetched];
            let end = run.end.min(trail.size.div_ceil(PAGE));
            let mut start = run.start;
            while start < end {
                let new = trail.unread.gap(trail.had.gap(trail.read.gap(start..end)));
                let allowed = self.left.min(self.most.saturating_sub(self.out));
                let new = new.start..new.end.min(new.start + allowed);
                if new.is_empty() {
                    if allowed == 0 {
                        return;
                    }
                    start = start.max(new.end) + 1;
                    continue;
                }
                self.left -= new.end - new.start;
                self.out += new.end - new.start;
                trail.unread.insert(new.clone());
                start = new.end;
                let bytes = new.start * PAGE..(new.end * PAGE).min(trail.size);
                out.push(SiblingFetch { file: trail.file, bytes });
            }
            like.fetched += 1;
        }
    }

    /// No program has the file open.
    fn end(&mut self, file: u64) {
        if let Some(open) = self.open.remove(&file)
            && let Some(trail) = self.trails.get_mut(&open.trail)
        {
            self.out -= trail.unread.count();
            (trail.unread, trail.like, trail.expected) = (PageSet::default(), None, None);
            trail.is_open = false;
        }
    }

    /// Forgets the files that were read longest ago, if there are too many.
    fn forget(&mut self) {
        while self.trails.len() > 1 && (self.trails.len() > FILES_MAX || self.runs > RUNS_OF_ALL_MAX) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.trails.iter().min_by_key(|(number, trail)| (trail.used, Reverse(*number)));
        let Some(number) = oldest.map(|(&number, _)| number) else { return };
        if let Some(trail) = self.trails.get(&number)
            && trail.is_open
        {
            self.end(trail.file);
        }
        let Some(trail) = self.trails.remove(&number) else { return };
        self.runs -= trail.runs.len();
        for run in trail.at.keys() {
            if let Some(having) = self.having.get_mut(run) {
                having.retain(|&other| other != number);
                if having.is_empty() {
                    self.having.remove(run);
                }
            }
        }
    }
}

/// The unit in which bytes are counted.
const PAGE: u64 = 4 << 10;
/// Files that are remembered. Fewer: files that are read in turns are forgotten.
const FILES_MAX: usize = 512;
/// Files that are opened ahead and remembered.
const AHEAD_MAX: usize = 128;
/// Runs of each file, and of all. Fewer: less of large files is fetched. More: more memory, about
/// 150 bytes each.
const RUNS_MAX: usize = 2048;
const RUNS_OF_ALL_MAX: usize = 1 << 15;
/// Pages of earlier opens are fetched again if more than one of this many was read again. More:
/// more of what a cache above has is fetched. Fewer: longer waits once it has lost them.
const HAD_SHARE: u64 = 8;
/// Files after this one whose reads are predicted. Fewer: their first reads wait.
const NEXT: u32 = 4;
/// Files with the same run, of which one predicts.
const AMONG: usize = 4;
/// Runs that are fetched after the first one that another file had; twice as many after each
/// further one in its order, which is at most as far from the one before. More: more waste.
const FURTHER: usize = 4;
/// Pages that may be fetched before any was read alike. More: more waste.
const FIRST: u64 = (512 << 10) / PAGE;
/// Most bytes that are fetched and not used. More: more waste.
const UNUSED_BYTES_MAX: u64 = 16 << 20;
/// The beginning of a file, in pages.
const BEGINNING: u64 = (64 << 10) / PAGE;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 64 * MIB;

    /// Places of a file in which a program reads 80 KiB each, in this order.
    const PLACES: [u64; 10] = [0, 40, 3, 38, 5, 7, 60, 30, 20, 10];

    /// Reads these places of a file; returns the offsets of what is fetched after each.
    fn read(trails: &mut SiblingTrails, file: u64, places: &[u64]) -> Vec<Vec<(u64, u64)>> {
        let each = places.iter().map(|place| {
            let mut out = Vec::new();
            trails.read(file, place * MIB, 80 << 10, &mut out);
            out.iter().map(|fetch| (fetch.file, fetch.bytes.start / MIB)).collect()
        });
        each.collect()
    }

    fn with_one_read() -> SiblingTrails {
        let mut trails = SiblingTrails::new(u64::MAX);
        trails.opened(1, SIZE);
        assert!(read(&mut trails, 1, &PLACES).concat().is_empty());
        trails
    }

    #[test]
    fn reads_of_one_file_predict_those_of_the_next() {
        let mut trails = with_one_read();
        trails.closed(1);
        trails.opened(2, SIZE);
        let fetched = read(&mut trails, 2, &PLACES);
        assert_eq!(fetched[0], [40, 3, 38, 5].map(|place| (2, place)), "what followed the first read");
        let mut all: Vec<u64> = fetched.concat().iter().map(|&(_, place)| place).collect();
        all.dedup();
        assert_eq!(all, PLACES[1..], "each once");
        assert_eq!((trails.out, trails.left), (0, trails.left.max(FIRST)), "all was used");
        trails.opened(3, SIZE);
        assert!(!trails.follows(3), "nothing was read");
        assert!(read(&mut trails, 3, &PLACES[..1])[0].len() > FURTHER && trails.follows(3));
        read(&mut trails, 3, &[63]);
        assert!(!trails.follows(3), "no other file had this");
    }

    #[test]
    fn the_next_open_files_are_fetched_with_the_one_that_is_read() {
        let mut trails = with_one_read();
        for file in 2..12 {
            // So that the budget suffices.
            trails.opened(file, SIZE);
            read(&mut trails, file, &PLACES);
        }
        (12..20).for_each(|file| trails.opened(file, SIZE));
        let fetched = read(&mut trails, 12, &PLACES).concat();
        for place in PLACES {
            assert_eq!(fetched.iter().filter(|&&fetched| fetched == (13, place)).count(), 1, "{fetched:?}");
        }
        assert!(fetched.contains(&(16, 0)) && !fetched.contains(&(17, 0)), "the others are too far away");
        assert!(read(&mut trails, 13, &PLACES).concat().contains(&(17, 0)));
    }

    #[test]
    fn files_that_were_not_opened_get_the_reads_of_files_alike() {
        let mut trails = with_one_read();
        assert_eq!(
            (trails.room(SIZE), trails.ahead(9, SIZE, SIZE)),
            (0, Vec::new()),
            "one file shows nothing"
        );
        for file in 20..24 {
            // So that the budget suffices.
            trails.opened(file, SIZE);
            read(&mut trails, file, &PLACES);
        }
        assert_eq!(trails.room(SIZE + 1), 0, "of other files");
        assert!(trails.room(SIZE) > 0);
        let ahead: Vec<u64> = trails.ahead(3, SIZE, SIZE).iter().map(|bytes| bytes.start / MIB).collect();
        assert_eq!(ahead, PLACES);
        trails.opened(3, SIZE);
        assert!(read(&mut trails, 3, &PLACES).concat().is_empty(), "it has all");
        assert_eq!(trails.ahead(4, SIZE, 30 * PAGE), [0..80 << 10, 40 * MIB..40 * MIB + 10 * PAGE]);
        trails.dropped(4);
        trails.opened(4, SIZE);
        assert_eq!(trails.out, 0);
    }

    /// Chunks that lie one behind another are one run: the budget comes back while it is read.
    #[test]
    fn a_long_run_is_fetched_of_the_next_files_as_the_budget_allows() {
        let mut trails = SiblingTrails::new(u64::MAX);
        let mut waits = Vec::new();
        (0..12).for_each(|file| trails.opened(file, SIZE));
        for file in 0..12 {
            let mut found = Vec::new();
            let header = [(0, 4096), (40 * MIB, 4096)];
            for (offset, bytes) in header.into_iter().chain((0..32).map(|at| (9 * MIB + at * 65_536, 65_536)))
            {
                let has = trails.trails[&file].unread.common(offset / PAGE..(offset + bytes) / PAGE);
                found.push(has * PAGE == bytes);
                trails.read(file, offset, bytes, &mut Vec::new());
            }
            waits.push(found.iter().filter(|has| !*has).count());
        }
        assert!(waits[0] == 34 && waits[8..] == [0; 4], "{waits:?}");
    }

    #[test]
    fn files_may_be_read_backwards() {
        let mut trails = SiblingTrails::new(u64::MAX);
        (1..4).for_each(|file| trails.opened(file, SIZE));
        read(&mut trails, 3, &PLACES);
        let fetched = read(&mut trails, 2, &PLACES).concat();
        assert!(fetched.contains(&(2, 40)) && fetched.contains(&(1, 0)), "{fetched:?}");
        (4..20).for_each(|file| trails.opened(file, SIZE));
        for file in (5..18).rev() {
            read(&mut trails, file, &PLACES);
        }
        let all = read(&mut trails, 4, &PLACES).concat();
        assert!(all.iter().all(|&(file, _)| file != 4), "it had all: {all:?}");
    }

    #[test]
    fn a_file_that_leaves_out_reads_of_another_is_fetched_little() {
        let mut trails = SiblingTrails::new(u64::MAX);
        let places: Vec<u64> = (0..60).map(|at| at * 7 % 60).collect();
        trails.opened(1, SIZE);
        read(&mut trails, 1, &places);
        trails.opened(2, SIZE);
        let some: Vec<u64> = places.iter().copied().step_by(6).collect();
        let fetched = read(&mut trails, 2, &some).concat();
        // The budget before any was read in the order of the first one.
        assert!(fetched.len() as u64 <= FIRST / 20 + 1, "{fetched:?}");
        trails.opened(3, SIZE);
        let fetched = read(&mut trails, 3, &places[..8]).concat();
        assert!(fetched.contains(&(3, places[16])), "as far as the budget allows, {fetched:?}");
    }

    #[test]
    fn files_of_another_size_have_the_same_beginning_by_their_format() {
        let mut trails = with_one_read();
        trails.opened(2, SIZE / 2);
        let fetched = read(&mut trails, 2, &PLACES);
        assert!(fetched[0].is_empty() && fetched[2].contains(&(2, 5)), "{fetched:?}");
        assert!(fetched.concat().iter().all(|&(_, place)| place < 32), "what lies behind its end is not");
    }

    #[test]
    fn reads_in_order_are_one_run() {
        let mut trails = SiblingTrails::new(u64::MAX);
        for file in 1..3 {
            trails.opened(file, SIZE);
            for at in 0..100 {
                trails.read(file, at * 5000, 5000, &mut Vec::new());
            }
        }
        assert!(trails.trails.values().all(|trail| trail.runs.len() == 1));
        assert!(trails.out <= FIRST);
    }

    #[test]
    fn waste_is_bounded_by_what_was_read_alike() {
        // Each file begins as the others, and goes on elsewhere.
        let mut trails = SiblingTrails::new(u64::MAX);
        let (mut fetched, mut alike) = (0, 0);
        for file in 0..200 {
            trails.opened(file, SIZE);
            for place in (0..2).chain((0..8).map(|at| 2 + (file * 7 + at * at) % 60)) {
                let mut out = Vec::new();
                alike += u64::from(place < 2) * (80 << 10) / PAGE;
                trails.read(file, place * MIB, 80 << 10, &mut out);
                fetched += out.iter().map(|fetch| (fetch.bytes.end - fetch.bytes.start) / PAGE).sum::<u64>();
            }
            trails.closed(file);
        }
        // Of all that is fetched, what is used returns its cost.
        assert!(fetched <= FIRST + 2 * alike, "{fetched} pages, {alike} alike");
    }

    #[test]
    fn what_is_fetched_is_counted() {
        for seed in 0..50 {
            let mut random = crate::random::Random::new(seed);
            let mut trails = SiblingTrails::new(u64::MAX);
            let mut out = Vec::new();
            for _ in 0..600 {
                let (file, size) = (random.below(30), SIZE + random.below(2));
                match random.below(12) {
                    0 => trails.opened(file, size),
                    1 => trails.closed(file),
                    2 => drop(trails.ahead(file, size, random.below(SIZE))),
                    3 => trails.dropped(file),
                    _ => {
                        let (place, bytes) = (random.below(40) * MIB, 1 + random.below(200 << 10));
                        trails.read(file, place, bytes, &mut out);
                    }
                }
                for SiblingFetch { file, bytes } in out.drain(..) {
                    let size = trails.trails[&trails.open[&file].trail].size;
                    assert!(bytes.start < bytes.end && bytes.end <= size, "seed {seed}: {bytes:?} of {size}");
                }
                let unread: u64 = trails.trails.values().map(|trail| trail.unread.count()).sum();
                assert_eq!(trails.out, unread, "seed {seed}");
                let closed = |trail: &&Trail| !trail.is_open;
                assert!(trails.trails.values().filter(closed).all(|trail| trail.unread.count() == 0));
                assert!(trails.left <= trails.most);
            }
        }
    }

    /// Segments of a database: the same pages by chance, in no order.
    #[test]
    fn pages_that_files_have_in_common_by_chance_pay_for_nothing() {
        let (mut trails, mut random) = (SiblingTrails::new(u64::MAX), crate::random::Random::new(7));
        (0..8).for_each(|file| trails.opened(file, SIZE));
        let mut out = Vec::new();
        for _ in 0..8000 {
            trails.read(random.below(8), random.below(1000) * (64 << 10), 64 << 10, &mut out);
        }
        let fetched: u64 = out.iter().map(|fetch| fetch.bytes.end - fetch.bytes.start).sum();
        // 16 pages a read, of 8,000 reads.
        assert!(fetched < 16 * MIB, "{} KiB of 512,000", fetched >> 10);
    }

    #[test]
    fn a_file_is_predicted_by_itself_once_its_reads_come_again() {
        let mut trails = with_one_read();
        trails.closed(1);
        trails.opened(1, SIZE);
        trails.opened(1, SIZE);
        let fetched = read(&mut trails, 1, &PLACES);
        assert!(
            fetched[0].is_empty() && !fetched[1].is_empty(),
            "the kernel may have had the rest, {fetched:?}"
        );
        trails.closed(1);
        assert!(trails.is_open(1), "through the second handle");
        trails.closed(1);
        trails.closed(1);
        assert!(!trails.is_open(1) && !trails.read(1, 0, 1, &mut Vec::new()));
    }

    #[test]
    fn little_is_remembered() {
        let mut trails = SiblingTrails::new(u64::MAX);
        for file in 0..2000 {
            trails.opened(file, SIZE);
            for at in 0..100 {
                trails.read(file, (at * 7919 + file * 31) % 10_000 * 6 * PAGE, PAGE, &mut Vec::new());
            }
        }
        assert!(trails.runs <= RUNS_OF_ALL_MAX && trails.trails.len() <= FILES_MAX);
        assert_eq!(trails.runs, trails.trails.values().map(|trail| trail.runs.len()).sum::<usize>());
        assert_eq!(trails.open.len(), trails.trails.len());
        let having: usize = trails.having.values().map(Vec::len).sum();
        assert!(having <= trails.runs && trails.having.values().all(|having| !having.is_empty()));
        assert!(trails.out <= trails.most);
        assert!(!trails.read(0, 0, 1, &mut Vec::new()), "forgotten");
    }
}
