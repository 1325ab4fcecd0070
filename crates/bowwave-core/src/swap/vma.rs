//! By addresses: a region's window, in the direction of its last step ("mm, swap: VMA based
//! swap readahead", Huang, 2017).

use super::SwapReason;
use super::size::{SwapConfig, window_size};
use crate::page::{PageIndex, PageRange};

/// State of a region. Linux packs it into one word: the address of the last touch of a swapped or
/// read-ahead page, the last window's size, and its hits so far, at most 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    last: PageIndex,
    size: u64,
    hits: u64,
}

/// Initial hits of a region: assumes sequential access.
const HITS_AT_FIRST: u64 = 4;
/// Largest value of the 6-bit counter.
const HITS_MAX: u64 = 63;

/// A window and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmaPlan {
    /// Swapped-out pages to read, including the touched one.
    pub range: PageRange,
    /// Size before clipping.
    pub size: u64,
    /// The direction.
    pub reason: SwapReason,
}

impl Default for Vma {
    fn default() -> Self {
        Self { last: PageIndex(0), size: 0, hits: HITS_AT_FIRST }
    }
}

impl Vma {
    /// Handles a touch of a page in memory, put there by readahead if `readahead`. Later steps are
    /// measured from it.
    pub fn on_hit(&mut self, page: PageIndex, readahead: bool) {
        if readahead {
            self.hits = (self.hits + 1).min(HITS_MAX);
        }
        self.last = page;
    }

    /// Handles a touch of the swapped-out `page` of the region `region`. Page numbers are those of
    /// addresses: page tables begin at multiples of [`SwapConfig::table_pages`].
    pub fn on_fault(&mut self, page: PageIndex, region: PageRange, config: &SwapConfig) -> VmaPlan {
        let alone =
            |size| VmaPlan { range: PageRange::new(page.0, page.0 + 1), size, reason: SwapReason::Single };
        let max = config.vma_max();
        if max == 1 {
            return alone(1);
        }
        let last = self.last;
        let size = window_size(last.0, page.0, self.hits, max, self.size);
        *self = Self { last: page, size, hits: 0 };
        if size == 1 {
            return alone(1);
        }
        let (before, reason) = if page.0 == last.0 + 1 {
            (0, SwapReason::Forward)
        } else if last.0 == page.0 + 1 {
            (size - 1, SwapReason::Backward)
        } else {
            ((size - 1) / 2, SwapReason::Centred)
        };
        let table = page.0 & !(config.table_pages - 1);
        // Pages below page 0 are clipped like pages below the region; the window does not move up.
        let range = PageRange::new(page.0.saturating_sub(before), page.0 + size - before)
            .intersect(region)
            .intersect(PageRange::new(table, table + config.table_pages));
        VmaPlan { range, size, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: PageRange = PageRange::new(1000, 100_000);

    /// Windows of faults at these pages, with this many hits before each.
    fn windows(faults: &[(u64, u64)]) -> std::vec::Vec<(u64, u64, &'static str)> {
        let (mut vma, config) = (Vma::default(), SwapConfig::default());
        faults
            .iter()
            .map(|&(page, hits)| {
                for hit in 0..hits {
                    vma.on_hit(PageIndex(page - hits + hit), true);
                }
                let plan = vma.on_fault(PageIndex(page), REGION, &config);
                (plan.range.start.0, plan.range.count().0, plan.reason.name())
            })
            .collect()
    }

    #[test]
    fn a_region_is_assumed_sequential_until_its_hits_say_otherwise() {
        // Four initial hits give eight pages, centred since there was no earlier fault.
        assert_eq!(
            windows(&[(2000, 0), (2005, 4), (2013, 7)]),
            [(1997, 8, "centred"), (2005, 8, "forward"), (2013, 8, "forward")]
        );
    }

    #[test]
    fn random_touches_halve_the_window_until_one_page_is_left() {
        assert_eq!(
            windows(&[(2000, 0), (9000, 0), (5000, 0), (7000, 0)]),
            [(1997, 8, "centred"), (8999, 4, "centred"), (5000, 2, "centred"), (7000, 1, "single")]
        );
    }

    #[test]
    fn downward_steps_put_the_window_below_the_page() {
        assert_eq!(
            windows(&[(5000, 0), (4999, 0), (4998, 0)])[1..],
            [(4996, 4, "backward"), (4997, 2, "backward")]
        );
    }

    #[test]
    fn windows_stay_in_the_region_and_under_one_page_table() {
        assert_eq!(windows(&[(1000, 0)]), [(1000, 5, "centred")], "the region begins at 1000");
        assert_eq!(windows(&[(2047, 0)]), [(2044, 4, "centred")], "the table ends at 2048");
    }

    #[test]
    fn a_window_that_would_begin_below_page_0_is_clipped_not_moved() {
        let (config, region) = (SwapConfig::default(), PageRange::new(0, 100_000));
        let centred = Vma::default().on_fault(PageIndex(2), region, &config);
        assert_eq!(
            (centred.range, centred.size),
            (PageRange::new(0, 7), 8),
            "three below would be one below page 0"
        );
        let mut vma = Vma { last: PageIndex(2), ..Vma::default() };
        let backward = vma.on_fault(PageIndex(1), region, &config);
        assert_eq!((backward.range, backward.reason), (PageRange::new(0, 2), SwapReason::Backward));
    }

    #[test]
    fn hits_stop_at_63_and_a_plain_hit_moves_the_address_alone() {
        let mut vma = Vma::default();
        for _ in 0..100 {
            vma.on_hit(PageIndex(5), true);
        }
        assert_eq!(vma, Vma { last: PageIndex(5), size: 0, hits: 63 });
        vma.on_hit(PageIndex(9), false);
        assert_eq!(vma, Vma { last: PageIndex(9), size: 0, hits: 63 });
    }

    #[test]
    fn page_cluster_0_is_off() {
        let config = SwapConfig { page_cluster: 0, ..SwapConfig::default() };
        let plan = Vma::default().on_fault(PageIndex(2000), REGION, &config);
        assert_eq!((plan.range, plan.reason), (PageRange::new(2000, 2001), SwapReason::Single));
    }
}
