//! One file as the cache knows it.

use std::path::{Path, PathBuf};

use bowwave_backend::{Error as StoreError, ErrorKind, Identity, Object, WriteObject};
use bowwave_core::{FileId, FillError};

use crate::files::Key;
use crate::places::Places;
use crate::queue::Queue;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::whole::Whole;

/// One version of one object: what its readers share. Several names of one file are one entry.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Never used twice.
    pub(crate) uid: u64,
    pub(crate) shard: usize,
    pub(crate) file: FileId,
    pub(crate) queue: Arc<Queue>,
    /// Bytes that the file has now.
    size: AtomicU64,
    /// Bytes that the store has of it: pages behind that were never there.
    stored: AtomicU64,
    /// As of the last agreement with the store.
    identity: Mutex<Identity>,
    /// What names it. Changes only under the lock of [`Files`](crate::files::Files).
    key: Mutex<Key>,
    /// Where it was opened last, for messages.
    path: Mutex<PathBuf>,
    /// Open handles. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) handles: AtomicU32,
    /// Number of its last closing. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) closing: AtomicU64,
    /// The open object, while there are handles.
    object: Mutex<Option<Arc<dyn Object>>>,
    place: AtomicU64,
    stale: AtomicBool,
    /// Why it is stale, if it was found damaged.
    damage: OnceLock<StoreError>,
    last_error: Mutex<Option<StoreError>>,
    pub(crate) writing: Writing,
    /// What is written to it, if that is an object of a store of whole objects.
    pub(crate) whole: OnceLock<Arc<Whole>>,
    /// Where its pages lie, if it is mapped.
    pub(crate) places: OnceLock<Arc<Places>>,
}

