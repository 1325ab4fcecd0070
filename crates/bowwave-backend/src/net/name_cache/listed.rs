//! Listings that a program waits for, and what they found.

use std::time::{Duration, Instant};

use super::prior::LOOKUPS_MAX;
use super::{Known, NameCache};

/// When a request was sent. Its response is no newer.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Asked {
    /// Number of our changes.
    pub(super) changes: u64,
    pub(super) at: Instant,
}

impl Asked {
    pub(in super::super) fn at(&self) -> Instant {
        self.at
    }
}

/// A listing in progress: other lookups in the directory wait for its end.
#[derive(Debug)]
pub(in super::super) struct Listing<'a> {
    pub(super) cache: &'a NameCache,
    pub(super) directory: String,
    pub(super) begun: Asked,
}

/// The names that a listing has found.
#[derive(Debug, Default)]
pub(in super::super) struct Found {
    /// Each with the time when its page was requested.
    pub(in super::super) names: Vec<(Box<str>, Known, Instant)>,
    /// It has a marker.
    pub(in super::super) is_marked: bool,
    /// See [`Directory::has_others`].
    pub(in super::super) has_others: bool,
    pub(in super::super) is_complete: bool,
    pub(in super::super) pages: u32,
}

impl NameCache {
    /// Begins a listing of a directory, `directory` being its prefix. Waits while another thread
    /// lists it.
    pub(in super::super) fn begin(&self, directory: &str) -> Listing<'_> {
        let mut state = self.state.lock();
        state.drop_planned(directory);
        while state.directory(directory).is_being_listed {
            state = self.listed.wait(state);
        }
        state.directory(directory).is_being_listed = true;
        self.listing(directory, Asked { changes: state.changes, at: Instant::now() })
    }

    pub(super) fn listing(&self, directory: &str, begun: Asked) -> Listing<'_> {
        Listing { cache: self, directory: directory.to_owned(), begun }
    }
}

impl Listing<'_> {
    /// Enters what was found. Waiting lookups continue. Returns how long each page is valid from
    /// its request on.
    pub(in super::super) fn end(self, found: Found) -> Duration {
        let lifetime = self.cache.lifetime(self.begun.at);
        let mut state = self.cache.state.lock();
        if self.begun.changes >= state.evicted && self.cache.is_on() {
            let ahead = state.walks.listed(&self.directory, found.directories());
            state.replace(&self.directory, found, lifetime, self.begun);
            self.cache.plan(&mut state, ahead);
            state.shrink(self.cache.bytes_max);
        }
        lifetime
    }

    /// The store sent no valid listing. Lookups request single names for a while.
    pub(in super::super) fn failed(&self) {
        if let Some(found) = self.cache.state.lock().directories.get_mut(&self.directory) {
            found.worth = found.worth.max(LOOKUPS_MAX).saturating_mul(16);
            found.lookups = 0;
        }
    }
}

impl Drop for Listing<'_> {
    /// After an error, too.
    fn drop(&mut self) {
        if let Some(directory) = self.cache.state.lock().directories.get_mut(&self.directory) {
            directory.is_being_listed = false;
        }
        self.cache.listed.notify_all();
    }
}

impl Found {
    /// The names of directories.
    pub(in super::super) fn directories(&self) -> impl Iterator<Item = &str> + Clone {
        let is_directory = |(_, known, _): &&(_, Known, _)| *known == Known::Directory;
        self.names.iter().filter(is_directory).map(|(name, ..)| &**name)
    }
}
