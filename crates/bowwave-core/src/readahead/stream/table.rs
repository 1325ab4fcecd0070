//! The streams of a file, and which of them an access belongs to.
//!
//! A decision takes a fraction of a microsecond. So flat arrays ([`Keys`]) hold the zone (the pages
//! that may continue the stream), the mark and the last use of each stream. Lookups scan the arrays
//! and examine only the entries found.

use alloc::vec::Vec;

use super::entry::{Direction, Entry, Join};
use super::tuning::tuning;
use crate::id::HandleId;

/// Flag of a last use: the stream is its reader's current one. Larger than every time.
const CURRENT: u32 = 1 << 31;
/// No page.
const NOWHERE: u64 = u64::MAX;
/// Larger than the distance of any two pages.
const FAR: u64 = 1 << 62;

/// The streams of a file, and the parked streams.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    keys: Keys,
    /// The stream last borrowed for changes: its keys may be out of date.
    stale: Option<usize>,
    max: usize,
    /// Time of the last use, in uses. Renumbered before it reaches [`CURRENT`].
    clock: u32,
    /// The handle that reads now.
    reader: u64,
    /// The last stream used by that handle, if it is in the table.
    last: Option<usize>,
    /// The last stream used by any handle, if it is in the table.
    newest: Option<usize>,
    /// Streams that are their reader's current one.
    readers: u64,
    parked: Parked,
}

/// Search keys: one element of each array for a stream.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// First page of [`Entry::zone`], and its length, at most [`FAR`].
    lowest: Vec<u64>,
    span: Vec<u64>,
    /// [`NOWHERE`] if there is none.
    mark: Vec<u64>,
    /// Time of the last use, with [`CURRENT`] if its reader has used no other stream since.
    used: Vec<u32>,
    /// The handle of the last use.
    by: Vec<u64>,
    /// Pages ahead if the stream has a reader, else 0.
    ahead: Vec<u64>,
}

/// Evicted streams, by the page where their reader is expected: their mark or their end. A ring
/// that replaces the oldest.
#[derive(Clone, Debug)]
struct Parked {
    /// [`NOWHERE`] if the slot is free.
    pages: Vec<u64>,
    /// Lower halves of `pages`, to rule out absent pages faster.
    halves: Vec<u32>,
    ahead: Vec<u64>,
    /// The handle of the last use.
    by: Vec<u64>,
    entries: Vec<Entry>,
    next: usize,
    places: usize,
}

impl Keys {
    fn push(&mut self) {
        for keys in self.all() {
            keys.push(0);
        }
        self.used.push(0);
    }

    /// All but [`used`](Self::used).
    fn all(&mut self) -> [&mut Vec<u64>; 5] {
        [&mut self.lowest, &mut self.span, &mut self.mark, &mut self.by, &mut self.ahead]
    }

    fn set(&mut self, at: usize, entry: &Entry) {
        let (lowest, highest) = entry.zone();
        (self.lowest[at], self.span[at]) = (lowest, (highest - lowest).min(FAR));
        self.mark[at] = entry.mark.unwrap_or(NOWHERE);
        self.ahead[at] = if entry.is_read() { entry.ahead() } else { 0 };
    }

    fn swap_remove(&mut self, at: usize) {
        for keys in self.all() {
            keys.swap_remove(at);
        }
        self.used.swap_remove(at);
    }

    /// The last stream used by a handle.
    fn last_of(&self, reader: u64) -> Option<usize> {
        let used = self.by.iter().zip(&self.used).enumerate().filter(|(_, (by, _))| **by == reader);
        used.max_by_key(|&(_, (_, &used))| used).map(|(at, _)| at)
    }

    /// The least recently used stream, current ones last.
    fn oldest(&self) -> usize {
        // Two vectorized passes are faster than one that carries the index.
        let oldest = self.used.iter().copied().min();
        self.used.iter().position(|&used| Some(used) == oldest).unwrap_or(0)
    }

    /// The streams, in table order, whose zones overlap the pages `lo..=hi`.
    fn near(&self, lo: u64, hi: u64) -> Near<'_> {
        let wide = hi.saturating_sub(lo).min(FAR);
        Near { lowest: &self.lowest, span: &self.span, hi, wide, known: 0, bits: 0 }
    }
}

