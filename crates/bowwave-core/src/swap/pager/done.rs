//! Completions: reads, writes, unmapping.

use alloc::vec::Vec;

use super::event::{PageId, PagerAction, PagerError, ReadId, RegionId, Touch, WriteError, WriteId};
use super::table::{Kind, Waiting, flag};
use super::{Lists, Pager, push, single};
use crate::page::{PageIndex, PageRange};
use crate::time::Instant;

/// First pause after a failed write, in nanoseconds. It doubles with each failure.
const PAUSE_NS: u64 = 10_000_000;
/// Longest pause, in nanoseconds.
const PAUSE_MAX_NS: u64 = 2_000_000_000;
/// A new sample's weight in the smoothed latency is one in 8.
const SMOOTHING: u64 = 8;

impl Pager {
    /// A read ended; an error is a number that the driver chooses. Returns `false` if there is no
    /// such read.
    pub fn read_done(
        &mut self,
        now: Instant,
        id: ReadId,
        result: Result<(), u64>,
        out: &mut Vec<PagerAction>,
    ) -> bool {
        let Some(read) = self.reads.remove(&id.0) else { return false };
        if read.ahead && result.is_ok() {
            let took = now.0.saturating_sub(read.since.0);
            self.latency_ns = (self.latency_ns * (SMOOTHING - 1) + took) / SMOOTHING;
        }
        if result.is_err()
            && let Some(first) = read.pages.first()
        {
            self.count(first.region, |stats| stats.read_errors += 1);
        }
        let again = read.ahead || read.pages.len() > 1;
        for &page in &read.pages {
            self.table.region_mut(page.region).in_flight -= 1;
            let state = self.table.page_mut(page);
            state.clear(flag::COMING);
            state.next = super::table::NONE;
            match result {
                Ok(()) => self.came_in(now, page, out),
                Err(error) => self.stayed_out(now, page, error, again, out),
            }
        }
        for page in read.pages {
            self.retire(page.region, out);
        }
        self.balance(now, out);
        true
    }

    /// Pages are unmapped: nothing can change them any more. `written` lists, in order, the pages
    /// that programs wrote since they were mapped, whether mapped writable or not; some kernels
    /// lift the protection themselves. `None` if the driver cannot tell; then all writable pages
    /// count as written.
    pub fn unmapped(
        &mut self,
        now: Instant,
        region: RegionId,
        pages: PageRange,
        written: Option<&[PageIndex]>,
        out: &mut Vec<PagerAction>,
    ) {
        let Some(pages) = self.table.region(region).map(|region| pages.intersect(region.all())) else {
            return;
        };
        for page in (pages.start.0..pages.end.0).map(PageIndex) {
            let id = PageId { region, page };
            let state = self.table.page(id);
            if !state.is(flag::UNMAPPING) {
                continue;
            }
            self.table.region_mut(region).in_flight -= 1;
            self.table.region_mut(region).aging -= u64::from(state.is(flag::AGING));
            self.table.page_mut(id).clear(flag::UNMAPPING | flag::AGING | flag::MAPPED | flag::WRITABLE);
            let soiled = match written {
                Some(written) => written.binary_search(&page).is_ok(),
                None => state.is(flag::WRITABLE),
            };
            if soiled {
                self.soil(id);
            }
            if state.is(flag::EVICTING) {
                self.unmapping -= 1;
            }
            self.settle(now, id, out);
        }
        self.retire(region, out);
        self.balance(now, out);
    }

    /// A write ended. `zeroes` are the positions of pages in the write that are all zeros and need
    /// no slot. After an error all its pages stay in memory, and writes pause. Returns `false` if
    /// there is no such write.
    pub fn written(
        &mut self,
        now: Instant,
        id: WriteId,
        result: Result<(), WriteError>,
        zeroes: &[usize],
        out: &mut Vec<PagerAction>,
    ) -> bool {
        let Some(pages) = self.writes.remove(&id.0) else { return false };
        if let Some(first) = pages.first() {
            self.count(first.region, |stats| match result {
                Ok(()) => stats.writes += 1,
                Err(_) => stats.write_errors += 1,
            });
        }
        if result.is_err() {
            self.pause_writes(now);
        } else {
            self.pause_ns = 0;
        }
        for (position, &page) in pages.iter().enumerate() {
            self.table.region_mut(page.region).in_flight -= 1;
            let state = self.table.page_mut(page);
            state.clear(flag::WRITING);
            let changed = state.is(flag::DIRTY);
            let zero = zeroes.contains(&position);
            match result {
                Err(_) => self.soil(page),
                Ok(()) if changed => self.release_slot(page),
                Ok(()) if zero => {
                    self.release_slot(page);
                    self.count(page.region, |stats| stats.zero_out += 1);
                }
                Ok(()) => self.count(page.region, |stats| stats.swap_out += 1),
            }
            self.settle(now, page, out);
        }
        for page in pages {
            self.retire(page.region, out);
        }
        self.balance(now, out);
        true
    }

    /// Pauses writes, longer each time.
    pub(super) fn pause_writes(&mut self, now: Instant) {
        self.pause_ns = (self.pause_ns * 2).clamp(PAUSE_NS, PAUSE_MAX_NS);
        self.pause = Some(Instant(now.0.saturating_add(self.pause_ns)));
    }

