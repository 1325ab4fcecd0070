//! By slots: an aligned block of the device around the touched page's slot, sized by the hits of all regions together.

use core::ops::Range;

use super::SwapReason;
use super::size::{SwapConfig, window_size};

/// Position of a page on the spill store. Slot 0 holds the store's header and is no page's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u64);

/// Slots of a window and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Slots to bring in, those in use; the touched page's is among them.
    pub slots: Range<u64>,
    /// Size before it was clipped.
    pub size: u64,
    /// Block or single.
    pub reason: SwapReason,
}

/// What the machine remembers, for all regions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    hits: u64,
    previous: SlotIndex,
    last_size: u64,
}

/// As Linux's counter starts.
const HITS_AT_FIRST: u64 = 4;

impl Default for Cluster {
    fn default() -> Self {
        Self { hits: HITS_AT_FIRST, previous: SlotIndex(0), last_size: 0 }
    }
}

impl Cluster {
    /// A touch found its page in memory, where readahead had put it.
    pub fn on_hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
    }

    /// A touch found its page out, at `slot` of a store of `slots` slots.
    pub fn on_fault(&mut self, slot: SlotIndex, slots: u64, config: &SwapConfig) -> SlotRange {
        let hits = core::mem::take(&mut self.hits);
        let size = window_size(self.previous.0, slot.0, hits, config.block_max(), self.last_size);
        // As Linux does: a window that hits brought about leaves the place alone.
        if hits == 0 {
            self.previous = slot;
        }
        self.last_size = size;
        // Sizes are powers of two: the cap and half of one are.
        let block = slot.0 & !(size - 1);
        let reason = if size == 1 { SwapReason::Single } else { SwapReason::Block };
        SlotRange { slots: block.max(1)..(block + size).min(slots), size, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(slots: &[u64]) -> std::vec::Vec<Range<u64>> {
        let (mut cluster, config) = (Cluster::default(), SwapConfig::default());
        slots.iter().map(|&slot| cluster.on_fault(SlotIndex(slot), 1003, &config).slots).collect()
    }

    #[test]
    fn the_first_block_has_eight_slots_and_the_header_is_left_out() {
        assert_eq!(faults(&[5])[0], 1..8);
        assert_eq!(faults(&[1001])[0], 1000..1003, "clipped at the end of the store");
    }

    #[test]
    fn blocks_halve_without_hits_and_neighbours_keep_two() {
        assert_eq!(faults(&[100, 300, 500, 700, 701]), [96..104, 300..304, 500..502, 700..701, 700..702]);
    }

    #[test]
    fn hits_of_anyone_grow_the_next_block_of_anyone() {
        let (mut cluster, config) = (Cluster::default(), SwapConfig::default());
        for slot in [100, 300, 500, 700] {
            cluster.on_fault(SlotIndex(slot), 1003, &config);
        }
        cluster.on_hit();
        assert_eq!(cluster.on_fault(SlotIndex(901), 1003, &config).slots, 900..904);
        // That window left the place at 700.
        assert_eq!(cluster.previous, SlotIndex(700));
    }
}
