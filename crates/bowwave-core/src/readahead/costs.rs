//! What a request to the store costs, measured from fills.

/// Fills of at most this many pages are short: they cost the time of a request.
const SHORT_PAGES: u64 = 8;
/// Fills of at least this many pages are long: they cost the time of their pages.
const LONG_PAGES: u64 = 64;
/// Pages that cost as much as a request, while the time of a page or of a request is unknown.
/// Larger: the first long fill may cost too much. Smaller: where requests are short, no long fill
/// shows what a page costs.
const PAGES_PER_REQUEST: u64 = 256;

/// Reads. A page read ahead is charged to this many reads more than wait now, since readers may
/// wait later, and bytes have a price. Larger: fewer bytes, and more waits. Smaller: the reverse.
const CHARGED: u64 = 2;

/// Costs of requests to the store, from the fills of all files: what one file shows holds for the
/// next. Moving means, of which the last fill is an eighth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Nanoseconds of a short fill; 0 while unknown.
    short_ns: u64,
    /// Nanoseconds of a page of a long fill; 0 while unknown.
    page_ns: u64,
    /// Nanoseconds of a short demand fill that was requested while no other was in flight, and of
    /// one beside others; 0 while unknown.
    alone_ns: u64,
    beside_ns: u64,
    /// Nanoseconds that a demand fill takes that continues a run, without the time of its pages; 0
    /// while unknown. Long fills do not count.
    onward_ns: u64,
    /// Reads that wait now.
    pub(crate) waiting: u64,
}

/// What is known of a fill that a read waited for from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemandFill {
    /// It was requested while no other was in flight.
    pub(crate) alone: bool,
    /// It continues a run: when it ends, the page before it is cached or in flight.
    pub(crate) follows: bool,
}

