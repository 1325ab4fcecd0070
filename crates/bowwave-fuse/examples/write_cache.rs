//! Measures the cost of a write through the mount for each page cache mode: the figures of ADR 12.
//!
//! `cargo run --release -p bowwave-fuse --example write_cache [DIR]`: data is copied once to
//! memory, as the cache does. The kernel's own file system in DIR (default: the temporary
//! directory) is measured for comparison.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement for people")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bowwave_engine::backend::{Entry, EntryKind, Error, ErrorKind, Identity, Result, Writes};
use bowwave_fuse::{KernelCache, Mount, MountOptions, NewFile, OpenFile, Tree};

/// File size in bytes.
const FILE_BYTES: usize = 256 << 20;

/// A single file that keeps only the last bytes written.
struct Memory;

struct Kept {
    bytes: Mutex<Vec<u8>>,
}

impl Tree for Memory {
    type File = Kept;

    fn url(&self) -> &str {
        "memory://written"
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let kind = if path.as_os_str().is_empty() { EntryKind::Directory } else { EntryKind::File };
        let size = if kind == EntryKind::File { FILE_BYTES as u64 } else { 0 };
        Ok(Entry { size, ..Entry::new(path.file_name().unwrap_or_default(), kind) })
    }

    fn list(&self, _path: &Path) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn read_link(&self, _path: &Path) -> Result<PathBuf> {
        Err(Error::new(ErrorKind::Unsupported, "no links"))
    }

    fn open(&self, path: &Path) -> Result<Kept> {
        self.open_write(path, None)
    }

    fn writes(&self) -> Writes {
        Writes::Anywhere
    }

    fn open_write(&self, _path: &Path, _new: Option<NewFile>) -> Result<Kept> {
        Ok(Kept { bytes: Mutex::new(vec![1; FILE_BYTES]) })
    }
}

impl OpenFile for Kept {
    fn size(&self) -> u64 {
        FILE_BYTES as u64
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn version(&self) -> u64 {
        1
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let offset = usize::try_from(offset).expect("small");
        buf.copy_from_slice(&self.bytes.lock().expect("no panic")[offset..offset + buf.len()]);
        Ok(buf.len())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        let offset = usize::try_from(offset).expect("small");
        self.bytes.lock().expect("no panic")[offset..offset + buf.len()].copy_from_slice(buf);
        Ok(buf.len())
    }
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
        let mount = Mount::new(Memory, &own, options).expect("mounts can be made here");
        row(name, &own.join("f"));
        mount.unmount().expect("idle");
    }
    fs::remove_dir(&own).expect("empty");
}
