//! A touch: its result and its effects.

use alloc::vec::Vec;

use super::event::{PageId, PagerAction, PagerError, Touch, TouchOutcome};
use super::table::{Kind, Page, Waiting, flag};
use super::{Pager, push, single};
use crate::event::Urgency;
use crate::id::Waiter;
use crate::page::PageRange;
use crate::swap::SwapPolicy;
use crate::time::Instant;

/// Length of a run of new pages that counts as passed when the next such run follows.
const FIRST_RUN: u64 = 32;

impl Pager {
    /// Handles a program's touch of a page. After [`TouchOutcome::Wait`] exactly one
    /// [`PagerAction::Wake`] for `waiter` follows. A page outside of all regions fails with
    /// [`PagerError::RegionRemoved`].
    pub fn touch(
        &mut self,
        now: Instant,
        waiter: Waiter,
        id: PageId,
        touch: Touch,
        out: &mut Vec<PagerAction>,
    ) -> TouchOutcome {
        let known =
            self.table.region(id.region).is_some_and(|region| !region.dying && id.page.0 < region.pages);
        if !known {
            out.push(PagerAction::Wake { waiter, result: Err(PagerError::RegionRemoved) });
            return TouchOutcome::Wait;
        }
        let page = self.table.page(id);
        let store = touch == Touch::Store;
        // The hot path of drivers that report every touch.
        if page.is(flag::MAPPED)
            && !page.any(flag::UNMAPPING | flag::AHEAD | flag::MARK)
            && (!store || page.is(flag::WRITABLE | flag::DIRTY))
        {
            self.table.page_mut(id).set(flag::REFERENCED);
            return TouchOutcome::Go;
        }
        let outcome = self.touch_page(now, waiter, id, touch, out);
        self.balance(now, out);
        outcome
    }

    pub(super) fn touch_page(
        &mut self,
        now: Instant,
        waiter: Waiter,
        id: PageId,
        touch: Touch,
        out: &mut Vec<PagerAction>,
    ) -> TouchOutcome {
        let page = self.table.page(id);
        if page.any(flag::UNMAPPING | flag::DISCARD) {
            self.wait(id, waiter, touch);
            return TouchOutcome::Wait;
        }
        if page.is(flag::HERE) {
            if page.list == Kind::Inactive && !page.any(flag::MAPPED | flag::AHEAD) {
                self.table.region_mut(id.region).stalls += 1;
            }
            if !page.is(flag::MAPPED) || (touch == Touch::Store && !page.is(flag::WRITABLE)) {
                self.count(id.region, |stats| stats.minor_faults += 1);
            }
            self.map_for(id, touch == Touch::Store, out);
            self.found(now, id, page, out);
            return TouchOutcome::Go;
        }
        if page.is(flag::COMING) {
            self.join(now, waiter, id, touch, out);
            return TouchOutcome::Wait;
        }
        if self.free() == 0 {
            self.hungry.push_back((waiter, id, touch));
            return TouchOutcome::Wait;
        }
        if page.slot == 0 {
            self.begin_as_zeroes(id, touch, out);
            return TouchOutcome::Go;
        }
        self.count(id.region, |stats| stats.major_faults += 1);
        self.table.region_mut(id.region).stalls += 1;
        self.wait(id, waiter, touch);
        self.bring_in(now, id, out);
        TouchOutcome::Wait
    }

    /// Gives memory to waiting touches, in order of arrival.
    pub(super) fn feed(&mut self, now: Instant, out: &mut Vec<PagerAction>) {
        while self.free() > 0
            && let Some((waiter, id, touch)) = self.hungry.pop_front()
        {
            if self.touch_page(now, waiter, id, touch, out) == TouchOutcome::Go {
                out.push(PagerAction::Wake { waiter, result: Ok(()) });
            }
        }
    }

    fn wait(&mut self, id: PageId, waiter: Waiter, touch: Touch) {
        let waiting = &mut self.table.region_mut(id.region).waiting;
        waiting.entry(id.page.0).or_default().push(Waiting { waiter, touch });
    }

