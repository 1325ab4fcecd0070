//! Stores of whole objects: current uploads, and their effect on names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bowwave_backend::{
    Entry, Error as StoreError, ErrorKind, Identity, OpenWrite, Profile, Write as _, WriteObject, Writes,
};
use bowwave_core::HandleId;

use super::{OpenOptions, Store, StoreInner, check_size};
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::{Access, File};
use crate::files::Files;
use crate::object_upload::{Discarded, ObjectUpload, Slots, Unlinked, Writer};
use crate::queue::Queue;
use crate::sync::{Arc, Mutex};

/// Current uploads of a store.
#[derive(Debug)]
pub(super) struct Wholes {
    slots: Arc<Slots>,
    discarded: Arc<Discarded>,
    /// Bytes of a part.
    part: usize,
    written: Mutex<HashMap<PathBuf, Arc<FileEntry>>>,
    /// Serializes renames, which may hold up several writers.
    renaming: Mutex<()>,
}

impl Wholes {
    /// At most as many parts in flight as the store serves, or as `depth` allows.
    pub(super) fn new(profile: &Profile, depth: Option<u32>, queue: &Arc<Queue>) -> Self {
        let part = usize::try_from(profile.write_part_bytes).unwrap_or(usize::MAX).clamp(1, PART_BYTES_MAX);
        let queue = Arc::clone(queue);
        let most = depth.unwrap_or(u32::MAX).min(profile.slots);
        Self {
            slots: Arc::new(Slots::new(most, move || queue.is_in_use())),
            discarded: Arc::default(),
            part,
            written: Mutex::default(),
            renaming: Mutex::default(),
        }
    }

    fn at(&self, path: &Path) -> Option<Arc<ObjectUpload>> {
        self.written.lock().get(path).and_then(|entry| entry.upload.get().cloned())
    }