/// Iterates over nearby streams, 64 at a time.
struct Near<'a> {
    /// Streams not examined yet.
    lowest: &'a [u64],
    span: &'a [u64],
    hi: u64,
    wide: u64,
    /// Number of streams examined, and a bitmap of the nearby ones among the last 64.
    known: usize,
    bits: u64,
}

impl Iterator for Near<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            let streams = self.lowest.len().min(64);
            if streams == 0 {
                return None;
            }
            let (lowest, span);
            (lowest, self.lowest) = self.lowest.split_at(streams);
            (span, self.span) = self.span.split_at(streams);
            let mut bits = 0u64;
            for (&lowest, &span) in lowest.iter().zip(span).rev() {
                // One comparison instead of two: pages before the zone wrap to large distances.
                bits = bits << 1 | u64::from(self.hi.wrapping_sub(lowest) <= span + self.wide);
            }
            // The last stream is the highest bit.
            self.bits = bits << (64 - streams);
            self.known += streams;
        }
        let bit = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(self.known + bit - 64)
    }
}

impl Parked {
    fn new(places: usize) -> Self {
        let (pages, ahead, by) = (Vec::new(), Vec::new(), Vec::new());
        Self { pages, halves: Vec::new(), ahead, by, entries: Vec::new(), next: 0, places }
    }

    fn enter(&mut self, page: u64, entry: &Entry, by: u64) {
        // The later of two streams expected at one page replaces the other.
        self.take(page);
        let at = self.next;
        self.next = if at + 1 < self.places { at + 1 } else { 0 };
        if at == self.entries.len() {
            self.pages.push(NOWHERE);
            self.halves.push(half(NOWHERE));
            self.ahead.push(0);
            self.by.push(by);
            self.entries.push(*entry);
        } else {
            self.entries[at] = *entry;
        }
        (self.pages[at], self.halves[at], self.by[at]) = (page, half(page), by);
        self.ahead[at] = if entry.is_read() { entry.ahead() } else { 0 };
    }

    fn find(&self, page: u64) -> Option<usize> {
        self.halves.contains(&half(page)).then(|| place_of(&self.pages, page)).flatten()
    }

    fn take(&mut self, page: u64) -> Option<Entry> {
        let at = self.find(page)?;
        self.ahead[at] = 0;
        (self.pages[at], self.halves[at]) = (NOWHERE, half(NOWHERE));
        Some(self.entries[at])
    }
}

/// The lower half of a page's number.
const fn half(page: u64) -> u32 {
    page as u32
}

