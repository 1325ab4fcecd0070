//! Repeating offset deltas: columns of row groups, fields of records, nodes of an index.
//!
//! [`Runs::next_jump`](super::runs::Runs::next_jump) predicts where the next run begins. Earlier
//! runs predict its length. Readahead begins with the first prediction, because deltas that repeat
//! count as one exact prediction. It stops while the detector is not trusted. At first one run is
//! read ahead, or eight if a reader uses a run in less time than a fill takes. The number doubles,
//! up to eight, each time a reader waits for a predicted run.

use super::plan::part;
use super::runs::Jump;
use super::tuning::tuning;
use super::{Detector, Direction, Entry, Stream, Wanted};
use crate::page::PageIndex;
use crate::readahead::{Candidate, Plan, Reason, Verdict, View};

/// Predictions of the next runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jumps {
    /// Predicted start of the next run, and the tolerance in pages.
    next: Option<(u64, u64)>,
    /// How often a reader waited for a predicted run, at most `ahead_log_max`. Each wait doubles
    /// the runs read ahead.
    waited: u32,
    /// Runs read ahead and not reached yet.
    ahead: u64,
}

impl Stream {
    /// Scores the prediction at the start of a run.
    pub(super) fn judge_jump(&mut self, page: u64) {
        let Some((next, around)) = self.jumps.next.take() else { return };
        let right = next.abs_diff(page) <= around;
        if right {
            self.scores.count_exact(Detector::Jumps);
        } else {
            self.jumps = Jumps::default();
            self.scores.count(Detector::Jumps, false);
        }
    }

    /// The reader reached a run that was read ahead.
    pub(super) fn landed(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { end, first, .. } = *wanted;
        self.close_last(first);
        let waited = self.table.last().is_some_and(|last| last.waited);
        self.jumps.waited = (self.jumps.waited + u32::from(waited)).min(tuning().ahead_log_max as u32);
        self.table.touch(at);
        let entry = self.table.get(at);
        entry.direction = Direction::New;
        entry.lo = first.max(entry.lo);
        entry.hi = end.min(entry.edge).max(entry.lo);
        (entry.request, entry.mark) = (end - first, None);
        let begun = entry.lo;
        self.judge_jump(begun);
        self.runs.push(begun);
        self.jumps.ahead = self.jumps.ahead.saturating_sub(1);
        self.jump(at, 0, wanted, view);
        self.more.pop().unwrap_or_else(|| wanted.nothing(Reason::Jumps))
    }

    /// Predicts the next run after the one at `at`, and plans readahead of the next runs if the
    /// detector is trusted. `planned` pages of this decision count against the budget.
    pub(super) fn jump(&mut self, at: usize, planned: u64, wanted: &Wanted, view: &View<'_>) {
        let Some(next) = self.runs.next_jump() else {
            self.jumps.next = None;
            return;
        };
        // Deltas that repeat are hardly chance: they count as one exact prediction.
        if !self.scores.has_judged(Detector::Jumps) {
            self.scores.count_exact(Detector::Jumps);
        }
        let requested = wanted.end - wanted.first;
        let length = match self.runs.length() {
            length if length > requested && self.scores.trusts(Detector::Cluster) => {
                length.next_multiple_of(requested)
            }
            _ => requested,
        };
        // Long runs may start a page off, since byte-aligned rows are not page-aligned; one more
        // page costs little.
        let exact = |jump: Jump| jump.exact && length < tuning().speculation_min;
        self.jumps.next = Some((next.to, u64::from(!exact(next))));
        if !self.scores.trusts(Detector::Jumps) {
            self.weigh(Candidate::Jump, length, None, Verdict::NotTrusted);
            return;
        }
        let mut runs = self.runs;
        let length = length.min(wanted.max * tuning().file_windows);
        let mut planned = planned;
        // A high-latency store gets several at once, so that the reader does not wait for each.
        let far = if self.pages_per_fill() > length { tuning().ahead_log_max as u32 } else { 0 };
        for number in 1..=1u64 << self.jumps.waited.max(far) {
            let Some(jump) = runs.next_jump() else { break };
            runs.push(jump.to);
            if number <= self.jumps.ahead {
                continue;
            }
            // If rounds differ by a page, each further round may add one.
            let around = if exact(jump) { 0 } else { 1 + number / jump.period };
            let from = jump.to.saturating_sub(around);
            let to = jump.to.saturating_add(length + around).min(view.file_pages.0);
            let pages = to.saturating_sub(from);
            if pages == 0
                || jump.to > view.file_pages.0
                || !self.accepts_predicted(Candidate::Jump, pages, planned, view)
            {
                break;
            }
            planned += pages;
            self.jumps.ahead = number;
            let mark = jump.to.saturating_add(around).min(to - 1);
            self.enter(Entry {
                direction: Direction::Expected,
                edge: to,
                window: pages.min(wanted.max),
                expected: length,
                mark: Some(mark),
                ..Entry::new(from, from)
            });
            let mut plan = Plan::new(PageIndex(from), pages, to - mark, Reason::Jumps);
            plan.mark = Some(PageIndex(mark));
            // Most predicted runs arrive before the reader, so larger requests suffice.
            plan.hints.split_every = tuning().longer * part(wanted.max);
            self.more.push(plan);
        }
        self.more.reverse();
        // The streams entered above are not the reader's current one.
        self.table.touch(at);
    }
}
