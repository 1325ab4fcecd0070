//! Stores: trees of objects that can be read and, in some stores, written.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::write::{OpenWrite, Owner, Rename, Seek, SetAttributes, SetXattr, StatFs, Upload};
use crate::{
    Attributes, Entry, EntryKind, Error, ErrorKind, Identity, Profile, ReadBuf, Result, WriteObject,
};

/// A store: a tree of objects.
///
/// Paths are relative, `/`-separated and normal (no `.`, `..` or empty parts); the empty path is
/// the root. If the URL names a single object, the root is that object. No path leads out of the
/// store, whatever links are in it.
///
/// By default, operations that change a store fail: as `ReadOnly` where [`Profile::writes`] is
/// `No`, as `Unsupported` elsewhere. A call has taken effect when it returns. For durability, see
/// [`sync_directory`](Self::sync_directory) for names and [`WriteObject::sync`] for bytes.
pub trait Backend: Debug + Send + Sync {
    /// The URL this store was opened with, without credentials; for messages.
    fn url(&self) -> &str;

    /// Properties that the engine needs to use this store well.
    fn profile(&self) -> Profile;

    /// Describes one entry. Blocks.
    ///
    /// # Errors
    /// `NotFound` if there is none; other kinds as the store says.
    fn stat(&self, path: &Path) -> Result<Entry>;

    /// Requests the root once, with the usual retries, and fails if it cannot be read. A mount
    /// calls it first, so that a wrong URL is an error. Returns a note on the store for users, if
    /// there is one, as a sentence without a capital and a full stop. Blocks.
    ///
    /// # Errors
    /// As [`stat`](Self::stat) of the root.
    fn probe(&self) -> Result<Option<String>> {
        self.stat(Path::new("")).map(|_| None)
    }

    /// Lists a directory in byte order of names. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported` where the store cannot list (plain HTTP).
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;

    /// Passes the entries of a directory to `found` as the store lists them, so that the first
    /// entries arrive early; with `recursive`, also those of its subdirectories. Paths are relative
    /// to `path`. Within a page of the store, entries come in byte order, and a directory precedes
    /// its contents. With `recursive`, object stores list no directories except markers. A
    /// subdirectory that cannot be listed is passed as an error. Returns how many names were
    /// omitted because they are no paths. Blocks.
    ///
    /// # Errors
    /// As [`list`](Self::list), of `path` itself.
    fn walk(&self, path: &Path, recursive: bool, found: &mut FoundEntry<'_>) -> Result<u64> {
        let mut open = vec![(PathBuf::new(), self.list(path)?.into_iter())];
        while let Some((directory, entries)) = open.last_mut() {
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            let below = directory.join(&entry.name);
            let enters = recursive && entry.kind == EntryKind::Directory;
            if found(&below, Ok(entry)).is_break() {
                break;
            }
            if !enters {
                continue;
            }
            // A server may show endlessly nested directories.
            let listed = if below.as_os_str().len() > WALK_PATH_BYTES_MAX {
                let message = format!("{}: the path is too long", crate::path::place(self.url(), &below));
                Err(Error::new(ErrorKind::NameTooLong, message))
            } else {
                self.list(&path.join(&below))
            };
            match listed {
                Ok(entries) => open.push((below, entries.into_iter())),
                Err(error) => {
                    if found(&below, Err(error)).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(0)
    }

    /// Reads a symbolic link. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without links (the default).
    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Err(Error::new(ErrorKind::Unsupported, format!("{}: this store has no links", path.display())))
    }

    /// Opens an object for reading and fixes its identity and size. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>>;

    /// Opens an object for writing. Does not follow a link at the end of `path`. Blocks.
    ///
    /// # Errors
    /// `NotFound` without `create`, `Exists` with `exclusive`, `IsADirectory`, and as the store
    /// says.
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let _ = how;
        Err(refused(self, path, "open for writing"))
    }

    /// Creates a directory with these permission bits (the caller applies the umask). Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let _ = (mode, owner);
        Err(refused(self, path, "make a directory"))
    }

