//! Types for writes: requests, target frames, and write-outs to the store.

use crate::event::{FillError, Urgency};
use crate::id::{FileId, FrameId, WriteOutId};
use crate::page::{PageIndex, PageRange};

/// A write to adjacent pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// An open file, without offset-mapped frames.
    pub file: FileId,
    /// The pages; not empty. The range may extend past the end of the file, which then moves.
    pub range: PageRange,
    /// The write leaves part of the first page unchanged.
    pub keeps_head: bool,
    /// The write leaves part of the last page unchanged.
    pub keeps_tail: bool,
    /// The write was stalled and woken: it precedes writes that still wait.
    pub woken: bool,
}

/// Where the bytes of a page go. The driver copies them before it releases the cache's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The page's frame from now on.
    pub frame: FrameId,
    /// What the frame holds before the copy.
    pub base: Base,
}

/// Contents of a frame before a write is copied into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The page.
    Page,
    /// Nothing valid; this other frame holds the page. It is being read or written out, so it must
    /// not change.
    Copy(FrameId),
    /// Nothing valid, and the file has nothing there: bytes not written are zeros.
    Zeros,
}

/// The result of a [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The first N pages (at least one) are dirty now, and `targets` of
    /// [`Cache::write`](crate::Cache::write) has their frames, in order. For the rest the driver
    /// calls again.
    Accepted(u64),
    /// This page, the first, must be read first: the write changes only a part of it.
    Read(PageIndex),
    /// Too many dirty pages, or too few frames. Exactly one [`Action::Wake`](crate::Action::Wake)
    /// without frames follows. Then the driver calls again, as [`woken`](Write::woken).
    Wait,
    /// Too many dirty pages, and the store accepts none of them: its last error.
    Failed(FillError),
}

/// A write of pages to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOut {
    /// Identifier of the write-out.
    pub id: WriteOutId,
    /// The file.
    pub file: FileId,
    /// The pages; not empty. If the file was truncated since, the driver writes only up to its end.
    pub range: PageRange,
    /// [`Urgency::Demand`] if a sync waits, [`Urgency::Readahead`] for write-back.
    pub urgency: Urgency,
}

/// Why written pages must reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncFor {
    /// Durability: takes priority over write-outs without a waiter.
    Safety,
    /// The file is closed. Close waits, but promises nothing. More than one write-out
    /// ([`out_pages_max`](WriteBackConfig::out_pages_max)) runs at the priority of write-back, so
    /// that it does not delay syncs.
    Close,
}

/// How many dirty pages a cache holds, and for how long. As Linux's `dirty_ratio`,
/// `dirty_background_ratio` and `dirty_expire_centisecs`, in pages and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Dirty or written-out pages beyond which writers wait. At least 1; at most half of the frames
    /// apply.
    pub dirty_max: u32,
    /// Dirty pages at which write-back begins. Below `dirty_max`; at most half of the effective
    /// `dirty_max` applies.
    pub background: u32,
    /// Nanoseconds after which a dirty page is written back, at the next
    /// [`Cache::expire`](crate::Cache::expire).
    pub expire_ns: u64,
    /// Most pages of one write-out. At least 1.
    pub out_pages_max: u32,
    /// Most pages in flight to the store for write-back; syncs are not limited. At least 1.
    pub in_flight_max: u32,
}

/// With 4 KiB pages: 256 MiB dirty, 128 MiB background, 30 s, write-outs of 1 MiB, 64 MiB in
/// flight.
impl Default for WriteBackConfig {
    fn default() -> Self {
        Self {
            dirty_max: 1 << 16,
            background: 1 << 15,
            expire_ns: 30_000_000_000,
            out_pages_max: 256,
            in_flight_max: 1 << 14,
        }
    }
}
