//! Small files that are read whole.
//!
//! At a miss that continues no stream, the policy compares two times: that of the expected further
//! requests, and that of all pages of the file. If the pages take no longer, it reads the whole
//! file. Other small files show how many requests to expect ([`FileRequests`]).

use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::PageIndex;
use crate::readahead::{Candidate, FileRequests, Plan, Reason, View};

impl Stream {
    /// Counts the requests of a small file. Returns how many levels it had reached, and has now.
    /// `(0, 0)` for a larger file.
    pub(super) fn count_requests(&mut self, wanted: &Wanted, view: &View<'_>) -> (u8, u8) {
        if !is_small(wanted.max, view) {
            return (0, 0);
        }
        // Pages used since the last call, by requests as long as that of the last call. A driver
        // maps a whole range at one fault, so all its pages count as used. They are one request.
        let used = view.waste.consumed.saturating_sub(self.counted);
        self.requests += if wanted.mapped { used.min(1) } else { used.div_ceil(self.request) };
        (self.counted, self.request) = (view.waste.consumed, wanted.end - wanted.first);
        if self.requests >= view.file_pages.0.div_ceil(self.request) {
            // As many requests as the file holds: a new pass begins.
            self.requests = 0;
        }
        let now = self.reached.max(FileRequests::levels(self.requests + 1));
        (core::mem::replace(&mut self.reached, now), now)
    }

    /// Plans the whole file, if its pages take at most as long as the requests saved.
    pub(super) fn whole(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Option<Plan> {
        let Wanted { end, first, .. } = *wanted;
        let pages = view.file_pages.0;
        // Programs often read only a header or an index. Such a first request predicts no further
        // one unless other files do.
        let at_an_end = first == 0 || first + tuning().in_order >= pages;
        let (so_far, most) = (self.requests + 1, pages.div_ceil(end - first));
        let saved = view.file_requests.further(so_far, most, so_far == 1 && at_an_end);
        if !self.accepts(Candidate::WholeFile, saved, pages, view) {
            return None;
        }
        let entry = self.table.get(at);
        (entry.edge, entry.window) = (pages, pages);
        // An access of the marked page calls the policy again, which then counts the requests.
        let middle = pages / 2;
        let mark = if (first..end).contains(&middle) { end } else { middle };
        entry.mark = (mark < pages).then_some(mark);
        let mark = entry.mark.map(PageIndex);
        Some(Plan { mark, ..Plan::new(PageIndex(0), pages, 0, Reason::WholeFile) })
    }
}

/// Whether the file has at most `file_windows` windows of `max` pages.
pub(super) fn is_small(max: u64, view: &View<'_>) -> bool {
    view.file_pages.0 <= max * tuning().file_windows
}
