//! Listing directories.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowwave_engine::Namespace as _;
use bowwave_engine::backend::Entry;
use bowwave_engine::backend::sync::Mutex;
use fuser::{Errno, FileAttr};

use super::Operations;
use crate::handles::OfInode;

pub(super) struct DirectoryHandle {
    inode: u64,
    /// Taken at the first read and after a rewind. One pass over a directory sees one listing, so
    /// positions stay valid while entries are created and removed.
    listing: Mutex<Option<Arc<Listing>>>,
}

impl OfInode for DirectoryHandle {
    fn inode(&self) -> u64 {
        self.inode
    }
}

/// A directory's entries at one time.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    taken: Instant,
    changes: u64,
}

impl Operations {
    /// Opens a directory.
    pub(crate) fn open_directory(&self, inode: u64) -> u64 {
        self.directories.insert(DirectoryHandle { inode, listing: Mutex::default() })
    }

    /// The listing of an open directory; a fresh one at offset 0.
    pub(crate) fn listing(&self, handle: u64, offset: u64) -> Result<Arc<Listing>, Errno> {
        let directory = self.directories.find(handle).ok_or(Errno::EBADF)?;
        // A listing is replaced in one assignment.
        let mut kept = directory.listing.lock();
        match &*kept {
            Some(listing) if offset > 0 => Ok(Arc::clone(listing)),
            _ => {
                let listing = Arc::new(self.list(directory.inode)?);
                *kept = Some(Arc::clone(&listing));
                Ok(listing)
            }
        }
    }

    fn list(&self, inode: u64) -> Result<Listing, Errno> {
        let (taken, changes) = (Instant::now(), self.changes.load(Ordering::Relaxed));
        let entries = match self.path(inode) {
            Ok((path, _guard)) => {
                self.note_list(&path);
                self.layout.list(&path).map_err(|error| self.fail(&path, &error))?
            }
            // A directory that was removed while open is empty.
            Err(_) if self.inodes.last(inode).is_some() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Listing { entries, taken, changes })
    }

    /// Whether an entry of a listing may be returned as a lookup: nothing has changed since, and
    /// the listing is younger than the kernel's TTL, or the store's knowledge of the entry is
    /// valid. An inode that the kernel has keeps its newer attributes.
    pub(crate) fn is_fresh(&self, listing: &Listing, directory: u64, entry: &Entry) -> bool {
        let is_young = || listing.taken.elapsed() <= self.options.ttl.max(LISTING_AGE_MIN);
        let is_valid = || {
            entry.validity.0.is_some_and(|until| until > Instant::now())
                && self.inodes.peek(directory, &entry.name).is_none()
        };
        listing.changes == self.changes.load(Ordering::Relaxed) && (is_young() || is_valid())
    }

    /// Whether an entry of a listing that is only too old may be returned, to be used once: most
    /// programs that list a large directory need its names alone. An inode that the kernel has
    /// keeps its newer attributes.
    pub(crate) fn may_reply_unconfirmed(&self, listing: &Listing, directory: u64, name: &OsStr) -> bool {
        self.keeps_names
            && listing.changes == self.changes.load(Ordering::Relaxed)
            && self.inodes.peek(directory, name).is_none()
    }

    /// Closes a directory.
    pub(crate) fn release_directory(&self, handle: u64) {
        self.directories.remove(handle);
    }

    /// Makes the names in a directory durable.
    pub(crate) fn sync_directory(&self, inode: u64) -> Result<(), Errno> {
        if !self.is_writable() {
            return Ok(());
        }
        let (path, _guard) = match self.path(inode) {
            Ok(path) => path,
            // Removed while open: nothing to sync.
            Err(error) if error.code() == Errno::ENOENT.code() => return Ok(()),
            Err(error) => return Err(error),
        };
        let result = self.layout.names().and_then(|store| store.sync_directory(&path));
        result.map_err(|error| self.fail(&path, &error))
    }

    /// The last known attributes, for the entries `.` and `..`.
    pub(crate) fn last_attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        let entry = self.inodes.last(inode).ok_or(Errno::ESTALE)?;
        Ok(self.defaults.attributes(inode, &entry))
    }
}

/// Minimum age at which a listing expires: the kernel reads one listing with several requests.
const LISTING_AGE_MIN: Duration = Duration::from_millis(100);
