//! Reads pages in: the touched page, and readahead.

use alloc::vec::Vec;

use super::event::{PageId, PagerAction, ReadId, RegionAdvice, SwapDecision, SwapIn, SwapWindow};
use super::table::{Kind, flag};
use super::{Lists, Pager, Reading};
use crate::event::Urgency;
use crate::page::{PageIndex, PageRange};
use crate::swap::{AheadPlan, Pace, SlotIndex, SwapFault, SwapPolicy, SwapReason};
use crate::time::Instant;

/// Largest demand read, except with Linux's windows. A waiter of one page waits for the whole read,
/// and so do later requests at the store. Adjacent requests are merged on the way, as far as that
/// delays no waiter.
const RIDE_PAGES: usize = 8;
/// Most pages of a read.
const READ_PAGES: usize = 256;
/// Pages examined for each page wanted, where a stream meets pages in memory.
const SKIP: u64 = 16;

impl Pager {
    /// Reads a touched page that is swapped out, and the policy's window.
    pub(super) fn bring_in(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        let mut wanted = Vec::new();
        let advice =
            self.table.region(id.region).map_or(RegionAdvice::Normal, |region| region.advice(id.page));
        let slot = SlotIndex(self.table.page(id).slot.into());
        if advice == RegionAdvice::Random {
            let window = SwapWindow::Pages { start: id.page, count: 1, stride: 1 };
            self.decided(id, window, 1, SwapReason::Advised, out);
            self.submit(now, Some(id), wanted, out);
            return;
        }
        match self.config.policy {
            SwapPolicy::None => self.decided_single(id, out),
            SwapPolicy::Vma => {
                let config = self.config.window;
                let region = self.table.region_mut(id.region);
                let base = region.base;
                let all = PageRange::new(base, base.saturating_add(region.pages));
                let plan = region.vma.on_fault(PageIndex(base.saturating_add(id.page.0)), all, &config);
                let (start, end) = (plan.range.start.0 - base, plan.range.end.0 - base);
                wanted.extend((start..end).map(|page| PageId { page: PageIndex(page), ..id }));
                let window = SwapWindow::Pages { start: PageIndex(start), count: end - start, stride: 1 };
                self.decided(id, window, plan.size, plan.reason, out);
            }
            SwapPolicy::Adaptive => {
                let pace = self.pace(now);
                let adaptive = &mut self.table.region_mut(id.region).adaptive;
                let mut plan = adaptive.on_miss(id.page, &pace);
                if plan.is_none() && advice == RegionAdvice::Sequential {
                    plan = adaptive.on_advice(id.page, &pace);
                }
                if plan.is_none_or(|plan| plan.count == 0) {
                    self.decided_single(id, out);
                }
                wanted = plan.map_or_else(Vec::new, |plan| self.follow(id, &plan, out));
            }
            SwapPolicy::Other(_) => {
                let fault =
                    SwapFault { page: id, slot, slots: self.slots.count(), config: self.config.window };
                if let Some(plan) = self.other.as_mut().map(|other| other.on_fault(fault)) {
                    wanted = self.pages_of(id, &plan.window);
                    self.decided(id, plan.window, plan.size, plan.reason, out);
                }
            }
        }
        self.submit(now, Some(id), wanted, out);
    }

    /// The pages of a window that a policy of another crate has planned.
    fn pages_of(&self, id: PageId, window: &SwapWindow) -> Vec<PageId> {
        match *window {
            SwapWindow::Slots(ref slots) => (slots.start..slots.end.min(self.slots.count()))
                .filter_map(|slot| self.slots.owner(slot))
                .collect(),
            SwapWindow::Pages { start, count, stride } => {
                let pages = self.table.region(id.region).map_or(0, |region| region.pages);
                // Each page once.
                let count = if stride == 0 { count.min(1) } else { count };
                let mut at = Some(start.0);
                (0..count)
                    .map_while(|_| {
                        let page = at.filter(|&page| page < pages)?;
                        at = page.checked_add_signed(stride);
                        Some(PageId { page: PageIndex(page), ..id })
                    })
                    .take(self.config.frames as usize)
                    .collect()
            }
        }
    }

    /// A reader reached a mark: plans the next window.
    pub(super) fn passed_mark(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        let pace = self.pace(now);
        let plan = self.table.region_mut(id.region).adaptive.on_mark(id.page, &pace);
        if let Some(plan) = plan {
            let wanted = self.follow(id, &plan, out);
            self.submit(now, None, wanted, out);
        }
    }

    fn pace(&self, now: Instant) -> Pace {
        let max = self.config.ahead_max.min((self.config.frames / 64).max(8));
        Pace { now, latency_ns: self.latency_ns, max, sees_hits: !self.config.maps_ahead() }
    }

    /// The swapped-out pages of a plan; marks the first one, and moves the pages that the reader
    /// has passed.
    fn follow(&mut self, id: PageId, plan: &AheadPlan, out: &mut Vec<PagerAction>) -> Vec<PageId> {
        self.leave_behind(id, plan.behind);
        if plan.count == 0 {
            return Vec::new();
        }
        let count = plan.count.min(self.room_ahead());
        let region = self.table.region_mut(id.region);
        let (mut at, mut wanted) = (plan.start, Vec::new());
        for _ in 0..plan.count.saturating_mul(SKIP).min(plan.clear) {
            if at.0 >= region.pages || wanted.len() as u64 >= count {
                break;
            }
            let page = region.page(at);
            if page.slot != 0 && !page.any(flag::HERE | flag::COMING) {
                wanted.push(PageId { page: at, ..id });
            }
            match at.0.checked_add_signed(plan.stride) {
                Some(next) => at = PageIndex(next),
                None => break,
            }
        }
        let mark = wanted.first().map(|first| first.page);
        region.adaptive.planned(plan.stream, at, mark);
        if let Some(mark) = mark {
            region.page_mut(mark).set(flag::MARK);
        }
        let window = SwapWindow::Pages { start: plan.start, count: plan.count, stride: plan.stride };
        self.decided(id, window, plan.count, plan.reason, out);
        wanted
    }

