//! Memory larger than RAM: which pages are in memory, where the others are, what to read and evict.
//!
//! ```text
//!            touch (fault)                      Read, Write          spill store
//!  program ─────────────────►  Pager::touch  ─────────────────────►
//!          ◄─────────────────                ◄─────────────────────
//!            Zero, Map, Wake    lists, slots,   read_done, written
//!                               readahead
//! ```
//!
//! A [`Pager`] is a pure state machine, like the cache: no clock, no thread, no bytes. A driver
//! reports events with their times, and carries out the returned [`PagerAction`]s. A pager serves
//! any number of regions, which share one budget of frames and one store of slots.
//!
//! ```
//! use bowwave_core::swap::pager::{PageId, Pager, PagerAction, PagerConfig, RegionId, Touch, TouchOutcome};
//! use bowwave_core::{Instant, PageCount, PageIndex, Waiter};
//!
//! let mut pager = Pager::new(PagerConfig::own(1000, 10_000)).expect("bounds are kept");
//! pager.add_region(RegionId(0), PageIndex(0), PageCount(5000)).expect("a new name");
//! let (mut out, page) = (Vec::new(), PageId { region: RegionId(0), page: PageIndex(7) });
//! // The first touch of a page finds nothing to read: it begins as zeroes.
//! assert_eq!(pager.touch(Instant(0), Waiter(1), page, Touch::Store, &mut out), TouchOutcome::Go);
//! assert!(matches!(out[..], [PagerAction::Zero { writable: true, .. }]));
//! ```
//!
//! # A page's life
//!
//! ```text
//!            touch: Zero                    not in use: Unmap            written: Drop
//!  zeroes ───────────────► in memory, mapped ────────────► in memory, ──────────────► out, at a slot
//!     ▲                            ▲   ▲     touch: Map     unmapped                      │
//!     └── DontNeed, or zeroes      │   └───────────────────────┘                          │
//!                                  └──────────── touch: Read, then Map, Wake ─────────────┘
//! ```
//!
//! The driver:
//!
//! * reports with [`Pager::touch`] every touch of a page that is not mapped, and every store to a
//!   page that is not mapped writable; with [`Tracking::Accessed`], every touch;
//! * completes every [`PagerAction::Read`] with one [`Pager::read_done`], every
//!   [`PagerAction::Write`] with one [`Pager::written`], and every [`PagerAction::Unmap`] with one
//!   [`Pager::unmapped`];
//! * calls [`Pager::expire`] at [`Pager::next_deadline`].
//!
//! The pager guarantees:
//!
//! * **No write is lost.** Memory is released only after the page was unmapped, and then written or
//!   known to equal the store's copy. A page that is touched during its eviction stays. A failed
//!   write leaves its pages in memory, dirty. Dirty pages then stay until a pause has passed, and
//!   touches that need more memory wait ([`PagerLoad::blocked`]).
//! * **Demand does not wait for readahead.** A touched page is read at once, together with only a
//!   few pages that are adjacent on the store. Readahead takes no frame while a touch waits for
//!   one, and leaves a reserve of free frames. A touch of a page in flight promotes its read. A
//!   failed read is retried for the touched page alone.
//! * **The budget holds.** Frames in use never exceed [`PagerConfig::frames`], unless it was just
//!   lowered.
//! * **Every waiter is woken once.**
//!
//! # Eviction
//!
//! Pages are active (mapped) or inactive (with [`Tracking::Unmap`] unmapped, so that a touch
//! shows). Pages that a readahead stream's reader has passed are evicted before others, the most
//! recently passed one first: a repeated scan needs that page last. So a sequential reader takes
//! memory from itself, whatever its window, and not from other regions.
//!
//! Seven of eight rounds of eviction take passed pages, if there are any. The eighth takes inactive
//! pages of the region with the lowest marginal benefit of a frame. If passed pages refault more
//! than four times as often as others, the shares are swapped: the passed pages are then a working
//! set.
//!
//! The marginal benefit is the region's recent stalls, divided by its inactive and swapped-out
//! pages. A touch of an inactive page counts as a stall: the page would have refaulted soon.

mod advise;
mod ahead;
mod check;
mod config;
mod done;
mod event;
mod reclaim;
mod slots;
mod stats;
mod table;
mod touch;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use check::PagerFault;
pub use config::{Lists, PagerConfig, Placement, SwapTuning, Tracking};
pub use event::{
    PageId, PagerAction, PagerError, PagerEvent, ReadId, RegionAdvice, RegionId, SwapDecision, SwapIn,
    SwapOut, SwapWindow, Touch, TouchOutcome, WriteError, WriteId,
};
pub use stats::{PagerLoad, SwapStats};

