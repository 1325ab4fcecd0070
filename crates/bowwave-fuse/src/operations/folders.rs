//! Listing folders.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowwave_engine::backend::Entry;
use fuser::{Errno, FileAttr};

use super::Operations;
use crate::handles::OfInode;
use crate::tree::Tree;

pub(super) struct FolderHandle {
    inode: u64,
    /// Taken at the first read and after a rewind, so that one pass over a folder sees one listing, whatever is made and
    /// removed meanwhile, and a position in it stays what it was.
    listing: Mutex<Option<Arc<Listing>>>,
}

impl OfInode for FolderHandle {
    fn inode(&self) -> u64 {
        self.inode
    }
}

/// A folder's content at one time.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    taken: Instant,
    changes: u64,
}

impl<T: Tree> Operations<T> {
    /// Opens a folder.
    pub(crate) fn open_folder(&self, inode: u64) -> u64 {
        self.folders.insert(FolderHandle { inode, listing: Mutex::default() })
    }

    /// The listing of an open folder; a fresh one at offset 0.
    pub(crate) fn listing(&self, handle: u64, offset: u64) -> Result<Arc<Listing>, Errno> {
        let folder = self.folders.find(handle).ok_or(Errno::EBADF)?;
        // The listing is replaced whole or not at all.
        let mut kept = folder.listing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(listing) if offset > 0 => Ok(Arc::clone(listing)),
            _ => {
                let listing = Arc::new(self.list(folder.inode)?);
                *kept = Some(Arc::clone(&listing));
                Ok(listing)
            }
        }
    }

    fn list(&self, inode: u64) -> Result<Listing, Errno> {
        let (taken, changes) = (Instant::now(), self.changes.load(Ordering::Relaxed));
        let entries = match self.path(inode) {
            Ok((path, _turn)) => self.layout.list(&path).map_err(|error| self.fail(&path, &error))?,
            // Removed while open: such a folder is empty.
            Err(_) if self.inodes.last(inode).is_some() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Listing { entries, taken, changes })
    }

    /// Whether what a listing says of its entries may still be passed on as looked up: nothing was changed since, and it
    /// is no older than the kernel may trust it.
    pub(crate) fn is_fresh(&self, listing: &Listing) -> bool {
        let ttl = self.options.ttl.max(LISTING_AGE_MIN);
        listing.changes == self.changes.load(Ordering::Relaxed) && listing.taken.elapsed() <= ttl
    }

    /// Closes a folder.
    pub(crate) fn release_folder(&self, handle: u64) {
        self.folders.remove(handle);
    }

    /// Makes the names in a folder safe.
    pub(crate) fn sync_folder(&self, inode: u64) -> Result<(), Errno> {
        if !self.is_writable() {
            return Ok(());
        }
        let (path, _turn) = match self.path(inode) {
            Ok(path) => path,
            // Removed while open: there is nothing to make safe.
            Err(error) if error.code() == Errno::ENOENT.code() => return Ok(()),
            Err(error) => return Err(error),
        };
        let result = self.layout.names().and_then(|tree| tree.sync_directory(&path));
        result.map_err(|error| self.fail(&path, &error))
    }

    /// Attributes as last seen, for the entries `.` and `..`.
    pub(crate) fn last_attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        let entry = self.inodes.last(inode).ok_or(Errno::ESTALE)?;
        Ok(self.defaults.attributes(inode, &entry))
    }
}

/// A listing is given to the kernel in pieces, right after it was taken; that much is no age.
const LISTING_AGE_MIN: Duration = Duration::from_millis(100);
