//! How fast a stream is read, how long its fills take, and how much of memory is its own.
//!
//! Memory: pages that are read once go through the inactive list, one in for one out. While the list moved on by so many
//! pages, the stream used so many; in that proportion the list is its own, and what it has ahead beyond that will be
//! evicted before its reader comes to it (Wu, adaptive readahead 2005: the thrashing threshold). No thrashing needs to be
//! seen first, and where memory is not short nothing is limited.

use crate::readahead::Pressure;
use crate::time::Instant;

/// Of the share of memory, so many eighths are used: the rest is for what one cannot know.
const SAFE_EIGHTHS: u64 = 7;

/// Few enough that no memory is too small, and enough that a request is worth making.
const LIMIT_MIN: u64 = 8;

/// A stream gets more than its share as long as no more than so many eighths of memory are read ahead for all.
const SPARE_EIGHTHS: u64 = 6;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    at: Instant,
    evictions: u32,
    consumed: u64,
    /// Time that readers have waited for fills since `at`.
    stalled_ns: u64,
    /// Nanoseconds that a reader takes for a page, waits left out. 0 if not known.
    page_ns: u64,
    /// Nanoseconds that a fill takes. 0 if not known.
    fill_ns: u64,
    /// Most pages ahead that memory has room for.
    pub(super) limit: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at: Instant(0),
            evictions: 0,
            consumed: 0,
            stalled_ns: 0,
            page_ns: 0,
            fill_ns: 0,
            limit: u64::MAX,
        }
    }
}

impl Pace {
    /// Looks at a stream that has used `consumed` pages by now.
    pub(super) fn look(&mut self, now: Instant, consumed: u64, pressure: Pressure) {
        let pages = consumed.saturating_sub(self.consumed);
        if pages == 0 {
            return;
        }
        if self.consumed > 0 {
            let spent = now.0.saturating_sub(self.at.0).saturating_sub(self.stalled_ns);
            self.page_ns = mean(self.page_ns, (spent / pages).max(1));
            let moved = u64::from(pressure.evictions.wrapping_sub(self.evictions));
            self.limit = match (moved, self.limit) {
                (0, _) => u64::MAX,
                (_, u64::MAX) => share(pressure.cold, pages, moved),
                (_, limit) => mean(limit, share(pressure.cold, pages, moved)),
            };
        }
        (self.at, self.evictions, self.consumed, self.stalled_ns) = (now, pressure.evictions, consumed, 0);
    }

    /// Pages that there is room for ahead of a stream that has `ahead` already: its share; and as much again as long as the
    /// streams together leave that much of memory to what is read. Not all of them have read ahead all they may at one time.
    /// As long as nothing was evicted, nobody has a share.
    pub(super) fn room(&self, ahead: u64, pressure: Pressure) -> u64 {
        let below = |eighths: u64| (pressure.cold / 8 * eighths).saturating_sub(pressure.unread);
        if self.limit == u64::MAX {
            return below(SAFE_EIGHTHS).max(LIMIT_MIN.saturating_sub(ahead));
        }
        let more = self.limit.min(below(SPARE_EIGHTHS).saturating_sub(self.limit.saturating_sub(ahead)));
        self.limit.saturating_add(more).saturating_sub(ahead)
    }

    /// A page was evicted before its reader came to it: a window of so many pages was too much.
    pub(super) fn thrashed(&mut self, window: u64) {
        self.limit = (self.limit.min(window.saturating_mul(2)) / 4 * 3).max(LIMIT_MIN);
    }

    /// A fill has taken so long, and a reader has waited for it so long.
    pub(super) fn filled(&mut self, took_ns: u64, waited_ns: Option<u64>) {
        self.fill_ns = mean(self.fill_ns, took_ns);
        self.stalled_ns = self.stalled_ns.saturating_add(waited_ns.unwrap_or(0));
    }

    /// Pages from the mark to the end of what is ahead, where memory is short: as many as are read while a fill is under way,
    /// and an eighth to a third of the room.
    pub(super) fn lead(&self) -> u64 {
        self.pages_a_fill().unwrap_or(u64::MAX).clamp(self.limit / 8, self.limit / 3).max(1)
    }

    /// Pages that are read while a fill is under way, if both are known.
    pub(super) fn pages_a_fill(&self) -> Option<u64> {
        (self.page_ns > 0 && self.fill_ns > 0).then(|| self.fill_ns / self.page_ns)
    }
}

fn share(cold: u64, pages: u64, moved: u64) -> u64 {
    (cold.saturating_mul(pages) / moved).saturating_mul(SAFE_EIGHTHS) / 8
}

/// The mean of what was known and what is seen; 0 is nothing known.
fn mean(known: u64, seen: u64) -> u64 {
    if known == 0 { seen } else { known / 2 + seen / 2 + (known & seen & 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(evictions: u32) -> Pressure {
        Pressure { evictions, cold: 1000, unread: 0 }
    }

    #[test]
    fn a_stream_has_its_share_of_memory_and_no_limit_while_nothing_is_evicted() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 10, pressure(0));
        pace.look(Instant(0), 20, pressure(0));
        assert_eq!(pace.limit, u64::MAX);
        pace.look(Instant(0), 30, pressure(100));
        assert_eq!(pace.limit, 87, "a tenth of a thousand, and seven eighths of that");
        pace.look(Instant(0), 40, pressure(300));
        assert_eq!(pace.limit, (87 + 43) / 2);
        pace.thrashed(20);
        assert_eq!(pace.limit, 30);
        pace.look(Instant(0), 50, pressure(300));
        assert_eq!(pace.limit, u64::MAX);
    }

    #[test]
    fn waits_are_no_part_of_a_readers_pace() {
        let mut pace = Pace::default();
        pace.look(Instant(0), 10, pressure(0));
        pace.filled(3000, Some(900));
        pace.look(Instant(1000), 20, pressure(0));
        assert_eq!(pace.pages_a_fill(), Some(3000 / 10));
    }
}
