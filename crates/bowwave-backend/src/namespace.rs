//! The names of a store: directories, links and attributes.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::write::{Owner, Rename, SetAttributes, SetXattr, StatFs};
use crate::{Backend, Entry, EntryKind, Error, ErrorKind, Result, WillRead};

/// The tree of a store's names: the optional part of a [`Backend`] with all operations on names,
/// directories and attributes.
///
/// Each method has a default. With [`names_below`](Self::names_below) it forwards, so a wrapper
/// implements only what it changes. Without, a store consists of objects that are found by name:
/// changes fail as `ReadOnly` where [`Profile::writes`](crate::Profile::writes) is `No`, and as
/// `Unsupported` elsewhere. `dyn Backend` implements this trait by its part, or by these defaults.
///
/// A call has taken effect when it returns. For durability, see
/// [`sync_directory`](Self::sync_directory).
pub trait Namespace: Debug + Send + Sync {
    /// The store with these names.
    fn backend(&self) -> &dyn Backend;

    /// The names that methods forward to by default; `None` if there are none.
    fn names_below(&self) -> Option<&dyn Namespace> {
        None
    }

    /// Describes one entry. By default the object is opened, and the root is a directory if it
    /// is no object. Blocks.
    ///
    /// # Errors
    /// `NotFound` if there is none; other kinds as the store says.
    fn stat(&self, path: &Path) -> Result<Entry> {
        if let Some(below) = self.names_below() {
            return below.stat(path);
        }
        let name = path.file_name().unwrap_or_default();
        match self.backend().open(path) {
            Ok(object) => {
                let identity = object.identity().clone();
                let since_epoch = identity.modified_ns.and_then(|ns| u64::try_from(ns).ok());
                let modified = since_epoch.map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
                let entry = Entry::new(name, EntryKind::File);
                Ok(Entry { size: identity.size, modified, identity: Some(identity), ..entry })
            }
            Err(error) => match error.kind() {
                ErrorKind::IsADirectory => Ok(Entry::directory(name)),
                ErrorKind::NotFound if path.as_os_str().is_empty() => Ok(Entry::directory(name)),
                _ => Err(error),
            },
        }
    }

    /// Lists a directory in byte order of names. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported` where the store cannot list (the default).
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        match self.names_below() {
            Some(below) => below.list(path),
            None => {
                let place = crate::path::place(self.backend().url(), path);
                let message = format!("{place}: this store lists no files; open them by name");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

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
        if let Some(below) = self.names_below() {
            return below.walk(path, recursive, found);
        }
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
                let message =
                    format!("{}: the path is too long", crate::path::place(self.backend().url(), &below));
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
        self.names_below().map_or_else(|| Err(unsupported(path, "links")), |below| below.read_link(path))
    }

    /// As [`stat`](Self::stat), for a caller that needs kind, size and version. Others may be
    /// missing ([`Entry::partial`]) if they cost a request. Blocks.
    ///
    /// If the store must ask for the name, it may request what the caller `will_read` of the object
    /// at the same time. The next open of this version has these bytes, as if it had requested them
    /// ([`Backend::open_to_read`](crate::Backend::open_to_read)).
    ///
    /// # Errors
    /// As `stat`.
    fn lookup(&self, path: &Path, will_read: WillRead) -> Result<Entry> {
        self.names_below().map_or_else(|| self.stat(path), |below| below.lookup(path, will_read))
    }

    /// The entries of a directory, if the store keeps a current listing of it: sends no request.
    fn known(&self, path: &Path) -> Option<Vec<Entry>> {
        self.names_below()?.known(path)
    }

    /// The size of a file, if the store keeps a current listing of its directory: sends no request,
    /// and does not wait for one.
    fn known_size(&self, path: &Path) -> Option<u64> {
        self.names_below()?.known_size(path)
    }

    /// Lists a directory in the background, by one request, if the store keeps names. Keeps the
    /// listing if it is complete. Returns whether it was requested: not if it is current or under
    /// way.
    fn list_soon(&self, path: &Path) -> bool {
        self.names_below().is_some_and(|below| below.list_soon(path))
    }

    /// Creates a directory with these permission bits (the caller applies the umask). Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        below(self, path, "make a directory")?.create_directory(path, mode, owner)
    }

