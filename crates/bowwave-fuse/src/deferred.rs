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

use bowwave_engine::backend::{Entry, Error, SetAttributes, SetTime};

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
    /// Attributes that the store refused, by path, with its last error; at most [`LOST_MAX`] paths.
    lost: BTreeMap<PathBuf, (SetAttributes, Error)>,
    /// Further refusals.
    others: u64,
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
                operations.tell_all_attributes(DELAY);
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
        *all = merged(all, &changes);
        drop(state);
        self.changed.notify_all();
    }

    /// What waits for `path`.
    pub(crate) fn get(&self, path: &Path) -> Option<SetAttributes> {
        self.lock().waiting.get(path).map(|(attributes, _)| *attributes)
    }

    /// The store has stored `attributes`, or there is nothing at `path`. Programs may have set other attributes by now.
    pub(crate) fn stored(&self, path: &Path, attributes: &SetAttributes) {
        let mut state = self.lock();
        state.settle(path, attributes);
        if let Some((lost, _)) = state.lost.get_mut(path) {
            *lost = without(lost, attributes);
            if lost.is_empty() {
                state.lost.remove(path);
            }
        }
    }

    /// The store has refused `attributes`, which are not tried again. The end of the mount reports them.
    pub(crate) fn refused(&self, path: &Path, attributes: &SetAttributes, error: &Error) {
        let mut state = self.lock();
        state.settle(path, attributes);
        if let Some((lost, last)) = state.lost.get_mut(path) {
            (*lost, *last) = (merged(lost, attributes), error.clone());
        } else if state.lost.len() < LOST_MAX {
            state.lost.insert(path.to_owned(), (*attributes, error.clone()));
        } else {
            state.others += 1;
        }
    }

    /// The refused attributes in one message, which names the first path; `None` if all are stored.
    pub(crate) fn losses(&self) -> Option<String> {
        let state = self.lock();
        let (path, (_, error)) = state.lost.first_key_value()?;
        let path = path.display();
        Some(match state.lost.len() as u64 - 1 + state.others {
            0 => format!("the mode, owner or time of {path} is not stored: {error}"),
            more => format!("modes, owners or times of {path} and {more} more files are not stored: {error}"),
        })
    }

    /// `path` is removed: its attributes wait no more, and are not lost.
    pub(crate) fn removed(&self, path: &Path) {
        let mut state = self.lock();
        state.waiting.remove(path);
        state.lost.remove(path);
    }

    /// `old` is now `new`, with the attributes that waited.
    pub(crate) fn renamed(&self, old: &Path, new: &Path) {
        let mut state = self.lock();
        state.waiting.remove(old);
        state.waiting.remove(new);
        state.lost.remove(new);
        if let Some(lost) = state.lost.remove(old) {
            state.lost.insert(new.to_owned(), lost);
        }
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
        if let Some((lost, _)) = state.lost.get_mut(path) {
            lost.modified = None;
            if lost.is_empty() {
                state.lost.remove(path);
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

impl State {
    /// `attributes` of `path` wait no more, unless programs have set others meanwhile.
    fn settle(&mut self, path: &Path, attributes: &SetAttributes) {
        if self.waiting.get(path).is_some_and(|(now, _)| now == attributes) {
            self.waiting.remove(path);
        }
    }
}

/// `earlier` attributes, changed by `later` ones.
fn merged(earlier: &SetAttributes, later: &SetAttributes) -> SetAttributes {
    SetAttributes {
        mode: later.mode.or(earlier.mode),
        uid: later.uid.or(earlier.uid),
        gid: later.gid.or(earlier.gid),
        accessed: later.accessed.or(earlier.accessed),
        modified: later.modified.or(earlier.modified),
    }
}

/// The attributes of `all` that `others` does not set.
fn without(all: &SetAttributes, others: &SetAttributes) -> SetAttributes {
    SetAttributes {
        mode: all.mode.filter(|_| others.mode.is_none()),
        uid: all.uid.filter(|_| others.uid.is_none()),
        gid: all.gid.filter(|_| others.gid.is_none()),
        accessed: all.accessed.filter(|_| others.accessed.is_none()),
        modified: all.modified.filter(|_| others.modified.is_none()),
    }
}

/// Paths whose refused attributes are known; each takes some 300 bytes.
const LOST_MAX: usize = 1000;

/// How long attributes wait for more. Longer than the time between two calls of one program, and than its rename; shorter than
/// a user needs to look from another machine.
const DELAY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_engine::backend::ErrorKind;

    #[test]
    fn refused_attributes_are_lost_until_later_ones_are_stored() {
        let deferred = Deferred::default();
        let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let owner = SetAttributes { uid: Some(7), ..SetAttributes::default() };
        let refuse = |path: &str, attributes: &SetAttributes| {
            deferred.refused(
                path.as_ref(),
                attributes,
                &Error::new(ErrorKind::PermissionDenied, "it is sealed"),
            );
        };
        assert_eq!(deferred.losses(), None);
        refuse("a", &mode(0o600));
        refuse("a", &owner);
        let one = "the mode, owner or time of a is not stored: it is sealed";
        assert_eq!(deferred.losses().as_deref(), Some(one));
        deferred.stored("a".as_ref(), &mode(0o640));
        assert_eq!(deferred.losses().as_deref(), Some(one), "the owner is not stored");
        deferred.renamed("a".as_ref(), "b".as_ref());
        refuse("c", &owner);
        let two = "modes, owners or times of b and 1 more files are not stored: it is sealed";
        assert_eq!(deferred.losses().as_deref(), Some(two));
        deferred.removed("c".as_ref());
        deferred.stored("b".as_ref(), &owner);
        assert_eq!(deferred.losses(), None);
        (0..2 * LOST_MAX).for_each(|number| refuse(&number.to_string(), &owner));
        let many = deferred.losses().expect("refused");
        assert!(many.contains(&format!("and {} more", 2 * LOST_MAX - 1)), "{many}");
    }
}
