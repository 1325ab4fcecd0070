//! The size of the directory, over all processes that share it.
//!
//! A process reserves space in steps, from a count in the locked file `used`, and writes at most
//! what it reserved. When the count is full, the process counts the actual bytes, and removes the
//! least recently used segments until an eighth is free. A killed process leaves a count that is
//! too high until then.
//!
//! A live process holds a lock on a directory in `live`, whose name says how much it may still
//! write, since processes may have different sizes and steps. So the directory never exceeds its
//! size. A wrong number there makes the count too high or too low, but never determines an
//! allocation.
//!
//! Between two reservations no file is open, only directories. Closing a file waits for network and
//! FUSE file systems; closing a directory does not. So a process that ends, or starts another one,
//! does not wait for a disk that hangs.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

use super::Counters;
use super::directory::{Directory, Fault};
use super::segment::SEGMENT_FILE;
use crate::{Error, ErrorKind, Result};

/// A process's share of the directory's size. One thread uses it: its calls wait for the disk, and
/// for other processes.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) directory: Arc<Directory>,
    counters: Arc<Counters>,
    bytes: u64,
    /// Bytes reserved at a time.
    step: u64,
    /// Bytes reserved and not written.
    left: u64,
    live: Directory,
    /// The name of the directory in `live` that is locked while this process may write.
    alive: String,
    _alive: Directory,
}

/// Smallest useful size: a few segments for each of a few processes.
pub(super) const BYTES_MIN: u64 = 64 << 20;
/// Most bytes reserved at a time.
const STEP_MAX: u64 = 64 << 20;

impl Quota {
    /// Opens the directory at `path`, creates it if it is missing, and shrinks it to `bytes`.
    ///
    /// # Errors
    /// Too few bytes; a directory with other files in it, or that is not safe from other users.
    pub(super) fn open(path: &Path, bytes: u64, counters: Arc<Counters>) -> Result<Self> {
        let place = format!("disk cache {}", path.display());
        let failed = |error: io::Error| Error::from_os(&place, &error);
        if bytes < BYTES_MIN {
            let message = format!("a disk cache of {}: it needs at least 64MiB", crate::size_text(bytes));
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let directory = Directory::open(path)?;
        // In this order: a concurrently starting process creates the mark first.
        let has_files = directory.names().map_err(failed)?.next().is_some();
        if has_files && directory.stat(MARK).is_err() {
            let message =
                format!("the {place}: the directory has other files in it (name an empty or a new one)");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Self::begin(directory, bytes, counters).map_err(failed)
    }

    fn begin(directory: Directory, bytes: u64, counters: Arc<Counters>) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let own = |directory: &Directory, name: &str| -> io::Result<File> {
            let (file, replaced) = directory.own_file(name)?;
            counters.count(|stats| stats.damaged += u64::from(replaced));
            Ok(file)
        };
        own(&directory, MARK)?;
        let (live, replaced) = directory.own_subdirectory("live")?;
        counters.count(|stats| stats.damaged += u64::from(replaced));
        // A single process uses nearly all of the size, and with some GiB dozens of processes find
        // space.
        let step = (bytes / 64).clamp(SEGMENT_FILE, STEP_MAX);
        // A process that counts the live ones must not see one that has not locked its directory
        // yet.
        let birth = own(&directory, USED)?;
        flock(&birth, FlockOperation::LockExclusive)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // A step is reserved when the rest of the last one is too small for a write, which is at
        // most a segment.
        let alive = format!("{}-{number}-{}", std::process::id(), step + SEGMENT_FILE);
        let (held, _) = live.own_subdirectory(&alive)?;
        held.lock(FlockOperation::NonBlockingLockExclusive)?;
        drop(birth);
        let directory = Arc::new(directory);
        let mut quota = Self { directory, counters, bytes, step, left: 0, live, alive, _alive: held };
        // Shrinks a directory that was larger.
        quota.refill()?;
        Ok(quota)
    }

    /// Reserves `bytes` bytes, at most a segment; `false` if the directory is full.
    pub(super) fn take(&mut self, bytes: u64) -> io::Result<bool> {
        if self.left < bytes {
            self.refill()?;
        }
        let fits = self.left >= bytes;
        if fits {
            self.left -= bytes;
        }
        Ok(fits)
    }

    /// Returns reserved bytes that were not written.
    pub(super) fn give(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Reserves one more step, unless other processes have reserved everything.
    fn refill(&mut self) -> io::Result<()> {
        let mut used = self.lock()?;
        let mut count = read_count(&mut used)?.unwrap_or(u64::MAX);
        if count.saturating_add(self.step) > self.bytes {
            count = self.evict()?;
        }
        let fits = count.saturating_add(self.step) <= self.bytes;
        if fits {
            count += self.step;
        }
        write_count(&mut used, count)?;
        drop(used);
        if fits {
            self.left += self.step;
        }
        Ok(())
    }

    /// The file with the count, locked against all processes until it is closed.
    fn lock(&self) -> io::Result<File> {
        let (used, replaced) = self.directory.own_file(USED)?;
        self.counters.count(|stats| stats.damaged += u64::from(replaced));
        flock(&used, FlockOperation::LockExclusive)?;
        Ok(used)
    }

    /// Counts existing and reserved bytes, and removes the least recently used segments if there
    /// are too many. Under the lock.
    fn evict(&self) -> io::Result<u64> {
        let mut segments: Vec<(i64, u64, String, String)> = Vec::new();
        for name in self.directory.names()? {
            let name = name?;
            if !is_hex(&name, 2) {
                continue;
            }
            // A foreign entry is counted when a read or a write reaches it.
            let Ok(subdirectory) = self.directory.subdirectory(&name) else { continue };
            for file in subdirectory.names()? {
                let file = file?;
                if !is_hex(&file, 30) {
                    continue;
                }
                // Another process may have removed it meanwhile, if it ignores locks.
                if let Ok(stat) = subdirectory.stat(&file) {
                    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
                    segments.push((stat.st_mtime, blocks.saturating_mul(512), name.clone(), file));
                }
            }
        }
        let there = segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.1));
        let mut count = there.saturating_add(self.left).saturating_add(self.others()?);
        segments.sort_unstable();
        let most = self.bytes - self.bytes / 8;
        for (_, bytes, subdirectory, file) in segments {
            if count.saturating_add(self.step) <= most {
                break;
            }
            let removed =
                self.directory.subdirectory(&subdirectory).and_then(|found| Ok(found.remove(&file)?));
            // Segments that cannot be removed stay in the count.
            if let Ok(()) | Err(Fault::Absent) = removed {
                count = count.saturating_sub(bytes);
                self.counters.count(|stats| stats.bytes_evicted += bytes);
            }
        }
        Ok(count)
    }