    /// Puts pages that a stream's reader has passed first in line for eviction.
    pub(super) fn leave_behind(&mut self, id: PageId, behind: PageRange) {
        // Other policies follow no reader, and their pages age alike.
        if self.config.lists == Lists::Global || self.config.policy != SwapPolicy::Adaptive {
            return;
        }
        for page in behind.start.0..behind.end.0 {
            let id = PageId { page: PageIndex(page), ..id };
            let state = self.table.page(id);
            if state.is(flag::HERE) && state.list != Kind::No {
                self.enlist(id, Kind::Behind);
            }
        }
    }

    /// Frames that readahead may use.
    pub(super) fn room_ahead(&self) -> u64 {
        if self.hungry.is_empty() { self.free().saturating_sub(self.config.low / 2 + 1) } else { 0 }
    }

    /// Submits reads for a touched page, and for others as far as memory allows.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        demand: Option<PageId>,
        wanted: Vec<PageId>,
        out: &mut Vec<PagerAction>,
    ) {
        // As Linux, once a window has more than one page.
        if let Some(id) = demand.filter(|_| wanted.len() > 1) {
            self.drain(id.region);
        }
        let mut room = self.room_ahead();
        let mut pages: Vec<(u32, PageId)> = Vec::new();
        if let Some(id) = demand {
            pages.push((self.table.page(id).slot, id));
        }
        for id in wanted {
            let page = self.table.page(id);
            let is_out = page.slot != 0 && !page.any(flag::HERE | flag::COMING);
            if room > 0 && Some(id) != demand && is_out {
                room -= 1;
                pages.push((page.slot, id));
            } else {
                self.table.page_mut(id).clear(if is_out { flag::MARK } else { 0 });
            }
        }
        pages.sort_unstable();
        let follows = |(slot, _): &(u32, PageId), (next, _): &(u32, PageId)| slot + 1 == *next;
        let mut runs: Vec<&[(u32, PageId)]> = Vec::new();
        let own = matches!(self.config.policy, SwapPolicy::Adaptive);
        for run in pages.chunk_by(follows) {
            match demand.and_then(|id| run.iter().position(|&(_, other)| other == id)) {
                Some(at) if own && run.len() > RIDE_PAGES => {
                    // The waiter waits for a few pages; the others follow as separate reads.
                    let from = at.saturating_sub(RIDE_PAGES / 2).min(run.len() - RIDE_PAGES);
                    runs.insert(0, &run[from..from + RIDE_PAGES]);
                    runs.extend([&run[..from], &run[from + RIDE_PAGES..]]);
                }
                Some(_) => runs.insert(0, run),
                None => runs.push(run),
            }
        }
        let most = if own { RIDE_PAGES } else { READ_PAGES };
        for part in runs.iter().flat_map(|run| run.chunks(most)) {
            self.read(now, part, demand, out);
        }
    }

    fn read(
        &mut self,
        now: Instant,
        run: &[(u32, PageId)],
        demand: Option<PageId>,
        out: &mut Vec<PagerAction>,
    ) {
        let Some(&(slot, first)) = run.first() else { return };
        let id = self.new_id();
        let mut ahead = true;
        for &(_, page) in run {
            self.take_frame(page.region);
            let state = self.table.page_mut(page);
            self.fates[usize::from(state.is(flag::LEFT))].refaulted += 1;
            state.clear(flag::LEFT);
            state.set(flag::COMING);
            state.next = id;
            let region = self.table.region_mut(page.region);
            region.in_flight += 1;
            region.away -= 1;
            if Some(page) == demand {
                ahead = false;
            } else {
                self.table.page_mut(page).set(flag::AHEAD);
                self.count(page.region, |stats| stats.swap_ra += 1);
            }
        }
        self.count(first.region, |stats| stats.reads += 1);
        let urgency = if ahead { Urgency::Readahead } else { Urgency::Demand };
        let pages: Vec<PageId> = run.iter().map(|&(_, page)| page).collect();
        self.reads.insert(id, Reading { pages: pages.clone(), urgency, ahead, since: now });
        let slot = SlotIndex(slot.into());
        out.push(PagerAction::Read(SwapIn { id: ReadId(id), slot, pages, urgency }));
    }

    /// Reads one page for a waiter.
    pub(super) fn read_alone(&mut self, now: Instant, id: PageId, out: &mut Vec<PagerAction>) {
        let slot = self.table.page(id).slot;
        self.read(now, &[(slot, id)], Some(id), out);
    }

    fn decided_single(&self, page: PageId, out: &mut Vec<PagerAction>) {
        let window = SwapWindow::Pages { start: page.page, count: 1, stride: 1 };
        self.decided(page, window, 1, SwapReason::Single, out);
    }

    fn decided(
        &self,
        page: PageId,
        window: SwapWindow,
        size: u64,
        reason: SwapReason,
        out: &mut Vec<PagerAction>,
    ) {
        if self.config.explain {
            let slot = SlotIndex(self.table.page(page).slot.into());
            out.push(PagerAction::Decided(SwapDecision { page, slot, window, size, reason }));
        }
    }
}
