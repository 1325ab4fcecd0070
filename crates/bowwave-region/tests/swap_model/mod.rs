//! Random writes and reads by several threads over far more than the memory, checked against a
//! model.
//!
//! The model is a seed. Each thread has its own pages. Each eight bytes written are a function of
//! the seed, the cell and the cell's version, which the thread counts.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(unsafe_code, reason = "threads write to one region concurrently")]
#![allow(clippy::print_stderr, reason = "reports how to reproduce a failure")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bowwave_core::{Random, mix};
use bowwave_region::uffd::Delivery;
use bowwave_region::{Error, Spill, Swap, SwapOptions, SwapRegion};

const THREADS: u64 = 4;
/// A number from the environment: a test's length or seed.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// Prints why a test does not run here. With `CI=true` that is a failure.
pub(crate) fn skipped(reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test must run in CI: {reason}");
    eprintln!("skipped: {reason}");
}

/// A swap, if possible here; see [`skipped`].
pub(crate) fn swap(spill: &Spill, memory: u64) -> Option<Swap> {
    swap_told(Delivery::Message, spill, memory)
}

/// As `swap`, with this delivery of page faults.
pub(crate) fn swap_told(delivery: Delivery, spill: &Spill, memory: u64) -> Option<Swap> {
    swap_with(spill, &SwapOptions { memory_bytes: Some(memory), delivery, ..SwapOptions::default() })
}

/// As `swap`, with these options.
pub(crate) fn swap_with(spill: &Spill, options: &SwapOptions) -> Option<Swap> {
    match Swap::new(spill, options) {
        Ok(swap) => Some(swap),
        Err(error @ Error::System { wanted: "use userfaultfd", .. }) => {
            skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A cell's value at a version; zero at the first.
fn value(seed: u64, cell: u64, version: u32) -> u64 {
    if version == FIRST { 0 } else { mix(seed ^ cell.wrapping_mul(0x1_0000_0001) ^ u64::from(version) << 40) }
}

/// Random writes and reads of one region.
pub(crate) struct Run<'a> {
    pub(crate) region: &'a SwapRegion,
    /// Total operations.
    pub(crate) ops: u64,
    pub(crate) seed: u64,
    /// Operations so far.
    pub(crate) done: &'a AtomicU64,
}

impl Run<'_> {
    /// Checks every read, and finally all cells. The region starts with zeros.
    pub(crate) fn check(&self, model: &mut Model) {
        thread::scope(|scope| {
            for (thread, versions) in (0..THREADS).zip(&mut model.shares) {
                scope.spawn(move || self.check_share(thread, versions));
            }
        });
    }

    fn check_share(&self, thread: u64, versions: &mut [u32]) {
        let share = versions.len() as u64;
        let mut random = Random::from_state(self.seed ^ mix(thread + 1));
        versions.fill(FIRST);
        for turn in 0..self.ops / THREADS {
            let draw = random.bits();
            // Half of the accesses go to a tenth of the pages.
            let range = if draw & 4 == 0 { share / 10 } else { share };
            let index = random.bits() % range;
            let version = &mut versions[index as usize];
            if draw & 1 == 0 {
                *version += 1;
                let value = value(self.seed, cell_of(thread, index), *version);
                // SAFETY: inside the region, in this thread's share.
                unsafe { std::ptr::write_volatile(self.address(thread, index), value) };
            } else {
                self.check_cell(thread, index, *version);
            }
            if turn.is_multiple_of(64) {
                self.done.fetch_add(64, Ordering::Relaxed);
            }
        }
        for index in 0..share {
            self.check_cell(thread, index, versions[index as usize]);
        }
    }

    fn check_cell(&self, thread: u64, index: u64, version: u32) {
        // SAFETY: inside the region, and no other thread writes there.
        let found = unsafe { std::ptr::read_volatile(self.address(thread, index)) };
        let cell = cell_of(thread, index);
        assert_eq!(
            found,
            value(self.seed, cell, version),
            "cell {cell}, version {version}, seed {}",
            self.seed
        );
    }

    fn address(&self, thread: u64, index: u64) -> *mut u64 {
        self.region.as_ptr().cast::<u64>().wrapping_add(cell_of(thread, index) as usize)
    }
}

/// Cells in use: some of each page.
fn cells(region: &SwapRegion) -> u64 {
    region.len() as u64 / PAGE * CELLS_OF_PAGE
}

/// Version of each cell of a region, by thread. Allocated once for all runs: allocators keep what
/// ended threads free, and it would count as the swap's.
pub(crate) struct Model {
    shares: Vec<Vec<u32>>,
}

impl Model {
    pub(crate) fn new(region: &SwapRegion) -> Self {
        let share = cells(region) / THREADS;
        Self { shares: (0..THREADS).map(|_| vec![FIRST; share as usize]).collect() }
    }

    /// Size of the model in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shares.iter().map(|share| (share.len() * size_of::<u32>()) as u64).sum()
    }
}

/// Index of a cell. Shares alternate page by page, so that neighbouring pages belong to different
/// threads; cells are scattered over their page.
fn cell_of(thread: u64, index: u64) -> u64 {
    let (page, within) = (index / CELLS_OF_PAGE, index % CELLS_OF_PAGE);
    let page = page * THREADS + thread;
    page * (PAGE / 8) + (within * 37 + page) % (PAGE / 8)
}

const PAGE: u64 = 4096;
/// Cells in use per page. Multiplying the index by 37 scatters them without collisions.
const CELLS_OF_PAGE: u64 = 16;
/// Version of a cell that was never written. Not 0, so that the model's memory is resident from the
/// start.
const FIRST: u32 = 1;
