//! A set of pages; compact for adjacent pages.

use alloc::collections::BTreeMap;

use crate::page::{PageIndex, PageRange};

/// Pages of a chunk: the bits of a word.
const CHUNK: u64 = u64::BITS as u64;

/// Pages of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct PageSet {
    chunks: BTreeMap<u64, u64>,
    len: u64,
}

impl PageSet {
    /// Adds a page; returns whether it is new.
    pub(super) fn insert(&mut self, page: PageIndex) -> bool {
        let chunk = self.chunks.entry(page.0 / CHUNK).or_default();
        let is_new = *chunk & bit(page) == 0;
        *chunk |= bit(page);
        self.len += u64::from(is_new);
        is_new
    }

    /// Removes a page; returns whether it was present.
    pub(super) fn remove(&mut self, page: PageIndex) -> bool {
        let Some(chunk) = self.chunks.get_mut(&(page.0 / CHUNK)) else { return false };
        let had = *chunk & bit(page) != 0;
        *chunk &= !bit(page);
        if *chunk == 0 {
            self.chunks.remove(&(page.0 / CHUNK));
        }
        self.len -= u64::from(had);
        had
    }

    pub(super) fn contains(&self, page: PageIndex) -> bool {
        self.chunks.get(&(page.0 / CHUNK)).is_some_and(|chunk| chunk & bit(page) != 0)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages of a range, in order.
    pub(super) fn within(&self, range: PageRange) -> impl Iterator<Item = PageIndex> + '_ {
        let (first, last) = (range.start.0 / CHUNK, range.end.0.saturating_sub(1) / CHUNK);
        self.chunks
            .range(first..=last.max(first))
            .flat_map(|(&chunk, &bits)| Bits(bits).map(move |at| PageIndex(chunk * CHUNK + at)))
            .filter(move |&page| range.contains(page))
    }

    /// The first run at or after `page`, of at most `max` pages.
    pub(super) fn run_from(&self, page: PageIndex, max: u64) -> Option<PageRange> {
        let mut pages = self.within(PageRange { start: page, end: PageIndex(u64::MAX) });
        let start = pages.next()?;
        let mut end = start.0 + 1;
        while end - start.0 < max && pages.next() == Some(PageIndex(end)) {
            end += 1;
        }
        Some(PageRange { start, end: PageIndex(end) })
    }

    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.len = 0;
    }
}

const fn bit(page: PageIndex) -> u64 {
    1 << (page.0 % CHUNK)
}

/// Iterates over the set bits of a word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (u64::from(at) < CHUNK).then_some(u64::from(at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn behaves_like_a_set() {
        let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
        let mut state = 7u64;
        for step in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (state >> 40) % 300;
            if state >> 63 == 0 {
                assert_eq!(set.insert(PageIndex(page)), model.insert(page), "step {step}");
            } else {
                assert_eq!(set.remove(PageIndex(page)), model.remove(&page), "step {step}");
            }
            assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
            let range = PageRange::new(page / 2, page);
            let within: Vec<u64> = set.within(range).map(|page| page.0).collect();
            assert_eq!(within, model.range(page / 2..page).copied().collect::<Vec<_>>(), "step {step}");
            let first = model.range(page..).next().copied();
            let run = first.map(|first| {
                let len = (first..first + 5).take_while(|page| model.contains(page)).count() as u64;
                PageRange::new(first, first + len)
            });
            assert_eq!(set.run_from(PageIndex(page), 5), run, "step {step}");
            assert_eq!(set.contains(PageIndex(page)), model.contains(&page));
        }
    }
}
