//! Files that a program opens one after another, with readahead across small ones.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bowwave_backend::sync::Mutex;
use bowwave_backend::{Namespace as _, SMALL_BYTES, WillRead};

use super::named::{NamedFile, NamedFiles, is_other_version};
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
    /// By number of the path, the directories of the last opens. A panic under the lock may leave
    /// wrong counts: they affect readahead, never the bytes read.
    directories: Mutex<HashMap<u64, Directory>>,
    /// Numbers of the files that the program has changed. `None` if they are too many.
    changed: Mutex<Option<HashSet<u64>>>,
}

impl fmt::Debug for ManyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyFiles").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What is remembered of a directory.
#[derive(Debug)]
struct Directory {
    /// Numbers of the first files that were opened in it.
    opened: Vec<u64>,
    /// When its listing was requested last.
    requested: Option<Instant>,
    /// Whether a file was opened by that listing.
    is_used: bool,
    /// When the last open by a listing failed because it showed another version, and how many in a
    /// row did.
    failed: Option<(Instant, u32)>,
    /// When a file in it was opened last.
    last: Instant,
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
            changed: Mutex::new(Some(HashSet::new())),
        }
    }

    /// The store that each other open asks.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Opens the current version of a file, or, of a small file in a directory of which the program
    /// has opened at least three others, the one that a listing has just shown, if its first bytes
    /// are in memory.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, path: &Path, will_read: WillRead) -> Result<NamedFile> {
        if let Some((named, directory)) = self.by_name(path) {
            match named.open_shown(path) {
                Ok(file) => {
                    self.note(directory, |found| (found.is_used, found.failed) = (true, None));
                    return Ok(file);
                }
                // The store has the last word.
                Err(error) if is_other_version(&error) => {
                    named.store().backend().forget_name(path, Duration::ZERO);
                    self.note(directory, |found| {
                        let failures = found.failed.map_or(0, |(_, failures)| failures);
                        found.failed = Some((Instant::now(), failures + 1));
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.store.open_to_read(path, will_read)?.into())
    }

    /// The program changes or removes a file through another way: from now on, each open of it asks
    /// the store.
    pub fn changed(&self, path: &Path) {
        let mut changed = self.changed.lock();
        if let Some(paths) = &mut *changed {
            paths.insert(number(path));
            if paths.len() > CHANGED_MAX {
                *changed = None;
            }
        }
    }

    fn has_changed(&self, path: &Path) -> bool {
        let changed = self.changed.lock();
        // A directory that was renamed changes all below it.
        let is_below = |paths: &HashSet<u64>| path.ancestors().any(|above| paths.contains(&number(above)));
        changed.as_ref().is_none_or(|paths| !paths.is_empty() && is_below(paths))
    }

    /// The second store, if its listing has this file, and the file is small; and the number of the
    /// directory.
    fn by_name(&self, path: &Path) -> Option<(&NamedFiles, u64)> {
        let above = path.parent()?;
        let directory = number(above);
        if !self.store.reads_siblings() || !self.note_open(directory, number(path)) || self.has_changed(path)
        {
            return None;
        }
        let begin = || {
            let files = NamedFiles::small((self.again)().ok()?, self.owners);
            files.are_read_ahead().then_some(files)
        };
        let named = self.named.get_or_init(begin).as_ref()?;
        let size = named.store().known_size(path);
        if size.is_none() && self.may_list(directory) && named.store().list_soon(above) {
            self.note(directory, |found| (found.requested, found.is_used) = (Some(Instant::now()), false));
        }
        (1..=SMALL_BYTES).contains(&size?).then_some((named, directory))
    }

    /// Returns whether enough other files of the directory were opened, and opens by its listing do
    /// not fail.
    fn note_open(&self, directory: u64, file: u64) -> bool {
        let (mut directories, now) = (self.directories.lock(), Instant::now());
        if directories.len() >= DIRECTORIES_MAX && !directories.contains_key(&directory) {
            let oldest = directories.iter().min_by_key(|(_, found)| found.last).map(|(&number, _)| number);
            oldest.and_then(|oldest| directories.remove(&oldest));
        }
        let found = directories.entry(directory).or_insert_with(|| Directory {
            opened: Vec::new(),
            requested: None,
            is_used: false,
            failed: None,
            last: now,
        });
        found.last = now;
        if found.opened.len() < OTHERS && !found.opened.contains(&file) {
            found.opened.push(file);
            return false;
        }
        let fails = found.failed.is_some_and(|(at, failures)| failures >= FAILURES_MAX && at + PAUSE > now);
        found.opened.len() >= OTHERS && !found.opened.contains(&file) && !fails
    }

    /// Whether the listing of a directory is worth a request: the last one was used, or is long
    /// ago.
    fn may_list(&self, directory: u64) -> bool {
        let directories = self.directories.lock();
        let found = directories.get(&directory);
        found.is_some_and(|found| found.is_used || found.requested.is_none_or(|at| at.elapsed() >= PAUSE))
    }

    fn note(&self, directory: u64, change: impl FnOnce(&mut Directory)) {
        if let Some(found) = self.directories.lock().get_mut(&directory) {
            change(found);
        }
    }
}

/// Files of one directory that are opened before it is listed. Fewer: programs that open few files
/// send listings. More: programs that open many files begin slower.
const OTHERS: usize = 3;
/// Directories of which the opens are counted.
const DIRECTORIES_MAX: usize = 256;
/// Opens in a row that may find another version than the listing shows, before a directory has a
/// pause.
const FAILURES_MAX: u32 = 4;
/// Least time between two listings of a directory if no file was opened by the first of them: the
/// program opens files too rarely, or the directory is too large for one request.
const PAUSE: Duration = Duration::from_mins(1);
/// Changed files that are remembered. After more, no file is opened by a listing.
const CHANGED_MAX: usize = 1 << 16;
