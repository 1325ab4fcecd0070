//! Readahead of files that a program will open next: siblings in a listed directory, and the files
//! of the directory after it.
//!
//! [`Siblings`] decides. Threads open the planned files, which sends no request while the store
//! keeps their names, and request their bytes. The handles stay open until a program has opened
//! the files, so that their pages stay in the engine. A directory that a program will come to is
//! listed by them, too, if the program has listed the one above it.

mod alike;
mod announced;
mod directory;
mod listed;
mod many;
mod named;
mod recorder;
mod tree;

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::sync::{Condvar, Mutex};
use bowwave_backend::{EntryKind, SMALL_BYTES, WillRead};
use bowwave_core::Advice;
use bowwave_core::readahead::{
    PlannedSibling, SIBLING_SHARE, SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, SiblingDirectories, SiblingEvent,
    SiblingExtent, SiblingUses, Siblings,
};

use crate::file::{Advised, File};
use crate::store::Store;
pub use alike::SiblingOpen;
use alike::{Alike, Handle};
use announced::Announced;
use directory::{Directory, Next};
use listed::Listed;
pub use many::ManyFiles;
pub use named::{NamedFile, NamedFiles};
use recorder::Recorder;
pub use recorder::SiblingJournal;
pub use tree::SiblingTree;

/// Files of a store that are read ahead before a program opens them.
///
/// The owner says what programs list, open, read and close.
pub struct SiblingReadahead {
    shared: Arc<Shared>,
    /// Most bytes of planned files and of those read ahead.
    most: u64,
}

impl fmt::Debug for SiblingReadahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiblingReadahead").field("most", &self.most).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    /// A panic under the lock may leave wrong counts: they affect readahead, never the bytes read.
    state: Mutex<State>,
    /// What programs read, by path. Each read takes this lock, and none waits for the plans of
    /// others; it may be taken while `state` is locked.
    uses: Mutex<SiblingUses>,
    /// Files that are read alike. As above.
    alike: Mutex<Alike>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By number of the path.
    directories: HashMap<u64, Directory>,
    /// The opens in these directories.
    siblings: SiblingDirectories,
    recorder: Recorder,
    /// Directory of the last open.
    last: u64,
    planned: VecDeque<Planned>,
    /// Directories that programs have listed.
    listed: Listed,
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
struct Planned {
    directory: u64,
    index: u32,
    path: PathBuf,
    /// As listed.
    size: u64,
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
struct Ahead {
    /// Number of its path.
    number: u64,
    /// Keeps its pages.
    file: File,
    bytes: u64,
    since: Instant,
}

impl SiblingReadahead {
    /// No file of the store is read ahead yet. Files that are read ahead get one
    /// [`SIBLING_SHARE`]th of the cache. If several `owners` share the cache, they divide it
    /// equally. Keeps a journal of at most `events` events, if more than 0.
    pub fn new(store: &Store, owners: u64, events: usize) -> Self {
        let recorder = Recorder::new(events, store.decisions().cloned());
        let state = Mutex::new(State { recorder, ..State::default() });
        let most = store.cache_bytes() / SIBLING_SHARE / owners.max(1);
        let (uses, alike, wake) = (Mutex::default(), Mutex::new(Alike::new(most)), Condvar::new());
        let shared = Arc::new(Shared { state, uses, alike, wake });
        Self { shared, most }
    }

    /// The events so far, if a journal is requested.
    pub fn journal(&self) -> Option<SiblingJournal> {
        self.shared.state.lock().recorder.journal()
    }

    /// Reads ahead through this tree, until this value is dropped. One thread starts now, with the
    /// signal mask of the caller; it starts the others when the first file is planned.
    pub fn start(&self, tree: Weak<dyn SiblingTree>) {
        let (shared, most) = (Arc::clone(&self.shared), self.most);
        let run = move |first: Option<Step>| {
            let mut next = first.or_else(|| shared.next(most));
            while let Some(step) = next {
                let Some(tree) = tree.upgrade() else { return };
                match step {
                    Step::Announced(path) => shared.read_announced(&*tree, path),
                    Step::Read(planned) => shared.read_planned(&*tree, &planned),
                    Step::GoOn(directory) => shared.go_on(&*tree, directory, most),
                }
                drop(tree);
                next = shared.next(most);
            }
        };
        let shared = Arc::clone(&self.shared);
        start_thread(move || {
            let first = shared.next(most);
            if first.is_some() {
                for _ in 1..THREADS {
                    let run = run.clone();
                    start_thread(move || run(None));
                }
                run(first);
            }
        });
    }

