//! The kernel's page map of this process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use crate::uffd::SYSTEM_PAGE;

/// Bits of an entry of `/proc/PID/pagemap` (the kernel's
/// `Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Entries per read.
const ENTRIES: usize = 8192;

/// Calls `found` with the address of each page in `range` that is private to the process, such as a
/// page that it has written to a private map.
///
/// # Errors
/// If the page map cannot be read.
pub fn private_pages(range: &Range<usize>, mut found: impl FnMut(usize)) -> io::Result<()> {
    let page_map = File::open("/proc/self/pagemap")?;
    let mut entries = vec![0u8; ENTRIES * 8];
    let mut at = range.start;
    while at < range.end {
        let count = ((range.end - at) / SYSTEM_PAGE).min(ENTRIES);
        let part = &mut entries[..count * 8];
        page_map.read_exact_at(part, (at / SYSTEM_PAGE * 8) as u64)?;
        for entry in part.chunks_exact(8) {
            let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
            if entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0 {
                found(at);
            }
            at += SYSTEM_PAGE;
        }
    }
    Ok(())
}
