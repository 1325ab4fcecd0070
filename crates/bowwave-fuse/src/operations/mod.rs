//! Implements each request, independent of the protocol.

pub(crate) mod advice;
mod attributes;
mod columns;
mod data;
mod directories;
mod ends;
mod names;
mod objects;
mod readers;
mod siblings;
mod told;
mod xattrs;

pub(crate) use attributes::Changes;
pub(crate) use data::{Open, Pages, Sync, Write};
pub(crate) use directories::Listing;
pub(crate) use names::Caller;

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bowwave_engine::backend::sync::RwLock;
use bowwave_engine::backend::{Entry, Error, WillRead};
use bowwave_engine::{ActingFor, File, Identity, SiblingFile, SiblingOpen, SiblingReadahead};
use fuser::{Errno, FileAttr, Notifier};

use crate::attributes::Defaults;
use crate::buffers::Buffers;
use crate::deferred::Deferred;
use crate::descriptors::KernelFile;
use crate::errno::{errno, is_ordinary};
use crate::handles::{Handles, OfInode};
use crate::inodes::{Inodes, Opening};
use crate::layout::{Layout, NAME_BYTES_MAX};
use crate::mount::{Listener, Told};
use crate::options::{Consistency, MountOptions};
use crate::order::{NamesGuard, Order};
use crate::stamps::Stamps;

use columns::{AllColumns, Columns};
use data::OVERTAKEN_MAX;
use directories::DirectoryHandle;
use objects::{Closing, Closings};
use readers::Readers;

/// The state of a mount.
pub(crate) struct Operations {
    pub(crate) layout: Layout,
    pub(crate) options: MountOptions,
    pub(crate) inodes: Inodes,
    pub(crate) buffers: Buffers,
    order: Order,
    files: Handles<OpenHandle>,
    directories: Handles<DirectoryHandle>,
    defaults: Defaults,
    listener: Listener,
    /// Whether the listener has been told of a file with indistinguishable versions.
    warned: AtomicBool,
    stamps: Stamps,
    pub(crate) deferred: Deferred,
    closings: Closings,
    advised: advice::Advised,
    /// Incremented by every change; shows whether a listing may be out of date.
    changes: AtomicU64,
    /// Major and minor number of the mount's device, once it is mounted.
    pub(crate) device: OnceLock<(u32, u32)>,
    /// Tells the kernel of changes, once it is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
    /// The store keeps names and versions itself.
    keeps_names: bool,
    /// Where opens send no request of their own.
    siblings: Option<SiblingReadahead>,
    columns: AllColumns,
}

struct OpenHandle {
    inode: u64,
    /// Path at open, for messages.
    path: Arc<Path>,
    sibling: SiblingFile,
    /// For readahead across files, if its reads count.
    noted: OnceLock<SiblingOpen>,
    /// Replaced by a newer version if the object was replaced before a byte of it was read.
    file: RwLock<Arc<File>>,
    readers: Readers,
    /// Columns of the version that was opened. `None` of a file that is written.
    columns: Option<Arc<Columns>>,
    writes: bool,
    /// The thread that opened it.
    process: u32,
    closing: Closing,
    /// Opened as another version than the kernel may have cached.
    apart: bool,
}

impl OfInode for OpenHandle {
    fn inode(&self) -> u64 {
        self.inode
    }
}

impl OpenHandle {
    fn new(inode: u64, path: PathBuf, file: File, (writes, process): (bool, u32), closing: Closing) -> Self {
        let (file, sibling) = (RwLock::new(Arc::new(file)), SiblingFile::at(&path));
        let (path, readers) = (path.into(), Readers::default());
        let noted = OnceLock::new();
        Self {
            inode,
            path,
            sibling,
            noted,
            file,
            readers,
            columns: None,
            writes,
            process,
            closing,
            apart: false,
        }
    }

    fn file(&self) -> Arc<File> {
        // It is replaced in one assignment.
        Arc::clone(&self.file.read())
    }

    /// The file as a thread reads it.
    fn file_of(&self, thread: u32) -> Arc<File> {
        let file = self.file();
        if self.writes { file } else { self.readers.file_of(thread, file) }
    }

    /// The file as each thread reads it.
    fn files(&self) -> Vec<Arc<File>> {
        std::iter::once(self.file()).chain(self.readers.others()).collect()
    }

