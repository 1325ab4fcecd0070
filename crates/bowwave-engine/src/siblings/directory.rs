//! A listed directory in which programs open files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bowwave_backend::{Entry, EntryKind};
use bowwave_core::readahead::Siblings;

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// Names and sizes of its files, sorted by name.
    pub(super) files: Vec<(OsString, u64)>,
    pub(super) listed: Instant,
    pub(super) used: u64,
    /// Directories from the last open to this one.
    pub(super) steps: u32,
    pub(super) next: Next,
}

/// The directory after another one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Unknown,
    /// A thread looks for it, or has not found it.
    Wanted,
    Found(u64),
}

impl Directory {
    /// The files among the entries of a directory, none of which was opened.
    pub(super) fn of(path: &Path, entries: Vec<Entry>) -> (Self, Box<Siblings>) {
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

    pub(super) fn place(&self, name: &OsStr) -> Option<u32> {
        let place = self.files.binary_search_by(|(other, _)| other.as_os_str().cmp(name)).ok()?;
        u32::try_from(place).ok()
    }

    /// Bytes of an average file.
    pub(super) fn average(&self) -> u64 {
        let count = self.files.len().clamp(1, SAMPLED);
        self.files.iter().take(count).map(|(_, size)| size).sum::<u64>() / count as u64
    }
}

/// Files whose sizes make the average.
const SAMPLED: usize = 100;