    /// Requests a small file that a program opens: as much of it as programs read of the closed
    /// ones beside it, or all of it. Returns where the requested bytes begin: a read of the first
    /// requested byte waits for no other request, and compares the version.
    pub fn request(&self, path: &Path, file: &File) -> u64 {
        let directory = path.parent().map(number).unwrap_or_default();
        let extent = self.shared.uses.lock().extent(directory, Some(number(path)));
        let shown = extent.shown(file.size());
        let first = shown.iter().flatten().find(|range| !range.is_empty()).map(|range| range.start);
        match (first, shown) {
            (Some(_), Some(ranges)) => decide(file, ranges).for_each(Advised::perform),
            _ => file.advise(0, 0, Advice::WillNeed),
        }
        first.unwrap_or(0)
    }

    /// A program lists a directory: readahead may enter those in it.
    pub fn listed(&self, directory: &Path) {
        self.shared.state.lock().listed.insert(number(directory));
    }

    /// A program opens a file: plans readahead of its siblings. A small file is requested whole if
    /// those that were opened before it in this directory were read so.
    /// The program has the file open for as long as the result lives.
    pub fn opened(&self, tree: &dyn SiblingTree, path: &Path, file: &File) -> Option<SiblingOpen> {
        let open = tree.store().reads_siblings().then(|| self.note_open(path, file));
        let has_work = match self.shared.opens_announced(path) {
            true => true,
            false => tree.store().reads_siblings() && self.shared.opened(tree, path, file, self.most),
        };
        if has_work {
            self.shared.wake.notify_all();
        }
        open
    }

    fn note_open(&self, path: &Path, file: &File) -> SiblingOpen {
        let (file_number, handle) = (number(path), Handle::of(path, file));
        // What was read ahead and not opened in time may not be in memory any more.
        let removed = self.shared.state.lock().expire(&self.shared);
        drop(removed);
        let (open, closed) = self.shared.alike.lock().opened(file_number, handle);
        drop(closed);
        SiblingOpen { shared: Arc::clone(&self.shared), file: file_number, open }
    }

    /// A program reads bytes of a file, or is about to: requests what followed in a file that was
    /// read alike. Returns whether further reads of it matter.
    pub fn read(&self, number: SiblingFile, file: &File, offset: u64, bytes: u64) -> bool {
        let matters = self.shared.uses.lock().read(number.0, offset, bytes);
        let predicted = self.shared.alike.lock().read(number.0, offset, bytes);
        let goes_on = predicted.goes_on;
        // None, for example, if the program reads in no order as it says.
        if predicted.is_some() && file.stream_budget().is_some() {
            predicted.fetch(file.engine.decisions());
        }
        matters || goes_on
    }

    /// A program closes a file.
    pub fn closed(&self, file: SiblingFile) {
        self.shared.uses.lock().closed(file.0);
    }

    /// A program will open these files in this order, after those announced before if `append`.
    ///
    /// # Errors
    /// If the list would be too long. The files announced before stay.
    pub fn announce(&self, paths: Vec<PathBuf>, append: bool) -> Result<(), TooMany> {
        if paths.len() > announced::ANNOUNCED_MAX {
            return Err(TooMany(()));
        }
        let mut state = self.shared.state.lock();
        let removed = if append { Vec::new() } else { state.announced.end() };
        state.bytes -= removed.iter().map(|ahead| ahead.bytes).sum::<u64>();
        let added = state.announced.add(paths);
        drop(state);
        drop(removed);
        self.shared.wake.notify_all();
        if added { Ok(()) } else { Err(TooMany(())) }
    }
}

impl Drop for SiblingReadahead {
    /// Ends readahead, and closes its files.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.has_ended = true;
        let files = (std::mem::take(&mut state.ahead), state.announced.end());
        state.planned.clear();
        state.left.clear();
        drop(state);
        drop(files);
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn next(&self, most: u64) -> Option<Step> {
        let mut state = self.state.lock();
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
            if let Some(number) = state.left.pop_front() {
                return Some(Step::GoOn(number));
            }
            let removed = state.expire(self);
            if !removed.is_empty() {
                // Closing a file takes other locks.
                drop(state);
                drop(removed);
                state = self.state.lock();
            } else if state.bytes > 0 || !state.ahead.is_empty() {
                state = self.wake.wait_timeout(state, SIBLING_UNUSED_MAX);
            } else {
                state = self.wake.wait(state);
            }
        }
    }
}

impl State {
    /// Applies an event. Every change of the opens passes here, so that all are recorded.
    fn step(&mut self, event: SiblingEvent, plan: &mut Vec<PlannedSibling>) {
        self.recorder.step(&mut self.siblings, event, plan);
    }

