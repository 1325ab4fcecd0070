//! Write-back: dirty pages go to the store in file order, one slice of each file in turn; a sync
//! writes all of them at once.
//!
//! ```text
//!              write                write-out, or sync               written
//!     clean ──────────► dirty ────────────────────────► in flight ────────► clean
//!       ▲                 ▲                               │    │ written again: the page is dirty in
//!       └── discarded ────┴──────────── failed ───────────┘    ▼ another frame, written out after this ends
//! ```
//!
//! The cache pins pages that are dirty or in flight, so reclaim does not take them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Cache;
use super::frames::{Flag, State};
use super::pages::PageSet;
use super::table::Slot;
use super::write::StalledWrite;
use crate::event::{Action, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FrameId, Waiter, WriteOutId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::slab::Slab;
use crate::time::Instant;
use crate::write::{SyncFor, WriteOut};

/// Pages written back from one file before the next one's turn: 4 MiB, as Linux
/// (`MIN_WRITEBACK_PAGES`). Smaller slices make a disk seek between files.
const SLICE_PAGES: u64 = 1024;

/// Unwritten data of all files.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// Dirty pages of all files.
    dirty: u64,
    /// Pages in flight to the store.
    going: u64,
    outs: Slab<Option<OutState>>,
    syncs: Slab<Option<SyncState>>,
    /// Files with dirty pages, the one whose turn it is in front.
    queue: VecDeque<FileId>,
    /// Pages of the current slice written from the file in front.
    slice: u64,
    /// Stalled writes, oldest first.
    pub(super) stalled: VecDeque<StalledWrite>,
    last_error: Option<FillError>,
}

/// Unwritten data of a file.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    dirty: PageSet,
    /// In flight to the store. A page may also be dirty, in another frame.
    going: PageSet,
    /// When the first page became dirty, or the last write-out failed.
    since: Instant,
    /// Where write-back continues.
    cursor: PageIndex,
    /// All dirty pages must be written back, however few.
    due: bool,
    /// The store rejected the last write-out. Write-back skips the file until it is due; syncs do
    /// not.
    failing: Option<FillError>,
}

#[derive(Debug)]
struct OutState {
    file: FileId,
    range: PageRange,
    urgency: Urgency,
    /// In page order, each pinned.
    frames: Vec<FrameId>,
}

/// A sync that waits until the store has some pages.
#[derive(Debug)]
struct SyncState {
    waiter: Waiter,
    file: FileId,
    /// Pages that the store does not have yet.
    left: PageSet,
    /// Pages of `left` that were written again in flight, and need another write-out.
    again: PageSet,
    /// Urgency of its write-outs.
    urgency: Urgency,
    error: Option<FillError>,
}

impl WriteBack {
    /// Pages that the store does not have.
    pub(super) fn unwritten(&self) -> u64 {
        self.dirty + self.going
    }
}

impl Cache {
    /// A write-out ended: the store has its frames' bytes, or it failed. Failed pages stay dirty; a
    /// sync retries them, or write-back after [`expire_ns`](crate::WriteBackConfig::expire_ns). The
    /// driver retries on the store's behalf. After [`FillError::ABANDONED`] the frames stay
    /// unchanged until the driver unpins them; writes to their pages get other frames.
    ///
    /// Completions of write-outs that are not in flight are ignored.
    pub fn written_out(
        &mut self,
        now: Instant,
        id: WriteOutId,
        result: Result<(), FillError>,
        out: &mut Vec<Action>,
    ) {
        self.tick(now);
        let Some(state) = self.write_back.outs.remove(id.0) else {
            debug_assert!(false, "write-out {} is not in flight", id.0);
            return;
        };
        let pages = state.frames.len() as u64;
        self.write_back.going -= pages;
        let stats = self.stats_mut(state.file);
        match result {
            Ok(()) => stats.pages_written += pages,
            Err(error) => {
                stats.write_outs_failed += 1;
                self.write_back.last_error = Some(error);
            }
        }
        for (&frame, page) in state.frames.iter().zip(state.range.start.0..) {
            if result == Err(FillError::ABANDONED) {
                self.frames.pin(frame);
            }
            self.come_back(state.file, PageIndex(page), frame, result.is_err());
        }
        if let Some(unwritten) = self.unwritten_mut(state.file) {
            unwritten.failing = result.err();
            if result.is_err() {
                (unwritten.since, unwritten.due) = (now, false);
            }
        }
        self.forget_if_clean(state.file);
        self.end_syncs(&state, result.err(), out);
        self.retry_starved(out);
        self.write_back(out);
    }

