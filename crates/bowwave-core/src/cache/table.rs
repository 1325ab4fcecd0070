//! The page table: from (file, page index) to a frame, or to the shadow of an evicted page.
//!
//! A hash table of leaves of 16 adjacent pages. A run of pages costs one lookup, memory is bounded
//! for any offsets (a radix tree grows a path for each distant page), and order never depends on an
//! address. The leaves of a file are linked, so dropping a file needs no search.

use alloc::vec::Vec;

use crate::id::{FileId, FrameId};
use crate::page::{PageIndex, PageRange};

/// Pages of a leaf.
pub(crate) const LEAF_PAGES: u64 = 16;
/// No leaf; as a slot, neither a frame nor a shadow.
const NONE: u32 = u32::MAX;

/// Maps pages to slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    /// Open addressing, linear probing, a power of two long and at most half full; leaf number or
    /// `NONE`.
    buckets: Vec<u32>,
    leaves: Vec<Leaf>,
    /// Leaves not in use.
    free: Vec<u32>,
    /// First leaf of each file, by file number.
    files: Vec<u32>,
}

/// The entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// The shadow of an evicted page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// The eviction clock at its eviction, modulo 2^30.
    pub(crate) age: u32,
    /// It was read ahead and never used.
    pub(crate) unused: bool,
}

#[derive(Clone, Debug)]
struct Leaf {
    /// Page index divided by `LEAF_PAGES`.
    chunk: u64,
    file: u32,
    /// Neighbours in the list of the file's leaves.
    prev: u32,
    next: u32,
    /// Occupied slots.
    live: u32,
    slots: [Slot; LEAF_PAGES as usize],
}

impl Slot {
    pub(crate) const EMPTY: Self = Self(NONE);
    /// Set for a shadow; frames stay below it ([`Config::UNLIMITED`](crate::Config::UNLIMITED)).
    const SHADOW: u32 = 1 << 31;
    /// Set for a shadow of an unused page.
    const UNUSED: u32 = 1 << 30;
    /// Bits of a shadow's age.
    pub(crate) const AGE_MASK: u32 = Self::UNUSED - 1;

    pub(crate) const fn of_frame(frame: FrameId) -> Self {
        Self(frame.0)
    }

    pub(crate) const fn of_shadow(shadow: Shadow) -> Self {
        // An age that would collide with the empty slot is rounded: distances are estimates.
        let age = if shadow.age & Self::AGE_MASK == Self::AGE_MASK { 0 } else { shadow.age & Self::AGE_MASK };
        Self(Self::SHADOW | if shadow.unused { Self::UNUSED } else { 0 } | age)
    }

    pub(crate) const fn frame(self) -> Option<FrameId> {
        if self.0 & Self::SHADOW == 0 { Some(FrameId(self.0)) } else { None }
    }

    /// The frame, or a number that no frame has.
    pub(crate) const fn number(self) -> FrameId {
        FrameId(self.0)
    }

    pub(crate) const fn shadow(self) -> Option<Shadow> {
        if self.0 != NONE && self.0 & Self::SHADOW != 0 {
            Some(Shadow { age: self.0 & Self::AGE_MASK, unused: self.0 & Self::UNUSED != 0 })
        } else {
            None
        }
    }
}

