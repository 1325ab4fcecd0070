//! Memory for pages: two-list reclaim as in Linux, shadows of evicted pages, and lent frames.
//!
//! Pages enter the inactive list; a second touch activates them. Reclaim evicts from the cold end
//! of the inactive list. If that list is short, it first deactivates active pages. An evicted page
//! leaves a shadow with the eviction clock. If the page returns after at most as many evictions as
//! there are active pages, a longer inactive list would have held it, so it is activated at once
//! (Linux, `mm/workingset.c`).
//!
//! Unread readahead of an active stream is retained while used pages can be evicted instead.
//! Readers run in bursts, so the inactive list may turn over while a reader is paused.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Cache;
use super::frames::{Flag, Flags, State};
use super::table::{Shadow, Slot};
use crate::config::Eviction;
use crate::event::Action;
use crate::id::{FileId, FrameId};
use crate::page::{PageIndex, PageRange};
use crate::time::Instant;

/// Pages moved from the active to the inactive list at once (`SWAP_CLUSTER_MAX`).
const DEACTIVATE_BATCH: u32 = 32;

/// Pinned pages (such as dirty ones) passed over at the cold end of a list before the other list is
/// tried. Without the bound, each eviction would scan a whole list of pinned pages.
const SCAN_MAX: u32 = 128;

/// Retained pages passed over before one is evicted. Then there may be no other pages.
const RETAINED_SCAN_MAX: u32 = 4096;
/// The scan then pauses, for one eviction for each this many pages passed over.
const RETAINED_PAUSE: u32 = 16;

/// Pages that each eviction may unmap, now or later. Larger: an eviction of many pages unmaps more
/// at once. Smaller: where most pages are mapped, more go without a second chance: one in nine of
/// them with 8.
const UNMAP_EACH: u32 = 8;
/// Pages that one eviction unmaps at most. Larger: more pages in use fault again. Smaller: more
/// system calls.
const UNMAP_BATCH: u32 = 64;

/// Lifetime of retained pages, in turnovers of memory: if most pages that were passed over were
/// used, and if not.
const RETAINED_TURNS: [u32; 2] = [4, 1];

/// Flags that the first use of a page clears.
const FIRST_USE: Flags =
    Flags::NONE.with(Flag::Thrashed, true).with(Flag::Once, true).with(Flag::PassedOver, true);

/// State of reclaim.
#[derive(Debug, Default)]
pub(super) struct Reclaim {
    /// Evictions and activations so far: the clock of refault distances (`nonresident_age`).
    pub(super) clock: u32,
    /// Shadows in the page table, oldest first; at most one a frame. An entry is stale if its
    /// page's slot has changed.
    shadows: VecDeque<(FileId, PageIndex, Slot)>,
    /// With [`Eviction::Scan`]: fraction of active pages scanned and not yet moved, in inactive
    /// list lengths.
    scan: u64,
    /// Used minus unused retained pages; bounded by ± the number of frames.
    retained_worth: i64,
    /// Evictions for which no page is passed over.
    retained_pause: u32,
    /// Pages that might be unmapped before one is evicted, and the clock at that time.
    unmap_left: u32,
    unmap_clock: u32,
}

impl Reclaim {
    /// Pages that may be unmapped before one is evicted.
    fn may_unmap(&mut self) -> u32 {
        let evictions = self.clock.wrapping_sub(self.unmap_clock);
        self.unmap_clock = self.clock;
        self.unmap_left =
            evictions.saturating_mul(UNMAP_EACH).saturating_add(self.unmap_left).min(UNMAP_BATCH);
        self.unmap_left
    }

    pub(super) fn bytes(&self) -> usize {
        self.shadows.capacity() * size_of::<(FileId, PageIndex, Slot)>()
    }
}

impl Cache {
    /// Lends the cache `frames` more frames.
    pub fn grant(&mut self, now: Instant, frames: u32, out: &mut Vec<Action>) {
        self.tick(now);
        self.limit = self.limit.saturating_add(frames).min(crate::Config::UNLIMITED);
        self.retry_starved(out);
    }

    /// Takes back up to `frames` frames, and evicts as needed; [`frame_limit`](Self::frame_limit)
    /// then shows how many. The cache keeps its reserve and one more frame, and all pinned or
    /// in-flight frames.
    pub fn revoke(&mut self, frames: u32, out: &mut Vec<Action>) {
        let floor = self.config.reserve_frames + 1;
        let mut left = frames.min(self.limit.saturating_sub(floor));
        // Frames never used have no memory to release.
        let virgin = left.min(self.limit - self.frames.used() - self.frames.free_len());
        self.limit -= virgin;
        left -= virgin;
        while self.frames.free_len() < left && self.evict_one() {}
        let mut retired = Vec::new();
        self.frames.retire(left as usize, &mut retired);
        // At most `left`, which is a u32.
        self.limit -= retired.len() as u32;
        self.trim_histories();
        if !retired.is_empty() {
            out.push(Action::Retired { frames: retired });
        }
    }

