//! What the driver tells the cache, and what the cache answers.

use alloc::vec::Vec;

use crate::id::{FileId, FillId, FrameId, HandleId, Waiter, WriteOutId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::Plan;
use crate::request::PageAccess;
use crate::write::{SyncFor, Target, Write, WriteBackConfig, WriteOut, WriteOutcome};

/// Everything that can happen to a [`Cache`](crate::Cache). A log of these, with their times, replays a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file of `pages` pages comes into being, with nothing cached. See [`Cache::open_file`](crate::Cache::open_file).
    OpenFile {
        /// Not open now.
        file: FileId,
        /// Its length.
        pages: PageCount,
    },
    /// A file and all its pages are forgotten. See [`Cache::close_file`](crate::Cache::close_file).
    CloseFile {
        /// Open, without handles.
        file: FileId,
    },
    /// The pages of a file get places of their own. See [`Cache::place_file`](crate::Cache::place_file).
    PlaceFile {
        /// An open file of which nothing is cached.
        file: FileId,
    },
    /// A program has pages mapped now. See [`Cache::mapped`](crate::Cache::mapped).
    Mapped {
        /// The handle that was touched through, of a file with places.
        handle: HandleId,
        /// The page that was touched.
        page: PageIndex,
        /// Which pages, that one included.
        range: PageRange,
    },
    /// A handle with a fresh readahead state. See [`Cache::open_handle`](crate::Cache::open_handle).
    OpenHandle {
        /// Not open now.
        handle: HandleId,
        /// An open file.
        file: FileId,
    },
    /// A handle's readahead state becomes that of another. See [`Cache::copy_handle`](crate::Cache::copy_handle).
    CopyHandle {
        /// An open handle.
        from: HandleId,
        /// Another of the same file.
        to: HandleId,
    },
    /// The handle's readahead state is forgotten. See [`Cache::close_handle`](crate::Cache::close_handle).
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
    /// A fill has ended. See [`Cache::filled`](crate::Cache::filled).
    Filled {
        /// A fill that the cache asked for and that was not answered yet.
        fill: FillId,
        /// How it ended.
        result: Result<(), FillError>,
    },
    /// Pinned frames are no longer in use. See [`Cache::unpin`](crate::Cache::unpin).
    Unpin {
        /// Frames that a hit or a wake handed out, each as often as it did.
        frames: Vec<FrameId>,
    },
    /// The user says how a range will be used. See [`Cache::advise`](crate::Cache::advise).
    Advise {
        /// Through which handle.
        handle: HandleId,
        /// Which pages (`WillNeed` and `DontNeed`; the others concern the handle).
        range: PageRange,
        /// How.
        advice: Advice,
    },
    /// A reader says what it will read. See [`Cache::follow`](crate::Cache::follow).
    Follow {
        /// Through which handle.
        handle: HandleId,
        /// What, in order, behind what it has named before; nothing ends its plan.
        ranges: Vec<PageRange>,
    },
    /// Someone wants to write. See [`Cache::write`](crate::Cache::write).
    Write {
        /// Who.
        waiter: Waiter,
        /// What.
        write: Write,
    },
    /// A write-out has ended. See [`Cache::written_out`](crate::Cache::written_out).
    WrittenOut {
        /// A write-out that the cache asked for and that was not answered yet.
        id: WriteOutId,
        /// How it ended.
        result: Result<(), FillError>,
    },
    /// The store is to have what was written. See [`Cache::sync`](crate::Cache::sync).
    Sync {
        /// Who waits for it.
        waiter: Waiter,
        /// Of which file.
        file: FileId,
        /// Which pages.
        range: PageRange,
        /// Why.
        why: SyncFor,
    },
    /// What was written is no longer wanted. See [`Cache::discard`](crate::Cache::discard).
    Discard {
        /// Who waits for it.
        waiter: Waiter,
        /// Of which file.
        file: FileId,
        /// Which pages.
        range: PageRange,
    },
    /// Time has passed. See [`Cache::expire`](crate::Cache::expire).
    Expire,
    /// Pages are no longer what the store holds. See [`Cache::invalidate`](crate::Cache::invalidate).
    Invalidate {
        /// Of which file.
        file: FileId,
        /// Which pages.
        range: PageRange,
    },
    /// The device's queue has become too full for readahead, or no longer is.
    Congestion {
        /// Whether it is.
        congested: bool,
    },
    /// The driver lends more frames. See [`Cache::grant`](crate::Cache::grant).
    Granted {
        /// How many.
        frames: u32,
    },
    /// A file is longer or shorter than it was. See [`Cache::set_pages`](crate::Cache::set_pages).
    Extended {
        /// An open file.
        file: FileId,
        /// Its length.
        pages: PageCount,
    },
    /// So many pages may be on their way ahead of readers. See [`Cache::allow_ahead`](crate::Cache::allow_ahead).
    Allowed {
        /// How many.
        pages: u64,
    },
    /// Settings change while the cache runs. See [`Cache::tune`](crate::Cache::tune).
    Tuned {
        /// Largest readahead window.
        ra_pages: u32,
        /// Limits of dirty pages.
        write_back: WriteBackConfig,
    },
    /// The driver wants frames back. See [`Cache::revoke`](crate::Cache::revoke).
    Revoked {
        /// How many at most.
        frames: u32,
    },
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A policy has decided; the fills that follow, up to the next decision, carry it out. For `explain` and metrics.
    Decided(Decision),
    /// Read a range into frames ([`Cache::fill_frames`](crate::Cache::fill_frames)); answer with exactly one
    /// [`Event::Filled`].
    Fill(Fill),
    /// A demand read now waits for this readahead fill: serve it as a demand fill.
    Promote {
        /// The fill.
        fill: FillId,
    },
    /// Nobody needs this fill any more: drop it if it has not started, and answer it with a failure.
    Cancel {
        /// The fill.
        fill: FillId,
    },
    /// What became of an [`Event::Write`]; for drivers that log events. From [`WriteOutcome::Wait`] on it waits as others do.
    Took {
        /// Who writes.
        waiter: Waiter,
        /// What became of it.
        outcome: WriteOutcome,
        /// Where the bytes of the pages taken go.
        targets: Vec<Target>,
    },
    /// Write these pages to the store from their frames ([`Cache::write_out_frames`](crate::Cache::write_out_frames));
    /// answer with exactly one [`Event::WrittenOut`].
    WriteOut(WriteOut),
    /// Someone now waits for this write-out of write-back: serve it as that of a sync.
    PromoteWrite {
        /// The write-out.
        id: WriteOutId,
    },
    /// A read that waited may go on, with its pages pinned in page order, or has failed. So may a write or a sync, without
    /// frames.
    Wake {
        /// Who waited.
        waiter: Waiter,
        /// Its frames, or why not.
        result: Result<Vec<FrameId>, FillError>,
    },
    /// Take these pages out of the program's mapping, so that its next touch of each is seen; what they hold stays.
    Unmap {
        /// A file with places.
        file: FileId,
        /// Neighbours.
        range: PageRange,
    },
    /// These pages hold nothing any more: take them out of the program's mapping and give their memory back, before a fill
    /// of them is begun.
    Released {
        /// A file with places.
        file: FileId,
        /// Neighbours.
        range: PageRange,
        /// The frames that stood for them, in page order; they have no place now.
        frames: Vec<FrameId>,
    },
    /// These frames are the driver's again.
    Retired {
        /// Which.
        frames: Vec<FrameId>,
    },
}

