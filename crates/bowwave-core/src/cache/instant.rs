//! A read whose device takes no time: the walk, the decisions and the counters of [`Cache::read`], without waits.
//!
//! What [`read`](Cache::read), the answers to its fills in their order, and [`unpin`](Cache::unpin) do in turn, happens here
//! in one call: new frames are chained while the reader walks, come to the lists together when it is done, and nobody
//! waits, so there is nothing to hand out. It is for replaying traces through policies and evictions.

use alloc::vec::Vec;

use super::Cache;
use super::plan::{Run, Sink};
use crate::event::{Decision, FillError, ReadOutcome, Urgency};
use crate::id::{FileId, FrameId, HandleId};
use crate::page::{PageCount, PageRange};
use crate::request::{Fault, Part, Pattern, Request};
use crate::time::Instant;

/// Watches what [`Cache::read_instant`] does; `()` does not.
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
    /// A demand read from a device that takes no time: does what [`read`](Self::read), [`filled`](Self::filled) for each of
    /// its fills in their order, and [`unpin`](Self::unpin) would do, and tells whether everything was there.
    ///
    /// For drivers that use nothing else to read: while fills are in flight or frames are pinned, it may find too few
    /// frames.
    ///
    /// # Errors
    /// [`FillError::TOO_LARGE`] if it wants more pages than the cache can free for it. Then nothing is read, but the request
    /// counts.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn read_instant<O: Observer>(
        &mut self,
        now: Instant,
        handle: HandleId,
        request: impl Into<Request>,
        observer: &mut O,
    ) -> Result<ReadOutcome, FillError> {
        self.tick(now);
        let part = Part::whole(handle, request.into());
        if self.hit_one(part).is_some() {
            return Ok(ReadOutcome::Hit);
        }
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut sink = Instantly { observer, chain: None };
        let outcome = if self.hit_unpinned(part, &mut scratch.frames) {
            Ok(ReadOutcome::Hit)
        } else if self.walk_over_hit(part, &mut scratch.frames, &mut sink) {
            self.arrive_all(&sink);
            self.drop_pins(scratch.frames.drain(..));
            Ok(ReadOutcome::Hit)
        } else {
            self.walk_instantly(part, None, &mut scratch.present, &mut sink)
        };
        self.scratch = Some(scratch);
        outcome
    }

    /// As [`read_instant`](Self::read_instant), for a touch of a mapped page: does what [`fault`](Self::fault) and the
    /// answers would do.
    ///
    /// # Errors
    /// [`FillError::TOO_LARGE`] if no frame can be freed for it.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn fault_instant<O: Observer>(
        &mut self,
        now: Instant,
        handle: HandleId,
        fault: Fault,
        observer: &mut O,
    ) -> Result<(), FillError> {
        self.tick(now);
        let part = Part::whole(handle, PageRange::from_start(fault.page, PageCount(1)).into());
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut sink = Instantly { observer, chain: None };
        let outcome = self.walk_instantly(part, Some(fault.pattern), &mut scratch.present, &mut sink);
        self.scratch = Some(scratch);
        outcome.map(|_| ())
    }

    fn walk_instantly<O: Observer>(
        &mut self,
        part: Part,
        mapped: Option<Pattern>,
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
