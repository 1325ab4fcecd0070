//! What each request does, apart from the form of requests and replies.

mod attributes;
mod data;
mod folders;
mod names;
mod objects;
mod xattrs;

pub(crate) use attributes::Changes;
pub(crate) use data::{Open, Pages, Sync, Write};
pub(crate) use folders::Listing;
pub(crate) use names::Caller;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowwave_engine::Identity;
use bowwave_engine::backend::{Entry, Error};
use fuser::{Errno, FileAttr};

use crate::attributes::Defaults;
use crate::buffers::Buffers;
use crate::deferred::Deferred;
use crate::errno::{errno, is_everyday};
use crate::handles::{Handles, OfInode};
use crate::inodes::{Inodes, Opening};
use crate::layout::{Layout, NAME_BYTES_MAX};
use crate::mount::{Listener, Told};
use crate::options::MountOptions;
use crate::order::{Order, Turn};
use crate::stamps::Stamps;
use crate::tree::{OpenFile, Tree};

use data::OUTRUN_MAX;
use folders::FolderHandle;
use objects::{Closing, Closings};

/// The state of a mount.
pub(crate) struct Operations<T: Tree> {
    pub(crate) layout: Layout<T>,
    pub(crate) options: MountOptions,
    pub(crate) inodes: Inodes,
    pub(crate) buffers: Buffers,
    order: Order,
    files: Handles<OpenHandle<T::File>>,
    folders: Handles<FolderHandle>,
    defaults: Defaults,
    listener: Listener,
    /// The listener has heard of a file whose versions cannot be told apart for sure.
    cautioned: AtomicBool,
    stamps: Stamps,
    pub(crate) deferred: Deferred,
    closings: Closings,
    /// Grows with each change of anything; tells whether a listing may be out of date.
    changes: AtomicU64,
}

struct OpenHandle<F> {
    inode: u64,
    /// As of the opening, for messages.
    path: Arc<Path>,
    file: F,
    writes: bool,
    closing: Closing,
    /// Of another version than what the kernel may have pages of.
    apart: bool,
}

impl<F> OfInode for OpenHandle<F> {
    fn inode(&self) -> u64 {
        self.inode
    }
}

impl<F: OpenFile> OpenHandle<F> {
    fn opening(&self) -> Opening {
        Opening {
            identity: self.file.identity(),
            version: self.file.version(),
            size: self.file.size(),
            writes: self.writes,
        }
    }
}

/// What a look-up gives the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) attributes: FileAttr,
    /// How long the kernel may trust the attributes.
    pub(crate) ttl: Duration,
}

impl<T: Tree> Operations<T> {
    pub(crate) fn new(
        layout: Layout<T>,
        options: MountOptions,
        defaults: Defaults,
        listener: Listener,
    ) -> Result<Self, Error> {
        let root = layout.stat(Path::new(""))?;
        Ok(Self {
            layout,
            options,
            inodes: Inodes::new(root),
            buffers: Buffers::default(),
            order: Order::default(),
            files: Handles::new(),
            folders: Handles::new(),
            defaults,
            listener,
            cautioned: AtomicBool::new(false),
            stamps: Stamps::default(),
            deferred: Deferred::default(),
            closings: Closings::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// Whether anything can be changed.
    pub(crate) fn is_writable(&self) -> bool {
        self.defaults.writable
    }

    /// Whether the store is a file system, with owners, links and extended attributes.
    pub(crate) fn is_file_system(&self) -> bool {
        self.inodes.last(crate::inodes::ROOT).is_some_and(|root| root.unix.is_some())
    }

    /// Finds a name in a folder and counts a look-up.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<Found, Errno> {
        let _turn = self.order.look(parent);
        let mut tries = OUTRUN_MAX;
        loop {
            let since = self.inodes.changes_at(parent, name);
            let path = self.child(parent, name)?;
            let entry = self.layout.stat(&path).map_err(|error| self.fail(&path, &error))?;
            tries -= 1;
            if tries == 0 || !self.inodes.is_outrun(parent, name, &entry, since) {
                return self.remember(parent, name, &entry);
            }
        }
    }

    /// Counts a look-up of `entry`, called `name` in a folder.
    pub(crate) fn remember(&self, parent: u64, name: &OsStr, entry: &Entry) -> Result<Found, Errno> {
        let number = self.inodes.remember(parent, name, entry).ok_or(Errno::ESTALE)?;
        let known = entry.partial.then(|| self.inodes.last(number)).flatten();
        let entry = known.as_ref().unwrap_or(entry);
        let attributes = self.shown(number, entry);
        // The reply has one place for the kernel's number and the one to show: where they differ, `stat` has to ask.
        // Of what a listing does not tell all about, too.
        let has_all = self.inodes.shown(number) == number && !entry.partial;
        let ttl = if has_all { self.trust(number) } else { Duration::ZERO };
        Ok(Found { attributes, ttl })
    }

    /// The attributes of an inode that a store describes so.
    fn shown(&self, inode: u64, entry: &Entry) -> FileAttr {
        let entry = self.stamps.shown(inode, entry.clone());
        let entry = self.deferred.shown(entry, || self.inodes.path(inode));
        self.defaults.attributes(inode, &entry)
    }

    /// Reads a symbolic link.
    pub(crate) fn read_link(&self, inode: u64) -> Result<PathBuf, Errno> {
        let (path, _turn) = self.path(inode)?;
        let target = self.layout.read_link(&path).map_err(|error| self.fail(&path, &error))?;
        // The kernel takes no more than a page with the final zero, and an empty target leads nowhere.
        if (1..LINK_BYTES_MAX).contains(&target.as_os_str().len()) { Ok(target) } else { Err(Errno::EIO) }
    }

    /// The path of an inode, which stays right for as long as the turn is held.
    fn path(&self, inode: u64) -> Result<(PathBuf, Turn<'_>), Errno> {
        loop {
            let parent = self.inodes.parent(inode).ok_or_else(|| self.gone(inode))?;
            let turn = self.order.look(parent);
            // Renamed meanwhile: then another folder is the one to wait for.
            if self.inodes.parent(inode) == Some(parent) {
                return Ok((self.inodes.path(inode).ok_or_else(|| self.gone(inode))?, turn));
            }
        }
    }

    /// Why an inode has no path. What was removed here is gone; what was changed by somebody else has another inode, and
    /// ESTALE makes the kernel look for that.
    fn gone(&self, inode: u64) -> Errno {
        let links = self.inodes.last(inode).and_then(|entry| entry.unix).map(|unix| unix.links);
        if links == Some(0) { Errno::ENOENT } else { Errno::ESTALE }
    }

    /// The path of a name in a folder; the caller has the folder's turn.
    fn child(&self, parent: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.inodes.child_path(parent, name).ok_or_else(|| self.gone(parent))
    }

    /// Notes that something was changed.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Says once what the store cannot promise of its files' versions.
    fn caution(&self, path: &Path, identity: &Identity) {
        let Some(what) = identity.weakness().filter(|_| self.options.caution) else { return };
        if self.cautioned.swap(true, Ordering::Relaxed) {
            return;
        }
        (self.listener)(path, Told::Unversioned(what));
    }

    fn fail(&self, path: &Path, error: &Error) -> Errno {
        if !is_everyday(error.kind()) {
            (self.listener)(path, Told::Failed(error));
        }
        errno(error)
    }
}

/// Longest target of a symbolic link and its final zero.
const LINK_BYTES_MAX: usize = 4096;
