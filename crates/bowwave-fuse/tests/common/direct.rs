//! A store mounted without a cache: a mount over a tree without buffering.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_engine::backend::{
    Allocate, Backend, Entry, EntryKind, Identity, Namespace as _, Object, OpenWrite, Options, Owner, Rename,
    Result, SetAttributes, SetXattr, StatFs, Write as _, WriteObject, Writes, open_url, read_once,
    write_exact,
};
use bowwave_fuse::{NewFile, OpenFile, Tree};

/// Time limit of one request.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct Direct(Arc<dyn Backend>);

impl Direct {
    pub fn new(url: &str) -> Self {
        Self(open_url(url, &Options::default()).expect("the store can be opened"))
    }
}

#[derive(Debug)]
pub enum DirectFile {
    Read(Arc<dyn Object>),
    Write(Arc<dyn WriteObject>),
}

impl Tree for Direct {
    type File = DirectFile;

    fn url(&self) -> &str {
        self.0.url()
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.0.stat(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.0.list(path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.0.read_link(path)
    }

    fn open(&self, path: &Path) -> Result<DirectFile> {
        // An object opened for reading is fixed to one version, and our writes change it. So use it
        // only if nothing is written.
        match self.0.open_write(path, &OpenWrite::default()) {
            Ok(object) => Ok(DirectFile::Write(object)),
            Err(_) => self.0.open(path).map(DirectFile::Read),
        }
    }

    fn writes(&self) -> Writes {
        self.0.profile().writes
    }

    fn open_write(&self, path: &Path, new: Option<NewFile>) -> Result<DirectFile> {
        let how = new.map_or_else(OpenWrite::default, |new| OpenWrite {
            create: true,
            exclusive: true,
            mode: new.mode,
            owner: new.owner,
            ..OpenWrite::default()
        });
        self.0.open_write(path, &how).map(DirectFile::Write)
    }

    fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        self.0.open_write(path, &OpenWrite::default())?.set_len(len)
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        self.0.create_directory(path, mode, owner)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.0.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.0.remove_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.0.rename(from, to, how)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.link(from, to)
    }

    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        self.0.symlink(target, path, owner)
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        self.0.create_node(path, kind, mode, special_device, owner)
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        self.0.set_attributes(path, attributes)
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        self.0.xattr(path, name)
    }

    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        self.0.list_xattrs(path)
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        self.0.set_xattr(path, name, value, how)
    }

    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        self.0.remove_xattr(path, name)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.0.sync_directory(path)
    }
}

impl DirectFile {
    fn object(&self) -> &dyn Object {
        match self {
            Self::Read(object) => &**object,
            Self::Write(object) => &**object,
        }
    }

    fn write(&self) -> &dyn WriteObject {
        match self {
            Self::Read(_) => unreachable!("the mount writes through handles that write"),
            Self::Write(object) => &**object,
        }
    }
}

impl OpenFile for DirectFile {
    fn size(&self) -> u64 {
        self.attributes().map_or(0, |entry| entry.size)
    }

    fn identity(&self) -> Identity {
        self.attributes().ok().and_then(|entry| entry.identity).unwrap_or_default()
    }

    fn version(&self) -> u64 {
        1
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = read_once(self.object(), offset, buf.len(), PATIENCE)?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        write_exact(self.write(), offset, buf, PATIENCE).map(|()| buf.len())
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Write(object) => object.sync(data_only),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.write().set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.write().allocate(offset, len, how)
    }

    fn attributes(&self) -> Result<Entry> {
        self.object().attributes().expect("file stores have them").stat()
    }

    fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        self.object().attributes().expect("file stores have them").set(attributes)
    }
}
