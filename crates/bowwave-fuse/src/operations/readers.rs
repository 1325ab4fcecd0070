//! Threads that read through one descriptor.
//!
//! Arrow, RocksDB and DuckDB read in parallel by `pread` through one descriptor. Each thread has a
//! handle of its own, so that the policy sees where the runs of a thread end.

use std::sync::Arc;

use bowwave_engine::File;
use bowwave_engine::backend::sync::Mutex;

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
    /// The handle of a thread of the version of `file`, or `file` for the first thread.
    pub(super) fn file_of(&self, thread: u32, file: Arc<File>) -> Arc<File> {
        let mut known = self.0.lock();
        if known.first == 0 {
            known.first = thread;
        }
        if known.first == thread {
            return file;
        }
        let at = known.others.iter().position(|(other, _)| *other == thread);
        // An object may have been replaced since.
        if let Some((_, other)) = at.map(|at| &known.others[at])
            && other.version() == file.version()
        {
            return Arc::clone(other);
        }
        let Some(other) = file.for_another_reader().map(Arc::new) else { return file };
        if let Some(at) = at {
            known.others[at].1 = Arc::clone(&other);
        } else if known.others.len() < READERS_MAX {
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
        let known = self.0.lock();
        known.others.iter().map(|(_, file)| Arc::clone(file)).collect()
    }
}
