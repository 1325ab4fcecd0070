//! A whole file whose pages are read once each, in any order.
//!
//! Readers that choose pages at random read some pages again. If the readers of a file repeat pages
//! much less often than random readers would, a miss also requests the next pages never read.

use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::{PageCount, PageIndex};
use crate::readahead::{Candidate, FileRequests, Plan, Reason, Repeats, View};

impl Stream {
    /// Reads the request, and then the next pages that were never read, if the readers seem to
    /// read each page of the file once, in any order. Whole gaps are read, or whole requests: parts
    /// would not save a request.
    pub(super) fn with_rest(&mut self, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, first, max, .. } = *wanted;
        let (file, request) = (view.file_pages.0, end - first);
        if wanted.mapped || view.has_forgotten() || !self.more.is_empty() || !self.reads_once(request, view) {
            return wanted.alone();
        }
        let limit = page.saturating_add(max.saturating_mul(tuning().file_windows)).min(file);
        let room = self.pace.space(view.waste.unread, view.pressure);
        let budget = self.file_budget(view, max).min(max.saturating_sub(end - page)).min(room);
        let is_new = |page| !view.is_cached(PageIndex(page)) && !view.is_used(PageIndex(page));
        let (mut pages, mut next) = (0, end);
        while let Some(PageIndex(gap)) =
            view.next_miss(PageIndex(next), PageCount(limit.saturating_sub(next)))
        {
            let most = (budget - pages).min(limit - gap);
            let new = (gap..gap + most).take_while(|&page| is_new(page)).count() as u64;
            // More of the gap follows, beyond the budget or the limit.
            let cut = new == most && gap + new < file && is_new(gap + new);
            let whole = if cut { new / request * request } else { new };
            if whole > 0 {
                let mut plan = Plan::new(PageIndex(gap), whole, 0, Reason::Range);
                plan.hints.retain = true;
                self.more.push(plan);
            }
            pages += whole;
            next = gap + new.max(1);
            if new == most {
                break;
            }
        }
        let used = view.repeats().pages;
        let left = file.saturating_sub(used).max(1);
        // As many further used pages are expected as were used. Pages beyond the number of frames
        // are evicted before their use.
        let expected = used.min(left).min(view.frames);
        // A gap shorter than a request saves only that share of one.
        let saved = (FileRequests::ONE * pages).saturating_mul(expected) / left / request;
        if pages == 0 || !self.accepts(Candidate::Rest, saved, pages, view) {
            self.more.clear();
        }
        self.more.reverse();
        wanted.alone()
    }

    /// Whether readers probably read each page once: much of the file was used, but few pages of
    /// it twice, which is hardly chance. Also, fills must be slow: a reader could use several
    /// requests of pages during one.
    fn reads_once(&self, request: u64, view: &View<'_>) -> bool {
        let Repeats { pages: used, again } = view.repeats();
        let file = view.file_pages.0;
        // The request is counted as accessed, and not yet as used.
        let again = again.saturating_sub(request);
        // Uniformly random reads would have used this many pages again.
        let by_chance = used.saturating_mul(used) / file.saturating_mul(2).max(1);
        used >= file / tuning().rest_share
            && by_chance >= request.max(again).saturating_mul(tuning().place_runs)
            && self.pages_per_fill() >= request * tuning().place_runs
    }
}
