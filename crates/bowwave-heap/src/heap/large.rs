//! Large allocations and maps: one region each.

use std::collections::BTreeMap;
use std::ops::Range;

use bowwave_region::{RegionAdvice, SwapRegion};

use crate::libc_heap::PAGE;

/// A region and the part in use by the program.
pub(super) struct Large {
    region: SwapRegion,
    /// Addresses in use; whole pages except at the end.
    used: Range<usize>,
    /// Unmapped pages in between.
    unmapped: Vec<Range<usize>>,
}

/// The part of a region in use around an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) used: Range<usize>,
}

impl Large {
    /// Allocates `size` aligned bytes of a region.
    pub(super) fn new(region: SwapRegion, align: usize, size: usize) -> Self {
        let start = (region.as_ptr() as usize).next_multiple_of(align);
        Self { region, used: start..start + size, unmapped: Vec::new() }
    }

    fn region_end(&self) -> usize {
        self.region.as_ptr() as usize + self.region.len()
    }

    /// Discards the pages of a range.
    fn drop_pages(&mut self, range: &Range<usize>) {
        self.advise(range, RegionAdvice::DontNeed);
    }

    fn advise(&mut self, range: &Range<usize>, advice: RegionAdvice) {
        let base = self.region.as_ptr() as usize;
        let range = range.start.max(base)..range.end.min(self.region_end());
        if range.start < range.end {
            let advised = self.region.advise(range.start - base..range.end - base, advice);
            debug_assert!(advised.is_ok(), "{advised:?}");
        }
    }
}

/// By first address in use.
#[derive(Default)]
pub(super) struct Larges(BTreeMap<usize, Large>);

impl Larges {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one; returns its first address.
    pub(super) fn put(&mut self, large: Large) -> usize {
        let start = large.used.start;
        self.0.insert(start, large);
        start
    }

    /// Removes the one at this address; returns whether it existed.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        self.0.remove(&at).is_some()
    }

    pub(super) fn usable(&self, at: usize) -> Option<usize> {
        self.0.get(&at).map(|large| large.used.len())
    }

    /// Resizes the one at this address in place; returns whether that was possible.
    pub(super) fn resize(&mut self, at: usize, size: usize) -> bool {
        let Some(large) = self.0.get_mut(&at) else { return false };
        let end = at.saturating_add(size);
        if end > large.region_end() {
            return false;
        }
        let before = large.used.end;
        large.used.end = end;
        if end < before {
            large.drop_pages(&(end.next_multiple_of(PAGE)..before.next_multiple_of(PAGE)));
        }
        true
    }

    /// The one around an address.
    pub(super) fn part(&self, at: usize) -> Option<Part> {
        let (_, large) = self.0.range(..=at).next_back()?;
        let used = large.used.start..large.used.end.next_multiple_of(PAGE);
        used.contains(&at).then_some(Part { used })
    }

    /// Those that overlap a range.
    fn in_range(&mut self, range: &Range<usize>) -> impl Iterator<Item = (&usize, &mut Large)> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        self.0.range_mut(first..range.end.max(first)).filter(|(_, large)| {
            large.used.start < range.end && range.start < large.used.end.next_multiple_of(PAGE)
        })
    }

    /// Unmaps the pages of a range.
    pub(super) fn unmap(&mut self, range: &Range<usize>) {
        let mut ended = Vec::new();
        for (&start, large) in self.in_range(range) {
            let end = large.used.end.next_multiple_of(PAGE);
            let part = range.start.max(large.used.start)..range.end.min(end);
            large.drop_pages(&part);
            large.unmapped.push(part);
            if covers(&mut large.unmapped, &(large.used.start..end)) {
                ended.push(start);
            }
        }
        for start in ended {
            self.0.remove(&start);
        }
    }

    /// Applies advice; returns whether a part of the range is allocated.
    pub(super) fn advise(&mut self, range: &Range<usize>, advice: RegionAdvice) -> bool {
        let mut some = false;
        for (_, large) in self.in_range(range) {
            large.advise(range, advice);
            some = true;
        }
        some
    }
}

/// Whether `parts` cover a range; joins adjacent ones.
fn covers(parts: &mut Vec<Range<usize>>, range: &Range<usize>) -> bool {
    parts.sort_by_key(|part| part.start);
    parts.dedup_by(|next, last| {
        let meets = next.start <= last.end;
        if meets {
            last.end = last.end.max(next.end);
        }
        meets
    });
    parts.first().is_some_and(|first| first.start <= range.start && range.end <= first.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_merge() {
        let mut parts = vec![8..12, 0..4];
        assert!(!covers(&mut parts, &(0..12)));
        parts.push(3..8);
        assert!(covers(&mut parts, &(0..12)) && parts.len() == 1);
        assert!(!covers(&mut parts, &(0..13)));
    }
}
