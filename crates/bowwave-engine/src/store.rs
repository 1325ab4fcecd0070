//! A store and its files.

mod flush;
mod names;
mod open;
mod whole;

use std::path::Path;

use bowwave_backend::{Backend, Error as StoreError, ErrorKind, Identity, Object, Profile, WillRead};
use bowwave_core::{HandleId, Policy};

use crate::decisions::DecisionLog;
use crate::engine::Inner;
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::{Access, File};
use crate::files::{Files, Key};
use crate::known::KnownObject;
use crate::mapped::MappedFile;
use crate::offset_mapped::OffsetMappedFrames;
use crate::queue::Queue;
use crate::stats::StoreStats;
use crate::sync::{Arc, Mutex};

pub use open::OpenOptions;
use whole::Wholes;

/// A tree of objects read through the cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<StoreInner>,
}

#[derive(Debug)]
pub(crate) struct StoreInner {
    engine: Arc<Inner>,
    backend: Arc<dyn Backend>,
    profile: Profile,
    queue: Arc<Queue>,
    files: Mutex<Files>,
    wholes: Wholes,
}

impl Store {
    pub(crate) fn new(engine: Arc<Inner>, backend: Arc<dyn Backend>, queue: Arc<Queue>) -> Self {
        let profile = backend.profile();
        let wholes = Wholes::new(&profile, engine.device_depth(), &queue);
        Self {
            inner: Arc::new(StoreInner { engine, backend, profile, queue, files: Mutex::default(), wholes }),
        }
    }

    /// The URL, for messages.
    pub fn url(&self) -> &str {
        self.inner.backend.url()
    }

    /// The store's profile.
    pub fn profile(&self) -> Profile {
        self.inner.profile.clone()
    }

    /// The store below the cache. Changes made through it bypass the cache; to change names, use
    /// the [`Namespace`](bowwave_backend::Namespace) of this `Store`.
    pub fn backend(&self) -> &dyn Backend {
        &*self.inner.backend
    }

    /// Opens an object. Its pages stay cached between opens as long as its identity is the same.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path) -> Result<File> {
        self.inner.open(path, WillRead::Any)
    }

    /// As [`open`](Self::open), for a caller that knows what it reads first. A store behind a
    /// network may then send fewer requests, or the same in fewer round trips. Where the cache
    /// knows the object, it requests no bytes that may be in memory.
    ///
    /// # Errors
    /// As the store says.
    pub fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<File> {
        self.inner.open(path, will_read)
    }

    /// Opens an object to map it into memory. Its pages belong to this handle: other readers of the
    /// object share neither them nor its readahead.
    ///
    /// # Errors
    /// As the store says; `Io` without address space for it; `Invalid` for an empty object.
    pub fn open_mapped(&self, path: &Path) -> Result<MappedFile> {
        let object = self.inner.open_object(path, WillRead::Any)?;
        self.inner.open_mapped(path, object)
    }

    /// As [`open_mapped`](Self::open_mapped), in a version that is known already, without a request
    /// to the store. The object is opened at its first read. That fails with `Changed` if it is
    /// another version.
    ///
    /// # Errors
    /// If the system has no memory object or address space.
    pub fn open_mapped_version(&self, path: &Path, version: &Identity) -> Result<MappedFile> {
        let backend = Arc::clone(&self.inner.backend);
        self.inner.open_mapped(path, Arc::new(KnownObject::new(backend, path, version.clone())))
    }

    /// Memory of the engine's cache, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.inner.engine.cache_bytes()
    }

    /// Whether the policy reads ahead other files of a directory, as [`Siblings`](crate::Siblings)
    /// plans.
    pub fn reads_siblings(&self) -> bool {
        self.inner.engine.tuning().policy.capabilities().siblings
    }

    /// The current readahead policy.
    pub fn policy(&self) -> Policy {
        self.inner.engine.tuning().policy
    }

    /// Where decisions are written: [`Options::decisions`](crate::Options::decisions).
    pub fn decisions(&self) -> Option<&DecisionLog> {
        self.inner.engine.decisions()
    }

    /// Counters of requests to the store.
    pub fn stats(&self) -> StoreStats {
        self.inner.queue.stats()
    }
}

