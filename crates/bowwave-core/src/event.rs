//! Events that the driver reports to the cache, and the actions it returns.

use alloc::vec::Vec;

use crate::config::WindowTuning;
use crate::id::{FileId, FillId, FrameId, HandleId, Waiter, WriteOutId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{Plan, Policy, RangeConfig, Weighed};
use crate::request::PageAccess;
use crate::write::{SyncFor, Target, Write, WriteBackConfig, WriteOut, WriteOutcome};

/// Every event of a [`Cache`](crate::Cache). A log of events with their times replays a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Opens a file of `pages` pages, with nothing cached. See
    /// [`Cache::open_file`](crate::Cache::open_file).
    OpenFile {
        /// Not open now.
        file: FileId,
        /// Its length.
        pages: PageCount,
    },
    /// Forgets a file and all its pages. See [`Cache::close_file`](crate::Cache::close_file).
    CloseFile {
        /// Open, without handles.
        file: FileId,
    },
    /// Gives the file's pages offset-mapped frames. See
    /// [`Cache::map_by_offset`](crate::Cache::map_by_offset).
    MapByOffset {
        /// An open file with nothing cached.
        file: FileId,
    },
    /// A program mapped pages. See [`Cache::mapped`](crate::Cache::mapped).
    Mapped {
        /// The handle of the touch, on a file with offset-mapped frames.
        handle: HandleId,
        /// The page that was touched.
        page: PageIndex,
        /// The mapped pages; includes the touched page.
        range: PageRange,
    },
    /// Opens a handle with a fresh readahead state. See
    /// [`Cache::open_handle`](crate::Cache::open_handle).
    OpenHandle {
        /// Not open now.
        handle: HandleId,
        /// An open file.
        file: FileId,
    },
    /// Copies one handle's readahead state to another. See
    /// [`Cache::copy_handle`](crate::Cache::copy_handle).
    CopyHandle {
        /// An open handle.
        from: HandleId,
        /// Another of the same file.
        to: HandleId,
    },
    /// Forgets the handle's readahead state. See
    /// [`Cache::close_handle`](crate::Cache::close_handle).
    CloseHandle {
        /// An open handle.
        handle: HandleId,
    },
    /// A reader demands pages. See [`Cache::access`](crate::Cache::access).
    Access {
        /// The reader.
        waiter: Waiter,
        /// The pages, and how they are accessed.
        access: PageAccess,
    },
    /// A fill ended. See [`Cache::filled`](crate::Cache::filled).
    Filled {
        /// A fill in flight.
        fill: FillId,
        /// The result.
        result: Result<(), FillError>,
    },
    /// Unpins frames. See [`Cache::unpin`](crate::Cache::unpin).
    Unpin {
        /// Frames of hits or wakes, once for each time they were returned.
        frames: Vec<FrameId>,
    },
    /// Advice on a range. See [`Cache::advise`](crate::Cache::advise).
    Advise {
        /// The handle.
        handle: HandleId,
        /// The pages (for `WillNeed`, `DontNeed` and `Copied`; other advice applies to the handle).
        range: PageRange,
        /// The advice.
        advice: Advice,
    },
    /// Adds to a handle's read plan. See [`Cache::set_read_plan`](crate::Cache::set_read_plan).
    SetReadPlan {
        /// The handle.
        handle: HandleId,
        /// Ranges in order, appended to the earlier ones; none ends the plan.
        ranges: Vec<PageRange>,
    },
    /// Writes pages. See [`Cache::write`](crate::Cache::write).
    Write {
        /// The waiter.
        waiter: Waiter,
        /// The write.
        write: Write,
    },
    /// A write-out ended. See [`Cache::written_out`](crate::Cache::written_out).
    WrittenOut {
        /// A write-out in flight.
        id: WriteOutId,
        /// The result.
        result: Result<(), FillError>,
    },
    /// Requires that the store has written pages. See [`Cache::sync`](crate::Cache::sync).
    Sync {
        /// The waiter.
        waiter: Waiter,
        /// The file.
        file: FileId,
        /// The pages.
        range: PageRange,
        /// The reason.
        why: SyncFor,
    },
    /// Discards written pages. See [`Cache::discard`](crate::Cache::discard).
    Discard {
        /// The waiter.
        waiter: Waiter,
        /// The file.
        file: FileId,
        /// The pages.
        range: PageRange,
    },
    /// Time passed. See [`Cache::expire`](crate::Cache::expire).
    Expire,
    /// The store's bytes of pages changed. See [`Cache::invalidate`](crate::Cache::invalidate).
    Invalidate {
        /// The file.
        file: FileId,
        /// The pages.
        range: PageRange,
    },
    /// The device's queue became too full for readahead, or ceased to be.
    Congestion {
        /// Whether it is too full.
        congested: bool,
    },
    /// The driver lends more frames. See [`Cache::grant`](crate::Cache::grant).
    Granted {
        /// Number of frames.
        frames: u32,
    },
    /// The length of a file changed. See [`Cache::set_pages`](crate::Cache::set_pages).
    Extended {
        /// An open file.
        file: FileId,
        /// Its length.
        pages: PageCount,
    },
    /// Sets the limit of readahead in flight. See
    /// [`Cache::allow_ahead`](crate::Cache::allow_ahead).
    Allowed {
        /// The limit, in pages.
        pages: u64,
    },
    /// Changes settings at run time. See [`Cache::tune`](crate::Cache::tune).
    Tuned {
        /// Sizes of readahead windows.
        windows: WindowTuning,
        /// Limits of dirty pages.
        write_back: WriteBackConfig,
    },
    /// Changes the readahead policy at run time. See
    /// [`Cache::set_policy`](crate::Cache::set_policy).
    PolicySet {
        /// The new policy.
        policy: Policy,
        /// Settings of [`Policy::Range`].
        range: RangeConfig,
    },
    /// The driver takes frames back. See [`Cache::revoke`](crate::Cache::revoke).
    Revoked {
        /// Most frames to take.
        frames: u32,
    },
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A policy decided; the fills up to the next decision carry it out. For `explain` and metrics.
    Decided(Decision),
    /// What the policy weighed for the next decision. Only with
    /// [`Config::explain`](crate::Config::explain), and for policies that record it.
    Weighed(Weighed),
    /// Read a range into frames ([`Cache::fill_frames`](crate::Cache::fill_frames)). Complete it
    /// with exactly one [`Event::Filled`].
    Fill(Fill),
    /// A demand read waits for this readahead fill: serve it as a demand fill.
    Promote {
        /// The fill.
        fill: FillId,
    },
    /// This fill is no longer needed: drop it if it has not started, and complete it with a
    /// failure.
    Cancel {
        /// The fill.
        fill: FillId,
    },
    /// The result of an [`Event::Write`], for drivers that log events. After [`WriteOutcome::Wait`]
    /// the write waits for its wake.
    Accepted {
        /// The waiter.
        waiter: Waiter,
        /// The result.
        outcome: WriteOutcome,
        /// Target frames of the accepted pages.
        targets: Vec<Target>,
    },
    /// Write these pages to the store from their frames
    /// ([`Cache::write_out_frames`](crate::Cache::write_out_frames)). Complete it with exactly one
    /// [`Event::WrittenOut`].
    WriteOut(WriteOut),
    /// A sync waits for this write-out: serve it as the sync's.
    PromoteWrite {
        /// The write-out.
        id: WriteOutId,
    },
    /// A waiting read continues with its pages pinned, in page order, or failed. Also ends waits of
    /// writes and syncs, without frames.
    Wake {
        /// The waiter.
        waiter: Waiter,
        /// Its frames, or the error.
        result: Result<Vec<FrameId>, FillError>,
    },
    /// Unmap these pages from the program, so that the cache sees its next touch of each. Their
    /// contents stay.
    Unmap {
        /// A file with offset-mapped frames.
        file: FileId,
        /// Adjacent pages.
        range: PageRange,
    },
    /// These pages are empty: unmap them from the program and release their memory before any fill
    /// of them begins.
    Released {
        /// A file with offset-mapped frames.
        file: FileId,
        /// Adjacent pages.
        range: PageRange,
        /// Their former frames, in page order, which are no longer offset-mapped.
        frames: Vec<FrameId>,
    },
    /// These frames belong to the driver again.
    Retired {
        /// The frames.
        frames: Vec<FrameId>,
    },
}

