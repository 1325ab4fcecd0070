//! What a request to the store costs, measured from fills.

/// Fills of at most this many pages are short: they cost the time of a request.
const SHORT_PAGES: u64 = 8;
/// Fills of at least this many pages are long: they cost the time of their pages.
const LONG_PAGES: u64 = 64;
/// Nanoseconds of a page before a long fill has ended: 100 MB/s.
const PAGE_NS: u64 = 40_000;

/// Costs of requests to the store, from the fills of all files: what one file shows holds for the
/// next. Moving means, of which the last fill is an eighth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Nanoseconds of a short fill; 0 while unknown.
    short_ns: u64,
    /// Nanoseconds of a page of a long fill; 0 while unknown.
    page_ns: u64,
}

impl Costs {
    /// A fill of `pages` pages took this long.
    pub(crate) fn filled(&mut self, pages: u64, took_ns: u64) {
        if took_ns == 0 {
            return;
        }
        if pages <= SHORT_PAGES {
            self.short_ns = mean(self.short_ns, took_ns);
        } else if pages >= LONG_PAGES {
            self.page_ns = mean(self.page_ns, (took_ns / pages).max(1));
        }
    }

    /// Pages that a long request reads in the time of a short one. Where less than this is between
    /// two reads, reading through costs less than a second request. 0 while unknown, and on a store
    /// that takes no time.
    #[must_use]
    pub fn pages_per_request(&self) -> u64 {
        self.short_ns / if self.page_ns > 0 { self.page_ns } else { PAGE_NS }
    }
}

fn mean(known: u64, seen: u64) -> u64 {
    if known == 0 { seen } else { known - known / 8 + seen / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_worth_the_pages_that_take_as_long() {
        let mut costs = Costs::default();
        assert_eq!(costs.pages_per_request(), 0, "nothing is known");
        costs.filled(1, 0);
        assert_eq!(costs.pages_per_request(), 0, "a store that takes no time");
        costs.filled(1, 30_000_000);
        assert_eq!(costs.pages_per_request(), 750, "a page costs 40 us until a long fill ends");
        costs.filled(256, 256 * 100_000);
        assert_eq!(costs.pages_per_request(), 300);
        // Fills of other lengths count as neither.
        costs.filled(32, 1);
        assert_eq!(costs.pages_per_request(), 300);
        (0..100).for_each(|_| costs.filled(8, 1_000_000));
        assert_eq!(costs.pages_per_request(), 10);
    }
}
