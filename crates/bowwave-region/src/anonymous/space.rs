//! Allocation of the address space.

use bowwave_core::RangeSet;

use super::memory::Pages;

/// Free ranges of the address space.
#[derive(Debug, Default)]
pub(super) struct Space {
    free: RangeSet,
}

impl Space {
    /// A space of `pages` free pages.
    pub(super) fn new(pages: u64) -> Self {
        let mut space = Self::default();
        space.give(0..pages);
        space
    }

    /// Allocates the first free range of `pages` pages; large ranges are aligned to page tables.
    pub(super) fn take(&mut self, pages: u64) -> Option<Pages> {
        let align = if pages >= TABLE_PAGES { TABLE_PAGES } else { 1 };
        let range = self.free.ranges().find_map(|free| {
            let first = free.start.next_multiple_of(align);
            (first + pages <= free.end).then_some(first..first + pages)
        })?;
        self.free.remove(&range);
        Some(range)
    }

    /// Frees a range.
    pub(super) fn give(&mut self, pages: Pages) {
        self.free.insert(pages);
    }
}

/// Pages per page table.
const TABLE_PAGES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_allocated_once_aligned_and_merged() {
        let mut space = Space::new(4096);
        let small = space.take(3).expect("room");
        let large = space.take(600).expect("room");
        assert_eq!((small.clone(), large.clone()), (0..3, 512..1112));
        assert_eq!(space.take(509), Some(3..512));
        assert_eq!(space.take(4000), None);
        space.give(3..512);
        space.give(small);
        space.give(large);
        assert_eq!(space.take(4096), Some(0..4096), "all of it is one range again");
    }
}