/// The result of a [`Cache::access`](crate::Cache::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// All pages are present and pinned. The caller's buffer has the frames in page order. Final.
    Hit,
    /// A page is missing: exactly one [`Action::Wake`] follows, in this call's actions or later.
    Wait,
}

/// A read of pages from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Identifier of the fill.
    pub id: FillId,
    /// The file.
    pub file: FileId,
    /// The pages; not empty, within the file.
    pub range: PageRange,
    /// Whether a read waits.
    pub urgency: Urgency,
}

/// Urgency of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// A read waits for it.
    Demand,
    /// No read has requested it yet.
    Readahead,
}

/// Reason of a failed fill: a number that the driver chooses and readers receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FillError(pub u16);

impl FillError {
    /// A read requested more pages at once than the cache has frames.
    pub const TOO_LARGE: Self = Self(u16::MAX);
    /// The handle was closed while a read through it waited for frames.
    pub const CLOSED: Self = Self(u16::MAX - 1);
    /// The operation ended, but the backend may still access its frames. The cache pins each frame
    /// once for the driver, which unpins it when no access is possible any more, or never. Pages of
    /// a fill leave the page table.
    pub const ABANDONED: Self = Self(u16::MAX - 2);
    /// The queue to the store was full, and no reader waited: the readahead was dropped. Readers
    /// that have come meanwhile request their pages again.
    pub const DROPPED: Self = Self(u16::MAX - 3);
}

