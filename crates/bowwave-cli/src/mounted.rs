//! A store behind the cache as the tree that a mount shows.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowwave_backend::{Entry, Error, ErrorKind, Identity, Result};
use bowwave_engine::{File, Store};
use bowwave_fuse::{OpenFile, Tree};

use crate::output;

/// A [`Store`] for [`bowwave_fuse::Mount`]. What an errno cannot say is said on standard error.
#[derive(Debug)]
pub struct StoreTree {
    store: Store,
    url: String,
    complaints: Mutex<Complaints>,
}

/// An open [`File`] for a mount.
#[derive(Debug)]
pub struct StoreFile(File);

/// How much was said lately: a store that is down fails every read, and one line says as much as a thousand.
#[derive(Debug)]
struct Complaints {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl StoreTree {
    /// The tree of a store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let url = store.url().to_owned();
        let complaints = Mutex::new(Complaints { since: Instant::now(), said: 0, unsaid: 0 });
        Self { store, url, complaints }
    }
}

impl Tree for StoreTree {
    type File = StoreFile;

    fn url(&self) -> &str {
        &self.url
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.store.stat(path).map_err(of_store)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.store.list(path).map_err(of_store)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.store.read_link(path).map_err(of_store)
    }

    fn open(&self, path: &Path) -> Result<StoreFile> {
        self.store.open(path).map(StoreFile).map_err(of_store)
    }

    fn failed(&self, _path: &Path, error: &Error) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.since.elapsed() >= COMPLAINTS_EVERY {
            let unsaid = std::mem::take(&mut complaints.unsaid);
            if unsaid > 0 {
                output::note(format_args!("{unsaid} more reads failed meanwhile"));
            }
            complaints.since = Instant::now();
            complaints.said = 0;
        }
        if complaints.said < COMPLAINTS_MAX {
            complaints.said += 1;
            output::note(format_args!("a program was told of an error: {error}"));
        } else {
            complaints.unsaid += 1;
        }
    }
}

impl OpenFile for StoreFile {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn identity(&self) -> Identity {
        self.0.identity().clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buf).map_err(of_store)
    }
}

/// The store's part of an error of the engine.
fn of_store(error: bowwave_engine::Error) -> Error {
    match error {
        bowwave_engine::Error::Store(error) => error,
        // Options are refused when the engine is made, long before.
        bowwave_engine::Error::Options(message) => Error::new(ErrorKind::Io, message),
    }
}

/// So many complaints …
const COMPLAINTS_MAX: u32 = 5;
/// … in so much time; the rest are counted.
const COMPLAINTS_EVERY: Duration = Duration::from_secs(10);
