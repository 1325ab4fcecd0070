//! Queued fills and write-outs.

use std::sync::Arc;

use bowwave_core::network::Retry;
use bowwave_core::schedule::{Direction, Priority};
use bowwave_core::{FillId, FrameId, Instant, PageRange, Urgency, WriteOutId};

use crate::arena::Arena;
use crate::entry::FileEntry;
use crate::stats::Work;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Since when a fill or a write-out has a waiter.
#[derive(Debug, Default)]
pub(crate) struct Demand(AtomicU64);

impl Demand {
    /// A waiter arrived, the first or another one.
    pub(crate) fn come(&self, now: Instant) {
        // 0 stands for no waiter; the first arrival counts.
        self.0.compare_exchange(0, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Arrival of the first waiter.
    pub(crate) fn since(&self) -> Option<Instant> {
        let since = self.0.load(Ordering::Relaxed);
        (since > 0).then_some(Instant(since))
    }
}

/// A fill or a write-out, as its shard numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Id {
    Fill(FillId),
    Write(WriteOutId),
}

/// A fill or a write-out of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) shard: usize,
    pub(crate) id: Id,
}

/// A queued fill or write-out.
#[derive(Debug)]
pub(crate) struct IoRequest {
    pub(crate) key: Key,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) range: PageRange,
    pub(crate) urgency: Urgency,
    /// The priority of its most important waiter, or of the handle that caused it.
    pub(crate) priority: Priority,
    /// Shows when a reader or a sync begins to wait, wherever the request is then: queued, between
    /// attempts, or not yet queued.
    pub(crate) demanded: Arc<Demand>,
    pub(crate) frames: Vec<FrameId>,
    pub(crate) arena: Arc<Arena>,
    /// Its attempts, after the first was sent.
    pub(crate) retry: Option<Retry>,
    /// Bytes at the start of a fill that an earlier request returned.
    pub(crate) have_bytes: u64,
}

impl IoRequest {
    /// The fill.
    ///
    /// # Panics
    /// If it is a write-out.
    pub(crate) fn fill(&self) -> FillId {
        match self.key.id {
            Id::Fill(fill) => fill,
            Id::Write(id) => unreachable!("{id:?} is no fill"),
        }
    }

    /// The write-out.
    ///
    /// # Panics
    /// If it is a fill.
    pub(crate) fn write_out(&self) -> WriteOutId {
        match self.key.id {
            Id::Write(id) => id,
            Id::Fill(fill) => unreachable!("{fill:?} is no write-out"),
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        match self.key.id {
            Id::Fill(_) => Direction::Read,
            Id::Write(_) => Direction::Write,
        }
    }

    /// Whether it has a waiter.
    pub(super) fn is_demanded(&self) -> bool {
        self.demanded.since().is_some()
    }

    /// Whether a request failed or left it incomplete. It is then sent alone, so that one bad page
    /// does not fail its neighbours again.
    pub(super) fn is_left_over(&self) -> bool {
        self.retry.is_some_and(|retry| retry.attempts() > 1) || self.have_bytes > 0
    }

    /// Its class in the statistics.
    pub(super) fn work(&self) -> Work {
        match (self.direction(), self.urgency) {
            (Direction::Read, Urgency::Demand) => Work::DemandRead,
            (Direction::Read, Urgency::Readahead) => Work::Readahead,
            (Direction::Write, Urgency::Demand) => Work::SyncWrite,
            (Direction::Write, Urgency::Readahead) => Work::WriteBack,
        }
    }
}
