//! A file in the cache.

use std::path::{Path, PathBuf};

use bowwave_backend::{Error as StoreError, ErrorKind, Identity, Object, WriteObject};
use bowwave_core::{FileId, FillError};

use crate::files::Key;
use crate::object_upload::ObjectUpload;
use crate::offset_mapped::OffsetMappedFrames;
use crate::queue::Queue;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, OnceLock};

/// One version of one object: the state its readers share. All names of a file share one entry.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Never reused.
    pub(crate) uid: u64,
    pub(crate) shard: usize,
    pub(crate) file: FileId,
    pub(crate) queue: Arc<Queue>,
    /// Current size in bytes.
    size: AtomicU64,
    /// Bytes that the store has: later pages were never stored.
    stored: AtomicU64,
    /// Identity as of the last comparison with the store.
    identity: Mutex<Identity>,
    /// Its key. Changes only under the lock of [`Files`](crate::files::Files).
    key: Mutex<Key>,
    /// Path of the last open, for messages.
    path: Mutex<PathBuf>,
    /// Open handles. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) handles: AtomicU32,
    /// Number of its last close. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) closing: AtomicU64,
    /// The open object, while handles exist.
    object: Mutex<Option<Arc<dyn Object>>>,
    place: AtomicU64,
    stale: AtomicBool,
    /// Why it is stale, if it was found damaged.
    damage: OnceLock<StoreError>,
    last_error: Mutex<Option<StoreError>>,
    /// Requests sent for this file, and their bytes.
    fetched: [AtomicU64; 2],
    pub(crate) writing: Writing,
    /// The upload, if the object is being written to a store that accepts only complete objects.
    pub(crate) upload: OnceLock<Arc<ObjectUpload>>,
    /// The memory of its pages, if it is mapped.
    pub(crate) offset_mapped: OnceLock<Arc<OffsetMappedFrames>>,
}

/// State of a file's writers.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// Serializes writes, truncations and allocations, as a kernel's inode lock.
    pub(crate) lock: Mutex<()>,
    /// Handles open for writing. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) writers: AtomicU32,
    /// The object they write to, while handles are open for writing.
    object: Mutex<Option<Arc<dyn WriteObject>>>,
    /// Write-outs that failed permanently so far, and the last error.
    errors: Mutex<(u64, Option<StoreError>)>,
    /// Unlinked: written bytes are discarded with the last handle.
    nameless: AtomicBool,
}

impl FileEntry {
    pub(crate) fn new(
        uid: u64,
        (shard, file): (usize, FileId),
        queue: Arc<Queue>,
        path: &Path,
        identity: Identity,
    ) -> Self {
        Self {
            uid,
            shard,
            file,
            queue,
            size: AtomicU64::new(identity.size),
            stored: AtomicU64::new(identity.size),
            key: Mutex::new(Key::new(path, &identity)),
            identity: Mutex::new(identity),
            path: Mutex::new(path.to_owned()),
            handles: AtomicU32::new(0),
            closing: AtomicU64::new(0),
            object: Mutex::default(),
            place: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            damage: OnceLock::new(),
            last_error: Mutex::default(),
            fetched: Default::default(),
            writing: Writing::default(),
            upload: OnceLock::new(),
            offset_mapped: OnceLock::new(),
        }
    }

    /// The store's URL and the path in it, for messages.
    pub(crate) fn name(&self) -> String {
        bowwave_backend::place(self.queue.url(), &self.path.lock())
    }

