//! `bowwave mount` stays within `--cache` + 64 MiB, whatever programs read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use crate::common::mounting;
use crate::common::served::Served;

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
    let mounted = Mounted::new(options, far);
    read_by_all(&mounted.at());
    let (peak, cache) = (mounted.peak_kib(), CACHE_MIB * 1024);
    assert!(
        peak <= cache + 64 * 1024,
        "{peak} KiB at the peak, {} more than the cache of {cache}\n{}",
        peak - cache,
        mounted.status()
    );
    // The cache was full; otherwise the peak would prove nothing.
    assert!(peak > cache * 3 / 4, "{peak} KiB at the peak of a cache of {cache}");
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

/// A mount of a directory with a sparse file per reader. Removed with the test.
struct Mounted {
    directory: PathBuf,
    served: Served,
}

impl Mounted {
    fn new(options: &[&str], far: bool) -> Self {
        let name = format!("bowwave-memory-{}-{}-{far}", std::process::id(), options.concat());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("from")).expect("the temporary directory is writable");
        fs::create_dir(directory.join("at")).expect("writable");
        for reader in 0..READERS {
            let file = File::create(directory.join("from").join(reader.to_string())).expect("writable");
            file.set_len(FILE_BYTES).expect("sparse files take no space");
        }
        let from = directory.join("from").display().to_string();
        // An object store with low latency, to keep the test short; windows and requests are
        // unchanged.
        let url = if far { format!("emulate:s3,latency=1ms,metadata=0:{from}") } else { from };
        let cache = format!("{CACHE_MIB}MiB");
        let options = [&["--cache", &cache], options].concat();
        let served = Served::start(&url, &directory.join("at"), &options);
        Self { directory, served }
    }

    fn at(&self) -> PathBuf {
        self.directory.join("at")
    }

    /// The kernel's status of the process.
    fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.served.id())).expect("it runs")
    }

    /// Peak resident set of the process, code included.
    fn peak_kib(&self) -> u64 {
        let status = self.status();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("every Linux has it");
        line.trim().strip_suffix(" kB").and_then(|figure| figure.parse().ok()).expect("a figure")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _none_if_it_never_was = bowwave_fuse::unmount(&self.at());
        let _best_effort = fs::remove_dir_all(self.directory.join("from"));
        // Not recursive: if still mounted, it would remove the user's files.
        let _best_effort = fs::remove_dir(self.at()).and_then(|()| fs::remove_dir(&self.directory));
    }
}

const READERS: usize = 64;
const CACHE_MIB: u64 = 64;
/// Eight times the cache in all.
const FILE_BYTES: u64 = 8 << 20;
