//! Changes of names and attributes in a store, and their effect on cached files.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use bowwave_backend::{
    Entry, EntryKind, Identity, Object, Owner, Rename, SetAttributes, SetXattr, StatFs, Writes,
};
use bowwave_core::SyncFor;

use super::{Store, StoreInner};
use crate::entry::FileEntry;
use crate::error::Result;
use crate::file::ALL;
use crate::files::Key;

impl Store {
    /// Creates a directory with these permission bits; the caller applies the umask.
    ///
    /// # Errors
    /// As the store says.
    pub fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        Ok(self.inner.backend.create_directory(path, mode, owner)?)
    }

    /// Removes an entry that is not a directory. Open handles stay valid; their writes are
    /// discarded with the last one.
    ///
    /// # Errors
    /// As the store says.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        let gone = self.inner.known_at(path);
        self.inner.remove_whole(path, || self.inner.backend.remove_file(path))?;
        self.inner.removed(gone);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the store says.
    pub fn remove_directory(&self, path: &Path) -> Result<()> {
        Ok(self.inner.remove_directory_of_wholes(path, || self.inner.backend.remove_directory(path))?)
    }

    /// Renames an entry. Open files and their pages follow.
    ///
    /// # Errors
    /// As the store says.
    pub fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.rename_by(from, to, how, || self.inner.backend.rename(from, to, how))
    }

    /// As [`rename`](Self::rename), and changes attributes of the renamed entry.
    ///
    /// # Errors
    /// As the store says.
    pub fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.rename_by(from, to, how, || self.inner.backend.rename_with(from, to, how, attributes))
    }

    fn rename_by(
        &self,
        from: &Path,
        to: &Path,
        how: Rename,
        act: impl FnOnce() -> bowwave_backend::Result<()>,
    ) -> Result<()> {
        let there = if how == Rename::NoReplace { None } else { self.inner.known_at(to) };
        let (replaced, back) = if how == Rename::Replace { (there, None) } else { (None, there) };
        let moved = self.inner.known_at(from);
        self.inner.rename_whole(from, to, act)?;
        let is_same = |a: &Known, b: &Known| Arc::ptr_eq(&a.entry, &b.entry);
        // A rename between two names of one file changes nothing.
        if !matches!((&replaced, &moved), (Some(replaced), Some(moved)) if is_same(replaced, moved)) {
            self.inner.removed(replaced);
        }
        self.inner.renamed(from, to, how);
        for (known, path) in [(moved, to), (back, from)] {
            if let Some(known) = known {
                known.entry.set_path(path);
            }
        }
        Ok(())
    }

    /// Creates a second name for a file. Opens by either name share its pages.
    ///
    /// # Errors
    /// As the store says.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        Ok(self.inner.backend.link(from, to)?)
    }

    /// Creates a symbolic link at `path` to `target`.
    ///
    /// # Errors
    /// As the store says.
    pub fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        Ok(self.inner.backend.symlink(target, path, owner)?)
    }

    /// Makes an empty file or a special one; `special_device` is the number of the device for device files.
    ///
    /// # Errors
    /// As the store says.
    pub fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        Ok(self.inner.backend.create_node(path, kind, mode, special_device, owner)?)
    }

    /// Changes attributes; for a link, its own.
    ///
    /// # Errors
    /// As the store says.
    pub fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        // Any change makes a new version of an object: a copy onto itself. Without pages and
        // handles there is nothing to update.
        let changes = match self.inner.profile.writes {
            Writes::Whole => self.inner.files().get(&Key::new(path, &Identity::default())).is_some(),
            _ => attributes.modified.is_some(),
        };
        let known = if changes { self.inner.known_at(path) } else { None };
        let Some(Known { entry, stat }) = known else {
            return Ok(self.inner.backend.set_attributes(path, attributes)?);
        };
        // So that the time stays.
        self.inner.write_out(&entry, ALL, SyncFor::Close);
        self.inner.backend.set_attributes(path, attributes)?;
        let before = stat.identity.unwrap_or_default();
        self.inner.touched(&entry, &before, path);
        Ok(())
    }

    /// Reads an extended attribute.
    ///
    /// # Errors
    /// As the store says.
    pub fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        Ok(self.inner.backend.xattr(path, name)?)
    }

    /// Lists the names of the extended attributes.
    ///
    /// # Errors
    /// As the store says.
    pub fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        Ok(self.inner.backend.list_xattrs(path)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As the store says.
    pub fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        Ok(self.inner.backend.set_xattr(path, name, value, how)?)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As the store says.
    pub fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        Ok(self.inner.backend.remove_xattr(path, name)?)
    }

    /// Total and free space.
    ///
    /// # Errors
    /// As the store says; `Unsupported` if it does not know.
    pub fn statfs(&self) -> Result<StatFs> {
        Ok(self.inner.backend.statfs()?)
    }

    /// Returns when the names in a directory are durable.
    ///
    /// # Errors
    /// As the store says.
    pub fn sync_directory(&self, path: &Path) -> Result<()> {
        Ok(self.inner.backend.sync_directory(path)?)
    }
}

/// A cached file, with its entry in the store.
struct Known {
    entry: Arc<FileEntry>,
    stat: Entry,
}

impl StoreInner {
    /// The cached file at `path`, if there is one.
    fn known_at(&self, path: &Path) -> Option<Known> {
        let stat = self.backend.stat(path).ok()?;
        let key = Key::new(path, stat.identity.as_ref()?);
        let entry = Arc::clone(self.files().get(&key)?);
        Some(Known { entry, stat })
    }

    /// A name of a file was removed. The file is forgotten with its last name and handle.
    fn removed(&self, gone: Option<Known>) {
        let Some(Known { entry, stat }) = gone else { return };
        if stat.unix.is_none_or(|unix| unix.links <= 1) {
            entry.set_nameless();
            self.files().detach(&entry, &self.engine);
        }
    }

    /// In stores where names are keys, moves the files at and below `from` to `to`.
    fn renamed(&self, from: &Path, to: &Path, how: Rename) {
        let moved = self.files().rename(from, to, how == Rename::Exchange, &self.engine);
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
        let files = self.files();
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
