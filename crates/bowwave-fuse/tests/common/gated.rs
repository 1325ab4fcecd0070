//! A store whose response to a stat, or to a change of a name, can be held back.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bowwave_engine::backend::{Entry, Owner, Rename, Result, Writes};
use bowwave_engine::{File, Store};
use bowwave_fuse::{NewFile, Tree};

/// Holds one response at a time.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Holds the next request.
    Shut,
    Held,
}

impl Gate {
    pub(crate) fn shut(&self) {
        *self.lock() = Stage::Shut;
    }

    /// Waits until a request is held; all others pass.
    pub(crate) fn wait(&self) {
        let mut stage = self.lock();
        while *stage != Stage::Held {
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn open(&self) {
        *self.lock() = Stage::Open;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut stage = self.lock();
        if *stage != Stage::Shut {
            return;
        }
        *stage = Stage::Held;
        self.changed.notify_all();
        while *stage == Stage::Held {
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store behind gates.
pub(crate) struct Gated {
    pub(crate) store: Store,
    /// Holds a stat.
    pub(crate) looks: Arc<Gate>,
    /// Holds a removal of a name.
    pub(crate) removals: Arc<Gate>,
}

impl Tree for Gated {
    type File = File;

    fn url(&self) -> &str {
        self.store.url()
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let answer = Tree::stat(&self.store, path);
        self.looks.pass();
        answer
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

    fn writes(&self) -> Writes {
        Tree::writes(&self.store)
    }

    fn open_write(&self, path: &Path, new: Option<NewFile>) -> Result<File> {
        Tree::open_write(&self.store, path, new)
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        Tree::create_directory(&self.store, path, mode, owner)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        Tree::link(&self.store, from, to)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let answer = Tree::remove_file(&self.store, path);
        self.removals.pass();
        answer
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let answer = Tree::rename(&self.store, from, to, how);
        self.removals.pass();
        answer
    }

    fn sync(&self) -> Result<()> {
        Tree::sync(&self.store)
    }
}
