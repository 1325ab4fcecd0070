//! Readahead of files that a program will open next: neighbours in a listed directory, and the
//! files of the directory after it.
//!
//! [`Siblings`] decides. Threads open the planned files, which sends no request while the store
//! keeps their names, and request their bytes. The handles stay open until a program has opened
//! the files, so that their pages stay in the engine. A directory that a program will come to is
//! listed by them, too.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::{Entry, EntryKind};
use bowwave_engine::{
    Advice, File, PlannedSibling, SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, SiblingDirectories, SiblingEvent,
    SiblingExtent, SiblingUses, Siblings,
};

use super::Operations;
use super::announced::Announced;
use super::recorder::{Recorder, SiblingJournal};

/// Files that are read ahead.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// What programs read, by inode. Each read takes this lock, and none waits for the plans of
    /// others; it may be taken while `state` is locked.
    uses: Mutex<SiblingUses>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By inode.
    directories: HashMap<u64, Directory>,
    /// The opens in these directories.
    siblings: SiblingDirectories,
    recorder: Recorder,
    /// Directory of the last open.
    last: u64,
    planned: VecDeque<Planned>,
    /// Directories that a program will leave for the next ones.
    left: VecDeque<u64>,
    /// Opens in directories that were not listed yet: directory and name.
    unlisted: VecDeque<(u64, OsString)>,
    /// By directory and position.
    ahead: HashMap<(u64, u32), Ahead>,
    announced: Announced,
    /// Bytes of all planned files and of those read ahead.
    bytes: u64,
    uses: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Names and sizes of its files, sorted by name.
    files: Vec<(OsString, u64)>,
    listed: Instant,
    used: u64,
    /// Directories from the last open to this one.
    steps: u32,
    next: Next,
}

/// The directory after another one.
#[derive(Clone, Copy, Debug)]
enum Next {
    Unknown,
    /// A thread looks for it, or has not found it.
    Wanted,
    Found(u64),
}

#[derive(Debug)]
struct Planned {
    directory: u64,
    index: u32,
    path: PathBuf,
    extent: SiblingExtent,
    bytes: u64,
}

/// What a thread does next.
#[derive(Debug)]
enum Step {
    Announced(PathBuf),
    Read(Planned),
    /// A program will leave this directory for the next one.
    GoOn(u64),
}

/// A file that was read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Keeps its pages.
    _file: File,
    bytes: u64,
    since: Instant,
}

impl Neighbours {
    /// No file is read ahead yet.
    pub(super) fn new(recorder: Recorder) -> Self {
        let state = Mutex::new(State { recorder, ..State::default() });
        Self(Arc::new(Shared { state, ..Shared::default() }))
    }

    /// The events so far, if a journal is requested.
    pub(super) fn journal(&self) -> Option<SiblingJournal> {
        self.0.lock().recorder.journal()
    }