    /// Frames available to demand: free or reclaimable.
    pub(super) fn available(&self) -> u64 {
        u64::from(self.limit.saturating_sub(self.frames.used())) + u64::from(self.frames.reclaimable())
    }

    /// Frames available to readahead within its in-flight limit, after `demand_left` frames for the
    /// current read.
    pub(super) fn readahead_allowance(&self, demand_left: u64) -> u64 {
        let frames = self.available().saturating_sub(demand_left + u64::from(self.config.reserve_frames));
        frames.min(self.ahead_max.saturating_sub(self.ahead))
    }

    /// Evicts a page if all frames are used.
    pub(super) fn make_room(&mut self) {
        if self.frames.used() >= self.limit {
            self.evict_one();
        }
    }

    /// A page returns after its eviction.
    pub(super) fn refault(&mut self, frame: FrameId, shadow: Shadow, demanded: bool) {
        let distance = self.reclaim.clock.wrapping_sub(shadow.age) & Slot::AGE_MASK;
        let activate = self.config.eviction == Eviction::TwoList && distance <= self.frames.active_len();
        let entry = self.frames.get_mut(frame);
        if activate {
            entry.set(Flag::Activate);
        }
        if shadow.unused && !demanded {
            entry.set(Flag::Thrashed);
        }
        let file = entry.file;
        let stats = self.stats_mut(file);
        stats.refaults += 1;
        stats.refaults_activated += u64::from(activate);
        stats.pages_thrashed += u64::from(shadow.unused && demanded);
    }

    /// Moves an inactive page to the active list.
    fn activate(&mut self, frame: FrameId) {
        self.frames.list_del(frame);
        self.frames.list_add(frame, State::Active);
        self.reclaim.clock = self.reclaim.clock.wrapping_add(1);
    }

    /// Counts a use of a page, as Linux's `mark_page_accessed`: the second use activates it. With
    /// LRU, each use moves it to the hot end.
    pub(super) fn touch(&mut self, id: FrameId) {
        if self.frames.get(id).is_new() {
            self.first_use(id);
        }
        let frame = self.frames.get_mut(id);
        if self.config.eviction == Eviction::Lru {
            if frame.state == State::Inactive {
                self.frames.move_to_head(id);
            }
        } else {
            match (frame.state, frame.has(Flag::Referenced)) {
                (State::Inactive, true) => {
                    frame.take(Flag::Referenced);
                    self.activate(id);
                }
                (State::InFlight, true) => frame.set(Flag::Activate),
                _ => frame.set(Flag::Referenced),
            }
        }
    }

    /// Updates counters and scores at the first use of a page.
    fn first_use(&mut self, id: FrameId) {
        let used = self.frames.take_unused(id);
        let frame = self.frames.get_mut(id);
        let (file, index) = (frame.file, frame.index);
        let known = frame.take_all(FIRST_USE);
        let planned = used && frame.take(Flag::Planned);
        if used {
            let stats = self.stats_mut(file);
            stats.pages_used += 1;
            stats.pages_planned_used += u64::from(planned);
            stats.pages_thrashed += u64::from(known.has(Flag::Thrashed));
        }
        if known.has(Flag::PassedOver) {
            self.judge_retained(1);
        }
        if known.has(Flag::Once) && index.0 > 0 {
            self.let_go(file, PageRange::new(index.0 - 1, index.0));
        }
    }

    /// Evicts the coldest unpinned page. Returns whether there was one.
    fn evict_one(&mut self) -> bool {
        if self.frames.reclaimable() == 0 {
            return false;
        }
        match self.config.eviction {
            Eviction::TwoList => self.balance(),
            Eviction::Scan => self.scan_active(),
            Eviction::Lru => {}
        }
        self.pass_over_retained();
        let brief = [(State::Inactive, SCAN_MAX), (State::Active, SCAN_MAX)];
        let whole = [State::Inactive, State::Active].map(|state| (state, u32::MAX));
        for (state, scan_max) in brief.into_iter().chain(whole) {
            let len =
                if state == State::Inactive { self.frames.inactive_len() } else { self.frames.active_len() };
            for _ in 0..len.min(scan_max) {
                let Some(id) = self.frames.tail(state) else { break };
                // Whole batches, so that evicted pages stay adjacent and go in one system call. Not
                // in the last two passes, which must come to every page.
                if self.frames.get(id).has(Flag::Mapped) && scan_max == SCAN_MAX {
                    let most = self.reclaim.may_unmap();
                    if most == UNMAP_BATCH {
                        self.reclaim.unmap_left = most - self.unmap_tail(state, most);
                        continue;
                    }
                }
                if self.frames.get(id).pins == 0 {
                    self.evict(id);
                    return true;
                }
                // Pinned: rotated, as Linux does with a locked page.
                self.frames.list_del(id);
                self.frames.list_add(id, state);
            }
        }
        unreachable!("a reclaimable frame is on one of the lists")
    }