impl Costs {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        Self { short_ns: 0, page_ns: 0, alone_ns: 0, beside_ns: 0, onward_ns: 0, waiting: 0 }
    }

    /// A fill of `pages` pages took this long. A store that takes no time has no costs.
    pub(crate) fn filled(&mut self, pages: u64, took_ns: u64, demand: Option<DemandFill>) {
        if took_ns == 0 {
            return;
        }
        if pages <= SHORT_PAGES {
            self.short_ns = mean(self.short_ns, took_ns);
            match demand {
                Some(DemandFill { alone: true, .. }) => self.alone_ns = mean(self.alone_ns, took_ns),
                Some(DemandFill { alone: false, .. }) => self.beside_ns = mean(self.beside_ns, took_ns),
                None => {}
            }
        } else if pages >= LONG_PAGES {
            self.page_ns = mean(self.page_ns, (took_ns / pages).max(1));
        }
        if pages < LONG_PAGES && demand.is_some_and(|demand| demand.follows) {
            let pages_ns = pages.saturating_mul(self.a_page_ns());
            self.onward_ns = mean(self.onward_ns, took_ns.saturating_sub(pages_ns).max(1));
        }
    }

    /// Pages that a long request reads in the time of a short one. If the gap between two reads is
    /// shorter, reading the gap costs less than a second request. 0 while unknown, and on a store
    /// that takes no time.
    pub fn pages_per_request(&self) -> u64 {
        self.short_ns / self.a_page_ns()
    }

    /// As [`pages_per_request`](Self::pages_per_request), for a request that continues a run. On a
    /// disk it is short: often the head is already there.
    pub(crate) fn pages_per_onward_request(&self) -> u64 {
        match self.onward_ns {
            0 => self.pages_per_request(),
            onward_ns => onward_ns / self.a_page_ns(),
        }
    }

    /// Whether a short fill has ended that took time.
    pub(crate) fn are_known(&self) -> bool {
        self.short_ns > 0
    }

    /// Whether `pages` pages take at most as long as `requests` short requests, together with the
    /// time that the waiting reads lose. While costs are unknown, a request counts as
    /// `PAGES_PER_REQUEST` pages.
    pub(crate) fn pays(&self, requests: u64, pages: u64) -> bool {
        if !self.are_known() {
            return pages <= requests.saturating_mul(PAGES_PER_REQUEST);
        }
        let (cost_ns, saved_ns) = self.times_ns(requests, pages);
        cost_ns <= saved_ns
    }

    /// Nanoseconds of waiting by which `requests` short requests take longer than `pages` pages, as
    /// [`pays`](Self::pays) compares them. `None` while costs are unknown.
    pub(crate) fn gain_ns(&self, requests: u64, pages: u64) -> Option<i64> {
        let (cost_ns, saved_ns) = self.times_ns(requests, pages);
        let gain_ns = i128::from(saved_ns) - i128::from(cost_ns);
        self.are_known().then(|| gain_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// What `pages` pages cost, and what `requests` short requests take.
    fn times_ns(&self, requests: u64, pages: u64) -> (u64, u64) {
        let took_ns = pages.saturating_mul(self.a_page_ns());
        let lost_ns = match self.beside_ns {
            0 => 0,
            // A waiting read loses the share of its time that it would not need alone.
            beside_ns => {
                let slower_ns = beside_ns.saturating_sub(self.alone_ns.max(1));
                let known = u64::from(self.alone_ns > 0);
                (took_ns / 256).saturating_mul(known * self.waiting * (slower_ns * 256 / beside_ns))
            }
        };
        (took_ns.saturating_add(lost_ns), requests.saturating_mul(self.short_ns))
    }

    /// Nanoseconds of waiting: what an unused page read ahead costs, and what a used one saves, if
    /// the reader requests `request` pages at once. A used page saves its part of a request, and
    /// its own time. `None` while costs are unknown, and on a store that takes no time.
    pub(crate) fn of_a_page(&self, request: u64) -> Option<(u64, u64)> {
        let page_ns = self.a_page_ns();
        let cost = page_ns.saturating_mul(self.waiting + CHARGED);
        self.are_known().then(|| (cost, self.short_ns / request.max(1) + page_ns))
    }

    fn a_page_ns(&self) -> u64 {
        let page_ns = if self.page_ns > 0 { self.page_ns } else { self.short_ns / PAGES_PER_REQUEST };
        page_ns.max(1)
    }
}

fn mean(known: u64, seen: u64) -> u64 {
    if known == 0 { seen } else { known - known / 8 + seen / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Option<DemandFill> = Some(DemandFill { alone: true, follows: false });
    const BESIDE: Option<DemandFill> = Some(DemandFill { alone: false, follows: false });

    #[test]
    fn a_request_is_worth_the_pages_that_take_as_long() {
        let mut costs = Costs::new();
        assert_eq!(costs.pages_per_request(), 0, "nothing is known");
        costs.filled(1, 0, None);
        assert_eq!(costs.pages_per_request(), 0, "a store that takes no time");
        costs.filled(1, 30_000_000, None);
        assert_eq!(costs.pages_per_request(), 256, "no long fill has ended");
        costs.filled(256, 256 * 100_000, None);
        assert_eq!(costs.pages_per_request(), 300);
        // Fills of other lengths count as neither.
        costs.filled(32, 1, None);
        assert_eq!(costs.pages_per_request(), 300);
        (0..100).for_each(|_| costs.filled(8, 1_000_000, None));
        assert_eq!(costs.pages_per_request(), 10);
    }

    #[test]
    fn waiting_reads_are_charged_as_far_as_fills_delay_each_other() {
        let mut costs = Costs::new();
        assert_eq!((costs.pays(2, 512), costs.pays(2, 513)), (true, false), "nothing is known");
        costs.filled(1, 1_000_000, ALONE);
        costs.filled(100, 1_000_000, None);
        assert_eq!((costs.pays(3, 300), costs.pays(3, 301)), (true, false), "a request costs 100 pages");
        let waiting = Costs { waiting: 9, ..costs };
        assert!(waiting.pays(3, 300), "no fill beside others has ended");
        let mut equal = waiting;
        equal.filled(1, 1_000_000, BESIDE);
        assert!(equal.pays(3, 300), "the store serves requests side by side");
        let mut slower = waiting;
        slower.filled(1, 2_000_000, BESIDE);
        // A short fill takes 1.125 ms on average, and each of nine reads loses half of it.
        assert_eq!((slower.pays(11, 225), slower.pays(11, 226)), (true, false));
    }

    #[test]
    fn an_unused_page_costs_its_time_for_each_waiting_read_and_two_more() {
        let mut costs = Costs::new();
        assert_eq!(costs.of_a_page(4), None, "nothing is known");
        costs.filled(1, 1_000_000, ALONE);
        costs.filled(100, 1_000_000, None);
        assert_eq!(costs.of_a_page(4), Some((20_000, 260_000)), "no read waits");
        costs.waiting = 3;
        assert_eq!(costs.of_a_page(4), Some((50_000, 260_000)));
    }

    #[test]
    fn requests_that_continue_a_run_are_measured_apart() {
        let mut costs = Costs::new();
        costs.filled(1, 8_000_000, ALONE);
        costs.filled(100, 10_000_000, None);
        assert_eq!((costs.pages_per_request(), costs.pages_per_onward_request()), (80, 80), "none is known");
        let onward = Some(DemandFill { alone: true, follows: true });
        costs.filled(32, 32 * 100_000 + 500_000, onward);
        assert_eq!((costs.pages_per_request(), costs.pages_per_onward_request()), (80, 5));
        (0..50).for_each(|_| costs.filled(16, 1, onward));
        assert_eq!(costs.pages_per_onward_request(), 0, "a fill faster than its pages");
    }
}
