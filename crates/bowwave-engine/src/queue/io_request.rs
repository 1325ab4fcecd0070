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

/// A fill of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FillKey {
    pub(crate) shard: usize,
    pub(crate) fill: FillId,
}

/// A fill or a write-out of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Fill(FillKey),
    Write(usize, WriteOutId),
}

/// A queued fill.
#[derive(Debug)]
pub(crate) struct QueuedFill {
    pub(crate) key: FillKey,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) range: PageRange,
    pub(crate) urgency: Urgency,
    /// The priority of its most important waiter, or of the handle that caused it.
    pub(crate) priority: Priority,
    /// Shows when a reader begins to wait, wherever the fill is then: queued, between attempts, or
    /// not yet queued.
    pub(crate) demanded: Arc<Demand>,
    pub(crate) frames: Vec<FrameId>,
    pub(crate) arena: Arc<Arena>,
    /// Its attempts, after the first was sent.
    pub(crate) retry: Option<Retry>,
    /// Bytes at its start that an earlier request returned.
    pub(crate) have_bytes: u64,
}

/// A queued write-out.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) shard: usize,
    pub(crate) id: WriteOutId,
    pub(crate) entry: Arc<FileEntry>,
    pub(crate) range: PageRange,
    pub(crate) urgency: Urgency,
    /// The priority of its most important waiter, or of the handle that caused it.
    pub(crate) priority: Priority,
    /// Shows when a sync begins to wait, wherever the write-out is then.
    pub(crate) demanded: Arc<Demand>,
    pub(crate) frames: Vec<FrameId>,
    pub(crate) arena: Arc<Arena>,
    /// Its attempts, after the first was sent.
    pub(crate) retry: Option<Retry>,
}

/// A fill or a write-out.
#[derive(Debug)]
pub(crate) enum IoRequest {
    Fill(QueuedFill),
    Write(QueuedWrite),
}

impl QueuedFill {
    /// Whether a request failed or left it incomplete. It is then sent alone, so that one bad page
    /// does not fail its neighbours again.
    fn is_left_over(&self) -> bool {
        is_again(&self.retry) || self.have_bytes > 0
    }

    /// Its class in the statistics.
    pub(crate) fn work(&self) -> Work {
        match self.urgency {
            Urgency::Demand => Work::DemandRead,
            Urgency::Readahead => Work::Readahead,
        }
    }
}

impl QueuedWrite {
    /// Its class in the statistics.
    pub(crate) fn work(&self) -> Work {
        match self.urgency {
            Urgency::Demand => Work::SyncWrite,
            Urgency::Readahead => Work::WriteBack,
        }
    }
}

impl IoRequest {
    pub(crate) fn entry(&self) -> &Arc<FileEntry> {
        match self {
            Self::Fill(fill) => &fill.entry,
            Self::Write(write) => &write.entry,
        }
    }

    pub(super) fn key(&self) -> Key {
        match self {
            Self::Fill(fill) => Key::Fill(fill.key),
            Self::Write(write) => Key::Write(write.shard, write.id),
        }
    }

    pub(super) fn range(&self) -> PageRange {
        match self {
            Self::Fill(fill) => fill.range,
            Self::Write(write) => write.range,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self {
            Self::Fill(_) => Direction::Read,
            Self::Write(_) => Direction::Write,
        }
    }

    pub(super) fn urgency(&self) -> Urgency {
        match self {
            Self::Fill(fill) => fill.urgency,
            Self::Write(write) => write.urgency,
        }
    }

    pub(super) fn priority(&self) -> Priority {
        match self {
            Self::Fill(fill) => fill.priority,
            Self::Write(write) => write.priority,
        }
    }

    pub(crate) fn set_priority(&mut self, priority: Priority) {
        match self {
            Self::Fill(fill) => fill.priority = priority,
            Self::Write(write) => write.priority = priority,
        }
    }

    /// Whether it has a waiter.
    pub(super) fn is_demanded(&self) -> bool {
        match self {
            Self::Fill(fill) => fill.demanded.since().is_some(),
            Self::Write(write) => write.demanded.since().is_some(),
        }
    }

    pub(super) fn set_demand(&mut self) {
        match self {
            Self::Fill(fill) => fill.urgency = Urgency::Demand,
            Self::Write(write) => write.urgency = Urgency::Demand,
        }
    }

    /// Whether it is sent alone, after a failure.
    pub(super) fn is_left_over(&self) -> bool {
        match self {
            Self::Fill(fill) => fill.is_left_over(),
            Self::Write(write) => is_again(&write.retry),
        }
    }

    pub(super) fn work(&self) -> Work {
        match self {
            Self::Fill(fill) => fill.work(),
            Self::Write(write) => write.work(),
        }
    }
}

fn is_again(retry: &Option<Retry>) -> bool {
    retry.is_some_and(|retry| retry.attempts() > 1)
}
