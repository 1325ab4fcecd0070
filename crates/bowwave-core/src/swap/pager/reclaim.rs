//! Eviction: which pages, where they are written, and when.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::event::{PageId, PagerAction, RegionId, SwapOut, WriteId};
use super::table::{Kind, flag};
use super::{Lists, Pager, Placement, Tracking};
use crate::event::Urgency;
use crate::page::PageIndex;
use crate::swap::{SlotIndex, SwapPolicy};
use crate::time::Instant;

/// Adjacent pages that form a run, which gets its own place on the store.
const RUN: usize = 8;
/// Largest write, except with Linux's settings. Adjacent writes are merged on the way, as far as
/// that delays no waiter.
const WRITE_PAGES: usize = 8;
/// One in this many evictions ignores passed pages.
const FAIR_TURN: u64 = 8;
/// Cost of a demand read relative to a page of readahead.
const COSTLIER: u64 = 4;
/// Stalls remembered over all regions; beyond this, counts are halved.
const STALLS_MAX: u64 = 1024;
/// Windows of readahead per region that reclaim spares while another region has more pages. With
/// fewer, a reader loses its window; with more, idle regions hold memory.
const WINDOWS_PROTECTED: u64 = 4;
/// Pages with slots that are examined when the store has no free slot.
const STEAL: usize = 256;

impl Pager {
    /// Serves touches that wait for memory, and evicts if too little is free.
    pub(super) fn balance(&mut self, now: Instant, out: &mut Vec<PagerAction>) {
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        loop {
            self.feed(now, out);
            let soon = self.config.frames.saturating_sub(self.used.saturating_sub(self.freeing));
            let hungry = self.hungry.len() as u64;
            if soon < self.config.low || soon < hungry {
                self.making_room = true;
            }
            if soon >= self.config.high.max(hungry) {
                self.making_room = false;
            }
            let busy = self.writes.len() >= self.config.writes_max as usize;
            let progress = self.making_room && !busy && self.evict(out);
            let used = self.used;
            if self.unmapping == 0 || self.outgoing.len() >= self.config.write_pages as usize {
                self.send_out(now, out);
            }
            // Clean pages have released their memory at once.
            if !progress && (self.hungry.is_empty() || self.used == used) {
                break;
            }
        }
    }

    /// Chooses pages to evict; returns whether it found any.
    fn evict(&mut self, out: &mut Vec<PagerAction>) -> bool {
        let protected = self.protected();
        let Some((owner, kind)) = self.victims(protected) else { return false };
        let (mut goal, mut found) = (self.config.write_pages as usize, 0);
        let scan_max = goal * 4;
        if kind == Kind::Behind {
            while found < goal
                && let Some(id) = self.first_behind(owner)
            {
                self.choose(id, out);
                self.table.page_mut(id).set(flag::LEFT);
                found += 1;
            }
            self.went(1, found);
            return found > 0;
        }
        if self.config.lists == Lists::Global && self.table.list(0, Kind::Active).len == 0 {
            let regions = 0..self.table.regions.len() as u32;
            regions.for_each(|region| self.drain(RegionId(region)));
        }
        let excess = self.listed(owner).saturating_sub(protected);
        if protected > 0 && excess > 0 {
            goal = goal.min(excess as usize);
        }
        self.refill(owner, out);
        let mut moved = false;
        for _ in 0..scan_max {
            let tail =
                self.table.tail(owner, Kind::Inactive).or_else(|| self.table.tail(owner, Kind::Behind));
            let Some(id) = tail.filter(|_| found < goal) else { break };
            let page = *self.table.page_mut(id);
            if page.is(flag::REFERENCED) {
                self.table.page_mut(id).clear(flag::REFERENCED);
                self.table.region_mut(id.region).stalls += 1;
                self.enlist(id, Kind::Active);
                moved = true;
            } else if page.is(flag::WRITING)
                || (self.pause.is_some() && page.any(flag::DIRTY | flag::WRITABLE))
            {
                self.enlist(id, Kind::Inactive);
            } else {
                found += 1;
                self.choose(id, out);
                if self.config.placement == Placement::Address {
                    found += self.choose_neighbours(id, goal.saturating_sub(found), out);
                }
            }
        }
        self.went(0, found);
        // Moved pages are no longer referenced, so this ends.
        found > 0 || moved
    }

    fn went(&mut self, kind: usize, count: usize) {
        self.fates[kind].evicted += count as u64;
        if self.fates.iter().map(|fate| fate.evicted).sum::<u64>() > self.config.frames {
            for fate in &mut self.fates {
                (fate.evicted, fate.refaulted) = (fate.evicted / 2, fate.refaulted / 2);
            }
        }
    }

    /// Whether passed pages are read again so much more often than others that they are not evicted
    /// first.
    fn left_comes_back(&self) -> bool {
        let [other, left] = self.fates;
        let (per_left, per_other) =
            (left.refaulted * (other.evicted + 1), (other.refaulted + 1) * (left.evicted + 1));
        per_left > per_other.saturating_mul(COSTLIER)
    }

