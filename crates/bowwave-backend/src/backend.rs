//! What a store is: a tree of objects that can be read and, for some, written.

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
/// Paths are relative, `/`-separated and normal (no `.`, `..` or empty parts); the empty path is the root.
/// If the URL named a single object, the root is that object. No path leads out of the store, whatever links are in it.
///
/// What changes a store is refused by default: as `ReadOnly` where [`Profile::writes`] is `No`, and as `Unsupported`
/// where it is not. A call that returns has happened; whether it outlives a loss of power is said by
/// [`sync_directory`](Self::sync_directory) for names and by [`WriteObject::sync`] for bytes.
pub trait Backend: Debug + Send + Sync {
    /// The URL this store was opened with, without credentials; for messages.
    fn url(&self) -> &str;

    /// What the engine must know to use this store well.
    fn profile(&self) -> Profile;

    /// Describes one entry. Blocks.
    ///
    /// # Errors
    /// `NotFound` if nothing stands there; any other kind as the store says.
    fn stat(&self, path: &Path) -> Result<Entry>;

    /// Requests the root once, with the usual retries, and fails if nothing can be read there: a mount asks before it is
    /// made, so that a wrong URL is an error and no mount. Returns what a user should know of the store, if there is
    /// something, as a sentence without a capital and a full stop. Blocks.
    ///
    /// # Errors
    /// As [`stat`](Self::stat) of the root.
    fn probe(&self) -> Result<Option<String>> {
        self.stat(Path::new("")).map(|_| None)
    }

    /// Lists a folder in byte order of names. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported` where the store cannot list (plain HTTP).
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;

    /// Passes the entries of a directory to `found` as the store lists them, so that the first ones do not wait for the last;
    /// with `recursive`, those of the directories in it, too. Paths are relative to `path`. Within a page of the store they come
    /// in byte order, and a directory precedes what is in it; object stores list no directories with `recursive`, except
    /// markers. A subdirectory that cannot be listed is passed as an error. Returns how many names were left out because they
    /// are no paths. Blocks.
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
            // A server may show directories inside each other without end.
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

    /// Opens an object for writing. The final part of `path` is not followed if it is a link. Blocks.
    ///
    /// # Errors
    /// `NotFound` without `create`, `Exists` with `exclusive`, `IsADirectory`, and as the store says.
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let _ = how;
        Err(refused(self, path, "open for writing"))
    }

    /// Makes a folder with these permission bits (the umask is the caller's). Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn make_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let _ = (mode, owner);
        Err(refused(self, path, "make a folder"))
    }

    /// Removes what is not a folder. Who has it open keeps its bytes where the store is a file system. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn remove_file(&self, path: &Path) -> Result<()> {
        Err(refused(self, path, "remove"))
    }

    /// Removes an empty folder. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, and as the store says.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        Err(refused(self, path, "remove a folder"))
    }

    /// Gives an entry another name, in this store. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `CrossDevice`, `Invalid` (a folder into itself), and as the store says.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let _ = (to, how);
        Err(refused(self, from, "rename"))
    }

    /// As [`rename`](Self::rename), and changes attributes of what has the new name then. Blocks.
    ///
    /// # Errors
    /// As `rename` and [`set_attributes`](Self::set_attributes).
    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.set_attributes(from, attributes)?;
        self.rename(from, to, how)
    }

    /// Gives the file `from` a second name. Links are not followed. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `CrossDevice`, and as the store says.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = to;
        Err(refused(self, from, "link"))
    }

    /// Makes a symbolic link at `path` that holds `target`, which may be any text. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let _ = (target, owner);
        Err(refused(self, path, "make a link"))
    }

    /// Makes an empty file or a special one; `special_device` is the number of the device for device files, 0 for all
    /// else. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, `Invalid` for folders and links, and as the store says.
    fn make_node(
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

    /// Changes attributes of an entry; of a link those of the link itself. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, and as the store says.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(refused(self, path, "change attributes"))
    }

    /// Reads an extended attribute; of a link that of the link itself. Blocks.
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

    /// How much room there is. Blocks.
    ///
    /// # Errors
    /// `Unsupported` where the store does not know (the default).
    fn statfs(&self) -> Result<StatFs> {
        Err(unsupported(Path::new(""), "room to tell of"))
    }

    /// Returns when the names in a folder are safe from a loss of power. Blocks.
    ///
    /// # Errors
    /// As the store says. Stores whose names are safe at once succeed (the default).
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// What a disk cache in front of the store has done; `None` if there is none (the default).
    fn disk(&self) -> Option<crate::DiskStats> {
        None
    }

    /// What was requested of the store over the network, and how often in vain; `None` for stores without one (the default).
    fn network(&self) -> Option<crate::NetworkStats> {
        None
    }

    /// Uploads that were begun and neither finished nor aborted, of this or other programs; none for stores without
    /// uploads (the default). Blocks.
    ///
    /// # Errors
    /// As the store says.
    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        Ok(Vec::new())
    }

    /// Aborts an upload that [`stray_uploads`](Self::stray_uploads) has shown. Blocks.
    ///
    /// # Errors
    /// As the store says; one that is gone is `NotFound` to some stores, and aborted to others.
    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        Err(unsupported(&upload.path, "uploads"))
    }
}

