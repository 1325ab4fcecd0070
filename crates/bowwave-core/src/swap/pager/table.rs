//! The pages of all regions, and their lists.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::event::{PageId, RegionAdvice, RegionId, Touch};
use super::slots::Head;
use super::stats::SwapStats;
use crate::id::Waiter;
use crate::page::{PageIndex, PageRange};
use crate::swap::{Adaptive, Vma};

/// Pages whose states are allocated together, when the first of them is touched.
const CHUNK: usize = 512;
/// Bits of a packed [`PageId`] that are the page.
const PAGE_BITS: u32 = 40;
/// Panic message for an unknown region.
const STAYS: &str = "regions stay until nothing of them is in flight or on a list";
/// No page.
pub(super) const NONE: u64 = u64::MAX;
/// Most regions: the range of a packed [`PageId`].
pub(super) const REGIONS_MAX: u32 = (1 << (64 - PAGE_BITS)) - 1;
/// Most pages of a region.
pub(super) const PAGES_MAX: u64 = 1 << PAGE_BITS;

/// Flags of a page. Without [`HERE`](flag::HERE) and [`COMING`](flag::COMING) it is swapped out to
/// its slot or, without a slot, all zeros.
pub(super) mod flag {
    /// In memory.
    pub(crate) const HERE: u16 = 1;
    /// In flight into memory; `next` is the read.
    pub(crate) const COMING: u16 = 1 << 1;
    /// Mapped into programs.
    pub(crate) const MAPPED: u16 = 1 << 2;
    /// Writable without a fault.
    pub(crate) const WRITABLE: u16 = 1 << 3;
    /// The store lacks its contents, and no write is in flight.
    pub(crate) const DIRTY: u16 = 1 << 4;
    /// Touched since reclaim last checked it.
    pub(crate) const REFERENCED: u16 = 1 << 5;
    /// Read ahead, without a known touch.
    pub(crate) const AHEAD: u16 = 1 << 6;
    /// A touch of it shows that a reader came so far.
    pub(crate) const MARK: u16 = 1 << 7;
    /// Its unmapping was requested.
    pub(crate) const UNMAPPING: u16 = 1 << 8;
    /// Releases its memory once it is unmapped and clean.
    pub(crate) const EVICTING: u16 = 1 << 9;
    /// In flight to its slot.
    pub(crate) const WRITING: u16 = 1 << 10;
    /// Its contents are discarded when its I/O ends.
    pub(crate) const DISCARD: u16 = 1 << 11;
    /// It was behind a stream's reader at its last eviction; valid while it is swapped out.
    pub(crate) const LEFT: u16 = 1 << 12;
    /// Being unmapped in order to become inactive.
    pub(crate) const AGING: u16 = 1 << 13;
}

/// A page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) prev: u64,
    pub(super) next: u64,
    pub(super) slot: u32,
    pub(super) flags: u16,
    pub(super) list: Kind,
}

/// A list of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// None.
    No,
    /// In use.
    Active,
    /// Evicted next, unless touched.
    Inactive,
    /// Passed by an active stream: evicted first.
    Behind,
    /// A region's batch even with global lists: will become active.
    Batch,
}

/// Pages in order; new ones enter at the head, eviction takes the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) len: u64,
}

/// A touch that waits for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) waiter: Waiter,
    pub(super) touch: Touch,
}

/// A region.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// Up to the highest chunk that was touched.
    chunks: Vec<Option<Box<[Page; CHUNK]>>>,
    pub(super) pages: u64,
    /// Number of its first page by address, which determines page table boundaries.
    pub(super) base: u64,
    pub(super) vma: Vma,
    pub(super) adaptive: Adaptive,
    pub(super) stats: SwapStats,
    /// Frames in use.
    pub(super) frames: u64,
    /// Recent touches that waited for the store, or would have waited if a page next in line had
    /// been evicted.
    pub(super) stalls: u64,
    /// Pages in the store only.
    pub(super) away: u64,
    /// Its pages that are read, written or unmapped now.
    pub(super) in_flight: u64,
    /// Of these, pages that become inactive once they are unmapped.
    pub(super) aging: u64,
    pub(super) dying: bool,
    pub(super) advised: Vec<(PageRange, RegionAdvice)>,
    pub(super) waiting: BTreeMap<u64, Vec<Waiting>>,
    /// The page after the last one created as zeros, and the length of that run.
    pub(super) first_run: (u64, u64),
    /// Where its runs go on the store.
    pub(super) head: Head,
}

/// All regions.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) regions: Vec<Option<Region>>,
    lists: Vec<[List; 4]>,
    /// Chunks of all regions.
    chunks: u64,
}

impl Page {
    const UNKNOWN: Self = Self { prev: NONE, next: NONE, slot: 0, flags: 0, list: Kind::No };

    pub(super) const fn is(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    pub(super) const fn any(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    pub(super) const fn set(&mut self, flags: u16) {
        self.flags |= flags;
    }

    pub(super) const fn clear(&mut self, flags: u16) {
        self.flags &= !flags;
    }
}

impl PageId {
    /// Packed into one number.
    pub(super) const fn pack(self) -> u64 {
        (self.region.0 as u64) << PAGE_BITS | self.page.0
    }

    pub(super) const fn unpack(packed: u64) -> Self {
        Self {
            region: RegionId((packed >> PAGE_BITS) as u32),
            page: PageIndex(packed & ((1 << PAGE_BITS) - 1)),
        }
    }
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };
}

impl Region {
    pub(super) fn new(pages: u64, base: u64) -> Self {
        Self { pages, base, first_run: (NONE, 0), ..Self::default() }
    }

