//! Served memory maps: each is a region at the addresses that the program knows.
//!
//! ```text
//!   base          base + lead                                     end of the file        end
//!    |-- to the engine's page --|----- requested by the program --------|--- SIGBUS -----|
//!    |================= region ==========================================|   an empty file
//! ```
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use bowwave_engine::Advice;
use bowwave_engine::backend::sync::Mutex;
use bowwave_interpose::say;
use bowwave_region::{MapOptions, Protection, Region, RegionStats};

use crate::errno::{Errno, Result, errno, of_error};
use crate::live::{Open, version_of};
use crate::real;
use crate::service::service;

mod saved;

pub(crate) use saved::{Saved, save};

/// A memory map.
pub(crate) struct Mapped {
    open: Arc<Open>,
    /// Range of the file in the region; empty if the map lies beyond the end.
    bytes: Range<u64>,
    writable: bool,
    region: Option<Region>,
    /// Addresses, whole pages.
    range: Range<usize>,
    /// Addresses of the region.
    region_range: Range<usize>,
    /// Addresses that the program has unmapped. They stay reserved until the whole map is unmapped.
    unmapped: Vec<Range<usize>>,
}

/// Maps by first address.
static MAPS: Mutex<BTreeMap<usize, Mapped>> = Mutex::new(BTreeMap::new());
/// Number of maps: 0 avoids the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Counters of unmapped regions: faults, pages mapped, pages poisoned.
static UNMAPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

pub(crate) fn lock() -> MutexGuard<'static, BTreeMap<usize, Mapped>> {
    MAPS.lock()
}

/// A requested map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRequest {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) flags: c_int,
    pub(crate) writable: bool,
    pub(crate) offset: u64,
}

/// Maps a file; returns the address.
pub(crate) fn map(open: &Arc<Open>, request: MapRequest) -> Result<usize> {
    let live = open.live()?;
    let size = live.file()?.size();
    let page = service()?.engine().options().page_bytes;
    let start = request.offset / page * page;
    let lead = (request.offset - start) as usize;
    let len = request.len.checked_next_multiple_of(PAGE).ok_or(Errno(libc::ENOMEM))?;
    let bytes = start..request.offset.saturating_add(request.len as u64).min(size).max(start);
    let region_len =
        usize::try_from((bytes.end - start).next_multiple_of(page)).map_err(|_| Errno(libc::ENOMEM))?;
    let total = region_len.max(lead.checked_add(len).ok_or(Errno(libc::ENOMEM))?);
    let is_fixed = request.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if is_fixed && (lead > 0 || total > len) {
        say(&format_args!("a map at a fixed address must be whole pages of the cache (--page-size {page})"));
        return Err(Errno(libc::EINVAL));
    }
    let base = take_addresses(request, total)?;
    let mapped = Mapped {
        open: Arc::clone(open),
        bytes,
        writable: request.writable,
        region: None,
        range: base..base + total,
        region_range: base..base + region_len,
        unmapped: Vec::new(),
    };
    let mapped = mapped.show().inspect_err(|_| {
        // SAFETY: addresses reserved above and not returned yet.
        unsafe { real::munmap(base as *mut c_void, total) };
    })?;
    if request.flags & libc::MAP_POPULATE != 0 {
        // As in the kernel: a page that fails now is fetched, or fails, on access.
        let _later = mapped.region.as_ref().map(|region| region.populate(0, region.len() as u64));
    }
    let mut maps = lock();
    maps.insert(base, mapped);
    COUNT.store(maps.len(), Ordering::Release);
    Ok(base + lead)
}

/// Reserves address space.
fn take_addresses(request: MapRequest, len: usize) -> Result<usize> {
    let fixed = request.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let at = if fixed == 0 { 0 } else { request.at };
    if fixed & libc::MAP_FIXED != 0 {
        unmap(at..at.saturating_add(len));
    }
    reserve_at(at, len, fixed)
}

/// Reserves addresses: an access is a segmentation fault.
fn reserve_at(at: usize, len: usize, flags: c_int) -> Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new addresses, or addresses that the caller yields.
    let base = unsafe { real::mmap64(at as *mut c_void, len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(base as usize) }
}