    /// Bytes that other processes that are alive may have reserved and not written yet.
    pub(super) fn others(&self) -> io::Result<u64> {
        const MOST: u64 = STEP_MAX + SEGMENT_FILE;
        let mut reserved = 0_u64;
        for name in self.live.names()? {
            let name = name?;
            if name == self.alive {
                continue;
            }
            match self.live.subdirectory(&name) {
                Ok(alive) if alive.lock(FlockOperation::NonBlockingLockShared).is_err() => {
                    // A name without a valid number counts as the maximum.
                    let bytes = name.rsplit_once('-').and_then(|(_, bytes)| bytes.parse().ok());
                    reserved = reserved.saturating_add(bytes.map_or(MOST, |bytes: u64| bytes.min(MOST)));
                }
                Ok(_) => {
                    // Its process has ended.
                    let _gone_too = self.live.remove(&name);
                }
                Err(Fault::Foreign) => {
                    self.counters.count(|stats| stats.damaged += 1);
                    let _best_effort = self.live.remove(&name);
                }
                Err(_) => {}
            }
        }
        Ok(reserved)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Best effort: the next process that finds the count full corrects it.
        if let Ok(mut used) = self.lock()
            && let Ok(Some(count)) = read_count(&mut used)
        {
            let _best_effort = write_count(&mut used, count.saturating_sub(self.left));
        }
        let _best_effort = self.live.remove(&self.alive);
    }
}

/// The count; `None` if there is none yet, or the file is damaged.
fn read_count(file: &mut File) -> io::Result<Option<u64>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(32).read_to_end(&mut text)?;
    let text = std::str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n'));
    Ok(text.and_then(|count| count.parse().ok()))
}

fn write_count(file: &mut File, count: u64) -> io::Result<()> {
    // Padded to a fixed length, so that no old digits remain.
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{count:020}\n").as_bytes())
}

fn is_hex(name: &str, len: usize) -> bool {
    name.len() == len && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Says that a directory is a disk cache.
const MARK: &str = "bowwave-disk-cache";
/// The count of bytes that are reserved or written.
const USED: &str = "used";
