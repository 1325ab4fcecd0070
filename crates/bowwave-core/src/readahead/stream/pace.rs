//! How fast a stream is read, how long its fills take, and how much of memory is its own.
//!
//! Memory: pages that are read once go through the inactive list, one in for one out. While the list moved on by so many
//! pages, the stream used so many; in that proportion the list is its own, and what it has ahead beyond that will be
//! evicted before its reader comes to it (Wu, adaptive readahead 2005: the thrashing threshold). No thrashing needs to be
//! seen first, and where memory is not short nothing is limited.

use super::tuning::tuning;
use crate::readahead::{FillReport, Pressure};
use crate::time::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When it was looked at last, if it was.
    at: Option<Instant>,
    consumed: u64,
    /// Evictions, and what the stream had used, when its share of memory was looked at last.
    since: (u32, u64),
    /// Time that readers have waited for fills since `at`, and up to when that was counted.
    stalled_ns: u64,
    stalled_to: Instant,
    /// Nanoseconds that a reader takes for a page, waits left out. 0 if not known.
    page_ns: u64,
    /// Nanoseconds that a fill takes, and that the quickest took, which is little more than its first byte. 0 if not known.
    fill_ns: u64,
    quickest_ns: u64,
    /// Most pages ahead that memory has room for.
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
    /// Looks at a stream that has used `consumed` pages by now.
    pub(super) fn look(&mut self, now: Instant, consumed: u64, pressure: Pressure) {
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
        self.look_at_share(consumed, pressure);
    }

    /// Looks at what part of memory is the stream's own, if enough has happened since the last time to tell.
    fn look_at_share(&mut self, consumed: u64, pressure: Pressure) {
        let moved = u64::from(pressure.evictions.wrapping_sub(self.since.0));
        let pages = consumed.saturating_sub(self.since.1);
        let seen = if moved > 0 { moved } else { pages };
        if seen < pressure.cold / tuning().sample_share {
            return;
        }
        self.since = (pressure.evictions, consumed);
        self.limit = match (moved, self.limit) {
            (0, _) => u64::MAX,
            (_, u64::MAX) => share(pressure.cold, pages, moved),
            (_, limit) => mean(limit, share(pressure.cold, pages, moved)),
        };
    }

    /// Pages that there is room for ahead of a stream that has `ahead` already: its share; and as much again as long as the
    /// streams together leave that much of memory to what is read. Not all of them have read ahead all they may at one time.
    /// As long as nothing was evicted, nobody has a share. All together never have more than fits, whatever their shares.
    pub(super) fn room(&self, ahead: u64, pressure: Pressure) -> u64 {
        let below = |eighths: u64| (pressure.cold / 8 * eighths).saturating_sub(pressure.unread);
        let fits = below(tuning().safe_eighths).max(tuning().limit_min.saturating_sub(ahead));
        if self.limit == u64::MAX {
            return fits;
        }
        let more =
            self.limit.min(below(tuning().spare_eighths).saturating_sub(self.limit.saturating_sub(ahead)));
        self.limit.saturating_add(more).saturating_sub(ahead).min(fits)
    }

    /// A page was evicted before its reader came to it: so many pages ahead were too much.
    pub(super) fn thrashed(&mut self, ahead: u64) {
        self.limit = (self.limit.min(ahead) / 4 * 3).max(tuning().limit_min);
    }

    /// A fill has ended. Who waits for several at once waits once.
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

    /// Pages from the mark to the end of what is ahead, where memory is short: as many as are read while a fill is under way,
    /// and an eighth to a third of the room.
    pub(super) fn lead(&self) -> u64 {
        self.pages_a_fill().unwrap_or(u64::MAX).clamp(self.limit / 8, self.limit / 3).max(1)
    }

    /// Pages of a window of so many at most and at least that its reader is a second at: longer ones keep no reader from waiting
    /// whose fills take less.
    pub(super) fn lasting(&self, least: u64, most: u64) -> u64 {
        let a_second = SECOND_NS.checked_div(self.page_ns).unwrap_or(u64::MAX);
        let a_fill = self.pages_a_fill().unwrap_or(u64::MAX);
        a_second.max(a_fill.saturating_mul(2)).max(least).min(most)
    }

    /// Pages that are read in the time of the quickest fill, if both are known.
    pub(super) fn pages_a_first_byte(&self) -> Option<u64> {
        (self.page_ns > 0 && self.quickest_ns > 0).then(|| self.quickest_ns / self.page_ns)
    }

    /// Pages that are read while a fill is under way, if both are known.
    pub(super) fn pages_a_fill(&self) -> Option<u64> {
        (self.page_ns > 0 && self.fill_ns > 0).then(|| self.fill_ns / self.page_ns)
    }
}

