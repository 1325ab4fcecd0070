//! A miss that goes on with a stream: upward, downward, at an even distance.

use super::entry::{Entry, Join, Way};
use super::tuning::tuning;
use super::{Detector, Stream, Wanted};
use crate::readahead::{Plan, Reason, View};

impl Stream {
    /// A read that leaves pages out between the last one and itself. The second one that leaves out as many makes a stream
    /// at an even distance; before, one cannot tell, and nothing is read ahead of a stream that has not shown more.
    pub(super) fn leaves_out(
        &mut self,
        at: usize,
        join: Join,
        wanted: Wanted,
        view: View<'_>,
    ) -> Option<Plan> {
        let Wanted { page, end, first, .. } = wanted;
        let entry = self.table.get(at);
        let (gap, past) = match join {
            Join::Up => (first.saturating_sub(entry.hi), entry.hi),
            Join::Down => (entry.lo.saturating_sub(end), entry.lo),
            Join::Stride | Join::Behind => return None,
        };
        if gap == 0 {
            return None;
        }
        let apart = first.wrapping_sub(entry.piece).cast_signed();
        let block = if join == Join::Up { past.saturating_sub(entry.piece) } else { end - first };
        let even = apart == entry.apart && (1..apart.unsigned_abs()).contains(&block);
        let untried = entry.window == 0;
        (entry.piece, entry.apart) = (first, apart);
        if even && let Some(edge) = first.checked_add_signed(apart) {
            entry.way = Way::Stride { step: apart, block };
            (entry.lo, entry.hi, entry.edge, entry.window) = (first, end, edge, 0);
            entry.consumed = entry.consumed.saturating_add(end - page);
            let fits = end - page <= block;
            return Some(if fits { self.window_strided(at, wanted, view) } else { wanted.alone() });
        }
        if untried {
            entry.consumed = entry.consumed.saturating_add(end - page);
            (entry.lo, entry.hi) = (entry.lo.min(page), entry.hi.max(end));
            entry.edge = if join == Join::Up { entry.hi } else { entry.lo };
            entry.way = if join == Join::Up { Way::Up } else { Way::Down };
            return Some(wanted.alone());
        }
        None
    }

    /// A miss or a mark of a stream that is read upward.
    pub(super) fn upward(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = wanted;
        let trusted = self.scores.trusts(Detector::Sequential);
        let entry = self.table.get(at);
        let began = entry.window == 0;
        let before = entry.hi;
        if entry.way == Way::New {
            self.scores.count(Detector::Sequential, true);
            if began && !trusted && !self.runs.goes_on(before - entry.lo) {
                // Among many reads in no order some lie side by side. A third one in a row is more than chance.
                entry.way = Way::Up;
                entry.consumed = entry.consumed.saturating_add(end - page);
                (entry.hi, entry.edge) = (entry.hi.max(end), entry.edge.max(end));
                return wanted.alone();
            }
        }
        let lost = page < entry.edge;
        entry.way = Way::Up;
        entry.consumed = entry.consumed.saturating_add(end - page).saturating_add(page - entry.hi.min(page));
        entry.hi = end.max(entry.hi);
        let (edge, read) = (entry.edge, entry.hi - entry.lo);
        let (first, next) = (self.first_window(wanted), self.next_window(at, max));
        if (began || !trusted && page >= edge) && !self.runs.goes_on(read) {
            let entry = self.table.get(at);
            entry.edge = entry.edge.max(end);
            return wanted.alone();
        }
        let first = if began { first.max(self.like_the_last(at, wanted, view)) } else { first };
        let entry = self.table.get(at);
        let (size, reason) = if lost {
            entry.thrashed();
            ((entry.edge - page).min(entry.window), Reason::Thrash)
        } else if entry.expected > read {
            // There was no room for all of it when it began.
            (end - page + (entry.expected - read), Reason::Range)
        } else if began && entry.expected == 0 {
            (first, Reason::Miss)
        } else if entry.consumed < entry.expected.saturating_mul(tuning().outgrown) {
            if read <= entry.expected + 2 * self.config.reader_ahead_pages
                && self.config.reader_ahead_pages > 0
            {
                // Only its reader's readahead has come so far.
                entry.edge = entry.edge.max(end);
                return wanted.alone();
            }
            // A run that is longer than expected is no longer than the longest, or not by much.
            let step = (entry.expected / tuning().outgrown_step).max(tuning().speculation_min);
            let (longest, more) = (self.runs.length(), self.runs.length().saturating_sub(read));
            let far = self.pages_a_fill() > longest && self.affords(longest, tuning().runs_left, view);
            let more = if far && !wanted.mapped { more.max(step) } else { step };
            (end - page + more, Reason::Range)
        } else {
            entry.waited = true;
            (next, Reason::Readahead)
        };
        let at = self.close_gaps(at);
        let done = self.done(at, before, page, view);
        let mut plan = self.window_up(at, wanted, size, reason, view);
        plan.hints.drop_behind = done;
        plan
    }

