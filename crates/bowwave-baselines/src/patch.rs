//! On-demand readahead as in the patch "readahead: on-demand readahead logic" (Wu, 2007).
//!
//! | | OLS paper of 2007, figure 4 and table 2 | patch |
//! |---|---|---|
//! | page 0 | always `initial`, also with a mark | no case of its own; with a mark it is `interleaved` |
//! | order of tests | `random` before `lookahead`/`readahead` | `lookahead`/`readahead` first |
//! | sequential | the *request* begins ≤ 1 past the last page before | the *page* does, or the request is oversize |
//!
//! So reading every second page is random to the paper's figure, and ramps up in the patch.

use bowwave_core::readahead::follows;
use bowwave_core::window::next_size;
use bowwave_core::{Access, PageIndex, Plan, Plans, Readahead, Reason, Trigger, View};

/// The state of one handle: its last window.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDemandPatch {
    ra_index: PageIndex,
    lookahead_index: PageIndex,
    readahead_index: PageIndex,
}

impl Readahead for OnDemandPatch {
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

impl OnDemandPatch {
    /// `ondemand_readahead`.
    fn decide(&self, access: &Access, max: u64) -> Plan {
        let by_position = follows(access.page, access.prev_page);
        let sequential = by_position || access.req_pages() > max;
        let missing = access.trigger == Trigger::Miss;
        let page = access.page;
        if page != PageIndex(0) && (page == self.lookahead_index || page == self.readahead_index) {
            let lookahead = page == self.lookahead_index;
            let size = next_size((self.readahead_index - self.ra_index).0, max);
            let reason = if lookahead { Reason::Lookahead } else { Reason::Readahead };
            Plan::new(self.readahead_index, size, size, reason)
        } else if missing && !sequential {
            Plan::random(access)
        } else if !missing {
            Plan::interleaved(access, max)
        } else if page == PageIndex(0) {
            Plan::first(access, max, Reason::Initial)
        } else {
            Plan::first(access, max, if by_position { Reason::Miss } else { Reason::Oversize })
        }
    }
}

#[cfg(test)]
mod tests {
    use bowwave_core::PageRange;
    use bowwave_core::readahead::OnDemand;

    use super::*;

    fn decide(policy: &mut dyn Readahead, trigger: Trigger, request: (u64, u64), prev: Option<u64>) -> Plan {
        let view = View::of_nothing(32);
        let request = PageRange::new(request.0, request.1);
        let mut plans = Plans::default();
        policy.on_access(Access::read(request, prev.map(PageIndex), trigger), view, &mut plans);
        *plans.iter().next().expect("one window")
    }

    #[test]
    fn the_texts_differ_at_page_zero_and_in_the_order_of_tests() {
        let (mut paper, mut patch) = (OnDemand::new(), OnDemandPatch::default());
        let both = |a: &mut OnDemand, b: &mut OnDemandPatch, trigger, request, prev| {
            (decide(a, trigger, request, prev).reason, decide(b, trigger, request, prev).reason)
        };
        let (a, b) = (&mut paper, &mut patch);
        assert_eq!(both(a, b, Trigger::Miss, (0, 1), Some(50)), (Reason::Initial, Reason::Random));
        assert_eq!(both(a, b, Trigger::Mark, (0, 1), None), (Reason::Initial, Reason::Interleaved));
        let (mut paper, mut patch) = (OnDemand::new(), OnDemandPatch::default());
        let (a, b) = (&mut paper, &mut patch);
        assert_eq!(both(a, b, Trigger::Miss, (0, 1), None), (Reason::Initial, Reason::Initial));
        assert_eq!(both(a, b, Trigger::Miss, (4, 5), Some(2)), (Reason::Random, Reason::Readahead));
    }
}