fn share(cold: u64, pages: u64, moved: u64) -> u64 {
    (cold.saturating_mul(pages) / moved).saturating_mul(tuning().safe_eighths) / 8
}

/// The mean of what was known and what is seen; 0 is nothing known.
fn mean(known: u64, seen: u64) -> u64 {
    if known == 0 { seen } else { known / 2 + seen / 2 + (known & seen & 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageRange;

    fn pressure(evictions: u32) -> Pressure {
        Pressure { evictions, cold: 1000, unread: 0 }
    }

    #[test]
    fn a_stream_has_its_share_of_memory_and_no_limit_while_nothing_is_evicted() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 10, pressure(0));
        pace.look(Instant(0), 20, pressure(0));
        assert_eq!(pace.limit, u64::MAX);
        pace.look(Instant(0), 30, pressure(200));
        assert_eq!(pace.limit, 87, "a tenth of a thousand, and seven eighths of that");
        pace.look(Instant(0), 40, pressure(400));
        assert_eq!(pace.limit, (87 + 43) / 2);
        pace.thrashed(40);
        assert_eq!(pace.limit, 30);
        pace.look(Instant(0), 165, pressure(400));
        assert_eq!(pace.limit, u64::MAX);
    }

    /// Of eight readers who share memory evenly and read in bursts, each looked at while the others were waiting, the shares came
    /// to several times what there is.
    #[test]
    fn shares_of_readers_who_come_in_bursts_do_not_exceed_memory() {
        let mut paces = [Pace::default(); 8];
        let (mut used, mut evictions) = ([0; 8], 0);
        for _ in 0..100 {
            for (pace, used) in paces.iter_mut().zip(&mut used) {
                for _ in 0..4 {
                    (*used, evictions) = (*used + 8, evictions + 8);
                    pace.look(Instant(0), *used, pressure(evictions));
                }
            }
            // Up to here a stream has seen its own burst and those of some others, but never its own alone.
            let shares: u64 =
                paces.iter().map(|pace| if pace.limit == u64::MAX { 0 } else { pace.limit }).sum();
            assert!(shares <= 1000, "{shares}");
        }
    }

    #[test]
    fn all_together_have_no_more_ahead_than_fits() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 0, pressure(0));
        pace.look(Instant(0), 500, pressure(500));
        let with = |unread| Pressure { unread, ..pressure(500) };
        assert_eq!(pace.limit, 875);
        assert_eq!(
            (pace.room(100, with(800)), pace.room(100, with(875)), pace.room(0, with(1000))),
            (75, 0, 8)
        );
    }

    #[test]
    fn a_window_of_a_slow_reader_lasts_a_second_and_no_longer() {
        let mut pace = Pace::default();
        assert_eq!(pace.lasting(64, 256), 256, "nothing is known");
        pace.look(Instant(0), 0, pressure(0));
        pace.look(Instant(SECOND_NS), 100, pressure(0));
        assert_eq!(pace.lasting(64, 256), 256, "of fills nothing is known");
        pace.filled(&report(SECOND_NS, SECOND_NS / 10, None));
        assert_eq!((pace.lasting(64, 256), pace.lasting(128, 256), pace.lasting(64, 80)), (100, 128, 80));
        // Fills that take longer than that are to be outlasted.
        pace.filled(&report(SECOND_NS, SECOND_NS * 2, None));
        assert_eq!(pace.lasting(64, 256), 210);
    }

    fn report(now: u64, took_ns: u64, waited_ns: Option<u64>) -> FillReport {
        FillReport { now: Instant(now), range: PageRange::new(0, 1), took_ns, waited_ns, demanded: false }
    }

    #[test]
    fn waits_are_no_part_of_a_readers_pace() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 10, pressure(0));
        pace.filled(&report(950, 3000, Some(900)));
        pace.look(Instant(1000), 20, pressure(0));
        assert_eq!(pace.pages_a_fill(), Some(3000 / 10));
    }

    #[test]
    fn who_waits_for_several_fills_at_once_waits_once() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 10, pressure(0));
        // From 0 to 600, from 200 to 800, and from 500 to 800.
        for (now, waited) in [(600, 600), (800, 600), (800, 300)] {
            pace.filled(&report(now, 1000, Some(waited)));
        }
        pace.look(Instant(1000), 20, pressure(0));
        assert_eq!(pace.pages_a_fill(), Some(1000 / 20));
    }

    #[test]
    fn a_reader_who_had_to_ask_waited_all_the_time() {
        let mut pace = Pace::default();
        // Of a file nothing was used before the first look.
        pace.look(Instant(0), 0, pressure(0));
        pace.filled(&FillReport { demanded: true, ..report(1000, 1000, None) });
        pace.look(Instant(1160), 32, pressure(0));
        assert_eq!(pace.pages_a_fill(), Some(1000 / 5));
    }
}