use crate::config::ConfigError;
use crate::event::Urgency;
use crate::id::Waiter;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::swap::{Adaptive, SlotIndex, SwapPolicy, SwapReadahead, Vma};
use crate::time::Instant;
use slots::{Head, Slots};
use table::{Kind, PAGES_MAX, REGIONS_MAX, Region, Table, flag};

/// Memory larger than RAM. See the [module](self).
#[derive(Debug)]
pub struct Pager {
    config: PagerConfig,
    /// Initial `frames`, `low` and `high`. [`Pager::set_frames`] scales the limits in proportion.
    begun_with: (u64, u64, u64),
    table: Table,
    slots: Slots,
    /// Where single pages go on the store.
    shared: Head,
    /// Frames in use: pages in memory or in flight.
    used: u64,
    /// Frames that will be free when operations in flight have ended.
    freeing: u64,
    reads: BTreeMap<u64, Reading>,
    writes: BTreeMap<u64, Vec<PageId>>,
    next_id: u64,
    /// Touches that wait for a frame, in order of arrival.
    hungry: VecDeque<(Waiter, PageId, Touch)>,
    /// Chosen pages that are unmapped.
    outgoing: Vec<PageId>,
    /// Chosen pages that are being unmapped.
    unmapping: u64,
    making_room: bool,
    /// The policy of another crate.
    other: Option<Box<dyn SwapReadahead>>,
    /// Writes are paused until this time after a failure.
    pause: Option<Instant>,
    pause_ns: u64,
    /// Number of evictions, for fairness.
    turn: u64,
    /// Smoothed time of a readahead read.
    latency_ns: u64,
    /// Results of evictions: from the inactive tail, and of passed pages.
    fates: [Fate; 2],
    stats: SwapStats,
}

/// Results of recent evictions.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    evicted: u64,
    /// Evicted pages that were read again.
    refaulted: u64,
}

/// A read in flight.
#[derive(Debug)]
struct Reading {
    pages: Vec<PageId>,
    urgency: Urgency,
    /// Whether it was readahead when it was sent.
    ahead: bool,
    since: Instant,
}

impl Pager {
    /// A pager without regions.
    ///
    /// # Errors
    /// A field of the configuration that is out of bounds.
    pub fn new(config: PagerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let other = other(config.policy);
        Ok(Self {
            begun_with: (config.frames, config.low, config.high),
            config,
            table: Table::default(),
            slots: Slots::new(config.slots, other.is_some()),
            shared: Head::default(),
            used: 0,
            freeing: 0,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            next_id: 0,
            hungry: VecDeque::new(),
            outgoing: Vec::new(),
            unmapping: 0,
            making_room: false,
            other,
            pause: None,
            pause_ns: 0,
            turn: 0,
            latency_ns: 200_000,
            fates: [Fate::default(); 2],
            stats: SwapStats::default(),
        })
    }

    /// Handles any event: the entry for replay. A touch that continues at once leads to no wake.
    pub fn step(&mut self, now: Instant, event: PagerEvent, out: &mut Vec<PagerAction>) {
        // Return values are not recorded: a replay computes them again.
        match event {
            PagerEvent::RegionAdded { region, base, pages } => {
                let _refused = self.add_region(region, base, pages);
            }
            PagerEvent::RegionRemoved { region } => self.remove_region(now, region, out),
            PagerEvent::Touched { waiter, id, touch } => {
                let _outcome = self.touch(now, waiter, id, touch, out);
            }
            PagerEvent::ReadDone { id, result } => {
                let _known = self.read_done(now, id, result, out);
            }
            PagerEvent::Unmapped { region, pages, written } => {
                self.unmapped(now, region, pages, written.as_deref(), out);
            }
            PagerEvent::Written { id, result, zeroes } => {
                let _known = self.written(now, id, result, &zeroes, out);
            }
            PagerEvent::Advised { region, pages, advice } => self.advise(now, region, pages, advice, out),
            PagerEvent::FramesSet { frames } => self.set_frames(now, frames, out),
            PagerEvent::Tuned { tuning } => {
                let _refused = self.tune(tuning);
            }
            PagerEvent::Expired => self.expire(now, out),
        }
    }

    /// Adds a region of `pages` pages, all zeros. `base` is the number of its first page by
    /// address, which determines page table boundaries.
    ///
    /// # Errors
    /// If the name is in use or not below 2^24 - 1, or if there are more than 2^40 pages.
    pub fn add_region(
        &mut self,
        region: RegionId,
        base: PageIndex,
        pages: PageCount,
    ) -> Result<(), ConfigError> {
        ConfigError::check([
            ("region", region.0.into(), region.0 < REGIONS_MAX, "below 2^24 - 1"),
            ("region", region.0.into(), self.table.region(region).is_none(), "the name of no other region"),
            ("pages", pages.0, pages.0 <= PAGES_MAX, "at most 2^40"),
        ])?;
        self.table.insert(region, Region::new(pages.0, base.0));
        Ok(())
    }

