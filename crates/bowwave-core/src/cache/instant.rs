//! An access whose device takes no time: the walk, the decisions and the counters of [`Cache::access`], without waits.
//!
//! What [`access`](Cache::access), the answers to its fills in their order, and [`unpin`](Cache::unpin) do in turn, happens here
//! in one call: new frames are chained while the reader walks, come to the lists together when it is done, and nobody
//! waits, so there is nothing to hand out. It is for replaying traces through policies and evictions.

use alloc::vec::Vec;

use super::Cache;
use super::plan::{Run, Sink};
use crate::event::{Decision, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FrameId};
use crate::page::PageRange;
use crate::request::PageAccess;
use crate::time::Instant;

/// Watches what [`Cache::access_instant`] does; `()` does not.
pub trait Observer {
    /// Pages of a file were read from the store at once, because someone asked for some of them or as readahead.
    fn filled(&mut self, _file: FileId, _range: PageRange, _urgency: Urgency) {}

    /// A policy has decided; the fills since the decision before were its.
    fn decided(&mut self, _decision: &Decision) {}
}

impl Observer for () {}

/// Buffers of a walk.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    present: Vec<Option<FrameId>>,
    frames: Vec<FrameId>,
}

/// Chains new frames instead of waiting for them.
struct Instantly<'a, O> {
    observer: &'a mut O,
    /// First and last frame of all fills so far.
    chain: Option<(FrameId, FrameId)>,
}

impl<O: Observer> Sink for Instantly<'_, O> {
    fn begin(&mut self, _decision: &Decision) -> usize {
        0
    }

    fn end(&mut self, _place: usize, decision: &Decision) {
        self.observer.decided(decision);
    }

    fn fill(&mut self, cache: &mut Cache, file: FileId, run: &Run, urgency: Urgency) {
        let first = match self.chain {
            Some((first, last)) => {
                cache.frames.link(last, run.first);
                first
            }
            None => run.first,
        };
        self.chain = Some((first, run.last));
        self.observer.filled(file, run.range(), urgency);
    }
}

impl Cache {
    /// An access to a device that takes no time: does what [`access`](Self::access),
    /// [`filled`](Self::filled) for each of its fills in their order, and [`unpin`](Self::unpin)
    /// would do. The outcome is that of `access`.
    ///
    /// For drivers that use nothing else to read: while fills are in flight or frames are pinned,
    /// it may find too few frames.
    ///
    /// # Errors
    /// [`FillError::TOO_LARGE`] if it wants more pages than the cache can free for it. Then nothing
    /// is read, but the request counts.
    ///
    /// # Panics
    /// If the handle is not open.
    pub fn access_instant<O: Observer>(
        &mut self,
        now: Instant,
        access: PageAccess,
        observer: &mut O,
    ) -> Result<ReadOutcome, FillError> {
        self.tick(now);
        let PageAccess { part, mapped } = access;
        if mapped.is_none() && self.hit_one(part).is_some() {
            return Ok(ReadOutcome::Hit);
        }
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut sink = Instantly { observer, chain: None };
        let outcome = if mapped.is_some() {
            self.walk_instantly(access, &mut scratch.present, &mut sink)
        } else if self.hit_unpinned(part, &mut scratch.frames) {
            Ok(ReadOutcome::Hit)
        } else if self.walk_over_hit(part, &mut scratch.frames, &mut sink) {
            self.arrive_all(&sink);
            self.drop_pins(scratch.frames.drain(..));
            Ok(ReadOutcome::Hit)
        } else {
            self.walk_instantly(access, &mut scratch.present, &mut sink)
        };
        self.scratch = Some(scratch);
        outcome
    }

    fn walk_instantly<O: Observer>(
        &mut self,
        PageAccess { part, mapped }: PageAccess,
        present: &mut Vec<Option<FrameId>>,
        sink: &mut Instantly<'_, O>,
    ) -> Result<ReadOutcome, FillError> {
        let range = self.count_read(part);
        if range.count().0 > u64::from(self.limit) {
            return Err(FillError::TOO_LARGE);
        }
        let mut walk = self.walk_of(part, range);
        walk.mapped = mapped;
        if !self.set_out(&mut walk, present) {
            self.stats_mut(walk.file).reads_starved += 1;
            return Err(FillError::TOO_LARGE);
        }
        self.walk(&mut walk, present, sink);
        self.arrive_all(sink);
        self.drop_pins(present.drain(..).flatten());
        Ok(ReadOutcome::Wait)
    }

    fn arrive_all<O>(&mut self, sink: &Instantly<'_, O>) {
        if let Some((first, _)) = sink.chain {
            self.arrive(first);
        }
    }
}
