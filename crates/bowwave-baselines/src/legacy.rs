//! Readahead of Linux 2.6.20, the baseline that on-demand readahead replaced (paper 002, section 2.2 and figure 3a).
//!
//! ```text
//!  |----- size ----->|----- ahead_size ----->|
//!  ==================|=======================|======
//!  ^start            ^ahead_start
//! ```
//!
//! It is asked at the first page of every read, cached or not, and again where it said ([`Plans::next`]). While the
//! reader is in the current window, the ahead window is under way; when the reader crosses into that, it becomes the
//! current one and the next is sent. Windows grow fourfold below a sixteenth of the maximum, then twofold. What the policy
//! did not bring in is read one page at a time.
//!
//! Reasons: `initial` for the first window of a sequential reader, anywhere in the file; `random` for a read out of
//! sequence, as is but cut at the maximum; `ahead` for an ahead window; `demand` for a page read singly; `deferred` for an
//! ahead window given up because the queue is congested. No window has a mark. A decision's trigger is a miss if the page
//! where the policy was asked was absent then, else a mark.
//!
//! Published figures rest on what that kernel really did, so its odd details are kept:
//!
//! - A read that starts on the last page of the one before gives that page away: one page less from the next page on.
//!   If nothing is left, nothing is read ahead, but the page counts as where the reader is, so the next read is sequential.
//! - "Where the reader is" (`prev_page`) runs ahead to the end of what was asked for; it is −1 at first, so
//!   page 0 is sequential as the first access of a handle, and only then.
//! - The request size is what is left of the read, not cut at the end of the file; nor are windows, but only existing pages
//!   are read. A window that lies wholly past the end, or is wholly cached, counts as cached, with its full size.
//! - Windows found wholly cached add up; from 256 pages on in a row the policy switches itself off (cache mode) and is asked
//!   at each page, to do nothing. Only an absent page ends that. The page itself is read singly; the one behind it is the
//!   first sequential access again. The page count survives a seek; any page sent resets it, and any absent page.
//! - An absent page anywhere, even a page that was never read ahead, makes the next ahead window two pages *smaller* than
//!   the current one (at least 4 pages, at most the maximum, whatever the size was). The one after it doubles again. A seek
//!   forgets the absent page, the first sequential access does not.
//! - A first window for a request of the maximum or more sends the ahead window too, at once and whatever the queue.
//! - An ahead window waits for a full queue only if the request reaches into it; else it is given up on a congested queue.
//!   Then, and when cache mode begins, closing the ahead window leaves its *end* behind in `ahead_size` (with a start of 0):
//!   the cut of where-the-reader-is to the end of the ahead window relies on that sum.
//! - That cut happens only after a shift of the windows, and after the ahead window could not be made. A forced ahead window
//!   that turns out cached and begins cache mode is not cut.
//! - `POSIX_FADV_RANDOM` makes the maximum 0 and leaves the windows as they are: pages are read singly.
//!
//! Where a description in prose leaves room, the above is what `mm/readahead.c` and `do_generic_mapping_read` of 2.6.20 do:
//! sequentiality is tested before the state of the windows; the reader leaves at the end of the file before it asks; being
//! asked updates the position even in cache mode; a miss is noted after the asking, before the page is read singly.
//!
//! Its limits are known: interleaved readers look random to it, so do retried reads, and pages lost to thrashing are read
//! back one by one.

use bowwave_core::window::{initial_size, next_size};
use bowwave_core::{Access, PageCount, PageIndex, PageRange, Plan, Plans, Readahead, Reason, Trigger, View};

/// Pages of windows found cached, in a row, that switch readahead off (`VM_MAX_CACHE_HIT`).
const CACHE_HIT_MAX: u64 = 256;
/// Least size of a window after a miss, in pages (`VM_MIN_READAHEAD`, 16 KiB).
const SHRUNK_MIN: u64 = 4;

/// Readahead of Linux 2.6.20: the state of one handle. Pages throughout.
#[derive(Clone, Copy, Debug)]
pub struct Legacy {
    /// The current window; without one, `size` is 0.
    start: u64,
    size: u64,
    /// The ahead window; without one, `ahead_start` is 0 and `ahead_size` holds the end of the last.
    ahead_start: u64,
    ahead_size: u64,
    /// Where the reader is, or will be when it has read what it asked for; −1 before the first access.
    prev_page: u64,
    /// Pages of windows found cached in a row.
    cache_hit: u64,
    /// A page was absent since the last ahead window (`RA_FLAG_MISS`).
    missed: bool,
    /// Cache mode: everything was cached for so long that nothing is tried (`RA_FLAG_INCACHE`).
    in_cache: bool,
}

/// Whether a submission may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It waits for room in the queue.
    Block,
    /// It is given up if the queue is congested.
    GiveUp,
}

impl Readahead for Legacy {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        if let Trigger::Lookup { .. } = access.trigger {
            self.ask(access.page.0, access.req_pages(), view, plans);
            plans.next = PageIndex(self.prev_page.wrapping_add(1));
        } else {
            // The lookup left the page out: note the miss, and read the page alone.
            self.missed = true;
            self.in_cache = false;
            self.cache_hit = 0;
            plans.push(Plan::new(access.page, 1, 0, Reason::Demand));
        }
    }
}