    /// Requires that the store has what was written to pages of a file; `why` decides the urgency.
    /// Returns [`ReadOutcome::Hit`] if it has. Otherwise exactly one [`Action::Wake`] without
    /// frames follows, with the error of the last failed write-out if there is one. The driver
    /// flushes the store itself.
    ///
    /// # Panics
    /// If the file is not open.
    pub fn sync(
        &mut self,
        now: Instant,
        waiter: Waiter,
        file: FileId,
        range: PageRange,
        why: SyncFor,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        self.tick(now);
        let Some(unwritten) = self.file(file).unwritten.as_deref() else { return ReadOutcome::Hit };
        let (left, again, error) = (PageSet::default(), PageSet::default(), None);
        let mut sync = SyncState { waiter, file, left, again, urgency: Urgency::Demand, error };
        for page in unwritten.going.within(range) {
            sync.left.insert(page);
        }
        for page in unwritten.dirty.within(range) {
            if !sync.left.insert(page) {
                sync.again.insert(page);
            }
        }
        if sync.left.is_empty() {
            return ReadOutcome::Hit;
        }
        if why == SyncFor::Close && sync.left.len() > self.config.write_back.out_pages_max.into() {
            sync.urgency = Urgency::Readahead;
        }
        let mut page = range.start;
        while let Some(run) = self.next_run(file, page).filter(|run| run.start < range.end) {
            let run = run.intersect(range);
            page = run.end;
            self.start_write_out(file, run, sync.urgency, out);
        }
        if sync.urgency == Urgency::Demand {
            self.promote_write_outs(file, range, out);
        }
        self.write_back.syncs.insert_keyed(sync);
        self.forget_if_clean(file);
        ReadOutcome::Wait
    }

    /// Discards written pages that are not in the store, because the file is truncated or removed.
    /// Returns [`ReadOutcome::Wait`] if some are in flight: exactly one [`Action::Wake`] without
    /// frames follows when they have ended.
    ///
    /// # Panics
    /// If the file is not open.
    pub fn discard(
        &mut self,
        now: Instant,
        waiter: Waiter,
        file: FileId,
        range: PageRange,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        self.tick(now);
        self.discard_pages(file, range);
        let mut left = PageSet::default();
        if let Some(unwritten) = self.unwritten_mut(file) {
            unwritten.going.within(range).for_each(|page| {
                left.insert(page);
            });
        }
        self.forget_if_clean(file);
        let outcome = if left.is_empty() {
            ReadOutcome::Hit
        } else {
            self.promote_write_outs(file, range, out);
            let (again, urgency, error) = (PageSet::default(), Urgency::Demand, None);
            self.write_back.syncs.insert_keyed(SyncState { waiter, file, left, again, urgency, error });
            ReadOutcome::Wait
        };
        self.retry_starved(out);
        outcome
    }

