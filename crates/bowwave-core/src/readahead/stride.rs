//! Strided pages.

use crate::page::{PageIndex, PageRange};

/// `data` pages of each `length`, from `offset` on.
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
    /// Pages of each block; at least 1.
    pub data: u64,
}

impl Stride {
    /// Whether a page belongs to a block.
    pub fn contains(self, page: PageIndex) -> bool {
        page >= self.offset && (page.0 - self.offset.0) % self.length < self.data
    }

    /// The first page of a block at or after `page`; the last page index if there is none.
    pub fn next(self, page: PageIndex) -> PageIndex {
        if page <= self.offset {
            return self.offset;
        }
        let left = (page.0 - self.offset.0) % self.length;
        if left < self.data { page } else { PageIndex(page.0.saturating_add(self.length - left)) }
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
        let past = end.0.saturating_sub(self.offset.0);
        (past / self.length).saturating_mul(self.data).saturating_add((past % self.length).min(self.data))
    }

    /// End of the first `count` block pages.
    fn end_of(self, count: u64) -> PageIndex {
        let Some(last) = count.checked_sub(1) else { return self.offset };
        let past = (last / self.data).saturating_mul(self.length).saturating_add(last % self.data + 1);
        PageIndex(self.offset.0.saturating_add(past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_agrees_with_a_scan_of_all_pages() {
        for (offset, length, data) in [(0, 2, 1), (7, 10, 3), (5, 4, 3), (100, 17, 16)] {
            let stride = Stride { offset: PageIndex(offset), length, data };
            let meant = |page: u64| page >= offset && (page - offset) % length < data;
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
        let stride = Stride { offset: PageIndex(u64::MAX - 3), length: u64::MAX, data: 2 };
        assert_eq!(stride.after(PageIndex(u64::MAX - 3), 5), PageIndex(u64::MAX));
        assert_eq!(stride.next(PageIndex(u64::MAX - 1)), PageIndex(u64::MAX));
    }
}
