//! On-demand readahead, as published twice: the OLS'07 paper (002) and the patch (000) that preceded it.
//!
//! ```text
//!                    |-------- last readahead window -------->|
//!  ======#===========|==================#=====================|
//!                    ^ra_index          ^lookahead_index      ^readahead_index
//! ```
//!
//! The policy is called when it is time to read: on a miss (sync) or on a lookahead mark (async). All it keeps is
//! the last window. The two texts differ in three places, and both are kept because published figures rest on each:
//!
//! | | paper, figure 4 and table 2 | patch |
//! |---|---|---|
//! | page 0 | always `initial`, also with a mark | no case of its own; with a mark it is `interleaved` |
//! | order of tests | `random` before `lookahead`/`readahead` | `lookahead`/`readahead` first |
//! | sequential | where the *request* begins ≤ 1 past the last page of the one before | the *page* is, or the request is oversize |
//!
//! Consequence of the second row: reading every second page is random to the paper's figure and ramps up in the patch.

use super::{Access, Plan, Plans, Readahead, Reason, View};
use crate::event::Trigger;
use crate::page::{PageCount, PageIndex};
use crate::window::{initial_size, next_size};

/// On-demand readahead: the state of one handle.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand {
    variant: Variant,
    /// First page of the last window.
    ra_index: PageIndex,
    /// Where the reader triggers the next window.
    lookahead_index: PageIndex,
    /// One past the last window: where the next one begins.
    readahead_index: PageIndex,
}

/// Which of the two texts to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The OLS'07 paper (002): figure 4, tables 2 and 3.
    Paper,
    /// The patch (000), to the letter.
    Patch,
}

impl Readahead for OnDemand {
    fn on_access(&mut self, access: Access, view: View<'_>) -> Plans {
        let plan = match self.variant {
            Variant::Paper => self.paper(&access, view.ra_pages),
            Variant::Patch => self.patch(&access, view.ra_pages),
        };
        if plan.reason != Reason::Random {
            self.ra_index = plan.window.start;
            self.readahead_index = plan.window.range().end;
            self.lookahead_index = plan.window.mark().unwrap_or(self.readahead_index);
        }
        plan.into()
    }
}

impl OnDemand {
    /// The state of a handle that has read nothing.
    #[must_use]
    pub const fn new(variant: Variant) -> Self {
        let zero = PageIndex(0);
        Self { variant, ra_index: zero, lookahead_index: zero, readahead_index: zero }
    }

    /// Paper 002, figure 4, lines 12 to 22; conditions in the order of table 2.
    fn paper(&self, access: &Access, max: u64) -> Plan {
        let sequential = follows(access.request.start, access.prev_page);
        let oversize = access.req_pages() > max;
        let missing = access.trigger == Trigger::Miss;
        if access.page == PageIndex(0) {
            new_window(access, max, Reason::Initial)
        } else if missing && !sequential && !oversize {
            as_is(access)
        } else if let Some(reason) = self.expected(access.page) {
            self.next_window(max, reason)
        } else if !missing {
            interleaved(access, max)
        } else {
            new_window(access, max, if sequential { Reason::Miss } else { Reason::Oversize })
        }
    }

    /// Patch 000, `ondemand_readahead`.
    fn patch(&self, access: &Access, max: u64) -> Plan {
        let by_position = follows(access.page, access.prev_page);
        let sequential = by_position || access.req_pages() > max;
        let missing = access.trigger == Trigger::Miss;
        if access.page != PageIndex(0)
            && let Some(reason) = self.expected(access.page)
        {
            self.next_window(max, reason)
        } else if missing && !sequential {
            as_is(access)
        } else if !missing {
            interleaved(access, max)
        } else if access.page == PageIndex(0) {
            new_window(access, max, Reason::Initial)
        } else {
            new_window(access, max, if by_position { Reason::Miss } else { Reason::Oversize })
        }
    }

    /// Whether the last window foresaw an access to `page`.
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

/// Whether `page` is the page `prev` or the one after it. Before the first read `prev` is −1, in unsigned arithmetic as
/// in the patch: page 0 follows nothing, and a step backward wraps to a huge distance.
fn follows(page: PageIndex, prev: Option<PageIndex>) -> bool {
    let prev = prev.map_or(u64::MAX, |prev| prev.0);
    page.0.wrapping_sub(prev) <= 1
}

/// A small read out of sequence: as is, without touching the window.
fn as_is(access: &Access) -> Plan {
    Plan::new(access.page, access.req_pages(), 0, Reason::Random)
}

/// A new window at the accessed page.
fn new_window(access: &Access, max: u64, reason: Reason) -> Plan {
    let size = initial_size(access.req_pages(), max);
    Plan::new(access.page, size, initial_async_size(size, access.req_pages()), reason)
}

/// A mark without a window that explains it: at least the second window of some stream, so the initial size, ramped up
/// once, behind the marked page. The async size is that of the window before it was ramped up (patch 000; the paper's
/// table 3 is garbled there).
fn interleaved(access: &Access, max: u64) -> Plan {
    let initial = initial_size(access.req_pages(), max);
    let async_size = initial_async_size(initial, access.req_pages());
    Plan::new(access.page + PageCount(1), initial.saturating_mul(4).min(max), async_size, Reason::Interleaved)
}

/// What an initial window has beyond the request, or all of it if the request takes the whole window.
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
        *policy.on_access(access, view).iter().next().expect("one window")
    }

    #[test]
    fn every_case_of_table_2() {
        use Trigger::{Mark, Miss};
        let plan = |start, size, ahead, reason| Plan::new(PageIndex(start), size, ahead, reason);
        let mut paper = OnDemand::new(Variant::Paper);
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
        let mut paper = OnDemand::new(Variant::Paper);
        assert_eq!(decide(&mut paper, Trigger::Miss, (9, 10), Some(10)).reason, Reason::Random);
    }

    #[test]
    fn the_texts_differ_at_page_zero_and_in_the_order_of_tests() {
        let (mut paper, mut patch) = (OnDemand::new(Variant::Paper), OnDemand::new(Variant::Patch));
        let both = |a: &mut OnDemand, b: &mut OnDemand, trigger, request, prev| {
            (decide(a, trigger, request, prev).reason, decide(b, trigger, request, prev).reason)
        };
        let (a, b) = (&mut paper, &mut patch);
        assert_eq!(both(a, b, Trigger::Miss, (0, 1), Some(50)), (Reason::Initial, Reason::Random));
        assert_eq!(both(a, b, Trigger::Mark, (0, 1), None), (Reason::Initial, Reason::Interleaved));
        let (mut paper, mut patch) = (OnDemand::new(Variant::Paper), OnDemand::new(Variant::Patch));
        let (a, b) = (&mut paper, &mut patch);
        assert_eq!(both(a, b, Trigger::Miss, (0, 1), None), (Reason::Initial, Reason::Initial));
        assert_eq!(both(a, b, Trigger::Miss, (4, 5), Some(2)), (Reason::Random, Reason::Readahead));
    }
}
