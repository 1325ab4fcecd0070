//! Allocation of the address space.

use std::collections::BTreeMap;

use super::memory::Pages;

/// Free ranges of the address space.
#[derive(Debug)]
pub(super) struct Space {
    /// Length by first page.
    free: BTreeMap<u64, u64>,
}

impl Space {
    /// A space of `pages` free pages.
    pub(super) fn new(pages: u64) -> Self {
        Self { free: BTreeMap::from([(0, pages)]) }
    }

    /// Allocates the first free range of `pages` pages; large ranges are aligned to page tables.
    pub(super) fn take(&mut self, pages: u64) -> Option<Pages> {
        let align = if pages >= TABLE_PAGES { TABLE_PAGES } else { 1 };
        let (start, len, first) = self.free.iter().find_map(|(&start, &len)| {
            let first = start.next_multiple_of(align);
            (first + pages <= start + len).then_some((start, len, first))
        })?;
        self.free.remove(&start);
        if first > start {
            self.free.insert(start, first - start);
        }
        if first + pages < start + len {
            self.free.insert(first + pages, start + len - first - pages);
        }
        Some(first..first + pages)
    }

    /// Frees a range.
    pub(super) fn give(&mut self, pages: &Pages) {
        let (mut start, mut len) = (pages.start, pages.end - pages.start);
        if let Some(next) = self.free.remove(&pages.end) {
            len += next;
        }
        if let Some((&before, &count)) = self.free.range(..start).next_back()
            && before + count == start
        {
            self.free.remove(&before);
            start = before;
            len += count;
        }
        self.free.insert(start, len);
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
        space.give(&(3..512));
        space.give(&small);
        space.give(&large);
        assert_eq!(space.take(4096), Some(0..4096), "all of it is one range again");
    }
}
