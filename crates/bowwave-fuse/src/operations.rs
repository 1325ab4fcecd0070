//! What each request does, apart from the form of requests and replies.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bowwave_engine::backend::{Entry, Error, ErrorKind};
use fuser::{Errno, FileAttr};

use crate::attributes::Defaults;
use crate::buffers::Buffers;
use crate::errno::{errno, is_everyday};
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::layout::Layout;
use crate::options::MountOptions;
use crate::tree::{OpenFile, Tree};

/// The state of a mount.
pub(crate) struct Operations<T: Tree> {
    pub(crate) layout: Layout<T>,
    pub(crate) options: MountOptions,
    pub(crate) inodes: Inodes,
    pub(crate) buffers: Buffers,
    files: Handles<OpenHandle<T::File>>,
    folders: Handles<FolderHandle>,
    defaults: Defaults,
}

struct OpenHandle<F> {
    inode: u64,
    path: Arc<Path>,
    file: F,
}

struct FolderHandle {
    path: Arc<Path>,
    /// Taken at the first read and after a rewind, so that one pass over a folder sees one listing.
    listing: Mutex<Option<Arc<Vec<Entry>>>>,
}

impl<T: Tree> Operations<T> {
    pub(crate) fn new(layout: Layout<T>, options: MountOptions, defaults: Defaults) -> Result<Self, Error> {
        let root = layout.stat(Path::new(""))?;
        Ok(Self {
            layout,
            options,
            inodes: Inodes::new(root),
            buffers: Buffers::default(),
            files: Handles::new(),
            folders: Handles::new(),
            defaults,
        })
    }

    /// Finds a name in a folder and counts a look-up.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.path(parent)?.join(name);
        let entry = self.layout.stat(&path).map_err(|error| self.fail(&path, &error))?;
        Ok(self.remember(&path, &entry))
    }

    /// Counts a look-up of `entry` at `path`.
    pub(crate) fn remember(&self, path: &Path, entry: &Entry) -> FileAttr {
        self.defaults.attributes(self.inodes.remember(path, entry), entry)
    }

    /// Asks the store anew about an inode. ESTALE if it holds something else there now: the kernel then looks the
    /// path up again.
    pub(crate) fn attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        let path = self.path(inode)?;
        let entry = self.layout.stat(&path).map_err(|error| self.fail(&path, &error))?;
        if self.inodes.refresh(inode, &entry) {
            Ok(self.defaults.attributes(inode, &entry))
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// Reads a symbolic link.
    pub(crate) fn read_link(&self, inode: u64) -> Result<std::path::PathBuf, Errno> {
        let path = self.path(inode)?;
        self.layout.read_link(&path).map_err(|error| self.fail(&path, &error))
    }

    /// Opens a file. ESTALE if it is not the version that the inode stands for: the kernel then looks the path up
    /// again and opens what it finds.
    pub(crate) fn open(&self, inode: u64) -> Result<u64, Errno> {
        let path = self.path(inode)?;
        let file = self.layout.open(&path).map_err(|error| self.fail(&path, &error))?;
        if !self.inodes.identify(inode, &file.identity(), file.size()) {
            return Err(Errno::ESTALE);
        }
        Ok(self.files.insert(OpenHandle { inode, path, file }))
    }

    /// Reads up to `size` bytes and gives them to `reply`. Never fewer than the file has there: the kernel takes
    /// a short read of its cache for the end of the file and fills up with zeros.
    pub(crate) fn read(&self, handle: u64, offset: u64, size: u32, reply: impl FnOnce(Result<&[u8], Errno>)) {
        let Some(open) = self.files.find(handle) else { return reply(Err(Errno::EBADF)) };
        let left = open.file.size().saturating_sub(offset);
        let len = usize::try_from(left.min(u64::from(size))).expect("size fits");
        self.buffers.lend(len, |buffer| match fill(&open.file, offset, buffer) {
            Ok(()) => reply(Ok(buffer)),
            Err(error) => {
                if error.kind() == ErrorKind::Changed {
                    self.inodes.outdate(open.inode);
                }
                reply(Err(self.fail(&open.path, &error)));
            }
        });
    }

    /// Closes a file.
    pub(crate) fn release(&self, handle: u64) {
        self.files.remove(handle);
    }

    /// Opens a folder.
    pub(crate) fn open_folder(&self, inode: u64) -> Result<u64, Errno> {
        Ok(self.folders.insert(FolderHandle { path: self.path(inode)?, listing: Mutex::default() }))
    }

    /// Path and listing of an open folder; a fresh listing at offset 0.
    pub(crate) fn listing(&self, handle: u64, offset: u64) -> Result<(Arc<Path>, Arc<Vec<Entry>>), Errno> {
        let folder = self.folders.find(handle).ok_or(Errno::EBADF)?;
        // The listing is replaced whole or not at all.
        let mut listing = folder.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = match &*listing {
            Some(entries) if offset > 0 => Arc::clone(entries),
            _ => {
                let entries =
                    self.layout.list(&folder.path).map_err(|error| self.fail(&folder.path, &error))?;
                Arc::clone(listing.insert(Arc::new(entries)))
            }
        };
        Ok((Arc::clone(&folder.path), entries))
    }

    /// Closes a folder.
    pub(crate) fn release_folder(&self, handle: u64) {
        self.folders.remove(handle);
    }

    /// Attributes as last seen, for the entries `.` and `..`.
    pub(crate) fn last_attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        let (_, entry) = self.inodes.find(inode).ok_or(Errno::ESTALE)?;
        Ok(self.defaults.attributes(inode, &entry))
    }

    fn path(&self, inode: u64) -> Result<Arc<Path>, Errno> {
        self.inodes.find(inode).map(|(path, _)| path).ok_or(Errno::ESTALE)
    }

    fn fail(&self, path: &Path, error: &Error) -> Errno {
        if !is_everyday(error.kind()) {
            self.layout.tree().failed(path, error);
        }
        errno(error.kind())
    }
}

fn fill(file: &impl OpenFile, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < buffer.len() {
        let count = file.read_at(offset + filled as u64, &mut buffer[filled..])?;
        if count == 0 {
            let message = format!("the file ended {} bytes early", buffer.len() - filled);
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        filled += count;
    }
    Ok(())
}
