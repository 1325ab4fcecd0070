//! A part of a file that a table names: what of it was requested and read.

use std::ops::Range;

use crate::tables::Extent;

/// Bytes of a page of the kernel.
pub(super) const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Range<u64>,
    pub(super) group: u32,
    pub(super) column: u32,
    /// A reader has begun it.
    pub(super) is_begun: bool,
    /// It has added to the budget.
    pub(super) is_counted: bool,
    /// Its first byte was read, and its last one.
    pub(super) has_first: bool,
    pub(super) has_last: bool,
    /// What was requested of it.
    pub(super) requested: Option<Range<u64>>,
    /// Bytes of that which were not read.
    pub(super) unread: u64,
    /// Bytes read in order since a reader has requested more.
    pub(super) read_on: u64,
    /// Bytes of it that were read, each once.
    pub(super) used: u64,
    /// Those of them that were read just before its request. The kernel's requests for one read
    /// come in any order.
    pub(super) used_before: u64,
    /// End of the last read that overlaps it.
    pub(super) next: u64,
}

impl Chunk {
    pub(super) fn new(Extent { bytes, group, column }: Extent) -> Self {
        Self {
            bytes,
            group,
            column,
            is_begun: false,
            is_counted: false,
            has_first: false,
            has_last: false,
            requested: None,
            unread: 0,
            read_on: 0,
            used: 0,
            used_before: 0,
            next: 0,
        }
    }

    pub(super) fn first_page(&self) -> u64 {
        self.bytes.start / PAGE * PAGE
    }

    pub(super) fn last_page(&self) -> u64 {
        (self.bytes.end - 1) / PAGE * PAGE
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Where its next request begins, for a reader that is at byte `at`.
    pub(super) fn next_request(&self, at: u64) -> u64 {
        let from = self.requested.as_ref().map_or_else(|| self.first_page(), |requested| requested.end);
        from.max(at / PAGE * PAGE)
    }

    /// Whether nothing is left to request.
    pub(super) fn is_requested(&self) -> bool {
        self.requested.as_ref().is_some_and(|requested| requested.end >= self.bytes.end)
    }

    /// Whether its last read is one of the first ones in what was requested. A kernel that reads
    /// ahead past the end of a chunk looks like a reader of the next one.
    pub(super) fn is_just_begun(&self, first: u64) -> bool {
        self.requested
            .as_ref()
            .is_some_and(|requested| (requested.start..=requested.end).contains(&self.next))
            && self.next <= self.bytes.start + first
    }

    /// The kernel has no page of it any more.
    pub(super) fn forget_reads(&mut self) {
        (self.is_begun, self.has_first, self.has_last) = (false, false, false);
        self.requested = None;
        (self.unread, self.read_on, self.used_before) = (0, 0, 0);
    }
}

/// The same bytes in order, each once. The kernel's requests for small chunks overlap.
pub(super) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let overlaps = next.start <= last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    ranges
}
