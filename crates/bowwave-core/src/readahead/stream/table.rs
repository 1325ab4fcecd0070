//! The streams of a file, and to which of them an access belongs.
//!
//! A decision has a fraction of a microsecond, so nothing here looks at every stream. Beside the streams lie a few words of
//! each, by kind, in flat arrays ([`Keys`]): where accesses may belong to it, its mark, when it was used. Those are searched,
//! and only the few streams that they name are looked at.

use alloc::vec::Vec;

use super::entry::{Entry, Join, Way};
use crate::id::HandleId;

/// For each stream of the table, so many that are remembered only by the page that they are expected at.
const PARKED: usize = 2;
/// As many times the streams of the table are there if each is what a reader of its own used last.
const READERS: usize = 4;
/// Later than anything that is not.
const CURRENT: u64 = 1 << 63;
/// No page.
const NOWHERE: u64 = u64::MAX;

/// The streams of a file, and those that had to go.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    keys: Keys,
    /// The stream that was handed out last to be changed: its keys may not be right.
    stale: Option<usize>,
    max: usize,
    clock: u64,
    /// Who reads now.
    reader: u64,
    /// The stream used last by who reads now, if it is still there.
    last: Option<usize>,
    /// The stream used last by anybody, if it is still there.
    newest: Option<usize>,
    /// Streams that are what their reader used last.
    readers: u64,
    parked: Parked,
}

/// What streams are searched by, one of each for a stream.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// First and last page of [`Entry::zone`].
    lowest: Vec<u64>,
    highest: Vec<u64>,
    /// [`NOWHERE`] if there is none.
    mark: Vec<u64>,
    /// When, and [`CURRENT`] if its reader has used nothing else since.
    used: Vec<u64>,
    /// By which handle.
    by: Vec<u64>,
    /// Pages ahead of it if it is still read, else 0.
    ahead: Vec<u64>,
}

/// Streams that had to go, by the page that they are expected at: their mark, or where they end. A ring: the one that has
/// been here longest has to make room.
#[derive(Clone, Debug)]
struct Parked {
    /// [`NOWHERE`] if the place is free.
    pages: Vec<u64>,
    ahead: Vec<u64>,
    entries: Vec<Entry>,
    next: usize,
    places: usize,
}

impl Keys {
    fn push(&mut self) {
        for keys in self.all() {
            keys.push(0);
        }
    }

    fn all(&mut self) -> [&mut Vec<u64>; 6] {
        [&mut self.lowest, &mut self.highest, &mut self.mark, &mut self.used, &mut self.by, &mut self.ahead]
    }

    fn set(&mut self, at: usize, entry: &Entry) {
        (self.lowest[at], self.highest[at]) = entry.zone();
        self.mark[at] = entry.mark.unwrap_or(NOWHERE);
        self.ahead[at] = if entry.is_read() { entry.ahead() } else { 0 };
    }

    fn swap_remove(&mut self, at: usize) {
        for keys in self.all() {
            keys.swap_remove(at);
        }
    }

    /// The stream that a handle used last.
    fn last_of(&self, reader: u64) -> Option<usize> {
        let used = self.by.iter().zip(&self.used).enumerate().filter(|(_, (by, _))| **by == reader);
        used.max_by_key(|&(_, (_, &used))| used).map(|(at, _)| at)
    }

    /// The stream used least recently, if there is one of those that are not what their reader used last, or of all.
    fn oldest(&self) -> usize {
        let oldest = self.used.iter().enumerate().min_by_key(|&(_, &used)| used);
        oldest.map_or(0, |(at, _)| at)
    }

    /// The streams, in order, whose zones the pages `lo..=hi` touch.
    fn near(&self, lo: u64, hi: u64) -> impl Iterator<Item = usize> {
        let zones = self.lowest.chunks(64).zip(self.highest.chunks(64)).enumerate();
        zones.flat_map(move |(chunk, (lowest, highest))| {
            let mut bits = 0u64;
            for (at, (&lowest, &highest)) in lowest.iter().zip(highest).enumerate() {
                bits |= u64::from((lowest <= hi) & (lo <= highest)) << at;
            }
            Bits(bits).map(move |bit| chunk * 64 + bit)
        })
    }
}

