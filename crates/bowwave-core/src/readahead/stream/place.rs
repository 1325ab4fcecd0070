//! Places: parts of a file whose pages are used in any order.
//!
//! ```text
//!   clusters         ......|# ## ### #|..........|## # ####|.........
//!   random order     |# #  ##   # ##     ### #   ##  #    ## #    # |
//! ```
//!
//! A miss that continues no stream may be in a cluster, or in a file that is read bit by bit. The
//! share of the pages around it that were used so far is the best guess of the share that will be.
//! The rest of a place is read at once if the requests saved by that guess take longer than its
//! pages. The largest place that pays wins.

use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::PageIndex;
use crate::readahead::{Plan, Reason, View};

/// Pages of a place that are checked, evenly spread.
const SAMPLES: u64 = 8;

impl Stream {
    /// The rest of the largest place around the request, if reading it pays.
    pub(super) fn place(&mut self, wanted: Wanted, view: View<'_>) -> Option<Plan> {
        let Wanted { page, end, max, .. } = wanted;
        let request = (end - page).saturating_mul(tuning().request_worth);
        let worth = view.costs.pages_per_request();
        // Most misses end here: on a store that takes no time, and for large requests.
        if worth < request || wanted.mapped {
            return None;
        }
        let mut size = 1 << max.ilog2();
        while size >= tuning().speculation_min.max(2 * (end - page)) {
            let start = page / size * size;
            let stop = (start + size).min(view.file_pages.0);
            let samples = (0..SAMPLES).map(|n| PageIndex(start + (2 * n + 1) * size / (2 * SAMPLES)));
            let used =
                samples.filter(|&sample| view.is_cached(sample) && !view.is_unread(sample)).count() as u64;
            // Each `request` pages that are used save a request.
            let pays = used * worth >= SAMPLES * request;
            if used >= tuning().place_used && pays && stop > end && self.allows(size, view) {
                return Some(Plan::new(PageIndex(start), stop - start, 0, Reason::Range));
            }
            size /= 2;
        }
        None
    }
}