    fn replace_file(&self, file: &Arc<File>) {
        *self.file.write() = Arc::clone(file);
    }

    /// What to read ahead of a read of `size` bytes at `offset`.
    fn columns_ahead(&self, file: &File, (offset, size): (u64, u32)) -> Vec<Range<u64>> {
        let end = offset.saturating_add(size.into()).min(file.size());
        let Some(columns) = self.columns_of(file).filter(|_| offset < end) else { return Vec::new() };
        let within = |range: Range<u64>| range.start..range.end.min(file.size());
        let requests = columns.requests(offset..end, || file.stream_budget()).into_iter().map(within);
        requests.filter(|range| !range.is_empty()).collect()
    }

    /// The columns of the version that `file` reads.
    fn columns_of(&self, file: &File) -> Option<&Arc<Columns>> {
        self.columns.as_ref().filter(|columns| columns.version == file.version())
    }

    fn opening(&self) -> Opening {
        opening(&self.file(), self.writes)
    }
}

fn opening(file: &File, writes: bool) -> Opening {
    Opening { identity: file.identity(), version: file.version(), size: file.size(), writes }
}

/// Result of a lookup for the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) attributes: FileAttr,
    /// Time to live of the attributes.
    pub(crate) ttl: Duration,
    /// Time to live of the name.
    pub(crate) name_ttl: Duration,
}

impl Operations {
    pub(crate) fn new(
        layout: Layout,
        options: MountOptions,
        defaults: Defaults,
        (listener, keeps_names): (Listener, bool),
    ) -> Result<Self, Error> {
        let root = layout.root().clone();
        let opens_known = opens_known_versions(keeps_names, &options);
        let siblings = opens_known.then(|| SiblingReadahead::new(layout.store(), 1, options.journal_events));
        Ok(Self {
            layout,
            options,
            inodes: Inodes::new(root),
            buffers: Buffers::default(),
            order: Order::default(),
            files: Handles::new(),
            directories: Handles::new(),
            defaults,
            listener,
            warned: AtomicBool::new(false),
            stamps: Stamps::default(),
            deferred: Deferred::default(),
            closings: Closings::default(),
            advised: advice::Advised::default(),
            changes: AtomicU64::new(0),
            device: OnceLock::new(),
            notifier: OnceLock::new(),
            keeps_names,
            siblings,
            columns: AllColumns::default(),
        })
    }

    /// Whether an open may send no request.
    fn opens_known_versions(&self) -> bool {
        opens_known_versions(self.keeps_names, &self.options)
    }

    /// While the guard lives, decisions of this thread name this process. `None` if none are
    /// written.
    fn acting_for(&self, process: u32) -> Option<ActingFor> {
        self.layout.store().decisions().map(|_| ActingFor::process(process))
    }

    fn kernel_file(&self, inode: u64) -> KernelFile {
        KernelFile { device: self.device.get().copied(), inode: self.inodes.shown(inode) }
    }

    /// Whether the mount is writable.
    pub(crate) fn is_writable(&self) -> bool {
        self.defaults.writable
    }

    /// Whether the store is a file system, with owners, links and extended attributes.
    pub(crate) fn is_file_system(&self) -> bool {
        self.inodes.last(crate::inodes::ROOT).is_some_and(|root| root.unix.is_some())
    }