    /// Removes an entry that is not a directory. In file systems, open handles keep its bytes.
    /// Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn remove_file(&self, path: &Path) -> Result<()> {
        Err(refused(self, path, "remove"))
    }

    /// Removes an empty directory. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, and as the store says.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        Err(refused(self, path, "remove a directory"))
    }

    /// Renames an entry within this store. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `CrossDevice`, `Invalid` (a directory into itself), and as
    /// the store says.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let _ = (to, how);
        Err(refused(self, from, "rename"))
    }

    /// As [`rename`](Self::rename), and changes attributes of the renamed entry. Blocks.
    ///
    /// # Errors
    /// As `rename` and [`set_attributes`](Self::set_attributes).
    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.set_attributes(from, attributes)?;
        self.rename(from, to, how)
    }

    /// Creates a second name for the file `from`. Does not follow links. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `CrossDevice`, and as the store says.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = to;
        Err(refused(self, from, "link"))
    }

    /// Creates a symbolic link at `path` to `target`, which may be any text. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let _ = (target, owner);
        Err(refused(self, path, "make a link"))
    }

    /// Creates an empty file or a special one. `special_device` is the device number of device
    /// files, and 0 otherwise. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, `Invalid` for directories and links, and as
    /// the store says.
    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        let _ = (kind, mode, special_device, owner);
        Err(refused(self, path, "make a special file"))
    }

    /// Changes attributes of an entry; for a link, its own. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, and as the store says.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(refused(self, path, "change attributes"))
    }

    /// Reads an extended attribute; for a link, its own. Blocks.
    ///
    /// # Errors
    /// `NoAttribute`, `Unsupported` for stores without them (the default).
    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let _ = name;
        Err(unsupported(path, "extended attributes"))
    }

    /// Lists the names of the extended attributes. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without them (the default).
    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        Err(unsupported(path, "extended attributes"))
    }

    /// Sets an extended attribute. Blocks.
    ///
    /// # Errors
    /// `Exists` and `NoAttribute` as `how` wants it, and as the store says.
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (name, value, how);
        Err(refused(self, path, "set an extended attribute"))
    }

    /// Removes an extended attribute. Blocks.
    ///
    /// # Errors
    /// `NoAttribute`, and as the store says.
    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        let _ = name;
        Err(refused(self, path, "remove an extended attribute"))
    }

    /// Total and free space. Blocks.
    ///
    /// # Errors
    /// `Unsupported` where the store does not know (the default).
    fn statfs(&self) -> Result<StatFs> {
        Err(unsupported(Path::new(""), "room to tell of"))
    }

    /// Returns when the names in a directory are durable. Blocks.
    ///
    /// # Errors
    /// As the store says. Stores whose names are durable at once succeed (the default).
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// Counters of a disk cache in front of the store; `None` without one (the default).
    fn disk(&self) -> Option<crate::DiskStats> {
        None
    }

    /// Counters of requests over the network, and of failures; `None` for stores without a network
    /// (the default).
    fn network(&self) -> Option<crate::NetworkStats> {
        None
    }

    /// Unfinished uploads of any program, neither finished nor aborted; none for stores without
    /// uploads (the default). Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        Ok(Vec::new())
    }

    /// Aborts an upload that [`stray_uploads`](Self::stray_uploads) listed. Blocks.
    ///
    /// # Errors
    /// As the store says. One that no longer exists is `NotFound` in some stores, and aborted in
    /// others.
    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        Err(unsupported(&upload.path, "uploads"))
    }
}

/// Receives an entry of [`Backend::walk`] and its path, or the error of a directory at that path. A
/// break ends the walk.
pub type FoundEntry<'a> = dyn FnMut(&Path, Result<Entry>) -> ControlFlow<()> + 'a;

