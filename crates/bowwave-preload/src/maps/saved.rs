//! What a program has written to its private maps, for its child.
//!
//! A region is not inherited, and so would be what was written to it. Before a fork the pages that are the program's own are
//! copied; the child has them put back.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::{Mapped, PAGE};

/// Pages of one map that the program has written to.
pub(crate) struct Saved {
    /// Addresses of pages, in order.
    pages: Vec<usize>,
    /// What they hold.
    bytes: Vec<u8>,
}

/// Copies what was written to.
pub(crate) fn save(maps: &BTreeMap<usize, Mapped>) -> Vec<Saved> {
    let written = maps.values().filter(|map| map.writable && map.region.is_some());
    written.filter_map(|map| Saved::of(&map.shown)).filter(|saved| !saved.pages.is_empty()).collect()
}

impl Saved {
    /// The pages of these addresses that are the process's own, as the kernel's page map has them.
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
                    // SAFETY: mapped, readable and there, since the process has written to it.
                    saved
                        .bytes
                        .extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, PAGE) });
                }
                at += PAGE;
            }
        }
        Some(saved)
    }

    /// Addresses from the first page to the end of the last.
    pub(super) fn range(&self) -> Range<usize> {
        self.pages[0]..self.pages[self.pages.len() - 1] + PAGE
    }

    /// Writes them to where they were.
    pub(super) fn put_back(&self) {
        for (&at, page) in self.pages.iter().zip(self.bytes.chunks_exact(PAGE)) {
            // SAFETY: a writable map is there again; the child has no other thread yet that touches it.
            unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), at as *mut u8, PAGE) };
        }
    }
}

/// Bits of an entry of `/proc/PID/pagemap` (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Entries read at once.
const ENTRIES: usize = 8192;
