//! A store behind the cache as the tree that a mount shows.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowwave_backend::{Entry, Error, Result};
use bowwave_engine::{File, Store};
use bowwave_fuse::Tree;

use crate::output;

/// A [`Store`] whose mount says on standard error what an errno cannot.
#[derive(Debug)]
pub struct StoreTree {
    store: Store,
    complaints: Mutex<Complaints>,
}

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
        let complaints = Mutex::new(Complaints { since: Instant::now(), said: 0, unsaid: 0 });
        Self { store, complaints }
    }
}

impl Tree for StoreTree {
    type File = File;

    fn url(&self) -> &str {
        self.store.url()
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        Tree::stat(&self.store, path)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        Tree::list(&self.store, path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Tree::read_link(&self.store, path)
    }

    fn open(&self, path: &Path) -> Result<File> {
        Tree::open(&self.store, path)
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

/// So many complaints …
const COMPLAINTS_MAX: u32 = 5;
/// … in so much time; the rest are counted.
const COMPLAINTS_EVERY: Duration = Duration::from_secs(10);