    /// Removes a region with all its pages; waiting touches fail. [`PagerAction::Retired`] follows
    /// when none of its I/O is in flight. Unknown regions are ignored.
    pub fn remove_region(&mut self, now: Instant, region: RegionId, out: &mut Vec<PagerAction>) {
        let Some(dying) = self.table.region(region).filter(|region| !region.dying) else { return };
        let all = dying.all();
        let region_state = self.table.region_mut(region);
        region_state.dying = true;
        let waiting = core::mem::take(&mut region_state.waiting);
        let mut woken: Vec<Waiter> = waiting.into_values().flatten().map(|waiting| waiting.waiter).collect();
        self.hungry.retain(|&(waiter, id, _)| {
            let goes = id.region == region;
            if goes {
                woken.push(waiter);
            }
            !goes
        });
        out.extend(
            woken
                .into_iter()
                .map(|waiter| PagerAction::Wake { waiter, result: Err(PagerError::RegionRemoved) }),
        );
        self.discard(region, all, out);
        let head = &mut self.table.region_mut(region).head;
        self.slots.close(head);
        self.retire(region, out);
        self.balance(now, out);
    }

    /// Changes the number of frames; at least 16. Excess pages are evicted as fast as they can be
    /// written.
    pub fn set_frames(&mut self, now: Instant, frames: u64, out: &mut Vec<PagerAction>) {
        let frames = frames.max(16);
        let (begun, low, high) = self.begun_with;
        let scaled = |pages: u64| (u128::from(pages) * u128::from(frames) / u128::from(begun)) as u64;
        self.config.low = scaled(low).clamp(1, frames / 4);
        self.config.high = scaled(high).clamp(self.config.low + 1, frames / 2);
        self.config.frames = frames;
        self.balance(now, out);
    }

    /// Changes the policy and the sizes of its windows. A policy starts with a fresh state.
    ///
    /// # Errors
    /// A value that is out of bounds. Then nothing changes.
    pub fn tune(&mut self, tuning: SwapTuning) -> Result<(), ConfigError> {
        let SwapTuning { policy, window, ahead_max } = tuning;
        let config = PagerConfig { policy, window, ahead_max, ..self.config };
        config.validate()?;
        let is_new = policy != self.config.policy;
        self.config = config;
        if !is_new {
            return Ok(());
        }
        self.other = other(policy);
        self.slots.track_owners(self.other.is_some());
        for (id, region) in (0..).map(RegionId).zip(&mut self.table.regions) {
            let Some(region) = region else { continue };
            (region.vma, region.adaptive) = (Vma::default(), Adaptive::default());
            if self.other.is_some() {
                let all = region.all();
                for page in region.known(all) {
                    let slot = region.page(page).slot;
                    if slot != 0 {
                        self.slots.set_owner(slot.into(), PageId { region: id, page });
                    }
                }
            }
        }
        Ok(())
    }

    /// The policy and the sizes of its windows.
    pub const fn tuning(&self) -> SwapTuning {
        let PagerConfig { policy, window, ahead_max, .. } = self.config;
        SwapTuning { policy, window, ahead_max }
    }

