//! Pages that programs have mapped: where they lie, which to map at a touch, and when to take them away.
//!
//! The memory of a mapped file is in file order, so that neighbours can be mapped by one call, and frames stand for shares of
//! the budget alone. The processor does not say when a mapped page is touched. So reclaim, before it evicts one, has it
//! unmapped and gives it another turn: if it is touched meanwhile, that is a fault, which finds it and counts.

use alloc::vec::Vec;

use super::frames::{Flag, State};
use super::walk::Walk;
use super::{Cache, Handle};
use crate::event::{Action, Trigger};
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::Part;

/// Mapped pages that reclaim has unmapped at a time: enough that the call costs little for each, few enough that those
/// in use come back soon.
const UNMAP_BATCH: u32 = 64;

impl Cache {
    /// From now on each page of `file` lies in a place of its own, and the driver is told ([`Action::Released`]) when one
    /// holds nothing any more, and ([`Action::Unmap`]) when one should be unmapped.
    ///
    /// # Panics
    /// If `file` is not open, or something of it is cached.
    pub fn map_by_offset(&mut self, file: FileId) {
        assert!(self.table.pages_of(file).next().is_none(), "file {} has pages without places", file.0);
        self.file_mut(file).memory.offset_mapped = true;
    }

    /// The pages to map when `page` is touched: up to date, not mapped, without a lookahead mark, side by side, within
    /// `around`, and of those behind `page` that were read ahead and that nobody has used no more than `unread`. Empty if that
    /// cannot be said of `page` itself, marks apart: its own has done its work by the touch.
    ///
    /// A page with a mark stays unmapped, so that the touch that it waits for is seen. Pages that were read ahead count as used
    /// once they are mapped, whether they are or not: who maps few of them at first learns whether their reader comes.
    #[must_use]
    pub fn mappable(&self, file: FileId, page: PageIndex, around: PageRange, unread: PageCount) -> PageRange {
        let frame = |at: PageIndex| {
            let id = self.table.get(file, at).frame()?;
            let frame = self.frames.get(id);
            let there = matches!(frame.state, State::Inactive | State::Active) && !frame.has(Flag::Mapped);
            there.then_some(frame)
        };
        let unmarked = |at: PageIndex| frame(at).is_some_and(|frame| !frame.has(Flag::Mark));
        if frame(page).is_none() {
            return PageRange { start: page, end: page };
        }
        let (mut start, mut end) = (page, page + PageCount(1));
        while start > around.start && unmarked(PageIndex(start.0 - 1)) {
            start = PageIndex(start.0 - 1);
        }
        let mut left = unread.0;
        while end < around.end && unmarked(end) {
            if frame(end).is_some_and(|frame| frame.has(Flag::Unused)) {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            end = end + PageCount(1);
        }
        PageRange { start, end }
    }

    /// These pages are mapped now, because `page` was touched through `handle`. Those that readahead brought count as used:
    /// whether they are is not seen from here on.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn mapped(&mut self, handle: HandleId, page: PageIndex, range: PageRange) {
        let Handle { file, capabilities, .. } = *self.handle(handle);
        if capabilities.mapped {
            let request = PageRange { start: page, end: range.end.max(page) };
            let nothing = PageRange { start: page, end: page };
            let walk = Walk::new(Part::whole(handle, request.into()), self.handle(handle), nothing);
            let (access, view, policy, plans) = self.question(&walk, page, Trigger::Mapped);
            policy.on_access(access, view, plans);
        }
        for page in (range.start.0..range.end.0).map(PageIndex) {
            let Some(id) = self.table.get(file, page).frame() else { continue };
            let used = self.frames.take_unused(id);
            let frame = self.frames.get_mut(id);
            frame.set(Flag::Mapped);
            let thrashed = frame.take(Flag::Thrashed);
            let stats = self.stats_mut(file);
            stats.pages_used += u64::from(used);
            stats.pages_thrashed += u64::from(used && thrashed);
        }
    }

    /// Moves what is to be unmapped and what was let go of to `out`. For drivers that call methods rather than
    /// [`step`](Self::step): after each, before fills are begun or the memory is read again.
    pub fn tell_places(&mut self, out: &mut Vec<Action>) {
        self.unmapped.sort_unstable();
        for run in self.unmapped.chunk_by(|a, b| a.0 == b.0 && a.1.0 + 1 == b.1.0) {
            let range = PageRange::from_start(run[0].1, PageCount(run.len() as u64));
            out.push(Action::Unmap { file: run[0].0, range });
        }
        self.unmapped.clear();
        let released = &mut self.frames.released;
        released.sort_unstable();
        for run in released.chunk_by(|a, b| a.0 == b.0 && a.1.0 + 1 == b.1.0) {
            let range = PageRange::from_start(run[0].1, PageCount(run.len() as u64));
            let frames = run.iter().map(|&(_, _, frame)| frame).collect();
            out.push(Action::Released { file: run[0].0, range, frames });
        }
        released.clear();
    }

