//! Readahead of Linux 2.6.20, the baseline that on-demand readahead replaced (OLS paper of
//! 2007, section 2.2 and figure 3a).
//!
//! ```text
//!  |----- size ----->|----- ahead_size ----->|
//!  ==================|=======================|======
//!  ^start            ^ahead_start
//! ```
//!
//! The policy is called at the first page of every read, cached or not, and again at the page that
//! it named ([`Plans::next`]). While the reader is in the current window, the ahead window is in
//! flight. When the reader crosses into the ahead window, that becomes the current one, and the
//! next is requested. Windows grow fourfold below a sixteenth of the maximum, then twofold. Pages
//! that the policy did not read are read one at a time.
//!
//! Reasons: `initial`, the first window of a sequential reader, anywhere in the file; `random`, a
//! read out of sequence, capped at the maximum; `ahead`, an ahead window; `demand`, a page read
//! singly; `deferred`, an ahead window dropped because the queue is congested. No window has a
//! mark. The trigger of a decision is a miss if the page was missing at the call, else a mark.
//!
//! Published figures depend on details of that kernel, so its quirks are kept:
//!
//! - **Shared page.** A read that starts on the last page of the previous one skips that page. If
//!   nothing remains, nothing is read ahead, but the page becomes the position, so the next read is
//!   sequential.
//! - **Position.** `prev_page` advances to the end of the request at once, but by at most the
//!   maximum. It is −1 at first, so page 0 is sequential as the first access of a handle, and only
//!   then.
//! - **End of file.** The request size is the rest of the read, not clipped at the end of the file.
//!   Windows are not clipped either; only existing pages are read. A window past the end counts as
//!   cached, with its full size.
//! - **Cache mode.** Fully cached windows add up. At 256 pages in a row the policy turns itself
//!   off: it is called at each page and does nothing. Only a missing page ends that; it is read
//!   singly, and the page after it is the first sequential access again. The count survives a seek.
//!   A window with a page that must be read resets it, and so does a missing page.
//! - **Misses.** A missing page anywhere, even one never read ahead, makes the next ahead window
//!   two pages *smaller* than the current one: at least 4 pages, at most the maximum. The one after
//!   it grows again. A seek forgets the miss, the first sequential access does not.
//! - **Large requests.** A first window for a request of at least the maximum also requests the
//!   ahead window at once, whatever the queue.
//! - **Congestion.** An ahead window waits for a full queue only if the request reaches into it;
//!   else it is dropped. Then, and when cache mode begins, the ahead window is closed: its *end*
//!   stays in `ahead_size`, and `ahead_start` becomes 0. So the sum of both is still the end, at
//!   which `prev_page` is capped. The cap applies only after a shift of the windows, and after a
//!   failed ahead window. A forced ahead window that is cached and begins cache mode is not capped.
//! - **Random advice** sets the maximum to 0 and keeps the windows: pages are read singly.
//!
//! The order of steps follows `mm/readahead.c` and `do_generic_mapping_read` of 2.6.20:
//! sequentiality is tested before the state of the windows; the reader stops at the end of the file
//! before it calls the policy; a call updates the position even in cache mode; a miss is recorded
//! after the call, before the page is read singly.
//!
//! Known limits: interleaved and retried reads look random, and thrashed pages are read back one by
//! one.

use bowwave_core::window::{initial_size, next_size};
use bowwave_core::{Access, PageCount, PageIndex, PageRange, Plan, Plans, Readahead, Reason, Trigger, View};

/// Consecutive pages of cached windows that turn readahead off (`VM_MAX_CACHE_HIT`).
const CACHE_HIT_MAX: u64 = 256;
/// Smallest window after a miss, in pages (`VM_MIN_READAHEAD`, 16 KiB).
const SHRUNK_MIN: u64 = 4;