impl StoreInner {
    fn open(self: &Arc<Self>, path: &Path, will_read: WillRead) -> Result<File> {
        let may_have_pages = || self.files.lock().get(&Key::Path(path.to_owned())).is_some();
        let page = self.engine.page_size().bytes();
        // Reads of the store begin and end at pages.
        let will_read = match will_read {
            WillRead::First { .. } | WillRead::Last { .. } if may_have_pages() => WillRead::Any,
            WillRead::First { start, end } => WillRead::First {
                start: start / page * page,
                end: end.checked_next_multiple_of(page).unwrap_or(u64::MAX),
            },
            WillRead::Last { bytes } => WillRead::Last { bytes: bytes.saturating_add(page) },
            other => other,
        };
        let mut object = self.open_object(path, will_read)?;
        let mut files = self.files.lock();
        let mut looks = 1;
        let entry = loop {
            let known = files.get(&Key::new(path, object.identity())).cloned();
            match known {
                // Written files are not compared with their identity, which each write changes.
                Some(entry) if entry.is_written() => break entry,
                Some(entry) if entry.is_still(object.identity()) => {
                    entry.set_object(Some(object));
                    break entry;
                }
                // The cached version does not match: the object was replaced, or our own writer has
                // just closed it. A second lookup distinguishes the two.
                Some(_) if looks == 1 => {
                    drop(files);
                    object = self.open_object(path, WillRead::Any)?;
                    files = self.files.lock();
                    looks += 1;
                }
                // Readers of an old version keep their handles; later opens read the new version.
                _ => {
                    let entry = self.new_entry(path, object.identity().clone());
                    files.insert(Arc::clone(&entry), &self.engine);
                    entry.set_object(Some(object));
                    break entry;
                }
            }
        };
        Ok(self.open_handle(&files, path, entry, Access::Read))
    }

    fn open_handle(
        self: &Arc<Self>,
        files: &Files,
        path: &Path,
        entry: Arc<FileEntry>,
        access: Access,
    ) -> File {
        entry.set_path(path);
        files.opened(&entry);
        let handle = self.engine.shard(entry.shard).open_handle(entry.file);
        File::new(Arc::clone(&self.engine), Arc::clone(self), entry, handle, access)
    }

    fn open_mapped(self: &Arc<Self>, path: &Path, object: Arc<dyn Object>) -> Result<MappedFile> {
        let engine = &self.engine;
        let pages = engine.page_size().count_for(object.size());
        if pages.0 == 0 {
            let message = format!("{}: an empty file cannot be mapped", path.display());
            return Err(StoreError::new(ErrorKind::Invalid, message).into());
        }
        // Frees mapped files that were closed with readahead in flight: each still holds a
        // descriptor.
        self.files.lock().sweep(engine);
        let places = Arc::new(OffsetMappedFrames::new(pages.0, engine.page_size())?);
        let shard = engine.next_shard();
        let entry = engine.shard(shard).open_placed_file(pages, |file| {
            let queue = Arc::clone(&self.queue);
            let identity = object.identity().clone();
            let entry = FileEntry::new(engine.next_uid(), (shard, file), queue, path, identity);
            entry.offset_mapped.set(places).expect("it is new");
            entry
        });
        entry.set_object(Some(object));
        let mut files = self.files.lock();
        files.insert_detached(Arc::clone(&entry));
        files.opened(&entry);
        let handle = engine.shard(entry.shard).open_handle(entry.file);
        drop(files);
        Ok(MappedFile::new(File::new(Arc::clone(engine), Arc::clone(self), entry, handle, Access::Read)))
    }

    /// Adds a handle to an entry that has open handles, so the entry is still in the table.
    pub(crate) fn another_handle(&self, entry: &FileEntry) -> HandleId {
        self.files.lock().opened(entry);
        self.engine.shard(entry.shard).open_handle(entry.file)
    }

    fn open_object(&self, path: &Path, will_read: WillRead) -> Result<Arc<dyn Object>> {
        let object = match self.backend.open_to_read(path, will_read) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(self.is_being_made(path).unwrap_or(error).into());
            }
            object => object?,
        };
        check_size(path, object.size())?;
        Ok(object)
    }

    /// A handle of `entry` was closed.
    pub(crate) fn closed(&self, entry: &Arc<FileEntry>) {
        self.files.lock().closed(entry, &self.engine);
    }

    /// A file with nothing cached, in no table.
    fn new_entry(&self, path: &Path, identity: Identity) -> Arc<FileEntry> {
        let engine = &self.engine;
        let shard = engine.next_shard();
        let pages = engine.page_size().count_for(identity.size);
        engine.shard(shard).open_file(pages, |file| {
            FileEntry::new(engine.next_uid(), (shard, file), Arc::clone(&self.queue), path, identity)
        })
    }
}

impl Drop for StoreInner {
    /// Files hold the store, so none is open: all pages are dropped.
    fn drop(&mut self) {
        let entries = self.files.get_mut().take_all();
        self.engine.adopt(entries);
        self.engine.forget_queue(&self.queue);
    }
}

/// Fails for impossible sizes.
fn check_size(path: &Path, size: u64) -> Result<()> {
    if i64::try_from(size).is_ok() {
        return Ok(());
    }
    let message = format!("{}: the store says it has {size} bytes", path.display());
    Err(StoreError::new(ErrorKind::Protocol, message).into())
}
