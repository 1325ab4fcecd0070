//! The table of a store's files: which entry stands for which file, and how long a closed one is remembered.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowwave_backend::Identity;

use crate::engine::Inner;
use crate::entry::FileEntry;

/// Closed files whose pages stay; with twice as many, those closed longest ago are forgotten.
const CLOSED_FILES: usize = 16_384;

/// What makes a file this file, whatever its bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Where the store tells: it stays when the file is renamed, and all names of the file have it.
    Inode { device: Option<u64>, inode: u64 },
    /// Elsewhere the name is all there is.
    Path(PathBuf),
}

impl Key {
    pub(crate) fn new(path: &Path, identity: &Identity) -> Self {
        match identity.inode {
            Some(inode) => Self::Inode { device: identity.device, inode },
            None => Self::Path(path.to_owned()),
        }
    }
}

/// The files that have pages, or handles.
#[derive(Debug, Default)]
pub(crate) struct Files {
    by_key: HashMap<Key, Arc<FileEntry>>,
    /// No longer what their key names; forgotten with their last handle.
    detached: Vec<Arc<FileEntry>>,
    /// Closed, by the order of closing, with the number of the closing; stale if the file was closed again since.
    closed: VecDeque<(u64, Arc<FileEntry>)>,
    closings: u64,
    /// Those that handles are open for writing of.
    written: Vec<Arc<FileEntry>>,
}

impl Files {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<FileEntry>> {
        self.by_key.get(key)
    }

    /// Makes `entry` what its key names. Handles of what it named before go on.
    pub(crate) fn insert(&mut self, entry: Arc<FileEntry>, engine: &Inner) {
        if let Some(old) = self.by_key.insert(entry.key(), entry) {
            self.detached.push(old);
            self.sweep(engine);
        }
    }

    /// The key no longer names `entry`. Its handles go on.
    pub(crate) fn detach(&mut self, entry: &Arc<FileEntry>, engine: &Inner) {
        let key = entry.key();
        if self.by_key.get(&key).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            self.by_key.remove(&key);
            self.detached.push(Arc::clone(entry));
            self.sweep(engine);
        }
    }

    /// Files that are known by their paths, at `from` and below, are now at `to` and below, and with `exchange` the
    /// other way round. Returns them with their new paths.
    pub(crate) fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        exchange: bool,
        engine: &Inner,
    ) -> Vec<(Arc<FileEntry>, PathBuf)> {
        let replaced = self.take_below(to, from);
        let moved = self.take_below(from, to);
        let back = if exchange {
            replaced
        } else {
            self.detached.extend(replaced.into_iter().map(|(entry, _)| entry));
            Vec::new()
        };
        let placed: Vec<_> = moved.into_iter().chain(back).collect();
        for (entry, path) in &placed {
            entry.set_key(Key::Path(path.clone()));
            self.insert(Arc::clone(entry), engine);
        }
        self.sweep(engine);
        placed
    }

    /// Takes out the files known by paths at `from` and below; with the paths they have when that is `to`.
    fn take_below(&mut self, from: &Path, to: &Path) -> Vec<(Arc<FileEntry>, PathBuf)> {
        let moves = |key: &Key| match key {
            Key::Path(path) => path.strip_prefix(from).ok().map(|rest| join(to, rest)),
            Key::Inode { .. } => None,
        };
        let mut found: Vec<_> = self
            .by_key
            .extract_if(|key, _| moves(key).is_some())
            .map(|(key, entry)| (entry, moves(&key)))
            .collect();
        // Whatever the order of the table.
        found.sort_by_key(|(entry, _)| entry.uid);
        found.into_iter().filter_map(|(entry, path)| Some((entry, path?))).collect()
    }

    /// Counts a handle more that writes; tells whether it is the first.
    pub(crate) fn opened_writer(&mut self, entry: &Arc<FileEntry>) -> bool {
        let first = entry.writing.writers.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            self.written.push(Arc::clone(entry));
        }
        first
    }

    /// Counts a handle less that writes; tells whether it was the last.
    pub(crate) fn closed_writer(&mut self, entry: &Arc<FileEntry>) -> bool {
        let last = entry.writing.writers.fetch_sub(1, Ordering::Relaxed) == 1;
        if last {
            self.written.retain(|other| !Arc::ptr_eq(other, entry));
        }
        last
    }

    /// The files that handles are open for writing of.
    pub(crate) fn written(&self) -> Vec<Arc<FileEntry>> {
        self.written.clone()
    }

    /// Enters a file that no key names: nobody else will find it.
    pub(crate) fn insert_detached(&mut self, entry: Arc<FileEntry>) {
        self.detached.push(entry);
    }

    /// Counts a handle more.
    pub(crate) fn opened(&self, entry: &FileEntry) {
        entry.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handle less; tells whether it was the last.
    pub(crate) fn closed(&mut self, entry: &Arc<FileEntry>, engine: &Inner) -> bool {
        if entry.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return false;
        }
        entry.set_object(None);
        // Nobody opens a mapped file again: it goes, with its memory and descriptor.
        if entry.places.get().is_none() {
            self.closings += 1;
            entry.closing.store(self.closings, Ordering::Relaxed);
            self.closed.push_back((self.closings, Arc::clone(entry)));
            self.forget_oldest();
        }
        self.sweep(engine);
        true
    }

    /// All entries, in the order of their first opening.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<FileEntry>> {
        let mut entries = std::mem::take(&mut self.detached);
        entries.extend(self.by_key.drain().map(|(_, entry)| entry));
        entries.sort_by_key(|entry| entry.uid);
        entries
    }

    /// Now and then drops stale notes of closings, and forgets the files closed longest ago if there are too many.
    fn forget_oldest(&mut self) {
        if self.closed.len() <= 2 * CLOSED_FILES {
            return;
        }
        self.closed.retain(|(closing, entry)| {
            entry.closing.load(Ordering::Relaxed) == *closing && entry.handles.load(Ordering::Relaxed) == 0
        });
        while self.closed.len() > CLOSED_FILES {
            let Some((_, oldest)) = self.closed.pop_front() else { break };
            let key = oldest.key();
            if self.by_key.get(&key).is_some_and(|entry| Arc::ptr_eq(entry, &oldest)) {
                self.by_key.remove(&key);
                self.detached.push(oldest);
            }
        }
    }

    /// Forgets detached files that nobody has open and for which no request is on its way.
    pub(crate) fn sweep(&mut self, engine: &Inner) {
        self.detached.retain(|entry| {
            entry.handles.load(Ordering::Relaxed) > 0 || !engine.shard(entry.shard).close_file(entry.file)
        });
    }
}

/// `base/rest`, without a slash behind `base` if `rest` is empty.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}
