//! Memory larger than memory: which pages are in it, where the others are, what to bring back and what to give up.
//!
//! ```text
//!            touch (fault)                      Read, Write          spill store
//!  program ─────────────────►  Pager::touch  ─────────────────────►
//!          ◄─────────────────                ◄─────────────────────
//!            Zero, Map, Wake    lists, slots,   read_done, written
//!                               readahead
//! ```
//!
//! A [`Pager`] is a pure state machine, as the cache is: no clock, no thread, no bytes. A driver tells it what happened and
//! when, and carries out the [`PagerAction`]s that it answers. It serves any number of regions, which share one budget of
//! frames and one store of slots.
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
//! The driver's part:
//!
//! * Every touch of a page that is not mapped, or not mapped for writing, is told with [`Pager::touch`]; with
//!   [`Tracking::Accessed`] every touch at all.
//! * Every [`PagerAction::Read`] is answered by one [`Pager::read_done`], every [`PagerAction::Write`] by one
//!   [`Pager::written`], every [`PagerAction::Unmap`] by one [`Pager::unmapped`].
//! * [`Pager::expire`] is called at [`Pager::next_deadline`].
//!
//! What holds in return:
//!
//! * **No write is lost.** Memory is given back only after it was unmapped, and then written, or known to be what the store
//!   has. A page that is touched while it is on its way out stays. A write that fails leaves its pages in memory, marked as
//!   changed; then nothing that must be written leaves memory until a pause has passed, and touches that need more
//!   memory wait ([`PagerLoad::blocked`]).
//! * **Demand does not wait for readahead.** A touched page is read at once, its neighbours with it only as far as they are
//!   next to it on the store, and few; readahead takes no frame that a touch waits for, and none of the last ones; a touch
//!   of a page that readahead is bringing promotes it. A read that fails is put again for the page alone that someone waits
//!   for.
//! * **The budget holds.** Frames in use never exceed [`PagerConfig::frames`], unless it was lowered just now.
//! * **Whoever waits is woken once.**
//!
//! # Who gives way
//!
//! Pages are active (mapped) or inactive (with [`Tracking::Unmap`] unmapped, so that a touch shows). What a stream of
//! readahead has left behind goes first, the latest of it before the earlier: of memory that is passed over again and again
//! that is what is needed last, and a reader in order, at whatever window, takes memory from itself and not from its neighbours.
//! If pages that go so come back and others that go do not, it is the others' turn: what was left behind is then a working
//! set, and what is kept is of no use. Else, and each eighth time whether or not anyone has left something behind, the region gives way that a frame more or less
//! matters least to: where the fewest touches waited of late, or met a page that was next to go, for each page that they could
//! have been for.

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
pub use config::{Lists, PagerConfig, Placement, Tracking};
pub use event::{
    PageId, PagerAction, PagerError, ReadId, RegionAdvice, RegionId, SwapDecision, SwapIn, SwapOut,
    SwapWindow, Touch, TouchOutcome, WriteError, WriteId,
};
pub use stats::{PagerLoad, SwapStats};

use crate::config::ConfigError;
use crate::event::Urgency;
use crate::id::Waiter;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::swap::{Adaptive, SlotIndex, SwapPolicy, SwapReadahead};
use crate::time::Instant;
use slots::{Head, Slots};
use table::{Kind, PAGES_MAX, REGIONS_MAX, Region, Table, flag};

/// Memory larger than memory. See the [module](self).
#[derive(Debug)]
pub struct Pager {
    config: PagerConfig,
    /// Frames, and between how many free ones room is made, at first: what later ones are in proportion to.
    begun_with: (u64, u64, u64),
    table: Table,
    slots: Slots,
    /// Where single pages go on the store.
    shared: Head,
    /// Frames in use: pages in memory and on their way there.
    used: u64,
    /// Frames that come free when what is under way has ended.
    freeing: u64,
    reads: BTreeMap<u64, Reading>,
    writes: BTreeMap<u64, Vec<PageId>>,
    next_id: u64,
    /// Touches that wait for a frame, in order of arrival.
    hungry: VecDeque<(Waiter, PageId, Touch)>,
    /// Pages that were chosen and are unmapped.
    outgoing: Vec<PageId>,
    /// Pages that were chosen and are being unmapped.
    unmapping: u64,
    making_room: bool,
    /// Whether any region ever had a limit.
    limited: bool,
    /// The policy of another crate.
    other: Option<Box<dyn SwapReadahead>>,
    /// No writes before this time, after one failed.
    pause: Option<Instant>,
    pause_ns: u64,
    /// Turns of choosing who gives way.
    turn: u64,
    /// Time that a readahead takes, smoothed.
    latency_ns: u64,
    /// What became of pages that went because they were next to go, and of those that had been left behind.
    fates: [Fate; 2],
    stats: SwapStats,
}