    /// Rotates retained pages until the page at the cold end is not retained.
    fn pass_over_retained(&mut self) {
        if self.reclaim.retained_pause > 0 {
            self.reclaim.retained_pause -= 1;
            return;
        }
        let turns = RETAINED_TURNS[usize::from(self.reclaim.retained_worth < 0)];
        let oldest = self.limit.saturating_mul(turns);
        let scan_max = self.frames.inactive_len().min(RETAINED_SCAN_MAX);
        for _ in 0..scan_max {
            let Some(id) = self.frames.tail(State::Inactive) else { return };
            match self.frames.retained_since(id) {
                Some(born) if self.reclaim.clock.wrapping_sub(born) < oldest && self.is_read(id) => {
                    self.frames.get_mut(id).set(Flag::PassedOver);
                    self.frames.move_to_head(id);
                }
                _ => return,
            }
        }
        self.reclaim.retained_pause = scan_max / RETAINED_PAUSE;
    }

    /// Whether the file of a page has an open handle.
    fn is_read(&self, id: FrameId) -> bool {
        self.file(self.frames.get(id).file).handles > 0
    }

    /// Counts retained pages that were used, or, if negative, were not.
    fn judge_retained(&mut self, pages: i64) {
        let most = i64::from(self.limit);
        self.reclaim.retained_worth = (self.reclaim.retained_worth + pages).clamp(-most, most);
    }

    /// Keeps the inactive list long enough for a second touch before eviction.
    fn balance(&mut self) {
        for _ in 0..DEACTIVATE_BATCH {
            let (inactive, active) =
                (u64::from(self.frames.inactive_len()), u64::from(self.frames.active_len()));
            let gib = ((inactive + active) * self.config.page_size.bytes()) >> 30;
            let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
            if inactive * ratio >= active {
                return;
            }
            let Some(id) = self.frames.tail(State::Active) else { return };
            self.frames.list_del(id);
            self.frames.list_add(id, State::Inactive);
        }
    }

    /// Deactivates as many active pages for one reclaimed page as there are for each inactive page
    /// (`shrink_zone` of 2.6.20). They keep their referenced flag.
    fn scan_active(&mut self) {
        let (inactive, active) = (u64::from(self.frames.inactive_len()), u64::from(self.frames.active_len()));
        self.reclaim.scan += active;
        for _ in 0..DEACTIVATE_BATCH {
            if self.reclaim.scan < inactive.max(1) {
                return;
            }
            self.reclaim.scan -= inactive.max(1);
            let Some(id) = self.frames.tail(State::Active) else { break };
            self.frames.list_del(id);
            self.frames.list_add(id, State::Inactive);
        }
        // The remainder of a full batch is dropped.
        self.reclaim.scan = 0;
    }

    fn evict(&mut self, id: FrameId) {
        let frame = self.frames.get(id);
        let (file, index, unused) = (frame.file, frame.index, frame.has(Flag::Unused));
        if frame.has(Flag::PassedOver) {
            self.judge_retained(-1);
        }
        self.frames.list_del(id);
        self.frames.free(id);
        self.stats_mut(file).pages_evicted += 1;
        if self.reports_evictions
            && let Some(Some(file)) = self.files.get_mut(file.0 as usize)
            && let Some(policy) = &mut file.policy
        {
            policy.on_evict(index, !unused);
        }
        self.leave_shadow(file, index, unused);
        if self.config.eviction != Eviction::Lru || unused {
            self.reclaim.clock = self.reclaim.clock.wrapping_add(1);
        }
    }

    /// Replaces a page by its shadow.
    fn leave_shadow(&mut self, file: FileId, index: PageIndex, unused: bool) {
        if self.config.eviction == Eviction::Lru && !unused {
            self.table.set(file, index, Slot::EMPTY);
            self.remember(file, index);
            return;
        }
        let shadow = Slot::of_shadow(Shadow { age: self.reclaim.clock, unused });
        self.table.set(file, index, shadow);
        if self.reclaim.shadows.len() == self.reclaim.shadows.capacity() {
            self.reclaim.shadows.reserve_exact(64.max(self.reclaim.shadows.len() / 8));
        }
        self.reclaim.shadows.push_back((file, index, shadow));
        while self.reclaim.shadows.len() > self.limit as usize {
            self.expire_shadow();
        }
    }

    /// Frees the frame of a used page that its reader has copied. Policies still see that the page
    /// was used. The clock stays: no page was evicted for want of memory.
    pub(super) fn evict_copied(&mut self, file: FileId, page: PageIndex, id: FrameId) {
        let frame = self.frames.get(id);
        let is_idle = frame.pins == 0 && matches!(frame.state, State::Inactive | State::Active);
        if !is_idle || frame.has(Flag::Unused) || frame.has(Flag::Mapped) {
            return;
        }
        self.frames.list_del(id);
        self.frames.free(id);
        self.leave_shadow(file, page, false);
    }

    /// Removes the oldest shadow: its page was evicted too long ago to matter.
    fn expire_shadow(&mut self) {
        let Some((file, index, slot)) = self.reclaim.shadows.pop_front() else { return };
        if self.table.remove(file, index, slot) {
            if slot.shadow().is_some_and(|shadow| shadow.unused) {
                self.stats_mut(file).pages_wasted += 1;
            } else {
                self.remember(file, index);
            }
        }
    }
}
