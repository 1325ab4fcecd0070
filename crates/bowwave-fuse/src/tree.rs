//! What a mount shows: a tree, and files that can be read, and perhaps written, at any offset.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bowwave_engine::backend::{
    Allocate, Entry, EntryKind, Error, ErrorKind, Identity, Owner, Rename, Result, SetAttributes, SetXattr,
    StatFs, Writes,
};

/// A tree of files; the engine's view of one store.
///
/// Paths are relative, `/`-separated and normal; the empty path is the root. If the root is a single object, the
/// mount shows a folder with that one file in it. All methods may block: the mount calls them from many threads.
///
/// Whatever changes the tree is refused as `ReadOnly` by default.
pub trait Tree: Send + Sync + 'static {
    /// An open file.
    type File: OpenFile;

    /// The URL of the store, without credentials: `mount` and `df` show it as the source, and its last part names
    /// the file of a store that is a single object.
    fn url(&self) -> &str;

    /// Describes one entry.
    ///
    /// # Errors
    /// `NotFound` if nothing stands there; any other kind as the store says.
    fn stat(&self, path: &Path) -> Result<Entry>;

    /// Lists a folder.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported`, and as the store says.
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;

    /// Reads a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported`, and as the store says.
    fn read_link(&self, path: &Path) -> Result<PathBuf>;

    /// Opens a file for reading. Every open has a readahead state of its own.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn open(&self, path: &Path) -> Result<Self::File>;

    /// What can be written. With `No` the mount is read-only, whatever its options say.
    fn writes(&self) -> Writes {
        Writes::No
    }

    /// Opens a file for reading and writing, and makes it if `new` says so: then it must not exist.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `IsADirectory`, and as the store says.
    fn open_write(&self, path: &Path, new: Option<NewFile>) -> Result<Self::File> {
        let _ = new;
        Err(refused(path))
    }

    /// Cuts or extends a file that is not open.
    ///
    /// # Errors
    /// As the store says.
    fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        let _ = len;
        Err(refused(path))
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// `Exists`, and as the store says.
    fn make_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let _ = (mode, owner);
        Err(refused(path))
    }

    /// Removes what is not a folder; open files go on.
    ///
    /// # Errors
    /// `NotFound`, and as the store says.
    fn remove_file(&self, path: &Path) -> Result<()> {
        Err(refused(path))
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, and as the store says.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        Err(refused(path))
    }

    /// Gives an entry another name.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `CrossDevice`, and as the store says.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let _ = (to, how);
        Err(refused(from))
    }

    /// As [`rename`](Self::rename), and changes attributes of what has the new name then.
    ///
    /// # Errors
    /// As `rename` and [`set_attributes`](Self::set_attributes).
    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        self.set_attributes(from, attributes)?;
        self.rename(from, to, how)
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `Exists`, and as the store says.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = from;
        Err(refused(to))
    }

    /// Makes a symbolic link at `path`.
    ///
    /// # Errors
    /// `Exists`, and as the store says.
    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let _ = (target, owner);
        Err(refused(path))
    }

    /// Makes an empty or special file.
    ///
    /// # Errors
    /// `Exists`, and as the store says.
    fn make_node(
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

    /// Changes attributes; of a link those of the link itself. With nothing to change it is noted as a change all the
    /// same.
    ///
    /// # Errors
    /// As the store says.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let _ = attributes;
        Err(refused(path))
    }

    /// Reads an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; `Unsupported` where there are none (the default).
    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let _ = name;
        Err(unsupported(path))
    }

    /// Lists the names of the extended attributes.
    ///
    /// # Errors
    /// `Unsupported` where there are none (the default).
    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        Err(unsupported(path))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` and `NoAttribute` as `how` wants it, and as the store says.
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (name, value, how);
        Err(refused(path))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, and as the store says.
    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        let _ = name;
        Err(refused(path))
    }

    /// How much room there is, for `df`.
    ///
    /// # Errors
    /// `Unsupported` where the store does not know (the default).
    fn statfs(&self) -> Result<StatFs> {
        Err(unsupported(Path::new("")))
    }

    /// Returns when the names in a folder are safe.
    ///
    /// # Errors
    /// As the store says.
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// Writes out all that has been written and is still in memory, and makes it safe. The mount calls it at its end.
    ///
    /// # Errors
    /// The first error; the rest is written all the same.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// How to make a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Permission bits; the umask has been applied.
    pub mode: u32,
    /// Whose it is to be; `None` for whoever runs the mount.
    pub owner: Option<Owner>,
    /// Whether nothing of the name must be there when it is published, either; for [`Writes::Whole`].
    pub exclusive: bool,
}

/// An open file.
pub trait OpenFile: Send + Sync + 'static {
    /// Size in bytes, as of now.
    fn size(&self) -> u64;

    /// What makes these bytes these bytes. Pages that the kernel keeps are good for as long as it stays equal.
    fn identity(&self) -> Identity;

    /// A number that is the same for two handles only if they read the same bytes. What is written through the mount
    /// leaves it as it is.
    fn version(&self) -> u64;

    /// Fills `buf` from `offset` on and says how many bytes it wrote; fewer than `buf.len()` at the end only.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the one that was opened; any other kind as the store says.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes `buf` at `offset` and says how many bytes it took.
    ///
    /// # Errors
    /// As the store says, also of what was written before. `Unsupported` where only whole objects can be written and
    /// `offset` is not the end.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        let _ = (offset, buf);
        Err(refused(Path::new("")))
    }

    /// Writes `buf` at the end and says how many bytes it took.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn append(&self, buf: &[u8]) -> Result<usize> {
        self.write_at(self.size(), buf)
    }

    /// Whether something was written that the store does not have yet.
    fn is_dirty(&self) -> bool {
        false
    }

    /// Hands all that was written to the store; for `close`.
    ///
    /// # Errors
    /// Of this and of writes before, each once.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// As [`flush`](Self::flush); with [`Writes::Whole`] publishes an object that nobody has written to, too: whoever opened
    /// it to have it so will not.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_untouched(&self) -> Result<()> {
        self.flush()
    }

    /// As [`flush`](Self::flush), for who then makes it safe: before what nobody waits for.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_for_sync(&self) -> Result<()> {
        self.flush()
    }

    /// Nothing more will be written; with [`Writes::Whole`] publishes an object that nothing was written to, too. Does
    /// nothing the second time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn end_writing(&self) -> Result<()> {
        self.flush()
    }

    /// Nothing more will be written, and what was not published is not to be.
    fn abandon(&self) {}

    /// Returns when all that was written is safe; with `data_only` times may be left out.
    ///
    /// # Errors
    /// Of this and of writes before, each once.
    fn sync(&self, data_only: bool) -> Result<()> {
        let _ = data_only;
        Ok(())
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As the store says.
    fn set_len(&self, len: u64) -> Result<()> {
        let _ = len;
        Err(refused(Path::new("")))
    }

    /// Reserves room, gives it back or makes it read as zeros.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot.
    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (offset, len, how);
        Err(unsupported(Path::new("")))
    }

    /// Describes the file, whether or not it has a name any more.
    ///
    /// # Errors
    /// `Unsupported` where only paths can be asked about (the default).
    fn attributes(&self) -> Result<Entry> {
        Err(unsupported(Path::new("")))
    }

    /// Changes attributes of the file, whether or not it has a name any more.
    ///
    /// # Errors
    /// `Unsupported` where only paths can be asked about (the default).
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
