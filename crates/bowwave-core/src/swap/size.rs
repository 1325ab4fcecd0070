//! Window sizes.

use super::ConfigError;

/// Log2 of the largest window by addresses, in pages (Linux's `SWAP_RA_ORDER_CEILING`).
const VMA_ORDER_MAX: u32 = 5;
/// Largest `page_cluster` (`vm.page-cluster`).
const PAGE_CLUSTER_MAX: u32 = 31;

/// Parameters of swap readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapConfig {
    /// Logarithm of the largest window in pages (`vm.page-cluster`); 0 turns readahead off.
    pub page_cluster: u32,
    /// Pages that share a page table; a window by addresses stays among them. A power of two.
    pub table_pages: u64,
}

impl Default for SwapConfig {
    fn default() -> Self {
        Self { page_cluster: 3, table_pages: 512 }
    }
}

impl SwapConfig {
    /// Checks the bounds.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { page_cluster, table_pages } = *self;
        ConfigError::check([
            ("page_cluster", page_cluster.into(), page_cluster <= PAGE_CLUSTER_MAX, "at most 31"),
            ("table_pages", table_pages, table_pages.is_power_of_two(), "a power of two"),
        ])
    }

    /// Maximum pages of a window by slots.
    pub fn block_max(&self) -> u64 {
        1 << self.page_cluster.min(PAGE_CLUSTER_MAX)
    }

    /// Maximum pages of a window by addresses.
    pub(super) fn vma_max(&self) -> u64 {
        1 << self.page_cluster.min(VMA_ORDER_MAX)
    }
}

/// Pages of the next window, by the `hits` of the last one, which had `last` pages.
///
/// `hits` plus two, rounded up to a power of two, at least four. Without hits, two if `place` is
/// next to `previous`, else one. At most `max`, yet at least half of `last`: Linux applies the
/// floor after the cap (`__swapin_nr_pages`).
pub fn window_size(previous: u64, place: u64, hits: u64, max: u64, last: u64) -> u64 {
    let wanted = if hits == 0 {
        if previous.abs_diff(place) == 1 { 2 } else { 1 }
    } else {
        (hits.saturating_add(2)).checked_next_power_of_two().unwrap_or(u64::MAX).max(4)
    };
    wanted.min(max).max(last / 2)
}

#[cfg(test)]
mod tests {
    use super::window_size;

    #[test]
    fn sizes_follow_hits_in_powers_of_two() {
        let sizes = [1, 2, 3, 6, 7, 14, 15, 30, 63].map(|hits| window_size(0, 100, hits, 64, 0));
        assert_eq!(sizes, [4, 4, 8, 8, 16, 16, 32, 32, 64]);
        assert_eq!(window_size(0, 100, 14, 8, 0), 8, "capped");
    }

    #[test]
    fn without_hits_only_an_adjacent_page_gets_two() {
        assert_eq!([99, 101, 98, 100].map(|place| window_size(100, place, 0, 8, 0)), [2, 2, 1, 1]);
    }

    #[test]
    fn a_window_halves_at_most_even_above_a_lowered_cap() {
        assert_eq!([8, 4, 2, 1].map(|last| window_size(0, 100, 0, 8, last)), [4, 2, 1, 1]);
        assert_eq!(window_size(0, 100, 0, 2, 16), 8);
    }
}
