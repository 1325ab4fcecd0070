//! Attributes of published objects that programs have set and the store receives later.
//!
//! To change an object's metadata, the server copies the object onto itself. `cp -p`,
//! `tar` and `rsync` set owner, mode and time one after the other. This module collects them for a
//! moment and stores them with one copy. A rename within that moment, with which `rsync` ends each
//! file, is that copy.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_engine::backend::sync::{Condvar, Mutex};
use bowwave_engine::backend::{Entry, Error, SetAttributes, SetTime};

use crate::operations::Operations;

/// Attributes by path.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while attributes are sent to the store, so that a rename runs before or after, not
    /// meanwhile.
    pub(crate) sending: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    pending: BTreeMap<PathBuf, (SetAttributes, Instant)>,
    /// Attributes that the store rejected, with the last error; at most [`REJECTED_MAX`] paths.
    rejected: BTreeMap<PathBuf, (SetAttributes, Error)>,
    /// Rejections beyond [`REJECTED_MAX`].
    others: u64,
    has_ended: bool,
}

impl Deferred {
    /// Starts the thread that sends attributes to the store until the mount ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(operations: &Arc<Operations>) -> io::Result<()> {
        let operations = Arc::clone(operations);
        let run = move || {
            while operations.deferred.wait() {
                operations.send_all_attributes(DELAY);
            }
        };
        thread::Builder::new().name("bowwave-attributes".to_owned()).spawn(run).map(drop)
    }

    /// Adds attributes that a program has set.
    pub(crate) fn add(&self, path: &Path, changes: &SetAttributes) {
        let modified = changes.modified.map(|time| match time {
            SetTime::Now => SetTime::At(SystemTime::now()),
            at @ SetTime::At(_) => at,
        });
        // Access times are not stored.
        let changes = SetAttributes { accessed: None, modified, ..*changes };
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let (all, _) = state
            .pending
            .entry(path.to_owned())
            .or_insert_with(|| (SetAttributes::default(), Instant::now()));
        *all = merged(all, &changes);
        drop(state);
        self.changed.notify_all();
    }

    /// The attributes that wait for `path`.
    pub(crate) fn get(&self, path: &Path) -> Option<SetAttributes> {
        self.state.lock().pending.get(path).map(|(attributes, _)| *attributes)
    }

    /// The store accepted `attributes`, or `path` does not exist. Programs may have set others
    /// meanwhile.
    pub(crate) fn stored(&self, path: &Path, attributes: &SetAttributes) {
        let mut state = self.state.lock();
        state.settle(path, attributes);
        if let Some((rejected, _)) = state.rejected.get_mut(path) {
            *rejected = without(rejected, attributes);
            if rejected.is_empty() {
                state.rejected.remove(path);
            }
        }
    }

    /// The store rejected `attributes`. They are not retried; the end of the mount reports them.
    pub(crate) fn refused(&self, path: &Path, attributes: &SetAttributes, error: &Error) {
        let mut state = self.state.lock();
        state.settle(path, attributes);
        if let Some((rejected, last)) = state.rejected.get_mut(path) {
            (*rejected, *last) = (merged(rejected, attributes), error.clone());
        } else if state.rejected.len() < REJECTED_MAX {
            state.rejected.insert(path.to_owned(), (*attributes, error.clone()));
        } else {
            state.others += 1;
        }
    }

    /// The rejected attributes as one message that names the first path; `None` if all are stored.
    pub(crate) fn rejections(&self) -> Option<String> {
        let state = self.state.lock();
        let (path, (_, error)) = state.rejected.first_key_value()?;
        let path = path.display();
        Some(match state.rejected.len() as u64 - 1 + state.others {
            0 => format!("the mode, owner or time of {path} is not stored: {error}"),
            more => format!("modes, owners or times of {path} and {more} more files are not stored: {error}"),
        })
    }

    /// `path` was removed: drops its waiting and rejected attributes.
    pub(crate) fn removed(&self, path: &Path) {
        let mut state = self.state.lock();
        state.pending.remove(path);
        state.rejected.remove(path);
    }

    /// `old` was renamed to `new`, and its waiting attributes were stored with it.
    pub(crate) fn renamed(&self, old: &Path, new: &Path) {
        let mut state = self.state.lock();
        state.pending.remove(old);
        state.pending.remove(new);
        state.rejected.remove(new);
        if let Some(rejected) = state.rejected.remove(old) {
            state.rejected.insert(new.to_owned(), rejected);
        }
    }

    /// The content changed: drops a modification time that was set before.
    pub(crate) fn forget_time(&self, path: &Path) {
        let mut state = self.state.lock();
        if let Some((attributes, _)) = state.pending.get_mut(path) {
            attributes.modified = None;
            if attributes.is_empty() {
                state.pending.remove(path);
            }
        }
        if let Some((rejected, _)) = state.rejected.get_mut(path) {
            rejected.modified = None;
            if rejected.is_empty() {
                state.rejected.remove(path);
            }
        }
    }

    /// Paths whose attributes have waited for at least `long`.
    pub(crate) fn since(&self, long: Duration) -> Vec<PathBuf> {
        let state = self.state.lock();
        let due = state.pending.iter().filter(|(_, (_, since))| since.elapsed() >= long);
        due.map(|(path, _)| path.clone()).collect()
    }

    /// Ends the wait for further attributes.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Overlays waiting attributes on an entry. `path` is evaluated only if any attributes wait.
    pub(crate) fn shown(&self, entry: Entry, path: impl FnOnce() -> Option<PathBuf>) -> Entry {
        if self.state.lock().pending.is_empty() {
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

    /// Blocks until an entry is due; returns false at the end of the mount.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return false;
            }
            let oldest = state.pending.values().map(|(_, since)| since.elapsed()).max();
            state = match oldest.map(|age| DELAY.saturating_sub(age)) {
                Some(left) if left.is_zero() => return true,
                Some(left) => self.changed.wait_timeout(state, left),
                None => self.changed.wait(state),
            };
        }
    }
}