impl Mapped {
    /// Maps the file at its addresses, and `SIGBUS` pages after it.
    fn show(mut self) -> Result<Self> {
        if !self.region_range.is_empty() {
            let store = service()?.store(self.open.place.map)?;
            let protection = if self.writable { Protection::CopyOnWrite } else { Protection::ReadOnly };
            let range = Some(self.bytes.clone());
            let options = MapOptions { range, protection, handlers: HANDLERS, ..MapOptions::default() };
            // SAFETY: the addresses belong to this map.
            let region =
                unsafe { Region::map_at(self.region_range.start, store, &self.open.place.path, &options) };
            let region = region.map_err(of_error)?;
            self.open.check(version_of(&region.identity()))?;
            self.region = Some(region);
        }
        let behind = self.region_range.end..self.range.end;
        if !behind.is_empty() {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = behind.start as *mut c_void;
            // SAFETY: the addresses belong to this map.
            let base = unsafe { real::mmap64(at, behind.len(), libc::PROT_READ, flags, empty_file()?, 0) };
            if base == libc::MAP_FAILED {
                return Err(Errno(errno()));
            }
        }
        for unmapped in &self.unmapped {
            reserve_at(unmapped.start, unmapped.len(), libc::MAP_FIXED)?;
        }
        Ok(self)
    }

    /// Unmaps this map's part of `range` for the program. Returns whether any addresses are left.
    fn unmap_part(&mut self, range: &Range<usize>) -> bool {
        let part = range.start.max(self.range.start)..range.end.min(self.range.end);
        self.unmapped.push(part.clone());
        let mut unmapped = self.unmapped.clone();
        unmapped.sort_by_key(|part| part.start);
        let mut end = self.range.start;
        for part in &unmapped {
            if part.start > end {
                break;
            }
            end = end.max(part.end);
        }
        let some_left = end < self.range.end;
        if some_left && reserve_at(part.start, part.len(), libc::MAP_FIXED).is_err() {
            say(&"cannot unmap a part of a file: no room for another mapping");
        }
        some_left
    }

    /// Unmaps all of it.
    fn end(mut self) {
        if let Some(region) = self.region.take() {
            let stats = region.stats();
            let counts = [stats.faults, stats.pages_mapped, stats.pages_poisoned];
            for (unmapped, count) in UNMAPPED.iter().zip(counts) {
                unmapped.fetch_add(count, Ordering::Relaxed);
            }
        }
        let behind = self.region_range.end..self.range.end;
        if !behind.is_empty() {
            // SAFETY: the addresses belong to this map, and the program no longer uses them.
            unsafe { real::munmap(behind.start as *mut c_void, behind.len()) };
        }
    }
}

/// Unmaps the served part of a range; returns the rest.
pub(crate) fn unmap(range: Range<usize>) -> Vec<Range<usize>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return vec![range];
    }
    let (mut others, mut ended, mut at) = (Vec::new(), Vec::new(), range.start);
    let mut maps = lock();
    let touched: Vec<usize> =
        maps.values().filter(|map| meet(&map.range, &range)).map(|map| map.range.start).collect();
    for base in touched {
        let Some(map) = maps.get_mut(&base) else { continue };
        if map.range.start > at {
            others.push(at..map.range.start);
        }
        at = map.range.end;
        if !map.unmap_part(&range) {
            ended.extend(maps.remove(&base));
        }
    }
    COUNT.store(maps.len(), Ordering::Release);
    drop(maps);
    ended.into_iter().for_each(Mapped::end);
    if at < range.end {
        others.push(at..range.end);
    }
    others
}

/// Applies `work` to the map that contains these addresses, if any.
pub(crate) fn with<T>(range: &Range<usize>, work: impl FnOnce(&View<'_>) -> T) -> Option<T> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let maps = lock();
    let mut found = maps.values().filter(|map| meet(&map.range, range));
    found.next().map(|map| work(&View { map, range: range.clone() }))
}

/// A part of a map.
pub(crate) struct View<'a> {
    map: &'a Mapped,
    range: Range<usize>,
}