    /// A page was read.
    fn came_in(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        self.count(id.region, |stats| stats.swap_in += 1);
        self.table.page_mut(id).set(flag::HERE);
        if self.table.page(id).is(flag::DISCARD) {
            self.forget(id, out);
            self.touch_again(now, id, out);
            return;
        }
        if let Some(waiting) = self.waiting(id) {
            self.table.page_mut(id).clear(flag::AHEAD);
            self.wake(id, waiting, out);
            return;
        }
        let state = self.table.page(id);
        if self.config.maps_ahead() && state.is(flag::AHEAD) && !state.is(flag::MARK) {
            // Its touch will not be seen.
            self.count(id.region, |stats| stats.mapped_ahead += 1);
            let page = self.table.page_mut(id);
            page.clear(flag::AHEAD);
            page.set(flag::MAPPED | flag::WRITABLE);
            self.enlist(id, Kind::Active);
            push(out, PagerAction::Map { region: id.region, pages: single(id.page), writable: true });
        } else if self.config.lists == Lists::PerRegion && !self.config.maps_ahead() {
            // While used pages are being unmapped, the inactive list is short: its tail would be
            // the window that the reader is about to use.
            self.enlist(id, Kind::Active);
        } else {
            self.enlist(id, Kind::Inactive);
        }
    }

    /// A page's read failed.
    fn stayed_out(&mut self, now: Instant, id: PageId, error: u64, again: bool, out: &mut Vec<PagerAction>) {
        self.give_frame(id.region);
        if self.table.page(id).is(flag::DISCARD) {
            self.table.page_mut(id).flags = 0;
            self.release_slot(id);
            self.touch_again(now, id, out);
            return;
        }
        self.table.page_mut(id).flags = 0;
        self.table.region_mut(id.region).away += 1;
        if again && self.table.region(id.region).is_some_and(|region| region.waiting.contains_key(&id.page.0))
        {
            // It was part of a larger read, or readahead: its waiter gets a read of its own, with
            // the frame just released.
            self.read_alone(now, id, out);
            return;
        }
        for Waiting { waiter, .. } in self.waiting(id).unwrap_or_default() {
            out.push(PagerAction::Wake { waiter, result: Err(PagerError::Read(error)) });
        }
    }

    /// A page was unmapped or written: maps it for its waiter, continues its eviction, or returns
    /// it to its list.
    pub(super) fn settle(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        let state = self.table.page(id);
        if state.is(flag::DISCARD) {
            if !state.any(flag::UNMAPPING | flag::WRITING) {
                self.forget(id, out);
                self.touch_again(now, id, out);
            }
        } else if state.is(flag::UNMAPPING) {
            // Its write ended while it is being unmapped again.
        } else if let Some(waiting) = self.waiting(id) {
            self.wake(id, waiting, out);
        } else if !state.is(flag::EVICTING) {
            if state.list == Kind::No {
                self.enlist(id, if state.is(flag::MAPPED) { Kind::Active } else { Kind::Inactive });
            }
        } else if state.is(flag::DIRTY) && self.pause.is_some() {
            self.table.page_mut(id).clear(flag::EVICTING);
            self.freeing -= 1;
            self.enlist(id, Kind::Inactive);
        } else {
            self.outgoing.push(id);
        }
    }

    fn waiting(&mut self, id: PageId) -> Option<Vec<Waiting>> {
        self.table.region_mut(id.region).waiting.remove(&id.page.0)
    }

    fn wake(&mut self, id: PageId, waiting: Vec<Waiting>, out: &mut Vec<PagerAction>) {
        let store = waiting.iter().any(|waiting| waiting.touch == Touch::Store);
        self.map_for(id, store, out);
        out.extend(
            waiting.into_iter().map(|Waiting { waiter, .. }| PagerAction::Wake { waiter, result: Ok(()) }),
        );
    }

    /// Touches that waited for a page that is now all zeros.
    fn touch_again(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        for Waiting { waiter, touch } in self.waiting(id).unwrap_or_default() {
            if self.touch_page(now, waiter, id, touch, out) == super::TouchOutcome::Go {
                out.push(PagerAction::Wake { waiter, result: Ok(()) });
            }
        }
    }

    /// Releases the memory of a page that is in its slot, or all zeros.
    pub(super) fn drop_page(&mut self, id: PageId, out: &mut Vec<PagerAction>) {
        let state = self.table.page(id);
        if state.is(flag::EVICTING) {
            self.freeing -= 1;
        }
        if state.is(flag::AHEAD) {
            self.count(id.region, |stats| stats.wasted += 1);
        }
        self.unlist(id);
        self.table.page_mut(id).flags = if state.slot == 0 { 0 } else { state.flags & flag::LEFT };
        self.table.region_mut(id.region).away += u64::from(state.slot != 0);
        self.give_frame(id.region);
        push(out, PagerAction::Drop { region: id.region, pages: single(id.page) });
    }

    /// Releases the memory and the slot of a page without I/O in flight.
    pub(super) fn forget(&mut self, id: PageId, out: &mut Vec<PagerAction>) {
        self.outgoing.retain(|&other| other != id);
        if self.table.page(id).is(flag::HERE) {
            self.table.page_mut(id).clear(flag::AHEAD);
            self.drop_page(id, out);
        }
        self.table.page_mut(id).flags = 0;
        self.table.region_mut(id.region).away -= u64::from(self.table.page(id).slot != 0);
        self.release_slot(id);
    }
}