    /// Removes an entry that is not a directory. In file systems, open handles keep its bytes.
    /// Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn remove_file(&self, path: &Path) -> Result<()> {
        below(self, path, "remove")?.remove_file(path)
    }

    /// Removes an empty directory. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, and as the store says.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        below(self, path, "remove a directory")?.remove_directory(path)
    }

    /// Renames an entry within this store. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `CrossDevice`, `Invalid` (a directory into itself), and as
    /// the store says.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        below(self, from, "rename")?.rename(from, to, how)
    }

    /// As [`rename`](Self::rename), and changes attributes of the renamed entry. Blocks.
    ///
    /// # Errors
    /// As `rename` and [`set_attributes`](Self::set_attributes).
    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        if let Some(below) = self.names_below() {
            return below.rename_with(from, to, how, attributes);
        }
        self.set_attributes(from, attributes)?;
        self.rename(from, to, how)
    }

    /// Creates a second name for the file `from`. Does not follow links. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `CrossDevice`, and as the store says.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        below(self, from, "link")?.link(from, to)
    }

    /// Creates a symbolic link at `path` to `target`, which may be any text. Blocks.
    ///
    /// # Errors
    /// `Exists`, `NotFound` if its parent is missing, and as the store says.
    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        below(self, path, "make a link")?.symlink(target, path, owner)
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
        below(self, path, "make a special file")?.create_node(path, kind, mode, special_device, owner)
    }

    /// Changes attributes of an entry; for a link, its own. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, and as the store says.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        below(self, path, "change attributes")?.set_attributes(path, attributes)
    }

    /// Reads an extended attribute; for a link, its own. Blocks.
    ///
    /// # Errors
    /// `NoAttribute`, `Unsupported` for stores without them (the default).
    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        self.names_below()
            .map_or_else(|| Err(unsupported(path, "extended attributes")), |below| below.xattr(path, name))
    }

    /// Lists the names of the extended attributes. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without them (the default).
    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        self.names_below()
            .map_or_else(|| Err(unsupported(path, "extended attributes")), |below| below.list_xattrs(path))
    }

    /// Sets an extended attribute. Blocks.
    ///
    /// # Errors
    /// `Exists` and `NoAttribute` as `how` wants it, and as the store says.
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        below(self, path, "set an extended attribute")?.set_xattr(path, name, value, how)
    }

    /// Removes an extended attribute. Blocks.
    ///
    /// # Errors
    /// `NoAttribute`, and as the store says.
    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        below(self, path, "remove an extended attribute")?.remove_xattr(path, name)
    }

    /// Total and free space. Blocks.
    ///
    /// # Errors
    /// `Unsupported` where the store does not know (the default).
    fn statfs(&self) -> Result<StatFs> {
        self.names_below().map_or_else(
            || Err(unsupported(Path::new(""), "figure for its free space")),
            |below| below.statfs(),
        )
    }

    /// Returns when the names in a directory are durable. Blocks.
    ///
    /// # Errors
    /// As the store says. Stores whose names are durable at once succeed (the default).
    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.names_below().map_or(Ok(()), |below| below.sync_directory(path))
    }
}

impl Namespace for dyn Backend + '_ {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn names_below(&self) -> Option<&dyn Namespace> {
        self.namespace()
    }
}

/// Takes an entry of [`Namespace::walk`] and its path, or the error of a directory at that path; a
/// break ends the walk.
pub type FoundEntry<'a> = dyn FnMut(&Path, Result<Entry>) -> ControlFlow<()> + 'a;

fn below<'a, N: Namespace + ?Sized>(names: &'a N, path: &Path, what: &str) -> Result<&'a dyn Namespace> {
    names.names_below().ok_or_else(|| refused(names.backend(), path, what))
}

/// The error of an unsupported change; names the innermost store.
pub(crate) fn refused(mut store: &dyn Backend, path: &Path, what: &str) -> Error {
    while let Some(below) = store.below() {
        store = below;
    }
    let place = crate::path::place(store.url(), path);
    if store.profile().writes == crate::Writes::No {
        Error::new(ErrorKind::ReadOnly, format!("{place}: cannot {what}: this store is only read"))
    } else {
        Error::new(ErrorKind::Unsupported, format!("{place}: cannot {what}: this store does not support it"))
    }
}

fn unsupported(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{}: this store has no {what}", path.display()))
}

/// Longest path in bytes that the default [`Namespace::walk`] descends into: Linux's `PATH_MAX`.
const WALK_PATH_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Backend;
    use crate::conformance::{self, Fixture};
    use crate::example::Map;

    impl Fixture for Map {
        fn put(&self, path: &str, bytes: &[u8]) {
            Self::put(self, path, bytes);
        }

        fn store(&self) -> Arc<dyn Backend> {
            Arc::new(self.clone())
        }

        fn lists(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_backend_of_30_lines_conforms() {
        let source = include_str!("../examples/backend.rs");
        let (_, begun) = source.split_once("// The backend begins here.\n").expect("marked");
        let (backend, _) = begun.split_once("// The backend ends here.").expect("marked");
        assert!(backend.lines().filter(|line| !line.is_empty()).count() <= 30);
        conformance::run(&Map::default());
    }
}