    /// The last page that a stream's reader passed; if writes fail, only a clean one.
    fn first_behind(&self, owner: usize) -> Option<PageId> {
        let head = self.table.list(owner, Kind::Behind).head;
        let id = (head != super::table::NONE).then(|| PageId::unpack(head))?;
        let page = self.table.page(id);
        let kept = page.is(flag::WRITING) || (self.pause.is_some() && page.any(flag::DIRTY | flag::WRITABLE));
        (!kept).then_some(id)
    }

    /// Inactive neighbours of an evicted page on both sides: used together, they lie together on
    /// the store.
    fn choose_neighbours(&mut self, id: PageId, most: usize, out: &mut Vec<PagerAction>) -> usize {
        let mut chosen = 0;
        for step in [1, -1] {
            let mut at = id.page.0.checked_add_signed(step);
            while let Some(page) = at.filter(|_| chosen < most) {
                let next = PageId { page: PageIndex(page), ..id };
                let state = self.table.page(next);
                let dirty = self.pause.is_some() && state.any(flag::DIRTY | flag::WRITABLE);
                let inside = self.table.region(id.region).is_some_and(|region| page < region.pages);
                if !inside
                    || state.list != Kind::Inactive
                    || dirty
                    || state.any(flag::REFERENCED | flag::WRITING)
                {
                    break;
                }
                self.choose(next, out);
                chosen += 1;
                at = page.checked_add_signed(step);
            }
        }
        chosen
    }

    /// Reclaim spares a region with at most this many listed pages while another one has more.
    /// Otherwise one batch would take the whole window of a small region. All regions together are
    /// spared at most a quarter of memory.
    fn protected(&self) -> u64 {
        // Pages that are mapped ahead look like used pages, so their window cannot be spared.
        let has_windows = self.config.policy != SwapPolicy::None && !self.config.maps_ahead();
        if self.config.lists == Lists::Global || !has_windows {
            return 0;
        }
        let share = self.config.frames / 4 / (self.table.regions.iter().flatten().count() as u64).max(1);
        self.config.window.block_max().saturating_mul(WINDOWS_PROTECTED).min(share)
    }

    /// Pages of the active and inactive lists. Pages behind a reader are not counted.
    fn listed(&self, owner: usize) -> u64 {
        self.table.list(owner, Kind::Active).len + self.table.list(owner, Kind::Inactive).len
    }

    /// The owner and the list to evict from.
    fn victims(&mut self, protected: u64) -> Option<(usize, Kind)> {
        if self.config.lists == Lists::Global {
            return Some((0, Kind::Inactive));
        }
        self.turn += 1;
        let regions = || {
            let regions = self.table.regions.iter().enumerate();
            regions.filter_map(|(index, region)| {
                Some((index + 1, region.as_ref().filter(|region| region.frames > 0)?))
            })
        };
        // Stalls that one more frame would avoid: recent stalls, divided by the pages they were
        // spread over.
        let use_of = |owner: usize, region: &super::table::Region| {
            let pages = region.away + self.table.list(owner, Kind::Inactive).len + 1;
            (u128::from(region.stalls) << 64) / u128::from(pages)
        };
        if self.turn.is_multiple_of(FAIR_TURN) == self.left_comes_back() {
            // A program that fills memory in order leaves passed pages, too, and may then use them
            // in any order: their benefit counts here as everywhere.
            let left = regions().filter(|&(owner, _)| self.first_behind(owner).is_some());
            let least = left.min_by_key(|&(owner, region)| (use_of(owner, region), Reverse(region.frames)));
            if let Some((owner, _)) = least {
                return Some((owner, Kind::Behind));
            }
        }
        let has_some = |owner| {
            [Kind::Active, Kind::Inactive, Kind::Behind]
                .iter()
                .any(|&kind| self.table.list(owner, kind).len > 0)
        };
        let least = regions().filter(|&(owner, _)| has_some(owner)).min_by_key(|&(owner, region)| {
            (protected > 0 && self.listed(owner) <= protected, use_of(owner, region))
        });
        let owner = least.map(|(owner, _)| owner);
        let stalls: u64 = regions().map(|(_, region)| region.stalls).sum();
        if stalls > STALLS_MAX {
            self.table.regions.iter_mut().flatten().for_each(|region| region.stalls /= 2);
        }
        owner.map(|owner| (owner, Kind::Inactive))
    }

