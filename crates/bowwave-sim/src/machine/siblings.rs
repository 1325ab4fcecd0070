//! Readahead across files, as a mount does it: the files of a directory are those of the machine
//! whose names have the same parent.

use std::collections::BTreeMap;

use bowwave_core::readahead::{
    SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, Sibling, Siblings, sibling_bytes, sibling_room,
};
use bowwave_core::{Advice, Event, FileId, HandleId, Instant, PageRange};

use super::Machine;

/// The directories of a machine.
#[derive(Debug)]
pub(super) struct Directories {
    /// In the order of their paths, as a program that walks a tree comes to them.
    directories: Vec<Directory>,
    /// Directory of the last open.
    last: usize,
    /// Directory and position in its listing, by file.
    places: Vec<(usize, u32)>,
    /// Files that are read ahead and not opened yet.
    ahead: BTreeMap<FileId, Ahead>,
    /// Bytes of the files in `ahead`.
    bytes: u64,
}

#[derive(Debug)]
struct Directory {
    /// In the order of their names.
    files: Vec<FileId>,
    siblings: Siblings,
    /// Bytes of a file on average.
    bytes: u64,
}

#[derive(Debug)]
struct Ahead {
    handle: HandleId,
    bytes: u64,
    since: Instant,
}

impl Directories {
    /// For files with these names and lengths.
    fn new(names: &[String], bytes: impl Fn(FileId) -> u64) -> Self {
        let mut listings: BTreeMap<&str, Vec<(&str, FileId)>> = BTreeMap::new();
        for (file, path) in (0..).map(FileId).zip(names) {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            listings.entry(parent).or_default().push((name, file));
        }
        let mut directories = Vec::new();
        let mut places = vec![(0, 0); names.len()];
        for mut listing in listings.into_values() {
            listing.sort_unstable();
            let files: Vec<FileId> = listing.iter().map(|&(_, file)| file).collect();
            for (place, file) in (0..).zip(&files) {
                places[file.0 as usize] = (directories.len(), place);
            }
            let names: Vec<&str> = listing.iter().map(|&(name, _)| name).collect();
            let average = files.iter().map(|&file| bytes(file)).sum::<u64>() / files.len() as u64;
            let siblings = Siblings::of(&names);
            directories.push(Directory { files, siblings, bytes: average });
        }
        Self { directories, last: usize::MAX, places, ahead: BTreeMap::new(), bytes: 0 }
    }

    /// A program goes from one directory to another, or will.
    fn go_on(&mut self, from: usize, to: usize, bytes_max: u64, out: &mut Vec<FileId>) {
        let Ok([before, directory]) = self.directories.get_disjoint_mut([from, to]) else { return };
        let left = bytes_max.saturating_sub(self.bytes);
        let window = SIBLING_WINDOW_MAX.saturating_sub((self.ahead.len() + out.len()) as u32);
        let room = sibling_room(left, directory.bytes).saturating_sub(out.len() as u32).min(window);
        let mut plan = Vec::new();
        directory.siblings.go_on_from(&mut before.siblings, room, &mut plan);
        out.extend(self.files(to, &plan));
    }

    fn files<'a>(&'a self, directory: usize, plan: &'a [Sibling]) -> impl Iterator<Item = FileId> + 'a {
        plan.iter().map(move |sibling| self.directories[directory].files[sibling.index as usize])
    }

    /// Takes a file out of readahead, or those that were not opened in time.
    fn take(&mut self, is_taken: impl Fn(FileId, &Ahead) -> bool) -> Vec<(FileId, HandleId)> {
        let taken = self.ahead.extract_if(.., |&file, ahead| is_taken(file, ahead));
        let taken: Vec<_> = taken.map(|(file, ahead)| (file, ahead.handle, ahead.bytes)).collect();
        self.bytes -= taken.iter().map(|&(_, _, bytes)| bytes).sum::<u64>();
        taken.into_iter().map(|(file, handle, _)| (file, handle)).collect()
    }
}

impl Machine {
    fn file_bytes(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].pages.0.saturating_mul(self.page_size.bytes())
    }

    /// A process has opened a file, and requested what it reads first: reads its siblings ahead.
    pub(super) fn read_siblings(&mut self, file: FileId) {
        if self.sibling_bytes_max == 0 || self.files.len() < 2 {
            return;
        }
        let known = self.directories.take().filter(|known| known.places.len() == self.files.len());
        let mut known =
            known.unwrap_or_else(|| Directories::new(&self.recorder.files, |file| self.file_bytes(file)));
        let old = Instant(self.now.0.saturating_sub(SIBLING_UNUSED_MAX.as_nanos() as u64));
        let unused = known.take(|other, ahead| other != file && ahead.since < old);
        for &(other, _) in &unused {
            let (directory, place) = known.places[other.0 as usize];
            known.directories[directory].siblings.dropped(place);
        }
        let opened = known.take(|other, _| other == file);
        for (_, handle) in unused.into_iter().chain(opened) {
            self.cache.step(self.now, Event::CloseHandle { handle }, &mut self.actions);
        }
        let (directory, place) = known.places[file.0 as usize];
        let last = std::mem::replace(&mut known.last, directory);
        let mut planned = Vec::new();
        if last < known.directories.len() && last != directory {
            known.go_on(last, directory, self.sibling_bytes_max, &mut planned);
        }
        let left = self.sibling_bytes_max.saturating_sub(known.bytes);
        let room = sibling_room(left, known.directories[directory].bytes);
        let mut plan: Vec<Sibling> = Vec::new();
        known.directories[directory].siblings.opened(
            place,
            room.saturating_sub(planned.len() as u32),
            &mut plan,
        );
        planned.extend(known.files(directory, &plan));
        let mut at = directory;
        while known.directories[at].siblings.goes_on() && at + 1 < known.directories.len() {
            known.go_on(at, at + 1, self.sibling_bytes_max, &mut planned);
            at += 1;
        }
        for sibling in planned {
            let (handle, bytes) = (self.open_handle(sibling), sibling_bytes(self.file_bytes(sibling)));
            let range = PageRange::new(0, self.page_size.count_for(bytes).0);
            let event = Event::Advise { handle, range, advice: Advice::WillNeed };
            self.cache.step(self.now, event, &mut self.actions);
            known.bytes += bytes;
            known.ahead.insert(sibling, Ahead { handle, bytes, since: self.now });
        }
        self.directories = Some(known);
        self.act();
    }
}