/// What became of pages that went, lately.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    gone: u64,
    /// Of them, those that were read again.
    back: u64,
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
        let other = match config.policy {
            SwapPolicy::Other(kind) => Some(kind.build()),
            _ => None,
        };
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
            limited: false,
            other,
            pause: None,
            pause_ns: 0,
            turn: 0,
            latency_ns: 200_000,
            fates: [Fate::default(); 2],
            stats: SwapStats::default(),
        })
    }

    /// A region of `pages` pages, all zeroes. `base` is the number of its first page by address: where page tables begin
    /// follows from it.
    ///
    /// # Errors
    /// A name that is in use or too large (2^24), or more than 2^40 pages.
    pub fn add_region(
        &mut self,
        region: RegionId,
        base: PageIndex,
        pages: PageCount,
    ) -> Result<(), ConfigError> {
        let checks = [
            ("region", region.0.into(), region.0 < REGIONS_MAX, "below 2^24 - 1"),
            ("region", region.0.into(), self.table.region(region).is_none(), "the name of no other region"),
            ("pages", pages.0, pages.0 <= PAGES_MAX, "at most 2^40"),
        ];
        if let Some((field, value, _, bound)) = checks.into_iter().find(|check| !check.2) {
            return Err(ConfigError { field, value, bound });
        }
        self.table.insert(region, Region::new(pages.0, base.0, Adaptive::default()));
        Ok(())
    }

    /// A region goes away with all its pages; touches that wait for it fail. [`PagerAction::Retired`] follows when nothing
    /// of it is in flight any more. A region that there is not is ignored.
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
            woken.into_iter().map(|waiter| PagerAction::Wake { waiter, result: Err(PagerError::Gone) }),
        );
        self.discard(region, all, out);
        let head = &mut self.table.region_mut(region).head;
        self.slots.close(head);
        self.retire(region, out);
        self.balance(now, out);
    }

    /// Lowers or raises the frames that may be used; at least 16. What is too much goes as fast as it can be written.
    pub fn set_frames(&mut self, now: Instant, frames: u64, out: &mut Vec<PagerAction>) {
        let frames = frames.max(16);
        let (begun, low, high) = self.begun_with;
        let scaled = |pages: u64| (u128::from(pages) * u128::from(frames) / u128::from(begun)) as u64;
        self.config.low = scaled(low).clamp(1, frames / 4);
        self.config.high = scaled(high).clamp(self.config.low + 1, frames / 2);
        self.config.frames = frames;
        self.balance(now, out);
    }

    /// Limits the frames of one region; what it has above that goes before other regions' pages. `None` takes the limit
    /// back.
    pub fn limit_region(
        &mut self,
        now: Instant,
        region: RegionId,
        frames: Option<PageCount>,
        out: &mut Vec<PagerAction>,
    ) {
        if self.table.region(region).is_some() {
            self.limited = true;
            self.table.region_mut(region).frames_max = frames.map_or(u64::MAX, |frames| frames.0.max(1));
            self.balance(now, out);
        }
    }

    /// When [`Self::expire`] is to be called.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.pause
    }

    /// Lets happen what is due by now: writes that failed are tried again.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<PagerAction>) {
        self.balance(now, out);
    }

    /// How it was set up; frames as they are now.
    #[must_use]
    pub const fn config(&self) -> &PagerConfig {
        &self.config
    }

    /// What has happened, in all regions.
    #[must_use]
    pub const fn stats(&self) -> &SwapStats {
        &self.stats
    }

    /// What has happened in one region; none if there is no such.
    #[must_use]
    pub fn region_stats(&self, region: RegionId) -> Option<&SwapStats> {
        self.table.region(region).map(|region| &region.stats)
    }

    /// Frames that a region has; 0 if there is no such.
    #[must_use]
    pub fn region_frames(&self, region: RegionId) -> u64 {
        self.table.region(region).map_or(0, |region| region.frames)
    }

    /// Bytes of memory that the tables take: of pages, which are more each time that one is touched with none of its neighbours known, and of
    /// slots.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.table.bytes() + self.slots.bytes()
    }

    /// How full things are.
    #[must_use]
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

    /// Whether a touch needs nothing: the page is mapped, and for writing if it is a store.
    #[must_use]
    pub fn is_mapped(&self, id: PageId, touch: Touch) -> bool {
        let wanted = if touch == Touch::Store { flag::MAPPED | flag::WRITABLE } else { flag::MAPPED };
        let page = self.table.page(id);
        page.is(wanted) && !page.is(flag::UNMAPPING)
    }

    /// Whether a page has memory, mapped or not.
    #[must_use]
    pub fn is_in_memory(&self, id: PageId) -> bool {
        self.table.page(id).is(flag::HERE)
    }

    /// The slot of a page on the store, if it has one, in memory or not.
    #[must_use]
    pub fn slot(&self, id: PageId) -> Option<SlotIndex> {
        let slot = self.table.page(id).slot;
        (slot != 0).then_some(SlotIndex(slot.into()))
    }

    /// Whose lists a page is on.
    fn owner(&self, id: PageId) -> usize {
        match self.config.lists {
            Lists::Global => 0,
            Lists::PerRegion => id.region.0 as usize + 1,
        }
    }

    /// Puts a page at the head of a list, wherever it was.
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

    /// Lets pages of a region that were gathered join the active list, in order.
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

    /// Frames that nothing uses.
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

    /// The slot of a page is of no use any more.
    fn release_slot(&mut self, id: PageId) {
        let slot = core::mem::take(&mut self.table.page_mut(id).slot);
        if slot != 0 {
            self.slots.release(slot.into());
        }
    }

    /// What a page holds is no longer what the store has. The slot of a write under way is kept until that has ended.
    fn soil(&mut self, id: PageId) {
        let page = self.table.page_mut(id);
        page.set(flag::DIRTY);
        if !page.is(flag::WRITING) {
            self.release_slot(id);
        }
    }

    /// Lets a region go if nothing of it is left.
    fn retire(&mut self, region: RegionId, out: &mut Vec<PagerAction>) {
        if self.table.region(region).is_some_and(|region| region.dying && region.in_flight == 0) {
            self.table.remove(region);
            out.push(PagerAction::Retired { region });
        }
    }
}

/// Adds a page to the last action if that is of the same kind and ends before it, else begins a new one.
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
