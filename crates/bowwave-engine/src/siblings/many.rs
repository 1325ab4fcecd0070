//! Files that a program opens one after another, with readahead across small ones.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bowwave_backend::{Namespace as _, SMALL_BYTES, WillRead};

use super::named::{NamedFile, NamedFiles};
use super::number;
use crate::error::Result;
use crate::store::Store;

/// A store of which a program opens one file after another.
///
/// Each open asks the store for the current version, until the program opens a fourth file in one
/// directory. Then a second store of the same URL lists the directory. While that listing is
/// current, the small files in it are opened by it, and those that the program will open next are
/// read ahead. All other files are opened as before: large ones, those that the listing lacks, and
/// those of directories that one request does not list.
///
/// ```
/// use bowwave_engine::{Engine, ManyFiles, Options};
///
/// let engine = Engine::new(Options { cache_bytes: Some(16 << 20), ..Options::default() })?;
/// let url = "pattern:/1MiB"; // or s3://bucket/prefix
/// let store = engine.store(url)?;
/// let files = ManyFiles::new(store, 1, move || engine.store(url));
/// let file = files.open("".as_ref(), Default::default())?;
/// let mut bytes = [0; 4096];
/// assert_eq!(file.read_at(0, &mut bytes)?, bytes.len());
/// # Ok::<(), bowwave_engine::Error>(())
/// ```
pub struct ManyFiles {
    store: Arc<Store>,
    again: Box<dyn Fn() -> Result<Store> + Send + Sync>,
    owners: u64,
    /// By the names of the second store. `None` within where it keeps none.
    named: OnceLock<Option<NamedFiles>>,
    /// By number of the path, the directories of the last opens.
    directories: Mutex<HashMap<u64, Directory>>,
}

impl fmt::Debug for ManyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyFiles").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What is remembered of a directory.
#[derive(Debug, Default)]
struct Directory {
    /// Numbers of the first files that were opened in it.
    opened: Vec<u64>,
    /// When its listing was requested last.
    requested: Option<Instant>,
    /// Whether a file was opened by that listing.
    is_used: bool,
}

impl ManyFiles {
    /// The files of a store. `again` opens another store of its URL in the same engine. If several
    /// `owners` share the cache, each may read ahead an equal part of what readahead across files
    /// may take.
    pub fn new(
        store: impl Into<Arc<Store>>,
        owners: u64,
        again: impl Fn() -> Result<Store> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store: store.into(),
            again: Box::new(again),
            owners,
            named: OnceLock::new(),
            directories: Mutex::default(),
        }
    }

    /// The store that each other open asks.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Opens the current version of a file, or, of a small file in a directory of which the program
    /// has opened at least three others, the one that a listing has just shown.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path, will_read: WillRead) -> Result<NamedFile> {
        if let Some(named) = self.by_name(path)
            // Whatever is wrong with it, the store has the last word.
            && let Ok(file) = named.open(path, WillRead::Any)
        {
            return Ok(file);
        }
        Ok(self.store.open_to_read(path, will_read)?.into())
    }

    /// The second store, if its listing has this file, and the file is small.
    fn by_name(&self, path: &Path) -> Option<&NamedFiles> {
        let above = path.parent()?;
        if !self.store.reads_siblings() || !self.note_open(number(above), number(path)) {
            return None;
        }
        let begin = || {
            let files = NamedFiles::new((self.again)().ok()?, self.owners);
            files.are_read_ahead().then_some(files)
        };
        let named = self.named.get_or_init(begin).as_ref()?;
        let size = named.store().known_size(path);
        if size.is_none() && self.should_list(number(above)) {
            named.store().list_soon(above);
        }
        let is_small = (1..=SMALL_BYTES).contains(&size?);
        if is_small && let Some(found) = self.directories().get_mut(&number(above)) {
            found.is_used = true;
        }
        is_small.then_some(named)
    }

    /// Returns whether enough other files of the directory were opened.
    fn note_open(&self, directory: u64, file: u64) -> bool {
        let mut directories = self.directories();
        if directories.len() >= DIRECTORIES_MAX && !directories.contains_key(&directory) {
            directories.clear();
        }
        let opened = &mut directories.entry(directory).or_default().opened;
        if opened.len() < OTHERS && !opened.contains(&file) {
            opened.push(file);
            return false;
        }
        opened.len() >= OTHERS && !opened.contains(&file)
    }

    /// Whether the listing of a directory is worth a request: the last one was used, or is long
    /// ago.
    fn should_list(&self, directory: u64) -> bool {
        let mut directories = self.directories();
        let Some(found) = directories.get_mut(&directory) else { return false };
        let pause = if found.is_used { Duration::ZERO } else { UNUSED_PAUSE };
        if found.requested.is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        (found.requested, found.is_used) = (Some(Instant::now()), false);
        true
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<u64, Directory>> {
        // A panic may leave wrong counts, which affect readahead only, never the bytes read.
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files of one directory that are opened before it is listed. Fewer: programs that open few files
/// send listings. More: programs that open many files begin slower.
const OTHERS: usize = 3;
/// Directories of which the opens are counted.
const DIRECTORIES_MAX: usize = 256;
/// Least time between two listings of a directory if no file was opened by the first of them: the
/// program opens files too rarely, or the directory is too large for one request.
const UNUSED_PAUSE: Duration = Duration::from_mins(1);
