//! Measures the cost of a write through the mount for each page cache mode: the figures of ADR 12.
//!
//! `cargo run --release -p bowwave-fuse --example write_cache [DIR]`: data is copied to
//! the engine's cache, and from there to a store in memory. The kernel's own file system in DIR
//! (default: the temporary directory) is measured for comparison.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement for people")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_engine::backend::MemoryBackend;
use bowwave_engine::{Engine, Options, Store};
use bowwave_fuse::{KernelCache, Mount, MountOptions};

/// File size in bytes.
const FILE_BYTES: usize = 256 << 20;

/// A file in memory, behind an engine that holds all of it.
fn store() -> Store {
    let memory = MemoryBackend::new();
    memory.insert("f", vec![1; FILE_BYTES]);
    let options = Options { cache_bytes: Some(2 * FILE_BYTES as u64), ..Options::default() };
    Engine::new(options).expect("there is memory").store_of(Arc::new(memory))
}

/// Writes the file once with requests of `piece` bytes, in order or shuffled; bytes per second.
fn measure(path: &Path, piece: usize, random: bool) -> f64 {
    let bytes = vec![7; piece];
    let pieces = (FILE_BYTES / piece).min(if random { 20_000 } else { usize::MAX });
    let file: File = OpenOptions::new().write(true).open(path).expect("there");
    let start = Instant::now();
    for at in 0..pieces {
        // An odd factor visits each offset once.
        let at = if random { at * 40_503 % (FILE_BYTES / piece) } else { at };
        file.write_all_at(&bytes, (at * piece) as u64).expect("room");
    }
    (pieces * piece) as f64 / start.elapsed().as_secs_f64()
}

fn row(name: &str, path: &Path) {
    let mut line = format!("{name:<28}");
    for (piece, random) in [(1 << 20, false), (128 << 10, false), (4 << 10, false), (4 << 10, true)] {
        let mut speeds: Vec<f64> = (0..5).map(|_| measure(path, piece, random)).collect();
        speeds.sort_by(f64::total_cmp);
        line += &format!(" {:>8.2}", speeds[2] / 1e9);
    }
    println!("{line}");
}

fn main() {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!("GB/s, median of 5           {:>9} {:>8} {:>8} {:>8}", "1 MiB", "128 KiB", "4 KiB", "random 4");
    let own = dir.join(format!("bowwave-write-cache-{}", std::process::id()));
    fs::write(&own, vec![1; FILE_BYTES]).expect("room");
    row("the kernel's own, cached", &own);
    fs::remove_file(&own).expect("just made");
    fs::create_dir(&own).expect("writable");
    for (name, kernel_cache) in
        [("kernel cache, write-through", KernelCache::On), ("direct", KernelCache::Off)]
    {
        let options = MountOptions { kernel_cache, ttl: Duration::from_secs(60), ..MountOptions::default() };
        let mount = Mount::new(store(), &own, options).expect("mounts can be made here");
        row(name, &own.join("f"));
        mount.unmount().expect("idle");
    }
    fs::remove_dir(&own).expect("empty");
}