/// Readahead of Linux 2.6.20: the state of one handle, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Legacy {
    /// The current window; without one, `size` is 0.
    start: u64,
    size: u64,
    /// The ahead window; without one, `ahead_start` is 0 and `ahead_size` holds the end of the
    /// last.
    ahead_start: u64,
    ahead_size: u64,
    /// Position of the reader at the end of its request; −1 before the first access.
    prev_page: u64,
    /// Consecutive pages of cached windows.
    cache_hit: u64,
    /// A page was missing since the last ahead window (`RA_FLAG_MISS`).
    missed: bool,
    /// Cache mode: readahead is off (`RA_FLAG_INCACHE`).
    in_cache: bool,
}

/// What a request does on a congested queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It waits for space.
    Block,
    /// It is dropped.
    Drop,
}

impl Readahead for Legacy {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        if let Trigger::Lookup { .. } = access.trigger {
            self.ask(access.page.0, access.req_pages(), view, plans);
            plans.next = PageIndex(self.prev_page.wrapping_add(1));
        } else {
            // The plan omitted the page: record the miss, and read the page alone.
            self.missed = true;
            self.in_cache = false;
            self.cache_hit = 0;
            plans.push(Plan::new(access.page, 1, 0, Reason::Demand));
        }
    }
}

impl Legacy {
    /// The state of a handle that was never read.
    pub const fn new() -> Self {
        Self {
            start: 0,
            size: 0,
            ahead_start: 0,
            ahead_size: 0,
            prev_page: u64::MAX,
            cache_hit: 0,
            missed: false,
            in_cache: false,
        }
    }

    /// Linux's `page_cache_readahead`: decides at `page`, for the `req` pages left of the request.
    fn ask(&mut self, page: u64, req: u64, view: View<'_>, plans: &mut Plans) {
        let (mut page, mut req) = (page, req);
        if page == self.prev_page {
            req -= 1;
            page += u64::from(req > 0);
        }
        let sequential = page == self.prev_page.wrapping_add(1);
        self.prev_page = page;
        let wanted = req.min(view.ra_pages);
        if wanted == 0 || self.in_cache {
            return;
        }
        self.prev_page += wanted - 1;
        if !sequential {
            self.off();
            self.submit(page, wanted, Wait::Block, Reason::Random, view, plans);
        } else if self.size == 0 {
            self.start = page;
            self.size = initial_size(wanted, view.ra_pages);
            let sent = self.submit(page, self.size, Wait::Block, Reason::Initial, view, plans);
            if sent && req >= view.ra_pages {
                // The request needs it. Linux ignores the result.
                self.send_ahead(Wait::Block, view, plans);
            }
        } else {
            self.continue_windows(view, plans);
        }
    }

    /// A sequential reader with a current window.
    fn continue_windows(&mut self, view: View<'_>, plans: &mut Plans) {
        let failed = self.ahead_start == 0 && !self.make_ahead(view, plans);
        if !failed {
            if self.prev_page < self.ahead_start {
                return;
            }
            (self.start, self.size) = (self.ahead_start, self.ahead_size);
            self.make_ahead(view, plans);
        }
        // The end of the ahead window, or of the last one if there is none.
        let end = self.ahead_start.wrapping_add(self.ahead_size);
        self.prev_page = self.prev_page.min(end.wrapping_sub(1));
    }

    /// Requests an ahead window, and closes it again if that failed.
    fn make_ahead(&mut self, view: View<'_>, plans: &mut Plans) -> bool {
        let needed = self.prev_page >= self.start + self.size;
        let sent = self.send_ahead(if needed { Wait::Block } else { Wait::Drop }, view, plans);
        if !sent {
            self.close_ahead();
        }
        sent
    }

    fn send_ahead(&mut self, wait: Wait, view: View<'_>, plans: &mut Plans) -> bool {
        self.ahead_size = self.next_size(view.ra_pages);
        self.ahead_start = self.start + self.size;
        self.submit(self.ahead_start, self.ahead_size, wait, Reason::Ahead, view, plans)
    }

    /// The size of the next ahead window.
    fn next_size(&mut self, max: u64) -> u64 {
        if core::mem::take(&mut self.missed) {
            // Unsigned as in Linux: a window of 1 page wraps, and is capped at the maximum.
            self.size.wrapping_sub(2).max(SHRUNK_MIN).min(max)
        } else {
            next_size(self.size, max)
        }
    }

