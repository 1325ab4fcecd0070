//! Making room: taking pages out of programs' reach, writing them out, and giving their memory back.
//!
//! Nobody waits for it until memory has run out, and it is much: the pager has a thousandth of memory and more go at a time. So a thread of
//! its own does it, in small pieces, and what takes long in them without the lock: a page on its way out is nobody else's.
//! The same thread sends transfers again whose pause is over.
//! A page that is to be given back may come back before it was: then whoever brings it gives it back first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_core::swap::pager::{PagerAction, RegionId, SwapOut};
use bowwave_core::{PageIndex, PageRange};

use super::memory::Pages;
use super::queue::now;
use super::swap::{ACTIONS_KEPT, Aborts, Shared, State, insist};
use crate::error::{Error, Result};

/// What is to be done to make room.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// In order: [`PagerAction::Unmap`], [`PagerAction::Write`], [`PagerAction::Retired`].
    todo: VecDeque<PagerAction>,
    /// Runs of pages whose memory is to be given back, by the first page: where they end.
    drops: BTreeMap<u64, u64>,
    /// Pages in those.
    dropping: u64,
    /// Things that were ever in `todo`, and those that are done.
    added: u64,
    done: u64,
    /// Threads that wait for what is to be done.
    awaited: u32,
    /// The thread has nothing to do.
    rests: bool,
    stopping: bool,
}

impl Room {
    /// Something to be done behind all that is there.
    pub(super) fn line_up(&mut self, action: PagerAction) {
        self.added += 1;
        self.todo.push_back(action);
    }

    /// Pages whose memory is to be given back.
    pub(super) fn give_back(&mut self, pages: &Pages) {
        let (mut start, mut end) = (pages.start, pages.end);
        if let Some((&before, &to)) = self.drops.range(..=start).next_back()
            && to >= start
        {
            debug_assert_eq!(to, start, "what is given back is there");
            (start, end) = (before, end.max(to));
        }
        if let Some(to) = self.drops.remove(&end) {
            end = to;
        }
        self.drops.insert(start, end);
        self.dropping += pages.end - pages.start;
    }

    /// Gives back what is too much to wait for the thread, which may not have a processor for long.
    pub(super) fn catch_up(&mut self, free: impl FnMut(Pages)) {
        self.free(self.dropping.saturating_sub(DROPS_MAX), free);
    }

    /// Gives back that many pages, or what there is.
    pub(super) fn free(&mut self, mut pages: u64, mut free: impl FnMut(Pages)) {
        while pages > 0
            && let Some((start, end)) = self.drops.pop_first()
        {
            let to = end.min(start + pages);
            if to < end {
                self.drops.insert(to, end);
            }
            pages -= to - start;
            self.dropping -= to - start;
            free(start..to);
        }
    }

    /// Gives back those of these pages that are to be given back.
    pub(super) fn free_of(&mut self, pages: &Pages, mut free: impl FnMut(Pages)) {
        while let Some((&start, &end)) = self.drops.range(..pages.end).next_back()
            && end > pages.start
        {
            self.drops.remove(&start);
            let part = start.max(pages.start)..end.min(pages.end);
            if start < part.start {
                self.drops.insert(start, part.start);
            }
            if part.end < end {
                self.drops.insert(part.end, end);
            }
            self.dropping -= part.end - part.start;
            free(part);
        }
    }

    /// Whether there is something for the thread, which rests; it does not from now on.
    pub(super) fn begins(&mut self) -> bool {
        let begins = self.rests && (!self.todo.is_empty() || self.dropping >= DROPS);
        self.rests &= !begins;
        begins
    }

    /// Things are done; whether someone waits for that.
    fn did(&mut self, count: u64) -> bool {
        self.done += count;
        self.awaited > 0
    }
}

/// A piece of work that was taken out, and is done without the lock.
enum Piece {
    /// Pages to be unmapped, and where they are.
    Unmap(Vec<(RegionId, PageRange)>, Vec<Pages>),
    /// Pages to be written, and where each of them is.
    Write(SwapOut, Vec<u64>),
    /// Memory was given back.
    Nothing,
    Stop,
}

