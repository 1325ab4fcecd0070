//! The interface between a mount and its store: a tree of files with random access.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bowwave_engine::backend::{
    Allocate, Entry, EntryKind, Error, ErrorKind, Identity, Owner, Rename, Result, SetAttributes, SetXattr,
    StatFs, Writes,
};

/// A tree of files: the engine's view of one store.
///
/// Paths are relative, `/`-separated and normal; the empty path is the root. If the root is a
/// single object, the mount shows a directory with that one file. All methods may block: the mount
/// calls them from many threads.
///
/// Methods that change the tree fail with `ReadOnly` by default.
pub trait Tree: Send + Sync + 'static {
    /// An open file.
    type File: OpenFile;

    /// The URL of the store, without credentials. `mount` and `df` show it as the source. Its last
    /// component names the file of a store that is a single object.
    fn url(&self) -> &str;

    /// Returns the attributes of one entry.
    ///
    /// # Errors
    /// `NotFound` if there is no such entry; otherwise the store's error.
    fn stat(&self, path: &Path) -> Result<Entry>;

    /// Lists a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported`; otherwise the store's error.
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;

    /// Reads a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported`; otherwise the store's error.
    fn read_link(&self, path: &Path) -> Result<PathBuf>;

    /// Opens a file for reading. Each handle has its own readahead state.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`; otherwise the store's error.
    fn open(&self, path: &Path) -> Result<Self::File>;

    /// Kind of writes supported. With `No` the mount is read-only regardless of its options.
    fn writes(&self) -> Writes {
        Writes::No
    }

    /// Opens a file for reading and writing. Creates it if `new` is given; then it must not exist.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `IsADirectory`; otherwise the store's error.
    fn open_write(&self, path: &Path, new: Option<NewFile>) -> Result<Self::File> {
        let _ = new;
        Err(refused(path))
    }

    /// Truncates or extends a file that is not open.
    ///
    /// # Errors
    /// The store's error.
    fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        let _ = len;
        Err(refused(path))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// `Exists`; otherwise the store's error.
    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let _ = (mode, owner);
        Err(refused(path))
    }

    /// Removes an entry that is not a directory. Open handles stay valid.
    ///
    /// # Errors
    /// `NotFound`; otherwise the store's error.
    fn remove_file(&self, path: &Path) -> Result<()> {
        Err(refused(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`; otherwise the store's error.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        Err(refused(path))
    }

    /// Renames an entry.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `CrossDevice`; otherwise the store's error.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let _ = (to, how);
        Err(refused(from))
    }

    /// As [`rename`](Self::rename), and changes the attributes of the renamed entry.
    ///
    /// # Errors
    /// As `rename` and [`set_attributes`](Self::set_attributes).
    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.set_attributes(from, attributes)?;
        self.rename(from, to, how)
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// `Exists`; otherwise the store's error.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = from;
        Err(refused(to))
    }

    /// Creates a symbolic link at `path`.
    ///
    /// # Errors
    /// `Exists`; otherwise the store's error.
    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let _ = (target, owner);
        Err(refused(path))
    }

    /// Creates an empty or special file.
    ///
    /// # Errors
    /// `Exists`; otherwise the store's error.
    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        let _ = (kind, mode, special_device, owner);
        Err(refused(path))
    }

    /// Changes attributes; does not follow symbolic links. An empty change still updates the change
    /// time.
    ///
    /// # Errors
    /// The store's error.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(refused(path))
    }

    /// Reads an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; `Unsupported` if the store has none (the default).
    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let _ = name;
        Err(unsupported(path))
    }

    /// Lists the names of the extended attributes.
    ///
    /// # Errors
    /// `Unsupported` if the store has none (the default).
    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        Err(unsupported(path))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` and `NoAttribute` according to `how`; otherwise the store's error.
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (name, value, how);
        Err(refused(path))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; otherwise the store's error.
    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        let _ = name;
        Err(refused(path))
    }

    /// Total and available space, for `df`.
    ///
    /// # Errors
    /// `Unsupported` if the store does not report it (the default).
    fn statfs(&self) -> Result<StatFs> {
        Err(unsupported(Path::new("")))
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The store's error.
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// Writes out all dirty data and makes it durable. Called at the end of the mount.
    ///
    /// # Errors
    /// The first error; the remaining data is still written.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// Properties of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Permission bits; the umask has been applied.
    pub mode: u32,
    /// Owner of the file; `None` for the user who runs the mount.
    pub owner: Option<Owner>,
    /// Whether publishing fails if the name exists by then; for [`Writes::Whole`].
    pub exclusive: bool,
}

/// An open file.
pub trait OpenFile: Send + Sync + 'static {
    /// Current size in bytes.
    fn size(&self) -> u64;

    /// Identity of this version of the object. The kernel's pages are valid while it stays equal.
    fn identity(&self) -> Identity;

    /// A number that is equal for two handles only if they read the same bytes. Writes through the
    /// mount do not change it.
    fn version(&self) -> u64;

    /// Reads from `offset` into `buf` and returns the number of bytes; fewer than `buf.len()` only
    /// at the end of the file.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the opened version; otherwise the store's error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes `buf` at `offset` and returns the number of bytes accepted.
    ///
    /// # Errors
    /// The store's error, also of an earlier write.
    /// `Unsupported` if only whole objects can be written and `offset` is not the end.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        let _ = (offset, buf);
        Err(refused(Path::new("")))
    }

    /// Appends `buf` and returns the number of bytes accepted.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn append(&self, buf: &[u8]) -> Result<usize> {
        self.write_at(self.size(), buf)
    }

    /// Whether the store lacks some of the written bytes.
    fn is_dirty(&self) -> bool {
        false
    }

    /// Writes all dirty data to the store; for `close`.
    ///
    /// # Errors
    /// Errors of this and of earlier writes, each once.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// As [`flush`](Self::flush), but with [`Writes::Whole`] publishes an object without writes
    /// too: its last writable descriptor is closed.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_untouched(&self) -> Result<()> {
        self.flush()
    }

    /// As [`flush`](Self::flush), before a sync: takes priority over background writes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_for_sync(&self) -> Result<()> {
        self.flush()
    }

    /// Ends writing; with [`Writes::Whole`] publishes an object without writes too. Does nothing
    /// when called again.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn end_writing(&self) -> Result<()> {
        self.flush()
    }

    /// Ends writing and discards what was not published.
    fn abandon(&self) {}

    /// Returns when all written data is durable; with `data_only` times may be omitted.
    ///
    /// # Errors
    /// Errors of this and of earlier writes, each once.
    fn sync(&self, data_only: bool) -> Result<()> {
        let _ = data_only;
        Ok(())
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// The store's error.
    fn set_len(&self, len: u64) -> Result<()> {
        let _ = len;
        Err(refused(Path::new("")))
    }

    /// Allocates a range, punches a hole, or zeroes it.
    ///
    /// # Errors
    /// `Unsupported` if the store cannot.
    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (offset, len, how);
        Err(unsupported(Path::new("")))
    }

    /// Returns the file's attributes, even if it is unlinked.
    ///
    /// # Errors
    /// `Unsupported` if the store has attributes by path only (the default).
    fn attributes(&self) -> Result<Entry> {
        Err(unsupported(Path::new("")))
    }

    /// Changes the file's attributes, even if it is unlinked.
    ///
    /// # Errors
    /// `Unsupported` if the store has attributes by path only (the default).
    fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(unsupported(Path::new("")))
    }
}

fn refused(path: &Path) -> Error {
    Error::new(ErrorKind::ReadOnly, format!("{}: this store is only read", path.display()))
}

fn unsupported(path: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{}: this store has no such thing", path.display()))
}