/// Takes an entry of [`Backend::walk`] and its path, or the error of a directory at that path; a break ends the walk.
pub type FoundEntry<'a> = dyn FnMut(&Path, Result<Entry>) -> ControlFlow<()> + 'a;

/// Longest path that [`Backend::walk`] descends into by itself, in bytes: Linux's `PATH_MAX`.
const WALK_PATH_BYTES_MAX: usize = 4096;

/// An open object: bytes of a known size and identity.
pub trait Object: Debug + Send + Sync {
    /// Size in bytes, as of `open`.
    fn size(&self) -> u64;

    /// What makes these bytes these bytes, as of `open`.
    fn identity(&self) -> &Identity;

    /// Starts reading `buf.len()` bytes at `offset` and returns without waiting for the store.
    ///
    /// The answer comes through `sink`, on a thread of the backend, possibly before this call returns:
    /// any number of [`ReadSink::progress`], then [`ReadSink::done`] exactly once, whatever happens.
    /// The buffer comes back with `done`; until then nobody else touches it. A read that reaches past the end
    /// of the object gives the bytes up to the end; `Ok(n)` with `n` short of both means the store stopped
    /// early (a short read), and the caller asks again for the rest.
    ///
    /// If the object is no longer the one that was opened, the read fails with [`ErrorKind::Changed`]; bytes of
    /// two versions never meet.
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>);

    /// The same, by a caller that has nothing else to do until the bytes are there: the store may have this thread wait for
    /// them, where that saves it switches between threads. By default it does not.
    fn read_here(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.read(offset, buf, sink);
    }

    /// Tells the store bytes of this version that an earlier process has read, so that checksums of larger ranges are compared
    /// all the same when the rest is read. By default nothing is compared. May block.
    ///
    /// # Errors
    /// `Corrupt` if they are not the store's, as far as its checksums tell.
    fn recall(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// The first place at or behind `offset` that is data or a hole. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without holes (the default): then all is data. `ENXIO`, as an errno, where nothing of that
    /// sort follows.
    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let _ = (offset, what);
        Err(Error::new(ErrorKind::Unsupported, "cannot look for holes: this store has none"))
    }

    /// Where the object begins on its device, in bytes from the beginning of that, for stores whose
    /// [`Profile::seeks`](crate::Profile::seeks). Used to put requests in order and for nothing else, so a guess will do,
    /// and objects may seem to overlap.
    fn place(&self) -> u64 {
        0
    }

    /// The same object opened anew for reading, with its identity and size as of now, whatever its names are by then; `None`
    /// where only names lead to objects (the default). Blocks.
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

/// Hears how a read goes. Called on the backend's threads: be quick and never block.
///
/// What `progress` has called final is the reader's from then on: nobody may touch those bytes again. A sink that is
/// dropped without `done` counts as a failed read. Memory that has not come back when the read has ended, because
/// something may still write to it, is the store's until the last piece of the buffer is dropped.
pub trait ReadSink: Send {
    /// The first `bytes` bytes of the buffer are final. Grows from call to call.
    fn progress(&mut self, bytes: usize);

    /// The read has ended: the first `n` bytes are final, or it failed. Gives the buffer back.
    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>);

    /// When the read must have ended: a store behind a network then fails it as [`ErrorKind::TimedOut`]. Asked when the read
    /// begins and at least once in each of the store's time-outs, for a speculative read may get a deadline later.
    /// None by default.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Becomes true when nobody wants the read any more, if that may happen: then a store that can stop may drop it, with
    /// the sink. Asked once, when the read begins.
    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// The error of a change that the store does not do.
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
