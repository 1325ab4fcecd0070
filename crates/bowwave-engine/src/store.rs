//! A store and its files.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_backend::{Backend, Entry, Error as StoreError, ErrorKind, Identity, Object, Profile};
use bowwave_core::{FileId, FillError};

use crate::engine::Inner;
use crate::error::Result;
use crate::file::File;
use crate::queue::Queue;
use crate::stats::StoreStats;

/// Closed files whose pages stay; with twice as many, those closed longest ago are forgotten.
const CLOSED_FILES: usize = 16_384;

/// A tree of objects read through the cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<StoreInner>,
}

#[derive(Debug)]
pub(crate) struct StoreInner {
    engine: Arc<Inner>,
    backend: Arc<dyn Backend>,
    queue: Arc<Queue>,
    files: Mutex<Files>,
}

/// The files that have pages, or handles.
#[derive(Debug, Default)]
struct Files {
    by_path: HashMap<PathBuf, Arc<FileEntry>>,
    /// No longer what their path names; forgotten with their last handle.
    detached: Vec<Arc<FileEntry>>,
    /// Closed, by the order of closing, with the number of the closing; stale if the file was closed again since.
    closed: VecDeque<(u64, Arc<FileEntry>)>,
    closings: u64,
}

/// One version of one object, as the cache knows it.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Never used twice.
    pub(crate) uid: u64,
    pub(crate) shard: usize,
    pub(crate) file: FileId,
    pub(crate) size: u64,
    pub(crate) queue: Arc<Queue>,
    identity: Identity,
    path: PathBuf,
    /// Open handles. Changes only under the lock of `Files`.
    handles: AtomicU32,
    /// Number of its last closing. Changes only under the lock of `Files`.
    closing: AtomicU64,
    /// The open object, while there are handles.
    object: Mutex<Option<Arc<dyn Object>>>,
    stale: AtomicBool,
    last_error: Mutex<Option<StoreError>>,
}

impl Store {
    pub(crate) fn new(engine: Arc<Inner>, backend: Arc<dyn Backend>, queue: Arc<Queue>) -> Self {
        Self { inner: Arc::new(StoreInner { engine, backend, queue, files: Mutex::default() }) }
    }

    /// The URL, for messages.
    #[must_use]
    pub fn url(&self) -> &str {
        self.inner.backend.url()
    }

    /// How the store wants to be used.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.inner.backend.profile()
    }

    /// Describes one entry; the empty path is the root.
    ///
    /// # Errors
    /// As the store says.
    pub fn stat(&self, path: &Path) -> Result<Entry> {
        Ok(self.inner.backend.stat(path)?)
    }

    /// Lists a folder.
    ///
    /// # Errors
    /// As the store says.
    pub fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        Ok(self.inner.backend.list(path)?)
    }

    /// Reads a symbolic link.
    ///
    /// # Errors
    /// As the store says.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.inner.backend.read_link(path)?)
    }

    /// Opens an object. Its pages stay cached between opens as long as its identity is the same.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path) -> Result<File> {
        let object = self.inner.backend.open(path)?;
        if i64::try_from(object.size()).is_err() {
            let message = format!("{}: the store says it has {} bytes", path.display(), object.size());
            return Err(StoreError::new(ErrorKind::Protocol, message).into());
        }
        let engine = &self.inner.engine;
        let mut files = self.inner.files();
        let entry = match files.by_path.get(path) {
            Some(entry) if entry.is_still(object.identity()) => Arc::clone(entry),
            old => {
                let old = old.map(Arc::clone);
                let entry = self.inner.new_entry(path, &*object);
                files.by_path.insert(path.to_owned(), Arc::clone(&entry));
                if let Some(old) = old {
                    // Readers of the old version go on with their handles; what is read from now on is the new one.
                    files.detached.push(old);
                    files.sweep(engine);
                }
                entry
            }
        };
        entry.handles.fetch_add(1, Ordering::Relaxed);
        *entry.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
        let handle = engine.shard(entry.shard).open_handle(entry.file);
        drop(files);
        Ok(File::new(Arc::clone(engine), Arc::clone(&self.inner), entry, handle))
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.inner.queue.stats()
    }
}

