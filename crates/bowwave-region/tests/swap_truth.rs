//! Random writes and reads by several threads over far more than the memory, against a model.
//!
//! The model is a seed: each thread has pages of its own, and each eight bytes it writes are a function of the seed, the place and how often
//! that place was written, which the thread counts. `BOWWAVE_SWAP_OPS` sets how many operations there are in all, `BOWWAVE_SWAP_SEED` the seed.
#![allow(unsafe_code, reason = "threads write to one region side by side")]
#![allow(clippy::print_stderr, reason = "says how to reproduce a failure")]

use std::thread;

use bowwave_region::{Error, Spill, Swap, SwapOptions, SwapRegion};

const THREADS: u64 = 4;
const MEMORY: u64 = 8 << 20;
/// Eight times the memory.
const LEN: usize = 64 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// SplitMix64: a good mixing of a counter.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

/// Where the swap can be had; else why not.
fn swap(spill: &Spill, memory: u64) -> Option<Swap> {
    let options = SwapOptions { memory_bytes: Some(memory), ..SwapOptions::default() };
    match Swap::new(spill, &options) {
        Ok(swap) => Some(swap),
        Err(error @ Error::System { wanted: "use userfaultfd", .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A cell's value after `version` writes; zero before the first, and one in four ever after, so that there are pages of zeros.
fn value(seed: u64, cell: u64, version: u32) -> u64 {
    if version == 0 { 0 } else { mix(seed ^ cell.wrapping_mul(0x1_0000_0001) ^ u64::from(version) << 40) }
}

/// Writes and reads at random, and checks each read, and in the end everything.
fn run(region: &SwapRegion, ops: u64, seed: u64) {
    let base = region.as_ptr() as usize;
    let cells = (region.len() / 8) as u64;
    let share = cells / THREADS;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut random = Random(seed ^ mix(thread + 1));
                let mut versions = vec![0u32; share as usize];
                // Shares alternate page by page, so that each page's neighbours are another thread's.
                let cell_of = |index: u64| {
                    let (page, within) = (index / 512, index % 512);
                    (page * THREADS + thread) * 512 + within
                };
                let check = |index: u64, version: u32| {
                    let cell = cell_of(index);
                    // SAFETY: inside the region, and no other thread's.
                    let found = unsafe { std::ptr::read_volatile((base as *const u64).add(cell as usize)) };
                    assert_eq!(
                        found,
                        value(seed, cell, version),
                        "cell {cell}, version {version}, seed {seed}"
                    );
                };
                for _ in 0..ops / THREADS {
                    let draw = random.next();
                    // Half of the touches go to a tenth of the pages.
                    let range = if draw & 4 == 0 { share / 10 } else { share };
                    let index = random.next() % range;
                    if draw & 1 == 0 {
                        let version = &mut versions[index as usize];
                        *version += 1;
                        let cell = cell_of(index);
                        // SAFETY: as above.
                        unsafe {
                            std::ptr::write_volatile(
                                (base as *mut u64).add(cell as usize),
                                value(seed, cell, *version),
                            )
                        };
                    } else {
                        check(index, versions[index as usize]);
                    }
                }
                for index in 0..share {
                    check(index, versions[index as usize]);
                }
            });
        }
    });
}

#[test]
fn what_was_written_is_read_whatever_goes_out_and_comes_back() {
    let (ops, seed) = (number("BOWWAVE_SWAP_OPS", 200_000), number("BOWWAVE_SWAP_SEED", 1));
    let folder = tempfile::tempdir().expect("a folder");
    let Some(swap) = swap(&Spill::file(folder.path(), 96 << 20), MEMORY) else { return };
    let region = swap.region(LEN).expect("a region");
    run(&region, ops, seed);
    let report = region.report();
    eprintln!("{report:?}");
    assert!(report.stats.swap_in > 0 && report.stats.swap_out > 0, "it went out and came back: {report:?}");
    assert!(report.load.frames_used <= report.load.frames, "{report:?}");
}
