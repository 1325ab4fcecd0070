//! Paths inside a store, and errors for their entries.

use std::path::{Component, Path};

use crate::{Error, ErrorKind, Result};

/// Fails unless `path` is relative and normal; the empty path (the root) is.
pub(crate) fn check(path: &Path) -> Result<()> {
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: a path inside a store is relative and has no `.` or `..`", path.display()),
        ))
    }
}

/// `NotFound` for `path` of the store `url`.
pub(crate) fn not_found(url: &str, path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{}: no such file or directory", place(url, path)))
}

/// `IsADirectory` for `path` of the store `url`.
pub(crate) fn is_a_directory(url: &str, path: &Path) -> Error {
    Error::new(ErrorKind::IsADirectory, format!("{}: is a directory; name a file in it", place(url, path)))
}

/// `NotADirectory` for `path` of the store `url`.
pub(crate) fn not_a_directory(url: &str, path: &Path) -> Error {
    Error::new(ErrorKind::NotADirectory, format!("{}: is a file, not a directory", place(url, path)))
}

/// `Changed` for the object called `name`.
pub(crate) fn changed(name: &str) -> Error {
    Error::new(ErrorKind::Changed, format!("{name}: has changed since it was opened; open it again"))
}

/// The store's URL and the path in it, for messages.
pub fn place(url: &str, path: &Path) -> String {
    if path.as_os_str().is_empty() {
        url.to_owned()
    } else {
        format!("{}/{}", url.trim_end_matches('/'), path.display())
    }
}
