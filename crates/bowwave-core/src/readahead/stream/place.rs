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

use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::PageIndex;
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
}
