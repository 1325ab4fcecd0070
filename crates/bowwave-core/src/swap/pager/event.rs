//! What the pager is told, and what it answers.

use alloc::vec::Vec;
use core::ops::Range;

use crate::event::Urgency;
use crate::id::Waiter;
use crate::page::{PageIndex, PageRange};
use crate::swap::{SlotIndex, SwapReason};

/// A region; a small number that the driver picks, and may use again after [`PagerAction::Retired`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

/// A page of a region, numbered from the region's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// Which region.
    pub region: RegionId,
    /// Which of its pages.
    pub page: PageIndex,
}

/// A read of the spill store in flight. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A write to the spill store in flight. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Whether a touch changes the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Touch {
    /// It reads.
    Load,
    /// It writes.
    Store,
}

/// What became of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// It can go on as soon as the actions that were given with it are carried out, often none. No wake follows.
    Go,
    /// Exactly one [`PagerAction::Wake`] follows, now or later.
    Wait,
}

/// Why a touch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PagerError {
    /// The store could not give the page back, with the driver's number for the reason. The page stays where it is: a
    /// later touch tries again.
    Read(u64),
    /// The region went away.
    Gone,
}

/// Why a write to the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// It is full, though it was said to have the slots.
    Full,
    /// Another reason, by a number of the driver's choosing.
    Failed(u64),
}

/// Pages to read: the page `pages[i]` is at slot `slot + i`. Answered by exactly one
/// [`Pager::read_done`](super::Pager::read_done).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapIn {
    /// Its name.
    pub id: ReadId,
    /// The first slot.
    pub slot: SlotIndex,
    /// The pages, in order of slots; of one region unless the policy goes by slots.
    pub pages: Vec<PageId>,
    /// Whether someone waits for one of them.
    pub urgency: Urgency,
}

/// Pages to write: the page `pages[i]` goes to slot `slot + i`. None is mapped. Answered by exactly one
/// [`Pager::written`](super::Pager::written).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOut {
    /// Its name.
    pub id: WriteId,
    /// The first slot.
    pub slot: SlotIndex,
    /// The pages, in order of slots.
    pub pages: Vec<PageId>,
    /// Whether someone waits for room.
    pub urgency: Urgency,
}

/// What the driver must do.
///
/// Of one page the actions are to be carried out in the order in which they were given, also over several calls: the
/// simplest way is to carry out all but reads and writes before the lock around the pager is let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagerAction {
    /// Read pages into memory, unmapped.
    Read(SwapIn),
    /// Someone waits for a read that was readahead.
    Promote {
        /// Which.
        id: ReadId,
    },
    /// Write pages out of memory; what is all zeroes need not be written, see [`Pager::written`](super::Pager::written).
    Write(SwapOut),
    /// Give pages memory full of zeroes, and map it.
    Zero {
        /// Of which region.
        region: RegionId,
        /// Which pages.
        pages: PageRange,
        /// Whether programs may write to it without a fault.
        writable: bool,
    },
    /// Map pages that are in memory; or, if they are mapped already, let programs write to them.
    Map {
        /// Of which region.
        region: RegionId,
        /// Which pages.
        pages: PageRange,
        /// Whether programs may write to them without a fault.
        writable: bool,
    },
    /// Take pages out of programs' reach, but keep their memory. Answered by exactly one
    /// [`Pager::unmapped`](super::Pager::unmapped), after which nothing can change them.
    Unmap {
        /// Of which region.
        region: RegionId,
        /// Which pages.
        pages: PageRange,
    },
    /// Give the memory of pages back. They are mapped only if advice said that they are not needed.
    Drop {
        /// Of which region.
        region: RegionId,
        /// Which pages.
        pages: PageRange,
    },
    /// Let a touch that waits go on, or fail.
    Wake {
        /// Who.
        waiter: Waiter,
        /// The page is mapped, writable if the touch was a store; or why not.
        result: Result<(), PagerError>,
    },
    /// A region that was removed has nothing in flight any more.
    Retired {
        /// Which.
        region: RegionId,
    },
    /// What swap readahead decided, if the configuration asks for it. Comes before the reads that it leads to.
    Decided(SwapDecision),
}

/// A decision of swap readahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapDecision {
    /// The page whose touch brought it about.
    pub page: PageId,
    /// Its slot.
    pub slot: SlotIndex,
    /// What the policy planned.
    pub window: SwapWindow,
    /// Pages that it planned, before it was clipped.
    pub size: u64,
    /// Why.
    pub reason: SwapReason,
}

/// Pages, or slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapWindow {
    /// These pages of the region, those that are out.
    Pages {
        /// From here.
        start: PageIndex,
        /// So many.
        count: u64,
        /// So far apart; negative if they go down.
        stride: i64,
    },
    /// The pages at these slots.
    Slots(Range<u64>),
}

/// How a range of a region will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionAdvice {
    /// As it comes: takes back what was said.
    Normal,
    /// In order: read far ahead, give up what lies behind.
    Sequential,
    /// Without order: read nothing ahead.
    Random,
    /// Soon: read it now, as far as there is room.
    WillNeed,
    /// What it holds is of no use any more: it reads as zeroes from now on.
    DontNeed,
    /// Not soon: write it out and give its memory back.
    PageOut,
}
