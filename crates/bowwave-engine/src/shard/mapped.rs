//! Mapped files in a shard.

use std::ptr;
use std::sync::Arc;

use bowwave_core::{
    Action, Event, Fault, FileId, FrameId, HandleId, PageAccess, PageCount, PageIndex, PageRange, Waiter,
};

use super::{Effect, Shard, State};
use crate::entry::FileEntry;
use crate::wait::Slot;

/// A touch of a page of a mapped file.
#[derive(Debug)]
pub(crate) struct Touch<'a> {
    pub(crate) entry: &'a FileEntry,
    pub(crate) handle: HandleId,
    pub(crate) fault: Fault,
    /// Pages that may be mapped together with the touched one.
    pub(crate) around: PageRange,
    /// Most unused pages behind it to map.
    pub(crate) unread: PageCount,
}

impl Shard {
    /// As [`open_file`](Self::open_file), with offset-mapped frames.
    pub(crate) fn open_placed_file(
        &self,
        pages: PageCount,
        make: impl FnOnce(FileId) -> FileEntry,
    ) -> Arc<FileEntry> {
        let entry = self.open_file(pages, make);
        self.lock().step(Event::MapByOffset { file: entry.file });
        entry
    }

    /// Handles a touch of a mapped page. A cached page is mapped at once; otherwise it arrives
    /// pinned, through the slot.
    pub(crate) fn fault(
        &self,
        touch: &Touch<'_>,
        map: &mut dyn FnMut(PageRange) -> PageCount,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        self.fault_in(&mut self.lock(), touch, map, effects)
    }

    /// As [`fault`](Self::fault), if the page is cached and unmapped; returns whether it was. If
    /// not, nothing happens.
    pub(crate) fn fault_if_there(
        &self,
        touch: &Touch<'_>,
        map: &mut dyn FnMut(PageRange) -> PageCount,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut state = self.lock();
        let alone = PageRange::from_start(touch.fault.page, PageCount(1));
        if state.cache.mappable(touch.entry.file, touch.fault.page, alone, PageCount(0)).is_empty() {
            return false;
        }
        // Reads that wait for frames come first, so the touch may wait. Then it is abandoned, and
        // its frames are returned.
        self.fault_in(&mut state, touch, map, effects).inspect(|slot| drop(slot.abandon())).is_none()
    }

    fn fault_in(
        &self,
        state: &mut State,
        touch: &Touch<'_>,
        map: &mut dyn FnMut(PageRange) -> PageCount,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        state.note_congestion(touch.entry.queue.is_congested());
        state.draw_ahead(false);
        let waiter = Waiter(state.next_waiter);
        state.next_waiter += 1;
        state.step(Event::Access { waiter, access: PageAccess::fault(touch.handle, touch.fault) });
        let is_answer = |action: &Action| matches!(action, Action::Wake { waiter: of, .. } if *of == waiter);
        if let Some(at) = state.actions.iter().position(is_answer) {
            let answer = state.actions.remove(at);
            // Pages evicted for it are unmapped before anything is mapped.
            self.collect(state, effects);
            if let Action::Wake { result: Ok(frames), .. } = &answer
                && !frames.is_empty()
            {
                self.map_around(state, touch, map);
                state.step(Event::Unpin { frames: frames.clone() });
                self.collect(state, effects);
                return None;
            }
            state.actions.push(answer);
        }
        let slot = Arc::new(Slot::default());
        state.waiting.insert(waiter, Arc::clone(&slot));
        self.collect(state, effects);
        Some(slot)
    }

    /// Maps the page that the touch waited for and pinned, if it is `frames`, and unpins it.
    pub(crate) fn map_pinned(
        &self,
        touch: &Touch<'_>,
        frames: Vec<FrameId>,
        map: &mut dyn FnMut(PageRange) -> PageCount,
        effects: &mut Vec<Effect>,
    ) {
        let mut state = self.lock();
        let state = &mut *state;
        if !frames.is_empty() {
            self.map_around(state, touch, map);
        }
        state.step(Event::Unpin { frames });
        self.collect(state, effects);
    }

    /// Maps pages around a pinned page: those up to date, up to the next lookahead marks, within
    /// the touch's limits. `map` runs under the lock, so the pages do not change, and returns how
    /// many it mapped, from the first on.
    fn map_around(&self, state: &mut State, touch: &Touch<'_>, map: &mut dyn FnMut(PageRange) -> PageCount) {
        let page = touch.fault.page;
        let mut range = state.cache.mappable(touch.entry.file, page, touch.around, touch.unread);
        if range.is_empty() {
            // The cache counts it as mapped already: two threads touched it, or it was just
            // unmapped.
            range = PageRange::from_start(page, PageCount(1));
        }
        let count = map(range);
        let range = PageRange::from_start(range.start, count);
        if !range.is_empty() {
            state.step(Event::Mapped { handle: touch.handle, page, range });
        }
    }

    /// Carries out effects of an event that requests nothing and wakes no waiter.
    pub(super) fn collect_places(&self, state: &mut State) {
        let mut effects = Vec::new();
        self.collect(state, &mut effects);
        debug_assert!(effects.is_empty(), "pages that go ask for nothing: {effects:?}");
    }

    /// Sets the frames of a fill to their pages' offset-mapped memory.
    pub(super) fn place(&self, entry: &FileEntry, range: PageRange, frames: &[FrameId]) {
        let Some(places) = entry.offset_mapped.get() else { return };
        for (&frame, page) in frames.iter().zip(range.start.0..) {
            self.arena.set_place(frame, places.address(PageIndex(page)));
        }
    }

    /// Carries out unmapping and release for mapped files, and removes those actions from the list.
    /// This comes first: a released frame may hold another page by now. It runs under the lock:
    /// outside, a page could be requested and filled again before its memory is released.
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

fn placed(state: &State, file: FileId) -> Option<&crate::offset_mapped::OffsetMappedFrames> {
    Some(state.files.get(file.0 as usize)?.as_ref()?.offset_mapped.get()?)
}
