//! Places: parts of a file whose pages are read in any order, one place after the other.
//!
//! ```text
//!   recent misses    .|........|# ## ### #|..........|.........|.....
//! ```
//!
//! Several of the recent runs began in one aligned place, which is so small that uniformly random
//! reads hardly ever meet in it. The reader stays there: it will probably begin as many runs there
//! again. The rest of the place is read at once if the requests that this saves take longer than
//! its pages. The largest such place wins.
//!
//! A whole file is such a place, too, if its readers come back to pages less often than uniformly
//! random ones. They probably read each page once, and a miss also requests the next absent pages.

use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::{PageCount, PageIndex};
use crate::readahead::{Plan, Reason, View};

impl Stream {
    /// Reads the rest of the largest place around the request for which that pays.
    pub(super) fn place(&mut self, wanted: Wanted, view: View<'_>) -> Option<Plan> {
        let Wanted { page, end, max, .. } = wanted;
        // Most misses end here: on a store that takes no time, and for large requests.
        if view.costs.pages_per_request() < end - page || wanted.mapped {
            return None;
        }
        let most = (view.file_pages.0 / tuning().place_chance).min(max);
        let mut size = 1 << most.checked_ilog2()?;
        while size >= tuning().speculation_min.max(2 * (end - page)) {
            let start = page & !(size - 1);
            let runs = self.runs.begun_within(start, size);
            if runs < tuning().place_runs {
                // A smaller place within this one has no more runs.
                return None;
            }
            let stop = (start + size).min(view.file_pages.0);
            if view.costs.pays(runs, size) && stop > end && self.allows(size, view) {
                return Some(Plan::new(PageIndex(start), stop - start, 0, Reason::Range));
            }
            size /= 2;
        }
        None
    }

    /// Reads the request, and then the next absent pages if the readers seem to read each page of
    /// the file once, in any order. Whole gaps are read, or whole requests: parts would not save a
    /// request.
    pub(super) fn with_rest(&mut self, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, first, max, .. } = wanted;
        let (file, request) = (view.file_pages.0, end - first);
        if wanted.mapped || file > view.frames || !self.reads_once(request, view) {
            return wanted.alone();
        }
        let limit = page.saturating_add(max.saturating_mul(tuning().file_windows)).min(file);
        let budget = self.file_budget(view, max).min(max.saturating_sub(end - page));
        let (mut pages, mut stop) = (0, end);
        while let Some(gap) = view.next_miss(PageIndex(stop), PageCount(limit.saturating_sub(stop))) {
            let most = (budget - pages).min(limit - gap.0);
            let absent = (0..most).take_while(|&n| !view.is_cached(gap + PageCount(n))).count() as u64;
            let whole = if absent < most { absent } else { absent / request * request };
            (pages, stop) = (pages + whole, gap.0 + whole);
            if absent == most {
                break;
            }
        }
        let used = view.waste.consumed;
        let left = file.saturating_sub(used).max(1);
        let expected = used.saturating_mul(tuning().again).min(left);
        // In 1024ths of a request: a short gap saves less than a whole one.
        let saved = (1024 * pages).saturating_mul(expected) / left / request;
        if pages > 0 && view.costs.pays(saved, 1024 * pages) && self.allows(pages, view) {
            self.more.push(Plan::new(PageIndex(end), stop - end, 0, Reason::Range));
        }
        wanted.alone()
    }

    /// Whether much of the file was used, but few pages of it twice, which is hardly chance; and
    /// whether readers mostly wait.
    fn reads_once(&self, request: u64, view: View<'_>) -> bool {
        let (file, used) = (view.file_pages.0, view.waste.consumed);
        let waiting = view.pressure.awaited.saturating_add(request);
        let again = view.waste.accessed.saturating_sub(used.saturating_add(waiting));
        // Uniformly random reads would have used this many pages again.
        let by_chance = used.saturating_mul(used) / file.saturating_mul(2).max(1);
        used >= file / tuning().rest_share
            && by_chance >= request.max(again).saturating_mul(tuning().place_runs)
            && self.pages_per_fill() >= view.ra_pages * tuning().stream_windows
    }
}