impl PageTable {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self { buckets: Vec::new(), leaves: Vec::new(), free: Vec::new(), files: Vec::new() }
    }

    /// The slot of `page`.
    pub(crate) fn get(&self, file: FileId, page: PageIndex) -> Slot {
        match self.leaf(file, page) {
            Some(slots) => slots[slot_of(page)],
            None => Slot::EMPTY,
        }
    }

    /// The slots of the leaf that holds `page`, if it has any.
    pub(crate) fn leaf(&self, file: FileId, page: PageIndex) -> Option<&[Slot; LEAF_PAGES as usize]> {
        self.find(file.0, page.0 / LEAF_PAGES).map(|(_, leaf)| &self.leaves[leaf as usize].slots)
    }

    /// The first page of a range that has no frame.
    pub(crate) fn next_absent(&self, file: FileId, range: PageRange) -> Option<PageIndex> {
        let mut page = range.start.0;
        while page < range.end.0 {
            let Some(slots) = self.leaf(file, PageIndex(page)) else { return Some(PageIndex(page)) };
            let leaf_start = page - page % LEAF_PAGES;
            // Both are offsets within a leaf.
            let (from, to) = (page - leaf_start, LEAF_PAGES.min(range.end.0 - leaf_start));
            if let Some(past) =
                slots[from as usize..to as usize].iter().position(|slot| slot.frame().is_none())
            {
                return Some(PageIndex(page + past as u64));
            }
            page = leaf_start.saturating_add(LEAF_PAGES);
        }
        None
    }

    /// Sets the slot of `page`; returns the previous one.
    pub(crate) fn set(&mut self, file: FileId, page: PageIndex, slot: Slot) -> Slot {
        let chunk = page.0 / LEAF_PAGES;
        let (bucket, leaf) = match self.find(file.0, chunk) {
            Some(found) => found,
            None if slot == Slot::EMPTY => return Slot::EMPTY,
            None => self.insert_leaf(file.0, chunk),
        };
        let entry = &mut self.leaves[leaf as usize];
        let old = core::mem::replace(&mut entry.slots[slot_of(page)], slot);
        entry.live += u32::from(slot != Slot::EMPTY);
        entry.live -= u32::from(old != Slot::EMPTY);
        if entry.live == 0 {
            self.remove_leaf(bucket, leaf);
        }
        old
    }

    /// Empties the slot of `page` if it is `slot`; returns whether it was.
    pub(crate) fn remove(&mut self, file: FileId, page: PageIndex, slot: Slot) -> bool {
        let Some((bucket, leaf)) = self.find(file.0, page.0 / LEAF_PAGES) else { return false };
        let entry = &mut self.leaves[leaf as usize];
        let place = &mut entry.slots[slot_of(page)];
        if *place != slot {
            return false;
        }
        *place = Slot::EMPTY;
        entry.live -= 1;
        if entry.live == 0 {
            self.remove_leaf(bucket, leaf);
        }
        true
    }

    /// The pages of a file that have a slot, in an order that depends only on the history of calls.
    pub(crate) fn pages_of(&self, file: FileId) -> impl Iterator<Item = (PageIndex, Slot)> + '_ {
        let first = self.files.get(file.0 as usize).copied().unwrap_or(NONE);
        let leaves = core::iter::successors((first != NONE).then_some(first), |&leaf| {
            let next = self.leaves[leaf as usize].next;
            (next != NONE).then_some(next)
        });
        leaves.flat_map(|leaf| {
            let leaf = &self.leaves[leaf as usize];
            (leaf.chunk * LEAF_PAGES..)
                .zip(leaf.slots)
                .filter(|&(_, slot)| slot != Slot::EMPTY)
                .map(|(page, slot)| (PageIndex(page), slot))
        })
    }

    /// Leaves in use.
    pub(crate) fn leaf_count(&self) -> usize {
        self.leaves.len() - self.free.len()
    }

    /// Bytes that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
            + self.leaves.capacity() * size_of::<Leaf>()
            + (self.free.capacity() + self.files.capacity()) * size_of::<u32>()
    }

    /// Bucket and leaf of a chunk.
    fn find(&self, file: u32, chunk: u64) -> Option<(usize, u32)> {
        if self.buckets.is_empty() {
            return None;
        }
        let mask = self.buckets.len() - 1;
        let mut bucket = hash(file, chunk) & mask;
        loop {
            let leaf = self.buckets[bucket];
            if leaf == NONE {
                return None;
            }
            let entry = &self.leaves[leaf as usize];
            if entry.chunk == chunk && entry.file == file {
                return Some((bucket, leaf));
            }
            bucket = (bucket + 1) & mask;
        }
    }

    fn insert_leaf(&mut self, file: u32, chunk: u64) -> (usize, u32) {
        if (self.leaf_count() + 1) * 2 > self.buckets.len() {
            self.grow();
        }
        if self.files.len() <= file as usize {
            self.files.resize(file as usize + 1, NONE);
        }
        let first = self.files[file as usize];
        let entry =
            Leaf { chunk, file, prev: NONE, next: first, live: 0, slots: [Slot::EMPTY; LEAF_PAGES as usize] };
        let leaf = if let Some(leaf) = self.free.pop() {
            self.leaves[leaf as usize] = entry;
            leaf
        } else {
            // Grows by an eighth, not twofold: the driver reserves memory for it.
            if self.leaves.len() == self.leaves.capacity() {
                self.leaves.reserve_exact(64.max(self.leaves.len() / 8));
            }
            self.leaves.push(entry);
            u32::try_from(self.leaves.len() - 1).expect("fewer leaves than slots, fewer slots than 2^32")
        };
        if first != NONE {
            self.leaves[first as usize].prev = leaf;
        }
        self.files[file as usize] = leaf;
        (self.place(leaf), leaf)
    }

    /// Puts a leaf into the first free bucket of its probe sequence.
    fn place(&mut self, leaf: u32) -> usize {
        let mask = self.buckets.len() - 1;
        let entry = &self.leaves[leaf as usize];
        let mut bucket = hash(entry.file, entry.chunk) & mask;
        while self.buckets[bucket] != NONE {
            bucket = (bucket + 1) & mask;
        }
        self.buckets[bucket] = leaf;
        bucket
    }

    fn grow(&mut self) {
        let len = (self.buckets.len() * 2).max(64);
        let old = core::mem::replace(&mut self.buckets, alloc::vec![NONE; len]);
        for leaf in old.into_iter().filter(|&leaf| leaf != NONE) {
            self.place(leaf);
        }
    }

    /// Removes a leaf and closes the gap in the probe sequence (no tombstones).
    fn remove_leaf(&mut self, bucket: usize, leaf: u32) {
        let Leaf { prev, next, file, .. } = self.leaves[leaf as usize];
        if prev == NONE {
            self.files[file as usize] = next;
        } else {
            self.leaves[prev as usize].next = next;
        }
        if next != NONE {
            self.leaves[next as usize].prev = prev;
        }
        self.free.push(leaf);

        let mask = self.buckets.len() - 1;
        let (mut gap, mut probe) = (bucket, bucket);
        loop {
            probe = (probe + 1) & mask;
            let moved = self.buckets[probe];
            if moved == NONE {
                break;
            }
            let home = hash(self.leaves[moved as usize].file, self.leaves[moved as usize].chunk) & mask;
            // Move it only if its home bucket is not between the gap and its position.
            if (probe.wrapping_sub(home) & mask) >= (probe.wrapping_sub(gap) & mask) {
                self.buckets[gap] = moved;
                gap = probe;
            }
        }
        self.buckets[gap] = NONE;
    }
}