impl Legacy {
    /// The state of a handle that has read nothing.
    #[must_use]
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

    /// `page_cache_readahead`.
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
                // Surely needed; its failure changes nothing but what `submit` itself does.
                self.send_ahead(Wait::Block, view, plans);
            }
        } else {
            self.go_on(view, plans);
        }
    }

    /// A sequential reader with a current window.
    fn go_on(&mut self, view: View<'_>, plans: &mut Plans) {
        let failed = self.ahead_start == 0 && !self.make_ahead(view, plans);
        if !failed {
            if self.prev_page < self.ahead_start {
                return;
            }
            (self.start, self.size) = (self.ahead_start, self.ahead_size);
            self.make_ahead(view, plans);
        }
        // Whether or not there is an ahead window, this is where it ends or ended.
        let end = self.ahead_start.wrapping_add(self.ahead_size);
        self.prev_page = self.prev_page.min(end.wrapping_sub(1));
    }

    /// Sends an ahead window, and closes it again if that failed.
    fn make_ahead(&mut self, view: View<'_>, plans: &mut Plans) -> bool {
        let needed = self.prev_page >= self.start + self.size;
        let sent = self.send_ahead(if needed { Wait::Block } else { Wait::GiveUp }, view, plans);
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
            // Unsigned as there: a window of 1 page would become huge, and is cut at the maximum.
            self.size.wrapping_sub(2).max(SHRUNK_MIN).min(max)
        } else {
            next_size(self.size, max)
        }
    }

    /// Has the absent pages of a range read; tells whether that left readahead on.
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
        if wait == Wait::GiveUp && view.congested {
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

    /// Forgets the windows, and that a page was absent.
    fn off(&mut self) {
        (self.start, self.size) = (0, 0);
        (self.missed, self.in_cache) = (false, false);
        self.close_ahead();
    }

    /// Forgets the ahead window but for where it ended.
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

    /// Asks at `page` for `req` pages of a file of which nothing is cached; the windows planned, and where to ask next.
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
        // A read across both windows sends no more than one, and has the policy asked again where that begins.
        assert_eq!(ask(&mut policy, 5, 30, free(32)), (vec![(Reason::Ahead, 28, 32)], 35));
    }

    #[test]
    fn a_large_read_sends_two_windows_and_is_asked_about_again_at_the_second() {
        let mut policy = Legacy::new();
        let (plans, next) = ask(&mut policy, 0, 100, free(32));
        assert_eq!(plans, [(Reason::Initial, 0, 32), (Reason::Ahead, 32, 32)]);
        assert_eq!(next, 32);
    }

    #[test]
    fn a_page_read_in_parts_is_not_read_ahead_twice_and_a_seek_ends_the_windows() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, free(32));
        assert_eq!(ask(&mut policy, 0, 1, free(32)), (vec![], 1));
        // The shared page is given away: one page from page 1 on.
        assert_eq!(ask(&mut policy, 0, 2, free(32)).0, [(Reason::Ahead, 4, 8)]);
        assert_eq!(ask(&mut policy, 500, 40, free(32)), (vec![(Reason::Random, 500, 32)], 532));
        assert_eq!(ask(&mut policy, 532, 8, free(32)).0, [(Reason::Initial, 532, 16)]);
    }

    #[test]
    fn an_ahead_window_is_given_up_on_a_congested_queue_until_it_is_needed() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, congested(32));
        for page in 1..4 {
            let (plans, next) = ask(&mut policy, page, 1, congested(32));
            assert_eq!((plans, next), (vec![(Reason::Deferred, 4, 0)], page + 1));
        }
        // The reader needs it now, so it waits; the one behind it is given up.
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
    fn a_request_past_the_ahead_window_is_cut_at_its_end() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 1, free(32));
        let (plans, next) = ask(&mut policy, 1, 32, free(32));
        assert_eq!((plans, next), (vec![(Reason::Ahead, 4, 8), (Reason::Ahead, 12, 16)], 28));
    }

    #[test]
    fn a_window_given_up_leaves_its_end_behind_for_the_cut() {
        let mut policy = Legacy::new();
        ask(&mut policy, 0, 8, free(32));
        // The window given up would end at 80, so nothing is cut; its size alone would cut at 32.
        let (plans, next) = ask(&mut policy, 8, 32, congested(32));
        assert_eq!((plans, next), (vec![(Reason::Ahead, 16, 32), (Reason::Deferred, 48, 0)], 40));
    }

    #[test]
    fn a_miss_shrinks_the_next_window_by_two_pages_to_no_less_than_four() {
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
        // 40 pages exist; from window 64 on nothing does. 8 windows of 32 make 256.
        for page in (32..288).step_by(32) {
            assert_eq!(ask(&mut policy, page, 400 - page, view).0, [(Reason::Ahead, page + 32, 32)]);
        }
        assert_eq!(ask(&mut policy, 288, 112, view), (vec![], 289));
        assert_eq!(ask(&mut policy, 289, 111, view), (vec![], 290));
    }

    #[test]
    fn random_advice_has_it_asked_at_each_page_to_plan_nothing() {
        let mut policy = Legacy::new();
        assert_eq!(ask(&mut policy, 0, 9, free(0)), (vec![], 1));
        assert_eq!(ask(&mut policy, 1, 8, free(0)), (vec![], 2));
    }
}
