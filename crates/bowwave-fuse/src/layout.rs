//! The tree as mounted: the root is a directory, and every name is valid in a file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bowwave_engine::backend::{Entry, EntryKind, Error, ErrorKind, Result};

use crate::tree::Tree;

/// A tree whose root is a directory. A store that is a single object becomes a directory with one
/// file.
#[derive(Debug)]
pub(crate) struct Layout<T> {
    tree: T,
    /// Name of the only file, if the store is a single object.
    single: Option<OsString>,
    root: Entry,
}

impl<T: Tree> Layout<T> {
    /// Reads the root of `tree`.
    pub(crate) fn new(tree: T) -> Result<Self> {
        let found = tree.stat(Path::new(""))?;
        let (single, root) = if found.kind == EntryKind::Directory {
            (None, found)
        } else {
            let root = Entry { modified: found.modified, ..Entry::new("", EntryKind::Directory) };
            (Some(file_name(tree.url())), root)
        };
        Ok(Self { tree, single, root })
    }

    /// The underlying tree.
    pub(crate) fn tree(&self) -> &T {
        &self.tree
    }

    /// Returns the attributes of one entry.
    pub(crate) fn stat(&self, path: &Path) -> Result<Entry> {
        match &self.single {
            None => self.tree.stat(path),
            Some(_) if path.as_os_str().is_empty() => Ok(self.root.clone()),
            Some(name) if path.as_os_str() == name => {
                self.tree.stat(Path::new("")).map(|entry| Entry { name: name.clone(), ..entry })
            }
            Some(_) => Err(Error::new(ErrorKind::NotFound, format!("{}: not found", path.display()))),
        }
    }

    /// Lists a directory without names that are invalid in a file system.
    pub(crate) fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        match &self.single {
            None => {
                let mut entries = self.tree.list(path)?;
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
        self.tree.read_link(self.inner_path(path))
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &Path) -> Result<T::File> {
        self.tree.open(self.inner_path(path))
    }

    /// Opens an existing file for reading and writing.
    pub(crate) fn open_write(&self, path: &Path) -> Result<T::File> {
        self.tree.open_write(self.inner_path(path), None)
    }

    /// Truncates or extends a file.
    pub(crate) fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        self.tree.set_len(self.inner_path(path), len)
    }

    /// The tree and the path in it, for attribute requests.
    pub(crate) fn at<'a>(&'a self, path: &'a Path) -> (&'a T, &'a Path) {
        (&self.tree, self.inner_path(path))
    }

    /// The tree, for changes of names; an error if it is a single file.
    pub(crate) fn names(&self) -> Result<&T> {
        match &self.single {
            None => Ok(&self.tree),
            Some(_) => {
                let message =
                    format!("{}: the store is a single file; names are not changed", self.tree.url());
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
