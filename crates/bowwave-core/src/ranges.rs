//! A set of numbers, as ranges.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// A set of numbers. Ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// End of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Its ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Adds a range. Returns the number of new elements.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end, mut had) = (range.start, range.end, 0);
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

    /// Removes a range. Returns the number of elements removed.
    pub fn remove(&mut self, range: &Range<u64>) -> u64 {
        let before = self.count;
        while self.remove_last(range).is_some() {}
        before - self.count
    }

    /// Removes the last consecutive numbers within a range, and returns them.
    pub fn remove_last(&mut self, within: &Range<u64>) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..within.end).next_back()?;
        let part = start.max(within.start)..end.min(within.end);
        if part.is_empty() {
            return None;
        }
        self.ranges.remove(&start);
        if start < part.start {
            self.ranges.insert(start, part.start);
        }
        if part.end < end {
            self.ranges.insert(part.end, end);
        }
        self.count -= part.end - part.start;
        Some(part)
    }

    /// Number of elements within a range.
    pub fn common(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let with = |(&first, &last): (&u64, &u64)| last.min(range.end).saturating_sub(first.max(range.start));
        let before = self.ranges.range(..range.start).next_back().map_or(0, with);
        before + self.ranges.range(range.clone()).map(with).sum::<u64>()
    }

    /// The first consecutive numbers of a range that the set lacks; empty if it has all.
    pub fn gap(&self, mut range: Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return range;
        }
        if let Some((_, &last)) = self.ranges.range(..=range.start).next_back() {
            range.start = range.start.max(last).min(range.end);
        }
        if let Some((&first, _)) = self.ranges.range(range.clone()).next() {
            range.end = first;
        }
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use alloc::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_set_of_single_numbers() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..100 {
                let start = random.below(60);
                let range = start..start + random.below(12);
                let inside = || range.clone().filter(|number| model.contains(number)).count() as u64;
                let common = inside();
                assert_eq!(set.common(range.clone()), common, "seed {seed}: {range:?} in {set:?}");
                let first = range.clone().find(|number| !model.contains(number)).unwrap_or(range.end);
                let after = (first..range.end).find(|number| model.contains(number)).unwrap_or(range.end);
                assert_eq!(set.gap(range.clone()), first..after, "seed {seed}: {range:?} in {set:?}");
                if random.below(2) == 0 {
                    assert_eq!(set.insert(range.clone()), range.end - range.start - common, "seed {seed}");
                    model.extend(range);
                } else {
                    assert_eq!(set.remove(&range), common, "seed {seed}");
                    model.retain(|number| !range.contains(number));
                }
                assert_eq!(set.count(), model.len() as u64, "seed {seed}");
            }
        }
    }
}
