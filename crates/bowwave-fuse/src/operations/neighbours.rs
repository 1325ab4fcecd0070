//! Readahead of files that a program will open next: neighbours in a listed directory.
//!
//! [`Siblings`] decides. A thread opens the planned files, which sends no request while the store
//! keeps their names, and requests their bytes. The handles stay open until a program has opened
//! the files, so that their pages stay in the engine.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::EntryKind;
use bowwave_engine::{Advice, File, SIBLING_UNUSED_MAX, Sibling, Siblings, sibling_bytes, sibling_room};

use super::Operations;

/// Files that are read ahead.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By inode.
    directories: HashMap<u64, Directory>,
    planned: VecDeque<Planned>,
    /// By directory and position.
    ahead: HashMap<(u64, u32), Ahead>,
    /// Bytes of all planned files and files in `ahead`.
    bytes: u64,
    uses: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct Directory {
    /// Names and sizes of its files, sorted by name.
    files: Vec<(OsString, u64)>,
    siblings: Siblings,
    listed: Instant,
    used: u64,
}

#[derive(Debug)]
struct Planned {
    directory: u64,
    index: u32,
    path: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
struct Ahead {
    /// Keeps its pages.
    _file: File,
    bytes: u64,
    since: Instant,
}

impl Neighbours {
    /// Starts the thread that reads ahead until the mount ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(&self, operations: Weak<Operations>) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        let run = move || {
            while let Some(planned) = shared.next() {
                let Some(operations) = operations.upgrade() else { return };
                operations.read_neighbour(&shared, &planned);
            }
        };
        thread::Builder::new().name("bowwave-ahead".to_owned()).spawn(run).map(drop)
    }

    /// Ends readahead, and closes its files.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        let files = std::mem::take(&mut state.ahead);
        state.planned.clear();
        drop(state);
        drop(files);
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn next(&self) -> Option<Planned> {
        let mut state = self.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if let Some(planned) = state.planned.pop_front() {
                return Some(planned);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts that a panic leaves wrong cost readahead, no byte.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes the files that were read ahead and not opened in time.
    fn expire(&mut self) -> Vec<Ahead> {
        let is_old = |ahead: &Ahead| ahead.since.elapsed() > SIBLING_UNUSED_MAX;
        let old: Vec<_> =
            self.ahead.iter().filter(|(_, ahead)| is_old(ahead)).map(|(&place, _)| place).collect();
        let mut removed = Vec::new();
        for place in old {
            if let Some(ahead) = self.ahead.remove(&place) {
                self.bytes -= ahead.bytes;
                removed.push(ahead);
            }
            if let Some(directory) = self.directories.get_mut(&place.0) {
                directory.siblings.dropped(place.1);
            }
        }
        removed
    }

    /// Takes a file that a program opens out of readahead: it has a handle of its own.
    fn take(&mut self, place: (u64, u32)) -> Option<Ahead> {
        let is_it = |planned: &Planned| (planned.directory, planned.index) == place;
        if let Some(at) = self.planned.iter().position(is_it)
            && let Some(planned) = self.planned.remove(at)
        {
            self.bytes -= planned.bytes;
        }
        let ahead = self.ahead.remove(&place)?;
        self.bytes -= ahead.bytes;
        Some(ahead)
    }

    /// Forgets the directory used longest ago, if there are too many.
    fn make_space(&mut self) {
        if self.directories.len() < DIRECTORIES_MAX {
            return;
        }
        let oldest = self.directories.iter().min_by_key(|(_, directory)| directory.used);
        if let Some(oldest) = oldest.map(|(&inode, _)| inode) {
            self.directories.remove(&oldest);
        }
    }
}

impl Operations {
    /// A program opens a file that the kernel does not have: plans its neighbours.
    pub(super) fn note_open(&self, inode: u64, path: &Path) {
        if !self.reads_neighbours() || !self.layout.store().reads_siblings() {
            return;
        }
        let (Some(parent), Some(name)) = (self.inodes.parent(inode), path.file_name()) else { return };
        let above = path.parent().unwrap_or_else(|| Path::new(""));
        let shared = &self.neighbours.0;
        let mut state = shared.lock();
        let known = state.directories.get(&parent);
        let is_recent = known.is_some_and(|directory| directory.listed.elapsed() < RELIST_MIN);
        let place = match known.and_then(|directory| directory.place(name)) {
            Some(place) => place,
            None if is_recent => return,
            None => {
                // The listing is copied without the lock.
                drop(state);
                let Some(listed) = self.listed(above) else { return };
                let Some(place) = listed.place(name) else { return };
                state = shared.lock();
                state.make_space();
                state.directories.insert(parent, listed);
                place
            }
        };
        let removed = (state.expire(), state.take((parent, place)));
        let left = self.ahead_bytes.saturating_sub(state.bytes);
        state.uses += 1;
        let uses = state.uses;
        let Some(directory) = state.directories.get_mut(&parent) else { return };
        directory.used = uses;
        let room = sibling_room(left, directory.average());
        let mut plan: Vec<Sibling> = Vec::new();
        directory.siblings.opened(place, room, &mut plan);
        let planned = |sibling: &Sibling| {
            let (name, size) = &directory.files[sibling.index as usize];
            let bytes = sibling_bytes(*size);
            Planned { directory: parent, index: sibling.index, path: above.join(name), bytes }
        };
        let planned: Vec<Planned> = plan.iter().map(planned).collect();
        state.bytes += planned.iter().map(|planned| planned.bytes).sum::<u64>();
        state.planned.extend(planned);
        drop(state);
        drop(removed);
        shared.wake.notify_one();
    }

    /// Opens a planned file and requests its bytes.
    fn read_neighbour(&self, shared: &Shared, planned: &Planned) {
        let name = planned.path.file_name().unwrap_or_default();
        let inode = self.inodes.peek(planned.directory, name);
        let is_resident = inode.is_some_and(|inode| self.inodes.is_read(inode));
        let file = if is_resident { None } else { self.layout.open(&planned.path).ok() };
        if let Some(file) = &file {
            file.advise(0, sibling_bytes(file.size()), Advice::WillNeed);
        }
        let mut state = shared.lock();
        let has_ended = state.has_ended;
        let directory = state.directories.get_mut(&planned.directory);
        let is_ahead = |directory: &Directory| directory.siblings.is_ahead(planned.index);
        // A program may have opened it meanwhile.
        let is_wanted = directory.as_deref().is_some_and(is_ahead) && !has_ended;
        match (file, directory) {
            (Some(file), Some(_)) if is_wanted => {
                let ahead = Ahead { _file: file, bytes: planned.bytes, since: Instant::now() };
                state.ahead.insert((planned.directory, planned.index), ahead);
            }
            (file, directory) => {
                if let Some(directory) = directory {
                    match is_resident {
                        true => directory.siblings.resident(planned.index),
                        false => directory.siblings.dropped(planned.index),
                    }
                }
                state.bytes = state.bytes.saturating_sub(planned.bytes);
                drop(state);
                drop(file);
            }
        }
    }

    /// The files of a directory, from a listing that the store keeps.
    fn listed(&self, path: &Path) -> Option<Directory> {
        let entries = self.layout.known(path)?;
        let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
        let mut files: Vec<_> = files.map(|entry| (entry.name, entry.size)).collect();
        files.sort_unstable();
        let names: Vec<&[u8]> = files.iter().map(|(name, _)| name.as_bytes()).collect();
        let siblings = Siblings::of(&names);
        Some(Directory { files, siblings, listed: Instant::now(), used: 0 })
    }
}

impl Directory {
    fn place(&self, name: &OsStr) -> Option<u32> {
        let place = self.files.binary_search_by(|(other, _)| other.as_os_str().cmp(name)).ok()?;
        u32::try_from(place).ok()
    }

    /// Bytes of an average file.
    fn average(&self) -> u64 {
        let count = self.files.len().clamp(1, SAMPLED);
        self.files.iter().take(count).map(|(_, size)| size).sum::<u64>() / count as u64
    }
}

/// Least time between two copies of the listing of a directory, for names that it does not have.
const RELIST_MIN: Duration = Duration::from_secs(1);
/// Directories whose opens are remembered.
const DIRECTORIES_MAX: usize = 64;
/// Files whose sizes make the average.
const SAMPLED: usize = 100;
