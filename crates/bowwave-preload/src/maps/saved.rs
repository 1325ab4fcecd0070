//! Modified pages of private maps, saved for a child.
//!
//! A child does not inherit a region, so modifications would be lost. Before a fork, the modified
//! pages are copied; the child restores them.

use std::collections::BTreeMap;
use std::ops::Range;

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
    /// The modified pages of a range: the private ones. `None` if the page map cannot be read.
    fn of(range: &Range<usize>) -> Option<Self> {
        let mut saved = Self { pages: Vec::new(), bytes: Vec::new() };
        bowwave_region::private_pages(range, |at| {
            saved.pages.push(at);
            // SAFETY: mapped and readable, since the process has written to it.
            saved.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, PAGE) });
        })
        .ok()?;
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
