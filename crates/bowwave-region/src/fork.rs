//! Regions in children of `fork`.
//!
//! ```text
//!             parent                      child
//!   before    memory is inherited
//!   after     memory is not inherited     memory is inaccessible (pthread_atfork)
//!   later                                 map_in_child: mapped from the child's own engine
//! ```
//!
//! A child has no handler threads, and the kernel does not report its faults to the parent's
//! handlers. Missing pages in its copy of the memory would read as zeros. So the copy is made
//! inaccessible before `fork` returns in the child. The child keeps the addresses, which the
//! program knows, and the pages that the program has written.
#![allow(unsafe_code, reason = "registers fork handlers, moves mappings")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{MutexGuard, Once};

use bowwave_engine::Store;
use bowwave_engine::backend::sync::Mutex;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use crate::error::{Error, Result};
use crate::page_map::private_pages;
use crate::region::{Protection, Region};
use crate::uffd::SYSTEM_PAGE;

/// End address of each region that children inherit, by its start address.
type Kept = BTreeMap<usize, usize>;

static KEPT: Mutex<Kept> = Mutex::new(BTreeMap::new());
static WATCHED: Once = Once::new();

thread_local! {
    /// The lock during a fork, so that the child finds a consistent list.
    static HELD: RefCell<Option<MutexGuard<'static, Kept>>> = const { RefCell::new(None) };
}

impl Region {
    /// Lets children of `fork` keep the addresses, inaccessible, until they call
    /// [`map_in_child`](Self::map_in_child). Without this, other memory may take the addresses in a
    /// child. Pages that the program has written cost a fork as much as other written memory.
    pub fn keep_in_children(&self) {
        WATCHED.call_once(|| {
            // SAFETY: three functions with static lifetime.
            let watched = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            debug_assert_eq!(watched, 0, "no memory");
        });
        let Range { start, end } = self.place();
        kept().insert(start, end);
    }

    /// In a child: maps this region of the parent at the same addresses, in the same version, with
    /// an engine of the child. Sends no request. Pages that the program wrote before the fork keep
    /// their content. If the store has another version by now, other pages cannot be fetched.
    ///
    /// # Errors
    /// As [`Region::map`]. The memory then stays inaccessible. Pages that the program wrote may be
    /// lost, so do not call it again.
    ///
    /// # Safety
    /// `self` is a region of the parent with [`keep_in_children`](Self::keep_in_children). The
    /// child has never used it otherwise, and never drops it. No other thread of the child accesses
    /// the memory during the call.
    pub unsafe fn map_in_child(&self, store: &Store) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let region = unsafe { self.map_with_written(store) };
        match &region {
            Ok(region) => region.keep_in_children(),
            Err(_) => reserve(&self.place()),
        }
        region
    }

    /// # Safety
    /// As for [`Self::map_in_child`].
    unsafe fn map_with_written(&self, store: &Store) -> Result<Self> {
        let place = self.place();
        let written = match self.options.protection {
            Protection::ReadOnly => None,
            // SAFETY: guaranteed by the caller.
            Protection::CopyOnWrite => Some(unsafe { Written::take(&place) }?),
        };
        // SAFETY: guaranteed by the caller.
        let region = unsafe { Self::map_at(place.start, store, &self.path, &self.options) }?;
        if let Some(written) = written {
            written.put_back(&region)?;
        }
        Ok(region)
    }
}

/// Reserves addresses, unless they are in use: an access is a segmentation fault.
fn reserve(place: &Range<usize>) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: replaces no mapping.
    let _in_use =
        unsafe { mmap_anonymous(place.start as *mut _, place.end - place.start, ProtFlags::empty(), flags) };
}

/// Children do not keep the memory at this address any more.
pub(crate) fn forget(start: usize) {
    kept().remove(&start);
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock()
}

extern "C" fn before() {
    let kept = kept();
    advise(&kept, Advice::LinuxDoFork);
    HELD.with(|held| *held.borrow_mut() = Some(kept));
}

extern "C" fn in_parent() {
    if let Some(kept) = HELD.with(|held| held.borrow_mut().take()) {
        advise(&kept, Advice::LinuxDontFork);
    }
}

extern "C" fn in_child() {
    let Some(kept) = HELD.with(|held| held.borrow_mut().take()) else { return };
    for (&start, &end) in kept.iter() {
        // SAFETY: memory of a region, which the child has not touched.
        if unsafe { mprotect(start as *mut _, end - start, MprotectFlags::empty()) }.is_err() {
            // The program has unmapped a part of it. SAFETY: as above.
            let _unmapped = unsafe { munmap(start as *mut _, end - start) };
        }
    }
}

fn advise(kept: &Kept, advice: Advice) {
    for (&start, &end) in kept {
        // SAFETY: changes what children inherit, and no memory.
        let _a_child_may_lack_it = unsafe { madvise(start as *mut _, end - start, advice) };
    }
}

/// Pages that a program has written to a copy-on-write region, moved elsewhere.
struct Written {
    /// Where they were.
    origin: usize,
    /// Where the whole memory is now.
    range: Range<usize>,
    /// Runs of written pages, as offsets.
    runs: Vec<Range<usize>>,
}

impl Written {
    /// Moves the pages. The addresses stay reserved.
    ///
    /// # Safety
    /// As for [`Region::map_in_child`].
    unsafe fn take(place: &Range<usize>) -> Result<Self> {
        let refused = |error| Error::System { wanted: "keep what was written to a map", error, hint: "" };
        let len = place.end - place.start;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // Not `rustix`, which leaves out the last argument: with this flag, the kernel reads it.
        // SAFETY: guaranteed by the caller.
        let moved = unsafe {
            libc::mremap(place.start as *mut _, len, len, flags, std::ptr::null_mut::<libc::c_void>())
        };
        if moved == libc::MAP_FAILED {
            return Err(refused(std::io::Error::last_os_error()));
        }
        let base = moved as usize;
        let mut written = Self { origin: place.start, range: base..base + len, runs: Vec::new() };
        // SAFETY: the mapping that was just moved.
        unsafe { mprotect(base as *mut _, len, MprotectFlags::READ) }
            .map_err(|error| refused(error.into()))?;
        private_pages(&written.range, |at| {
            let offset = at - base;
            match written.runs.last_mut() {
                Some(run) if run.end == offset => run.end += SYSTEM_PAGE,
                _ => written.runs.push(offset..offset + SYSTEM_PAGE),
            }
        })
        .map_err(refused)?;
        Ok(written)
    }

    /// Copies the pages into the region.
    fn put_back(&self, region: &Region) -> Result<()> {
        for run in &self.runs {
            // SAFETY: written pages, readable; the region's pages there are missing, and its
            // mapping is private.
            unsafe {
                region.kernel().put(
                    self.origin + run.start,
                    (self.range.start + run.start) as *const u8,
                    run.len(),
                )
            }
            .map_err(|error| Error::System {
                wanted: "keep what was written to a map",
                error,
                hint: "",
            })?;
        }
        Ok(())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // SAFETY: a mapping of its own.
        let unmapped = unsafe { munmap(self.range.start as *mut _, self.range.end - self.range.start) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
