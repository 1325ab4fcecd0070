//! Regression: the kernel unmaps pages of a swap by itself, under pressure or for DAMON.
//!
//! Such pages stay in the memory file, and the pager counts them as mapped. The fault of a load was
//! answered without mapping the page, so the load faulted for ever.
#![allow(unsafe_code, reason = "has the kernel reclaim memory")]

mod swap_model;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use bowwave_backend::MemoryBackend;
use bowwave_region::{Spill, SwapRegion};
use rustix::mm::{Advice, madvise};
use swap_model::swap;

const PAGE: usize = 4096;
const PAGES: usize = 256;
/// A page that is not mapped again in this time never is.
const HANG: Duration = Duration::from_secs(20);

/// How many pages of the region are mapped.
fn mapped(region: &SwapRegion) -> usize {
    let mut entries = vec![0; PAGES * 8];
    let at = region.as_slice().as_ptr() as usize / PAGE * 8;
    let map = File::open("/proc/self/pagemap").expect("Linux");
    map.read_exact_at(&mut entries, at as u64).expect("entries of our own pages");
    entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
}

#[test]
fn pages_that_the_kernel_unmaps_are_mapped_again_by_loads_and_stores() {
    let spill = Spill::store(Arc::new(MemoryBackend::new()), "spill", 64 << 20);
    let Some(swap) = swap(&spill, 8 << 20) else { return };
    let mut region = swap.region(PAGES * PAGE).expect("a region");
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        for round in 1..=3_u8 {
            region.as_mut_slice().chunks_mut(PAGE).for_each(|page| page.fill(round));
            let at = region.as_slice().as_ptr().cast_mut();
            // SAFETY: the pages are the region's, and their content stays.
            unsafe { madvise(at.cast(), PAGES * PAGE, Advice::LinuxPageOut) }.expect("Linux 5.4");
            let left = mapped(&region);
            assert!(left < PAGES / 2, "the kernel has reclaimed nothing: {left} pages are mapped");
            assert!(region.as_slice().iter().all(|&byte| byte == round));
        }
        sender.send(()).expect("the test waits");
    });
    receiver.recv_timeout(HANG).expect("a touch of a page that the kernel unmapped has ended");
}
