//! A store whose response to a stat, or to a change of a name, can be held back.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bowwave_engine::backend::{Backend, Entry, Namespace, Object, Rename, Result};

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
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) inner: Arc<dyn Backend>,
    /// Holds a stat.
    pub(crate) looks: Arc<Gate>,
    /// Holds a removal of a name.
    pub(crate) removals: Arc<Gate>,
}

impl Backend for Gated {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.inner.open(path)
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}

impl Namespace for Gated {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn names_below(&self) -> Option<&dyn Namespace> {
        self.inner.namespace()
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let answer = self.inner.stat(path);
        self.looks.pass();
        answer
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let answer = self.inner.remove_file(path);
        self.removals.pass();
        answer
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let answer = self.inner.rename(from, to, how);
        self.removals.pass();
        answer
    }
}