/// First index of `page`, if it is present.
fn place_of(pages: &[u64], page: u64) -> Option<usize> {
    // A vectorized membership test is faster than a search, and usually finds nothing.
    let known = page != NOWHERE && pages.contains(&page);
    known.then(|| pages.iter().position(|&other| other == page)).flatten()
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        let (entries, keys, parked) =
            (Vec::new(), Keys::default(), Parked::new(max * tuning().parked as usize));
        Self {
            entries,
            keys,
            stale: None,
            max,
            clock: 0,
            reader: 0,
            last: None,
            newest: None,
            readers: 0,
            parked,
        }
    }

    /// Sets the handle that reads now.
    pub(super) fn read_by(&mut self, handle: HandleId) {
        let reader = handle.0.into();
        if self.reader != reader {
            self.reader = reader;
            self.last = self.keys.last_of(reader);
        }
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Entry {
        if self.stale != Some(at) {
            self.refresh();
            self.stale = Some(at);
        }
        &mut self.entries[at]
    }

    /// Updates the keys of the stream last borrowed.
    fn refresh(&mut self) {
        if let Some(at) = self.stale.take() {
            self.keys.set(at, &self.entries[at]);
        }
    }

    /// Records a use.
    pub(super) fn touch(&mut self, at: usize) {
        let again = self.newest == Some(at);
        self.get(at).returned |= !again;
        self.use_now(at);
    }

    fn use_now(&mut self, at: usize) {
        if let Some(last) = self.last.filter(|&last| last != at) {
            self.left(last);
        }
        let entry = self.get(at);
        let again = core::mem::replace(&mut entry.current, true);
        self.readers += u64::from(!again);
        let now = self.tick();
        (self.keys.used[at], self.keys.by[at]) = (now | CURRENT, self.reader);
        (self.last, self.newest) = (Some(at), Some(at));
    }

    /// Its reader moved to another stream.
    fn left(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        self.readers -= u64::from(core::mem::take(&mut entry.current));
        self.keys.used[at] &= !CURRENT;
        if !entry.returned {
            self.keys.ahead[at] = 0;
        }
    }

    /// A time later than all others.
    fn tick(&mut self) -> u32 {
        if self.clock + 1 == CURRENT {
            self.count_anew();
        }
        self.clock += 1;
        self.clock
    }

    /// Renumbers the times of uses, in the same order.
    #[cold]
    fn count_anew(&mut self) {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_unstable_by_key(|&at| self.keys.used[at] & !CURRENT);
        for (time, at) in (1..).zip(order) {
            self.keys.used[at] = time | self.keys.used[at] & CURRENT;
        }
        // At most four times 1024 streams.
        self.clock = self.entries.len() as u32;
    }

    /// Index of the last stream used by the reading handle.
    pub(super) fn last_at(&self) -> Option<usize> {
        self.last
    }

    /// The last stream used by the reading handle.
    pub(super) fn last(&mut self) -> Option<&mut Entry> {
        let last = self.last?;
        Some(self.get(last))
    }

    /// Whether another reader began a stream, and none has continued it.
    pub(super) fn is_new_to_reader(&self, at: usize) -> bool {
        self.entries[at].direction == Direction::New && self.keys.by[at] != self.reader
    }

    /// As [`is_new_to_reader`](Self::is_new_to_reader), of the stream that is parked at `lo`, and
    /// continues with a miss of `lo..hi` as in [`joined`](Self::joined).
    pub(super) fn is_parked_new(&self, lo: u64, hi: u64, evicted: &impl Fn() -> bool) -> Option<bool> {
        let at = self.parked.find(lo)?;
        let entry = &self.parked.entries[at];
        let join = entry.join(lo, hi)?;
        let continues = !entry.has_read_ahead(lo, join) || !evicted();
        continues.then(|| entry.direction == Direction::New && self.parked.by[at] != self.reader)
    }

    /// The least recently used stream that `fits`.
    pub(super) fn oldest(&self, fits: impl Fn(&Entry) -> bool) -> Option<usize> {
        let fitting = (0..self.entries.len()).filter(|&at| fits(&self.entries[at]));
        fitting.min_by_key(|&at| self.keys.used[at] & !CURRENT)
    }

    /// The upward stream whose readahead contains `page`: the reading handle's last, or the last of
    /// any handle.
    pub(super) fn continued_at(&self, page: u64) -> Option<usize> {
        let covers = |&at: &usize| self.entries[at].has_ahead(page);
        self.last.filter(covers).or_else(|| self.newest.filter(covers))
    }

    /// The stream that a miss of `lo..hi` continues, and how. If the page at `lo` was used and
    /// evicted, it is not a stream that read this page ahead.
    pub(super) fn joined(&mut self, lo: u64, hi: u64, evicted: &impl Fn() -> bool) -> Option<(usize, Join)> {
        self.refresh();
        let join = |at: usize| {
            let entry = &self.entries[at];
            let join = entry.join(lo, hi)?;
            (!entry.has_read_ahead(lo, join) || !evicted()).then_some((at, join))
        };
        let joins = self.keys.near(lo, hi).filter_map(join);
        joins.min_by_key(|&(at, join)| {
            let entry = &self.entries[at];
            (
                join == Join::Behind,
                join == Join::Down && entry.direction == Direction::New,
                entry.distance_to(lo),
                u32::MAX - self.keys.used[at],
            )
        })
    }

    /// The stream for which pages `lo..hi` were read ahead. Of several, it is a strided one, else
    /// the last used: others may be of earlier passes over the file.
    pub(super) fn filled(&mut self, lo: u64, hi: u64) -> Option<&mut Entry> {
        self.refresh();
        let ahead = |&at: &usize| {
            let entry = &self.entries[at];
            entry.window > 0 && (entry.covers(lo) || entry.covers(hi - 1))
        };
        let last = |&at: &usize| {
            let entry = &self.entries[at];
            let strided = matches!(entry.direction, Direction::Stride(_)) && !entry.over;
            (strided, self.keys.used[at] & !CURRENT)
        };
        let at = self.keys.near(lo, hi - 1).filter(ahead).max_by_key(last)?;
        Some(self.get(at))
    }

    /// A fill of the pages `lo..hi` failed. A stream of which nothing was read is removed.
    #[cold]
    pub(super) fn failed(&mut self, lo: u64, hi: u64) {
        let ahead = |entry: &Entry| entry.window > 0 && (entry.covers(lo) || entry.covers(hi - 1));
        for at in (0..self.entries.len()).rev() {
            if ahead(&self.entries[at]) {
                let entry = self.get(at);
                entry.failed(lo, hi);
                if entry.is_unread() {
                    self.remove(at);
                }
            }
        }
        for (entry, pages) in self.parked.entries.iter_mut().zip(&mut self.parked.ahead) {
            if ahead(entry) {
                entry.failed(lo, hi);
                *pages = (*pages).min(entry.ahead());
            }
        }
    }

    /// The stream that owns the mark at `page`, restored if it was parked.
    pub(super) fn marked(&mut self, page: u64) -> Option<usize> {
        if let Some(last) = self.last
            && self.entries[last].mark == Some(page)
        {
            return Some(last);
        }
        self.refresh();
        let exact = place_of(&self.keys.mark, page);
        exact.or_else(|| self.covering(page)).or_else(|| self.unpark(page))
    }

    /// The stream that has a mark at `page`. One whose readers have passed it is of an earlier pass
    /// over the file, so it is the last choice.
    fn covering(&self, page: u64) -> Option<usize> {
        let covers = |&at: &usize| self.entries[at].covers(page);
        let mut passed = None;
        for at in self.keys.near(page, page).filter(covers) {
            if !self.entries[at].is_past(page) {
                return Some(at);
            }
            passed = passed.or(Some(at));
        }
        self.last.filter(covers).or(passed)
    }

    /// Restores the stream that is parked at `page`.
    pub(super) fn unpark(&mut self, page: u64) -> Option<usize> {
        let parked = self.parked.take(page)?;
        Some(self.insert(Entry { returned: true, current: false, ..parked }).0)
    }

    /// Whether the reader of another stream is within `lo..hi`.
    pub(super) fn any_up_to(&mut self, at: usize, lo: u64, hi: u64) -> bool {
        self.refresh();
        let mut others = self.keys.near(lo, hi).filter(|&other| other != at);
        others.any(|other| (lo..hi).contains(&self.entries[other].hi))
    }

    /// Index of the stream that begins at `lo`.
    pub(super) fn begun_at(&mut self, lo: u64) -> Option<usize> {
        self.refresh();
        self.keys.near(lo, lo).find(|&at| self.entries[at].lo == lo)
    }

    /// Enters a stream, in place of the least recently used one if the table is full. Returns its
    /// index, and the direction and proof of the evicted stream.
    pub(super) fn insert(&mut self, entry: Entry) -> (usize, Option<(Direction, u8)>) {
        self.refresh();
        let readers_only =
            self.entries.len() < self.max * tuning().readers as usize && self.readers() >= self.max as u64;
        let (at, gone) = if self.entries.len() < self.max || readers_only {
            self.entries.push(entry);
            self.keys.push();
            (self.entries.len() - 1, None)
        } else {
            let at = self.keys.oldest();
            let gone = self.entries[at];
            self.readers -= u64::from(gone.current);
            self.park(&gone, self.keys.by[at]);
            self.entries[at] = entry;
            (at, Some((gone.direction, gone.proven)))
        };
        self.use_now(at);
        (at, gone)
    }

    /// Unread readahead of the streams that have a reader, at most `most` pages of each. As far as
    /// the table can tell, those are each reader's last stream and streams that readers returned
    /// to.
    pub(super) fn ahead(&mut self, most: u64) -> u64 {
        self.refresh();
        let keys = self.keys.ahead.iter().chain(&self.parked.ahead);
        keys.map(|&ahead| ahead.min(most)).sum()
    }

    /// Number of active readers: handles whose last stream is in the table.
    pub(super) fn readers(&self) -> u64 {
        self.readers
    }

    /// Removes a stream. The last one moves to its index.
    fn remove(&mut self, at: usize) -> Entry {
        self.refresh();
        self.keys.swap_remove(at);
        let gone = self.entries.swap_remove(at);
        self.readers -= u64::from(gone.current);
        let moved = |last| match last {
            Some(last) if last == at => None,
            Some(last) if last == self.entries.len() => Some(at),
            last => last,
        };
        (self.last, self.newest) = (moved(self.last), moved(self.newest));
        gone
    }

    /// Merges the stream at `at` with those that begin at its end. Returns its new index, and the
    /// start of the last one merged.
    pub(super) fn close_gaps(&mut self, at: usize) -> (usize, Option<u64>) {
        let (mut at, mut joined) = (at, None);
        while let Some(next) = self.touching(at) {
            let other = self.remove(next);
            joined = Some(other.lo);
            if at == self.entries.len() {
                at = next;
            }
            let entry = self.get(at);
            if entry.direction == Direction::Down {
                entry.lo = other.lo;
                entry.edge = entry.edge.min(other.lo);
            } else {
                entry.hi = other.hi;
                if other.edge > entry.edge {
                    (entry.edge, entry.mark) = (other.edge, other.mark.or(entry.mark));
                }
            }
            entry.consumed = entry.consumed.saturating_add(other.consumed);
            entry.window = entry.window.max(other.window);
            entry.distance = entry.distance.max(other.distance);
        }
        (at, joined)
    }

    /// A stream that the one at `at` has reached. One that began before it, and covers it, is of an
    /// earlier pass over the file.
    fn touching(&mut self, at: usize) -> Option<usize> {
        self.refresh();
        let entry = &self.entries[at];
        let upward = |other: &Entry| {
            matches!(other.direction, Direction::New | Direction::Up)
                && entry.lo < other.lo
                && other.lo <= entry.hi
                && entry.hi < other.hi
        };
        let downward = |other: &Entry| {
            other.direction == Direction::New
                && other.hi >= entry.lo
                && entry.lo > other.lo
                && other.window == 0
        };
        let (page, meets): (u64, &dyn Fn(&Entry) -> bool) = match entry.direction {
            Direction::Up => (entry.hi, &upward),
            Direction::Down => (entry.lo, &downward),
            _ => return None,
        };
        self.keys.near(page, page).find(|&other| other != at && meets(&self.entries[other]))
    }

    fn park(&mut self, entry: &Entry, by: u64) {
        let upward = matches!(entry.direction, Direction::New | Direction::Up);
        let expected = match entry.next_mark() {
            _ if entry.ahead() == 0 => upward.then_some(entry.hi),
            None => upward.then_some(entry.tripwire.unwrap_or(entry.edge)),
            mark => mark,
        };
        if let Some(page) = expected {
            self.parked.enter(page, entry, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_stream_is_evicted_after_times_wrap() {
        let mut table = Table::new(3);
        for stream in 0..3 {
            table.insert(Entry::new(1000 * stream, 1000 * stream + 1));
        }
        table.clock = CURRENT - 2;
        table.touch(1);
        table.touch(0);
        assert!(table.clock < 10, "counted anew");
        // The order of uses was 2, 1, 0.
        for gone in [2, 1, 0] {
            let (at, _) = table.insert(Entry::new(100_000 + gone, 100_001 + gone));
            assert_eq!(at as u64, gone);
        }
    }

    #[test]
    fn near_finds_exactly_the_overlapping_zones() {
        let mut keys = Keys::default();
        for (at, (lowest, span)) in [(0, 0), (10, 5), (1 << 60, 1 << 20), (0, FAR)].into_iter().enumerate() {
            keys.push();
            (keys.lowest[at], keys.span[at]) = (lowest, span);
        }
        let near = |lo, hi| keys.near(lo, hi).collect::<Vec<_>>();
        assert_eq!(near(0, 0), [0, 3]);
        assert_eq!(near(9, 9), [3]);
        assert_eq!(near(9, 10), [1, 3]);
        assert_eq!(near(15, 20), [1, 3]);
        assert_eq!(near(16, 20), [3]);
        assert_eq!(near(1 << 59, 1 << 61), [2, 3]);
        assert_eq!(near((1 << 60) + (1 << 20) + 1, 1 << 61), [3]);
    }
}
