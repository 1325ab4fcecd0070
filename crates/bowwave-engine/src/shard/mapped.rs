//! What a shard does for mapped files.

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
    /// What may be mapped with the page.
    pub(crate) around: PageRange,
    /// Most pages behind it that nobody has used.
    pub(crate) unread: PageCount,
}

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

    /// A touch of a mapped page. One that is there is mapped at once; else it comes through the slot, pinned.
    pub(crate) fn fault(
        &self,
        touch: &Touch<'_>,
        map: &mut dyn FnMut(PageRange) -> PageCount,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        self.fault_in(&mut self.lock(), touch, map, effects)
    }

    /// As [`fault`](Self::fault), if the page is there and not mapped; tells whether it was. If not, nothing has happened.
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
        // It waits if others wait for frames, which come first. Then it is as if it had gone away: what comes is given back.
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
            // What goes for it goes before anything is mapped.
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

    /// Has the page mapped that the touch has waited for and pinned, if it is `frames`, and gives it back.
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

    /// Has the program's pages mapped that lie around a page that is pinned: those that are up to date, up to the next lookahead
    /// marks, as the touch allows. `map` runs under the lock, so that nothing happens to them meanwhile, and tells how many it
    /// has mapped, from the first on.
    fn map_around(&self, state: &mut State, touch: &Touch<'_>, map: &mut dyn FnMut(PageRange) -> PageCount) {
        let page = touch.fault.page;
        let mut range = state.cache.mappable(touch.entry.file, page, touch.around, touch.unread);
        if range.is_empty() {
            // It is mapped already, as far as the cache knows: two threads have touched it, or it has just been unmapped.
            range = PageRange::from_start(page, PageCount(1));
        }
        let count = map(range);
        let range = PageRange::from_start(range.start, count);
        if !range.is_empty() {
            state.step(Event::Mapped { handle: touch.handle, page, range });
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