    /// Handles the touch of a page in flight.
    fn join(&mut self, now: Instant, waiter: Waiter, id: PageId, touch: Touch, out: &mut Vec<PagerAction>) {
        let page = self.table.page(id);
        self.wait(id, waiter, touch);
        if page.is(flag::AHEAD) {
            self.count(id.region, |stats| stats.late += 1);
        }
        if let Some(read) = self.reads.get_mut(&page.next)
            && read.urgency == Urgency::Readahead
        {
            read.urgency = Urgency::Demand;
            self.table.region_mut(id.region).stalls += 1;
            out.push(PagerAction::Promote { id: super::ReadId(page.next) });
        }
        self.found(now, id, page, out);
    }

    /// Creates a page as zeros.
    fn begin_as_zeroes(&mut self, id: PageId, touch: Touch, out: &mut Vec<PagerAction>) {
        let writable = touch == Touch::Store;
        self.take_frame(id.region);
        self.count(id.region, |stats| {
            stats.zero_in += 1;
            stats.minor_faults += 1;
        });
        let page = self.table.page_mut(id);
        page.set(flag::HERE | flag::MAPPED | flag::REFERENCED);
        if writable {
            page.set(flag::WRITABLE | flag::DIRTY);
        }
        self.enlist(id, Kind::Active);
        push(out, PagerAction::Zero { region: id.region, pages: single(id.page), writable });
        let (next, run) = &mut self.table.region_mut(id.region).first_run;
        *run = if *next == id.page.0 { *run + 1 } else { 1 };
        *next = id.page.0 + 1;
        if *run >= 2 * FIRST_RUN && run.is_multiple_of(FIRST_RUN) {
            // A program that fills memory in order is done with pages that far back.
            let end = id.page.0 + 1 - FIRST_RUN;
            self.leave_behind(id, PageRange::new(end - FIRST_RUN, end));
        }
    }

    /// Maps a page in memory, or makes it writable, for a touch.
    pub(super) fn map_for(&mut self, id: PageId, store: bool, out: &mut Vec<PagerAction>) {
        let page = self.table.page(id);
        if page.is(flag::EVICTING) {
            self.freeing -= 1;
            if !page.is(flag::WRITING) {
                self.outgoing.retain(|&other| other != id);
            }
        }
        if store {
            self.soil(id);
        }
        let writable = self.table.page(id).is(flag::DIRTY);
        let state = self.table.page_mut(id);
        state.clear(flag::EVICTING);
        state.set(flag::MAPPED | flag::REFERENCED);
        if writable {
            state.set(flag::WRITABLE);
        }
        if !page.is(flag::MAPPED) || (writable && !page.is(flag::WRITABLE)) {
            push(out, PagerAction::Map { region: id.region, pages: single(id.page), writable });
        }
        // A mapped page keeps its list position; its accessed bit records the touch.
        if !page.is(flag::MAPPED) {
            self.enlist(id, Kind::Active);
        }
    }

    /// Reports to the policy a touch of a page in memory or in flight; `page` is its earlier state.
    fn found(&mut self, now: Instant, id: PageId, page: Page, out: &mut Vec<PagerAction>) {
        let ahead = page.is(flag::AHEAD);
        self.table.page_mut(id).clear(flag::AHEAD | flag::MARK);
        if ahead {
            self.count(id.region, |stats| stats.swap_ra_hit += 1);
        }
        let region = self.table.region_mut(id.region);
        match self.config.policy {
            SwapPolicy::None => {}
            SwapPolicy::Other(_) => {
                if let Some(other) = self.other.as_mut().filter(|_| ahead) {
                    other.on_hit(id);
                }
            }
            // Linux consults its swap cache only for unmapped pages with a slot.
            SwapPolicy::Vma if page.is(flag::MAPPED) || page.slot == 0 => {}
            SwapPolicy::Vma => {
                let address = region.base.saturating_add(id.page.0);
                region.vma.on_hit(crate::page::PageIndex(address), ahead);
            }
            SwapPolicy::Adaptive => {
                if ahead {
                    region.adaptive.on_hit(id.page);
                }
                if page.is(flag::MARK) {
                    self.passed_mark(now, id, out);
                }
            }
        }
    }
}