    /// Matching uploads, in order of their paths.
    fn that(&self, fits: impl Fn(&Path, &ObjectUpload) -> bool) -> Vec<(PathBuf, Arc<ObjectUpload>)> {
        let written = self.written.lock();
        let all =
            written.iter().filter_map(|(path, entry)| Some((path.clone(), Arc::clone(entry.upload.get()?))));
        let mut found: Vec<_> = all.filter(|(path, whole)| fits(path, whole)).collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Forgets an upload that lost its name.
    fn forget(&self, path: &Path, whole: &Arc<ObjectUpload>) {
        let mut written = self.written.lock();
        if written
            .get(path)
            .and_then(|entry| entry.upload.get())
            .is_some_and(|known| Arc::ptr_eq(known, whole))
        {
            written.remove(path);
        }
    }
}

impl Store {
    /// Returns when all closed objects are published, as far as possible.
    ///
    /// # Errors
    /// `Busy` if objects are still being written; they stay unpublished. The error of a failed
    /// upload, once, unless a later upload to the same path has succeeded.
    pub(super) fn settle_wholes(&self) -> Result<()> {
        let mut unfinished = Vec::new();
        for (path, whole) in self.inner.wholes.that(|_, _| true) {
            whole.wait_for_publication();
            if whole.is_pending() {
                unfinished.push(path.display().to_string());
            }
        }
        if let Some(error) = self.inner.wholes.discarded.take() {
            return Err(error.into());
        }
        if unfinished.is_empty() {
            return Ok(());
        }
        let message = format!("was being written, and stays as it was: {}", unfinished.join(", "));
        Err(StoreError::new(ErrorKind::Busy, message).into())
    }
}

impl StoreInner {
    /// Opens an object for writing. All handles write the same upload.
    pub(super) fn open_whole(self: &Arc<Self>, path: &Path, options: &OpenOptions) -> Result<File> {
        let access = if options.append { Access::Append } else { Access::Write };
        let file = match self.join(path, access) {
            Some(file) => file,
            None => {
                let how = OpenWrite {
                    create: options.create,
                    exclusive: options.exclusive,
                    mode: options.mode,
                    owner: options.owner,
                    ..OpenWrite::default()
                };
                let object = self.backend.open_write(path, &how)?;
                check_size(path, object.size())?;
                let (file, is_first) = self.begin(path, object, access);
                if is_first {
                    if options.truncate && file.upload().is_some_and(|upload| !upload.is_new()) {
                        file.set_len(0)?;
                    }
                    return Ok(file);
                }
                file
            }
        };
        if options.create && options.exclusive {
            let message = format!("{}: is being made already", path.display());
            return Err(StoreError::new(ErrorKind::Exists, message).into());
        }
        if options.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Adds a handle to a current upload.
    fn join(self: &Arc<Self>, path: &Path, access: Access) -> Option<File> {
        let written = self.wholes.written.lock();
        let entry = Arc::clone(written.get(path)?);
        Some(self.open_writer_of(&self.files.lock(), &entry, path, access))
    }

    /// The first writing handle of an object; if another thread was faster, an additional one.
    fn begin(self: &Arc<Self>, path: &Path, object: Arc<dyn WriteObject>, access: Access) -> (File, bool) {
        let mut written = self.wholes.written.lock();
        if let Some(entry) = written.get(path).cloned() {
            return (self.open_writer_of(&self.files.lock(), &entry, path, access), false);
        }
        let entry = self.new_entry(path, object.identity().clone());
        let (wholes, name) = (&self.wholes, entry.name());
        let whole = ObjectUpload::new(
            &self.engine,
            Arc::clone(&object),
            (&self.queue, &wholes.slots, &wholes.discarded),
            wholes.part,
            (path, name),
        );
        let whole = Arc::new(whole);
        entry.upload.set(whole).expect("it is new");
        entry.set_object(Some(object as _));
        written.insert(path.to_owned(), Arc::clone(&entry));
        // Under one lock of the table: a detached entry without handles is forgotten at the next
        // sweep.
        let mut files = self.files.lock();
        files.insert_detached(Arc::clone(&entry));
        (self.open_writer_of(&files, &entry, path, access), true)
    }

    /// The caller holds the lock of the table of uploads.
    fn open_writer_of(
        self: &Arc<Self>,
        files: &Files,
        entry: &Arc<FileEntry>,
        path: &Path,
        access: Access,
    ) -> File {
        let file = self.open_handle(files, path, Arc::clone(entry), access);
        if let Some(whole) = entry.upload.get() {
            whole.opened(file.handle);
        }
        file
    }

    /// Closes a writing handle.
    pub(crate) fn close_whole(&self, whole: &Arc<ObjectUpload>, entry: &FileEntry, handle: HandleId) {
        if std::thread::panicking() {
            // The write may be incomplete.
            whole.abandon(handle);
        }
        if whole.end(Writer { entry, handle, appends: false }).is_err() {
            self.queue.lost_object();
        }
        let mut written = self.wholes.written.lock();
        let known = written.get(whole.path()).and_then(|entry| entry.upload.get());
        // With the table locked no handle joins.
        if whole.closed(handle) == 0 && known.is_some_and(|known| Arc::ptr_eq(known, whole)) {
            written.remove(whole.path());
        }
    }

    /// The entry for `path` if it is being uploaded: a new object exists, and any object has its
    /// current size.
    pub(super) fn stat_whole(&self, path: &Path) -> Option<Entry> {
        let whole = self.wholes.at(path).filter(|whole| whole.is_pending())?;
        Some(describe(path, &whole))
    }

    /// Adds current uploads to a listing.
    pub(super) fn list_wholes(&self, path: &Path, entries: &mut Vec<Entry>) {
        if self.profile.writes != Writes::Whole {
            return;
        }
        let new =
            self.wholes.that(|at, whole| at.parent() == Some(path) && whole.is_new() && whole.is_pending());
        for (at, whole) in new {
            let entry = describe(&at, &whole);
            match entries.binary_search_by(|other| other.name.cmp(&entry.name)) {
                Ok(_) => {}
                Err(place) => entries.insert(place, entry),
            }
        }
    }

    /// Why a missing object cannot be opened for reading, if it is being uploaded.
    pub(super) fn is_being_made(&self, path: &Path) -> Option<StoreError> {
        self.wholes.at(path).filter(|whole| whole.is_new() && whole.is_pending())?;
        let message =
            format!("{}: is being written, and can be read when it is closed or synced", path.display());
        Some(StoreError::new(ErrorKind::Busy, message))
    }

    /// Removes an object by `act`; its writers continue, and their bytes are discarded.
    pub(super) fn remove_whole(
        &self,
        path: &Path,
        act: impl FnOnce() -> bowwave_backend::Result<()>,
    ) -> bowwave_backend::Result<()> {
        let Some(whole) = self.wholes.at(path) else { return act() };
        let was_new = whole.is_new() && whole.is_pending();
        whole.unlink(Unlinked::Removed, || match act() {
            Err(error) if was_new && error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        })?;
        self.wholes.forget(path, &whole);
        Ok(())
    }

    /// Removes a directory by `act`, unless an object in it is being uploaded.
    pub(super) fn remove_directory_of_wholes(
        &self,
        path: &Path,
        act: impl FnOnce() -> bowwave_backend::Result<()>,
    ) -> bowwave_backend::Result<()> {
        if self.wholes.that(|at, whole| is_below(at, path) && whole.is_pending()).is_empty() {
            return act();
        }
        let message = format!("{}: an object in it is being written", path.display());
        Err(StoreError::new(ErrorKind::NotEmpty, message))
    }

    /// Renames by `act`. The old name must not be half written. Writers of an object replaced by
    /// the rename continue, and their bytes are discarded.
    pub(super) fn rename_whole(
        &self,
        from: &Path,
        to: &Path,
        act: impl FnOnce() -> bowwave_backend::Result<()>,
    ) -> bowwave_backend::Result<()> {
        if self.profile.writes != Writes::Whole {
            return act();
        }
        let _one_at_a_time = self.wholes.renaming.lock();
        let moved = self.wholes.that(|at, _| at == from || is_below(at, from));
        if let Some((at, _)) = moved.iter().find(|(_, whole)| whole.is_pending()) {
            let message = format!("{}: is being written; close it, then rename it", at.display());
            return Err(StoreError::new(ErrorKind::Busy, message));
        }
        let replaced = if from == to { None } else { self.wholes.at(to) };
        match &replaced {
            Some(whole) => whole.unlink(Unlinked::Removed, act)?,
            None => act()?,
        }
        if from == to {
            return Ok(());
        }
        if let Some(whole) = replaced {
            self.wholes.forget(to, &whole);
        }
        for (at, whole) in moved {
            whole.unlink(Unlinked::Renamed, || Ok(()))?;
            self.wholes.forget(&at, &whole);
        }
        Ok(())
    }
}

fn is_below(path: &Path, directory: &Path) -> bool {
    path != directory && path.starts_with(directory)
}

fn describe(path: &Path, whole: &ObjectUpload) -> Entry {
    let entry = whole.describe(path.file_name().unwrap_or_default());
    let identity = Identity { size: entry.size, ..Identity::default() };
    Entry { identity: Some(identity), ..entry }
}

/// Larger parts would not fit into memory.
const PART_BYTES_MAX: usize = 1 << 30;
