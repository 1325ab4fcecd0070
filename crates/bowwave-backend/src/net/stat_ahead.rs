//! Lookups ahead of a program that looks up the files of a directory in order, as `ls -l` and `du`
//! do.
//!
//! A listing has no metadata, so each file costs a request and a round trip. The next files of the
//! listing are therefore looked up together with the requested one: none at first, then 2, 4 and so
//! on up to [`WINDOW_MAX`], while the program follows the order of the listing.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::meta::Meta;
use crate::sync::Mutex;

/// The directory that was listed last, and directories of earlier listings.
#[derive(Debug, Default)]
pub(super) struct StatAhead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys of its files, in order.
    keys: Vec<String>,
    /// The file that a sequential program looks up next.
    next: usize,
    /// Keys of directories that listings have shown, without the slash.
    directories: HashSet<String>,
    /// Files to look up ahead with it.
    window: usize,
    found: HashMap<String, (Meta, Instant)>,
    /// Changes of the bucket by this process so far.
    changes: u64,
}

impl StatAhead {
    /// A directory with these files, in order, and these directories was listed.
    pub(super) fn listed(&self, mut keys: Vec<String>, directories: impl Iterator<Item = String>) {
        keys.truncate(KEYS_MAX);
        let mut state = self.state.lock();
        let mut known = std::mem::take(&mut state.directories);
        if known.len() >= KEYS_MAX {
            known.clear();
        }
        known.extend(directories.take(KEYS_MAX));
        *state = State { keys, directories: known, changes: state.changes, ..State::default() };
    }

    /// Whether a listing has shown this directory.
    pub(super) fn has_directory(&self, key: &str) -> bool {
        self.state.lock().directories.contains(key)
    }

    /// The bucket is changed: earlier lookups may be out of date.
    pub(super) fn changed(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        state.found.clear();
    }

    /// Takes a recent lookup ahead. It is returned once: a second lookup requests it from the
    /// store.
    pub(super) fn take(&self, key: &str) -> Option<Meta> {
        let mut state = self.state.lock();
        let (meta, since) = state.found.remove(key)?;
        if let Ok(at) = state.keys.binary_search_by(|known| known.as_str().cmp(key)) {
            state.next = at + 1;
        }
        (since.elapsed() <= AGE_MAX).then_some(meta)
    }

    /// The keys to look up together with `key`, and a number for [`keep`](Self::keep).
    pub(super) fn plan(&self, key: &str) -> (Vec<String>, u64) {
        let mut state = self.state.lock();
        let Ok(at) = state.keys.binary_search_by(|known| known.as_str().cmp(key)) else {
            return (Vec::new(), state.changes);
        };
        // Lookups ahead may be answered elsewhere: then the next one is behind them.
        let in_order = at > 0 && (at == state.next || at == state.next + state.window);
        state.window = if in_order { (state.window * 2).clamp(2, WINDOW_MAX) } else { 0 };
        state.next = at + 1;
        let end = state.keys.len().min(at + 1 + state.window);
        (state.keys[at + 1..end].to_vec(), state.changes)
    }

    /// Keeps lookups ahead, unless the bucket was changed since they were planned.
    pub(super) fn keep(&self, found: Vec<Meta>, planned: u64) {
        let mut state = self.state.lock();
        if state.changes != planned {
            return;
        }
        let now = Instant::now();
        state.found.retain(|_, (_, since)| since.elapsed() <= AGE_MAX);
        state.found.extend(found.into_iter().map(|meta| (meta.key.to_string(), (meta, now))));
    }
}

/// Most lookups ahead of a program: at 30 ms each, a sequential program gets a thousand files a
/// second.
pub(super) const WINDOW_MAX: usize = 32;
/// Lifetime of a lookup ahead: the kernel's default for its own lookups.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Most files and most directories remembered of a listing. Others are looked up one by one.
const KEYS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn the_window_grows_in_order_and_ends_with_a_jump() {
        let ahead = StatAhead::default();
        let keys: Vec<String> = (0..100).map(|number| format!("d/{number:02}")).collect();
        assert!(ahead.plan("d/00").0.is_empty());
        ahead.listed(keys.clone(), iter::empty());
        assert_eq!(ahead.plan("d/00").0, [""; 0]);
        assert_eq!(ahead.plan("d/01").0, keys[2..4]);
        assert_eq!(ahead.plan("d/02").0, keys[3..7]);
        assert!(ahead.plan("d/50").0.is_empty(), "a jump");
        assert_eq!(ahead.plan("d/51").0, keys[52..54]);
        assert_eq!(ahead.plan("d/54").0, keys[55..59], "behind those looked up ahead");
        assert_eq!(ahead.plan("d/99").0, [""; 0]);
        assert!(ahead.plan("elsewhere").0.is_empty());
    }
}