    /// The path in the store, or the store's URL if the store is this one object.
    pub(crate) fn path_or_url(&self) -> String {
        let path = self.path.lock();
        if path.as_os_str().is_empty() { self.queue.url().to_owned() } else { path.display().to_string() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.lock().clone()
    }

    /// Sets the path of the last open.
    pub(crate) fn set_path(&self, path: &Path) {
        let mut known = self.path.lock();
        if *known != path {
            path.clone_into(&mut known);
        }
    }

    pub(crate) fn key(&self) -> Key {
        self.key.lock().clone()
    }

    /// The caller holds the lock of [`Files`](crate::files::Files).
    pub(crate) fn set_key(&self, key: Key) {
        *self.key.lock() = key;
    }

    /// Counts a request for `bytes` bytes.
    pub(crate) fn note_request(&self, bytes: u64) {
        self.fetched[0].fetch_add(1, Ordering::Relaxed);
        self.fetched[1].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Requests so far, and their bytes.
    pub(crate) fn fetched(&self) -> (u64, u64) {
        let [requests, bytes] = &self.fetched;
        (requests.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn handles(&self) -> u32 {
        self.handles.load(Ordering::Relaxed)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Sets the end for later reads. The cache has frames for it by now; only the writer with the
    /// lock calls this.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Least number of bytes in the store.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// The store has bytes up to `end`.
    pub(crate) fn has_stored(&self, end: u64) {
        self.stored.fetch_max(end, Ordering::AcqRel);
    }

    /// The store truncated or extended the file.
    pub(crate) fn set_stored(&self, len: u64) {
        self.stored.store(len, Ordering::Release);
    }

    /// A write-out failed permanently.
    pub(crate) fn note_write_error(&self, error: &StoreError) {
        let mut errors = self.writing.errors.lock();
        errors.0 += 1;
        errors.1 = Some(error.clone());
    }

    /// Write-outs that failed permanently so far, and the last error.
    pub(crate) fn write_errors(&self) -> (u64, Option<StoreError>) {
        self.writing.errors.lock().clone()
    }

    /// Its last name was removed.
    pub(crate) fn set_nameless(&self) {
        self.writing.nameless.store(true, Ordering::Relaxed);
    }

    /// Whether it can still be read after the current close: by a name, or through another handle.
    pub(crate) fn is_kept(&self) -> bool {
        !self.is_nameless() || self.handles() > 1
    }

    /// Whether it is unlinked.
    pub(crate) fn is_nameless(&self) -> bool {
        self.writing.nameless.load(Ordering::Relaxed)
    }

    /// Whether this file's pages may be used for an object with this identity. A size alone, or a
    /// weak tag, is no proof: then only concurrent readers share pages.
    pub(crate) fn is_still(&self, identity: &Identity) -> bool {
        let strong_tag = identity.etag.as_ref().is_some_and(|tag| !tag.starts_with("W/"));
        let proves = strong_tag || identity.modified_ns.is_some() || identity.inode.is_some();
        let in_use = self.handles.load(Ordering::Relaxed) > 0;
        *self.identity.lock() == *identity && !self.is_stale() && (proves || in_use)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        *self.identity.lock() = identity;
    }

    pub(crate) fn object(&self) -> Option<Arc<dyn Object>> {
        self.object.lock().clone()
    }

    pub(crate) fn set_object(&self, object: Option<Arc<dyn Object>>) {
        if let Some(object) = &object {
            self.place.store(object.place(), Ordering::Relaxed);
        }
        *self.object.lock() = object;
    }

    /// Where it begins on its device, as far as known; for request order.
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// Whether the object was replaced or found damaged.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Marks it stale; returns whether it was not before.
    pub(crate) fn set_stale(&self) -> bool {
        !self.stale.swap(true, Ordering::Relaxed)
    }

    /// Whether handles are open for writing.
    pub(crate) fn is_written(&self) -> bool {
        self.writing.writers.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn write_object(&self) -> Option<Arc<dyn WriteObject>> {
        self.writing.object.lock().clone()
    }

    /// Reads and writes go through `object` from now on. The earlier object would report our own
    /// writes as foreign changes.
    pub(crate) fn set_write_object(&self, object: &Arc<dyn WriteObject>) {
        *self.writing.object.lock() = Some(Arc::clone(object));
        self.set_object(Some(Arc::clone(object) as Arc<dyn Object>));
    }

    /// No writer is left. Reads continue through the object they have.
    pub(crate) fn drop_write_object(&self) {
        *self.writing.object.lock() = None;
    }

    /// Stores an error for the readers woken with its number.
    pub(crate) fn note_error(&self, error: &StoreError) -> FillError {
        *self.last_error.lock() = Some(error.clone());
        FillError(0)
    }

    /// The full error of a woken read.
    pub(crate) fn error(&self, error: FillError) -> StoreError {
        match error {
            FillError::TOO_LARGE => {
                StoreError::new(ErrorKind::Io, "the read is larger than the cache").retryable(false)
            }
            FillError::CLOSED => StoreError::new(ErrorKind::Io, "the file was closed").retryable(false),
            _ if self.is_stale() => self.stale_error(),
            _ => self.last_error.lock().clone().unwrap_or_else(|| {
                StoreError::new(ErrorKind::Io, format!("{}: the read failed", self.name()))
            }),
        }
    }

    /// Stores the error of bytes that differ from the store's, for all later readers.
    pub(crate) fn note_damage(&self, error: &StoreError) {
        // The first error is the reason.
        let _ = self.damage.set(error.clone());
    }

    /// The error for readers of a changed or damaged object.
    pub(crate) fn stale_error(&self) -> StoreError {
        if let Some(damage) = self.damage.get() {
            return damage.clone();
        }
        let message = format!("{}: the object has changed since it was opened; open it again", self.name());
        StoreError::new(ErrorKind::Changed, message)
    }
}
