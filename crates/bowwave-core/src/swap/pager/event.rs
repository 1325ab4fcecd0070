//! Events of the pager, and its actions.

use alloc::vec::Vec;
use core::ops::Range;

use crate::event::Urgency;
use crate::id::Waiter;
use crate::journal::Replay;
use crate::page::{PageCount, PageIndex, PageRange};
use crate::swap::{SlotIndex, SwapReason};
use crate::time::Instant;

use super::{Pager, PagerConfig, SwapTuning};

/// A region: a small number that the driver chooses, and may reuse after [`PagerAction::Retired`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

/// A page of a region, numbered from the region's first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The region.
    pub region: RegionId,
    /// The page.
    pub page: PageIndex,
}

/// A read of the spill store in flight. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A write to the spill store in flight. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Whether a touch changes the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Touch {
    /// A load.
    Load,
    /// A store.
    Store,
}

/// Result of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// The touch continues once the returned actions, often none, are carried out. No wake follows.
    Go,
    /// Exactly one [`PagerAction::Wake`] follows, now or later.
    Wait,
}

/// Why a touch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PagerError {
    /// The store could not read the page; the driver's number gives the reason. The page stays in
    /// the store, and a later touch tries again.
    Read(u64),
    /// The region was removed.
    RegionRemoved,
}

/// Why a write to the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// It is full, although it announced the slots.
    Full,
    /// Another reason, as a number that the driver chooses.
    Failed(u64),
}

/// Pages to read: `pages[i]` is in slot `slot + i`. Completed by exactly one
/// [`Pager::read_done`](super::Pager::read_done).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapIn {
    /// Identifier of the read.
    pub id: ReadId,
    /// The first slot.
    pub slot: SlotIndex,
    /// The pages, in the order of slots; of one region unless the policy reads ahead by slots.
    pub pages: Vec<PageId>,
    /// Whether a touch waits for one of them.
    pub urgency: Urgency,
}

/// Pages to write: `pages[i]` goes to slot `slot + i`. None is mapped. Completed by exactly one
/// [`Pager::written`](super::Pager::written).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOut {
    /// Identifier of the write.
    pub id: WriteId,
    /// The first slot.
    pub slot: SlotIndex,
    /// The pages, in the order of slots.
    pub pages: Vec<PageId>,
    /// Whether a touch waits for memory.
    pub urgency: Urgency,
}

/// An event of a [`Pager`]: a variant for each method that changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagerEvent {
    /// See [`Pager::add_region`].
    RegionAdded {
        /// The region.
        region: RegionId,
        /// Page number of its first address, which decides which pages share a page table.
        base: PageIndex,
        /// Its length.
        pages: PageCount,
    },
    /// See [`Pager::remove_region`].
    RegionRemoved {
        /// The region.
        region: RegionId,
    },
    /// See [`Pager::touch`].
    Touched {
        /// The waiter.
        waiter: Waiter,
        /// The page.
        id: PageId,
        /// Whether the touch changes it.
        touch: Touch,
    },
    /// See [`Pager::read_done`].
    ReadDone {
        /// The read.
        id: ReadId,
        /// Its result.
        result: Result<(), u64>,
    },
    /// See [`Pager::unmapped`].
    Unmapped {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
        /// The written pages among them, if the driver can tell.
        written: Option<Vec<PageIndex>>,
    },
    /// See [`Pager::written`].
    Written {
        /// The write.
        id: WriteId,
        /// Its result.
        result: Result<(), WriteError>,
        /// Positions of pages that are all zeros.
        zeroes: Vec<usize>,
    },
    /// See [`Pager::advise`].
    Advised {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
        /// The advice.
        advice: RegionAdvice,
    },
    /// See [`Pager::set_frames`].
    FramesSet {
        /// Number of frames.
        frames: u64,
    },
    /// See [`Pager::tune`].
    Tuned {
        /// The new values.
        tuning: SwapTuning,
    },
    /// See [`Pager::expire`].
    Expired,
}

impl Replay for PagerEvent {
    type Machine = Pager;
    type Config = PagerConfig;
    type Action = PagerAction;
    type Decision = SwapDecision;

    /// The configuration must request reports of decisions ([`PagerConfig::explain`]).
    fn machine(config: &PagerConfig) -> Option<Pager> {
        Pager::new(*config).ok()
    }

    fn apply(self, pager: &mut Pager, now: Instant, out: &mut Vec<PagerAction>) {
        pager.step(now, self, out);
    }

    fn decision(action: &PagerAction) -> Option<SwapDecision> {
        if let PagerAction::Decided(decision) = action { Some(decision.clone()) } else { None }
    }
}

/// An action for the driver.
///
/// Actions on one page must be carried out in the order in which they were returned, also over
/// several calls. The simplest way is to carry out all but reads and writes before the pager's lock
/// is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagerAction {
    /// Read pages into memory, unmapped.
    Read(SwapIn),
    /// A touch waits for a read that was readahead.
    Promote {
        /// The read.
        id: ReadId,
    },
    /// Write pages out of memory; pages of zeros need no write, see
    /// [`Pager::written`](super::Pager::written).
    Write(SwapOut),
    /// Give pages zeroed memory, and map it.
    Zero {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
        /// Whether programs may write to it without a fault.
        writable: bool,
    },
    /// Map pages that are in memory, or make mapped pages writable.
    Map {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
        /// Whether programs may write to them without a fault.
        writable: bool,
    },
    /// Unmap pages, but keep their memory. Completed by exactly one
    /// [`Pager::unmapped`](super::Pager::unmapped), after which nothing can change them.
    Unmap {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
    },
    /// Release the memory of pages. They are mapped only if advice said that they are not needed.
    Drop {
        /// The region.
        region: RegionId,
        /// The pages.
        pages: PageRange,
    },
    /// A waiting touch continues, or failed.
    Wake {
        /// The waiter.
        waiter: Waiter,
        /// `Ok` if the page is mapped, and writable for a store; else the error.
        result: Result<(), PagerError>,
    },
    /// A removed region has no I/O in flight any more.
    Retired {
        /// The region.
        region: RegionId,
    },
    /// A decision of swap readahead, if the settings request reports. Precedes its reads.
    Decided(SwapDecision),
}

/// A decision of swap readahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapDecision {
    /// The touched page.
    pub page: PageId,
    /// Its slot.
    pub slot: SlotIndex,
    /// The policy's window.
    pub window: SwapWindow,
    /// Planned pages, before clipping.
    pub size: u64,
    /// The reason.
    pub reason: SwapReason,
}

/// The window of a policy that reads ahead by addresses, or by slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapWindow {
    /// The swapped-out pages among these.
    Pages {
        /// First page.
        start: PageIndex,
        /// Number of pages.
        count: u64,
        /// Distance between pages; negative if downward.
        stride: i64,
    },
    /// The pages at these slots.
    Slots(Range<u64>),
}

/// How a range of a region will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionAdvice {
    /// No advice: revokes earlier advice.
    Normal,
    /// In order: read far ahead, evict passed pages.
    Sequential,
    /// Random: no readahead.
    Random,
    /// Soon: read it now, as far as memory allows.
    WillNeed,
    /// Discard: it reads as zeros from now on.
    DontNeed,
    /// Not soon: write it out and release its memory.
    PageOut,
}