    /// Writes back files that have been dirty for long, or whose write-out failed long ago.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.tick(now);
        let expire_ns = self.config.write_back.expire_ns;
        let Self { files, write_back, .. } = self;
        for &id in &write_back.queue {
            let unwritten = files[id.0 as usize].as_mut().and_then(|file| file.unwritten.as_deref_mut());
            if let Some(unwritten) = unwritten.filter(|it| it.since.0.saturating_add(expire_ns) <= now.0) {
                (unwritten.due, unwritten.failing) = (true, None);
            }
        }
        self.write_back(out);
    }

    /// When to call [`expire`](Self::expire) next, if dirty pages exist that are not due.
    pub fn next_expiry(&self) -> Option<Instant> {
        let dirty = self.write_back.queue.iter().filter_map(|&file| self.file(file).unwritten.as_deref());
        let first = dirty.filter(|unwritten| !unwritten.due).map(|unwritten| unwritten.since.0).min()?;
        Some(Instant(first.saturating_add(self.config.write_back.expire_ns)))
    }

    /// The frames of a write-out in flight, in page order. Their contents do not change until it
    /// ends.
    pub fn write_out_frames(&self, id: WriteOutId) -> &[FrameId] {
        self.write_back.outs.get(id.0).map_or(&[], |state| &state.frames)
    }

    /// Pages of a file that the store does not have.
    pub fn unwritten_pages(&self, file: FileId) -> PageCount {
        let unwritten = self.file(file).unwritten.as_deref();
        PageCount(unwritten.map_or(0, |unwritten| unwritten.dirty.len() + unwritten.going.len()))
    }

    /// Dirty pages of all files, and pages in flight to the store.
    pub fn pages_unwritten(&self) -> (u64, u64) {
        (self.write_back.dirty, self.write_back.going)
    }

    /// Stalled writes.
    pub fn writes_stalled(&self) -> usize {
        self.write_back.stalled.len()
    }

    /// Starts write-back as needed: beyond the background limit, of due files, and of all files if
    /// a writer is stalled.
    pub(super) fn write_back(&mut self, out: &mut Vec<Action>) {
        if self.write_back.dirty == 0 {
            return;
        }
        let pressed = !self.starved.is_empty() || !self.write_back.stalled.is_empty();
        let background = if pressed {
            0
        } else {
            self.dirty_limit().div_ceil(2).min(self.config.write_back.background.into())
        };
        while self.write_back.going < u64::from(self.config.write_back.in_flight_max) {
            let only_due = self.write_back.dirty <= background;
            let Some((file, run)) = self.next_turn(only_due) else { return };
            let pages = run.count().0;
            self.start_write_out(file, run, Urgency::Readahead, out);
            self.write_back.slice += pages;
            if let Some(unwritten) = self.unwritten_mut(file) {
                unwritten.cursor = run.end;
            }
            if self.write_back.slice >= SLICE_PAGES {
                self.write_back.slice = 0;
                self.write_back.queue.rotate_left(1);
            }
        }
    }

    /// Moves the next file to write back to the front; returns it and the pages to write.
    fn next_turn(&mut self, only_due: bool) -> Option<(FileId, PageRange)> {
        for _ in 0..self.write_back.queue.len() {
            let &file = self.write_back.queue.front()?;
            let unwritten = self.file(file).unwritten.as_deref();
            let wanted = unwritten.is_some_and(|it| it.failing.is_none() && (it.due || !only_due));
            if wanted {
                let cursor = unwritten.map_or(PageIndex(0), |it| it.cursor);
                let run = self.next_run(file, cursor).or_else(|| self.next_run(file, PageIndex(0)));
                if let Some(run) = run {
                    return Some((file, run));
                }
            }
            self.write_back.slice = 0;
            self.write_back.queue.rotate_left(1);
        }
        None
    }

    /// The first run of dirty pages at or after `from` of which none is in flight.
    fn next_run(&self, file: FileId, from: PageIndex) -> Option<PageRange> {
        let unwritten = self.file(file).unwritten.as_deref()?;
        let mut at = from;
        loop {
            let run = unwritten.dirty.run_from(at, self.config.write_back.out_pages_max.into())?;
            let going = |page: &PageIndex| unwritten.going.contains(*page);
            if unwritten.going.is_empty() {
                return Some(run);
            }
            let pages = || (run.start.0..run.end.0).map(PageIndex);
            if let Some(start) = pages().find(|page| !going(page)) {
                let end = pages().find(|page| *page > start && going(page)).unwrap_or(run.end);
                return Some(PageRange { start, end });
            }
            at = run.end;
        }
    }

    /// Requests a write-out of dirty pages, none of which is in flight.
    fn start_write_out(&mut self, file: FileId, range: PageRange, urgency: Urgency, out: &mut Vec<Action>) {
        let mut frames = Vec::with_capacity(range.count().0 as usize);
        for page in (range.start.0..range.end.0).map(PageIndex) {
            let frame = self.table.get(file, page).frame().expect("a dirty page is in the table");
            let entry = self.frames.get_mut(frame);
            entry.take(Flag::Dirty);
            entry.set(Flag::Writing);
            frames.push(frame);
            let unwritten = self.unwritten_mut(file).expect("it has dirty pages");
            unwritten.dirty.remove(page);
            unwritten.going.insert(page);
        }
        let now = self.now;
        if let Some(unwritten) = self.unwritten_mut(file).filter(|unwritten| unwritten.dirty.is_empty()) {
            (unwritten.since, unwritten.due) = (now, false);
        }
        let pages = range.count().0;
        self.write_back.dirty -= pages;
        self.write_back.going += pages;
        self.stats_mut(file).write_outs += 1;
        let id = WriteOutId(self.write_back.outs.insert_keyed(OutState { file, range, urgency, frames }));
        out.push(Action::WriteOut(WriteOut { id, file, range, urgency }));
    }

    fn promote_write_outs(&mut self, file: FileId, range: PageRange, out: &mut Vec<Action>) {
        for (id, state) in self.write_back.outs.iter_mut() {
            let waited_for = state.file == file && !state.range.intersect(range).is_empty();
            if waited_for && state.urgency == Urgency::Readahead {
                state.urgency = Urgency::Demand;
                out.push(Action::PromoteWrite { id: WriteOutId(id) });
            }
        }
    }

    /// A page's write-out ended.
    fn come_back(&mut self, file: FileId, page: PageIndex, frame: FrameId, failed: bool) {
        let entry = self.frames.get_mut(frame);
        entry.take(Flag::Writing);
        let still_wanted = entry.state != State::Doomed;
        let again = failed && still_wanted;
        if again {
            entry.set(Flag::Dirty);
        }
        if let Some(unwritten) = self.unwritten_mut(file) {
            unwritten.going.remove(page);
            if again {
                unwritten.dirty.insert(page);
                self.write_back.dirty += 1;
            }
        }
        if !again {
            self.drop_pins([frame]);
        }
    }

    /// Marks a page dirty.
    pub(super) fn make_dirty(&mut self, file: FileId, page: PageIndex, frame: FrameId) {
        if !self.frames.get(frame).has(Flag::Dirty) {
            self.frames.get_mut(frame).set(Flag::Dirty);
            self.frames.pin(frame);
        }
        let now = self.now;
        let queue = &mut self.write_back.queue;
        let entry = self.files[file.0 as usize].as_mut().expect("the driver names open files only");
        let unwritten = entry.unwritten.get_or_insert_with(|| {
            queue.push_back(file);
            Box::new(Unwritten { since: now, ..Unwritten::default() })
        });
        if unwritten.dirty.insert(page) {
            self.write_back.dirty += 1;
            entry.stats.pages_dirtied += 1;
        }
    }

    /// Discards unwritten pages. Pages in flight follow when their write-out ends.
    pub(super) fn discard_pages(&mut self, file: FileId, range: PageRange) {
        let Some(unwritten) = self.unwritten_mut(file) else { return };
        let dirty: Vec<PageIndex> = unwritten.dirty.within(range).collect();
        let going: Vec<PageIndex> = unwritten.going.within(range).collect();
        for &page in &dirty {
            unwritten.dirty.remove(page);
        }
        self.write_back.dirty -= dirty.len() as u64;
        self.stats_mut(file).pages_discarded += dirty.len() as u64;
        for page in dirty.into_iter().chain(going) {
            let Some(frame) = self.table.get(file, page).frame() else { continue };
            let entry = self.frames.get_mut(frame);
            let was_dirty = entry.take(Flag::Dirty);
            if !was_dirty && !entry.has(Flag::Writing) {
                continue;
            }
            self.doom(frame);
            self.table.set(file, page, Slot::EMPTY);
            if was_dirty {
                self.drop_pins([frame]);
            }
        }
    }

    /// Forgets a file's dirty state once it is clean.
    pub(super) fn forget_if_clean(&mut self, file: FileId) {
        let Some(Some(entry)) = self.files.get_mut(file.0 as usize) else { return };
        let clean = entry.unwritten.as_deref().is_some_and(|it| it.dirty.is_empty() && it.going.is_empty());
        if clean {
            entry.unwritten = None;
            let queue = &mut self.write_back.queue;
            if queue.front() == Some(&file) {
                self.write_back.slice = 0;
            }
            queue.retain(|&other| other != file);
        }
    }

    /// Forgets a file with its unwritten pages and its syncs.
    pub(super) fn forget_unwritten(&mut self, file: FileId) {
        self.discard_pages(file, PageRange::new(0, u64::MAX));
        if let Some(unwritten) = self.unwritten_mut(file) {
            unwritten.going.clear();
        }
        self.forget_if_clean(file);
    }

    /// Whether write-back will free memory.
    pub(super) fn can_write_back(&self) -> bool {
        let works = |file: &FileId| {
            self.file(*file)
                .unwritten
                .as_deref()
                .is_some_and(|it| it.failing.is_none() && !it.dirty.is_empty())
        };
        self.write_back.going > 0 || self.write_back.queue.iter().any(works)
    }

    /// Why it will not: the file's own error, if there is one.
    pub(super) fn why_not(&self, file: FileId) -> FillError {
        let own = self.files[file.0 as usize].as_ref().and_then(|file| file.unwritten.as_deref()?.failing);
        own.or(self.write_back.last_error).unwrap_or(FillError::CLOSED)
    }

    /// Reports the end of a write-out to the syncs that wait for its pages.
    fn end_syncs(&mut self, ended: &OutState, error: Option<FillError>, out: &mut Vec<Action>) {
        let mut again = PageSet::default();
        let mut urgency = Urgency::Readahead;
        let pages = || (ended.range.start.0..ended.range.end.0).map(PageIndex);
        let Self { files, write_back, .. } = self;
        let unwritten = files.get(ended.file.0 as usize).and_then(|file| file.as_ref()?.unwritten.as_deref());
        let mut done = Vec::new();
        for (id, sync) in write_back.syncs.iter_mut().filter(|(_, sync)| sync.file == ended.file) {
            for page in pages() {
                if !sync.left.contains(page) {
                    continue;
                }
                // Written again in flight: needs another write-out unless it was discarded
                // meanwhile.
                let goes_again = sync.again.remove(page)
                    && error.is_none()
                    && unwritten.is_some_and(|unwritten| unwritten.dirty.contains(page));
                if goes_again {
                    again.insert(page);
                    if sync.urgency == Urgency::Demand {
                        urgency = Urgency::Demand;
                    }
                } else {
                    sync.left.remove(page);
                    sync.error = sync.error.or(error);
                }
            }
            if sync.left.is_empty() {
                done.push(id);
            }
        }
        let mut from = PageIndex(0);
        while let Some(run) = again.run_from(from, self.config.write_back.out_pages_max.into()) {
            self.start_write_out(ended.file, run, urgency, out);
            from = run.end;
        }
        for id in done {
            if let Some(sync) = self.write_back.syncs.remove(id) {
                let result = sync.error.map_or_else(|| Ok(Vec::new()), Err);
                out.push(Action::Wake { waiter: sync.waiter, result });
            }
        }
    }

    /// Whether a page is listed as dirty.
    pub(super) fn is_dirty(&self, file: FileId, page: PageIndex) -> bool {
        let file = self.files.get(file.0 as usize).and_then(Option::as_ref);
        file.and_then(|file| file.unwritten.as_deref()).is_some_and(|it| it.dirty.contains(page))
    }

    /// Pages listed as dirty, and frames of write-outs, for checks.
    pub(super) fn listed_unwritten(&self) -> (u64, u64) {
        let dirty = self.files.iter().flatten().filter_map(|file| file.unwritten.as_deref());
        let going = self.write_back.outs.iter().map(|(_, state)| state.frames.len() as u64);
        (dirty.map(|unwritten| unwritten.dirty.len()).sum(), going.sum())
    }

    fn unwritten_mut(&mut self, file: FileId) -> Option<&mut Unwritten> {
        self.files.get_mut(file.0 as usize)?.as_mut()?.unwritten.as_deref_mut()
    }
}
