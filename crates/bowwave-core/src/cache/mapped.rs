//! Offset-mapped files: which pages to map at a touch, and when to unmap them.
//!
//! The memory of such a file is in file order, so one call maps adjacent pages, and a frame is only
//! a share of the budget. Touches of mapped pages are invisible. So reclaim unmaps pages at the
//! cold end of a list and moves them to the hot end. If the program touches one again, that is a
//! fault, which counts. With [`Eviction::Lru`](crate::Eviction::Lru), mapped pages are evicted in
//! the order of their faults.

use alloc::vec::Vec;

use super::frames::{Flag, State};
use super::walk::Walk;
use super::{Cache, Handle};
use crate::event::{Action, Trigger};
use crate::id::{FileId, HandleId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::request::Part;

impl Cache {
    /// Gives the pages of `file` offset-mapped frames. [`Action::Released`] then reports empty
    /// pages, and [`Action::Unmap`] requests that pages are unmapped.
    ///
    /// # Panics
    /// If `file` is not open or has cached pages.
    pub fn map_by_offset(&mut self, file: FileId) {
        assert!(self.table.pages_of(file).next().is_none(), "file {} has cached pages", file.0);
        self.file_mut(file).memory.offset_mapped = true;
    }

    /// The pages to map when `page` is touched: the adjacent pages within `around` that are up to
    /// date, not mapped and unmarked, with at most `unread` pages of unused readahead after `page`.
    /// Empty if `page` itself is not up to date or is mapped. A mark on `page` does not matter.
    ///
    /// A marked page stays unmapped, so that its touch is seen. Readahead counts as used once it is
    /// mapped. A small `unread` at first shows whether the reader continues.
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

    /// A touch of `page` through `handle` mapped `range`. Its readahead counts as used, since
    /// further touches are not seen.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn mapped(&mut self, handle: HandleId, page: PageIndex, range: PageRange) {
        let Handle { file, capabilities, .. } = *self.handle(handle);
        if capabilities.mapped {
            let request = PageRange { start: page, end: range.end.max(page) };
            let nothing = PageRange { start: page, end: page };
            let walk = Walk::new(Part::whole(handle, request.into()), self.handle(handle), nothing);
            let (access, view, policy, plans) = self.policy_call(&walk, page, Trigger::Mapped);
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

    /// Appends [`Action::Unmap`] and [`Action::Released`] to `out`. Drivers that do not use
    /// [`step`](Self::step) call it after each method, before they start fills or read the memory.
    pub fn report_mappings(&mut self, out: &mut Vec<Action>) {
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

    /// Unmaps at most `most` mapped pages at the cold end of a list, and moves them to the hot end
    /// of the inactive list. Returns how many.
    pub(super) fn unmap_tail(&mut self, state: State, most: u32) -> u32 {
        for count in 0..most {
            let Some(id) = self.frames.tail(state) else { return count };
            let frame = self.frames.get_mut(id);
            if !frame.take(Flag::Mapped) {
                return count;
            }
            self.unmapped.push((frame.file, frame.index));
            self.frames.list_del(id);
            self.frames.list_add(id, State::Inactive);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use crate::config::Config;
    use crate::id::{FrameId, Waiter};
    use crate::readahead::Policy;
    use crate::request::{Fault, PageAccess, Pattern};
    use crate::time::Instant;

    const FILE: FileId = FileId(0);
    const HANDLE: HandleId = HandleId(0);
    const ALL: PageRange = PageRange::new(0, 1000);

    /// A mapped file of 1000 pages whose store takes no time.
    struct Scene {
        cache: Cache,
        /// Pages mapped by the program.
        mapped: Vec<bool>,
        /// Pages with memory.
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

        /// A program touches a page; returns the pages mapped for it if that was a fault.
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
                assert!(self.held[page as usize], "page {page} is mapped without memory");
                self.mapped[page as usize] = true;
            }
            assert_eq!(pinned.len(), 1, "the page is pinned");
            self.cache.unpin(Instant(0), &pinned, &mut out);
            self.act(&mut out, &mut pinned);
            self.cache.check().expect("the invariants hold");
            Some(range)
        }

        fn act(&mut self, out: &mut Vec<Action>, pinned: &mut Vec<FrameId>) {
            self.cache.report_mappings(out);
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
                self.cache.report_mappings(out);
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
    fn a_touch_maps_its_neighbours_up_to_the_next_mark() {
        let mut scene = Scene::new(500, Policy::OnDemand);
        // The window at page 0 is 0..4. Its mark at page 1 stays unmapped so that its touch is
        // seen.
        assert_eq!(scene.touch(0), Some(PageRange::new(0, 1)));
        assert_eq!(
            scene.touch(1),
            Some(PageRange::new(1, 4)),
            "the next window is in flight, with its mark at 4"
        );
        assert_eq!(scene.touch(3), None);
        assert_eq!(scene.touch(4), Some(PageRange::new(4, 12)));
    }

    #[test]
    fn pages_with_memory_never_exceed_the_frames() {
        let mut scene = Scene::new(64, Policy::None);
        for round in 0..4 {
            for page in 0..300 {
                scene.touch((page * 7 + round) % 300);
                assert!(scene.holding() <= 64, "{} pages have memory", scene.holding());
            }
        }
    }

    /// An eviction used to unmap every page if all were mapped: 200 ms for 6 GiB.
    #[test]
    fn an_eviction_unmaps_few_pages_even_if_all_are_mapped() {
        let mut scene = Scene::new(400, Policy::None);
        for page in 0..400 {
            scene.touch(page);
        }
        let mut total = 0;
        for page in 400..900 {
            let before = scene.mapped.iter().filter(|mapped| **mapped).count();
            scene.touch(page);
            let after = scene.mapped.iter().filter(|mapped| **mapped).count();
            let unmapped = (before + 1).saturating_sub(after);
            assert!(unmapped <= 64 + 1, "page {page}: {unmapped} of {before} pages");
            total += unmapped;
            let evicted = page - 399;
            assert!(total <= (evicted.div_ceil(8) * 64 + evicted) as usize, "{total} for {evicted}");
        }
    }

    /// Reclaim that unmapped pages in its last passes, too, came to no page that it could evict.
    #[test]
    fn all_pages_that_are_not_pinned_can_be_evicted() {
        // Some of these numbers leave a mapped page behind the pinned ones.
        for touched in 1..200 {
            let mut scene = Scene::new(200, Policy::None);
            let (mut out, mut pinned) = (Vec::new(), Vec::new());
            let read = PageAccess::read(HANDLE, PageRange::new(500, 628));
            scene.cache.access(Instant(0), Waiter(1), read, &mut Vec::new(), &mut out);
            scene.act(&mut out, &mut pinned);
            assert_eq!(pinned.len(), 128);
            for page in 0..touched {
                scene.touch(page);
            }
            scene.cache.revoke(200, &mut out);
            scene.act(&mut out, &mut pinned);
            assert_eq!(scene.holding(), 128, "{touched} pages were touched");
        }
    }

    #[test]
    fn repeatedly_touched_pages_survive_a_scan() {
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
        assert!(misses < 20 * 4, "{misses} fills of 20 hot pages");
        assert!(faults < 20 * 60, "{faults} faults: each unmap costs one");
    }
}
