//! Jumps that repeat: columns of a table row group by row group, fields of records, nodes of an index.
//!
//! Where runs began tells where the next ones will ([`Runs::next_jump`](super::runs::Runs::next_jump)), and what is known of
//! their lengths how long they are. Nothing is read for the first prediction that comes true, but of long series; after that one run
//! ahead, and twice as many each time that a reader had to wait for one, so that a store that is far away is asked for many at once.

use super::plan::part;
use super::runs::Jump;
use super::tuning::tuning;
use super::{Detector, Entry, Stream, Wanted, Way};
use crate::page::PageIndex;
use crate::readahead::{Plan, Reason, View};

/// What was foretold of the next runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jumps {
    /// Where the next run should begin, and how many pages before or behind are as good.
    next: Option<(u64, u64)>,
    /// How often a reader waited for a run that came as foretold.
    waited: u32,
    /// Runs that are read ahead and were not come to.
    ahead: u64,
}

impl Stream {
    /// A run begins at `page`: was that foretold?
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

    /// The reader has come to a run that was read ahead, at `at`.
    pub(super) fn landed(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { end, first, .. } = wanted;
        self.close_last(first);
        let waited = self.table.last().is_some_and(|last| last.waited);
        self.jumps.waited = (self.jumps.waited + u32::from(waited)).min(tuning().ahead_log_max as u32);
        self.table.touch(at);
        let entry = self.table.get(at);
        entry.way = Way::New;
        entry.lo = first.max(entry.lo);
        entry.hi = end.min(entry.edge).max(entry.lo);
        let begun = entry.lo;
        self.judge_jump(begun);
        self.runs.push(begun);
        self.jumps.ahead = self.jumps.ahead.saturating_sub(1);
        self.jump(at, 0, wanted, view);
        self.more.pop().unwrap_or_else(|| wanted.nothing(Reason::Jumps))
    }

    /// Foretells the next run, the one at `at` having begun, and plans what is to be read of it and the ones behind it if
    /// jumps have been right. `planned` pages are to be read already.
    pub(super) fn jump(&mut self, at: usize, planned: u64, wanted: Wanted, view: View<'_>) {
        let Some(next) = self.runs.next_jump() else {
            self.jumps.next = None;
            return;
        };
        // Three jumps that are what the three before them were are no chance: as good as a prediction to the page that came true.
        if next.period >= tuning().long_series && !self.scores.has_judged(Detector::Jumps) {
            self.scores.count_exact(Detector::Jumps);
        }
        let requested = wanted.end - wanted.first;
        let length = match self.runs.length() {
            length if length > requested && self.scores.trusts(Detector::Cluster) => {
                length.next_multiple_of(requested)
            }
            _ => requested,
        };
        // Of a long run a page more is little, and what is even in bytes is not in pages.
        let exact = |jump: Jump| jump.exact && length < tuning().speculation_min;
        self.jumps.next = Some((next.to, u64::from(!exact(next))));
        if !self.scores.trusts(Detector::Jumps) {
            return;
        }
        let mut runs = self.runs;
        let length = length.min(wanted.max * tuning().file_windows);
        let mut planned = planned;
        // A store that is far away is asked for several at once, lest the reader wait for each.
        let far = if self.pages_a_fill() > length { tuning().far_log as u32 } else { 0 };
        for number in 1..=1u64 << self.jumps.waited.max(far) {
            let Some(jump) = runs.next_jump() else { break };
            runs.push(jump.to);
            if number <= self.jumps.ahead {
                continue;
            }
            // Where rounds differ by a page, a later one may by one more.
            let around = if exact(jump) { 0 } else { 1 + number / jump.period };
            let from = jump.to.saturating_sub(around);
            let to = jump.to.saturating_add(length + around).min(view.file_pages.0);
            let pages = to.saturating_sub(from);
            if pages == 0 || jump.to > view.file_pages.0 || !self.allows(planned + pages, view) {
                break;
            }
            planned += pages;
            self.jumps.ahead = number;
            let mark = jump.to.saturating_add(around).min(to - 1);
            self.enter(Entry {
                way: Way::Expected,
                edge: to,
                window: pages.min(wanted.max),
                expected: length,
                mark: Some(mark),
                ..Entry::new(from, from)
            });
            let mut plan = Plan::new(PageIndex(from), pages, to - mark, Reason::Jumps);
            plan.mark = Some(PageIndex(mark));
            // Most of them come before they are waited for: fewer requests, then.
            plan.hints.split_every = tuning().longer * part(wanted.max);
            self.more.push(plan);
        }
        self.more.reverse();
        // What was entered since is for later.
        self.table.touch(at);
    }
}
