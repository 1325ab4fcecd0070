//! Strided pages.

use crate::page::{PageIndex, PageRange};

/// `data` pages of each `length`, from `offset` on. The distance need not be a whole number of
/// pages.
///
/// ```text
///   |<---- length ---->|
///   |====..............|====..............|====....
///   offset
///   |<->| data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// The first page.
    pub offset: PageIndex,
    /// Pages from one block to the next; more than `data`.
    pub length: u64,
    /// 1024ths of a page that the distance of blocks has beyond `length`.
    pub part: u64,
    /// 1024ths of a page by which the first block begins after the start of `offset`; below 1024.
    pub phase: u64,
    /// Pages of each block; at least 1.
    pub data: u64,
}

/// Parts of a page, as a power of two.
pub(super) const PARTS_LOG: u32 = 10;

impl Stride {
    /// Blocks at a distance of whole pages.
    pub const fn new(offset: PageIndex, length: u64, data: u64) -> Self {
        Self { offset, length, part: 0, phase: 0, data }
    }

    /// Whether a page belongs to a block.
    pub fn contains(self, page: PageIndex) -> bool {
        page >= self.offset && self.within(page.0 - self.offset.0).1 < self.data
    }

    /// The first page of a block at or after `page`; the last page index if there is none.
    pub fn next(self, page: PageIndex) -> PageIndex {
        if page <= self.offset {
            return self.offset;
        }
        let (block, within) = self.within(page.0 - self.offset.0);
        if within < self.data {
            return page;
        }
        PageIndex(self.offset.0.saturating_add(self.start(block.saturating_add(1))))
    }

    /// Number of block pages in a range.
    pub fn count(self, range: PageRange) -> u64 {
        self.before(range.end).saturating_sub(self.before(range.start))
    }

    /// End of a range from `start` that holds `count` block pages.
    pub(super) fn after(self, start: PageIndex, count: u64) -> PageIndex {
        self.end_of(self.before(start).saturating_add(count))
    }

    /// End of the last block page before `end`; `offset` if there is none.
    pub(super) fn trim(self, end: PageIndex) -> PageIndex {
        self.end_of(self.before(end))
    }

    /// Number of block pages before `end`.
    fn before(self, end: PageIndex) -> u64 {
        let (block, within) = self.within(end.0.saturating_sub(self.offset.0));
        block.saturating_mul(self.data).saturating_add(within.min(self.data))
    }

    /// The block that begins at or before a page `past` pages after `offset`, and the pages from
    /// the block's start to that page.
    fn within(self, past: u64) -> (u64, u64) {
        if self.part == 0 {
            return (past / self.length, past % self.length);
        }
        let parts = |pages: u64| u128::from(pages) << PARTS_LOG;
        let block = (parts(past) + parts(1) - 1 - u128::from(self.phase))
            / (parts(self.length) + u128::from(self.part));
        // A block has no larger number than its pages.
        (block as u64, past - self.start(block as u64))
    }

    /// Pages from `offset` to the start of a block.
    fn start(self, block: u64) -> u64 {
        let parts = block.saturating_mul(self.part).saturating_add(self.phase);
        block.saturating_mul(self.length).saturating_add(parts >> PARTS_LOG)
    }

    /// End of the first `count` block pages.
    fn end_of(self, count: u64) -> PageIndex {
        let Some(last) = count.checked_sub(1) else { return self.offset };
        let past = self.start(last / self.data).saturating_add(last % self.data + 1);
        PageIndex(self.offset.0.saturating_add(past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_agrees_with_a_scan_of_all_pages() {
        let whole = [(0, 2, 1), (7, 10, 3), (5, 4, 3), (100, 17, 16)]
            .map(|(at, length, data)| (at, length, 0, 0, data));
        for (offset, length, part, phase, data) in whole.into_iter().chain([
            (0, 2, 512, 0, 1),
            (7, 10, 128, 1000, 3),
            (5, 4, 1023, 7, 3),
            (50, 17, 1, 1023, 16),
        ]) {
            let stride = Stride { offset: PageIndex(offset), length, part, phase, data };
            let starts: [u64; 200] =
                core::array::from_fn(|n| offset + (n as u64 * (length * 1024 + part) + phase) / 1024);
            let meant = |page: u64| starts.iter().any(|&start| page >= start && page - start < data);
            for start in 0..150 {
                assert_eq!(stride.contains(PageIndex(start)), meant(start));
                assert_eq!(stride.next(PageIndex(start)).0, (start..).find(|&page| meant(page)).unwrap());
                for end in start..160 {
                    let count = (start..end).filter(|&page| meant(page)).count() as u64;
                    assert_eq!(stride.count(PageRange::new(start, end)), count, "{stride:?} {start}..{end}");
                    if count > 0 {
                        let last = (start..end).rfind(|&page| meant(page)).unwrap();
                        assert_eq!(stride.after(PageIndex(start), count).0, last + 1);
                        assert_eq!(stride.trim(PageIndex(end)).0, last + 1);
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_page_index_does_not_overflow() {
        let stride = Stride::new(PageIndex(u64::MAX - 3), u64::MAX, 2);
        assert_eq!(stride.after(PageIndex(u64::MAX - 3), 5), PageIndex(u64::MAX));
        assert_eq!(stride.next(PageIndex(u64::MAX - 1)), PageIndex(u64::MAX));
    }
}