impl StoreInner {
    /// A handle of `entry` was closed.
    pub(crate) fn closed(&self, entry: &Arc<FileEntry>) {
        let mut files = self.files();
        if entry.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        *entry.object.lock().unwrap_or_else(PoisonError::into_inner) = None;
        files.closings += 1;
        let closing = files.closings;
        entry.closing.store(closing, Ordering::Relaxed);
        files.closed.push_back((closing, Arc::clone(entry)));
        files.forget_oldest();
        files.sweep(&self.engine);
    }

    fn new_entry(&self, path: &Path, object: &dyn Object) -> Arc<FileEntry> {
        let engine = &self.engine;
        let shard = engine.next_shard();
        let pages = engine.page_size().count_for(object.size());
        engine.shard(shard).open_file(pages, |file| FileEntry {
            uid: engine.next_uid(),
            shard,
            file,
            size: object.size(),
            queue: Arc::clone(&self.queue),
            identity: object.identity().clone(),
            path: path.to_owned(),
            handles: AtomicU32::new(0),
            closing: AtomicU64::new(0),
            object: Mutex::default(),
            stale: AtomicBool::new(false),
            last_error: Mutex::default(),
        })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StoreInner {
    /// Files hold the store, so none is open: all pages go.
    fn drop(&mut self) {
        let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut entries = std::mem::take(&mut files.detached);
        entries.extend(files.by_path.drain().map(|(_, entry)| entry));
        // In the order of opening, whatever the order of the table.
        entries.sort_by_key(|entry| entry.uid);
        self.engine.adopt(entries);
        self.engine.forget_queue(&self.queue);
    }
}

impl Files {
    /// Now and then drops stale notes of closings, and forgets the files closed longest ago if there are too many.
    fn forget_oldest(&mut self) {
        if self.closed.len() <= 2 * CLOSED_FILES {
            return;
        }
        self.closed.retain(|(closing, entry)| {
            entry.closing.load(Ordering::Relaxed) == *closing && entry.handles.load(Ordering::Relaxed) == 0
        });
        while self.closed.len() > CLOSED_FILES {
            let Some((_, oldest)) = self.closed.pop_front() else { break };
            if self.by_path.get(&oldest.path).is_some_and(|entry| Arc::ptr_eq(entry, &oldest)) {
                self.by_path.remove(&oldest.path);
                self.detached.push(oldest);
            }
        }
    }

    /// Forgets detached files that nobody has open and for which no request is on its way.
    fn sweep(&mut self, engine: &Inner) {
        self.detached.retain(|entry| {
            entry.handles.load(Ordering::Relaxed) > 0 || !engine.shard(entry.shard).close_file(entry.file)
        });
    }
}

impl FileEntry {
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether pages of this file are those of an object with this identity. A size alone, or a weak tag, proves nothing:
    /// then only readers of the same time share.
    fn is_still(&self, identity: &Identity) -> bool {
        let strong_tag = identity.etag.as_ref().is_some_and(|tag| !tag.starts_with("W/"));
        let proves = strong_tag || identity.modified_ns.is_some() || identity.inode.is_some();
        let in_use = self.handles.load(Ordering::Relaxed) > 0;
        self.identity == *identity && !self.is_stale() && (proves || in_use)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn object(&self) -> Option<Arc<dyn Object>> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the object behind it has become another one.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Notes that it has; tells whether that is news.
    pub(crate) fn set_stale(&self) -> bool {
        !self.stale.swap(true, Ordering::Relaxed)
    }

    /// Keeps an error for the readers that will be woken with its number.
    pub(crate) fn note_error(&self, error: &StoreError) -> FillError {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        FillError(0)
    }

    /// The error that a read was woken with, in full.
    pub(crate) fn error(&self, error: FillError) -> StoreError {
        match error {
            FillError::TOO_LARGE => {
                StoreError::new(ErrorKind::Io, "the read is larger than the cache").retryable(false)
            }
            FillError::CLOSED => StoreError::new(ErrorKind::Io, "the file was closed").retryable(false),
            _ if self.is_stale() => self.changed(),
            _ => {
                self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| {
                    StoreError::new(ErrorKind::Io, format!("{}: the read failed", self.name()))
                })
            }
        }
    }

    /// What readers of a changed object get.
    pub(crate) fn changed(&self) -> StoreError {
        let message = format!("{}: the object has changed since it was opened; open it again", self.name());
        StoreError::new(ErrorKind::Changed, message)
    }
}
