//! Attributes that programs have set on published objects, and that the store is told later.
//!
//! To change the metadata of an object is to copy it onto itself, on the server. `cp -p`, `tar` and `rsync` set owner, mode
//! and time one after the other: they are collected for a moment, and stored by one copy. A rename within that moment, as
//! `rsync` ends each file, is that copy.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_engine::backend::{Entry, SetAttributes, SetTime};

use crate::operations::Operations;
use crate::tree::Tree;

/// Attributes by path.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the store is told: a path is renamed before or after, not meanwhile.
    telling: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<PathBuf, (SetAttributes, Instant)>,
    is_over: bool,
}

impl Deferred {
    /// Starts the thread that tells the store, for as long as the mount lasts.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start<T: Tree>(operations: &Arc<Operations<T>>) -> io::Result<()> {
        let operations = Arc::clone(operations);
        let run = move || {
            while operations.deferred.wait() {
                // The listener has heard of errors.
                let _told_to_the_log = operations.tell_all_attributes(DELAY);
            }
        };
        thread::Builder::new().name("bowwave-attributes".to_owned()).spawn(run).map(drop)
    }

    /// Adds what a program has set.
    pub(crate) fn add(&self, path: &Path, changes: &SetAttributes) {
        let modified = changes.modified.map(|time| match time {
            SetTime::Now => SetTime::At(SystemTime::now()),
            at @ SetTime::At(_) => at,
        });
        // The time of the last access is not stored.
        let changes = SetAttributes { accessed: None, modified, ..*changes };
        if changes.is_empty() {
            return;
        }
        let mut state = self.lock();
        let (all, _) = state
            .waiting
            .entry(path.to_owned())
            .or_insert_with(|| (SetAttributes::default(), Instant::now()));
        all.mode = changes.mode.or(all.mode);
        all.uid = changes.uid.or(all.uid);
        all.gid = changes.gid.or(all.gid);
        all.modified = changes.modified.or(all.modified);
        drop(state);
        self.changed.notify_all();
    }

    /// What waits for `path`.
    pub(crate) fn get(&self, path: &Path) -> Option<SetAttributes> {
        self.lock().waiting.get(path).map(|(attributes, _)| *attributes)
    }

    /// The store was told `attributes`, or cannot be; there may be others by now.
    pub(crate) fn told(&self, path: &Path, attributes: &SetAttributes) {
        let mut state = self.lock();
        if state.waiting.get(path).is_some_and(|(now, _)| now == attributes) {
            state.waiting.remove(path);
        }
    }

    /// As [`get`](Self::get), and waits no more.
    pub(crate) fn take(&self, path: &Path) -> Option<SetAttributes> {
        self.lock().waiting.remove(path).map(|(attributes, _)| attributes)
    }

    /// The bytes were changed: a time that was set before is not that of the last change.
    pub(crate) fn forget_time(&self, path: &Path) {
        let mut state = self.lock();
        if let Some((attributes, _)) = state.waiting.get_mut(path) {
            attributes.modified = None;
            if attributes.is_empty() {
                state.waiting.remove(path);
            }
        }
    }

    /// Paths whose attributes wait for at least so long.
    pub(crate) fn since(&self, long: Duration) -> Vec<PathBuf> {
        let state = self.lock();
        let due = state.waiting.iter().filter(|(_, (_, since))| since.elapsed() >= long);
        due.map(|(path, _)| path.clone()).collect()
    }

    /// Nothing waits for long any more.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until nobody else tells the store.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry as programs have set it. `path` is asked for only if anything waits.
    pub(crate) fn shown(&self, entry: Entry, path: impl FnOnce() -> Option<PathBuf>) -> Entry {
        if self.lock().waiting.is_empty() {
            return entry;
        }
        let Some(set) = path().and_then(|path| self.get(&path)) else { return entry };
        let modified = match set.modified {
            Some(SetTime::At(time)) => Some(time),
            _ => entry.modified,
        };
        let (uid, gid) = (set.uid.or(entry.uid), set.gid.or(entry.gid));
        Entry { mode: set.mode.or(entry.mode), uid, gid, modified, ..entry }
    }

    /// Waits until something has waited for long enough; false at the end of the mount.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return false;
            }
            let oldest = state.waiting.values().map(|(_, since)| since.elapsed()).max();
            state = match oldest.map(|age| DELAY.saturating_sub(age)) {
                Some(left) if left.is_zero() => return true,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each method leaves the map whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long attributes wait for more. Longer than the time between two calls of one program, and than its rename; shorter than
/// a user needs to look from another machine.
const DELAY: Duration = Duration::from_millis(500);
