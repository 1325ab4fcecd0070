//! The table of a store's files: entries by key, and how long closed files are remembered.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowwave_backend::Identity;

use crate::engine::Inner;
use crate::entry::FileEntry;

/// Closed files whose pages stay. At twice as many, the files closed longest ago are forgotten.
const CLOSED_FILES: usize = 16_384;

/// Identifies a file, whatever its bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// For stores that tell: all names of the file share it, and renames keep it.
    Inode { device: Option<u64>, inode: u64 },
    /// For other stores: the path.
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

/// Files with pages or handles.
#[derive(Debug, Default)]
pub(crate) struct Files {
    by_key: HashMap<Key, Arc<FileEntry>>,
    /// Detached: their key names another file now. Forgotten with their last handle.
    detached: Vec<Arc<FileEntry>>,
    /// Closed files in order of closing, with the number of the close; stale if the file was closed
    /// again since.
    closed: VecDeque<(u64, Arc<FileEntry>)>,
    closings: u64,
    /// Files with handles open for writing.
    written: Vec<Arc<FileEntry>>,
}

impl Files {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<FileEntry>> {
        self.by_key.get(key)
    }

    /// Enters `entry` under its key. Handles of an earlier entry stay valid.
    pub(crate) fn insert(&mut self, entry: Arc<FileEntry>, engine: &Inner) {
        if let Some(old) = self.by_key.insert(entry.key(), entry) {
            self.detached.push(old);
            self.sweep(engine);
        }
    }

    /// Removes `entry` from its key. Its handles stay valid.
    pub(crate) fn detach(&mut self, entry: &Arc<FileEntry>, engine: &Inner) {
        let key = entry.key();
        if self.by_key.get(&key).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            self.by_key.remove(&key);
            self.detached.push(Arc::clone(entry));
            self.sweep(engine);
        }
    }

    /// Moves files known by path from `from` and below to `to` and below, with `exchange` also the
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

    /// Removes the files known by paths at `from` and below; returns them with their paths below
    /// `to`.
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
        // Independent of the table's order.
        found.sort_by_key(|(entry, _)| entry.uid);
        found.into_iter().filter_map(|(entry, path)| Some((entry, path?))).collect()
    }

    /// Counts a new writing handle; returns whether it is the first.
    pub(crate) fn opened_writer(&mut self, entry: &Arc<FileEntry>) -> bool {
        let first = entry.writing.writers.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            self.written.push(Arc::clone(entry));
        }
        first
    }

    /// Counts a closed writing handle; returns whether it was the last.
    pub(crate) fn closed_writer(&mut self, entry: &Arc<FileEntry>) -> bool {
        let last = entry.writing.writers.fetch_sub(1, Ordering::Relaxed) == 1;
        if last {
            self.written.retain(|other| !Arc::ptr_eq(other, entry));
        }
        last
    }

    /// Files with handles open for writing.
    pub(crate) fn written(&self) -> Vec<Arc<FileEntry>> {
        self.written.clone()
    }

    /// Enters a file without a key: later opens do not find it.
    pub(crate) fn insert_detached(&mut self, entry: Arc<FileEntry>) {
        self.detached.push(entry);
    }

    /// Counts a new handle.
    pub(crate) fn opened(&self, entry: &FileEntry) {
        entry.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed handle; returns whether it was the last.
    pub(crate) fn closed(&mut self, entry: &Arc<FileEntry>, engine: &Inner) -> bool {
        if entry.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return false;
        }
        entry.set_object(None);
        // A mapped file is never opened again: it is forgotten, with its memory and descriptor.
        if entry.offset_mapped.get().is_none() {
            self.closings += 1;
            entry.closing.store(self.closings, Ordering::Relaxed);
            self.closed.push_back((self.closings, Arc::clone(entry)));
            self.forget_oldest();
        }
        self.sweep(engine);
        true
    }

    /// All entries, in order of their first open.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<FileEntry>> {
        let mut entries = std::mem::take(&mut self.detached);
        entries.extend(self.by_key.drain().map(|(_, entry)| entry));
        entries.sort_by_key(|entry| entry.uid);
        entries
    }

    /// Occasionally drops stale closing notes, and forgets the files closed longest ago if there
    /// are too many.
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

    /// Forgets detached files without handles and without requests in flight.
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
