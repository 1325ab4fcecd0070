//! What a shard does for mapped files.

use std::ptr;
use std::sync::Arc;

use bowwave_core::{Action, Event, Fault, FileId, FrameId, HandleId, PageCount, PageIndex, PageRange};

use super::{Effect, Shard, State};
use crate::entry::FileEntry;
use crate::wait::Slot;

impl Shard {
    /// As [`open_file`](Self::open_file), for a file that has places.
    pub(crate) fn open_placed_file(
        &self,
        pages: PageCount,
        make: impl FnOnce(FileId) -> FileEntry,
    ) -> Arc<FileEntry> {
        let entry = self.open_file(pages, make);
        self.lock().step(Event::PlaceFile { file: entry.file });
        entry
    }

    /// A touch of a mapped page; the page comes through the slot, pinned.
    pub(crate) fn fault(
        &self,
        handle: HandleId,
        fault: Fault,
        congested: bool,
        effects: &mut Vec<Effect>,
    ) -> Arc<Slot> {
        let mut state = self.lock();
        let state = &mut *state;
        if congested != state.congested {
            state.congested = congested;
            state.step(Event::Congestion { congested });
        }
        let waiter = bowwave_core::Waiter(state.next_waiter);
        state.next_waiter += 1;
        let slot = Arc::new(Slot::default());
        state.waiting.insert(waiter, Arc::clone(&slot));
        state.step(Event::Fault { waiter, handle, fault });
        self.collect(state, effects);
        slot
    }

    /// Has the program's pages mapped that lie around `page`, which the caller holds pinned: those that are up to date, up to
    /// the next lookahead marks and within `around`. `map` runs under the lock, so that nothing happens to them meanwhile, and
    /// tells how many it has mapped, from the first on.
    pub(crate) fn map_around(
        &self,
        handle: HandleId,
        entry: &FileEntry,
        page: PageIndex,
        around: PageRange,
        map: impl FnOnce(PageRange) -> PageCount,
    ) {
        let mut state = self.lock();
        let mut range = state.cache.mappable(entry.file, page, around);
        if range.is_empty() {
            // It is mapped already, as far as the cache knows: two threads have touched it, or it has just been unmapped.
            range = PageRange::from_start(page, PageCount(1));
        }
        let count = map(range);
        let range = PageRange::from_start(range.start, count);
        if !range.is_empty() {
            state.step(Event::Mapped { handle, page, range });
        }
    }

    /// Carries out what an event has led to that asks for nothing and wakes nobody.
    pub(super) fn collect_places(&self, state: &mut State) {
        let mut effects = Vec::new();
        self.collect(state, &mut effects);
        debug_assert!(effects.is_empty(), "pages that go ask for nothing: {effects:?}");
    }

    /// Puts the frames of a fill where its pages lie.
    pub(super) fn place(&self, entry: &FileEntry, range: PageRange, frames: &[FrameId]) {
        let Some(places) = entry.places.get() else { return };
        for (&frame, page) in frames.iter().zip(range.start.0..) {
            self.arena.set_place(frame, places.address(PageIndex(page)));
        }
    }

    /// Carries out what concerns the memory of mapped files, and takes it off the list. Before anything else: a frame that was let
    /// go of may stand for another page by now. And under the lock: outside it a page could be asked for again, and filled,
    /// before its memory is given away.
    pub(super) fn settle_places(&self, state: &State, actions: &mut Vec<Action>) {
        actions.retain(|action| {
            match action {
                Action::Unmap { file, range } => {
                    if let Some(places) = placed(state, *file) {
                        places.unmap(*range);
                    }
                }
                Action::Released { file, range, frames } => {
                    for &frame in frames {
                        self.arena.set_place(frame, ptr::null_mut());
                    }
                    if let Some(places) = placed(state, *file) {
                        places.release(*range);
                    }
                }
                _ => return true,
            }
            false
        });
    }
}

fn placed(state: &State, file: FileId) -> Option<&crate::places::Places> {
    Some(state.files.get(file.0 as usize)?.as_ref()?.places.get()?)
}
