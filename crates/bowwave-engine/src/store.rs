//! A store and its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_backend::{Backend, Entry, Error as StoreError, ErrorKind, Object, Profile};

use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::File;
use crate::files::{Files, Key};
use crate::queue::Queue;
use crate::stats::StoreStats;

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
        self.inner.open(path)
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.inner.queue.stats()
    }
}

impl StoreInner {
    fn open(self: &Arc<Self>, path: &Path) -> Result<File> {
        let mut object = self.open_object(path)?;
        let mut files = self.files();
        let entry = loop {
            let known = files.get(&Key::new(path, object.identity()));
            if let Some(entry) = known.filter(|entry| entry.is_still(object.identity())) {
                break Arc::clone(entry);
            }
            if known.is_none() {
                break self.new_entry(&mut files, path, &*object);
            }
            // Another version than we know, or one that a writer of ours has just left behind: a second look tells.
            drop(files);
            let again = self.open_object(path)?;
            let is_same = again.identity() == object.identity();
            object = again;
            files = self.files();
            if is_same {
                let known = files.get(&Key::new(path, object.identity()));
                break match known.filter(|entry| entry.is_still(object.identity())) {
                    Some(entry) => Arc::clone(entry),
                    // Readers of the old version go on with their handles; what is read from now on is the new one.
                    None => self.new_entry(&mut files, path, &*object),
                };
            }
        };
        entry.set_path(path);
        entry.set_object(Some(object));
        files.opened(&entry);
        let handle = self.engine.shard(entry.shard).open_handle(entry.file);
        drop(files);
        Ok(File::new(Arc::clone(&self.engine), Arc::clone(self), entry, handle))
    }

    fn open_object(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let object = self.backend.open(path)?;
        if i64::try_from(object.size()).is_err() {
            let message = format!("{}: the store says it has {} bytes", path.display(), object.size());
            return Err(StoreError::new(ErrorKind::Protocol, message).into());
        }
        Ok(object)
    }

    /// A handle of `entry` was closed.
    pub(crate) fn closed(&self, entry: &Arc<FileEntry>) {
        self.files().closed(entry, &self.engine);
    }

    fn new_entry(&self, files: &mut Files, path: &Path, object: &dyn Object) -> Arc<FileEntry> {
        let engine = &self.engine;
        let shard = engine.next_shard();
        let pages = engine.page_size().count_for(object.size());
        let entry = engine.shard(shard).open_file(pages, |file| {
            let queue = Arc::clone(&self.queue);
            let identity = object.identity().clone();
            FileEntry::new(engine.next_uid(), (shard, file), queue, path, identity, object.size())
        });
        files.insert(Arc::clone(&entry), engine);
        entry
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StoreInner {
    /// Files hold the store, so none is open: all pages go.
    fn drop(&mut self) {
        let entries = self.files.get_mut().unwrap_or_else(PoisonError::into_inner).take_all();
        self.engine.adopt(entries);
        self.engine.forget_queue(&self.queue);
    }
}
