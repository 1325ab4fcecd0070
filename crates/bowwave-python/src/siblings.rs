//! Which files of listed directories a program opens next.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::{
    PlannedSibling, SiblingDirectories, SiblingEvent, SiblingExtent, SiblingReason, SiblingUses,
    Siblings as Opens,
};
use pyo3::prelude::*;

/// The opens in listed directories. Any number of threads may use it.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Siblings {
    /// A panic under the lock may leave wrong counts: they affect readahead, never the bytes read.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    directories: SiblingDirectories,
    uses: SiblingUses,
    /// Names and sizes by directory, sorted by name.
    files: HashMap<u64, Vec<(String, u64)>>,
}

/// Name and size of a file, and how many bytes are read ahead of it: at its beginning, and at its
/// end.
type Ahead = (String, u64, u64, u64);

#[pymethods]
impl Siblings {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::default() }
    }

    /// A directory has these files, of which none was opened.
    fn listed(&self, directory: &str, mut files: Vec<(String, u64)>) {
        files.sort_unstable();
        let names: Vec<&[u8]> = files.iter().map(|(name, _)| name.as_bytes()).collect();
        let (directory, siblings) = (number(&directory), Box::new(Opens::of(&names)));
        let mut state = self.state.lock();
        state.directories.step(SiblingEvent::Listed { directory, siblings }, &mut Vec::new());
        state.files.insert(directory, files);
    }

    /// A directory is no longer remembered.
    fn forget(&self, directory: &str) {
        let (directory, mut state) = (number(&directory), self.state.lock());
        state.directories.step(SiblingEvent::Forgotten { directory }, &mut Vec::new());
        state.files.remove(&directory);
    }

    /// A program opens a file of `size` bytes. Returns the files to read ahead; `None` if the
    /// directory has no such file.
    ///
    /// `room` is how many files the program opens until a version that is looked up now counts as
    /// old, how many are open ahead, and how many bytes may be read ahead. `first` is what is read
    /// of a file before anything shows how much: at its beginning, and at its end.
    fn opened(
        &self,
        directory: &str,
        name: &str,
        size: u64,
        room: (u32, u32, u64),
        first: (u64, u64),
    ) -> Option<Vec<Ahead>> {
        let (soon, ahead, bytes) = room;
        let (file, directory) = (number(&(directory, name)), number(&directory));
        let mut state = self.state.lock();
        let state = &mut *state;
        let listed = state.files.get(&directory)?;
        let index = place(listed, name)?;
        state.uses.opened(directory, file, size);
        let extent = state.uses.extent(directory, Some(file));
        let sampled = &listed[..listed.len().min(SAMPLED)];
        // A listing may have any sizes.
        let bytes_sampled = sampled.iter().fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
        let average = bytes_sampled / sampled.len() as u64;
        let (room, of_first) = (extent.room(bytes, average), bytes / (first.0 + first.1).max(1));
        let is_guess = room == 0 || extent == SiblingExtent::GUESS;
        let is_first = is_guess && first != (0, 0) && average > first.0 + first.1;
        let room = if is_first { u32::try_from(of_first).unwrap_or(u32::MAX) } else { room };
        let room = room.min((soon / 2).saturating_sub(ahead));
        let mut plan = Vec::new();
        state.directories.step(SiblingEvent::Opened { directory, index, room }, &mut plan);
        // Of files in no order, most would be opened when their version is old.
        let is_late = |planned: &PlannedSibling| {
            planned.sibling.reason == SiblingReason::Sample && listed.len() > soon as usize
        };
        for late in plan.extract_if(.., |planned| is_late(planned)) {
            let index = late.sibling.index;
            state.directories.step(SiblingEvent::Dropped { directory, index }, &mut Vec::new());
        }
        let ahead = |planned: PlannedSibling| {
            let (name, size) = &listed[planned.sibling.index as usize];
            let [head, tail] = extent.ranges(*size).map(|range| range.end - range.start);
            let (head, tail) = if is_first { first } else { (head, tail) };
            (name.clone(), *size, head, tail)
        };
        Some(plan.into_iter().map(ahead).collect())
    }

    /// A program closes a file of which it has read these offsets and lengths.
    fn closed(&self, directory: &str, name: &str, reads: Vec<(u64, u64)>) {
        let (file, mut state) = (number(&(directory, name)), self.state.lock());
        for (offset, length) in reads {
            state.uses.read(file, offset, length);
        }
        state.uses.closed(file);
    }

    /// A planned file needs no readahead.
    fn resident(&self, directory: &str, name: &str) {
        let (directory, mut state) = (number(&directory), self.state.lock());
        if let Some(index) = state.files.get(&directory).and_then(|files| place(files, name)) {
            state.directories.step(SiblingEvent::Resident { directory, index }, &mut Vec::new());
        }
    }

    /// A file that was read ahead is not in memory any more.
    fn dropped(&self, directory: &str, name: &str) {
        let (directory, mut state) = (number(&directory), self.state.lock());
        if let Some(index) = state.files.get(&directory).and_then(|files| place(files, name)) {
            state.directories.step(SiblingEvent::Dropped { directory, index }, &mut Vec::new());
        }
    }
}

/// A number for a name. Two with the same number would share their readahead.
fn number(name: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn place(files: &[(String, u64)], name: &str) -> Option<u32> {
    let place = files.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()?;
    u32::try_from(place).ok()
}

/// Files whose sizes make the average.
const SAMPLED: usize = 100;