    pub(super) fn page(&self, page: PageIndex) -> Page {
        let chunk = self.chunks.get(page.0 as usize / CHUNK).and_then(Option::as_ref);
        chunk.map_or(Page::UNKNOWN, |chunk| chunk[page.0 as usize % CHUNK])
    }

    pub(super) fn page_mut(&mut self, page: PageIndex) -> &mut Page {
        let index = page.0 as usize / CHUNK;
        if self.chunks.len() <= index {
            self.chunks.resize_with(index + 1, || None);
        }
        let chunk = &mut self.chunks[index];
        &mut chunk.get_or_insert_with(|| Box::new([Page::UNKNOWN; CHUNK]))[page.0 as usize % CHUNK]
    }

    fn has_chunk_of(&self, page: PageIndex) -> bool {
        self.chunks.get(page.0 as usize / CHUNK).is_some_and(Option::is_some)
    }

    /// The pages of a range that were ever touched.
    pub(super) fn known(&self, range: PageRange) -> impl Iterator<Item = PageIndex> {
        let chunks =
            range.start.0 as usize / CHUNK..(range.end.0 as usize).div_ceil(CHUNK).min(self.chunks.len());
        chunks.filter(|&chunk| self.chunks[chunk].is_some()).flat_map(move |chunk| {
            let (start, end) = ((chunk * CHUNK) as u64, ((chunk + 1) * CHUNK) as u64);
            (start.max(range.start.0)..end.min(range.end.0)).map(PageIndex)
        })
    }

    /// The first contiguous part of a range whose pages were ever touched. For callers that change
    /// pages on the way and cannot allocate a list.
    pub(super) fn next_known(&self, range: PageRange) -> Option<PageRange> {
        let first = self.known(range).next()?.0;
        let end = (first / CHUNK as u64 + 1) * CHUNK as u64;
        Some(PageRange::new(first, end.min(range.end.0)))
    }

    /// Advice of a page.
    pub(super) fn advice(&self, page: PageIndex) -> RegionAdvice {
        let said = self.advised.iter().rev().find(|(range, _)| range.contains(page));
        said.map_or(RegionAdvice::Normal, |&(_, advice)| advice)
    }

    /// All its pages.
    pub(super) const fn all(&self) -> PageRange {
        PageRange::new(0, self.pages)
    }
}

impl Table {
    pub(super) fn region(&self, region: RegionId) -> Option<&Region> {
        self.regions.get(region.0 as usize)?.as_ref()
    }

    /// A region that must exist.
    pub(super) fn region_mut(&mut self, region: RegionId) -> &mut Region {
        self.regions[region.0 as usize].as_mut().expect(STAYS)
    }

    pub(super) fn insert(&mut self, region: RegionId, value: Region) {
        let index = region.0 as usize;
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(value);
    }

    pub(super) fn page(&self, id: PageId) -> Page {
        self.region(id.region).map_or(Page::UNKNOWN, |region| region.page(id.page))
    }

    pub(super) fn page_mut(&mut self, id: PageId) -> &mut Page {
        let Self { regions, chunks, .. } = self;
        let region = regions[id.region.0 as usize].as_mut().expect(STAYS);
        *chunks += u64::from(!region.has_chunk_of(id.page));
        region.page_mut(id.page)
    }

    /// Bytes of the page states.
    pub(super) const fn bytes(&self) -> u64 {
        self.chunks * size_of::<[Page; CHUNK]>() as u64
    }

    pub(super) fn remove(&mut self, region: RegionId) {
        if let Some(region) = self.regions[region.0 as usize].take() {
            self.chunks -= region.chunks.iter().flatten().count() as u64;
        }
    }

    /// A list of an owner: 0 for the global lists, `region + 1` for a region's.
    pub(super) fn list(&self, owner: usize, kind: Kind) -> List {
        self.lists.get(owner).map_or(List::EMPTY, |lists| lists[place(kind)])
    }

    fn list_mut(&mut self, owner: usize, kind: Kind) -> &mut List {
        if self.lists.len() <= owner {
            self.lists.resize(owner + 1, [List::EMPTY; 4]);
        }
        &mut self.lists[owner][place(kind)]
    }

    /// Removes a page from its list, if it is on one.
    pub(super) fn unlist(&mut self, owner: usize, id: PageId) {
        let page = *self.page_mut(id);
        if page.list == Kind::No {
            return;
        }
        match page.prev {
            NONE => self.list_mut(owner, page.list).head = page.next,
            prev => self.page_mut(PageId::unpack(prev)).next = page.next,
        }
        match page.next {
            NONE => self.list_mut(owner, page.list).tail = page.prev,
            next => self.page_mut(PageId::unpack(next)).prev = page.prev,
        }
        self.list_mut(owner, page.list).len -= 1;
        let page = self.page_mut(id);
        (page.list, page.prev, page.next) = (Kind::No, NONE, NONE);
    }

    /// Moves a page to the head of a list.
    pub(super) fn enlist(&mut self, owner: usize, id: PageId, kind: Kind) {
        self.unlist(owner, id);
        let list = self.list_mut(owner, kind);
        let next = core::mem::replace(&mut list.head, id.pack());
        list.len += 1;
        if next == NONE {
            list.tail = id.pack();
        } else {
            self.page_mut(PageId::unpack(next)).prev = id.pack();
        }
        let page = self.page_mut(id);
        (page.list, page.prev, page.next) = (kind, NONE, next);
    }

    /// The page evicted next.
    pub(super) fn tail(&self, owner: usize, kind: Kind) -> Option<PageId> {
        let tail = self.list(owner, kind).tail;
        (tail != NONE).then(|| PageId::unpack(tail))
    }
}

fn place(kind: Kind) -> usize {
    match kind {
        Kind::No | Kind::Active => 0,
        Kind::Inactive => 1,
        Kind::Behind => 2,
        Kind::Batch => 3,
    }
}
