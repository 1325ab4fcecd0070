//! What changes names and attributes in a store, and what becomes of the files that have them.

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
    /// Makes a folder with these permission bits; the umask is the caller's.
    ///
    /// # Errors
    /// As the store says.
    pub fn make_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        Ok(self.inner.backend.make_directory(path, mode, owner)?)
    }

    /// Removes what is not a folder. Handles that have it open go on; what is written through them goes with the last.
    ///
    /// # Errors
    /// As the store says.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        let gone = self.inner.known_at(path);
        self.inner.remove_whole(path, || self.inner.backend.remove_file(path))?;
        self.inner.removed(gone);
        Ok(())
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// As the store says.
    pub fn remove_directory(&self, path: &Path) -> Result<()> {
        Ok(self.inner.remove_folder_of_wholes(path, || self.inner.backend.remove_directory(path))?)
    }

    /// Gives an entry another name. Open files go with it, and so do their pages.
    ///
    /// # Errors
    /// As the store says.
    pub fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.rename_by(from, to, how, || self.inner.backend.rename(from, to, how))
    }

    /// As [`rename`](Self::rename), and changes attributes of what has the new name then.
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
        // Two names of one file stay as they are.
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

    /// Gives a file a second name. Whoever opens it by either shares its pages.
    ///
    /// # Errors
    /// As the store says.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        Ok(self.inner.backend.link(from, to)?)
    }

    /// Makes a symbolic link at `path` that holds `target`.
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
    pub fn make_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        Ok(self.inner.backend.make_node(path, kind, mode, special_device, owner)?)
    }

    /// Changes attributes; of a link those of the link itself.
    ///
    /// # Errors
    /// As the store says.
    pub fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        // Any change makes another version of an object: a copy onto itself. Without pages and handles none has to follow.
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

    /// How much room there is.
    ///
    /// # Errors
    /// As the store says; `Unsupported` where it does not know.
    pub fn statfs(&self) -> Result<StatFs> {
        Ok(self.inner.backend.statfs()?)
    }

    /// Returns when the names in a folder are safe from a loss of power.
    ///
    /// # Errors
    /// As the store says.
    pub fn sync_directory(&self, path: &Path) -> Result<()> {
        Ok(self.inner.backend.sync_directory(path)?)
    }
}

/// A file that the cache knows, with what the store says of it.
struct Known {
    entry: Arc<FileEntry>,
    stat: Entry,
}

impl StoreInner {
    /// The entry of the file at `path`, if there is one.
    fn known_at(&self, path: &Path) -> Option<Known> {
        let stat = self.backend.stat(path).ok()?;
        let key = Key::new(path, stat.identity.as_ref()?);
        let entry = Arc::clone(self.files().get(&key)?);
        Some(Known { entry, stat })
    }

    /// A name of a file is gone. With its last name goes the file, as soon as nobody has it open.
    fn removed(&self, gone: Option<Known>) {
        let Some(Known { entry, stat }) = gone else { return };
        if stat.unix.is_none_or(|unix| unix.links <= 1) {
            entry.set_nameless();
            self.files().detach(&entry, &self.engine);
        }
    }

    /// Where names are keys, the files at and below `from` are now at and below `to`.
    fn renamed(&self, from: &Path, to: &Path, how: Rename) {
        let moved = self.files().rename(from, to, how == Rename::Exchange, &self.engine);
        for (entry, path) in moved {
            // What has the file open may know it by its old name.
            entry.set_path(&path);
            let before = entry.identity();
            self.touched(&entry, &before, &path);
        }
    }

    /// A file that somebody has open, opened anew for reading: by what is held open, for its names are others by now, or
    /// where only names lead to files by its name. `None` if that cannot be.
    pub(super) fn opened_anew(&self, entry: &FileEntry, path: &Path) -> Option<Arc<dyn Object>> {
        let held = entry.object().and_then(|object| object.opened_anew());
        held.unwrap_or_else(|| self.backend.open(path)).ok()
    }

    /// We have changed what identifies a file, but not its bytes, where it was as `before`: its pages stay.
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
