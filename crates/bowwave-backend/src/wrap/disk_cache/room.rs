//! How much the folder may hold, of all processes that share it.
//!
//! A process takes room in steps, from a count in the file `used` that is locked meanwhile, and writes no more than it took.
//! When the count is full, what there really is is counted anew, and the segments that were of no use for longest are removed
//! until an eighth is free. A process that was killed leaves a count that is too high until then; one that is alive shows
//! by a lock on a file in `live` that it may still write what it took, and that file says how much that can be: each
//! process may have been told another size, and takes other steps. So the folder never holds more than it may.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::segment::SEGMENT_FILE;
use crate::{Error, ErrorKind, Result};

/// Room in a folder.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    bytes: u64,
    /// What is taken at a time.
    step: u64,
    /// Taken and not written.
    left: AtomicU64,
    used: Mutex<File>,
    /// Locked while this process may write.
    alive: PathBuf,
    _alive: File,
    pub(super) evicted: AtomicU64,
}

/// The least that makes sense: a few segments for each of a few processes.
pub(super) const BYTES_MIN: u64 = 64 << 20;
/// The most that is taken at a time.
const STEP_MAX: u64 = 64 << 20;

impl Room {
    /// Room for `bytes` in `folder`, which is made if it is not there.
    pub(super) fn open(folder: &Path, bytes: u64) -> Result<Self> {
        let told = |error: io::Error| Error::from_os(format_args!("disk cache {}", folder.display()), &error);
        if bytes < BYTES_MIN {
            let message = format!("a disk cache of {bytes} bytes: it needs at least 64MiB");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        make_folder(folder).map_err(told)?;
        // In this order: the mark is what whoever begins at the same time makes first.
        let has_files = fs::read_dir(folder).map_err(told)?.next().is_some();
        if has_files && !folder.join(MARK).exists() {
            let message = format!(
                "the disk cache {}: the folder has other files in it (name one that is empty or not there)",
                folder.display()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Self::begin(folder, bytes).map_err(told)
    }

    fn begin(folder: &Path, bytes: u64) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        private().write(true).create(true).truncate(false).open(folder.join(MARK))?;
        make_folder(&folder.join(LIVE))?;
        let used = private().read(true).write(true).create(true).truncate(false).open(folder.join("used"))?;
        // Who counts the living must not meet one that is half born.
        let birth = Lock::of(&used)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let alive = folder.join(LIVE).join(format!("{}-{number}", std::process::id()));
        let mut held = private().write(true).create(true).truncate(true).open(&alive)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        // A lone process uses nearly all of it, and of some GiB dozens still find some.
        let step = (bytes / 64).clamp(SEGMENT_FILE, STEP_MAX);
        // A step is taken when what is left of the one before is too little for what is to be written, which is a segment at most.
        write_count(&mut held, step + SEGMENT_FILE)?;
        drop(birth);
        let room = Self {
            folder: folder.to_owned(),
            bytes,
            step,
            left: AtomicU64::new(0),
            used: Mutex::new(used),
            alive,
            _alive: held,
            evicted: AtomicU64::new(0),
        };
        // A folder that was larger is made as small as it is to be now.
        room.refill()?;
        Ok(room)
    }

    /// Takes room for so many bytes, no more than a segment; `false` if there is none.
    pub(super) fn take(&self, bytes: u64) -> io::Result<bool> {
        let take = || {
            let less = |left: u64| left.checked_sub(bytes);
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        Ok(take() || (self.refill()? && take()))
    }

    /// Gives back what was taken and not written.
    pub(super) fn give(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes a step more; `false` if others have taken everything.
    fn refill(&self) -> io::Result<bool> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Lock::of(&used)?;
        let mut count = read_count(&mut used)?.unwrap_or(u64::MAX);
        if count.saturating_add(self.step) > self.bytes {
            count = self.evict()?;
        }
        let fits = count + self.step <= self.bytes;
        if fits {
            count += self.step;
        }
        write_count(&mut used, count)?;
        drop(lock);
        if fits {
            self.left.fetch_add(self.step, Ordering::Relaxed);
        }
        Ok(fits)
    }

    /// Counts what there is and may come, and removes what was of no use for longest if that is too much. Under the lock.
    fn evict(&self) -> io::Result<u64> {
        let mut segments: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for shelf in fs::read_dir(&self.folder)? {
            let shelf = shelf?;
            if !is_hex(&shelf.file_name().to_string_lossy(), 2) {
                continue;
            }
            for segment in fs::read_dir(shelf.path())? {
                let segment = segment?;
                if !is_hex(&segment.file_name().to_string_lossy(), 30) {
                    continue;
                }
                // Another process may have removed it meanwhile, if that has no respect for locks.
                if let Ok(metadata) = segment.metadata() {
                    segments.push((metadata.modified()?, metadata.blocks() * 512, segment.path()));
                }
            }
        }
        let mut count: u64 = segments.iter().map(|segment| segment.1).sum::<u64>()
            + self.left.load(Ordering::Relaxed)
            + self.others()?;
        segments.sort_unstable();
        let most = self.bytes - self.bytes / 8;
        for (_, bytes, path) in segments {
            if count + self.step <= most {
                break;
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {
                    count = count.saturating_sub(bytes);
                    self.evicted.fetch_add(bytes, Ordering::Relaxed);
                }
            }
        }
        Ok(count)
    }

    /// What other processes that are alive may have taken and not written yet.
    pub(super) fn others(&self) -> io::Result<u64> {
        let mut taken = 0_u64;
        for entry in fs::read_dir(self.folder.join(LIVE))? {
            let path = entry?.path();
            if path == self.alive {
                continue;
            }
            let Ok(mut file) = File::open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
                // Whoever made it is gone.
                let _gone_too = fs::remove_file(path);
            } else {
                // Of one that does not say it the most is supposed.
                taken = taken.saturating_add(read_count(&mut file)?.unwrap_or(STEP_MAX + SEGMENT_FILE));
            }
        }
        Ok(taken)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        // Best effort: a count that is too high is mended by who finds it full.
        if let Ok(_lock) = Lock::of(&used)
            && let Ok(Some(count)) = read_count(&mut used)
        {
            let _best_effort =
                write_count(&mut used, count.saturating_sub(self.left.load(Ordering::Relaxed)));
        }
        let _best_effort = fs::remove_file(&self.alive);
    }
}

/// The lock on the count, of all processes.
struct Lock(File);

impl Lock {
    fn of(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _it_is_ours = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The count; `None` if nobody has counted, or the file is damaged.
fn read_count(file: &mut File) -> io::Result<Option<u64>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    if file.take(32).read_to_string(&mut text).is_err() {
        return Ok(None);
    }
    Ok(text.strip_suffix('\n').and_then(|count| count.parse().ok()))
}

fn write_count(file: &mut File, count: u64) -> io::Result<()> {
    // As long as any, so that none is left over.
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{count:020}\n").as_bytes())
}

fn is_hex(name: &str, len: usize) -> bool {
    name.len() == len && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What is cached is nobody else's business.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Makes a folder, and those above it, for the owner alone; one that is there stays as it is.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Says that a folder is a disk cache of ours.
const MARK: &str = "bowwave-disk-cache";
const LIVE: &str = "live";