/// Longest path in bytes that the default [`Backend::walk`] descends into: Linux's `PATH_MAX`.
const WALK_PATH_BYTES_MAX: usize = 4096;

/// An open object: bytes of a known size and identity.
pub trait Object: Debug + Send + Sync {
    /// Size in bytes, as of `open`.
    fn size(&self) -> u64;

    /// Identity of this version of the object, as of `open`.
    fn identity(&self) -> &Identity;

    /// Starts reading `buf.len()` bytes at `offset` and returns without waiting for the store.
    ///
    /// The response comes through `sink`, on a thread of the backend, possibly before this call
    /// returns: any number of [`ReadSink::progress`] calls, then [`ReadSink::done`] exactly once,
    /// in every case. `done` returns the buffer; until then only the store accesses it. A read past
    /// the end of the object returns the bytes up to the end. `Ok(n)` with a smaller `n` is a short
    /// read: the store stopped early, and the caller requests the rest.
    ///
    /// If the object is no longer the version that was opened, the read fails with
    /// [`ErrorKind::Changed`]; one read never returns bytes of two versions.
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>);

    /// As [`read`](Self::read), for a caller that waits for the bytes in any case. The store may
    /// block this thread, where that saves thread switches. By default it does not.
    fn read_here(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.read(offset, buf, sink);
    }

    /// Passes bytes of this version that an earlier process has read, so that checksums of larger
    /// ranges can be verified when the rest is read. By default nothing is verified. May block.
    ///
    /// # Errors
    /// `Corrupt` if the store's checksums show that they are not the store's bytes.
    fn recall(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// The first data or hole at or after `offset`. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without holes (the default): then all is data. The errno `ENXIO` if
    /// none follows.
    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let _ = (offset, what);
        Err(Error::new(ErrorKind::Unsupported, "cannot look for holes: this store has none"))
    }

    /// Offset of the object on its device, in bytes, for stores with
    /// [`Profile::seeks`](crate::Profile::seeks). Used only to order requests, so a guess suffices,
    /// and objects may appear to overlap.
    fn place(&self) -> u64 {
        0
    }

    /// Reopens the object for reading, with its current identity and size, whatever its names are
    /// now; `None` where objects are found only by name (the default). Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        None
    }

    /// The file's attributes through the open handle, where the store is a file system.
    fn attributes(&self) -> Option<&dyn Attributes> {
        None
    }
}

/// Receives the progress of a read. Called on the backend's threads: be quick and never block.
///
/// Bytes that `progress` reported as final belong to the reader: the store must not access them again.
/// A sink that is dropped without `done` counts as a failed read. If memory is not back at the end of
/// the read, because it may still be written, it is leaked to the store until the last piece of the
/// buffer is dropped.
pub trait ReadSink: Send {
    /// The first `bytes` bytes of the buffer are final. Grows from call to call.
    fn progress(&mut self, bytes: usize);

    /// The read ended: the first `n` bytes are final, or it failed. Returns the buffer.
    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>);

    /// When the read must have ended: a store behind a network then fails it as
    /// [`ErrorKind::TimedOut`]. Called when the read begins and at least once in each of the
    /// store's time-outs, since a speculative read may get a deadline later. None by default.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Becomes true when the read is no longer needed, if that can happen: then a store may drop
    /// it, with the sink. Called once, when the read begins.
    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// The error of an unsupported change.
fn refused<B: Backend + ?Sized>(store: &B, path: &Path, what: &str) -> Error {
    let place = crate::path::place(store.url(), path);
    if store.profile().writes == crate::Writes::No {
        Error::new(ErrorKind::ReadOnly, format!("{place}: cannot {what}: this store is only read"))
    } else {
        Error::new(ErrorKind::Unsupported, format!("{place}: cannot {what}: this store has no such thing"))
    }
}

fn unsupported(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{}: this store has no {what}", path.display()))
}