/// What concerns the writers of a file.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// One write, cut or allocation at a time, as the inode's lock of a kernel.
    pub(crate) turn: Mutex<()>,
    /// Handles open for writing. Changes only under the lock of [`Files`](crate::files::Files).
    pub(crate) writers: AtomicU32,
    /// What they write to, while there are any.
    object: Mutex<Option<Arc<dyn WriteObject>>>,
    /// Write-outs that failed for good so far, and why the last did.
    errors: Mutex<(u64, Option<StoreError>)>,
    /// It has no name any more: what is written goes with the last handle.
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
            writing: Writing::default(),
            whole: OnceLock::new(),
            places: OnceLock::new(),
        }
    }

    /// For messages: the path, or the store's URL where the store is this one object.
    pub(crate) fn name(&self) -> String {
        let path = lock(&self.path);
        if path.as_os_str().is_empty() { self.queue.url().to_owned() } else { path.display().to_string() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        lock(&self.path).clone()
    }

    /// Notes where it was opened last.
    pub(crate) fn set_path(&self, path: &Path) {
        let mut known = lock(&self.path);
        if *known != path {
            path.clone_into(&mut known);
        }
    }

    pub(crate) fn key(&self) -> Key {
        lock(&self.key).clone()
    }

    /// The caller holds the lock of [`Files`](crate::files::Files).
    pub(crate) fn set_key(&self, key: Key) {
        *lock(&self.key) = key;
    }

    pub(crate) fn handles(&self) -> u32 {
        self.handles.load(Ordering::Relaxed)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whoever reads from now on finds the end here. The cache has room for it by now; only the writer whose turn it is
    /// calls this.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Bytes that the store has at least.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// The store has bytes up to here now.
    pub(crate) fn has_stored(&self, end: u64) {
        self.stored.fetch_max(end, Ordering::AcqRel);
    }

    /// The store has the file cut, or made longer.
    pub(crate) fn set_stored(&self, len: u64) {
        self.stored.store(len, Ordering::Release);
    }

    /// A write-out has failed for good.
    pub(crate) fn note_write_error(&self, error: &StoreError) {
        let mut errors = lock(&self.writing.errors);
        errors.0 += 1;
        errors.1 = Some(error.clone());
    }

    /// How many write-outs have failed for good so far, and why the last did.
    pub(crate) fn write_errors(&self) -> (u64, Option<StoreError>) {
        lock(&self.writing.errors).clone()
    }

    /// Its last name is gone.
    pub(crate) fn set_nameless(&self) {
        self.writing.nameless.store(true, Ordering::Relaxed);
    }

    /// Whether somebody can still read it when the handle is gone that is being closed: by a name, or by another handle.
    pub(crate) fn is_kept(&self) -> bool {
        !self.is_nameless() || self.handles() > 1
    }

    /// Whether it has no name any more.
    pub(crate) fn is_nameless(&self) -> bool {
        self.writing.nameless.load(Ordering::Relaxed)
    }

    /// Whether pages of this file are those of an object with this identity. A size alone, or a weak tag, proves nothing:
    /// then only readers of the same time share.
    pub(crate) fn is_still(&self, identity: &Identity) -> bool {
        let strong_tag = identity.etag.as_ref().is_some_and(|tag| !tag.starts_with("W/"));
        let proves = strong_tag || identity.modified_ns.is_some() || identity.inode.is_some();
        let in_use = self.handles.load(Ordering::Relaxed) > 0;
        *lock(&self.identity) == *identity && !self.is_stale() && (proves || in_use)
    }

    pub(crate) fn identity(&self) -> Identity {
        lock(&self.identity).clone()
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        *lock(&self.identity) = identity;
    }

    pub(crate) fn object(&self) -> Option<Arc<dyn Object>> {
        lock(&self.object).clone()
    }

    pub(crate) fn set_object(&self, object: Option<Arc<dyn Object>>) {
        if let Some(object) = &object {
            self.place.store(object.place(), Ordering::Relaxed);
        }
        *lock(&self.object) = object;
    }

    /// Where it begins on its device, as far as is known; for order.
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// Whether the object behind it has become another one, or was found damaged.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Notes that it has; tells whether that is news.
    pub(crate) fn set_stale(&self) -> bool {
        !self.stale.swap(true, Ordering::Relaxed)
    }

    /// Whether handles are open that write.
    pub(crate) fn is_written(&self) -> bool {
        self.writing.writers.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn write_object(&self) -> Option<Arc<dyn WriteObject>> {
        lock(&self.writing.object).clone()
    }

    /// From now on reads and writes go through `object`. Reads through the one before could take our writes for those of
    /// others.
    pub(crate) fn set_write_object(&self, object: &Arc<dyn WriteObject>) {
        *lock(&self.writing.object) = Some(Arc::clone(object));
        self.set_object(Some(Arc::clone(object) as Arc<dyn Object>));
    }

    /// Nobody writes any more. Reads go on through the object they have.
    pub(crate) fn drop_write_object(&self) {
        *lock(&self.writing.object) = None;
    }

    /// Keeps an error for the readers that will be woken with its number.
    pub(crate) fn note_error(&self, error: &StoreError) -> FillError {
        *lock(&self.last_error) = Some(error.clone());
        FillError(0)
    }

    /// The error that a read was woken with, in full.
    pub(crate) fn error(&self, error: FillError) -> StoreError {
        match error {
            FillError::TOO_LARGE => {
                StoreError::new(ErrorKind::Io, "the read is larger than the cache").retryable(false)
            }
            FillError::CLOSED => StoreError::new(ErrorKind::Io, "the file was closed").retryable(false),
            _ if self.is_stale() => self.stale_error(),
            _ => lock(&self.last_error).clone().unwrap_or_else(|| {
                StoreError::new(ErrorKind::Io, format!("{}: the read failed", self.name()))
            }),
        }
    }

    /// Keeps the error of bytes that are not what the store has, for all later readers.
    pub(crate) fn note_damage(&self, error: &StoreError) {
        // The first one is the reason.
        let _ = self.damage.set(error.clone());
    }

    /// What readers of a changed or damaged object get.
    pub(crate) fn stale_error(&self) -> StoreError {
        if let Some(damage) = self.damage.get() {
            return damage.clone();
        }
        let message = format!("{}: the object has changed since it was opened; open it again", self.name());
        StoreError::new(ErrorKind::Changed, message)
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
