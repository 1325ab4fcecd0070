//! `bowwave mount` stays within `--cache` + 64 MiB, whatever programs read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{mounting, peak_memory};

#[test]
fn memory_stays_within_the_cache_and_64_mib_under_64_readers_where_the_kernel_keeps_pages() {
    holds(&["--set", "kernel_cache=on"], false);
}

#[test]
fn memory_stays_within_the_cache_and_64_mib_under_64_readers_of_a_far_store() {
    holds(&["--set", "kernel_cache=on"], true);
}

#[test]
fn memory_stays_within_the_cache_and_64_mib_under_64_readers_where_the_kernel_keeps_none() {
    holds(&["--set", "kernel_cache=off"], false);
}

#[test]
fn memory_stays_within_the_cache_and_64_mib_under_64_readers_of_a_far_store_where_the_kernel_keeps_none() {
    holds(&["--set", "kernel_cache=off"], true);
}

fn holds(options: &[&str], far: bool) {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("memory");
    let served = mount(&place, options, far);
    read_by_all(&place.at());
    let peak = peak_memory(served.id()).expect("it runs");
    assert!(
        peak <= CACHE + (64 << 20),
        "{peak} bytes at the peak, {} more than the cache of {CACHE}\n{}",
        peak - CACHE,
        fs::read_to_string(format!("/proc/{}/status", served.id())).expect("it runs")
    );
    // The cache was full; otherwise the peak would prove nothing.
    assert!(peak > CACHE * 3 / 4, "{peak} bytes at the peak of a cache of {CACHE}");
}

/// Every reader reads its file in all orders; at any time, each order has readers.
fn read_by_all(at: &Path) {
    let start = Barrier::new(READERS);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let start = &start;
            scope.spawn(move || {
                let file = File::open(at.join(reader.to_string())).expect("a file of the mount");
                let orders: [fn(&File, usize); 3] = [sequential, random, backward];
                for round in 0..orders.len() {
                    start.wait();
                    orders[(reader + round) % orders.len()](&file, reader);
                }
            });
        }
    });
}

fn sequential(file: &File, _reader: usize) {
    let mut buffer = vec![0; 128 << 10];
    for offset in (0..FILE_BYTES).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, offset).expect("the file is that long");
    }
}

fn random(file: &File, reader: usize) {
    let mut buffer = [0; 4096];
    // A linear congruential generator: pages only need to be scattered and reproducible.
    let mut state = reader as u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.read_exact_at(&mut buffer, (state >> 33) % (FILE_BYTES / 4096) * 4096).expect("inside the file");
    }
}

fn backward(file: &File, _reader: usize) {
    let mut buffer = vec![0; 1 << 20];
    let mut offset = FILE_BYTES;
    while offset > 0 {
        offset -= buffer.len() as u64;
        file.read_exact_at(&mut buffer, offset).expect("the file is that long");
    }
}

/// Mounts a directory with a sparse file per reader.
fn mount(place: &Place, options: &[&str], far: bool) -> Served {
    for reader in 0..READERS {
        let file = File::create(place.store().join(reader.to_string())).expect("writable");
        file.set_len(FILE_BYTES).expect("sparse files take no space");
    }
    let store = place.store().display().to_string();
    // An object store with low latency, to keep the test short; windows and requests are unchanged.
    let url = if far { format!("emulate:s3,latency=1ms,metadata=0:{store}") } else { store };
    let cache = format!("{}MiB", CACHE >> 20);
    Served::start(&url, &place.at(), &[&["--cache", &cache], options].concat())
}

const READERS: usize = 64;
const CACHE: u64 = 64 << 20;
/// Eight times the cache in all.
const FILE_BYTES: u64 = 8 << 20;