    /// Requests the missing pages of a range; returns whether readahead is still on.
    fn submit(
        &mut self,
        start: u64,
        size: u64,
        wait: Wait,
        reason: Reason,
        view: View<'_>,
        plans: &mut Plans,
    ) -> bool {
        let start = PageIndex(start);
        if wait == Wait::Drop && view.congested {
            plans.push(Plan::new(start, 0, 0, Reason::Deferred));
            return false;
        }
        plans.push(Plan::new(start, size, 0, reason));
        let existing = PageRange::from_start(start, PageCount(size)).clip(PageIndex(view.file_pages.0));
        if view.next_miss(start, existing.count()).is_some() {
            self.cache_hit = 0;
            return true;
        }
        self.cache_hit = self.cache_hit.saturating_add(size);
        if self.cache_hit >= CACHE_HIT_MAX {
            self.off();
            self.in_cache = true;
        }
        !self.in_cache
    }

    /// Forgets the windows and the miss.
    fn off(&mut self) {
        (self.start, self.size) = (0, 0);
        (self.missed, self.in_cache) = (false, false);
        self.close_ahead();
    }

    /// Forgets the ahead window except its end.
    fn close_ahead(&mut self) {
        self.ahead_size = self.ahead_size.wrapping_add(self.ahead_start);
        self.ahead_start = 0;
    }
}

