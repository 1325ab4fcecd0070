//! State shared by all files of a command: memory, progress, and the final report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowwave_backend::{Backend, ErrorKind, Namespace as _, Upload, Write as _};
use bowwave_engine::backend::sync::{Condvar, Mutex};
use serde::{Serialize, Serializer};

use super::Args;
use crate::Failure;
use crate::interrupt::Interrupt;

/// Shared by the copying threads.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) args: &'a Args,
    pub(super) interrupt: Interrupt,
    /// The umask.
    pub(super) umask: u32,
    /// The destination's tags were no MD5 sums of the sent bytes: they cannot be compared.
    pub(super) tags_differ: AtomicBool,
    /// Uploads of earlier commands at the destination; listed on first use.
    uploads: OnceLock<Vec<Upload>>,
    memory: Mutex<u64>,
    freed: Condvar,
    moved: Moved,
    total: AtomicU64,
    pub(super) tally: Mutex<Tally>,
}

/// Results of the files so far.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Bytes that an earlier command had copied.
    pub(super) bytes_resumed: u64,
    pub(super) skipped: u64,
    pub(super) failed: u64,
    /// Files whose copy can be resumed.
    #[serde(skip)]
    pub(super) resumable: u64,
    /// The first failures, with the names of their files.
    #[serde(serialize_with = "failures")]
    pub(super) failures: Vec<(String, Failure)>,
    /// Existing directories.
    #[serde(skip)]
    directories: BTreeSet<PathBuf>,
    /// Directories with entries not yet synced.
    #[serde(skip)]
    unsynced: BTreeSet<PathBuf>,
}

fn failures<S: Serializer>(failures: &[(String, Failure)], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct NotCopied<'a> {
        path: &'a str,
        error: String,
    }
    to.collect_seq(failures.iter().map(|(path, failure)| NotCopied { path, error: failure.to_string() }))
}

/// Counter of copied bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved(Arc<AtomicU64>);

impl Moved {
    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Subtracts bytes that were counted too early.
    pub(super) fn take_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<'a> Shared<'a> {
    pub(super) fn new(args: &'a Args, interrupt: Interrupt, umask: u32) -> Self {
        Self {
            args,
            interrupt,
            umask,
            tags_differ: AtomicBool::new(false),
            uploads: OnceLock::new(),
            memory: Mutex::new(MEMORY_BYTES),
            freed: Condvar::new(),
            moved: Moved::default(),
            total: AtomicU64::new(0),
            tally: Mutex::default(),
        }
    }

    /// Memory for a range; waits for it if `waits`. `None` if none is available or on an interrupt.
    pub(super) fn memory(&self, bytes: u64, waits: bool) -> Option<Permit<'_>> {
        let bytes = bytes.min(MEMORY_BYTES);
        let mut free = self.memory.lock();
        while *free < bytes {
            if !waits || self.interrupt.is_set() {
                return None;
            }
            free = self.freed.wait_timeout(free, LOOK_EVERY);
        }
        *free -= bytes;
        Some(Permit { free: &self.memory, freed: &self.freed, bytes })
    }

    /// Uploads to `path` started before this command, the latest first.
    pub(super) fn uploads_of(&self, store: &dyn Backend, path: &Path) -> Vec<Upload> {
        // Write credentials often cannot list. Then no upload is resumed.
        let all = self.uploads.get_or_init(|| store.stray_uploads().unwrap_or_default());
        let mut uploads: Vec<_> = all.iter().filter(|upload| upload.path == path).cloned().collect();
        uploads.sort_by_key(|upload| std::cmp::Reverse(upload.begun));
        uploads.truncate(UPLOADS_MAX);
        uploads
    }

    pub(super) fn moved(&self) -> Moved {
        self.moved.clone()
    }

    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds to the total to copy.
    pub(super) fn more(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records a failed file.
    pub(super) fn failed(&self, name: impl Into<String>, failure: Failure) {
        let mut tally = self.tally.lock();
        tally.failed += 1;
        if tally.failures.len() < FAILURES_MAX {
            tally.failures.push((name.into(), failure));
        }
    }

    /// Creates a directory of the destination and its missing parents.
    pub(super) fn make_directories(&self, store: &dyn Backend, path: &Path) -> bowwave_backend::Result<()> {
        let missing: Vec<&Path> = {
            let tally = self.tally.lock();
            path.ancestors()
                .take_while(|path| !path.as_os_str().is_empty() && !tally.directories.contains(*path))
                .collect()
        };
        for path in missing.into_iter().rev() {
            match store.create_directory(path, 0o777 & !self.umask, None) {
                Ok(()) => self.unsynced(path),
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
            self.tally.lock().directories.insert(path.to_owned());
        }
        Ok(())
    }

    /// Marks the entry `path` as new.
    pub(super) fn unsynced(&self, path: &Path) {
        self.tally.lock().unsynced.insert(path.parent().unwrap_or_else(|| Path::new("")).to_owned());
    }

    /// Syncs all directories with new entries.
    pub(super) fn sync_directories(&self, store: &dyn Backend) -> bowwave_backend::Result<()> {
        let unsynced = std::mem::take(&mut self.tally.lock().unsynced);
        unsynced.iter().try_for_each(|path| store.sync_directory(path))
    }
}

/// Memory of a range, until dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    free: &'a Mutex<u64>,
    freed: &'a Condvar,
    bytes: u64,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.free.lock() += self.bytes;
        self.freed.notify_all();
    }
}

/// Bytes of all ranges in flight. Smaller: fewer connections at once; larger: small machines swap.
const MEMORY_BYTES: u64 = 256 << 20;
/// Maximum failures reported one by one; further ones are only counted.
const FAILURES_MAX: usize = 1000;
/// Maximum uploads of one object to inspect; more remain if many commands failed.
const UPLOADS_MAX: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(100);