impl State {
    /// The next piece; memory is given back at once. None if there is none.
    fn next_piece(&mut self, shared: &Shared) -> Option<Piece> {
        if self.room.stopping {
            return Some(Piece::Stop);
        }
        if self.room.dropping > 0 && (self.room.dropping >= DROPS || self.room.todo.is_empty()) {
            self.room.free(DROPS, |run| insist(|| shared.memory.free(&run)));
            return Some(Piece::Nothing);
        }
        let Some(action) = self.room.todo.pop_front() else {
            // What a whole region that went away took is not kept for the next.
            self.room.todo.shrink_to(ACTIONS_KEPT);
            return None;
        };
        match action {
            PagerAction::Unmap { region, pages } => {
                let mut count = pages.count().0;
                let (mut ranges, mut places) = (vec![(region, pages)], vec![self.pages(region, pages)]);
                while count < UNMAPS
                    && let Some(&PagerAction::Unmap { region, pages }) = self.room.todo.front()
                {
                    self.room.todo.pop_front();
                    count += pages.count().0;
                    ranges.push((region, pages));
                    places.push(self.pages(region, pages));
                }
                Some(Piece::Unmap(ranges, places))
            }
            PagerAction::Write(write) => {
                let places = write.pages.iter().map(|&id| self.place(id)).collect();
                Some(Piece::Write(write, places))
            }
            PagerAction::Retired { region } => {
                self.retired(shared, region);
                if self.room.did(1) {
                    shared.bell.notify_all();
                }
                Some(Piece::Nothing)
            }
            action => unreachable!("{action:?} is done at once"),
        }
    }

    /// Pages are unmapped, in order; of each, whether it was written to.
    fn unmapped(&mut self, ranges: &[(RegionId, PageRange)], written: &[bool]) {
        let mut written = written.iter();
        let mut soiled = Vec::new();
        for &(region, range) in ranges {
            soiled.clear();
            for page in range.start.0..range.end.0 {
                if written.next() == Some(&true) {
                    soiled.push(PageIndex(page));
                }
            }
            self.pager.unmapped(now(), region, range, Some(&soiled), &mut self.out);
        }
    }
}

impl Shared {
    /// Waits until all is done that is to be done by now.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.lock();
        let all = state.room.added;
        state.room.awaited += 1;
        while state.room.done < all {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.room.awaited -= 1;
    }

    /// Makes room until it is stopped.
    fn make_room(&self) {
        let _aborts = Aborts;
        let mut written = Vec::new();
        loop {
            let mut state = self.lock();
            let piece = loop {
                if let Some(piece) = state.next_piece(self) {
                    break piece;
                }
                state.room.rests = true;
                state = match self.queue.patience() {
                    Some(Duration::ZERO) => {
                        drop(state);
                        self.queue.pump();
                        self.lock()
                    }
                    Some(patience) => {
                        self.bell.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                };
                state.room.rests = false;
            };
            drop(state);
            let awaited = match piece {
                Piece::Stop => return,
                Piece::Nothing => false,
                Piece::Unmap(ranges, places) => {
                    insist(|| self.memory.unmap(&places, &mut written));
                    self.step(|state| {
                        state.unmapped(&ranges, &written);
                        state.room.did(ranges.len() as u64)
                    })
                }
                Piece::Write(write, places) => {
                    let loaded = self.load(&write, &places);
                    self.step(|state| {
                        state.start_write(self, write, loaded);
                        state.room.did(1)
                    })
                }
            };
            if awaited {
                self.bell.notify_all();
            }
            self.give_way();
        }
    }
}

/// The thread that makes room, until this is dropped.
#[derive(Debug)]
pub(super) struct RoomMaker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RoomMaker {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let theirs = Arc::clone(shared);
        let thread = thread::Builder::new()
            .name("bowwave-swap-room".to_owned())
            .spawn(move || theirs.make_room())
            .map_err(|error| Error::System { wanted: "start a thread", error, hint: "" })?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }
}

impl Drop for RoomMaker {
    fn drop(&mut self) {
        self.shared.lock().room.stopping = true;
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended the process.
            let _ended = thread.join();
        }
    }
}

/// Pages that are given back at a time, under the lock; fewer wait until there is nothing else to do, or pages come in.
const DROPS: u64 = 16;
/// No more wait than these: they are in memory, beside as many as may be.
pub(super) const DROPS_MAX: u64 = 4 * DROPS;
/// Pages that are unmapped at a time.
const UNMAPS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_given_back_join_and_are_cut_and_nothing_is_given_back_twice() {
        let mut room = Room::default();
        for pages in [10..12, 14..20, 12..14, 30..31] {
            room.give_back(&pages);
        }
        assert_eq!((room.drops.len(), room.dropping), (2, 11));
        let mut freed = Vec::new();
        room.free_of(&(13..15), |run| freed.push(run));
        room.free_of(&(13..15), |run| freed.push(run));
        room.free_of(&(19..31), |run| freed.push(run));
        assert_eq!(freed, [13..15, 30..31, 19..20]);
        freed.clear();
        room.free(5, |run| freed.push(run));
        room.free(100, |run| freed.push(run));
        assert_eq!(freed, [10..13, 15..17, 17..19]);
        assert_eq!((room.drops.len(), room.dropping), (0, 0));
    }
}