impl Default for Legacy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// Calls the policy at `page` for `req` pages of an uncached file; returns its windows and the
    /// page of its next call.
    fn ask(policy: &mut Legacy, page: u64, req: u64, view: View<'_>) -> (Vec<(Reason, u64, u64)>, u64) {
        let request = PageRange::new(page, page + req);
        let access = Access::read(request, None, Trigger::Lookup { missing: true, fresh: false });
        let mut plans = Plans::default();
        policy.on_access(access, view, &mut plans);
        (windows(&plans), plans.next.0)
    }

    fn windows(plans: &Plans) -> Vec<(Reason, u64, u64)> {
        plans.iter().map(|plan| (plan.reason, plan.window.start.0, plan.window.size.0)).collect()
    }

    fn free(ra_pages: u64) -> View<'static> {
        View::of_nothing(ra_pages)
    }

    fn congested(ra_pages: u64) -> View<'static> {
        let mut view = View::of_nothing(ra_pages);
        view.congested = true;
        view
    }

    #[test]
    fn windows_ramp_up_one_ahead_of_the_reader() {
        let mut policy = Legacy::new();
        assert_eq!(ask(&mut policy, 0, 1, free(32)), (vec![(Reason::Initial, 0, 4)], 1));
        assert_eq!(ask(&mut policy, 1, 1, free(32)), (vec![(Reason::Ahead, 4, 8)], 2));
        assert_eq!(ask(&mut policy, 2, 2, free(32)), (vec![], 4));
        assert_eq!(ask(&mut policy, 4, 1, free(32)), (vec![(Reason::Ahead, 12, 16)], 5));
        // A read across both windows requests one, and the policy is called again at its start.
        assert_eq!(ask(&mut policy, 5, 30, free(32)), (vec![(Reason::Ahead, 28, 32)], 35));
    }

    #[test]
    fn a_large_read_requests_two_windows_and_calls_again_at_the_second() {
        let mut policy = Legacy::new();
        let (plans, next) = ask(&mut policy, 0, 100, free(32));
        assert_eq!(plans, [(Reason::Initial, 0, 32), (Reason::Ahead, 32, 32)]);
        assert_eq!(next, 32);
    }

    #[test]
    fn a_page_read_in_parts_is_read_ahead_once_and_a_seek_ends_the_windows() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, free(32));
        assert_eq!(ask(&mut policy, 0, 1, free(32)), (vec![], 1));
        // The shared page is skipped: one page from page 1 on.
        assert_eq!(ask(&mut policy, 0, 2, free(32)).0, [(Reason::Ahead, 4, 8)]);
        assert_eq!(ask(&mut policy, 500, 40, free(32)), (vec![(Reason::Random, 500, 32)], 532));
        assert_eq!(ask(&mut policy, 532, 8, free(32)).0, [(Reason::Initial, 532, 16)]);
    }

    #[test]
    fn a_congested_queue_drops_an_ahead_window_until_it_is_needed() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, congested(32));
        for page in 1..4 {
            let (plans, next) = ask(&mut policy, page, 1, congested(32));
            assert_eq!((plans, next), (vec![(Reason::Deferred, 4, 0)], page + 1));
        }
        // The reader needs it now, so it waits; the next one is dropped.
        let (plans, next) = ask(&mut policy, 4, 1, congested(32));
        assert_eq!((plans, next), (vec![(Reason::Ahead, 4, 8), (Reason::Deferred, 12, 0)], 5));
        assert_eq!(ask(&mut policy, 5, 1, free(32)).0, [(Reason::Ahead, 12, 16)]);
    }

    #[test]
    fn the_second_window_of_a_large_read_waits_for_a_congested_queue() {
        let mut policy = Legacy::new();
        assert_eq!(ask(&mut policy, 0, 32, congested(32)).0.len(), 2);
    }

    #[test]
    fn a_request_past_the_ahead_window_is_capped_at_its_end() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, free(32));
        let (plans, next) = ask(&mut policy, 1, 32, free(32));
        assert_eq!((plans, next), (vec![(Reason::Ahead, 4, 8), (Reason::Ahead, 12, 16)], 28));
    }

    #[test]
    fn a_dropped_window_leaves_its_end_for_the_cap() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 8, free(32));
        // The dropped window would end at 80, so nothing is capped; its size alone would cap at 32.
        let (plans, next) = ask(&mut policy, 8, 32, congested(32));
        assert_eq!((plans, next), (vec![(Reason::Ahead, 16, 32), (Reason::Deferred, 48, 0)], 40));
    }

    #[test]
    fn a_miss_shrinks_the_next_window_by_two_pages_to_at_least_four() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 4, free(32));
        let miss = Access { page: PageIndex(2), ..Access::read(PageRange::new(0, 4), None, Trigger::Miss) };
        let mut plans = Plans::default();
        policy.on_access(miss, free(32), &mut plans);
        assert_eq!(windows(&plans), [(Reason::Demand, 2, 1)]);
        assert_eq!(ask(&mut policy, 4, 4, free(32)).0, [(Reason::Ahead, 8, 6)]);
        assert_eq!(ask(&mut policy, 8, 4, free(32)).0, [(Reason::Ahead, 14, 12)]);
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, free(32));
        policy.on_access(miss, free(32), &mut Plans::default());
        assert_eq!(ask(&mut policy, 1, 1, free(32)).0, [(Reason::Ahead, 4, 4)]);
    }

    #[test]
    fn windows_past_the_end_of_the_file_count_as_cached_and_end_in_cache_mode() {
        let mut policy = Legacy::new();
        let mut view = free(32);
        view.file_pages = PageCount(40);
        assert_eq!(ask(&mut policy, 0, 400, view).1, 32);
        // 40 pages exist, so windows from page 64 on are empty. 8 windows of 32 make 256.
        for page in (32..288).step_by(32) {
            assert_eq!(ask(&mut policy, page, 400 - page, view).0, [(Reason::Ahead, page + 32, 32)]);
        }
        assert_eq!(ask(&mut policy, 288, 112, view), (vec![], 289));
        assert_eq!(ask(&mut policy, 289, 111, view), (vec![], 290));
    }

    #[test]
    fn random_advice_calls_it_at_each_page_and_plans_nothing() {
        let mut policy = Legacy::new();
        assert_eq!(ask(&mut policy, 0, 9, free(0)), (vec![], 1));
        assert_eq!(ask(&mut policy, 1, 8, free(0)), (vec![], 2));
    }
}
