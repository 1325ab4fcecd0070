//! Implements [`Tree`] for the engine's [`Store`].

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bowwave_engine::backend::{
    Allocate, Entry, EntryKind, Error, ErrorKind, Identity, Namespace, Owner, Rename, Result, SetAttributes,
    SetXattr, StatFs, Writes,
};
use bowwave_engine::{File, OpenOptions, Store};

use crate::tree::{NewFile, OpenFile, Tree};

impl Tree for Store {
    type File = File;

    fn url(&self) -> &str {
        Self::url(self)
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        Namespace::stat(self, path)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        Namespace::list(self, path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Namespace::read_link(self, path)
    }

    fn open(&self, path: &Path) -> Result<File> {
        Ok(Self::open(self, path)?)
    }

    fn writes(&self) -> Writes {
        Self::writes(self)
    }

    fn open_write(&self, path: &Path, new: Option<NewFile>) -> Result<File> {
        let writing = OpenOptions { write: true, ..OpenOptions::default() };
        let options = new.map_or(writing, |new| OpenOptions {
            create: true,
            exclusive: true,
            mode: new.mode,
            owner: new.owner,
            ..writing
        });
        let Some(new) = new.filter(|_| Self::writes(self) == Writes::Whole) else {
            return Ok(self.open_with(path, &options)?);
        };
        // Without `exclusive`, other writers may create the object too until it is published; the
        // last one wins.
        let file = self.open_with(path, &OpenOptions { exclusive: new.exclusive, ..options })?;
        if file.is_new() {
            return Ok(file);
        }
        Err(Error::new(ErrorKind::Exists, format!("{}: is there already", path.display())))
    }

    fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        let file = self.open_with(path, &OpenOptions { write: true, ..OpenOptions::default() })?;
        file.set_len(len)?;
        // Closing would publish too, but discard errors.
        if Self::writes(self) == Writes::Whole { Ok(file.sync(false)?) } else { Ok(file.flush()?) }
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        Namespace::create_directory(self, path, mode, owner)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        Namespace::remove_file(self, path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        Namespace::remove_directory(self, path)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        Namespace::rename(self, from, to, how)
    }

    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        Namespace::rename_with(self, from, to, how, attributes)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        Namespace::link(self, from, to)
    }

    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        Namespace::symlink(self, target, path, owner)
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        Namespace::create_node(self, path, kind, mode, special_device, owner)
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        Namespace::set_attributes(self, path, attributes)
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        Namespace::xattr(self, path, name)
    }

    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        Namespace::list_xattrs(self, path)
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        Namespace::set_xattr(self, path, name, value, how)
    }

    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        Namespace::remove_xattr(self, path, name)
    }

    fn statfs(&self) -> Result<StatFs> {
        Namespace::statfs(self)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        Namespace::sync_directory(self, path)
    }

    fn sync(&self) -> Result<()> {
        Ok(Self::sync(self)?)
    }
}

impl OpenFile for File {
    fn size(&self) -> u64 {
        Self::size(self)
    }

    fn identity(&self) -> Identity {
        Self::identity(self)
    }

    fn version(&self) -> u64 {
        Self::version(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(Self::read_at(self, offset, buf)?)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        Ok(Self::write_at(self, offset, buf)?)
    }

    fn append(&self, buf: &[u8]) -> Result<usize> {
        Ok(Self::append(self, buf)?.1)
    }

    fn end_writing(&self) -> Result<()> {
        Ok(Self::end_writing(self)?)
    }

    fn abandon(&self) {
        Self::abandon(self);
    }

    fn is_dirty(&self) -> bool {
        Self::is_dirty(self)
    }

    fn flush(&self) -> Result<()> {
        Ok(Self::flush(self)?)
    }

    fn flush_untouched(&self) -> Result<()> {
        Ok(Self::flush_untouched(self)?)
    }

    fn flush_for_sync(&self) -> Result<()> {
        Ok(Self::flush_for_sync(self)?)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        Ok(Self::sync(self, data_only)?)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        Ok(Self::set_len(self, len)?)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        Ok(Self::allocate(self, offset, len, how)?)
    }

    fn attributes(&self) -> Result<Entry> {
        Ok(Self::attributes(self)?)
    }

    fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        Ok(Self::set_attributes(self, attributes)?)
    }
}
