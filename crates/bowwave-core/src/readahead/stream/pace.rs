//! How fast a stream is read, how long its fills take, and its share of memory.
//!
//! Pages read once pass through the inactive list. While the list evicted N pages, the stream used
//! M; its share of the list is M / N. Readahead beyond that share is evicted before it is read (the
//! thrashing threshold of Wu, adaptive readahead, 2005). The limit applies as soon as the list
//! evicts pages, so before the first thrashing. Without evictions nothing shows a stream's share,
//! so only the total of unread readahead is limited.

use super::tuning::tuning;
use crate::readahead::{FillReport, Pressure};
use crate::time::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// Times of one stream, or of all streams of a file together, and its share of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When it was last observed.
    at: Option<Instant>,
    consumed: u64,
    /// Evictions, and pages used by the stream, when its share was last measured.
    since: (u32, u64),
    /// Time that readers waited for fills since `at`, and the end of the last counted wait.
    stalled_ns: u64,
    stalled_to: Instant,
    /// Nanoseconds that a reader needs for a page, without waits. 0 while unknown.
    page_ns: u64,
    /// Mean and shortest nanoseconds of a fill; the shortest is close to the TTFB. 0 while unknown.
    fill_ns: u64,
    quickest_ns: u64,
    /// Maximum pages ahead, by the stream's share of memory; `u64::MAX` without evictions.
    pub(super) limit: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at: None,
            consumed: 0,
            since: (0, 0),
            stalled_ns: 0,
            stalled_to: Instant(0),
            page_ns: 0,
            fill_ns: 0,
            quickest_ns: 0,
            limit: u64::MAX,
        }
    }
}

impl Pace {
    /// Observes a stream that has used `consumed` pages.
    pub(super) fn observe(&mut self, now: Instant, consumed: u64, pressure: Pressure) {
        let pages = consumed.saturating_sub(self.consumed);
        if pages == 0 && self.at.is_some() {
            return;
        }
        if let Some(at) = self.at {
            let spent = now.0.saturating_sub(at.0).saturating_sub(self.stalled_ns);
            self.page_ns = mean(self.page_ns, (spent / pages).max(1));
        } else {
            self.since = (pressure.evictions, consumed);
        }
        (self.at, self.consumed, self.stalled_ns) = (Some(now), consumed, 0);
        self.measure_share(consumed, pressure);
    }

    /// Measures the stream's share of memory, if enough pages were replaced since the last time.
    fn measure_share(&mut self, consumed: u64, pressure: Pressure) {
        let moved = u64::from(pressure.evictions.wrapping_sub(self.since.0));
        let pages = consumed.saturating_sub(self.since.1);
        let seen = if moved > 0 { moved } else { pages };
        if seen < pressure.cold / tuning().reserve {
            return;
        }
        self.since = (pressure.evictions, consumed);
        self.limit = match (moved, self.limit) {
            (0, _) => u64::MAX,
            (_, u64::MAX) => share(pressure.cold, pages, moved),
            (_, limit) => mean(limit, share(pressure.cold, pages, moved)),
        };
    }

    /// Pages that may be added to the `ahead` pages of a stream. A stream may have twice its share
    /// ahead, since streams rarely all use their whole share. The readahead of all streams is
    /// limited to the memory for pages read once, less a reserve and the pages of waiting reads:
    /// their frames are pinned. A small share is always allowed.
    pub(super) fn space(&self, ahead: u64, pressure: Pressure) -> u64 {
        let taken = pressure.unread.saturating_add(pressure.awaited);
        let left = below_reserve(pressure.cold).saturating_sub(taken);
        let own = self.limit.saturating_mul(2).saturating_sub(ahead);
        own.min(left.max(least_share().saturating_sub(ahead)))
    }

    /// A page was evicted before it was read: `ahead` was too far.
    pub(super) fn thrashed(&mut self, ahead: u64) {
        self.limit = (self.limit.min(ahead) / 4 * 3).max(least_share());
    }

    /// A fill ended. A reader that waits for several fills at once is counted once.
    pub(super) fn filled(&mut self, report: &FillReport) {
        self.fill_ns = mean(self.fill_ns, report.took_ns);
        let quickest = if self.quickest_ns == 0 { u64::MAX } else { self.quickest_ns };
        self.quickest_ns = quickest.min(report.took_ns);
        let waited_ns = if report.demanded { report.took_ns } else { report.waited_ns.unwrap_or(0) };
        let counted_ns = report.now.0.saturating_sub(self.stalled_to.0);
        self.stalled_ns = self.stalled_ns.saturating_add(waited_ns.min(counted_ns));
        if waited_ns > 0 {
            self.stalled_to = report.now;
        }
    }

    /// Pages from the mark to the end of the readahead under memory pressure: those used during one
    /// fill, between an eighth and a third of the limit.
    pub(super) fn lead(&self) -> u64 {
        self.pages_per_fill().unwrap_or(u64::MAX).clamp(self.limit / 8, self.limit / 3).max(1)
    }

    /// A window that lasts its reader one second, or two fills if they take longer, clamped to
    /// `[least, most]`.
    pub(super) fn lasting(&self, least: u64, most: u64) -> u64 {
        let a_second = SECOND_NS.checked_div(self.page_ns).unwrap_or(u64::MAX);
        let a_fill = self.pages_per_fill().unwrap_or(u64::MAX);
        a_second.max(a_fill.saturating_mul(2)).max(least).min(most)
    }

    /// Pages that the reader uses during the shortest fill, if known.
    pub(super) fn pages_per_ttfb(&self) -> Option<u64> {
        (self.page_ns > 0 && self.quickest_ns > 0).then(|| self.quickest_ns / self.page_ns)
    }

