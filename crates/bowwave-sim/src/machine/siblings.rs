//! Readahead across files, as a mount does it: the files of a directory are those whose names have
//! the same parent.

use std::collections::BTreeMap;
use std::ops::Range;

use bowwave_core::readahead::{
    SIBLING_UNUSED_MAX, SIBLING_WINDOW_MAX, SamplePrior, Sibling, SiblingExtent, SiblingReason, SiblingUses,
    Siblings,
};
use bowwave_core::{Advice, Event, FileId, Instant};

use super::{Access, AccessOp, Machine, ProcessId};

/// The directories of a trace's files, and which of these are read ahead.
#[derive(Debug)]
pub struct Directories {
    /// In the order of their paths, as a program that walks a tree comes to them.
    directories: Vec<Directory>,
    /// What samples in all directories have shown.
    prior: SamplePrior,
    /// Directory of the last open.
    last: usize,
    /// Directory and position in its listing, by file.
    places: Vec<(usize, u32)>,
    /// Bytes of each file.
    sizes: Vec<u64>,
    /// What was read of the files opened last.
    uses: SiblingUses,
    /// The file that each process has read last.
    read_last: BTreeMap<ProcessId, FileId>,
    /// Files that are read ahead and not opened yet.
    ahead: BTreeMap<FileId, Ahead>,
    /// Bytes of the files in `ahead`.
    bytes: u64,
}

/// A file that is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAhead {
    /// The file.
    pub file: FileId,
    /// Why.
    pub reason: SiblingReason,
    /// How much of it.
    pub extent: SiblingExtent,
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
    bytes: u64,
    since: Instant,
}

impl Directories {
    /// Of the files with these paths and lengths in bytes; a [`FileId`] is a position.
    pub fn new(names: &[String], sizes: Vec<u64>) -> Self {
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
            let average = files.iter().map(|file| sizes[file.0 as usize]).sum::<u64>() / files.len() as u64;
            let siblings = Siblings::of(&names);
            directories.push(Directory { files, siblings, bytes: average });
        }
        let prior = SamplePrior::default();
        Self {
            directories,
            prior,
            last: usize::MAX,
            places,
            sizes,
            uses: SiblingUses::default(),
            read_last: BTreeMap::new(),
            ahead: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// A process reads bytes of a file. It closes the file if it has 0 reads of it `left`, or, if
    /// that is not known, when it reads another file next.
    pub fn read(&mut self, process: ProcessId, file: FileId, bytes: Range<u64>, left: Option<u64>) {
        let before = self.read_last.insert(process, file);
        if before != Some(file) {
            if let Some(before) = before.filter(|_| left.is_none()) {
                self.uses.closed(before.0.into());
            }
            let (directory, _) = self.places[file.0 as usize];
            self.uses.opened(directory as u64, file.0.into(), self.sizes[file.0 as usize]);
        }
        self.uses.read(file.0.into(), bytes.start, bytes.end - bytes.start);
        if left == Some(0) {
            self.uses.closed(file.0.into());
        }
    }

    /// A program opens a file. Returns the files that are no longer read ahead, and those to read
    /// ahead now, in this order, in at most `bytes_max` bytes with all others.
    pub fn opened(&mut self, file: FileId, now: Instant, bytes_max: u64) -> (Vec<FileId>, Vec<FileAhead>) {
        let old = Instant(now.0.saturating_sub(SIBLING_UNUSED_MAX.as_nanos() as u64));
        let mut ended = self.take(|other, ahead| other != file && ahead.since < old);
        for &other in &ended {
            let (directory, place) = self.places[other.0 as usize];
            self.directories[directory].siblings.dropped(place);
        }
        ended.extend(self.take(|other, _| other == file));
        let (directory, place) = self.places[file.0 as usize];
        let last = std::mem::replace(&mut self.last, directory);
        let mut planned = Vec::new();
        if last < self.directories.len() && last != directory {
            self.go_on(last, directory, bytes_max, &mut planned);
        }
        let left = bytes_max.saturating_sub(self.bytes);
        let extent = self.uses.extent(directory as u64, Some(file.0.into()));
        let room = extent.room(left, self.directories[directory].bytes);
        let mut plan: Vec<Sibling> = Vec::new();
        let room = room.saturating_sub(planned.len() as u32);
        self.directories[directory].siblings.opened(place, room, &mut self.prior, &mut plan);
        planned.extend(self.files(directory, &plan, extent));
        let mut at = directory;
        while self.directories[at].siblings.goes_on() && at + 1 < self.directories.len() {
            self.go_on(at, at + 1, bytes_max, &mut planned);
            at += 1;
        }
        for &FileAhead { file, extent, .. } in &planned {
            let bytes = extent.bytes(self.sizes[file.0 as usize]);
            self.bytes += bytes;
            self.ahead.insert(file, Ahead { bytes, since: now });
        }
        (ended, planned)
    }

    /// A program goes from one directory to another, or will.
    fn go_on(&mut self, from: usize, to: usize, bytes_max: u64, out: &mut Vec<FileAhead>) {
        let extent = self.uses.extent(to as u64, None);
        let Ok([before, directory]) = self.directories.get_disjoint_mut([from, to]) else { return };
        let left = bytes_max.saturating_sub(self.bytes);
        let window = SIBLING_WINDOW_MAX.saturating_sub((self.ahead.len() + out.len()) as u32);
        let room = extent.room(left, directory.bytes).saturating_sub(out.len() as u32).min(window);
        let mut plan = Vec::new();
        directory.siblings.go_on_from(&mut before.siblings, room, &mut plan);
        out.extend(self.files(to, &plan, extent));
    }

    fn files<'a>(
        &'a self,
        directory: usize,
        plan: &'a [Sibling],
        extent: SiblingExtent,
    ) -> impl Iterator<Item = FileAhead> + 'a {
        let files = &self.directories[directory].files;
        plan.iter().map(move |&Sibling { index, reason }| FileAhead {
            file: files[index as usize],
            reason,
            extent,
        })
    }

    /// Takes a file out of readahead, or those that were not opened in time.
    fn take(&mut self, is_taken: impl Fn(FileId, &Ahead) -> bool) -> Vec<FileId> {
        let taken: Vec<_> = self.ahead.extract_if(.., |&file, ahead| is_taken(file, ahead)).collect();
        self.bytes -= taken.iter().map(|(_, ahead)| ahead.bytes).sum::<u64>();
        taken.into_iter().map(|(file, _)| file).collect()
    }
}

