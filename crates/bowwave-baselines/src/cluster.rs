//! Swap readahead by slots: an aligned block of the store around the touched page's slot.

use alloc::boxed::Box;

use bowwave_core::swap::pager::{PageId, SwapWindow};
use bowwave_core::swap::{
    SlotIndex, SwapFault, SwapPlan, SwapPolicy, SwapPolicyKind, SwapReadahead, SwapReason, window_size,
};

/// Linux before 4.14, and today on rotating disks: the aligned block of slots around the touched
/// page's slot. The number of hits in all regions determines its size.
pub const CLUSTER: SwapPolicy = SwapPolicy::Other(&ClusterKind);

/// Every swap policy: those of `bowwave-core` and those of this crate, as reports order them.
pub const SWAP: [SwapPolicy; 4] = [SwapPolicy::None, CLUSTER, SwapPolicy::Vma, SwapPolicy::Adaptive];

/// The policy that Linux chooses for a store: by virtual address, but by slot if the store is
/// `rotating`: there only adjacent slots are cheap.
pub const fn swap_for_store(rotating: bool) -> SwapPolicy {
    if rotating { CLUSTER } else { SwapPolicy::Vma }
}

#[derive(Debug)]
struct ClusterKind;

impl SwapPolicyKind for ClusterKind {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn build(&self) -> Box<dyn SwapReadahead> {
        Box::new(Cluster::default())
    }
}

/// The state of the machine, for all regions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cluster {
    hits: u64,
    previous: SlotIndex,
    last_size: u64,
}

/// Initial value of the hit counter, as in Linux.
const HITS_AT_FIRST: u64 = 4;

impl Default for Cluster {
    fn default() -> Self {
        Self { hits: HITS_AT_FIRST, previous: SlotIndex(0), last_size: 0 }
    }
}

impl SwapReadahead for Cluster {
    fn on_hit(&mut self, _page: PageId) {
        self.hits = self.hits.saturating_add(1);
    }

    fn on_fault(&mut self, SwapFault { slot, slots, config, .. }: SwapFault) -> SwapPlan {
        let hits = core::mem::take(&mut self.hits);
        let size = window_size(self.previous.0, slot.0, hits, config.block_max(), self.last_size);
        // As in Linux, a window sized by hits does not update the previous slot.
        if hits == 0 {
            self.previous = slot;
        }
        self.last_size = size;
        // Sizes are powers of two.
        let block = slot.0 & !(size - 1);
        let reason = if size == 1 { SwapReason::Single } else { SwapReason::Block };
        SwapPlan { window: SwapWindow::Slots(block.max(1)..(block + size).min(slots)), size, reason }
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;
    use std::vec::Vec;

    use bowwave_core::PageIndex;
    use bowwave_core::swap::SwapConfig;
    use bowwave_core::swap::pager::RegionId;

    use super::*;

    const PAGE: PageId = PageId { region: RegionId(0), page: PageIndex(0) };

    fn fault(cluster: &mut Cluster, slot: u64) -> Range<u64> {
        let config = SwapConfig::default();
        let plan = cluster.on_fault(SwapFault { page: PAGE, slot: SlotIndex(slot), slots: 1003, config });
        let SwapWindow::Slots(slots) = plan.window else { panic!("{plan:?}") };
        slots
    }

    fn faults(slots: &[u64]) -> Vec<Range<u64>> {
        let mut cluster = Cluster::default();
        slots.iter().map(|&slot| fault(&mut cluster, slot)).collect()
    }

    #[test]
    fn the_first_block_has_eight_slots_without_the_header() {
        assert_eq!(faults(&[5])[0], 1..8);
        assert_eq!(faults(&[1001])[0], 1000..1003, "clipped at the end of the store");
    }

    #[test]
    fn blocks_halve_without_hits_and_neighbours_keep_two() {
        assert_eq!(faults(&[100, 300, 500, 700, 701]), [96..104, 300..304, 500..502, 700..701, 700..702]);
    }

    #[test]
    fn hits_of_any_region_grow_the_next_block_of_any_region() {
        let mut cluster = Cluster::default();
        for slot in [100, 300, 500, 700] {
            fault(&mut cluster, slot);
        }
        cluster.on_hit(PAGE);
        assert_eq!(fault(&mut cluster, 901), 900..904);
        // That window kept the position 700.
        assert_eq!(cluster.previous, SlotIndex(700));
    }
}
