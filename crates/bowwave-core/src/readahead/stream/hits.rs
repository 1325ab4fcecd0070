//! What hits show of a reader.
//!
//! The policy is not called for hits. At the next miss or mark it learns only the last page that
//! the handle read. If that page was read ahead for a stream, its reader either came there in
//! order, or jumped within the readahead. The pages tell: the cache knows which of them were used.
//!
//! ```text
//!   a stream ...====|..........##.........##.........##......|      # used   . unused
//!                  hi                         last read^   edge
//! ```
//!
//! Jumps matter because a window of readahead may cover the next blocks of a strided reader.
//! Without them, the blocks in the window would count as read in order, and the runs as long as the
//! window.

use super::tuning::tuning;
use super::{Direction, Entry, Stream, Wanted};
use crate::page::{PageIndex, PageRange};
use crate::readahead::{Access, View};

impl Stream {
    /// Applies the hits since the handle's last miss or mark. Whether its reader jumped within the
    /// readahead of a stream; then its runs there are entered.
    pub(super) fn follow_hits(&mut self, access: &Access, view: View<'_>) -> bool {
        let Some(PageIndex(prev)) = access.prev_page else { return false };
        let known = self.table.continued_at(prev);
        let at = match known {
            None if self.left.contains(PageIndex(prev)) => self.table.any_with_ahead(prev),
            known => known,
        };
        let Some(at) = at else { return false };
        let Entry { hi, edge, .. } = *self.table.get(at);
        let (end, request) = (prev + 1, access.request.count().0);
        // Three pages show almost always whether it is worth looking at all.
        let is_unread = |part| view.is_unread(PageIndex(hi + (end - hi) * part / 4));
        // Touches of mapped pages are invisible.
        if access.mapped.is_none() && end - hi > 2 * request && (0..3).any(is_unread) {
            let scanned = view.ra_pages * tuning().stream_windows;
            let pages = (hi.max(end.saturating_sub(scanned)), end);
            if has_jumped(pages, hi, request, view) {
                let left = self.enter_runs(at, pages, request, view);
                self.left = PageRange::new(left, edge);
                return true;
            }
        }
        if known.is_some() {
            self.table.get(at).come_to(end);
        }
        false
    }

    /// Enters the runs of the used pages of `from..end` in a stream's readahead. Used pages more
    /// than `near` pages apart are of different runs. Returns where the reader left the stream.
    fn enter_runs(&mut self, at: usize, (from, end): (u64, u64), near: u64, view: View<'_>) -> u64 {
        let mut hi = self.table.get(at).hi;
        let (mut run, mut left) = (None, hi);
        let used = (from..end).filter(|&page| view.is_used(PageIndex(page)));
        for page in used.chain([u64::MAX]) {
            if page - hi > near {
                match run {
                    None => {
                        left = hi;
                        self.table.get(at).come_to(left);
                    }
                    Some(start) => self.enter_run(start, hi, near),
                }
                run = Some(page);
            }
            hi = page.saturating_add(1);
        }
        left
    }

    /// Enters a run whose pages were cached.
    fn enter_run(&mut self, start: u64, end: u64, request: u64) {
        self.close_last(start);
        self.fresh += 1;
        self.judge_jump(start);
        self.runs.push(start);
        self.enter(Entry { request: request.min(end - start), ..Entry::new(start, end) });
    }

    /// Whether the reader jumped over the stream's readahead to `page`, or within it, instead of
    /// reading it. Such a read does not continue the stream even if it fits a window's end: windows
    /// are powers of two, and so are most strides. Requests that are merely reordered skip little,
    /// and the skipped pages follow at once.
    pub(super) fn leapt(&mut self, at: usize, jumped: bool, wanted: Wanted, view: View<'_>) -> bool {
        let entry = self.table.get(at);
        if jumped && (entry.hi, entry.edge) == (self.left.start.0, self.left.end.0) {
            return true;
        }
        let span = wanted.page.saturating_sub(entry.hi);
        let near = entry.slack().max(2 * (wanted.end - wanted.first));
        if !matches!(entry.direction, Direction::New | Direction::Up) || span <= near {
            return false;
        }
        // Most pages in between were read ahead and are unused.
        let ahead = entry.edge.min(wanted.page).saturating_sub(entry.hi);
        ahead > span / 2 && self.used_since(at, wanted.page, view) < span / 2
    }
}

/// Whether a reader jumped within the pages `from..end`: it left out more than half of the largest
/// window at once, or several times the pages that it used, or more than those between runs at
/// equal distances. Used pages more than `near` pages apart are of different runs.
fn has_jumped((from, end): (u64, u64), mut hi: u64, near: u64, view: View<'_>) -> bool {
    let (mut used, mut widest) = (0, 0);
    let (mut start, mut step, mut equal, mut others) = (None, None, 0u64, 0u64);
    for page in (from..end).filter(|&page| view.is_used(PageIndex(page))) {
        used += 1;
        widest = widest.max(page - hi);
        if page - hi > near {
            let next = start.map(|start| page - start);
            if let (Some(next), Some(step)) = (next, step) {
                // Rows aligned to bytes are not aligned to pages.
                let is_equal = u64::abs_diff(next, step) <= 1;
                (equal, others) = (equal + u64::from(is_equal), others + u64::from(!is_equal));
            }
            (start, step) = (Some(page), next);
        }
        hi = page + 1;
    }
    let unused = end - from - used;
    let is_strided = equal > 1 && others == 0 && unused > used;
    let is_sparse = unused > tuning().nearby + tuning().slack_share * used;
    used > 0 && (is_strided || is_sparse || widest > view.ra_pages / 2)
}
