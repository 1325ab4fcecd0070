//! Words for writing: what a driver asks for, where it copies to, what it carries to the store.

use crate::event::{FillError, Urgency};
use crate::id::{FileId, FrameId, WriteOutId};
use crate::page::{PageIndex, PageRange};

/// Someone wants to write to pages that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// An open file, without places.
    pub file: FileId,
    /// Which pages; not empty, and may reach past the end of the file, which then moves.
    pub range: PageRange,
    /// Of the first page something stays that the file has.
    pub keeps_head: bool,
    /// Of the last page something stays that the file has.
    pub keeps_tail: bool,
    /// It has waited in line and was woken: it goes before those that wait.
    pub woken: bool,
}

/// Where the bytes of a page go. The driver copies before it lets go of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The page's frame from now on.
    pub frame: FrameId,
    /// What it holds so far.
    pub base: Base,
}

/// What a frame holds that is about to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The page.
    Page,
    /// Nothing of use; the page is this frame's. Somebody reads it, or it is on its way to the store, and must not change.
    Copy(FrameId),
    /// Nothing of use, and neither has the file: what is not written is zeros.
    Zeros,
}

/// What became of a [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The first so many pages are dirty now, their frames are in the lent buffer, in order; at least one. For the others
    /// the driver asks again.
    Taken(u64),
    /// This page, the first, must be read before: the write changes a part of it.
    Read(PageIndex),
    /// There are too many dirty pages, or too few frames: exactly one [`Action::Wake`](crate::Action::Wake) without frames
    /// follows, and then the driver asks again, as [`woken`](Write::woken).
    Wait,
    /// There are too many dirty pages, and the store takes none of them: its last error.
    Failed(FillError),
}

/// A write of pages to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOut {
    /// Its name.
    pub id: WriteOutId,
    /// Which file.
    pub file: FileId,
    /// Which pages; not empty. The file may have been cut since: the driver writes what lies before its end.
    pub range: PageRange,
    /// Whether someone waits: [`Urgency::Demand`] for a sync, [`Urgency::Readahead`] for write-back.
    pub urgency: Urgency,
}

/// Why the store is to have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncFor {
    /// It is to be safe: whoever waits for that goes before what nobody waits for.
    Safety,
    /// The file is closed. Who closes waits, too, but was promised nothing by it: more than one write-out
    /// ([`out_pages_max`](WriteBackConfig::out_pages_max)) is bulk, and goes as write-back does, so that it does not hold up
    /// those who sync.
    Close,
}

/// How many dirty pages a cache keeps, and for how long. Linux's terms: `dirty_ratio`, `dirty_background_ratio`,
/// `dirty_expire_centisecs`, in pages and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Pages that may be dirty or on their way to the store, before writers wait. At least 1; never more than half of the
    /// frames count, whatever it says.
    pub dirty_max: u32,
    /// Dirty pages from which on the cache writes back. Below `dirty_max`; never more than half of what that comes to.
    pub background: u32,
    /// Nanoseconds after which a dirty page is written back all the same, as soon as
    /// [`Cache::expire`](crate::Cache::expire) is called.
    pub expire_ns: u64,
    /// Most pages of one write-out. At least 1.
    pub out_pages_max: u32,
    /// Most pages on their way to the store for write-back; for a sync there may be any number. At least 1.
    pub in_flight_max: u32,
}

/// 256 MiB, half of it, 30 s, in write-outs of 1 MiB, 64 MiB at a time, if pages have 4 KiB.
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
