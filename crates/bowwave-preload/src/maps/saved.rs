//! Modified pages of private maps, saved for a child.
//!
//! A child does not inherit a region, so modifications would be lost. Before a fork, the modified
//! pages are copied; the child restores them.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::{Mapped, PAGE};

/// Modified pages of one map.
pub(crate) struct Saved {
    /// Page addresses, in order.
    pages: Vec<usize>,
    /// Content of the pages.
    bytes: Vec<u8>,
}

/// Saves modified pages.
pub(crate) fn save(maps: &BTreeMap<usize, Mapped>) -> Vec<Saved> {
    let written = maps.values().filter(|map| map.writable && map.region.is_some());
    written.filter_map(|map| Saved::of(&map.region_range)).filter(|saved| !saved.pages.is_empty()).collect()
}

impl Saved {
    /// The modified pages of a range: those that are private in `/proc/self/pagemap`. `None` if it
    /// cannot be read.
    fn of(range: &Range<usize>) -> Option<Self> {
        let page_map = File::open("/proc/self/pagemap").ok()?;
        let mut saved = Self { pages: Vec::new(), bytes: Vec::new() };
        let mut entries = vec![0u8; ENTRIES * 8];
        let mut at = range.start;
        while at < range.end {
            let count = ((range.end - at) / PAGE).min(ENTRIES);
            let part = &mut entries[..count * 8];
            page_map.read_exact_at(part, (at / PAGE * 8) as u64).ok()?;
            for entry in part.chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                if entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0 {
                    saved.pages.push(at);
                    // SAFETY: mapped and readable, since the process has written to it.
                    saved
                        .bytes
                        .extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, PAGE) });
                }
                at += PAGE;
            }
        }
        Some(saved)
    }

    /// From the first page to the end of the last.
    pub(super) fn range(&self) -> Range<usize> {
        self.pages[0]..self.pages[self.pages.len() - 1] + PAGE
    }

    /// Restores the pages.
    pub(super) fn put_back(&self) {
        for (&at, page) in self.pages.iter().zip(self.bytes.chunks_exact(PAGE)) {
            // SAFETY: the map is writable again; the child has no other thread that accesses it.
            unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), at as *mut u8, PAGE) };
        }
    }
}

/// Bits of an entry of `/proc/PID/pagemap` (the kernel's
/// `Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Entries per read.
const ENTRIES: usize = 8192;
