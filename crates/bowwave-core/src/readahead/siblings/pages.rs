//! A set of pages, as ranges.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Pages of a file. Ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageSet {
    /// End of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl PageSet {
    /// How many pages it has.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Its ranges.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Adds pages. Returns how many are new.
    pub(super) fn insert(&mut self, pages: Range<u64>) -> u64 {
        if pages.is_empty() {
            return 0;
        }
        let (mut start, mut end, mut had) = (pages.start, pages.end, 0);
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back()
            && last >= start
        {
            self.ranges.remove(&first);
            had += last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
        let new = end - start - had;
        self.count += new;
        new
    }

    /// Removes pages. Returns how many there were.
    pub(super) fn remove(&mut self, pages: Range<u64>) -> u64 {
        let mut removed = 0;
        if pages.is_empty() {
            return 0;
        }
        while let Some((&first, &last)) = self.ranges.range(..pages.end).next_back()
            && last > pages.start
        {
            self.ranges.remove(&first);
            if first < pages.start {
                self.ranges.insert(first, pages.start);
            }
            if last > pages.end {
                self.ranges.insert(pages.end, last);
            }
            removed += last.min(pages.end) - first.max(pages.start);
        }
        self.count -= removed;
        removed
    }

    /// How many of these pages it has.
    pub(super) fn common(&self, pages: Range<u64>) -> u64 {
        let with = |(&first, &last): (&u64, &u64)| last.min(pages.end).saturating_sub(first.max(pages.start));
        let before = self.ranges.range(..pages.start).next_back().map_or(0, with);
        before + self.ranges.range(pages.clone()).map(with).sum::<u64>()
    }

    /// The first consecutive pages among these that the set lacks; empty if it has all.
    pub(super) fn gap(&self, mut pages: Range<u64>) -> Range<u64> {
        if let Some((_, &last)) = self.ranges.range(..=pages.start).next_back() {
            pages.start = pages.start.max(last).min(pages.end);
        }
        if let Some((&first, _)) = self.ranges.range(pages.clone()).next() {
            pages.end = first;
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use alloc::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_set_of_single_pages() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut pages, mut model) = (PageSet::default(), BTreeSet::new());
            for _ in 0..100 {
                let start = random.below(60);
                let range = start..start + random.below(12);
                let inside = || range.clone().filter(|page| model.contains(page)).count() as u64;
                let common = inside();
                assert_eq!(pages.common(range.clone()), common, "seed {seed}: {range:?} in {pages:?}");
                let first = range.clone().find(|page| !model.contains(page)).unwrap_or(range.end);
                let after = (first..range.end).find(|page| model.contains(page)).unwrap_or(range.end);
                assert_eq!(pages.gap(range.clone()), first..after, "seed {seed}: {range:?} in {pages:?}");
                if random.below(2) == 0 {
                    assert_eq!(pages.insert(range.clone()), range.end - range.start - common, "seed {seed}");
                    model.extend(range);
                } else {
                    assert_eq!(pages.remove(range.clone()), common, "seed {seed}");
                    model.retain(|page| !range.contains(page));
                }
                assert_eq!(pages.count(), model.len() as u64, "seed {seed}");
            }
        }
    }
}
