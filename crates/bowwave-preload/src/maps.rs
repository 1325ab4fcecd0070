//! Memory of ours: maps of files, each a region at the addresses that the program knows.
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bowwave_engine::Advice;
use bowwave_interpose::say;
use bowwave_region::{MapOptions, Protection, Region, RegionStats};

use crate::errno::{Errno, Result, errno, of_region};
use crate::live::{Open, version_of};
use crate::real;
use crate::service::service;

mod saved;

pub(crate) use saved::{Saved, save};

/// A map.
pub(crate) struct Mapped {
    open: Arc<Open>,
    /// Which bytes of the file the region shows; nothing if the program mapped beyond the end.
    bytes: Range<u64>,
    writable: bool,
    region: Option<Region>,
    /// Addresses, whole pages.
    range: Range<usize>,
    /// Those of the region.
    shown: Range<usize>,
    /// Addresses that the program has unmapped. They stay taken until all of it is unmapped.
    gone: Vec<Range<usize>>,
}

/// By first address.
static MAPS: Mutex<BTreeMap<usize, Mapped>> = Mutex::new(BTreeMap::new());
/// How many there are: without any, nothing takes the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Of unmapped regions: faults, pages mapped, pages poisoned.
static PAST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

pub(crate) fn lock() -> MutexGuard<'static, BTreeMap<usize, Mapped>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the program wants mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) flags: c_int,
    pub(crate) writable: bool,
    pub(crate) offset: u64,
}

/// Maps a file of ours; the address.
pub(crate) fn map(open: &Arc<Open>, wish: Wish) -> Result<usize> {
    let live = open.live()?;
    let size = live.file()?.size();
    let page = service()?.engine().options().page_bytes;
    let start = wish.offset / page * page;
    let lead = (wish.offset - start) as usize;
    let len = wish.len.checked_next_multiple_of(PAGE).ok_or(Errno(libc::ENOMEM))?;
    let bytes = start..wish.offset.saturating_add(wish.len as u64).min(size).max(start);
    let shown =
        usize::try_from((bytes.end - start).next_multiple_of(page)).map_err(|_| Errno(libc::ENOMEM))?;
    let total = shown.max(lead.checked_add(len).ok_or(Errno(libc::ENOMEM))?);
    let is_fixed = wish.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if is_fixed && (lead > 0 || total > len) {
        say(&format_args!("a map at a fixed address must be whole pages of the cache (--page-size {page})"));
        return Err(Errno(libc::EINVAL));
    }
    let base = take_addresses(wish, total)?;
    let mapped = Mapped {
        open: Arc::clone(open),
        bytes,
        writable: wish.writable,
        region: None,
        range: base..base + total,
        shown: base..base + shown,
        gone: Vec::new(),
    };
    let mapped = mapped.show().inspect_err(|_| {
        // SAFETY: addresses that were reserved above and not handed out.
        unsafe { real::munmap(base as *mut c_void, total) };
    })?;
    if wish.flags & libc::MAP_POPULATE != 0 {
        // As of the kernel: what does not come now comes, or fails, when it is touched.
        let _later = mapped.region.as_ref().map(|region| region.populate(0, region.len() as u64));
    }
    let mut maps = lock();
    maps.insert(base, mapped);
    COUNT.store(maps.len(), Ordering::Release);
    Ok(base + lead)
}

/// Reserves address space.
fn take_addresses(wish: Wish, len: usize) -> Result<usize> {
    let fixed = wish.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let at = if fixed == 0 { 0 } else { wish.at };
    if fixed & libc::MAP_FIXED != 0 {
        unmap(at..at.saturating_add(len));
    }
    nothing_at(at, len, fixed)
}

/// Reserves addresses: touching them is a segmentation fault.
fn nothing_at(at: usize, len: usize, flags: c_int) -> Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh addresses, or ones that the caller gives away.
    let base = unsafe { real::mmap64(at as *mut c_void, len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(base as usize) }
}

impl Mapped {
    /// Has the file at its addresses, and `SIGBUS` behind it.
    fn show(mut self) -> Result<Self> {
        if !self.shown.is_empty() {
            let store = service()?.store(self.open.place.map)?;
            let protection = if self.writable { Protection::CopyOnWrite } else { Protection::ReadOnly };
            let range = Some(self.bytes.clone());
            let options = MapOptions { range, protection, handlers: HANDLERS, ..MapOptions::default() };
            // SAFETY: the addresses are this map's.
            let region = unsafe { Region::map_at(self.shown.start, store, &self.open.place.path, &options) };
            let region = region.map_err(|error| of_region(&error))?;
            self.open.check(version_of(&region.identity()))?;
            self.region = Some(region);
        }
        let behind = self.shown.end..self.range.end;
        if !behind.is_empty() {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = behind.start as *mut c_void;
            // SAFETY: the addresses are this map's.
            let base = unsafe { real::mmap64(at, behind.len(), libc::PROT_READ, flags, empty_file()?, 0) };
            if base == libc::MAP_FAILED {
                return Err(Errno(errno()));
            }
        }
        for gone in &self.gone {
            nothing_at(gone.start, gone.len(), libc::MAP_FIXED)?;
        }
        Ok(self)
    }