    /// Has the mapped pages at the cold end of a list unmapped, and gives them another turn.
    pub(super) fn unmap_tail(&mut self, state: State) {
        for _ in 0..UNMAP_BATCH {
            let Some(id) = self.frames.tail(state) else { return };
            let frame = self.frames.get_mut(id);
            if !frame.take(Flag::Mapped) {
                return;
            }
            self.unmapped.push((frame.file, frame.index));
            self.frames.list_del(id);
            self.frames.list_add(id, State::Inactive);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use crate::config::Config;
    use crate::id::Waiter;
    use crate::readahead::Policy;
    use crate::request::{Fault, PageAccess, Pattern};
    use crate::time::Instant;

    const FILE: FileId = FileId(0);
    const HANDLE: HandleId = HandleId(0);
    const ALL: PageRange = PageRange::new(0, 1000);

    /// A mapped file of 1000 pages whose store takes no time.
    struct Scene {
        cache: Cache,
        /// What programs have mapped.
        mapped: Vec<bool>,
        /// Which places hold something.
        held: Vec<bool>,
    }

    impl Scene {
        fn new(frames: u32, policy: Policy) -> Self {
            let mut cache =
                Cache::new(Config { frames, reserve_frames: 0, policy, ..Config::default() }).expect("valid");
            cache.open_file(FILE, PageCount(1000));
            cache.map_by_offset(FILE);
            cache.open_handle(HANDLE, FILE);
            Self { cache, mapped: vec![false; 1000], held: vec![false; 1000] }
        }

        /// A program touches a page; tells whether that was a fault, and what was mapped for it.
        fn touch(&mut self, page: u64) -> Option<PageRange> {
            if self.mapped[page as usize] {
                return None;
            }
            let mut out = Vec::new();
            let fault = Fault { page: PageIndex(page), pattern: Pattern::Normal };
            self.cache.access(
                Instant(0),
                Waiter(0),
                PageAccess::fault(HANDLE, fault),
                &mut Vec::new(),
                &mut out,
            );
            let mut pinned = Vec::new();
            self.act(&mut out, &mut pinned);
            let range = self.cache.mappable(FILE, PageIndex(page), ALL, PageCount(u64::MAX));
            self.cache.mapped(HANDLE, PageIndex(page), range);
            for page in range.start.0..range.end.0 {
                assert!(self.held[page as usize], "page {page} is mapped and holds nothing");
                self.mapped[page as usize] = true;
            }
            assert_eq!(pinned.len(), 1, "the page is there");
            self.cache.unpin(Instant(0), &pinned, &mut out);
            self.act(&mut out, &mut pinned);
            self.cache.check().expect("whole");
            Some(range)
        }

        fn act(&mut self, out: &mut Vec<Action>, pinned: &mut Vec<crate::FrameId>) {
            self.cache.tell_places(out);
            while !out.is_empty() {
                for action in core::mem::take(out) {
                    match action {
                        Action::Fill(fill) => {
                            self.set_held(fill.range, true);
                            self.cache.filled(Instant(0), fill.id, Ok(()), out);
                        }
                        Action::Wake { result, .. } => pinned.extend(result.expect("no failures here")),
                        Action::Unmap { range, .. } => self.unmap(range),
                        Action::Released { range, .. } => {
                            self.unmap(range);
                            self.set_held(range, false);
                        }
                        _ => {}
                    }
                }
                self.cache.tell_places(out);
            }
        }

        fn unmap(&mut self, range: PageRange) {
            self.mapped[range.start.0 as usize..range.end.0 as usize].fill(false);
        }

        fn set_held(&mut self, range: PageRange, held: bool) {
            self.held[range.start.0 as usize..range.end.0 as usize].fill(held);
        }

        fn holding(&self) -> usize {
            self.held.iter().filter(|held| **held).count()
        }
    }

    #[test]
    fn a_touch_maps_what_lies_around_it_up_to_the_next_mark() {
        let mut scene = Scene::new(500, Policy::OnDemand);
        // The window at page 0 is 0..4 with its mark at page 1, which stays unmapped for the touch that it waits for.
        assert_eq!(scene.touch(0), Some(PageRange::new(0, 1)));
        assert_eq!(
            scene.touch(1),
            Some(PageRange::new(1, 4)),
            "and the next window is on its way, marked at 4"
        );
        assert_eq!(scene.touch(3), None);
        assert_eq!(scene.touch(4), Some(PageRange::new(4, 12)));
    }

    #[test]
    fn places_held_are_never_more_than_frames_and_a_page_is_released_before_it_is_filled_again() {
        let mut scene = Scene::new(64, Policy::None);
        for round in 0..4 {
            for page in 0..300 {
                scene.touch((page * 7 + round) % 300);
                assert!(scene.holding() <= 64, "{} pages hold memory", scene.holding());
            }
        }
    }

    #[test]
    fn pages_that_are_touched_again_and_again_outlive_a_scan() {
        let mut scene = Scene::new(200, Policy::None);
        let mut faults = 0;
        let fetched = |scene: &Scene| scene.cache.stats().misses;
        let mut misses = 0;
        for page in 0..900 {
            scene.touch(100 + page);
            let before = fetched(&scene);
            for hot in 0..20 {
                faults += u64::from(scene.touch(hot).is_some());
            }
            misses += fetched(&scene) - before;
        }
        assert!(misses < 20 * 4, "{misses} fetches of 20 pages that are touched all the time");
        assert!(faults < 20 * 60, "{faults} faults: each look of reclaim costs one");
    }
}