impl Machine {
    /// A process reads bytes of a file.
    pub(super) fn note_read(&mut self, process: ProcessId, file: FileId, bytes: Range<u64>) {
        let left = self.reads_left.get_mut(&(process, file)).map(|left| {
            *left -= 1;
            *left
        });
        if let Some(directories) = self.directories() {
            directories.read(process, file, bytes, left);
        }
    }

    /// Whether files are read ahead before they are opened.
    pub fn reads_siblings(&self) -> bool {
        self.sibling_bytes_max > 0
    }

    /// A process will make this access: so that it is known which is the last one of a file, where
    /// a program closes it.
    pub fn note_future(&mut self, process: ProcessId, access: &Access) {
        let end = self.files[access.file.0 as usize].pages.0.saturating_mul(self.page_size.bytes());
        let is_read = matches!(access.op, AccessOp::Read | AccessOp::Load);
        if is_read && access.bytes > 0 && access.offset < end {
            *self.reads_left.entry((process, access.file)).or_default() += 1;
        }
    }

    /// A process has opened a file, and requested what it reads first: reads its siblings ahead.
    pub(super) fn read_siblings(&mut self, file: FileId) {
        let (now, most) = (self.now, self.sibling_bytes_max);
        let Some(known) = self.directories() else { return };
        let (ended, planned) = known.opened(file, now, most);
        let mut ranges = Vec::new();
        for &FileAhead { file, extent, .. } in &planned {
            ranges.push((file, extent.ranges(known.sizes[file.0 as usize])));
        }
        for handle in ended.iter().filter_map(|file| self.siblings_ahead.remove(file)) {
            self.cache.step(self.now, Event::CloseHandle { handle }, &mut self.actions);
        }
        for (file, ranges) in ranges {
            let handle = self.open_handle(file);
            for bytes in ranges.into_iter().filter(|bytes| !bytes.is_empty()) {
                let range = self.page_size.range_of(bytes.start, bytes.end - bytes.start);
                let event = Event::Advise { handle, range, advice: Advice::WillNeed };
                self.cache.step(self.now, event, &mut self.actions);
            }
            self.siblings_ahead.insert(file, handle);
        }
        self.act();
    }

    /// `None` if files are not read ahead.
    fn directories(&mut self) -> Option<&mut Directories> {
        if !self.reads_siblings() || self.files.len() < 2 {
            return None;
        }
        if self.directories.as_ref().is_none_or(|known| known.places.len() != self.files.len()) {
            let page = self.page_size.bytes();
            let sizes = self.files.iter().map(|file| file.pages.0.saturating_mul(page)).collect();
            self.directories = Some(Directories::new(&self.recorder.files, sizes));
        }
        self.directories.as_mut()
    }
}
