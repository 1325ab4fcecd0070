//! Threads that read through one descriptor.
//!
//! Programs that read in parallel often do so by `pread` through one descriptor (Arrow, RocksDB,
//! DuckDB). Each thread is then a reader of its own. Only the thread tells that a run has ended:
//! the same thread begins another.

use std::sync::{Arc, Mutex, PoisonError};

use bowwave_engine::File;

/// Most threads with a handle of their own; more replace those that came first.
const READERS_MAX: usize = 64;

/// A handle for each thread but the first.
#[derive(Default)]
pub(super) struct Readers(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// It reads through the descriptor's own handle. 0 if unknown.
    first: u32,
    others: Vec<(u32, Arc<File>)>,
    /// The next one to be replaced.
    next: usize,
}

impl Readers {
    /// The handle of a thread, or `file` for the first one.
    pub(super) fn file_of(&self, thread: u32, file: Arc<File>) -> Arc<File> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.first == 0 {
            known.first = thread;
        }
        if known.first == thread {
            return file;
        }
        if let Some((_, other)) = known.others.iter().find(|(other, _)| *other == thread) {
            return Arc::clone(other);
        }
        let Some(other) = file.for_another_reader().map(Arc::new) else { return file };
        if known.others.len() < READERS_MAX {
            known.others.push((thread, Arc::clone(&other)));
        } else {
            let at = known.next;
            known.others[at] = (thread, Arc::clone(&other));
            known.next = (at + 1) % READERS_MAX;
        }
        other
    }

    /// All handles but the first thread's.
    pub(super) fn others(&self) -> Vec<Arc<File>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.others.iter().map(|(_, file)| Arc::clone(file)).collect()
    }

    /// The descriptor's file was replaced by a newer version.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}
