//! Layout of an upload: how written parts become parts of the upload.
//!
//! Clouds accept 10,000 parts (Azure 50,000). The engine writes small parts, so that little memory
//! is dirty. The first parts of an upload are the engine's; later ones, called slots, hold several:
//!
//! ```text
//!   bytes  |== copied ==| p | p | p | … | p p | p p | … | p p p | …
//!   slot    0   1   …     n  n+1 n+2      two parts each   three
//! ```
//!
//! When an earlier version is continued, the server copies its beginning in a few large slots.

use std::ops::Range;

/// Sizes of slots; tests use smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Bytes of a written part, a power of two.
    pub(super) part: u64,
    /// Slots of one part, before slots grow.
    pub(super) singles: u64,
    /// Bytes of a copied slot, a multiple of `part`.
    pub(super) copy: u64,
    /// Objects of fewer parts than this are continued part by part, so that each part can be
    /// rewritten.
    pub(super) copied_singly: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        // 1500 parts are 12 GiB; few objects are larger. Clouds copy up to 5 GiB at once, in a time
        // that grows with the size.
        Self { part: 8 << 20, singles: 1500, copy: 2 << 30, copied_singly: 64 }
    }
}

/// The slots of one upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    sizes: Sizes,
    /// Copied bytes at the beginning: a multiple of a part, or 0.
    copied: u64,
}

impl Plan {
    pub(super) fn new(sizes: Sizes, copied: u64) -> Self {
        debug_assert!(copied.is_multiple_of(sizes.part), "copies end where a part begins");
        Self { sizes, copied }
    }

    /// Bytes at the beginning that cannot be rewritten.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// The slot of `offset`.
    pub(super) fn slot_at(&self, offset: u64) -> usize {
        if offset < self.copied {
            return count(offset / self.sizes.copy);
        }
        let part = (offset - self.copied) / self.sizes.part;
        // The last slot that begins at or before the part.
        let (mut low, mut high) = (0, part + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.first_part(middle) <= part {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.copies() + count(low)
    }

    /// The bytes of a slot, in an endless object.
    pub(super) fn range(&self, slot: usize) -> Range<u64> {
        if slot < self.copies() {
            let start = slot as u64 * self.sizes.copy;
            return start..(start + self.sizes.copy).min(self.copied);
        }
        let slot = (slot - self.copies()) as u64;
        let at = |slot| self.copied + self.first_part(slot) * self.sizes.part;
        at(slot)..at(slot + 1)
    }

    /// Slots of an object of `size` bytes.
    pub(super) fn slots(&self, size: u64) -> usize {
        if size == 0 { 0 } else { self.slot_at(size - 1) + 1 }
    }

    fn copies(&self) -> usize {
        count(self.copied.div_ceil(self.sizes.copy))
    }

    /// Parts before slot `slot`, not counting copied bytes: slots have one part at first, then one
    /// more every [`STEP`] slots.
    fn first_part(&self, slot: u64) -> u64 {
        let grown = slot.saturating_sub(self.sizes.singles);
        let (steps, rest) = (grown / STEP, grown % STEP);
        // Each earlier step has STEP slots of 2, 3, … parts; slots of this step have `steps + 2`.
        slot.min(self.sizes.singles) + STEP * (steps * (steps + 3) / 2) + rest * (steps + 2)
    }
}

fn count(count: u64) -> usize {
    usize::try_from(count).expect("an object has fewer slots than memory has bytes")
}

/// Slots of one size; 5 TiB then fit into 10,000 slots, also after copied bytes.
const STEP: u64 = 55;
/// Largest object that clouds accept.
pub(super) const OBJECT_BYTES_MAX: u64 = 5 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 8 << 20;
    const COPY: u64 = 2 << 30;
    const TIB: u64 = 1 << 40;

    fn plan(copied: u64) -> Plan {
        Plan::new(Sizes::default(), copied)
    }

    #[test]
    fn slots_lie_side_by_side_and_grow() {
        for copied in [0, 3 * PART, COPY, COPY + 5 * PART] {
            let plan = plan(copied);
            let (mut end, mut last) = (0, 0);
            for slot in 0..4000 {
                let range = plan.range(slot);
                assert_eq!(range.start, end, "slot {slot}");
                assert_eq!(plan.slot_at(range.start), slot);
                assert_eq!(plan.slot_at(range.end - 1), slot);
                assert!(range.start >= copied || range.end <= copied, "no slot is half copied");
                let size = range.end - range.start;
                assert!(range.start < copied || size >= last, "slots do not shrink");
                (end, last) = (range.end, if range.start < copied { 0 } else { size });
            }
        }
        let plan = plan(0);
        assert_eq!(plan.range(1499), 1499 * PART..1500 * PART);
        assert_eq!(plan.range(1500), 1500 * PART..1502 * PART);
        assert_eq!((plan.slots(0), plan.slots(1), plan.slots(PART), plan.slots(PART + 1)), (0, 1, 1, 2));
    }

    /// 10,000 parts of 5 MiB to 5 GiB, except the last, as S3 requires; with little memory.
    #[test]
    fn the_largest_object_fits_wherever_its_copied_beginning_ends() {
        for copied in [0, PART, 64 * PART, TIB / 2, TIB, 2 * TIB, 4 * TIB, 5 * TIB - PART] {
            let plan = plan(copied);
            let slots = plan.slots(OBJECT_BYTES_MAX);
            assert!(slots <= 10_000, "{slots} slots behind {copied} bytes");
            for slot in 0..slots - 1 {
                let range = plan.range(slot);
                let size = range.end - range.start;
                assert!((5 << 20..=5 << 30).contains(&size), "slot {slot} has {size} bytes");
            }
            let last = plan.range(slots - 1);
            assert!(last.end - last.start <= 160 * PART + COPY, "{last:?}");
        }
        // Bytes of a slot in so large an object: the memory needed to send it.
        let plan = plan(0);
        let held = |at: u64| plan.range(plan.slot_at(at)).end - plan.range(plan.slot_at(at)).start;
        assert_eq!([held(1 << 30), held(100 << 30), held(TIB)].map(|bytes| bytes / PART), [1, 20, 69]);
    }
}