    /// Removes the files that were read ahead and not opened in time.
    fn expire(&mut self, shared: &Shared) -> Vec<Ahead> {
        let is_old = |ahead: &Ahead| ahead.since.elapsed() > SIBLING_UNUSED_MAX;
        let old: Vec<_> =
            self.ahead.iter().filter(|(_, ahead)| is_old(ahead)).map(|(&place, _)| place).collect();
        let mut removed = self.announced.expire();
        self.bytes -= removed.iter().map(|ahead| ahead.bytes).sum::<u64>();
        for place in old {
            if let Some(ahead) = self.ahead.remove(&place) {
                self.bytes -= ahead.bytes;
                shared.alike.lock().trails.dropped(ahead.number);
                removed.push(ahead);
            }
            self.step(SiblingEvent::Dropped { directory: place.0, index: place.1 }, &mut Vec::new());
        }
        removed
    }

    /// Removes a file from readahead because a program opens it.
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
    fn insert(&mut self, number: u64, (directory, siblings): (Directory, Box<Siblings>)) {
        self.step(SiblingEvent::Listed { directory: number, siblings }, &mut Vec::new());
        let mut opened = Vec::new();
        self.unlisted.retain(|(parent, name)| {
            opened.extend(directory.place(name).filter(|_| *parent == number));
            *parent != number
        });
        for index in opened {
            self.step(SiblingEvent::Opened { directory: number, index, room: 0 }, &mut Vec::new());
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            let oldest = self.directories.iter().min_by_key(|(_, directory)| directory.used);
            if let Some(oldest) = oldest.map(|(&number, _)| number).filter(|oldest| *oldest != number) {
                self.directories.remove(&oldest);
                self.step(SiblingEvent::Forgotten { directory: oldest }, &mut Vec::new());
            }
        }
        self.uses += 1;
        self.directories.insert(number, Directory { used: self.uses, ..directory });
    }

    /// Bytes of a file in a directory.
    fn size(&self, directory: u64, index: u32) -> u64 {
        let files = self.directories.get(&directory).map(|directory| &directory.files);
        files.and_then(|files| files.get(index as usize)).map_or(0, |(_, size)| *size)
    }

    /// Plans files of a directory in which a program opened a file, or to which it came from
    /// another directory, in at most `most` bytes. Once a run has passed through the directory,
    /// plans files of the next ones, too.
    fn plan(
        &mut self,
        number: u64,
        from: Option<u64>,
        opened: Option<(u32, u64)>,
        (shared, most): (&Shared, u64),
    ) {
        let Some(average) = self.directories.get(&number).map(Directory::average) else { return };
        let mut extent = shared.uses.lock().extent(number, opened.map(|(_, file)| file));
        let left = most.saturating_sub(self.bytes);
        let mut room = extent.room(left, average);
        if let Some((index, _)) = opened
            && room == 0
            && left > 0
            && !extent.is_whole(average)
        {
            (room, extent) =
                (shared.alike.lock().trails.room(self.size(number, index)), SiblingExtent::NOTHING);
        }
        let mut plan = Vec::new();
        let steps = from.and_then(|from| Some((from, self.directories.get(&from)?.steps + 1)));
        if let Some((from, _)) = steps {
            let ahead = u32::try_from(self.ahead.len() + self.planned.len()).unwrap_or(u32::MAX);
            let room = room.min(SIBLING_WINDOW_MAX.saturating_sub(ahead));
            self.step(SiblingEvent::WentOn { from, to: number, room }, &mut plan);
        }
        if let Some((index, _)) = opened {
            let room = room.saturating_sub(plan.len() as u32);
            self.step(SiblingEvent::Opened { directory: number, index, room }, &mut plan);
        }
        let Some(directory) = self.directories.get_mut(&number) else { return };
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
            let (size, bytes, index) = (*size, extent.bytes(*size), sibling.index);
            self.bytes += bytes;
            let path = directory.path.join(name);
            self.planned.push_back(Planned { directory: number, index, path, size, extent, bytes });
        }
        let goes_on = self.siblings.get(number).is_some_and(Siblings::goes_on);
        if !goes_on || directory.steps >= STEPS_MAX {
            return;
        }
        let next = directory.next;
        match next {
            Next::Found(next) if self.directories.contains_key(&next) => {
                self.plan(next, Some(number), None, (shared, most));
            }
            // The next directory was not looked up yet, or is no longer remembered.
            Next::Unknown | Next::Found(_) => {
                self.left.push_back(number);
                if let Some(directory) = self.directories.get_mut(&number) {
                    directory.next = Next::Wanted;
                }
            }
            Next::Wanted => {}
        }
    }
}

