//! On-demand readahead as in the paper "Linux readahead: less tricks for more" (Wu, Xi, Li, Zou,
//! OLS 2007): figure 4, tables 2 and 3.
//!
//! ```text
//!                    |-------- last readahead window -------->|
//!  ======#===========|==================#=====================|
//!                    ^ra_index          ^lookahead_index      ^readahead_index
//! ```
//!
//! The policy is called when it is time to read: on a miss (sync) or on a lookahead mark (async).
//! Its only state is the last window. `bowwave-baselines` has the patch of 2007, which differs
//! in page 0, in the order of its tests, and in what counts as sequential.

use super::{Access, Plan, Plans, Readahead, Reason, View};
use crate::event::Trigger;
use crate::page::{PageCount, PageIndex};
use crate::window::{initial_size, next_size};

/// On-demand readahead: the state of one handle.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand {
    /// First page of the last window.
    ra_index: PageIndex,
    /// Where the reader triggers the next window.
    lookahead_index: PageIndex,
    /// One past the last window: where the next one begins.
    readahead_index: PageIndex,
}

impl Readahead for OnDemand {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        if view.ra_pages == 0 {
            return;
        }
        let plan = self.decide(&access, view.ra_pages).lookahead_at_most(view.la_size);
        if plan.reason != Reason::Random {
            self.ra_index = plan.window.start;
            self.readahead_index = plan.window.range().end;
            self.lookahead_index = plan.window.mark().unwrap_or(self.readahead_index);
        }
        plans.push(plan);
    }
}

impl OnDemand {
    /// The state of a handle that was never read.
    pub const fn new() -> Self {
        let zero = PageIndex(0);
        Self { ra_index: zero, lookahead_index: zero, readahead_index: zero }
    }

    /// The paper's figure 4, lines 12 to 22; conditions in the order of table 2.
    fn decide(&self, access: &Access, max: u64) -> Plan {
        let sequential = follows(access.request.start, access.prev_page);
        let oversize = access.req_pages() > max;
        let missing = access.trigger == Trigger::Miss;
        if access.page == PageIndex(0) {
            Plan::first(access, max, Reason::Initial)
        } else if missing && !sequential && !oversize {
            Plan::random(access)
        } else if let Some(reason) = self.expected(access.page) {
            self.next_window(max, reason)
        } else if !missing {
            Plan::interleaved(access, max)
        } else {
            Plan::first(access, max, if sequential { Reason::Miss } else { Reason::Oversize })
        }
    }

    /// Whether the last window predicted an access to `page`.
    fn expected(&self, page: PageIndex) -> Option<Reason> {
        if page == self.lookahead_index {
            Some(Reason::Lookahead)
        } else if page == self.readahead_index {
            Some(Reason::Readahead)
        } else {
            None
        }
    }

    /// The window after the last one, ramped up and wholly ahead.
    fn next_window(&self, max: u64, reason: Reason) -> Plan {
        let size = next_size((self.readahead_index - self.ra_index).0, max);
        Plan::new(self.readahead_index, size, size, reason)
    }
}

impl Default for OnDemand {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether `page` is the page `prev` or the one after it. Before the first read `prev` is −1, in
/// unsigned arithmetic as in the patch: page 0 follows nothing, and a step backward wraps.
pub fn follows(page: PageIndex, prev: Option<PageIndex>) -> bool {
    let prev = prev.map_or(u64::MAX, |prev| prev.0);
    page.0.wrapping_sub(prev) <= 1
}

impl Plan {
    /// The rest of the request and nothing else: a small read out of sequence.
    pub fn random(access: &Access) -> Self {
        Self::new(access.page, access.req_pages(), 0, Reason::Random)
    }

    /// The first window of a stream, at the accessed page, of at most `max` pages.
    pub fn first(access: &Access, max: u64, reason: Reason) -> Self {
        let size = initial_size(access.req_pages(), max);
        Self::new(access.page, size, initial_async_size(size, access.req_pages()), reason)
    }

    /// The window after a mark that no window of this state explains: at least the second of some
    /// stream, so the initial size, ramped up once, behind the marked page. The async size is that
    /// of the window before it was ramped up (as in the patch; the paper's table 3 is garbled
    /// there).
    pub fn interleaved(access: &Access, max: u64) -> Self {
        let initial = initial_size(access.req_pages(), max);
        let async_size = initial_async_size(initial, access.req_pages());
        let size = initial.saturating_mul(4).min(max);
        Self::new(access.page + PageCount(1), size, async_size, Reason::Interleaved)
    }
}

/// The pages of an initial window beyond the request, or all if the request takes the whole window.
fn initial_async_size(size: u64, req_pages: u64) -> u64 {
    if size > req_pages { size - req_pages } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageRange;

    fn decide(policy: &mut OnDemand, trigger: Trigger, request: (u64, u64), prev: Option<u64>) -> Plan {
        let view = View::of_nothing(32);
        let request = PageRange::new(request.0, request.1);
        let access = Access::read(request, prev.map(PageIndex), trigger);
        let mut plans = Plans::default();
        policy.on_access(access, view, &mut plans);
        *plans.iter().next().expect("one window")
    }

    #[test]
    fn every_case_of_table_2() {
        use Trigger::{Mark, Miss};
        let plan = |start, size, ahead, reason| Plan::new(PageIndex(start), size, ahead, reason);
        let mut paper = OnDemand::new();
        assert_eq!(decide(&mut paper, Miss, (0, 1), None), plan(0, 4, 3, Reason::Initial));
        assert_eq!(decide(&mut paper, Miss, (700, 702), Some(0)), plan(700, 2, 0, Reason::Random));
        assert_eq!(decide(&mut paper, Mark, (1, 2), Some(701)), plan(4, 8, 8, Reason::Lookahead));
        assert_eq!(decide(&mut paper, Miss, (12, 13), Some(11)), plan(12, 16, 16, Reason::Readahead));
        assert_eq!(decide(&mut paper, Miss, (100, 101), Some(99)), plan(100, 4, 3, Reason::Miss));
        assert_eq!(decide(&mut paper, Mark, (300, 301), Some(5)), plan(301, 16, 3, Reason::Interleaved));
        assert_eq!(decide(&mut paper, Miss, (900, 1000), Some(5)), plan(900, 32, 32, Reason::Oversize));
    }

    #[test]
    fn a_step_backward_is_not_sequential() {
        let mut paper = OnDemand::new();
        assert_eq!(decide(&mut paper, Trigger::Miss, (9, 10), Some(10)).reason, Reason::Random);
    }
}
