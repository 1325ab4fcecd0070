//! What hits show of a reader.
//!
//! The policy is not called for hits. At the next miss or mark it learns only the last page that
//! the handle read. If that page was read ahead for a stream, its reader either came there in
//! order, or jumped within the readahead. The cache knows which pages were used, and these show
//! which of the two.
//!
//! ```text
//!   a stream ...====|..........##.........##.........##......|      # used   . unused
//!                  hi                         last read^   edge
//! ```
//!
//! Jumps matter because a window of readahead may cover the next blocks of a strided reader. If
//! jumps went unnoticed, these blocks would count as one run read in order, as long as the window.

use super::tuning::tuning;
use super::{Direction, Stream, Wanted};
use crate::page::PageIndex;
use crate::readahead::{Access, View};

impl Stream {
    /// Applies the hits since the handle's last miss or mark. Returns whether its reader jumped
    /// within the readahead of a stream. If so, the reader's runs there are entered, and the stream
    /// continues at the last of them.
    pub(super) fn follow_hits(&mut self, access: &Access, wanted: &Wanted, view: &View<'_>) -> bool {
        let Some(PageIndex(prev)) = access.prev_page else { return false };
        let Some(at) = self.table.continued_at(prev) else { return false };
        let (end, request) = (prev + 1, wanted.end - wanted.first);
        let entry = self.table.get(at);
        let (hi, slack) = (entry.hi, entry.slack());
        // Three sampled pages almost always show whether the reader may have jumped.
        let is_unread = |part| view.is_unread(PageIndex(hi + (end - hi) * part / 4));
        // Touches of mapped pages are invisible.
        let shows = !wanted.mapped && !view.has_forgotten() && end - hi > 2 * request;
        if shows && (0..3).any(is_unread) {
            let from = hi.max(end.saturating_sub(view.ra_pages * tuning().stream_windows));
            if has_jumped((from, end), request, slack, view) {
                self.enter_runs(at, (from, end), request, view);
                return true;
            }
        }
        self.table.get(at).come_to(end);
        false
    }

    /// Enters the runs of the used pages of `from..end` in a stream's readahead. Used pages more
    /// than `near` pages apart are of different runs.
    fn enter_runs(&mut self, at: usize, (from, end): (u64, u64), near: u64, view: &View<'_>) {
        self.table.touch(at);
        let mut hi = from;
        for page in (from..end).filter(|&page| view.is_used(PageIndex(page))) {
            if page - hi > near {
                self.jumped_to(at, page, near);
            }
            hi = page + 1;
            let entry = self.table.get(at);
            (entry.hi, entry.consumed) = (hi, entry.consumed.saturating_add(1));
        }
    }

    /// The reader of the stream at `at` jumped to a page that was read ahead for the stream. The
    /// stream must be the last one that this reader used.
    pub(super) fn jumped_to(&mut self, at: usize, page: u64, request: u64) {
        self.close_last(page);
        self.judge_jump(page);
        self.runs.push(page);
        let entry = self.table.get(at);
        (entry.direction, entry.lo, entry.hi) = (Direction::New, page, page);
        (entry.request, entry.expected) = (request, 0);
    }

    /// Whether the reader jumped over the stream's readahead to `page`, instead of reading it. Such
    /// a read does not continue the stream even if it fits a window's end: windows are powers of
    /// two, and so are most strides. Requests that are merely reordered skip little, and the
    /// skipped pages follow at once.
    pub(super) fn leapt(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> bool {
        let entry = self.table.get(at);
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

/// Whether a reader jumped within the pages `from..end`. Any of three signs shows it: a gap of more
/// than half of the largest window; several times as many unused as used pages; or runs at equal
/// distances, with more unused than used pages. Used pages more than `near` pages apart are of
/// different runs, and a reader in order may skip `slack`.
fn has_jumped((from, end): (u64, u64), near: u64, slack: u64, view: &View<'_>) -> bool {
    let (mut hi, mut used, mut widest) = (from, 0, 0);
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
    let is_far = widest > (view.ra_pages / 2).max(2 * near).max(slack);
    start.is_some() && (is_strided || is_sparse || is_far)
}
