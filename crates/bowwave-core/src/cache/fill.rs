//! The end of a fill.

use alloc::vec::Vec;

use super::frames::{Flag, State};
use super::table::Slot;
use super::{Cache, FillState};
use crate::event::{Action, FillError, Urgency};
use crate::id::{FileId, FillId, FrameId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::readahead::{DemandFill, FillReport};
use crate::time::Instant;

impl Cache {
    /// A fill ended: its frames hold the file's bytes, or it failed.
    ///
    /// A failed readahead only counts. If readers wait for part of a failed fill, that part alone
    /// is requested again, so readahead cannot fail a read. If that fails too, or if the fill had
    /// only their pages, they wake with the error; a later read tries again. Pages of
    /// [`FillError::DROPPED`] are requested again in any case. The driver retries on the store's
    /// behalf. After [`FillError::ABANDONED`] nothing is requested again.
    ///
    /// Completions of fills that are not in flight are ignored.
    pub fn filled(
        &mut self,
        now: Instant,
        fill: FillId,
        result: Result<(), FillError>,
        out: &mut Vec<Action>,
    ) {
        self.tick(now);
        let Some(state) = self.fills.remove(fill.0) else {
            debug_assert!(false, "fill {} is not in flight", fill.0);
            return;
        };
        self.ahead -= state.ahead;
        match result {
            Ok(()) => {
                self.report_fill(&state, state.range, false);
                self.succeed(&state, out);
            }
            Err(error) => {
                // The store did not fail if the cache cancelled the fill or the driver dropped it.
                let refused = state.cancelled || error == FillError::DROPPED;
                self.stats_mut(state.file).fills_failed += u64::from(!refused);
                self.fail(state, error, out);
            }
        }
        self.retry_starved(out);
    }

    /// Requests cancellation of a file's readahead without waiters.
    pub(super) fn cancel_readahead(&mut self, file: FileId, out: &mut Vec<Action>) {
        for (id, fill) in self.fills.iter_mut() {
            if fill.file == file && fill.urgency == Urgency::Readahead && !fill.cancelled {
                fill.cancelled = true;
                out.push(Action::Cancel { fill: FillId(id) });
            }
        }
    }

    /// Ends a wait whose fills have all ended.
    pub(super) fn finish_wait(&mut self, id: u64, out: &mut Vec<Action>) {
        if self.waits.get(id).is_none_or(|wait| wait.pending > 0) {
            return;
        }
        let wait = self.waits.remove(id).expect("looked up above");
        self.awaited -= wait.range.count().0;
        let result = match wait.error {
            None => Ok(wait.frames),
            Some(error) => {
                self.drop_pins(wait.frames);
                Err(error)
            }
        };
        out.push(Action::Wake { waiter: wait.waiter, result });
    }

    fn succeed(&mut self, fill: &FillState, out: &mut Vec<Action>) {
        self.arrive(fill.first);
        self.end_waits(fill, None, out);
    }

    /// The frames chained from `first` are up to date.
    pub(super) fn arrive(&mut self, first: FrameId) {
        let mut next = Some(first);
        while let Some(id) = next {
            next = self.frames.chained(id);
            let frame = self.frames.get_mut(id);
            if frame.state == State::Doomed {
                if frame.pins == 0 {
                    self.frames.free(id);
                }
            } else if frame.take(Flag::Activate) {
                frame.take(Flag::Referenced);
                self.frames.list_add(id, State::Active);
            } else {
                frame.set_born(self.reclaim.clock);
                self.frames.list_add(id, State::Inactive);
            }
        }
    }

    fn fail(&mut self, fill: FillState, error: FillError, out: &mut Vec<Action>) {
        let frames: Vec<FrameId> =
            core::iter::successors(Some(fill.first), |&id| self.frames.chained(id)).collect();
        let all_awaited = frames.iter().all(|&id| self.frames.get(id).pins > 0);
        let abandoned = error == FillError::ABANDONED;
        // Not the store, but the driver refused pages that no reader had come to yet.
        let refused = fill.cancelled || error == FillError::DROPPED;
        let again = !abandoned && !fill.waits.is_empty() && !fill.exact && (refused || !all_awaited);
        let mut awaited: Vec<FrameId> = Vec::new();
        let mut absent: Vec<PageIndex> = Vec::new();
        let mut failed = 0;
        for id in frames {
            let frame = self.frames.get(id);
            if again && frame.pins > 0 {
                awaited.push(id);
                continue;
            }
            let (file, index, pins) = (frame.file, frame.index, frame.pins);
            let planned = frame.has(Flag::Planned);
            if frame.state != State::Doomed {
                self.table.set(file, index, Slot::EMPTY);
                absent.push(index);
            }
            failed += u64::from(self.frames.take_unused(id) && !planned);
            if abandoned {
                self.frames.pin(id);
            }
            if pins > 0 || abandoned {
                self.frames.doom(id);
            } else {
                self.frames.free(id);
            }
        }
        // The cache itself cancelled readahead that no reader came to: it stays waste.
        if !fill.cancelled {
            if let Some(Some(file)) = self.files.get_mut(fill.file.0 as usize) {
                file.stats.pages_failed += failed;
            }
            for run in absent.chunk_by(|a, b| a.0 + 1 == b.0) {
                let range = PageRange::from_start(run[0], PageCount(run.len() as u64));
                self.report_fill(&fill, range, true);
            }
        }
        if again {
            self.fill_again(&fill, &awaited, out);
            self.end_waits(&fill, None, out);
        } else {
            self.end_waits(&fill, Some(error), out);
        }
    }

    /// Requests the frames of a failed fill that readers wait for, again, in runs.
    fn fill_again(&mut self, failed: &FillState, awaited: &[FrameId], out: &mut Vec<Action>) {
        let is_next =
            |a: &FrameId, b: &FrameId| self.frames.get(*b).index.0 == self.frames.get(*a).index.0 + 1;
        let runs: Vec<&[FrameId]> = awaited.chunk_by(is_next).collect();
        for run in runs {
            let start = self.frames.get(run[0]).index.0;
            let range = PageRange::new(start, start + run.len() as u64);
            let mut previous = None;
            for &id in run {
                self.frames.chain(previous, id);
                previous = Some(id);
            }
            let stats = self.stats_mut(failed.file);
            stats.fills += 1;
            stats.pages_filled += range.count().0;
            let id = self.start_fill(failed.file, range, Urgency::Demand, run[0], true, out);
            for &wait_id in &failed.waits {
                let wait = self.waits.get_mut(wait_id).expect("a wait outlives its fills");
                if wait.file == failed.file && !wait.range.intersect(range).is_empty() {
                    wait.pending += 1;
                    self.fills.get_mut(id).expect("just started").waits.push(wait_id);
                }
            }
        }
    }

    /// Reports the end of a fill to the reads that wait for it.
    fn end_waits(&mut self, fill: &FillState, error: Option<FillError>, out: &mut Vec<Action>) {
        for &id in &fill.waits {
            let wait = self.waits.get_mut(id).expect("a wait outlives its fills");
            wait.pending -= 1;
            wait.error = wait.error.or(error);
            self.finish_wait(id, out);
        }
    }

    /// Reports the end of a fill, or of a part of it, to the file's policy.
    fn report_fill(&mut self, fill: &FillState, range: PageRange, failed: bool) {
        let now = self.now;
        let since = |then: Instant| now.0.saturating_sub(then.0);
        let demanded = fill.urgency == Urgency::Demand && fill.overtaken.is_none();
        if !failed {
            let before = range.start.0.checked_sub(1).map(PageIndex);
            let follows = |page| self.table.get(fill.file, page).frame().is_some();
            let demand =
                demanded.then(|| DemandFill { alone: fill.alone, follows: before.is_some_and(follows) });
            self.costs.filled(range.count().0, since(fill.requested_at), demand);
        }
        let Some(Some(file)) = self.files.get_mut(fill.file.0 as usize) else { return };
        let Some(policy) = &mut file.policy else { return };
        policy.on_fill(&FillReport {
            now,
            range,
            took_ns: since(fill.requested_at),
            waited_ns: fill.overtaken.map(since),
            demanded,
            failed,
        });
    }

    /// Readers are done with these pages: pages used once are evicted next, once unpinned.
    pub(super) fn let_go(&mut self, file: FileId, range: PageRange) {
        for page in (range.start.0..range.end.0).map(PageIndex) {
            let Some(id) = self.table.get(file, page).frame() else { continue };
            let frame = self.frames.get(id);
            match frame.state {
                _ if frame.has(Flag::Unused) => {}
                State::Inactive if frame.pins == 0 => self.frames.move_to_tail(id),
                State::Inactive | State::InFlight => self.frames.get_mut(id).set(Flag::Spent),
                State::Active | State::Doomed | State::Free => {}
            }
        }
    }
}