impl Ahead {
    /// A file, and the decision to request its bytes of this extent. The caller performs it.
    fn request(path: &Path, file: File, extent: SiblingExtent) -> (Self, Vec<Advised>) {
        let bytes = extent.bytes(file.size());
        let advised = decide(&file, extent.ranges(file.size())).collect();
        (Self { number: number(path), file, bytes, since: Instant::now() }, advised)
    }
}

impl Shared {
    /// Returns whether there is work for the threads.
    fn opened(&self, tree: &dyn SiblingTree, path: &Path, file: &File, most: u64) -> bool {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let (directory, opened, size) = (number(above), number(path), file.size());
        let mut uses = self.uses.lock();
        uses.opened(directory, opened, size);
        let extent = uses.extent(directory, Some(opened));
        drop(uses);
        if extent.is_shown_whole() && extent.bytes(size) == size && !tree.has_some(path) {
            file.advise(0, size, Advice::WillNeed);
        }
        let mut state = self.state.lock();
        let known = state.directories.get(&directory);
        let is_recent = known.is_some_and(|known| known.listed.elapsed() < RELIST_MIN);
        let place = match known.and_then(|known| known.place(name)) {
            Some(place) => place,
            None if is_recent => return false,
            None => {
                // The listing is copied without the lock.
                drop(state);
                let Some(listed) = tree.known(above).map(|entries| Directory::of(above, entries)) else {
                    self.state.lock().note_unlisted(directory, name);
                    return false;
                };
                let place = listed.0.place(name);
                state = self.state.lock();
                let Some(place) = place else {
                    // Only the time of the listing changes: with it, the next open of a file that
                    // the listing lacks does not copy it. A new listing would end the run.
                    match state.directories.get_mut(&directory) {
                        Some(known) => known.listed = Instant::now(),
                        None => state.insert(directory, listed),
                    }
                    return false;
                };
                state.insert(directory, listed);
                place
            }
        };
        let removed = (state.expire(self), state.take((directory, place)));
        let from = Some(std::mem::replace(&mut state.last, directory)).filter(|last| *last != directory);
        state.recorder.note_open(path, || tree.store().policy().name());
        state.plan(directory, from, Some((place, opened)), (self, most));
        let has_work = !state.planned.is_empty() || !state.left.is_empty();
        drop(state);
        drop(removed);
        has_work
    }

    /// Whether an opened file was announced.
    fn opens_announced(&self, path: &Path) -> bool {
        let mut state = self.state.lock();
        let Some(ahead) = state.announced.opened(path) else { return false };
        state.bytes -= ahead.as_ref().map_or(0, |ahead| ahead.bytes);
        drop(state);
        drop(ahead);
        true
    }

    /// Opens an announced file and requests its bytes.
    fn read_announced(&self, tree: &dyn SiblingTree, path: PathBuf) {
        // Nothing shows how much a program will read.
        let extent = SiblingExtent::GUESS;
        let mut file = open_ahead(tree, &path, will_read(extent, u64::MAX));
        // Decided with the lock, and sent without it, as in `read_planned`.
        let mut state = self.state.lock();
        let is_wanted = !state.has_ended && state.announced.is_opening(&path);
        let ahead = file.take_if(|_| is_wanted).map(|file| Ahead::request(&path, file, extent));
        let (ahead, advised) = ahead.unzip();
        state.bytes += ahead.as_ref().map_or(0, |ahead| ahead.bytes);
        let before = state.announced.read(path, ahead);
        state.bytes -= before.as_ref().map_or(0, |before| before.bytes);
        drop(state);
        advised.into_iter().flatten().for_each(Advised::perform);
        drop((file, before));
    }

    /// A program will leave a directory: lists the next one, and plans its files.
    fn go_on(&self, tree: &dyn SiblingTree, directory: u64, most: u64) {
        let Some(path) = self.state.lock().directories.get(&directory).map(|known| known.path.clone()) else {
            return;
        };
        let Some(path) = self.next_directory(tree, path) else { return };
        let next = number(&path);
        if !self.state.lock().directories.contains_key(&next) {
            let Ok(entries) = tree.list(&path) else { return };
            let listed = Directory::of(&path, entries);
            self.state.lock().insert(next, listed);
        }
        let mut state = self.state.lock();
        if let Some(known) = state.directories.get_mut(&directory) {
            known.next = Next::Found(next);
        }
        state.plan(next, Some(directory), None, (self, most));
        drop(state);
        self.wake.notify_all();
    }