    /// Addresses `range`, or what of it is this map's, are not the program's any more; whether any are left.
    fn give_up(&mut self, range: &Range<usize>) -> bool {
        let part = range.start.max(self.range.start)..range.end.min(self.range.end);
        self.gone.push(part.clone());
        let mut gone = self.gone.clone();
        gone.sort_by_key(|part| part.start);
        let mut end = self.range.start;
        for part in &gone {
            if part.start > end {
                break;
            }
            end = end.max(part.end);
        }
        let some_left = end < self.range.end;
        if some_left && nothing_at(part.start, part.len(), libc::MAP_FIXED).is_err() {
            say(&"cannot unmap a part of a file: no room for another mapping");
        }
        some_left
    }

    /// Unmaps all of it.
    fn end(mut self) {
        if let Some(region) = self.region.take() {
            let stats = region.stats();
            let counts = [stats.faults, stats.pages_mapped, stats.pages_poisoned];
            for (past, count) in PAST.iter().zip(counts) {
                past.fetch_add(count, Ordering::Relaxed);
            }
        }
        let behind = self.shown.end..self.range.end;
        if !behind.is_empty() {
            // SAFETY: the addresses are this map's, which the program does not use any more.
            unsafe { real::munmap(behind.start as *mut c_void, behind.len()) };
        }
    }
}

/// Unmaps what of these addresses is ours; the rest of them, which is not.
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
        if !map.give_up(&range) {
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

/// What to do with the map that has these addresses, if one has.
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

    /// Says how it will be touched.
    pub(crate) fn advise(&self, advice: Advice) -> Result<()> {
        self.in_region(|region, offset, len| region.advise(offset, len, advice))
    }

    /// Fetches it.
    pub(crate) fn populate(&self) -> Result<()> {
        self.in_region(Region::populate)
    }

    fn in_region(&self, work: impl FnOnce(&Region, u64, u64) -> bowwave_region::Result<()>) -> Result<()> {
        let Some(region) = &self.map.region else { return Ok(()) };
        let end = self.map.shown.start + region.len();
        let (start, end) = (self.range.start.clamp(self.map.shown.start, end), self.range.end.min(end));
        if start >= end {
            return Ok(());
        }
        let offset = (start - self.map.shown.start) as u64;
        work(region, offset, (end - start) as u64).map_err(|error| of_region(&error))
    }
}

/// What all regions of this process have seen.
pub(crate) fn counters() -> RegionStats {
    let past = |which: usize| PAST[which].load(Ordering::Relaxed);
    let mut all = RegionStats::default();
    (all.faults, all.pages_mapped, all.pages_poisoned) = (past(0), past(1), past(2));
    for region in lock().values().filter_map(|map| map.region.as_ref()) {
        let stats = region.stats();
        all.faults += stats.faults;
        all.pages_mapped += stats.pages_mapped;
        all.pages_poisoned += stats.pages_poisoned;
    }
    all
}

/// In a child, before all else: the addresses of maps are free there, and whatever is mapped next would be put there.
pub(crate) fn keep_addresses(maps: &BTreeMap<usize, Mapped>) {
    for map in maps.values().filter(|map| !map.shown.is_empty()) {
        let _tried_again_later = nothing_at(map.shown.start, map.shown.len(), libc::MAP_FIXED);
    }
}

/// In a child: maps again what its parent had mapped, at the same addresses.
pub(crate) fn make_anew(maps: BTreeMap<usize, Mapped>, saved: Vec<Saved>) {
    PAST.iter().for_each(|past| past.store(0, Ordering::Relaxed));
    let mut anew = BTreeMap::new();
    for (base, mut map) in maps {
        // The parent's: its threads are not here.
        std::mem::forget(map.region.take());
        map.open = Arc::new(map.open.for_child());
        let range = map.range.clone();
        match map.show() {
            Ok(map) => drop(anew.insert(base, map)),
            Err(Errno(number)) => {
                say(&format_args!(
                    "a child cannot have a map of its parent (error {number}): touching it is fatal"
                ));
                let _a_hole_is_fatal_too = nothing_at(range.start, range.len(), libc::MAP_FIXED);
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

/// A file of no bytes: touching a map of it is a `SIGBUS`, as beyond the end of any file.
fn empty_file() -> Result<c_int> {
    static EMPTY: OnceLock<c_int> = OnceLock::new();
    // SAFETY: a string that ends, and flags.
    let fd =
        *EMPTY.get_or_init(|| unsafe { libc::memfd_create(c"bowwave-empty".as_ptr(), libc::MFD_CLOEXEC) });
    if fd < 0 { Err(Errno(libc::EMFILE)) } else { Ok(fd) }
}

/// Threads that serve a map's touches: programs may map many files.
const HANDLERS: Option<NonZeroUsize> = NonZeroUsize::new(2);
/// Bytes of a page of the machine.
pub(crate) const PAGE: usize = bowwave_region::uffd::SYSTEM_PAGE;
