//! Advice on ranges, and invalidation.

use alloc::vec::Vec;

use super::Cache;
use super::frames::{Flag, State};
use super::table::Slot;
use super::walk::Walk;
use crate::event::{Action, Advice, Trigger};
use crate::id::{FileId, FrameId, HandleId};
use crate::page::{PageIndex, PageRange};
use crate::readahead::{Plan, Reason};
use crate::request::{Part, Pattern};
use crate::time::Instant;

impl Cache {
    /// Applies advice, as `posix_fadvise` on Linux, with one difference. `WillNeed` reads as much
    /// of its range as the budget allows, not one window (except with the policies of Linux).
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn advise(
        &mut self,
        now: Instant,
        handle: HandleId,
        range: PageRange,
        advice: Advice,
        out: &mut Vec<Action>,
    ) {
        self.tick(now);
        let entry = self.handle_mut(handle);
        let file = entry.file;
        match advice {
            Advice::Normal => (entry.pattern, entry.wide, entry.no_reuse) = (Pattern::Normal, false, false),
            Advice::Sequential => (entry.pattern, entry.wide) = (Pattern::Sequential, true),
            Advice::Random => entry.pattern = Pattern::Random,
            Advice::NoReuse => entry.no_reuse = true,
            // Reads wait for frames, so readahead must not take the next ones.
            Advice::WillNeed if !self.starved.is_empty() => {}
            Advice::WillNeed => {
                let nothing = PageRange { start: range.start, end: range.start };
                let part = Part::whole(handle, range.into());
                let mut walk = Walk::new(part, self.handle(handle), nothing);
                let (page, trigger) = (range.start, Trigger::Advice);
                if self.handle(handle).capabilities.advice {
                    let (access, view, policy, plans) = self.policy_call(&walk, page, trigger);
                    policy.on_access(access, view, plans);
                    let list = plans.take_list();
                    for plan in &list {
                        self.apply_plan(&mut walk, page, trigger, plan, out);
                    }
                    self.plans.give_back(list);
                } else {
                    let plan = Plan::new(page, range.count().0, 0, Reason::Forced);
                    self.apply_plan(&mut walk, page, trigger, &plan, out);
                }
            }
            Advice::DontNeed => {
                for (page, _) in self.slots_in(file, range) {
                    self.drop_idle(file, page);
                }
                self.retry_starved(out);
            }
            Advice::Copied => {
                for (page, slot) in self.slots_in(file, range) {
                    if let Some(frame) = slot.frame() {
                        self.evict_copied(file, page, frame);
                    }
                }
                self.retry_starved(out);
            }
        }
    }

    /// The advised pattern of a handle.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn pattern(&self, handle: HandleId) -> Pattern {
        self.handle(handle).pattern
    }

    /// The store's bytes of these pages changed: later reads fetch them again. Waiting reads and
    /// pinned frames keep their bytes. Written pages that are not in the store stay
    /// ([`discard`](Self::discard) drops those).
    ///
    /// # Panics
    /// If `file` is not open.
    pub fn invalidate(&mut self, file: FileId, range: PageRange) {
        if self.file(file).stats.accesses > 0 {
            self.lose_history(file);
        }
        self.drop_pages(file, range);
    }

    /// Drops the pages of a range, except unwritten ones.
    pub(super) fn drop_pages(&mut self, file: FileId, range: PageRange) {
        for (page, slot) in self.slots_in(file, range) {
            match slot.frame() {
                Some(frame) if self.frames.get(frame).is_unwritten() => continue,
                Some(frame) => self.doom(frame),
                None => self.count_waste(file, slot.shadow().is_some_and(|shadow| shadow.unused)),
            }
            self.table.set(file, page, Slot::EMPTY);
        }
    }

    /// Drops an unpinned page that is up to date.
    pub(super) fn drop_idle(&mut self, file: FileId, page: PageIndex) {
        let Some(id) = self.table.get(file, page).frame() else { return };
        let frame = self.frames.get(id);
        if frame.pins == 0 && matches!(frame.state, State::Inactive | State::Active) {
            let was_used = !frame.has(Flag::Unused);
            self.doom(id);
            self.table.set(file, page, Slot::EMPTY);
            if was_used {
                self.remember(file, page);
            }
        }
    }

    /// Removes a frame from its list. It is freed once it is unpinned and its fill has ended.
    pub(super) fn doom(&mut self, id: FrameId) {
        let unused = self.frames.take_unused(id);
        let frame = self.frames.get(id);
        let (file, state, pins) = (frame.file, frame.state, frame.pins);
        self.count_waste(file, unused);
        if matches!(state, State::Inactive | State::Active) {
            self.frames.list_del(id);
        }
        self.frames.doom(id);
        if pins == 0 && state != State::InFlight {
            self.frames.free(id);
        }
    }

    fn count_waste(&mut self, file: FileId, unused: bool) {
        self.stats_mut(file).pages_wasted += u64::from(unused);
    }

    /// The occupied slots of a range, found the cheaper way: page by page, or among all pages of
    /// the file.
    fn slots_in(&self, file: FileId, range: PageRange) -> Vec<(PageIndex, Slot)> {
        if range.count().0 < self.table.leaf_count() as u64 {
            (range.start.0..range.end.0)
                .map(|page| (PageIndex(page), self.table.get(file, PageIndex(page))))
                .filter(|&(_, slot)| slot != Slot::EMPTY)
                .collect()
        } else {
            self.table.pages_of(file).filter(|&(page, _)| range.contains(page)).collect()
        }
    }
}