    /// Looks up a name in a directory and counts a lookup. A request for the name may have what
    /// programs `will_read` first of its file, too.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr, will_read: WillRead) -> Result<Found, Errno> {
        let _guard = self.order.lookup(parent);
        let mut tries = OVERTAKEN_MAX;
        loop {
            let since = self.inodes.changes_at(parent, name);
            let path = self.child(parent, name)?;
            let entry = self.layout.lookup(&path, will_read).map_err(|error| self.fail(&path, &error))?;
            tries -= 1;
            if tries == 0 || !self.inodes.is_overtaken(parent, name, &entry, since) {
                return self.remember(parent, name, &entry);
            }
        }
    }

    /// Counts a lookup of `entry`, called `name` in a directory.
    pub(crate) fn remember(&self, parent: u64, name: &OsStr, entry: &Entry) -> Result<Found, Errno> {
        let number = self.inodes.remember(parent, name, entry).ok_or(Errno::ESTALE)?;
        let known = entry.partial.then(|| self.inodes.last(number)).flatten();
        let entry = known.as_ref().unwrap_or(entry);
        let attributes = self.shown(number, entry);
        // The reply has a single field for the kernel's inode number and the one for
        // `stat`. If they differ, or the listing has only some attributes, `stat` must send a
        // request.
        let has_all = self.inodes.shown(number) == number && !entry.partial;
        let name_ttl = self.ttl_of(entry);
        let ttl = if has_all { self.trust(number).min(name_ttl) } else { Duration::ZERO };
        Ok(Found { attributes, ttl, name_ttl })
    }

    /// How long the kernel may keep an entry: no longer than the store's knowledge of it is valid.
    fn ttl_of(&self, entry: &Entry) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        entry.validity.0.map_or(self.options.ttl, |until| left(until).min(self.options.ttl))
    }

    /// How long the kernel may cache that a name does not exist. 0 for a store that keeps names: it
    /// answers a second lookup itself.
    pub(crate) fn negative_ttl(&self) -> Duration {
        if self.keeps_names { Duration::ZERO } else { self.options.ttl }
    }

    /// As [`trust`](Self::trust), for the attributes that the inode has now.
    pub(crate) fn ttl_of_inode(&self, inode: u64) -> Duration {
        self.inodes.last(inode).map_or(Duration::ZERO, |entry| self.ttl_of(&entry))
    }

    /// Converts a store's entry to an inode's attributes.
    fn shown(&self, inode: u64, entry: &Entry) -> FileAttr {
        let entry = self.stamps.shown(inode, entry.clone());
        let entry = self.deferred.shown(entry, || self.inodes.path(inode));
        self.defaults.attributes(inode, &entry)
    }

    /// Reads a symbolic link.
    pub(crate) fn read_link(&self, inode: u64) -> Result<PathBuf, Errno> {
        let (path, _guard) = self.path(inode)?;
        let target = self.layout.read_link(&path).map_err(|error| self.fail(&path, &error))?;
        // The kernel accepts at most a page including the final NUL; an empty target is invalid.
        if (1..LINK_BYTES_MAX).contains(&target.as_os_str().len()) { Ok(target) } else { Err(Errno::EIO) }
    }

    /// The path of an inode, valid while the lock guard is held.
    fn path(&self, inode: u64) -> Result<(PathBuf, NamesGuard<'_>), Errno> {
        loop {
            let parent = self.inodes.parent(inode).ok_or_else(|| self.unlinked(inode))?;
            let guard = self.order.lookup(parent);
            // Renamed meanwhile: lock the new parent instead.
            if self.inodes.parent(inode) == Some(parent) {
                return Ok((self.inodes.path(inode).ok_or_else(|| self.unlinked(inode))?, guard));
            }
        }
    }

    /// The error for an inode without a path. ENOENT if it was removed through the mount. ESTALE if
    /// it was changed from outside: the kernel then looks the name up again.
    fn unlinked(&self, inode: u64) -> Errno {
        let links = self.inodes.last(inode).and_then(|entry| entry.unix).map(|unix| unix.links);
        if links == Some(0) { Errno::ENOENT } else { Errno::ESTALE }
    }

    /// The path of a name in a directory, which the caller has locked.
    fn child(&self, parent: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.inodes.child_path(parent, name).ok_or_else(|| self.unlinked(parent))
    }

    /// Records a change.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports once that the store cannot distinguish versions of its files.
    fn caution(&self, path: &Path, identity: &Identity) {
        let Some(what) = identity.weakness().filter(|_| self.options.warns_unversioned) else { return };
        if self.warned.swap(true, Ordering::Relaxed) {
            return;
        }
        (self.listener)(path, Told::Unversioned(what));
    }

    fn fail<E: Clone + Into<Error>>(&self, path: &Path, error: &E) -> Errno {
        let error = &error.clone().into();
        if !is_ordinary(error.kind()) {
            (self.listener)(path, Told::Failed(error));
        }
        errno(error)
    }
}

/// Whether an open may send no request, where the store keeps names.
fn opens_known_versions(keeps_names: bool, options: &MountOptions) -> bool {
    keeps_names && options.consistency == Consistency::Ttl
}

/// Maximum bytes of a symbolic link's target including its final NUL.
const LINK_BYTES_MAX: usize = 4096;
