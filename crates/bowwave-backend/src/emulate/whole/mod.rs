//! An object store over a directory: objects are written as a whole, in parts, and are seen when finished.
//!
//! ```text
//!   write(part) --> .bowwave-uploads/ID       finish: --rename--> path      abort, or nobody comes back: ID is a stray
//!                   .bowwave-uploads/ID.to -> path                          upload until it is aborted
//! ```
//!
//! What file systems have and object stores have not is left out: links, owners, modes, attributes, writes in the middle.

mod draft;
mod object;
mod version;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::slow::Slow;
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Namespace, Object, OpenWrite, Owner, Profile, Rename,
    Result, StatFs, Upload, Write, WriteObject, Writes, path,
};
use object::WholeObject;
use version::Version;

/// The store, and the size of its parts.
#[derive(Debug)]
pub(super) struct Whole {
    slow: Arc<Slow>,
    part: u64,
}

impl Whole {
    pub(super) fn new(slow: Slow, part: u64) -> Self {
        Self { slow: Arc::new(slow), part }
    }

    /// Fails for what is in the directory of uploads, as if it were not there.
    fn check(&self, path: &Path) -> Result<()> {
        path::check(path)?;
        if path.iter().next() == Some(OsStr::new(UPLOADS)) {
            return Err(path::not_found(self.url(), path));
        }
        Ok(())
    }

    fn unsupported(&self, path: &Path, what: &str) -> Error {
        let place = path::place(self.url(), path);
        Error::new(ErrorKind::Unsupported, format!("{place}: cannot {what}: this is an object store"))
    }

    /// Fails where a rename does, as S3 would have it: a directory that is not empty would be many requests.
    fn check_rename(&self, from: &Path, how: Rename) -> Result<()> {
        if how == Rename::Exchange {
            return Err(self.unsupported(from, "exchange names"));
        }
        let inner = self.slow.inner();
        if inner.stat(from)?.kind == EntryKind::Directory && !inner.list(from)?.is_empty() {
            let place = path::place(self.url(), from);
            let message = format!(
                "{place}: a directory that is not empty cannot be renamed in an object store; copy it and remove it"
            );
            return Err(Error::new(ErrorKind::CrossDevice, message));
        }
        Ok(())
    }
}

impl Backend for Whole {
    fn url(&self) -> &str {
        self.slow.url()
    }

    fn profile(&self) -> Profile {
        Profile { writes: Writes::Whole, write_part_bytes: self.part, ..self.slow.profile() }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.check(path)?;
        self.slow.metadata();
        let version = Version::open(self.slow.inner(), path)?;
        Ok(Arc::new(self.slow.object(path, version, false)))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }

    fn network(&self) -> Option<crate::NetworkStats> {
        self.slow.network()
    }

    fn disk(&self) -> Option<crate::DiskStats> {
        self.slow.disk()
    }
}

impl Namespace for Whole {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.check(path)?;
        self.slow.stat(path).map(plain)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.check(path)?;
        let mut entries = self.slow.list(path)?;
        entries.retain(|entry| matches!(entry.kind, EntryKind::File | EntryKind::Directory));
        if path.as_os_str().is_empty() {
            entries.retain(|entry| entry.name != UPLOADS);
        }
        Ok(entries.into_iter().map(plain).collect())
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        self.check(path)?;
        self.slow.create_directory(path, mode, owner)
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        self.check(path)?;
        if kind != EntryKind::File {
            return Err(self.unsupported(path, "make a special file"));
        }
        self.slow.create_node(path, kind, mode, device, owner)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.slow.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.slow.remove_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        self.check_rename(from, how)?;
        self.slow.rename(from, to, how)
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(self.unsupported(Path::new(""), "say how much room there is"))
    }
}

impl Write for Whole {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.check(path)?;
        Ok(Arc::new(WholeObject::open(&self.slow, path, how, self.part)?))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.slow.metadata();
        let inner = self.slow.inner();
        let found = match inner.list(UPLOADS.as_ref()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let uploads = found.into_iter().filter_map(|entry| {
            let id = entry.name.to_str()?.strip_suffix(TARGET)?.to_owned();
            let path = inner.read_link(&target_of(&id)).ok()?;
            Some(Upload { path, id, begun: entry.modified })
        });
        Ok(uploads.collect())
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        self.slow.metadata();
        path::check(Path::new(&upload.id))?;
        let inner = self.slow.inner();
        // The name of the upload last: if the bytes cannot be removed it is still to be seen.
        match inner.remove_file(&bytes_of(&upload.id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        inner.remove_file(&target_of(&upload.id))
    }
}

/// The entry as an object store tells it.
fn plain(entry: Entry) -> Entry {
    Entry { mode: None, unix: None, ..entry }
}

/// Where the bytes of an upload are.
fn bytes_of(id: &str) -> PathBuf {
    Path::new(UPLOADS).join(id)
}

/// The link that says what the upload is to become.
fn target_of(id: &str) -> PathBuf {
    Path::new(UPLOADS).join(format!("{id}{TARGET}"))
}

/// The directory of uploads.
const UPLOADS: &str = ".bowwave-uploads";
/// How the name of the link behind an upload ends.
const TARGET: &str = ".to";