/// What a [`Cache::access`](crate::Cache::access) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Everything is there and pinned; the frames are in the lent buffer, in page order. Final.
    Hit,
    /// Something is missing: exactly one [`Action::Wake`] follows, in this call's actions or later.
    Wait,
}

/// A read of pages from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Its name.
    pub id: FillId,
    /// Which file.
    pub file: FileId,
    /// Which pages; not empty, within the file.
    pub range: PageRange,
    /// Whether someone waits.
    pub urgency: Urgency,
}

/// How urgent a fill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// Someone waits for it.
    Demand,
    /// Nobody has asked for it yet.
    Readahead,
}

/// Why a fill failed: a number of the driver's choosing, handed through to the readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FillError(pub u16);

impl FillError {
    /// A read wanted more pages at once than the cache has frames.
    pub const TOO_LARGE: Self = Self(u16::MAX);
    /// The handle was closed while a read through it waited for frames.
    pub const CLOSED: Self = Self(u16::MAX - 1);
    /// The fill has ended, yet somebody may still write to its frames; or the write-out, yet somebody may still read them. The cache pins each
    /// frame once for the driver, who unpins them when nobody can use them any more, or never; it lets go of the pages of
    /// a fill.
    pub const LOST: Self = Self(u16::MAX - 2);
}

/// What a user says about a range or a handle, as in `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// No advice: the configured window.
    Normal,
    /// Reads will be in order: twice the window.
    Sequential,
    /// Reads will be in no order: exactly what each asks for.
    Random,
    /// The range will be wanted soon: read it now.
    WillNeed,
    /// The range will not be wanted: drop what nobody uses.
    DontNeed,
    /// Each page will be wanted once: drop it behind the reader.
    NoReuse,
}

/// What made a policy decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A page was not there: sync readahead.
    Miss,
    /// A page bore the lookahead mark: async readahead.
    Mark,
    /// The user asked ([`Advice::WillNeed`]), or has named what it will read ([`Event::Follow`]).
    Advice,
    /// The reader is about to look up a page, for policies with
    /// [`Asked::every_access`](crate::Asked::every_access): the first page of a request, or the
    /// one that [`Plans::next`](crate::Plans::next) named. Decisions report it as a miss or a mark.
    Lookup {
        /// The page is not there.
        missing: bool,
        /// An earlier plan, at another page, brought this page in, and no lookup has come to it.
        fresh: bool,
    },
    /// A fault found its page, for policies with [`Asked::found`](crate::Asked::found). Plans are
    /// ignored.
    Found {
        /// The page is still being read.
        in_flight: bool,
    },
    /// A touch of the first page of the request mapped all of it, so later touches are not seen;
    /// for policies with [`Asked::mapped`](crate::Asked::mapped). Plans are ignored.
    Mapped,
}

impl Trigger {
    /// The name in `explain`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Miss | Self::Lookup { missing: true, .. } => "miss",
            Self::Mark | Self::Lookup { .. } => "mark",
            Self::Advice => "advice",
            Self::Found { .. } | Self::Mapped => "fault",
        }
    }
}

/// A decision of a readahead policy, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whose readahead state decided.
    pub handle: HandleId,
    /// Of which file.
    pub file: FileId,
    /// The page that was accessed.
    pub page: PageIndex,
    /// Pages from there to the end of the request, not clipped at the end of the file.
    pub req_pages: PageCount,
    /// What made it decide.
    pub trigger: Trigger,
    /// The plan before clipping, with its reason.
    pub plan: Plan,
    /// The page that got the lookahead mark.
    pub mark: Option<PageIndex>,
}