    /// Starts the threads that read ahead, in `most` bytes, until the mount ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(&self, operations: Weak<Operations>, most: u64) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        let run = move || {
            while let Some(step) = shared.next(most) {
                let Some(operations) = operations.upgrade() else { return };
                match step {
                    Step::Announced(path) => operations.read_announced(&shared, path),
                    Step::Read(planned) => operations.read_neighbour(&shared, &planned),
                    Step::GoOn(inode) => operations.go_on(&shared, inode),
                }
            }
        };
        let named = || thread::Builder::new().name("bowwave-ahead".to_owned());
        (0..THREADS).try_for_each(|_| named().spawn(run.clone()).map(drop))
    }

    /// Ends readahead, and closes its files.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        let files = (std::mem::take(&mut state.ahead), state.announced.end());
        state.planned.clear();
        state.left.clear();
        drop(state);
        drop(files);
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn next(&self, most: u64) -> Option<Step> {
        let mut state = self.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if state.bytes < most
                && let Some(path) = state.announced.next()
            {
                return Some(Step::Announced(path));
            }
            if let Some(planned) = state.planned.pop_front() {
                return Some(Step::Read(planned));
            }
            if let Some(inode) = state.left.pop_front() {
                return Some(Step::GoOn(inode));
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic may leave wrong counts, which affect readahead only, never the bytes read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, SiblingUses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Applies an event. Every change of the opens passes here, so that all are recorded.
    fn step(&mut self, event: SiblingEvent, plan: &mut Vec<PlannedSibling>) {
        self.recorder.step(&mut self.siblings, event, plan);
    }

    /// Removes the files that were read ahead and not opened in time.
    fn expire(&mut self) -> Vec<Ahead> {
        let is_old = |ahead: &Ahead| ahead.since.elapsed() > SIBLING_UNUSED_MAX;
        let old: Vec<_> =
            self.ahead.iter().filter(|(_, ahead)| is_old(ahead)).map(|(&place, _)| place).collect();
        let mut removed = self.announced.expire();
        self.bytes -= removed.iter().map(|ahead| ahead.bytes).sum::<u64>();
        for place in old {
            if let Some(ahead) = self.ahead.remove(&place) {
                self.bytes -= ahead.bytes;
                removed.push(ahead);
            }
            self.step(SiblingEvent::Dropped { directory: place.0, index: place.1 }, &mut Vec::new());
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

    /// Remembers an open in a directory that was not listed yet.
    fn note_unlisted(&mut self, directory: u64, name: &OsStr) {
        if self.unlisted.len() == UNLISTED_MAX {
            self.unlisted.pop_front();
        }
        self.unlisted.push_back((directory, name.to_owned()));
    }

    /// Enters a directory, in place of the one used longest ago if there are too many.
    fn insert(&mut self, inode: u64, (directory, siblings): (Directory, Box<Siblings>)) {
        self.step(SiblingEvent::Listed { directory: inode, siblings }, &mut Vec::new());
        let mut opened = Vec::new();
        self.unlisted.retain(|(parent, name)| {
            opened.extend(directory.place(name).filter(|_| *parent == inode));
            *parent != inode
        });
        for index in opened {
            self.step(SiblingEvent::Opened { directory: inode, index, room: 0 }, &mut Vec::new());
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            let oldest = self.directories.iter().min_by_key(|(_, directory)| directory.used);
            if let Some(oldest) = oldest.map(|(&inode, _)| inode).filter(|oldest| *oldest != inode) {
                self.directories.remove(&oldest);
                self.step(SiblingEvent::Forgotten { directory: oldest }, &mut Vec::new());
            }
        }
        self.uses += 1;
        self.directories.insert(inode, Directory { used: self.uses, ..directory });
    }

    /// Plans files of a directory in which a program opened a file, or to which it came from
    /// another directory, in at most `most` bytes. Once a run has passed through the directory,
    /// plans files of the next ones, too.
    fn plan(
        &mut self,
        inode: u64,
        from: Option<u64>,
        opened: Option<(u32, u64)>,
        (shared, most): (&Shared, u64),
    ) {
        let Some(average) = self.directories.get(&inode).map(Directory::average) else { return };
        let extent = shared.uses().extent(inode, opened.map(|(_, file)| file));
        let room = extent.room(most.saturating_sub(self.bytes), average);
        let mut plan = Vec::new();
        let steps = from.and_then(|from| Some((from, self.directories.get(&from)?.steps + 1)));
        if let Some((from, _)) = steps {
            let ahead = u32::try_from(self.ahead.len() + self.planned.len()).unwrap_or(u32::MAX);
            let room = room.min(SIBLING_WINDOW_MAX.saturating_sub(ahead));
            self.step(SiblingEvent::WentOn { from, to: inode, room }, &mut plan);
        }
        if let Some((index, _)) = opened {
            let room = room.saturating_sub(plan.len() as u32);
            self.step(SiblingEvent::Opened { directory: inode, index, room }, &mut plan);
        }
        let Some(directory) = self.directories.get_mut(&inode) else { return };
        if let Some((_, steps)) = steps {
            directory.steps = steps;
        }
        if opened.is_some() {
            self.uses += 1;
            (directory.used, directory.steps) = (self.uses, 0);
        }
        self.recorder.log(&plan, |index| directory.path.join(&directory.files[index as usize].0));
        for PlannedSibling { sibling, .. } in plan {
            let (name, size) = &directory.files[sibling.index as usize];
            let (path, bytes) = (directory.path.join(name), extent.bytes(*size));
            self.bytes += bytes;
            self.planned.push_back(Planned { directory: inode, index: sibling.index, path, extent, bytes });
        }
        let goes_on = self.siblings.get(inode).is_some_and(Siblings::goes_on);
        if !goes_on || directory.steps >= STEPS_MAX {
            return;
        }
        let next = directory.next;
        match next {
            Next::Found(next) if self.directories.contains_key(&next) => {
                self.plan(next, Some(inode), None, (shared, most));
            }
            // The next directory was not looked up yet, or is no longer remembered.
            Next::Unknown | Next::Found(_) => {
                self.left.push_back(inode);
                if let Some(directory) = self.directories.get_mut(&inode) {
                    directory.next = Next::Wanted;
                }
            }
            Next::Wanted => {}
        }
    }
}

impl Ahead {
    /// Requests these bytes of an opened file.
    fn of(file: File, extent: SiblingExtent) -> Self {
        let bytes = extent.bytes(file.size());
        // No length would be all of the file.
        for range in extent.ranges(file.size()).into_iter().filter(|range| !range.is_empty()) {
            file.advise(range.start, range.end - range.start, Advice::WillNeed);
        }
        Self { _file: file, bytes, since: Instant::now() }
    }
}

impl Operations {
    /// A program opens a file that the kernel has not cached: plans readahead of its neighbours. A
    /// small file is requested whole if those that were opened before it in this directory were
    /// read so.
    pub(super) fn note_open(&self, inode: u64, path: &Path, file: &File) {
        if !self.reads_neighbours() || self.opens_announced(path) || !self.layout.store().reads_siblings() {
            return;
        }
        let (Some(parent), Some(name)) = (self.inodes.parent(inode), path.file_name()) else { return };
        let above = path.parent().unwrap_or_else(|| Path::new(""));
        let shared = &self.neighbours.0;
        let size = file.size();
        let mut uses = shared.uses();
        uses.opened(parent, inode, size);
        let extent = uses.extent(parent, Some(inode));
        drop(uses);
        if extent.is_shown_whole() && extent.bytes(size) == size {
            file.advise(0, size, Advice::WillNeed);
        }
        let mut state = shared.lock();
        let known = state.directories.get(&parent);
        let is_recent = known.is_some_and(|directory| directory.listed.elapsed() < RELIST_MIN);
        let place = match known.and_then(|directory| directory.place(name)) {
            Some(place) => place,
            None if is_recent => return,
            None => {
                // The listing is copied without the lock.
                drop(state);
                let Some(listed) = self.layout.known(above).map(|entries| Directory::of(above, entries))
                else {
                    return shared.lock().note_unlisted(parent, name);
                };
                let place = listed.0.place(name);
                state = shared.lock();
                let Some(place) = place else {
                    // Only the time of the listing changes: with it, the next open of a file that
                    // the listing lacks does not copy it. A new listing would end the run.
                    match state.directories.get_mut(&parent) {
                        Some(directory) => directory.listed = Instant::now(),
                        None => state.insert(parent, listed),
                    }
                    return;
                };
                state.insert(parent, listed);
                place
            }
        };
        let removed = (state.expire(), state.take((parent, place)));
        let from = Some(std::mem::replace(&mut state.last, parent)).filter(|last| *last != parent);
        state.recorder.note_open(path, || self.layout.store().policy().name());
        state.plan(parent, from, Some((place, inode)), (shared, self.ahead_bytes));
        let has_work = !state.planned.is_empty() || !state.left.is_empty();
        drop(state);
        drop(removed);
        if has_work {
            shared.wake.notify_all();
        }
    }

    /// A program reads bytes of a file, or the kernel does for it.
    pub(super) fn note_read(&self, inode: u64, offset: u64, bytes: u64) {
        if self.reads_neighbours() {
            self.neighbours.0.uses().read(inode, offset, bytes);
        }
    }

    /// A program closes a file.
    pub(super) fn note_close(&self, inode: u64) {
        if self.reads_neighbours() {
            self.neighbours.0.uses().closed(inode);
        }
    }

    /// A program will open these files in this order, after those announced before.
    ///
    /// # Errors
    /// Why none is read ahead.
    pub(crate) fn announce(&self, paths: Vec<PathBuf>, append: bool) -> Result<(), String> {
        if !self.reads_neighbours() {
            return Err(
                "files are read ahead on mounts of object stores with --consistency ttl and a --ttl \
                        of more than 0"
                    .to_owned(),
            );
        }
        let shared = &self.neighbours.0;
        let mut state = shared.lock();
        let removed = if append { Vec::new() } else { state.announced.end() };
        state.bytes -= removed.iter().map(|ahead| ahead.bytes).sum::<u64>();
        let added = state.announced.add(paths);
        drop(state);
        drop(removed);
        shared.wake.notify_all();
        if added {
            Ok(())
        } else {
            Err("the list of announced files would have more than a million".to_owned())
        }
    }

    /// Whether an opened file was announced.
    fn opens_announced(&self, path: &Path) -> bool {
        let shared = &self.neighbours.0;
        let mut state = shared.lock();
        let Some(ahead) = state.announced.opened(path) else { return false };
        state.bytes -= ahead.as_ref().map_or(0, |ahead| ahead.bytes);
        drop(state);
        drop(ahead);
        shared.wake.notify_all();
        true
    }

    /// Opens an announced file and requests its bytes.
    fn read_announced(&self, shared: &Shared, path: PathBuf) {
        let inode = self.inodes.at(&path);
        let is_resident = inode.is_some_and(|inode| self.inodes.is_read(inode));
        let file = if is_resident { None } else { self.layout.open(&path).ok() };
        // Nothing shows how much a program will read.
        let ahead = file.map(|file| Ahead::of(file, SiblingExtent::GUESS));
        let bytes = ahead.as_ref().map_or(0, |ahead| ahead.bytes);
        let mut state = shared.lock();
        state.bytes += bytes;
        let unused = match state.has_ended {
            true => ahead,
            false => state.announced.read(path, ahead),
        };
        state.bytes -= unused.as_ref().map_or(0, |unused| unused.bytes);
        drop(state);
        drop(unused);
    }

    /// A program will leave a directory: lists the next one, and plans its files.
    fn go_on(&self, shared: &Shared, inode: u64) {
        let Some(path) = shared.lock().directories.get(&inode).map(|directory| directory.path.clone()) else {
            return;
        };
        let Some((next, path)) = self.next_directory(inode, path) else { return };
        if !shared.lock().directories.contains_key(&next) {
            let Ok(entries) = self.layout.list(&path) else { return };
            let listed = Directory::of(&path, entries);
            shared.lock().insert(next, listed);
        }
        let mut state = shared.lock();
        if let Some(directory) = state.directories.get_mut(&inode) {
            directory.next = Next::Found(next);
        }
        state.plan(next, Some(inode), None, (shared, self.ahead_bytes));
        drop(state);
        shared.wake.notify_all();
    }

    /// The directory after another one for a program that walks a tree: below it, or beside it or
    /// one above it. `None` if the kernel does not know that directory: it does once the parent is
    /// listed.
    fn next_directory(&self, inode: u64, path: PathBuf) -> Option<(u64, PathBuf)> {
        let (mut inode, mut path, mut after) = (inode, path, None::<OsString>);
        loop {
            let entries = self.layout.list(&path).ok()?;
            let directories = entries.into_iter().filter(|entry| entry.kind == EntryKind::Directory);
            let names = directories.map(|entry| entry.name).filter(|name| Some(name) > after.as_ref());
            if let Some(name) = names.min() {
                return Some((self.inodes.peek(inode, &name)?, path.join(name)));
            }
            after = Some(path.file_name()?.to_owned());
            inode = self.inodes.parent(inode)?;
            path.pop();
        }
    }

    /// Opens a planned file and requests its bytes.
    fn read_neighbour(&self, shared: &Shared, planned: &Planned) {
        let name = planned.path.file_name().unwrap_or_default();
        let inode = self.inodes.peek(planned.directory, name);
        let is_resident = inode.is_some_and(|inode| self.inodes.is_read(inode));
        let file = if is_resident { None } else { self.layout.open(&planned.path).ok() };
        let ahead = file.map(|file| Ahead { bytes: planned.bytes, ..Ahead::of(file, planned.extent) });
        let mut state = shared.lock();
        let has_ended = state.has_ended;
        let (directory, index) = (planned.directory, planned.index);
        let siblings = state.siblings.get(directory);
        // A program may have opened it meanwhile.
        let is_wanted = siblings.is_some_and(|siblings| siblings.is_ahead(index)) && !has_ended;
        match ahead {
            Some(ahead) if is_wanted => {
                // After a new listing, a file that is ahead already may be planned again.
                let before = state.ahead.insert((directory, index), ahead);
                state.bytes -= before.as_ref().map_or(0, |before| before.bytes);
                drop(state);
                drop(before);
            }
            ahead => {
                let event = match is_resident {
                    true => SiblingEvent::Resident { directory, index },
                    false => SiblingEvent::Dropped { directory, index },
                };
                state.step(event, &mut Vec::new());
                state.bytes = state.bytes.saturating_sub(planned.bytes);
                drop(state);
                drop(ahead);
            }
        }
    }
}

impl Directory {
    /// The files among the entries of a directory, none of which was opened.
    fn of(path: &Path, entries: Vec<Entry>) -> (Self, Box<Siblings>) {
        let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
        let mut files: Vec<_> = files.map(|entry| (entry.name, entry.size)).collect();
        files.sort_unstable();
        let names: Vec<&[u8]> = files.iter().map(|(name, _)| name.as_bytes()).collect();
        let siblings = Box::new(Siblings::of(&names));
        let directory = Self {
            path: path.to_owned(),
            files,
            listed: Instant::now(),
            used: 0,
            steps: 0,
            next: Next::Unknown,
        };
        (directory, siblings)
    }

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
/// Threads that read ahead: a listing, or the open of a large file, takes a round trip.
const THREADS: usize = 8;
/// Opens that are remembered until their directory is listed, which is after two lookups in it.
const UNLISTED_MAX: usize = 16;
/// Most directories listed ahead of the last open, however few files are in them.
const STEPS_MAX: u32 = 32;
/// Directories whose opens are remembered.
const DIRECTORIES_MAX: usize = 64;
/// Files whose sizes make the average.
const SAMPLED: usize = 100;