const fn slot_of(page: PageIndex) -> usize {
    (page.0 % LEAF_PAGES) as usize
}

/// One wide multiplication with its halves folded together, so that neither many files nor distant
/// pages collide; the same in every run.
const fn hash(file: u32, chunk: u64) -> usize {
    let key = chunk ^ (file as u64).rotate_left(40) ^ 0x9E37_79B9_7F4A_7C15;
    let product = key as u128 * 0xD6E8_FEB8_6659_FD93;
    // Both halves matter: each depends mostly on one half of the key.
    ((product >> 64) as u64 ^ product as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares the table with a map, with frequent collisions, so that removal must close gaps
    /// correctly.
    #[test]
    fn behaves_like_a_map() {
        let (mut table, mut model) = (PageTable::default(), BTreeMap::new());
        let mut state = 42u64;
        for step in 0..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let file = FileId((state >> 60) as u32 % 3);
            let page = PageIndex((state >> 33) % 97 * if state & 64 == 0 { 1 } else { 1 << 30 });
            let slot =
                if (state >> 20).is_multiple_of(3) { Slot::of_frame(FrameId(step)) } else { Slot::EMPTY };
            let old = if slot == Slot::EMPTY {
                model.remove(&(file, page))
            } else {
                model.insert((file, page), slot)
            };
            assert_eq!(table.set(file, page, slot), old.unwrap_or(Slot::EMPTY), "step {step}");
        }
        for (&(file, page), &slot) in &model {
            assert_eq!(table.get(file, page), slot);
        }
        let listed: usize = (0..3).map(|file| table.pages_of(FileId(file)).count()).sum();
        assert_eq!(listed, model.len());
    }

    /// Regression: the hash left the low bits of small files' keys at zero. Ten thousand files
    /// shared a few dozen buckets, and each lookup passed hundreds. A mount of a tree has many
    /// files of one page.
    #[test]
    fn many_small_files_do_not_collide() {
        let mut table = PageTable::default();
        for file in 0..20_000 {
            table.set(FileId(file), PageIndex(0), Slot::of_frame(FrameId(file)));
        }
        let mask = table.buckets.len() - 1;
        let walked: usize = (0..20_000u32)
            .map(|file| {
                let (bucket, _) = table.find(file, 0).expect("entered above");
                bucket.wrapping_sub(hash(file, 0)) & mask
            })
            .sum();
        assert!(walked < 20_000, "{walked} buckets walked past for 20000 look-ups");
    }

    #[test]
    fn slots_distinguish_frames_and_shadows() {
        let shadow = Shadow { age: 77, unused: true };
        assert_eq!((Slot::of_shadow(shadow).shadow(), Slot::of_shadow(shadow).frame()), (Some(shadow), None));
        assert_eq!((Slot::EMPTY.shadow(), Slot::EMPTY.frame()), (None, None));
        assert!(Slot::of_shadow(Shadow { age: u32::MAX, unused: true }).shadow().is_some());
        assert_eq!(Slot::of_frame(FrameId(5)).frame(), Some(FrameId(5)));
    }
}
