//! Files that a program opens by name, with readahead across them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bowwave_backend::{ErrorKind, KeepNames, SMALL_BYTES, WillRead};

use super::{SiblingFile, SiblingOpen, SiblingReadahead, SiblingTree, number};
use crate::error::{Error, Result};
use crate::file::File;
use crate::store::Store;

/// A store whose files a program opens by name. Where the store keeps names, the files that the
/// program will open next are read ahead.
///
/// ```
/// use bowwave_engine::{Engine, NamedFiles, Options};
///
/// let engine = Engine::new(Options { cache_bytes: Some(16 << 20), ..Options::default() })?;
/// let files = NamedFiles::new(engine.store("pattern:/1MiB")?, 1);
/// let file = files.open("".as_ref(), Default::default())?;
/// let mut bytes = [0; 4096];
/// assert_eq!(file.read_at(0, &mut bytes)?, bytes.len());
/// # Ok::<(), bowwave_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct NamedFiles {
    store: Arc<Store>,
    owners: u64,
    opens: Mutex<Opens>,
    /// `None` within where each open asks the store.
    siblings: OnceLock<Option<Arc<SiblingReadahead>>>,
}

/// The opens before the store keeps names.
#[derive(Debug, Default)]
struct Opens {
    /// By number of a directory: number of the last file opened in it, and how often it was another
    /// one than before.
    directories: HashMap<u64, (u64, u32)>,
}

/// A file of [`NamedFiles`]. Its drop is the close.
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
    /// The files of a store. If several `owners` share its cache, each may read ahead an equal part
    /// of what readahead across files may take.
    ///
    /// The fourth file that is opened in one directory [begins](Self::begin): a program that opens
    /// few files sends no more requests than without readahead across files.
    pub fn new(store: impl Into<Arc<Store>>, owners: u64) -> Self {
        Self { store: store.into(), owners, opens: Mutex::default(), siblings: OnceLock::new() }
    }

    /// The files of a store that is asked at each open. None are read ahead.
    pub fn asking(store: impl Into<Arc<Store>>) -> Self {
        Self { siblings: None.into(), ..Self::new(store, 1) }
    }

    /// Has the store keep names for a second from here on, and reads files ahead. A thread starts,
    /// with the signal mask of the caller.
    pub fn begin(&self) {
        self.siblings();
    }

    fn siblings(&self) -> Option<&Arc<SiblingReadahead>> {
        let begin = || {
            self.store.backend().keep_names(NAMES).filter(|kept| kept.opens)?;
            let siblings = SiblingReadahead::new(&self.store, self.owners, 0);
            siblings.start(Arc::downgrade(&self.store) as Weak<dyn SiblingTree>);
            Some(Arc::new(siblings))
        };
        self.siblings.get_or_init(begin).as_ref()
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A program lists a directory: readahead may enter those in it.
    pub fn listed(&self, directory: &Path) {
        if let Some(Some(siblings)) = self.siblings.get() {
            siblings.listed(directory);
        }
    }

    /// Opens the current version of a file, or the one that the store's kept names show, if its
    /// first bytes are in memory or a response has just shown it.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path, will_read: WillRead) -> Result<NamedFile> {
        let has_begun = self.siblings.get().is_some() || self.note_open(path);
        let Some(siblings) = has_begun.then(|| self.siblings()).flatten() else {
            return Ok(self.store.open_to_read(path, will_read)?.into());
        };
        let file = self.store.open_to_read(path, will_read)?;
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

    /// Returns whether enough files of one directory were opened.
    fn note_open(&self, path: &Path) -> bool {
        let Some(directory) = path.parent().map(number) else { return false };
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        if opens.directories.len() >= DIRECTORIES_MAX && !opens.directories.contains_key(&directory) {
            opens.directories.clear();
        }
        let (last, files) = opens.directories.entry(directory).or_default();
        *files += u32::from(std::mem::replace(last, number(path)) != number(path));
        *files > FILES
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
        let open = siblings.opened(&*self.store, path, file);
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

/// Whether the file was replaced or removed since the store showed its version.
fn is_other_version(error: &Error) -> bool {
    matches!(error.kind(), Some(ErrorKind::Changed | ErrorKind::NotFound))
}

/// Files of one directory that are opened before the store keeps names. Fewer: programs that open
/// few files send listings. More: programs that open many files begin slower.
const FILES: u32 = 3;
/// Directories of which the opens are counted.
const DIRECTORIES_MAX: usize = 64;
/// As in a mount.
const NAMES: KeepNames = KeepNames { ttl: Duration::from_secs(1), opens: true, assumes_plain: true };
