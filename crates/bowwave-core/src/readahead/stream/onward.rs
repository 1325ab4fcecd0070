//! A miss that continues a stream: upward, downward or strided.

use super::blocks::Blocks;
use super::entry::{Direction, Entry, Join};
use super::plan::part;
use super::tuning::tuning;
use super::{Detector, Stream, Wanted};
use crate::page::PageIndex;
use crate::readahead::{Candidate, Plan, Reason, Verdict, View};

impl Stream {
    /// Handles a read that skips pages. If two consecutive distances between starts are equal, the
    /// stream becomes strided. Otherwise a stream without a window gets no readahead. `None`: the
    /// stream continues as without the skip.
    pub(super) fn skips(&mut self, at: usize, join: Join, wanted: &Wanted, view: &View<'_>) -> Option<Plan> {
        let Wanted { page, end, first, .. } = *wanted;
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
            entry.direction = Direction::Stride(Blocks::new(first, apart, block));
            (entry.lo, entry.hi, entry.edge, entry.window) = (first, end, edge, 0);
            entry.consumed = entry.consumed.saturating_add(end - page);
            let fits = end - page <= block;
            return Some(if fits { self.window_strided(at, wanted, view) } else { wanted.alone() });
        }
        if untried {
            entry.consumed = entry.consumed.saturating_add(end - page);
            (entry.lo, entry.hi) = (entry.lo.min(page), entry.hi.max(end));
            entry.edge = if join == Join::Up { entry.hi } else { entry.lo };
            entry.direction = if join == Join::Up { Direction::Up } else { Direction::Down };
            return Some(wanted.alone());
        }
        None
    }

    /// A miss that continues a stream upward, or begins one.
    pub(super) fn upward(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let trusted = self.scores.trusts(Detector::Sequential);
        let entry = self.table.get(at);
        let began = entry.window == 0;
        let before = entry.hi;
        if entry.direction == Direction::New {
            self.scores.count(Detector::Sequential, true);
            let read = before - entry.lo;
            if began && !trusted && !self.runs.continues(read, of_a_page(wanted, view)) {
                // Among random reads, two may be adjacent by chance; three in a row are not.
                entry.direction = Direction::Up;
                entry.consumed = entry.consumed.saturating_add(end - page);
                (entry.hi, entry.edge) = (entry.hi.max(end), entry.edge.max(end));
                self.weigh_end(read, wanted, view);
                return wanted.alone();
            }
        }
        let evicted = page < entry.edge;
        entry.direction = Direction::Up;
        entry.consumed = entry.consumed.saturating_add(end - page).saturating_add(page - entry.hi.min(page));
        entry.hi = end.max(entry.hi);
        let (edge, read) = (entry.edge, entry.hi - entry.lo);
        let (first, next) = (self.first_window(wanted), self.next_window(at, max));
        if (began || !trusted && page >= edge) && !self.continues(read, wanted, view) {
            let entry = self.table.get(at);
            entry.edge = entry.edge.max(end);
            return wanted.alone();
        }
        let like = if began { self.like_the_last(at, wanted, view) } else { 0 };
        let (first, known) = (first.max(like), self.scores.trusts(Detector::Cluster));
        let entry = self.table.get(at);
        if known && like > end - page && self.config.is_clipped(entry.request) {
            // It was announced before the length of runs was known.
            entry.expected = read + like - (end - page);
        }
        let (size, reason) = if evicted {
            entry.thrashed();
            ((entry.edge - page).min(entry.window), Reason::Thrash)
        } else if entry.expected > read {
            // The run was not read ahead whole at its start: the budget did not cover it, or it is
            // a short mapped run.
            (end - page + (entry.expected - read), Reason::Range)
        } else if began && entry.expected == 0 {
            (first, Reason::Miss)
        } else if entry.consumed < entry.expected.saturating_mul(tuning().outgrown) {
            if read <= entry.expected + 2 * self.config.reader_ahead_pages
                && self.config.reader_ahead_pages > 0
            {
                // Only the kernel's own readahead has reached this page.
                entry.edge = entry.edge.max(end);
                return wanted.alone();
            }
            // Extend an outgrown run by a step; on a high-latency store, to the longest run, if the
            // budget covers that.
            let step = (entry.expected / tuning().outgrown).max(tuning().speculation_min);
            let (longest, more) = (self.runs.length(), self.runs.length().saturating_sub(read));
            let far = self.pages_per_fill() > longest && self.covers_waste(longest, view);
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

    /// Expected rest of a run that had no prediction, in pages. 0 if the reader uses less than a
    /// request during a fill: then the run is read in steps.
    fn like_the_last(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> u64 {
        let Entry { lo, hi, expected, .. } = *self.table.get(at);
        if lo == 0
            || expected > 0
            || self.pages_per_fill() < wanted.end - wanted.first
            || self.runs.length() <= hi - lo
        {
            return 0;
        }
        lo.saturating_add(self.affordable(view)).saturating_sub(wanted.page)
    }

    /// Reads ahead the next announced run: a kernel cut its first request at its largest window,
    /// and no reader has requested the rest, as after `POSIX_FADV_WILLNEED`. `planned` pages of
    /// this decision count against the budget.
    pub(super) fn announced(&mut self, planned: u64, wanted: &Wanted, view: &View<'_>) {
        if wanted.mapped || self.config.reader_ahead_pages == 0 || !self.scores.trusts(Detector::Cluster) {
            return;
        }
        let (expected, config) = (self.affordable(view), self.config);
        let next = self.table.oldest(|entry| {
            let untouched = entry.direction == Direction::New && entry.window == 0;
            untouched && config.is_clipped(entry.request) && entry.hi - entry.lo < expected
        });
        let Some(at) = next else { return };
        let Entry { lo, hi, .. } = *self.table.get(at);
        let end = lo.saturating_add(expected).min(view.file_pages.0);
        let pages = end.saturating_sub(hi);
        if pages == 0 || !self.accepts_predicted(Candidate::KnownLength, pages, planned, view) {
            return;
        }
        let entry = self.table.get(at);
        (entry.edge, entry.expected, entry.tripwire) = (end, expected, Some(hi));
        entry.window = pages.min(wanted.max);
        let mut plan = Plan::new(PageIndex(hi), pages, pages, Reason::Range);
        plan.mark = Some(PageIndex(hi));
        plan.hints.split_every = tuning().longer * part(wanted.max);
        self.more.push(plan);
    }

    /// Merges the stream at `at` with streams that begin where it ends: those were reordered
    /// requests of the same run. Returns its new index.
    fn close_gaps(&mut self, at: usize) -> usize {
        let (at, joined) = self.table.close_gaps(at);
        if let Some(start) = joined {
            self.runs.forget(start);
        }
        at
    }

    /// A miss of a downward stream.
    pub(super) fn downward(&mut self, at: usize, direct: bool, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let (first, next) = (self.first_window(wanted), self.next_window(at, max));
        let entry = self.table.get(at);
        entry.proven = entry.proven.saturating_add(1);
        let known = entry.direction == Direction::Down || entry.proven > 1;
        if entry.direction == Direction::New {
            if direct {
                self.scores.count(Detector::Backward, true);
            }
            entry.edge = entry.lo;
        }
        let evicted = page >= entry.edge;
        let began = entry.window == 0;
        entry.consumed = entry.consumed.saturating_add(end - page);
        entry.lo = page;
        let (size, reason) = if evicted {
            entry.thrashed();
            ((end - entry.edge).min(entry.window), Reason::Thrash)
        } else if began {
            (first, Reason::Backward)
        } else {
            entry.waited = true;
            (next, Reason::Backward)
        };
        let read = entry.hi - page;
        let continues = !began || self.continues(read, wanted, view);
        let known = known || direct && self.scores.trusts(Detector::Backward);
        if !(continues && known) {
            // Two reordered requests look the same, so the direction stays open.
            let entry = self.table.get(at);
            entry.edge = entry.hi;
            return wanted.alone();
        }
        self.table.get(at).direction = Direction::Down;
        let at = self.close_gaps(at);
        self.window_down(at, wanted, size, reason, view)
    }

    /// A miss of a strided stream.
    pub(super) fn strided(
        &mut self,
        at: usize,
        begun: Option<u64>,
        wanted: &Wanted,
        view: &View<'_>,
    ) -> Plan {
        let trusted = self.scores.trusts(Detector::Stride);
        let entry = self.table.get(at);
        let direct = begun == Some(entry.lo);
        let Direction::Stride(mut blocks) = entry.direction else { return wanted.alone() };
        let Wanted { page, end, first, .. } = *wanted;
        // If the reader used the predicted first page, that page was right, and this read is within
        // the block.
        let beside = blocks
            .beside(entry.lo, first)
            .filter(|&steps| steps > 0 && !view.is_used(PageIndex(blocks.start(entry.lo, steps))));
        let steps = beside.unwrap_or_else(|| blocks.steps_to(entry.lo, page).0);
        if steps > 0 && !wanted.mapped && is_sparse(entry.lo, blocks.pages, view) {
            // The stride or the block's length was wrong. Runs that begin from now on may show the
            // right ones.
            entry.over = true;
            self.scores.count(Detector::Stride, false);
            return self.begun(wanted, view);
        }
        let overtook = steps >= blocks.steps_to(entry.lo, entry.edge).0;
        let mut lo = blocks.advance(entry.lo, steps);
        if beside.is_some() {
            blocks.correct(lo, first);
            lo = first;
        }
        // Blocks that begin within a page differ in length by a page.
        let longer = end.wrapping_sub(lo) == blocks.pages + 1 && blocks.pages + 1 < blocks.distance().0;
        blocks.pages += u64::from(longer && first == lo);
        if page.wrapping_sub(lo) >= blocks.pages {
            return self.begun(wanted, view);
        }
        entry.direction = Direction::Stride(blocks);
        if steps > 0 {
            let right = beside.is_none();
            entry.proven = entry.proven.saturating_add(if right { steps.min(255) as u8 } else { 0 });
            entry.waited |= overtook && entry.window > 0;
            entry.consumed = entry.consumed.saturating_add(blocks.pages);
            entry.lo = lo;
            if overtook || beside.is_some() {
                entry.edge = blocks.start(lo, 1);
            }
            if overtook && right {
                self.scores.count(Detector::Stride, true);
            }
        }
        // Among random reads, some are equally spaced by chance; consecutive reads hardly are.
        let shown = direct || trusted || self.table.get(at).proven > 2;
        if !shown {
            self.weigh(Candidate::Stride, blocks.pages, None, Verdict::NotTrusted);
        }
        if !shown || end.wrapping_sub(lo) > blocks.pages {
            return wanted.alone();
        }
        self.window_strided(at, wanted, view)
    }

    /// A miss directly after a strided block. Either the blocks are sequential streams that began
    /// at equal distances, or a reader of columns begins the next one. Streams take fewer requests.
    /// But with more blocks than the table has entries, streams evict each other, and every read
    /// waits.
    pub(super) fn behind(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Plan {
        let (readers, streams) = (self.table.readers(), i64::from(self.config.streams));
        // On a device with a head, each block costs a seek. While costs are unknown, only the
        // number of requests counts.
        let waits = view.costs.are_known() && !self.config.seeks;
        let entry = self.table.get(at);
        if waits && readers <= 1 && !entry.over {
            entry.advance_to_last_used(view);
        }
        let Direction::Stride(blocks) = entry.direction else { return wanted.alone() };
        let block = blocks.pages;
        let goes_back = blocks.steps_to(entry.lo, wanted.page).0 < -streams && !entry.over;
        // A distance that is no whole number of pages is only approximate.
        let is_exact = blocks.distance().1 == 0 && wanted.end - wanted.page <= block;
        if goes_back && is_exact && waits && readers <= 1 {
            let blocks = blocks.moved(entry.lo, wanted.page);
            entry.direction = Direction::Stride(blocks);
            (entry.lo, entry.hi, entry.edge) = (wanted.page, wanted.end, blocks.start(wanted.page, 1));
            entry.consumed = entry.consumed.saturating_add(block);
            return self.window_strided(at, wanted, view);
        }
        let began = !entry.over;
        entry.over = true;
        if began {
            self.scores.count(Detector::Stride, false);
        }
        let lo = wanted.page - block.min(wanted.page);
        let at = self.enter(Entry { direction: Direction::Up, consumed: 0, ..Entry::new(lo, wanted.page) });
        self.upward(at, wanted, view)
    }
}

/// What an unused page read ahead costs, and what a used one saves. Both count the same while costs
/// are unknown, and in a mapped file, where adjacent touches are clusters more often than runs.
pub(super) fn of_a_page(wanted: &Wanted, view: &View<'_>) -> (u64, u64) {
    let known = view.costs.of_a_page(wanted.end - wanted.first);
    known.filter(|_| !wanted.mapped).unwrap_or((1, 1))
}

/// Whether fewer than half of a block's pages were used, by samples. False if its first page is not
/// known to be used: then the cache has forgotten the block.
fn is_sparse(lo: u64, block: u64, view: &View<'_>) -> bool {
    let samples = block.min(tuning().samples);
    let mut used = 0;
    for n in 0..samples {
        used += u64::from(view.is_used(PageIndex(lo + block * n / samples)));
        if used == 0 {
            return false;
        }
    }
    2 * used < samples
}