impl View<'_> {
    pub(crate) fn is_writable(&self) -> bool {
        self.map.writable
    }

    /// Advises how it will be accessed.
    pub(crate) fn advise(&self, advice: Advice) -> Result<()> {
        self.in_region(|region, offset, len| region.advise(offset, len, advice))
    }

    /// Fetches its pages.
    pub(crate) fn populate(&self) -> Result<()> {
        self.in_region(Region::populate)
    }

    fn in_region(&self, work: impl FnOnce(&Region, u64, u64) -> bowwave_region::Result<()>) -> Result<()> {
        let Some(region) = &self.map.region else { return Ok(()) };
        let end = self.map.region_range.start + region.len();
        let (start, end) =
            (self.range.start.clamp(self.map.region_range.start, end), self.range.end.min(end));
        if start >= end {
            return Ok(());
        }
        let offset = (start - self.map.region_range.start) as u64;
        work(region, offset, (end - start) as u64).map_err(of_error)
    }
}

/// Counters of all regions of this process.
pub(crate) fn counters() -> RegionStats {
    let unmapped = |which: usize| UNMAPPED[which].load(Ordering::Relaxed);
    let mut all = RegionStats::default();
    (all.faults, all.pages_mapped, all.pages_poisoned) = (unmapped(0), unmapped(1), unmapped(2));
    for region in lock().values().filter_map(|map| map.region.as_ref()) {
        let stats = region.stats();
        all.faults += stats.faults;
        all.pages_mapped += stats.pages_mapped;
        all.pages_poisoned += stats.pages_poisoned;
    }
    all
}

/// In a child, first of all: reserves the maps' addresses, which are free there and could be
/// reused.
pub(crate) fn keep_addresses(maps: &BTreeMap<usize, Mapped>) {
    for map in maps.values().filter(|map| !map.region_range.is_empty()) {
        let _tried_again_later = reserve_at(map.region_range.start, map.region_range.len(), libc::MAP_FIXED);
    }
}

/// In a child: recreates its parent's maps at the same addresses.
pub(crate) fn remap(maps: BTreeMap<usize, Mapped>, saved: Vec<Saved>) {
    UNMAPPED.iter().for_each(|unmapped| unmapped.store(0, Ordering::Relaxed));
    let mut anew = BTreeMap::new();
    for (base, mut map) in maps {
        // The parent's: its threads do not exist here, and may have held its locks.
        std::mem::forget(map.region.take());
        let child = Arc::new(map.open.for_child());
        std::mem::forget(std::mem::replace(&mut map.open, child));
        let range = map.range.clone();
        match map.show() {
            Ok(map) => drop(anew.insert(base, map)),
            Err(Errno(number)) => {
                say(&format_args!(
                    "a child cannot have a map of its parent (error {number}): touching it is fatal"
                ));
                let _a_hole_is_fatal_too = reserve_at(range.start, range.len(), libc::MAP_FIXED);
            }
        }
    }
    for saved in saved {
        if anew.values().any(|map| meet(&map.range, &saved.range())) {
            saved.put_back();
        }
    }
    let mut maps = lock();
    COUNT.store(anew.len(), Ordering::Release);
    *maps = anew;
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// An empty file: an access to its map raises `SIGBUS`, as beyond the end of any file.
fn empty_file() -> Result<c_int> {
    static EMPTY: OnceLock<c_int> = OnceLock::new();
    let fd = *EMPTY.get_or_init(|| real::memfd_create(c"bowwave-empty", libc::MFD_CLOEXEC));
    if fd < 0 { Err(Errno(libc::EMFILE)) } else { Ok(fd) }
}

/// Handler threads per map; few, because programs may map many files.
const HANDLERS: Option<NonZeroUsize> = NonZeroUsize::new(2);
/// Page size in bytes.
pub(crate) const PAGE: usize = bowwave_region::uffd::SYSTEM_PAGE;