/// The places of the bits that are set, from the lowest.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    }
}

impl Parked {
    fn new(places: usize) -> Self {
        Self { pages: Vec::new(), ahead: Vec::new(), entries: Vec::new(), next: 0, places }
    }

    fn enter(&mut self, page: u64, entry: Entry) {
        // Of two that are expected at one page the later one knows better.
        self.take(page);
        let at = self.next;
        self.next = if at + 1 < self.places { at + 1 } else { 0 };
        if at == self.entries.len() {
            self.pages.push(NOWHERE);
            self.ahead.push(0);
            self.entries.push(entry);
        }
        self.pages[at] = page;
        self.ahead[at] = if entry.is_read() { entry.ahead() } else { 0 };
        self.entries[at] = entry;
    }

    fn take(&mut self, page: u64) -> Option<Entry> {
        let at = place_of(&self.pages, page)?;
        self.ahead[at] = 0;
        self.pages[at] = NOWHERE;
        Some(self.entries[at])
    }
}

/// The first place of `page`, which is somewhere.
fn place_of(pages: &[u64], page: u64) -> Option<usize> {
    // Looking at several at once is quicker than looking for the place, and most often there is none.
    let known = page != NOWHERE && pages.contains(&page);
    known.then(|| pages.iter().position(|&other| other == page)).flatten()
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        let (entries, keys, parked) = (Vec::new(), Keys::default(), Parked::new(max * PARKED));
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

    /// From now on it is this handle that reads.
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

    /// Has the keys of the stream that may have changed say what it says.
    fn refresh(&mut self) {
        if let Some(at) = self.stale.take() {
            self.keys.set(at, &self.entries[at]);
        }
    }

    /// Counts a use.
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
        self.clock += 1;
        (self.keys.used[at], self.keys.by[at]) = (self.clock | CURRENT, self.reader);
        (self.last, self.newest) = (Some(at), Some(at));
    }

    /// Its reader has gone on to another.
    fn left(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        self.readers -= u64::from(core::mem::take(&mut entry.current));
        self.keys.used[at] &= !CURRENT;
        if !entry.returned {
            self.keys.ahead[at] = 0;
        }
    }

    /// The place of the stream used last by who reads now.
    pub(super) fn last_at(&self) -> Option<usize> {
        self.last
    }

    /// The stream used last by who reads now.
    pub(super) fn last(&mut self) -> Option<&mut Entry> {
        let last = self.last?;
        Some(self.get(last))
    }

    /// The stream that is read upward and read ahead at `page`, if it is the one that who reads now used last, or anybody.
    pub(super) fn gone_on(&mut self, page: u64) -> Option<&mut Entry> {
        let covers = |&at: &usize| {
            let entry = &self.entries[at];
            matches!(entry.way, Way::New | Way::Up) && (entry.hi..entry.edge).contains(&page)
        };
        let at = self.last.filter(covers).or_else(|| self.newest.filter(covers))?;
        Some(self.get(at))
    }

    /// The stream that a miss of `lo..hi` goes on with, and how.
    pub(super) fn joined(&mut self, lo: u64, hi: u64) -> Option<(usize, Join)> {
        self.refresh();
        let joins = self.keys.near(lo, hi).filter_map(|at| Some((at, self.entries[at].join(lo, hi)?)));
        joins.min_by_key(|&(at, join)| {
            let entry = &self.entries[at];
            (
                join == Join::Behind,
                join == Join::Down && entry.way == Way::New,
                entry.distance_to(lo),
                u64::MAX - self.keys.used[at],
            )
        })
    }

    /// The stream that pages `lo..hi` were read ahead for.
    pub(super) fn filled(&mut self, lo: u64, hi: u64) -> Option<&mut Entry> {
        self.refresh();
        let ahead = |&at: &usize| {
            let entry = &self.entries[at];
            entry.window > 0 && (entry.covers(lo) || entry.covers(hi - 1))
        };
        let at = self.keys.near(lo, hi - 1).find(ahead)?;
        Some(self.get(at))
    }

    /// The stream that a mark at `page` is of: one in the table, or one that only its mark remembers.
    pub(super) fn marked(&mut self, page: u64) -> Option<usize> {
        if let Some(last) = self.last
            && self.entries[last].mark == Some(page)
        {
            return Some(last);
        }
        self.refresh();
        let exact = place_of(&self.keys.mark, page);
        let covers = |&at: &usize| self.entries[at].covers(page);
        exact.or_else(|| self.keys.near(page, page).find(covers)).or_else(|| self.unpark(page))
    }

    /// Brings back a stream that is expected at `page`.
    pub(super) fn unpark(&mut self, page: u64) -> Option<usize> {
        let parked = self.parked.take(page)?;
        Some(self.insert(Entry { returned: true, current: false, ..parked }).0)
    }

    /// Whether a stream other than that at `at` has come to somewhere in `lo..hi`.
    pub(super) fn any_up_to(&mut self, at: usize, lo: u64, hi: u64) -> bool {
        self.refresh();
        let mut others = self.keys.near(lo, hi).filter(|&other| other != at);
        others.any(|other| (lo..hi).contains(&self.entries[other].hi))
    }

    /// The place of the stream that begins or began at `lo`.
    pub(super) fn begun_at(&mut self, lo: u64) -> Option<usize> {
        self.refresh();
        self.keys.near(lo, lo).find(|&at| self.entries[at].lo == lo)
    }

    /// Enters a stream, in place of the one used least recently if there are too many, which is returned.
    pub(super) fn insert(&mut self, entry: Entry) -> (usize, Option<Entry>) {
        self.refresh();
        let readers_only = self.entries.len() < self.max * READERS && self.readers() >= self.max as u64;
        let (at, gone) = if self.entries.len() < self.max || readers_only {
            self.entries.push(entry);
            self.keys.push();
            (self.entries.len() - 1, None)
        } else {
            let at = self.keys.oldest();
            let gone = core::mem::replace(&mut self.entries[at], entry);
            self.readers -= u64::from(gone.current);
            self.park(gone);
            (at, Some(gone))
        };
        self.use_now(at);
        (at, gone)
    }

    /// Pages ahead of the streams that are still read, as far as one can tell: the last one of each reader, and those that were
    /// come back to. Of each no more than `most`.
    pub(super) fn ahead(&mut self, most: u64) -> u64 {
        self.refresh();
        let keys = self.keys.ahead.iter().chain(&self.parked.ahead);
        keys.map(|&ahead| ahead.min(most)).sum()
    }

    /// Who reads at present: the handles whose last stream is here.
    pub(super) fn readers(&self) -> u64 {
        self.readers
    }

    /// Forgets a stream. The last one takes its place.
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

    /// Joins the stream at `at` with those that begin where it has come to; its place now.
    pub(super) fn close_gaps(&mut self, at: usize) -> usize {
        let mut at = at;
        while let Some(next) = self.touching(at) {
            let other = self.remove(next);
            if at == self.entries.len() {
                at = next;
            }
            let entry = self.get(at);
            if entry.way == Way::Down {
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
        at
    }

    /// A run that the stream at `at` has come up to.
    fn touching(&mut self, at: usize) -> Option<usize> {
        self.refresh();
        let entry = &self.entries[at];
        let upward = |other: &Entry| {
            matches!(other.way, Way::New | Way::Up) && other.lo <= entry.hi && entry.hi < other.hi
        };
        let downward = |other: &Entry| {
            other.way == Way::New && other.hi >= entry.lo && entry.lo > other.lo && other.window == 0
        };
        let (page, meets): (u64, &dyn Fn(&Entry) -> bool) = match entry.way {
            Way::Up => (entry.hi, &upward),
            Way::Down => (entry.lo, &downward),
            _ => return None,
        };
        self.keys.near(page, page).find(|&other| other != at && meets(&self.entries[other]))
    }

    fn park(&mut self, entry: Entry) {
        let upward = matches!(entry.way, Way::New | Way::Up);
        let expected = match entry.next_mark() {
            _ if entry.ahead() == 0 => upward.then_some(entry.hi),
            None => upward.then_some(entry.tripwire.unwrap_or(entry.edge)),
            mark => mark,
        };
        if let Some(page) = expected {
            self.parked.enter(page, entry);
        }
    }
}
