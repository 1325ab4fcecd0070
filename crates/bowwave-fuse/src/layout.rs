//! The tree as mounted: the root is a directory, and every name is valid in a file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowwave_engine::backend::{Entry, EntryKind, Error, ErrorKind, Result, WillRead, Writes};
use bowwave_engine::{File, Namespace as _, OpenOptions, Store};

/// A store whose root is a directory. A store that is a single object becomes a directory with one
/// file.
#[derive(Debug)]
pub(crate) struct Layout {
    store: Store,
    /// Name of the only file, if the store is a single object.
    single: Option<OsString>,
    root: Entry,
}

impl Layout {
    /// Reads the root of `store`.
    pub(crate) fn new(store: Store) -> Result<Self> {
        let found = store.stat(Path::new(""))?;
        let (single, root) = if found.kind == EntryKind::Directory {
            (None, found)
        } else {
            let root = Entry { modified: found.modified, ..Entry::new("", EntryKind::Directory) };
            (Some(file_name(store.url())), root)
        };
        Ok(Self { store, single, root })
    }

    /// The root, when the mount began.
    pub(crate) fn root(&self) -> &Entry {
        &self.root
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns what a lookup needs: see [`Namespace::lookup`](bowwave_engine::Namespace::lookup).
    pub(crate) fn lookup(&self, path: &Path, will_read: WillRead) -> Result<Entry> {
        if self.single.is_none() { self.store.lookup(path, will_read) } else { self.stat(path) }
    }

    /// Returns the attributes of one entry.
    pub(crate) fn stat(&self, path: &Path) -> Result<Entry> {
        match &self.single {
            None => self.store.stat(path),
            Some(_) if path.as_os_str().is_empty() => Ok(self.root.clone()),
            Some(name) if path.as_os_str() == name => {
                self.store.stat(Path::new("")).map(|entry| Entry { name: name.clone(), ..entry })
            }
            Some(_) => Err(Error::new(ErrorKind::NotFound, format!("{}: not found", path.display()))),
        }
    }

    /// The entries of a directory, if the store keeps a current listing of it.
    pub(crate) fn known(&self, path: &Path) -> Option<Vec<Entry>> {
        if self.single.is_some() { None } else { self.store.known(path) }
    }

    /// Forgets the version that the store keeps of a file, unless it was looked up at most this
    /// long ago.
    pub(crate) fn forget_name(&self, path: &Path, age: Duration) {
        self.store.backend().forget_name(self.inner_path(path), age);
    }

    /// Lists a directory without names that are invalid in a file system.
    pub(crate) fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        match &self.single {
            None => {
                let mut entries = self.store.list(path)?;
                entries.retain(|entry| is_name(&entry.name));
                Ok(entries)
            }
            Some(name) if path.as_os_str().is_empty() => Ok(vec![self.stat(Path::new(name))?]),
            Some(_) => {
                Err(Error::new(ErrorKind::NotADirectory, format!("{}: not a directory", path.display())))
            }
        }
    }

    /// Reads a symbolic link.
    pub(crate) fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.store.read_link(self.inner_path(path))
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &Path) -> Result<File> {
        self.open_to_read(path, WillRead::Any)
    }

    /// As [`open`](Self::open), for a caller that knows what it reads.
    pub(crate) fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<File> {
        Ok(self.store.open_to_read(self.inner_path(path), will_read)?)
    }

    /// Opens an existing file for reading and writing.
    pub(crate) fn open_write(&self, path: &Path) -> Result<File> {
        let writing = OpenOptions { write: true, ..OpenOptions::default() };
        Ok(self.store.open_with(self.inner_path(path), &writing)?)
    }

    /// Truncates or extends a file.
    pub(crate) fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        let file = self.open_write(path)?;
        file.set_len(len)?;
        // Closing would publish too, but discard errors.
        let stored = if self.store.writes() == Writes::Whole { file.sync(false) } else { file.flush() };
        Ok(stored?)
    }

    /// The store and the path in it, for attribute requests.
    pub(crate) fn at<'a>(&'a self, path: &'a Path) -> (&'a Store, &'a Path) {
        (&self.store, self.inner_path(path))
    }

    /// The store, for changes of names; an error if it is a single file.
    pub(crate) fn names(&self) -> Result<&Store> {
        match &self.single {
            None => Ok(&self.store),
            Some(_) => {
                let message =
                    format!("{}: the store is a single file; names are not changed", self.store.url());
                Err(Error::new(ErrorKind::PermissionDenied, message))
            }
        }
    }

    fn inner_path<'a>(&self, path: &'a Path) -> &'a Path {
        if self.single.is_some() { Path::new("") } else { path }
    }
}

/// Whether a name is valid. Object stores allow `a//b` and `..`; the kernel fails a listing that
/// contains one.
pub(crate) fn is_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..")
        && bytes.len() <= NAME_BYTES_MAX
        && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// A name for the object at `url`: the last component of its path.
fn file_name(url: &str) -> OsString {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if is_name(OsStr::new(last)) { last.into() } else { "object".into() }
}

/// Longest name in bytes that the kernel accepts and `statfs` reports.
pub(crate) const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_object_is_named_after_its_url() {
        for (url, name) in [
            ("http://host/a/b.bin", "b.bin"),
            ("http://host/b.bin?token=a/b#c", "b.bin"),
            ("file:///x/y", "y"),
            ("s3://bucket/", "bucket"),
            ("", "object"),
            ("http://host/..", "object"),
        ] {
            assert_eq!(file_name(url), name, "{url}");
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        let long = "x".repeat(256);
        for name in ["", ".", "..", "a/b", "a\0b", long.as_str()] {
            assert!(!is_name(OsStr::new(name)), "{name:?}");
        }
        for name in ["...", ".a", "a b", &long[..255]] {
            assert!(is_name(OsStr::new(name)), "{name:?}");
        }
        assert!(is_name(OsStr::from_bytes(&[0xff, 0xfe])));
    }
}