    /// From the wanted page on, as many pages as a run still has that goes on and of which nothing was foretold, if it is like the
    /// ones before: where a request takes as long as many pages are read in, they are asked for at once.
    fn like_the_last(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> u64 {
        let Entry { lo, hi, expected, .. } = *self.table.get(at);
        if lo == 0
            || expected > 0
            || self.pages_a_fill() < tuning().speculation_min
            || self.runs.length() <= hi - lo
        {
            return 0;
        }
        lo.saturating_add(self.affordable(view)).saturating_sub(wanted.page)
    }

    /// Joins the stream at `at` with those that begin where it has come to: what looked like the begin of another run were requests of
    /// this one that came in another order. Its place now.
    fn close_gaps(&mut self, at: usize) -> usize {
        let (at, joined) = self.table.close_gaps(at);
        if let Some(start) = joined {
            self.runs.forget(start);
        }
        at
    }

    /// A miss of a stream that is read downward.
    pub(super) fn downward(&mut self, at: usize, direct: bool, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = wanted;
        let (first, next) = (self.first_window(wanted), self.next_window(at, max));
        let entry = self.table.get(at);
        entry.proven = entry.proven.saturating_add(1);
        let known = entry.way == Way::Down || entry.proven > 1;
        if entry.way == Way::New {
            if direct {
                self.scores.count(Detector::Backward, true);
            }
            entry.edge = entry.lo;
        }
        let lost = page >= entry.edge;
        let began = entry.window == 0;
        entry.consumed = entry.consumed.saturating_add(end - page);
        entry.lo = page;
        let (size, reason) = if lost {
            entry.thrashed();
            ((end - entry.edge).min(entry.window), Reason::Thrash)
        } else if began {
            (first, Reason::Backward)
        } else {
            entry.waited = true;
            (next, Reason::Backward)
        };
        let read = entry.hi - page;
        let goes_on = !began || self.runs.goes_on(read);
        let known = known || direct && self.scores.trusts(Detector::Backward);
        if !(goes_on && known) {
            // Two requests that came in the wrong order look like this: it may go on either way.
            let entry = self.table.get(at);
            entry.edge = entry.hi;
            return wanted.alone();
        }
        self.table.get(at).way = Way::Down;
        let at = self.close_gaps(at);
        self.window_down(at, wanted, size, reason, view)
    }

    /// A miss of a stream at an even distance.
    pub(super) fn strided(&mut self, at: usize, begun: Option<u64>, wanted: Wanted, view: View<'_>) -> Plan {
        let trusted = self.scores.trusts(Detector::Stride);
        let entry = self.table.get(at);
        let direct = begun == Some(entry.lo);
        let Way::Stride { step, block } = entry.way else { return wanted.alone() };
        let (steps, within) = entry.steps_to(wanted.page, step);
        let overtook = steps >= entry.steps_to(entry.edge, step).0;
        if steps > 0 {
            entry.proven = entry.proven.saturating_add(steps.min(255) as u8);
            entry.waited |= overtook && entry.window > 0;
            entry.consumed = entry.consumed.saturating_add(block);
            entry.lo = entry.lo.wrapping_add_signed(step.wrapping_mul(steps));
            if overtook {
                entry.edge = entry.lo.checked_add_signed(step).unwrap_or(entry.lo);
                self.scores.count(Detector::Stride, true);
            }
        }
        // Among many reads in no order some lie at even distances; hardly those that come one after the other.
        let shown = direct || trusted || self.table.get(at).proven > 2;
        if !shown || wanted.end - wanted.page > block - within {
            return wanted.alone();
        }
        self.window_strided(at, wanted, view)
    }

    /// What looked like blocks at an even distance are streams that began at even distances.
    pub(super) fn behind(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let entry = self.table.get(at);
        let Way::Stride { block, .. } = entry.way else { return wanted.alone() };
        let began = !entry.over;
        entry.over = true;
        if began {
            self.scores.count(Detector::Stride, false);
        }
        let lo = wanted.page - block.min(wanted.page);
        let at = self.enter(Entry { way: Way::Up, consumed: 0, ..Entry::new(lo, wanted.page) });
        self.upward(at, wanted, view)
    }
}
