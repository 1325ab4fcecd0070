//! Memory usage of a swap as the kernel counts it, in its own process, for any duration.
//!
//! `BOWWAVE_SWAP_SOAK_SECONDS=600` runs a soak over sixteen times the memory, with progress on
//! standard error every ten seconds.
#![allow(clippy::print_stderr, reason = "reports progress")]

mod swap_model;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_region::{RegionAdvice, Spill};
use swap_model::{Model, Run, number, swap};

const MEMORY: u64 = 16 << 20;
/// Sixteen times the memory.
const LEN: usize = 256 << 20;

/// Memory of this process in bytes: its own pages, and those of its memory file, mapped or not.
fn memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5");
    let own: u64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    let files = fs::read_dir("/proc/self/fd").expect("Linux").flatten().map(|entry| entry.path());
    let ours = files.filter(|path| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:bowwave-swap"))
    });
    let shared: u64 = ours.filter_map(|path| Some(fs::metadata(path).ok()?.blocks() * 512)).sum();
    (own << 10) + shared
}

#[test]
fn memory_stays_within_the_budget_at_sixteen_times_its_size() {
    let seconds = number("BOWWAVE_SWAP_SOAK_SECONDS", 0);
    let before = memory_bytes();
    let directory = tempfile::tempdir().expect("a directory");
    let Some(swap) = swap(&Spill::file(directory.path(), LEN as u64 + (64 << 20)), MEMORY) else { return };
    let mut region = swap.region(LEN).expect("a region");
    let (done, peak, over, begin) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    // Exclude the model's own memory and the initial memory of the test.
    let mut model = Model::new(&region);
    let before = before + model.bytes();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut told = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(memory_bytes(), Ordering::Relaxed);
                if seconds > 0 && begin.elapsed() > told + Duration::from_secs(10) {
                    told = begin.elapsed();
                    let (report, done) = (swap.report(), done.load(Ordering::Relaxed));
                    eprintln!(
                        "{} s: {done} operations, {} pages in, {} out",
                        told.as_secs(),
                        report.stats.swap_in,
                        report.stats.swap_out
                    );
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut seed = number("BOWWAVE_SWAP_SEED", 1);
        let ops = if seconds > 0 { 400_000 } else { 30_000 };
        loop {
            Run { region: &region, ops, seed, done: &done }.check(&mut model);
            if begin.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
            // The next run starts with zeros again.
            seed += 1;
            region.advise(0..LEN, RegionAdvice::DontNeed).expect("it is all of it");
        }
        over.store(true, Ordering::Relaxed);
    });
    let report = region.report();
    let taken = peak.into_inner().saturating_sub(before);
    eprintln!("{taken} bytes at most, of {MEMORY}; {report:?}");
    assert!(report.stats.swap_out > 0, "{report:?}");
    assert!(taken <= MEMORY + MEMORY / 20, "{taken} bytes of {MEMORY}");
}
