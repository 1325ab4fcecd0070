//! Changes of names and attributes in a store, and their effect on cached files.

use std::path::Path;
use std::sync::Arc;

use bowwave_backend::{
    Backend, Entry, Identity, Namespace, Object, Rename, Result, SetAttributes, WillRead, Writes,
};
use bowwave_core::SyncFor;
use bowwave_core::schedule::Priority;

use super::{Store, StoreInner};
use crate::entry::FileEntry;
use crate::file::ALL;
use crate::files::Key;

/// Names as the store has them, with the current sizes of files being written and with objects
/// being uploaded. Open files and their pages follow renames. Without an override here, an
/// operation goes to the store unchanged.
impl Namespace for Store {
    fn backend(&self) -> &dyn Backend {
        Self::backend(self)
    }

    fn names_below(&self) -> Option<&dyn Namespace> {
        self.inner.backend.namespace()
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.inner.stat(path, || self.inner.backend.stat(path))
    }

    fn lookup(&self, path: &Path, will_read: WillRead) -> Result<Entry> {
        self.inner.stat(path, || self.inner.backend.lookup(path, will_read))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut entries = self.inner.backend.list(path)?;
        self.inner.list_wholes(path, &mut entries);
        Ok(entries)
    }

    /// Open handles stay valid; their writes are discarded with the last one.
    fn remove_file(&self, path: &Path) -> Result<()> {
        let gone = self.inner.known_at(path);
        self.inner.remove_whole(path, || self.inner.backend.remove_file(path))?;
        self.inner.removed(gone);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.inner.remove_directory_of_wholes(path, || self.inner.backend.remove_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.inner.rename_by(from, to, how, || self.inner.backend.rename(from, to, how))
    }

    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.inner.rename_by(from, to, how, || self.inner.backend.rename_with(from, to, how, attributes))
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        // Any change makes a new version of an object: a copy onto itself. Without pages and
        // handles there is nothing to update.
        let changes = match self.inner.profile.writes {
            Writes::Whole => self.inner.files.lock().get(&Key::new(path, &Identity::default())).is_some(),
            _ => attributes.modified.is_some(),
        };
        let known = if changes { self.inner.known_at(path) } else { None };
        let Some(Known { entry, stat }) = known else {
            return self.inner.backend.set_attributes(path, attributes);
        };
        // So that the time stays.
        self.inner.write_out(&entry, Priority::default(), ALL, SyncFor::Close);
        self.inner.backend.set_attributes(path, attributes)?;
        let before = stat.identity.unwrap_or_default();
        self.inner.touched(&entry, &before, path);
        Ok(())
    }
}

/// A cached file, with its entry in the store.
struct Known {
    entry: Arc<FileEntry>,
    stat: Entry,
}

impl StoreInner {
    /// The entry at `path` as `ask` returns it, with the current size of a file being written.
    fn stat(&self, path: &Path, ask: impl FnOnce() -> Result<Entry>) -> Result<Entry> {
        if let Some(entry) = self.stat_whole(path) {
            return Ok(entry);
        }
        let mut entry = ask()?;
        if let Some(identity) = &entry.identity
            && let Some(file) = self.files.lock().get(&Key::new(path, identity))
            && file.is_written()
        {
            entry.size = file.size();
        }
        Ok(entry)
    }

    fn rename_by(&self, from: &Path, to: &Path, how: Rename, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let there = if how == Rename::NoReplace { None } else { self.known_at(to) };
        let (replaced, back) = if how == Rename::Replace { (there, None) } else { (None, there) };
        let moved = self.known_at(from);
        self.rename_whole(from, to, act)?;
        let is_same = |a: &Known, b: &Known| Arc::ptr_eq(&a.entry, &b.entry);
        // A rename between two names of one file changes nothing.
        if !matches!((&replaced, &moved), (Some(replaced), Some(moved)) if is_same(replaced, moved)) {
            self.removed(replaced);
        }
        self.renamed(from, to, how);
        for (known, path) in [(moved, to), (back, from)] {
            if let Some(known) = known {
                known.entry.set_path(path);
            }
        }
        Ok(())
    }

    /// The cached file at `path`, if there is one.
    fn known_at(&self, path: &Path) -> Option<Known> {
        let stat = self.backend.stat(path).ok()?;
        let key = Key::new(path, stat.identity.as_ref()?);
        let entry = Arc::clone(self.files.lock().get(&key)?);
        Some(Known { entry, stat })
    }

    /// A name of a file was removed. The file is forgotten with its last name and handle.
    fn removed(&self, gone: Option<Known>) {
        let Some(Known { entry, stat }) = gone else { return };
        if stat.unix.is_none_or(|unix| unix.links <= 1) {
            entry.set_nameless();
            self.files.lock().detach(&entry, &self.engine);
        }
    }

    /// In stores where names are keys, moves the files at and below `from` to `to`.
    fn renamed(&self, from: &Path, to: &Path, how: Rename) {
        let moved = self.files.lock().rename(from, to, how == Rename::Exchange, &self.engine);
        for (entry, path) in moved {
            // Open handles may know the file by its old name.
            entry.set_path(&path);
            let before = entry.identity();
            self.touched(&entry, &before, &path);
        }
    }

    /// Reopens an open file for reading: by its handle, since its names may have changed, or by
    /// name in stores without inodes. `None` if that is impossible.
    pub(super) fn opened_anew(&self, entry: &FileEntry, path: &Path) -> Option<Arc<dyn Object>> {
        let held = entry.object().and_then(|object| object.opened_anew());
        held.unwrap_or_else(|| self.backend.open(path)).ok()
    }

    /// Our own change altered a file's identity, but not its bytes, if it still was `before`: its
    /// pages stay.
    pub(crate) fn touched(&self, entry: &Arc<FileEntry>, before: &Identity, path: &Path) {
        let files = self.files.lock();
        if entry.is_written() || entry.identity() != *before {
            return;
        }
        if entry.handles() == 0 {
            let after = self.backend.stat(path).ok().and_then(|stat| stat.identity);
            if let Some(after) = after.filter(|after| after.size == before.size) {
                entry.set_identity(after);
            }
        } else if let Some(object) = self.opened_anew(entry, path) {
            let after = object.identity();
            if Key::new(path, after) == entry.key() && after.size == before.size {
                entry.set_identity(after.clone());
                entry.set_object(Some(object));
            }
        }
        drop(files);
    }
}