    /// Keeps the inactive list long enough for touches to show.
    fn refill(&mut self, owner: usize, out: &mut Vec<PagerAction>) {
        let active = self.table.list(owner, Kind::Active).len;
        // With those on the way: while the driver unmaps, repeated calls must not age all pages.
        let aging = owner.checked_sub(1).and_then(|region| self.table.regions[region].as_ref());
        let inactive = self.table.list(owner, Kind::Inactive).len + aging.map_or(0, |region| region.aging);
        let goal = u64::from(self.config.write_pages);
        let ratio = u64::from(self.config.inactive_ratio);
        let wanted = ((active + inactive) / (ratio + 1)).max(goal.min(active + inactive));
        let missing = wanted.saturating_sub(inactive).min(goal * 2);
        for _ in 0..missing {
            let Some(id) = self.table.tail(owner, Kind::Active) else { break };
            let unmapping = self.table.region(id.region).is_some_and(|region| region.aging > 0);
            if self.table.page(id).is(flag::AHEAD) && unmapping && !self.config.maps_ahead() {
                // This page is not mapped: it would become inactive before older pages whose
                // unmapping is in flight.
                break;
            }
            self.table.page_mut(id).clear(flag::REFERENCED);
            if self.config.tracking == Tracking::Unmap && self.table.page(id).is(flag::MAPPED) {
                self.unlist(id);
                self.table.page_mut(id).set(flag::AGING);
                self.table.region_mut(id.region).aging += 1;
                self.start_unmapping(id, out);
            } else {
                self.enlist(id, Kind::Inactive);
            }
        }
    }

    /// Releases chosen pages that need no write, and writes the others.
    fn send_out(&mut self, now: Instant, out: &mut Vec<PagerAction>) {
        let mut dirty = core::mem::take(&mut self.outgoing);
        if self.config.placement == Placement::Address {
            dirty.sort_unstable();
        }
        dirty.retain(|&id| {
            let keep = self.table.page(id).is(flag::DIRTY);
            if !keep {
                self.count(id.region, |stats| stats.dropped += 1);
                self.drop_page(id, out);
            }
            keep
        });
        if self.config.placement == Placement::Reclaim {
            return self.write_all(now, None, &dirty, out);
        }
        let next_to =
            |one: &PageId, other: &PageId| one.region == other.region && one.page.0 + 1 == other.page.0;
        let mut singles = Vec::new();
        for run in dirty.chunk_by(next_to) {
            match run {
                [first, ..] if run.len() >= RUN => self.write_all(now, Some(*first), run, out),
                _ => singles.extend_from_slice(run),
            }
        }
        self.write_all(now, None, &singles, out);
    }

    /// Writes pages to the next slots, of the region of `run` or of the shared head.
    fn write_all(&mut self, now: Instant, run: Option<PageId>, pages: &[PageId], out: &mut Vec<PagerAction>) {
        let most = match self.config.placement {
            Placement::Reclaim => self.config.write_pages as usize,
            Placement::Address => WRITE_PAGES,
        };
        let mut left = pages;
        while !left.is_empty() {
            let wanted = left.len().min(most) as u64;
            let taken = match run {
                Some(id) => self.slots.take(&mut self.table.region_mut(id.region).head, wanted),
                None => self.slots.take(&mut self.shared, wanted),
            };
            let Some((slot, count)) = taken else {
                if self.steal_slots() {
                    continue;
                }
                return self.hold_back(now, left);
            };
            let (now_out, rest) = left.split_at(count as usize);
            self.write(slot, now_out, out);
            left = rest;
        }
    }

    fn write(&mut self, slot: u64, pages: &[PageId], out: &mut Vec<PagerAction>) {
        for (slot, &id) in (slot..).zip(pages) {
            self.slots.set_owner(slot, id);
            let page = self.table.page_mut(id);
            // Slots are below 2^32.
            page.slot = slot as u32;
            page.clear(flag::DIRTY);
            page.set(flag::WRITING);
            self.table.region_mut(id.region).in_flight += 1;
        }
        let id = self.new_id();
        self.writes.insert(id, pages.to_vec());
        let urgency = if self.hungry.is_empty() { Urgency::Readahead } else { Urgency::Demand };
        out.push(PagerAction::Write(SwapOut {
            id: WriteId(id),
            slot: SlotIndex(slot),
            pages: pages.to_vec(),
            urgency,
        }));
    }

    /// No slot is free: takes slots of pages that are also in memory.
    fn steal_slots(&mut self) -> bool {
        let owners = if self.config.lists == Lists::Global { 0..1 } else { 1..self.table.regions.len() + 1 };
        let mut stolen = Vec::new();
        for owner in owners {
            for kind in [Kind::Active, Kind::Inactive, Kind::Behind] {
                let mut at = self.table.list(owner, kind).head;
                for _ in 0..STEAL {
                    if at == super::table::NONE {
                        break;
                    }
                    let id = PageId::unpack(at);
                    let page = self.table.page(id);
                    if page.slot != 0 && !page.is(flag::WRITING) {
                        stolen.push(id);
                    }
                    at = page.next;
                }
            }
        }
        stolen.iter().for_each(|&id| self.soil(id));
        !stolen.is_empty()
    }

    /// Returns chosen pages to their lists, for lack of slots.
    fn hold_back(&mut self, now: Instant, pages: &[PageId]) {
        for &id in pages {
            self.freeing -= 1;
            self.table.page_mut(id).clear(flag::EVICTING);
            self.enlist(id, Kind::Inactive);
        }
        self.pause_writes(now);
    }
}