    /// When to call [`Self::expire`].
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.pause
    }

    /// Handles due timers: retries failed writes.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<PagerAction>) {
        self.balance(now, out);
    }

    /// The settings, with the current number of frames.
    pub const fn config(&self) -> &PagerConfig {
        &self.config
    }

    /// Counters over all regions.
    pub const fn stats(&self) -> &SwapStats {
        &self.stats
    }

    /// Counters of one region; none if it does not exist.
    pub fn region_stats(&self, region: RegionId) -> Option<&SwapStats> {
        self.table.region(region).map(|region| &region.stats)
    }

    /// Bytes of memory used by the tables: page states, which grow with the touched chunks, and
    /// slots.
    pub const fn table_bytes(&self) -> u64 {
        self.table.bytes() + self.slots.bytes()
    }

    /// Current load.
    pub fn load(&self) -> PagerLoad {
        PagerLoad {
            frames: self.config.frames,
            frames_used: self.used,
            slots: self.slots.count() - 1,
            slots_used: self.slots.used(),
            hungry: self.hungry.len() as u64,
            writes: self.writes.len() as u64,
            reads: self.reads.len() as u64,
            blocked: self.pause.is_some(),
        }
    }

    /// Whether a touch needs no action: the page is mapped, and writable for a store.
    pub fn is_mapped(&self, id: PageId, touch: Touch) -> bool {
        let wanted = if touch == Touch::Store { flag::MAPPED | flag::WRITABLE } else { flag::MAPPED };
        let page = self.table.page(id);
        page.is(wanted) && !page.is(flag::UNMAPPING)
    }

    /// Whether a page has memory, mapped or not.
    pub fn is_in_memory(&self, id: PageId) -> bool {
        self.table.page(id).is(flag::HERE)
    }

    /// The slot of a page, if it has one. A page in memory may have one, too.
    pub fn slot(&self, id: PageId) -> Option<SlotIndex> {
        let slot = self.table.page(id).slot;
        (slot != 0).then_some(SlotIndex(slot.into()))
    }

    /// The owner of a page's lists.
    fn owner(&self, id: PageId) -> usize {
        match self.config.lists {
            Lists::Global => 0,
            Lists::PerRegion => id.region.0 as usize + 1,
        }
    }

    /// Moves a page to the head of a list. With batches, an active page first joins its region's.
    fn enlist(&mut self, id: PageId, kind: Kind) {
        self.unlist(id);
        let batch = kind == Kind::Active && self.config.list_batch > 1 && self.config.lists == Lists::Global;
        if batch {
            let own = id.region.0 as usize + 1;
            self.table.enlist(own, id, Kind::Batch);
            if self.table.list(own, Kind::Batch).len >= self.config.list_batch.into() {
                self.drain(id.region);
            }
        } else {
            self.table.enlist(self.owner(id), id, kind);
        }
    }

    fn unlist(&mut self, id: PageId) {
        let gathered = self.table.page(id).list == Kind::Batch;
        let owner = if gathered { id.region.0 as usize + 1 } else { self.owner(id) };
        self.table.unlist(owner, id);
    }

    /// Moves a region's batch to the active list, in order.
    fn drain(&mut self, region: RegionId) {
        let own = region.0 as usize + 1;
        while let Some(id) = self.table.tail(own, Kind::Batch) {
            self.table.unlist(own, id);
            self.table.enlist(0, id, Kind::Active);
        }
    }

    fn count(&mut self, region: RegionId, count: impl Fn(&mut SwapStats)) {
        count(&mut self.stats);
        count(&mut self.table.region_mut(region).stats);
    }

    /// Free frames.
    const fn free(&self) -> u64 {
        self.config.frames.saturating_sub(self.used)
    }

    fn take_frame(&mut self, region: RegionId) {
        self.used += 1;
        self.table.region_mut(region).frames += 1;
    }

    fn give_frame(&mut self, region: RegionId) {
        self.used -= 1;
        self.table.region_mut(region).frames -= 1;
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Frees the slot of a page.
    fn release_slot(&mut self, id: PageId) {
        let slot = core::mem::take(&mut self.table.page_mut(id).slot);
        if slot != 0 {
            self.slots.release(slot.into());
        }
    }

    /// A page's contents differ from the store's. The slot of a write in flight is freed when the
    /// write ends.
    fn soil(&mut self, id: PageId) {
        let page = self.table.page_mut(id);
        page.set(flag::DIRTY);
        if !page.is(flag::WRITING) {
            self.release_slot(id);
        }
    }

    /// Retires a region if nothing of it is left.
    fn retire(&mut self, region: RegionId, out: &mut Vec<PagerAction>) {
        if self.table.region(region).is_some_and(|region| region.dying && region.in_flight == 0) {
            self.table.remove(region);
            out.push(PagerAction::Retired { region });
        }
    }
}

/// The state of a policy of another crate.
fn other(policy: SwapPolicy) -> Option<Box<dyn SwapReadahead>> {
    match policy {
        SwapPolicy::Other(kind) => Some(kind.build()),
        _ => None,
    }
}

/// Merges `action` into the last action if both have the same kind and region, and its pages start
/// where the last action's pages end. Otherwise appends it.
fn push(out: &mut Vec<PagerAction>, action: PagerAction) {
    let joined = match (out.last_mut(), &action) {
        (
            Some(PagerAction::Map { region, pages, writable }),
            PagerAction::Map { region: of, pages: more, writable: also },
        )
        | (
            Some(PagerAction::Zero { region, pages, writable }),
            PagerAction::Zero { region: of, pages: more, writable: also },
        ) => (region == of && writable == also).then_some((pages, *more)),
        (Some(PagerAction::Unmap { region, pages }), PagerAction::Unmap { region: of, pages: more })
        | (Some(PagerAction::Drop { region, pages }), PagerAction::Drop { region: of, pages: more }) => {
            (region == of).then_some((pages, *more))
        }
        _ => None,
    };
    match joined {
        Some((pages, more)) if pages.end == more.start => pages.end = more.end,
        _ => out.push(action),
    }
}

/// The page alone.
const fn single(page: PageIndex) -> PageRange {
    PageRange::new(page.0, page.0 + 1)
}