    /// The directory after another one for a program that walks a tree: the first one below it,
    /// else the next one beside it, or beside one above it. `None` if no program has listed the
    /// parent of that directory.
    fn next_directory(&self, tree: &dyn SiblingTree, mut path: PathBuf) -> Option<PathBuf> {
        let mut after = None::<OsString>;
        while self.state.lock().listed.contains(number(&path)) {
            let entries = tree.list(&path).ok()?;
            let directories = entries.into_iter().filter(|entry| entry.kind == EntryKind::Directory);
            let names = directories.map(|entry| entry.name).filter(|name| Some(name) > after.as_ref());
            if let Some(name) = names.min() {
                return Some(path.join(name));
            }
            after = Some(path.file_name()?.to_owned());
            path.pop();
        }
        None
    }

    /// Opens a planned file and requests its bytes.
    fn read_planned(&self, tree: &dyn SiblingTree, planned: &Planned) {
        let (directory, index) = (planned.directory, planned.index);
        let mut file = open_ahead(tree, &planned.path, will_read(planned.extent, planned.size));
        let is_resident = file.is_none() && tree.is_resident(&planned.path);
        // Requests are decided with the lock: a program that opens the file takes it before its
        // first read. Decided after that read, the same bytes could be requested again. They are
        // sent without the lock.
        let mut state = self.state.lock();
        let is_ahead = state.siblings.get(directory).is_some_and(|siblings| siblings.is_ahead(index));
        let is_wanted = is_ahead && !state.has_ended;
        let (before, advised) = match file.take_if(|_| is_wanted) {
            Some(file) => {
                let (mut ahead, mut advised) = Ahead::request(&planned.path, file, planned.extent);
                let ranges = self.alike.lock().trails.ahead(ahead.number, ahead.file.size(), u64::MAX);
                ahead.bytes = planned.bytes + ranges.iter().map(|range| range.end - range.start).sum::<u64>();
                advised.extend(decide(&ahead.file, ranges));
                state.bytes += ahead.bytes - planned.bytes;
                // After a new listing, a file that is ahead already may be planned again.
                let before = state.ahead.insert((directory, index), ahead);
                state.bytes -= before.as_ref().map_or(0, |before| before.bytes);
                (before, advised)
            }
            None => {
                let event = match is_resident {
                    true => SiblingEvent::Resident { directory, index },
                    false => SiblingEvent::Dropped { directory, index },
                };
                state.step(event, &mut Vec::new());
                state.bytes = state.bytes.saturating_sub(planned.bytes);
                (None, Vec::new())
            }
        };
        drop(state);
        advised.into_iter().for_each(Advised::perform);
        drop((file, before));
    }
}

/// Opens a file ahead of a program. `None` if the program has all of its bytes, perhaps since the
/// open began, or if the open fails: the program will see that error.
fn open_ahead(tree: &dyn SiblingTree, path: &Path, will_read: WillRead) -> Option<File> {
    let file = if tree.is_resident(path) { None } else { tree.open(path, will_read).ok() };
    file.filter(|_| !tree.is_resident(path))
}

/// Decides to request these bytes, as the result is consumed.
fn decide(file: &File, ranges: impl IntoIterator<Item = Range<u64>>) -> impl Iterator<Item = Advised> {
    // A length of 0 would reach to the end of the file.
    let ranges = ranges.into_iter().filter(|range| !range.is_empty());
    ranges.map(|range| file.decide(range.start, range.end - range.start, Advice::WillNeed))
}

/// What the open of a file of `size` bytes may request with it: at most [`SMALL_BYTES`], which one
/// connection sends at once.
fn will_read(extent: SiblingExtent, size: u64) -> WillRead {
    let [head, tail] = extent.ranges(size);
    if !head.is_empty() {
        WillRead::First { start: 0, end: head.end.min(SMALL_BYTES) }
    } else if !tail.is_empty() {
        WillRead::Last { bytes: (tail.end - tail.start).min(SMALL_BYTES) }
    } else {
        WillRead::Any
    }
}

/// The number of a file's path. Callers keep it, because hashing takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiblingFile(u64);

impl SiblingFile {
    /// The file at a path of the tree.
    pub fn at(path: &Path) -> Self {
        Self(number(path))
    }
}

/// A number for a path. Two paths with the same number would share their readahead.
fn number(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.as_os_str().hash(&mut hasher);
    hasher.finish()
}

/// More files were announced than are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany(());

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the list of announced files would have more than {} names", announced::ANNOUNCED_MAX)
    }
}

impl std::error::Error for TooMany {}

/// Without threads nothing is read ahead, and programs run as they should.
fn start_thread(run: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new().name("bowwave-ahead".to_owned()).spawn(run);
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
