//! What a mount shows: a read-only tree, and files that can be read at any offset.

use std::path::{Path, PathBuf};

use bowwave_engine::backend::{Entry, Error, Identity, Result};

/// A read-only tree of files; the engine's view of one store.
///
/// Paths are relative, `/`-separated and normal; the empty path is the root. If the root is a single object, the
/// mount shows a folder with that one file in it. All methods may block: the mount calls them from many threads.
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

    /// Opens a file. Every open has a readahead state of its own.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn open(&self, path: &Path) -> Result<Self::File>;

    /// Total size of the store in bytes, where it is known; for `df`.
    fn bytes_total(&self) -> Option<u64> {
        None
    }

    /// Hears of every error that reaches a program as more than "no such file", with the cause that an errno
    /// cannot carry. Called on the threads of the mount.
    fn failed(&self, path: &Path, error: &Error) {
        let _ = (path, error);
    }
}

/// An open file: immutable bytes of a known size and identity.
pub trait OpenFile: Send + Sync + 'static {
    /// Size in bytes, as of `open`.
    fn size(&self) -> u64;

    /// What makes these bytes these bytes, as of `open`. Pages that the kernel keeps are good for as long as it
    /// stays equal.
    fn identity(&self) -> Identity;

    /// Fills `buf` from `offset` on and says how many bytes it wrote; fewer than `buf.len()` at the end only.
    ///
    /// # Errors
    /// `Changed` if the object is no longer the one that was opened; any other kind as the store says.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
}
