//! Buffers for pages in flight between the regions and the store: a fixed number of adjacent pages.
#![allow(unsafe_code, reason = "maps memory and lends parts of it")]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use bowwave_engine::backend::sync::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::uffd::SYSTEM_PAGE;

/// A fixed number of pages, lent in runs.
pub(super) struct Buffers {
    base: usize,
    pages: usize,
    /// Pages reserved for demand requests.
    reserved: usize,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Bitmap of free pages.
    words: Vec<u64>,
    pages: usize,
    /// Where the last search ended.
    next: usize,
}

/// Adjacent pages, returned when dropped.
pub(super) struct Lease {
    buffers: Arc<Buffers>,
    first: usize,
    pages: usize,
}

impl Buffers {
    /// Allocates `pages` pages, of which `reserved` are only for demand requests.
    pub(super) fn new(pages: usize, reserved: usize) -> Result<Arc<Self>> {
        let pages = pages.next_multiple_of(64);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), pages * SYSTEM_PAGE, ProtFlags::READ | ProtFlags::WRITE, flags)
        }
        .map_err(|error| Error::System {
            wanted: "get memory for buffers",
            error: error.into(),
            hint: "",
        })?;
        // SAFETY: advice on our own mapping. A child does not use it, and the kernel must not copy
        // a page during a transfer.
        unsafe { madvise(base, pages * SYSTEM_PAGE, Advice::LinuxDontFork) }.map_err(|error| {
            Error::System { wanted: "keep buffers from children", error: error.into(), hint: "" }
        })?;
        let free = Free { words: vec![u64::MAX; pages / 64], pages, next: 0 };
        Ok(Arc::new(Self { base: base as usize, pages, reserved, free: Mutex::new(free) }))
    }

    /// Lends up to `pages` adjacent pages, at most 64; fewer if there is no such run, `None` if all
    /// are lent.
    pub(super) fn lend(self: &Arc<Self>, pages: usize, demand: bool) -> Option<Lease> {
        let mut free = self.free.lock();
        let mut wanted = pages.min(RUN_MAX);
        if !demand {
            wanted = wanted.min(free.pages.saturating_sub(self.reserved));
        }
        while wanted > 0 {
            if let Some(first) = free.take(wanted) {
                return Some(Lease { buffers: Arc::clone(self), first, pages: wanted });
            }
            wanted /= 2;
        }
        None
    }
}

impl Free {
    /// Takes a run of at most 64 pages within one word of the bitmap.
    fn take(&mut self, pages: usize) -> Option<usize> {
        if self.pages < pages {
            return None;
        }
        let words = self.words.len();
        for step in 0..words {
            let at = (self.next + step) % words;
            let Some(bit) = run_in(self.words[at], pages) else { continue };
            self.words[at] &= !mask(bit, pages);
            self.pages -= pages;
            self.next = at;
            return Some(at * 64 + bit);
        }
        None
    }

    fn give(&mut self, first: usize, pages: usize) {
        debug_assert_eq!(self.words[first / 64] & mask(first % 64, pages), 0, "lent once");
        self.words[first / 64] |= mask(first % 64, pages);
        self.pages += pages;
    }
}

/// The lowest bit of a run of `pages` set bits.
fn run_in(word: u64, pages: usize) -> Option<usize> {
    // A bit stays set if it and the following bits of the run are set.
    let (mut runs, mut have) = (word, 1);
    while have < pages && runs != 0 {
        let step = have.min(pages - have);
        runs &= runs >> step;
        have += step;
    }
    (runs != 0).then(|| runs.trailing_zeros() as usize)
}

fn mask(bit: usize, pages: usize) -> u64 {
    (u64::MAX >> (64 - pages)) << bit
}

impl Lease {
    /// Number of pages.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        (self.buffers.base + self.first * SYSTEM_PAGE) as *mut u8
    }

    /// The bytes, writable. The caller must not have lent them to a transfer.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped while `buffers` lives, lent to no other lease, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.pages * SYSTEM_PAGE) }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped while `buffers` lives, lent to no other lease; a transfer into it owns the
        // lease.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.pages * SYSTEM_PAGE) }
    }

    /// Splits off the pages after the first `pages`; possibly none.
    pub(super) fn split_off(&mut self, pages: usize) -> Self {
        let (first, rest) = (self.first + pages, self.pages - pages);
        self.pages = pages;
        Self { buffers: Arc::clone(&self.buffers), first, pages: rest }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.buffers.free.lock().give(self.first, self.pages);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("first", &self.first).field("pages", &self.pages).finish()
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers").field("pages", &self.pages).field("free", &self.free.lock().pages).finish()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: our own mapping; leases keep it alive.
        let unmapped = unsafe { munmap(self.base as *mut _, self.pages * SYSTEM_PAGE) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Maximum pages of a run: one word of the bitmap.
pub(super) const RUN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_adjacent_and_reusable() {
        let buffers = Buffers::new(128, 0).expect("memory");
        let mut leases: Vec<Lease> = (0..4).map(|_| buffers.lend(32, false).expect("room")).collect();
        assert!(buffers.lend(1, true).is_none());
        leases.remove(1);
        leases.remove(1);
        assert_eq!(buffers.lend(64, false).expect("room").pages(), 32, "no 64 side by side in one word");
        let mut lease = buffers.lend(20, false).expect("room");
        lease.bytes_mut().fill(7);
        drop(lease.split_off(3));
        assert_eq!((lease.bytes().len(), buffers.free.lock().pages), (3 * SYSTEM_PAGE, 61));
        drop((leases, lease));
        assert_eq!(buffers.free.lock().pages, 128);
    }

    #[test]
    fn reserved_pages_are_for_demand() {
        let buffers = Buffers::new(64, 16).expect("memory");
        let ahead = buffers.lend(64, false).expect("room");
        assert_eq!(ahead.pages(), 48);
        assert!(buffers.lend(1, false).is_none());
        assert_eq!(buffers.lend(8, true).expect("kept for it").pages(), 8);
    }

    #[test]
    fn runs_of_every_length_are_found_where_they_are() {
        for pages in 1..=64 {
            for bit in 0..=64 - pages {
                assert_eq!(run_in(mask(bit, pages), pages), Some(bit));
                assert_eq!(run_in(!mask(bit, pages) & mask(bit, pages), pages), None);
            }
        }
        assert_eq!(run_in(0b0111_0110, 3), Some(4));
    }
}
