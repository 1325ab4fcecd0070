//! Measures how a mount should use the kernel's page cache and readahead: the figures of ADR 3.
//!
//! ```text
//! cargo run --release -p bowwave-fuse --example kernel_cache -- shipped direct ra=0 ra=256 ra=0,push=before
//! cargo run --release -p bowwave-fuse --example kernel_cache -- slow,ra=128 slow,ra=256
//! ```
//!
//! Each argument is one choice. All data is in memory, as in a warm cache, and every measurement
//! reads a file that the kernel has never seen. Words of a choice, joined by commas:
//!
//! ```text
//! shipped       the crate's own mount with its defaults     shipped-off  the same with KernelCache::Off
//! direct        FOPEN_DIRECT_IO                             ra=KIB       the mount's read_ahead_kb (128)
//! threads=N     threads that serve requests (4)             clone        a descriptor for each thread
//! push=before   FUSE_NOTIFY_STORE of the next pages before answering a sequential request
//! push=after    the same after answering                    push_kib=N   how much to push (1024)
//! slow          every request takes 30 ms and 11 ns a byte (90 MB/s), and nothing reads ahead but the kernel
//! ```

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod choice;
mod patterns;
mod raw;
mod shipped;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use choice::Choice;
use patterns::Pattern;

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words = if words.is_empty() { vec!["shipped".to_owned()] } else { words };
    let data: Arc<Vec<u8>> = Arc::new((0..FILE_BYTES).map(|at| (at >> 12) as u8 ^ at as u8).collect());
    for word in words {
        let choice: Choice = match word.parse() {
            Ok(choice) => choice,
            Err(unknown) => {
                println!("{word}: unknown word {unknown}");
                return;
            }
        };
        println!("== {word}");
        let dir = std::env::temp_dir().join(format!("bowwave-kernel-cache-{}", std::process::id()));
        fs::create_dir(&dir).expect("the temporary directory is writable");
        let seen = Arc::new(Seen::default());
        if choice.shipped {
            let mount = shipped::mount(&dir, &data, &seen, &choice);
            measure_all(&dir, &seen, &choice);
            mount.unmount().expect("idle");
        } else {
            let session = raw::mount(&dir, &data, &seen, &choice);
            measure_all(&dir, &seen, &choice);
            rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).expect("idle");
            session.join().expect("unmounted");
        }
        fs::remove_dir(&dir).expect("unmounted");
    }
}

fn measure_all(dir: &Path, seen: &Seen, choice: &Choice) {
    let mut fresh = (1..).map(|number| dir.join(format!("f{number}")));
    let patterns = if choice.slow { patterns::slow() } else { patterns::fast(choice.direct) };
    for pattern in patterns {
        let runs = if choice.slow { 1 } else { 5 };
        let mut measured: Vec<_> = (0..runs)
            .map(|_| measure(&fresh.next().expect("endless"), seen, &pattern, choice.slow))
            .collect();
        measured.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let rate = |at: usize| measured[at].bytes as f64 / measured[at].seconds / 1e6;
        let middle = &measured[runs / 2];
        println!(
            "{:26} {:7.0} MB/s ({:5.0} to {:5.0}) {:10.1} us/op  {:7.2} requests/op of {:4} KiB, \
             {:5.2} bytes fetched per byte, {} out of order",
            pattern.name,
            rate(runs / 2),
            rate(runs - 1),
            rate(0),
            middle.seconds * 1e6 / middle.operations as f64,
            middle.requests as f64 / middle.operations as f64,
            middle.fetched / middle.requests.max(1) / 1024,
            middle.fetched as f64 / middle.bytes as f64,
            middle.disordered,
        );
    }
}

struct Measured {
    seconds: f64,
    bytes: u64,
    operations: u64,
    requests: u64,
    fetched: u64,
    disordered: u64,
}

fn measure(path: &PathBuf, seen: &Seen, pattern: &Pattern, slow: bool) -> Measured {
    let file = File::open(path).expect("every name opens");
    seen.reset();
    let start = Instant::now();
    let operations = (pattern.run)(&file);
    let seconds = start.elapsed().as_secs_f64();
    if slow {
        // Include the kernel's last speculative request.
        std::thread::sleep(Duration::from_millis(100));
    }
    let measured = Measured {
        seconds,
        bytes: operations * pattern.bytes,
        operations,
        requests: seen.requests.load(Ordering::Relaxed),
        fetched: seen.bytes.load(Ordering::Relaxed),
        disordered: seen.disordered.load(Ordering::Relaxed),
    };
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
    measured
}

/// Requests that arrive at the mount.
#[derive(Debug, Default)]
struct Seen {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests that start before the highest end offset so far.
    disordered: AtomicU64,
    end: AtomicU64,
}

impl Seen {
    fn note(&self, offset: u64, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if offset < self.end.fetch_max(offset + bytes, Ordering::Relaxed) {
            self.disordered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        for counter in [&self.requests, &self.bytes, &self.disordered, &self.end] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

const FILE_BYTES: usize = 512 << 20;
