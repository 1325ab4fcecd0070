//! Files that are read alike: handles through which they are fetched.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowwave_core::Advice;
use bowwave_core::explain::SiblingLine;
use bowwave_core::readahead::{SiblingFetch, SiblingTrails};

use super::Shared;
use crate::decisions::{ActingFor, DecisionLog};
use crate::file::File;

/// The trails of the last files, and handles of the open ones.
#[derive(Debug)]
pub(super) struct Alike {
    pub(super) trails: SiblingTrails,
    open: HashMap<u64, Arc<Handle>>,
}

/// An open file, by a handle that no advice of a program changes.
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    path: PathBuf,
}

/// A program has a file open, for readahead across files. Its drop reports the close.
#[derive(Debug)]
pub struct SiblingOpen {
    pub(super) shared: Arc<Shared>,
    pub(super) file: u64,
    pub(super) open: u64,
}

impl Drop for SiblingOpen {
    fn drop(&mut self) {
        let removed = self.shared.alike.lock().closed(self.file, self.open);
        drop(removed);
    }
}

/// What a read of a file predicts.
#[derive(Debug)]
pub(super) struct Predicted {
    /// Whether further reads of the file matter.
    pub(super) goes_on: bool,
    file: Option<Arc<Handle>>,
    fetches: Vec<(Arc<Handle>, Range<u64>)>,
}

impl Alike {
    /// At most `most` bytes are fetched and not used.
    pub(super) fn new(most: u64) -> Self {
        Self { trails: SiblingTrails::new(most), open: HashMap::new() }
    }

    /// A program opens a file. Returns the number of the open, and handles to close without the
    /// lock.
    pub(super) fn opened(&mut self, number: u64, handle: Handle) -> (u64, Vec<Arc<Handle>>) {
        let open = self.trails.opened(number, handle.file.size());
        let version = handle.file.version();
        let is_known = self.open.get(&number).is_some_and(|known| known.file.version() == version);
        let handle = Arc::new(handle);
        let mut closed =
            if is_known { vec![handle] } else { Vec::from_iter(self.open.insert(number, handle)) };
        let trails = &self.trails;
        closed.extend(self.open.extract_if(|&number, _| !trails.is_open(number)).map(|(_, handle)| handle));
        (open, closed)
    }

    /// A program closes a file that it opened with this number. Returns a handle to close without
    /// the lock.
    pub(super) fn closed(&mut self, number: u64, open: u64) -> Option<Arc<Handle>> {
        self.trails.closed(number, open);
        if self.trails.is_open(number) { None } else { self.open.remove(&number) }
    }

    /// A program reads bytes of a file.
    pub(super) fn read(&mut self, number: u64, offset: u64, bytes: u64) -> Predicted {
        let mut found = Vec::new();
        let goes_on = self.trails.read(number, offset, bytes, &mut found);
        let with_handle = |fetch: SiblingFetch| Some((Arc::clone(self.open.get(&fetch.file)?), fetch.bytes));
        let fetches: Vec<_> = found.into_iter().filter_map(with_handle).collect();
        let file = self.open.get(&number).filter(|_| !fetches.is_empty()).cloned();
        Predicted { goes_on, file, fetches }
    }
}

impl Handle {
    pub(super) fn of(path: &Path, file: &File) -> Self {
        Self { file: file.another(), path: path.to_owned() }
    }
}

impl Predicted {
    /// Whether there is anything to fetch.
    pub(super) fn is_some(&self) -> bool {
        !self.fetches.is_empty()
    }

    /// Requests the bytes, and logs why.
    pub(super) fn fetch(self, log: Option<&DecisionLog>) {
        for (handle, bytes) in &self.fetches {
            handle.file.advise(bytes.start, bytes.end - bytes.start, Advice::WillNeed);
        }
        let (Some(log), Some(file)) = (log, self.file) else { return };
        let (access, pid, fetches) = (log.next_access(), ActingFor::current(), self.fetches);
        log.add(file.file.policy().name(), None, move || {
            let mut files: Vec<_> = fetches.iter().map(|(handle, _)| handle.path.to_string_lossy()).collect();
            files.dedup();
            let files: Vec<&str> = files.iter().map(AsRef::as_ref).collect();
            let file = &file.path.display().to_string();
            SiblingLine { access, pid, file, reason: REASON, files: &files }.to_string()
        });
    }
}

/// Why these bytes are fetched.
const REASON: &str = "alike";