impl State {
    /// Removes `attributes` of `path` from the waiting ones, unless programs have set others
    /// meanwhile.
    fn settle(&mut self, path: &Path, attributes: &SetAttributes) {
        if self.pending.get(path).is_some_and(|(now, _)| now == attributes) {
            self.pending.remove(path);
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

/// Maximum number of paths with rejected attributes; each uses about 300 bytes.
const REJECTED_MAX: usize = 1000;

/// How long attributes wait for more. Shorter: a program's next call or its rename costs
/// another copy. Longer: users on other machines notice the delay.
const DELAY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_engine::backend::ErrorKind;

    #[test]
    fn rejected_attributes_are_reported_until_later_ones_are_stored() {
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
        assert_eq!(deferred.rejections(), None);
        refuse("a", &mode(0o600));
        refuse("a", &owner);
        let one = "the mode, owner or time of a is not stored: it is sealed";
        assert_eq!(deferred.rejections().as_deref(), Some(one));
        deferred.stored("a".as_ref(), &mode(0o640));
        assert_eq!(deferred.rejections().as_deref(), Some(one), "the owner is not stored");
        deferred.renamed("a".as_ref(), "b".as_ref());
        refuse("c", &owner);
        let two = "modes, owners or times of b and 1 more files are not stored: it is sealed";
        assert_eq!(deferred.rejections().as_deref(), Some(two));
        deferred.removed("c".as_ref());
        deferred.stored("b".as_ref(), &owner);
        assert_eq!(deferred.rejections(), None);
        (0..2 * REJECTED_MAX).for_each(|number| refuse(&number.to_string(), &owner));
        let many = deferred.rejections().expect("refused");
        assert!(many.contains(&format!("and {} more", 2 * REJECTED_MAX - 1)), "{many}");
    }
}
