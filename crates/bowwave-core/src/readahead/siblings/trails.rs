//! Files that are read alike: at the same offsets and in the same order, such as the files of a
//! model run.
//!
//! If another file has the same run, the runs that followed there are predicted. If the two files
//! were opened one after the other, the same runs of the next files in that order are predicted,
//! too. Fetched pages that are not used are bounded by 512 KiB, plus the pages that were read in
//! the order of another file. Files of a database have many pages in common by chance, but rarely
//! their order.

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::trail::{Like, Trail};
use crate::ranges::RangeSet;

/// The reads of the last opens, in their order. The caller numbers files; each open has a number of
/// its own.
#[derive(Debug)]
pub struct SiblingTrails {
    /// By number of the open.
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
    /// Remembers no file yet. At most `most` bytes, and at most 16 MiB, are fetched and not used.
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

    /// A program opens a file of `size` bytes. Returns a number for [`closed`](Self::closed).
    pub fn opened(&mut self, file: u64, size: u64) -> u64 {
        self.uses += 1;
        let is_open = |open: &&mut Open| self.trails.get(&open.trail).is_some_and(|trail| trail.size == size);
        if let Some(open) = self.open.get_mut(&file).filter(is_open) {
            open.handles += 1;
            return open.trail;
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
        self.opens - 1
    }

    /// A program closes a file; `number` is from [`opened`](Self::opened). Does nothing if the open
    /// has ended already: a new version was opened, or the file was forgotten.
    pub fn closed(&mut self, file: u64, number: u64) {
        if let Some(open) = self.open.get_mut(&file).filter(|open| open.trail == number) {
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
            // The kernel, or what else caches for programs, has probably lost the rest.
            (trail.had, trail.again) = (RangeSet::default(), 0);
        }
        // Used pages return their cost.
        let used = trail.unread.remove(&pages);
        self.out -= used;
        self.left = self.left.saturating_add(used).min(self.most);
        let is_new = !trail.extends_run(&pages) && !trail.at.contains_key(&pages.start);
        if is_new && trail.runs.len() == RUNS_MAX {
            trail.is_fetched = false;
            return false;
        }
        let other = if is_new { self.add(number, &pages) } else { None };
        if let Some((other, at)) = other {
            self.follow(number, other, at);
        }
        let (new, before) = (self.earn(number, pages), out.len());
        if new > 0 && self.left > 0 {
            self.fetch_next(number, out);
        }
        let fetches = out[before..].iter().any(|fetch| fetch.file == file);
        let goes_on = self.trails.get_mut(&number).is_some_and(|trail| {
            if new > 0 {
                trail.is_fetched = used > 0 || other.is_some() && trail.same > 1 && fetches;
            }
            trail.read.count() < trail.size.div_ceil(PAGE)
        });
        self.forget();
        goes_on
    }

    /// Whether the last new pages that a program read of a file were fetched before. After two runs
    /// in order, also whether the next ones are being fetched.
    pub fn follows(&self, file: u64) -> bool {
        let trail = self.open.get(&file).and_then(|open| self.trails.get(&open.trail));
        trail.is_some_and(|trail| trail.is_fetched)
    }

    /// A file is opened ahead of a program, which has not opened it. Returns what to fetch, at most
    /// `most` bytes.
    pub fn ahead(&mut self, file: u64, size: u64, most: u64) -> Vec<Range<u64>> {
        // Half of the budget stays for open files, which are read first.
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
        // In order, if possible, then with most runs after this one: a file that is still being
        // read has few. Of equal ones the last.
        let other = others.max();
        if having.len() == AMONG {
            having.remove(0);
        }
        having.push(number);
        let trail = self.trails.get_mut(&number)?;
        trail.is_alike = other.is_some_and(|(is_in_order, ..)| is_in_order);
        trail.alike += usize::from(trail.is_alike);
        other.map(|(.., other, at)| (other, at))
    }

    /// Adds these pages. If the last run was in the order of another file, the new ones that it
    /// has, too, are added to the budget. Returns how many are new.
    fn earn(&mut self, number: u64, pages: Range<u64>) -> u64 {
        let Some(trail) = self.trails.get(&number) else { return 0 };
        let like = trail.expected.filter(|_| trail.is_alike).and_then(|(like, ..)| self.trails.get(&like));
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
        // Task schedulers, such as dask's, also read files in reverse order.
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

    /// Fetches the runs of another file that this one has not had, as far as the budget allows.
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
                if out.len() >= FETCHES_MAX || allowed == 0 {
                    return;
                }
                if new.is_empty() {
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

    /// Ends the open of a file: it was closed, has a new version, or is forgotten. Its unused pages
    /// count no more.
    fn end(&mut self, file: u64) {
        if let Some(open) = self.open.remove(&file)
            && let Some(trail) = self.trails.get_mut(&open.trail)
        {
            self.out -= trail.unread.count();
            (trail.unread, trail.like, trail.expected) = (RangeSet::default(), None, None);
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
        // A closed file of which nothing was read predicts nothing.
        let worth = |trail: &Trail| (trail.is_open || !trail.runs.is_empty(), trail.used);
        let oldest = self.trails.iter().min_by_key(|(_, trail)| worth(trail));
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
/// Opens that are remembered. Fewer: files that are read in turns are forgotten. More: a longer
/// search for the oldest.
const FILES_MAX: usize = 512;
/// Ranges that one read fetches; further ones are fetched with the next reads. More: the read
/// itself waits behind their requests.
const FETCHES_MAX: usize = 64;
/// Files that are opened ahead and remembered.
const AHEAD_MAX: usize = 128;
/// Runs of each file, and of all. Fewer: less of large files is fetched. More: more memory, about
/// 150 bytes each.
const RUNS_MAX: usize = 2048;
const RUNS_OF_ALL_MAX: usize = 1 << 15;
/// Pages of earlier opens are fetched again once more than one in this many was read again. Larger:
/// pages that the kernel still has are fetched. Smaller: longer waits after it has lost them.
const HAD_SHARE: u64 = 8;
/// Files after this one whose reads are predicted. Fewer: their first reads wait.
const NEXT: u32 = 4;
/// Trails that are compared: the last ones with the same run, and the last ones of the same size
/// for a file opened ahead.
const AMONG: usize = 4;
/// Runs that are fetched after the first run in order; each further one doubles this. A run is in
/// order if the run before it is at most this many runs away in the other file. Larger: more waste.
const FURTHER: usize = 4;
/// Pages that may be fetched before any was read alike. More: more waste.
const FIRST: u64 = (512 << 10) / PAGE;
/// Most bytes that are fetched and not used. More: more waste.
const UNUSED_BYTES_MAX: u64 = 16 << 20;
/// The beginning of a file, in pages.
const BEGINNING: u64 = (64 << 10) / PAGE;