    /// Pages that the reader uses during one fill, if known.
    pub(super) fn pages_per_fill(&self) -> Option<u64> {
        (self.page_ns > 0 && self.fill_ns > 0).then(|| self.fill_ns / self.page_ns)
    }
}

fn share(cold: u64, pages: u64, moved: u64) -> u64 {
    below_reserve(cold.saturating_mul(pages) / moved)
}

/// Pages that a stream may have ahead however short memory is. Half of what is worth a request:
/// small caches hold little more.
fn least_share() -> u64 {
    tuning().speculation_min / 2
}

/// Pages without the part that is held in reserve.
fn below_reserve(pages: u64) -> u64 {
    pages - pages.div_ceil(tuning().reserve)
}

/// Moving mean; a `known` of 0 is unknown.
fn mean(known: u64, seen: u64) -> u64 {
    if known == 0 { seen } else { known / 2 + seen / 2 + (known & seen & 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageRange;

    fn pressure(evictions: u32) -> Pressure {
        Pressure { evictions, cold: 1000, unread: 0, awaited: 0 }
    }

    #[test]
    fn a_stream_gets_its_share_and_no_limit_without_evictions() {
        let mut pace = Pace::default();
        pace.observe(Instant(0), 10, pressure(0));
        pace.observe(Instant(0), 20, pressure(0));
        assert_eq!(pace.limit, u64::MAX);
        pace.observe(Instant(0), 30, pressure(200));
        assert_eq!(pace.limit, 87, "a tenth of a thousand, and seven eighths of that");
        pace.observe(Instant(0), 40, pressure(400));
        assert_eq!(pace.limit, (87 + 43) / 2);
        pace.thrashed(40);
        assert_eq!(pace.limit, 30);
        pace.observe(Instant(0), 165, pressure(400));
        assert_eq!(pace.limit, u64::MAX);
    }

    /// Regression: eight bursty readers share memory evenly. Observed while the others waited, each
    /// got several times its share.
    #[test]
    fn shares_of_bursty_readers_do_not_exceed_memory() {
        let mut paces = [Pace::default(); 8];
        let (mut used, mut evictions) = ([0; 8], 0);
        for _ in 0..100 {
            for (pace, used) in paces.iter_mut().zip(&mut used) {
                for _ in 0..4 {
                    (*used, evictions) = (*used + 8, evictions + 8);
                    pace.observe(Instant(0), *used, pressure(evictions));
                }
            }
            // Each stream has observed its own burst together with other bursts, never alone.
            let shares: u64 =
                paces.iter().map(|pace| if pace.limit == u64::MAX { 0 } else { pace.limit }).sum();
            assert!(shares <= 1000, "{shares}");
        }
    }

    #[test]
    fn all_streams_together_stay_within_memory() {
        let mut pace = Pace::default();
        pace.observe(Instant(0), 0, pressure(0));
        pace.observe(Instant(0), 500, pressure(500));
        let with = |unread| Pressure { unread, ..pressure(500) };
        assert_eq!(pace.limit, 875);
        assert_eq!(
            (pace.space(100, with(800)), pace.space(100, with(875)), pace.space(0, with(1000))),
            (75, 0, 8)
        );
        let waits = Pressure { awaited: 50, ..with(800) };
        assert_eq!(pace.space(100, waits), 25, "pages of waiting reads reduce the space");
    }

    #[test]
    fn a_window_of_a_slow_reader_lasts_one_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.lasting(64, 256), 256, "nothing is known");
        pace.observe(Instant(0), 0, pressure(0));
        pace.observe(Instant(SECOND_NS), 100, pressure(0));
        assert_eq!(pace.lasting(64, 256), 256, "of fills nothing is known");
        pace.filled(&report(SECOND_NS, SECOND_NS / 10, None));
        assert_eq!((pace.lasting(64, 256), pace.lasting(128, 256), pace.lasting(64, 80)), (100, 128, 80));
        // A window outlasts slower fills.
        pace.filled(&report(SECOND_NS, SECOND_NS * 2, None));
        assert_eq!(pace.lasting(64, 256), 210);
    }

    fn report(now: u64, took_ns: u64, waited_ns: Option<u64>) -> FillReport {
        FillReport {
            now: Instant(now),
            range: PageRange::new(0, 1),
            took_ns,
            waited_ns,
            demanded: false,
            failed: false,
        }
    }

    #[test]
    fn waits_do_not_count_as_reading_time() {
        let mut pace = Pace::default();
        pace.observe(Instant(0), 10, pressure(0));
        pace.filled(&report(950, 3000, Some(900)));
        pace.observe(Instant(1000), 20, pressure(0));
        assert_eq!(pace.pages_per_fill(), Some(3000 / 10));
    }

    #[test]
    fn concurrent_waits_count_once() {
        let mut pace = Pace::default();
        pace.observe(Instant(0), 10, pressure(0));
        // From 0 to 600, from 200 to 800, and from 500 to 800.
        for (now, waited) in [(600, 600), (800, 600), (800, 300)] {
            pace.filled(&report(now, 1000, Some(waited)));
        }
        pace.observe(Instant(1000), 20, pressure(0));
        assert_eq!(pace.pages_per_fill(), Some(1000 / 20));
    }

    #[test]
    fn a_demand_read_waits_for_the_whole_fill() {
        let mut pace = Pace::default();
        // Nothing was used before the first observation.
        pace.observe(Instant(0), 0, pressure(0));
        pace.filled(&FillReport { demanded: true, ..report(1000, 1000, None) });
        pace.observe(Instant(1160), 32, pressure(0));
        assert_eq!(pace.pages_per_fill(), Some(1000 / 5));
    }
}
