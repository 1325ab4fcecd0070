//! Files that are opened by the names that a store keeps, with readahead across them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowwave_backend::{Entry, EntryKind, ErrorKind, KeepNames, SMALL_BYTES, WillRead};

use super::{SiblingFile, SiblingOpen, SiblingReadahead, SiblingTree};
use crate::error::{Error, Result};
use crate::file::File;
use crate::store::Store;

/// A store whose files a program opens by name. Where the store keeps names, the files that the
/// program will open next are read ahead. For a program that also asks for names, as through a
/// file system; [`ManyFiles`](super::ManyFiles) is for others.
pub struct NamedFiles {
    store: Arc<Store>,
    tree: Arc<dyn SiblingTree>,
    /// `None` where each open asks the store.
    siblings: Option<Arc<SiblingReadahead>>,
}

impl fmt::Debug for NamedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedFiles").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A file of [`NamedFiles`] or [`ManyFiles`](super::ManyFiles). Its drop is the close.
#[derive(Debug)]
pub struct NamedFile {
    file: File,
    noted: Option<Noted>,
}

/// An open that readahead across files knows.
#[derive(Debug)]
struct Noted {
    siblings: Arc<SiblingReadahead>,
    number: SiblingFile,
    /// Whether reads of it still matter.
    matters: AtomicBool,
    /// Its reads count as long as this lives.
    _open: Option<SiblingOpen>,
}

impl NamedFiles {
    /// The files of a store, which keeps names for a second from here on. If several `owners` share
    /// its cache, each may read ahead an equal part of what readahead across files may take. Where
    /// files are read ahead, a thread starts, with the signal mask of the caller.
    pub fn new(store: impl Into<Arc<Store>>, owners: u64) -> Self {
        let store = store.into();
        Self::with(Arc::clone(&store), store, owners)
    }

    /// As [`new`](Self::new), of small files: no others are read ahead.
    pub(super) fn small(store: Store, owners: u64) -> Self {
        let store = Arc::new(store);
        Self::with(Arc::clone(&store), Arc::new(SmallFiles(store)), owners)
    }

    fn with(store: Arc<Store>, tree: Arc<dyn SiblingTree>, owners: u64) -> Self {
        let keeps_names = store.backend().keep_names(NAMES).is_some_and(|kept| kept.opens);
        let siblings = keeps_names.then(|| {
            let siblings = SiblingReadahead::new(&store, owners, 0);
            siblings.start(Arc::downgrade(&tree));
            Arc::new(siblings)
        });
        Self { store, tree, siblings }
    }

    /// Whether files are read ahead.
    pub(super) fn are_read_ahead(&self) -> bool {
        self.siblings.is_some()
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A program lists a directory: readahead may enter those in it.
    pub fn listed(&self, directory: &Path) {
        if let Some(siblings) = &self.siblings {
            siblings.listed(directory);
        }
    }

    /// Opens the current version of a file, or the one that the store's kept names show, if its
    /// first bytes are in memory or a response has just shown it.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path, will_read: WillRead) -> Result<NamedFile> {
        let file = self.store.open_to_read(path, will_read)?;
        let Some(siblings) = &self.siblings else { return Ok(file.into()) };
        let is_known_only = file.size() > SMALL_BYTES && !file.is_confirmed();
        let file = if is_known_only { self.open_anew(path, will_read)? } else { file };
        match self.check(siblings, path, &file) {
            Err(error) if is_other_version(&error) => {
                let file = self.open_anew(path, will_read)?;
                let noted = Some(self.check(siblings, path, &file)?);
                Ok(NamedFile { file, noted })
            }
            checked => checked.map(|noted| NamedFile { file, noted: Some(noted) }),
        }
    }

    /// Opens a small file in the version that the store's names show.
    ///
    /// # Errors
    /// `Changed` or `NotFound` if it is no longer the current one, and as the store says.
    pub(super) fn open_shown(&self, path: &Path) -> Result<NamedFile> {
        let file = self.store.open_to_read(path, WillRead::Any)?;
        let noted = self.siblings.as_ref().map(|siblings| self.check(siblings, path, &file)).transpose()?;
        Ok(NamedFile { file, noted })
    }

    fn open_anew(&self, path: &Path, will_read: WillRead) -> Result<File> {
        self.store.backend().forget_name(path, Duration::ZERO);
        self.store.open_to_read(path, will_read)
    }

    /// Reports an open to readahead across files, and reads a byte of a small file. If the byte is
    /// not in memory, the store compares the version.
    fn check(&self, siblings: &Arc<SiblingReadahead>, path: &Path, file: &File) -> Result<Noted> {
        let is_small = (1..=SMALL_BYTES).contains(&file.size());
        let requested = is_small.then(|| siblings.request(path, file));
        // Behind the requests for this file.
        let open = siblings.opened(&*self.tree, path, file);
        if let Some(offset) = requested {
            file.read_at(offset, &mut [0])?;
        }
        Ok(Noted {
            siblings: Arc::clone(siblings),
            number: SiblingFile::at(path),
            matters: AtomicBool::new(true),
            _open: open,
        })
    }
}

/// A file that readahead across files does not know.
impl From<File> for NamedFile {
    fn from(file: File) -> Self {
        Self { file, noted: None }
    }
}

impl NamedFile {
    /// The file. Its reads are not reported to readahead across files.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether its version may be that of a listing. If not, the store was asked at the open.
    pub fn may_be_listed(&self) -> bool {
        self.noted.is_some()
    }

    /// The file, of which a program reads `bytes` bytes from `offset`.
    #[inline]
    pub fn to_read(&self, offset: u64, bytes: u64) -> &File {
        if let Some(noted) = self.noted.as_ref().filter(|noted| noted.matters.load(Ordering::Relaxed)) {
            noted.read(&self.file, offset, bytes);
        }
        &self.file
    }

    /// As [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.to_read(offset, buf.len() as u64).read_at(offset, buf)
    }
}

impl Noted {
    fn read(&self, file: &File, offset: u64, bytes: u64) {
        if !self.siblings.read(self.number, file, offset, bytes) {
            self.matters.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.siblings.closed(self.number);
    }
}

/// The small files of a store. Programs open the others without names.
#[derive(Debug)]
struct SmallFiles(Arc<Store>);

impl SiblingTree for SmallFiles {
    fn store(&self) -> &Store {
        &self.0
    }

    fn known(&self, directory: &Path) -> Option<Vec<Entry>> {
        let mut entries = SiblingTree::known(&*self.0, directory)?;
        entries.retain(|entry| entry.kind == EntryKind::File && (1..=SMALL_BYTES).contains(&entry.size));
        Some(entries)
    }

    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        SiblingTree::list(&*self.0, directory)
    }

    fn open(&self, path: &Path, will_read: WillRead) -> Result<File> {
        SiblingTree::open(&*self.0, path, will_read)
    }
}

/// Whether the file was replaced or removed since the store showed its version.
pub(super) fn is_other_version(error: &Error) -> bool {
    matches!(error.kind(), Some(ErrorKind::Changed | ErrorKind::NotFound))
}

/// As in a mount.
const NAMES: KeepNames = KeepNames { ttl: Duration::from_secs(1), opens: true, assumes_plain: true };