/// Advice on a range or a handle, as in `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// No advice: the configured window.
    Normal,
    /// Sequential reads: twice the window.
    Sequential,
    /// Random reads: exactly the requested pages.
    Random,
    /// The range will be read soon: read it now.
    WillNeed,
    /// The range will not be read: drop its unpinned pages.
    DontNeed,
    /// The range was read, and the reader keeps a copy, as a kernel's page cache does: evict its
    /// used pages. Their frames are reused first.
    Copied,
    /// Each page will be read once: drop it behind the reader.
    NoReuse,
}

/// The event that made a policy decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A page was missing: sync readahead.
    Miss,
    /// A page had the lookahead mark: async readahead.
    Mark,
    /// [`Advice::WillNeed`], or a read plan ([`Event::SetReadPlan`]).
    Advice,
    /// The reader is about to look up a page, for policies with
    /// [`Capabilities::every_access`](crate::Capabilities::every_access): the first page of a
    /// request, or the one that [`Plans::next`](crate::Plans::next) named. Decisions report it as a
    /// miss or a mark.
    Lookup {
        /// Whether the page is missing.
        missing: bool,
        /// An earlier plan at another page read this page, and no lookup has reached it since.
        fresh: bool,
    },
    /// A fault found its page, for policies with
    /// [`Capabilities::found`](crate::Capabilities::found). Plans are ignored.
    Found {
        /// The page is still being read.
        in_flight: bool,
    },
    /// A touch of the first page of the request mapped all of it, so later touches are not seen;
    /// for policies with [`Capabilities::mapped`](crate::Capabilities::mapped). Plans are ignored.
    Mapped,
}

impl Trigger {
    /// The name in `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Miss | Self::Lookup { missing: true, .. } => "miss",
            Self::Mark | Self::Lookup { .. } => "mark",
            Self::Advice => "advice",
            Self::Found { .. } | Self::Mapped => "fault",
        }
    }
}

/// A decision of a readahead policy, and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The handle whose readahead state decided.
    pub handle: HandleId,
    /// The file.
    pub file: FileId,
    /// The page that was accessed.
    pub page: PageIndex,
    /// Pages from there to the end of the request, not clipped at the end of the file.
    pub req_pages: PageCount,
    /// The trigger.
    pub trigger: Trigger,
    /// The plan before clipping, with its reason.
    pub plan: Plan,
    /// The page that got the lookahead mark.
    pub mark: Option<PageIndex>,
}
