//! A store in memory, which tests can change during reads.

mod bytes;
mod object;
mod tree;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::object::MemoryObject;
use self::tree::{Content, Inode, NAME_BYTES_MAX, find, os_error, parent};
use crate::sync::RwLock;
use crate::{
    Attributes as _, Backend, Entry, EntryKind, Error, ErrorKind, Namespace, Object, OpenWrite, Owner,
    Profile, Rename, Result, SetAttributes, SetXattr, StatFs, Write, WriteObject, Writes, path,
};

/// A file system in memory.
///
/// Clones share the same files.
///
/// ```
/// use bowwave_backend::{Backend, MemoryBackend};
///
/// let store = MemoryBackend::new();
/// store.insert("directory/object", b"bytes".to_vec());
/// assert_eq!(store.open("directory/object".as_ref()).unwrap().size(), 5);
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    root: Arc<RwLock<Arc<Inode>>>,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self { root: Arc::new(RwLock::new(tree::directory(0o755, Owner::of_process()))) }
    }
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `bytes` at `path`, in place of any object: open objects of this path then read as
    /// changed. The empty path makes the store a single object. Missing directories are created,
    /// and removed with their last entry.
    ///
    /// # Panics
    /// If the path is invalid.
    pub fn insert(&self, path: impl Into<PathBuf>, bytes: impl Into<Arc<[u8]>>) {
        let path = path.into();
        path::check(&path).expect("a path of a store is relative and normal");
        let mut root = self.root.write();
        let mut here = Arc::clone(&root);
        let Some(name) = path.file_name() else {
            *root = Inode::file(0o644, Owner::of_process());
            return fill(&root, &bytes.into());
        };
        for part in path.parent().unwrap_or_else(|| Path::new("")) {
            let mut directory = here.change_entries().expect("each step is a directory, by the step before");
            let below = directory.entry(part.to_owned());
            let below = below.or_insert_with(|| tree::directory(0o755, Owner::of_process()));
            if !below.is_directory() {
                *below = tree::directory(0o755, Owner::of_process());
            }
            let below = Arc::clone(below);
            drop(directory);
            here = below;
        }
        let mut directory = here.change_entries().expect("as above");
        let file =
            directory.entry(name.to_owned()).or_insert_with(|| Inode::file(0o644, Owner::of_process()));
        if file.read_file().is_none() {
            *file = Inode::file(0o644, Owner::of_process());
        }
        fill(file, &bytes.into());
    }

    /// Adds an inode that `make` creates at a free name.
    fn add(
        &self,
        path: &Path,
        kind: EntryKind,
        owner: Option<Owner>,
        make: impl FnOnce(Owner, u32) -> Arc<Inode>,
    ) -> Result<()> {
        let root = self.root.write();
        let taken = || os_error(path, libc::EEXIST);
        if path.as_os_str().is_empty() {
            return Err(taken());
        }
        let (directory, name) = parent(&root, path)?;
        let (owner, bits) = directory.heir(owner, kind);
        let mut entries = directory.change_entries().ok_or_else(|| os_error(path, libc::ENOTDIR))?;
        if entries.contains_key(name) {
            return Err(taken());
        }
        entries.insert(name.to_owned(), make(owner, bits));
        Ok(())
    }

    fn remove_name(&self, path: &Path, is_directory: bool) -> Result<()> {
        let root = self.root.write();
        let (directory, name) = parent(&root, path)?;
        let inode = find(&root, path)?;
        let errno = match inode.entries() {
            Some(_) if !is_directory => libc::EISDIR,
            Some(inner) if !inner.is_empty() => libc::ENOTEMPTY,
            None if is_directory => libc::ENOTDIR,
            _ => 0,
        };
        if errno != 0 {
            return Err(os_error(path, errno));
        }
        inode.add_links(-1);
        if let Some(mut entries) = directory.change_entries() {
            entries.remove(name);
        }
        Ok(())
    }
}

fn fill(inode: &Inode, bytes: &[u8]) {
    if let Some(mut file) = inode.change_file() {
        file.bytes.set_len(0);
        file.bytes.write(0, bytes);
    }
}

impl Backend for MemoryBackend {
    fn url(&self) -> &str {
        URL
    }

    fn profile(&self) -> Profile {
        Profile {
            latency: Duration::from_micros(1),
            writes: Writes::Anywhere,
            write_part_bytes: 1 << 20,
            ..Profile::read_only("memory")
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let inode = with_bytes(find(&self.root.read(), path)?, path)?;
        Ok(Arc::new(MemoryObject::new(inode, path::place(URL, path), false)))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }
}

impl Namespace for MemoryBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        Ok(find(&self.root.read(), path)?.entry(path.file_name().unwrap_or_default()))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let root = self.root.read();
        let inode = find(&root, path)?;
        let directory = inode.entries().ok_or_else(|| path::not_a_directory(URL, path))?;
        Ok(directory.iter().map(|(name, inode)| inode.entry(name)).collect())
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        match &find(&self.root.read(), path)?.content {
            Content::Link(target) => Ok(target.clone()),
            _ => {
                let message = format!("{}: is not a link", path::place(URL, path));
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let make = |owner, bits| tree::directory(mode & 0o1777 | bits, owner);
        self.add(path, EntryKind::Directory, owner, make)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.remove_name(path, false)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.remove_name(path, true)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let root = self.root.write();
        let (from_directory, from_name) = parent(&root, from)?;
        let (to_directory, to_name) = parent(&root, to)?;
        let moved = find(&root, from)?;
        let there = match find(&root, to) {
            Ok(inode) => Some(inode),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        check_rename((from, &moved), (to, there.as_deref()), how)?;
        if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, &moved)) {
            return Ok(());
        }
        let put = |directory: &Inode, name: &OsStr, inode: Option<Arc<Inode>>| {
            let Some(mut entries) = directory.change_entries() else { return };
            match inode {
                Some(inode) => entries.insert(name.to_owned(), inode),
                None => entries.remove(name),
            };
        };
        let left = if how == Rename::Exchange { there.clone() } else { None };
        if left.is_none()
            && let Some(replaced) = &there
        {
            replaced.add_links(-1);
        }
        moved.add_links(0);
        put(&from_directory, from_name, left);
        put(&to_directory, to_name, Some(moved));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let inode = find(&self.root.read(), from)?;
        if inode.is_directory() {
            return Err(os_error(from, libc::EPERM));
        }
        self.add(to, EntryKind::File, None, |_, _| Arc::clone(&inode))?;
        inode.add_links(1);
        Ok(())
    }

    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let make = |owner, _| Inode::new(Content::Link(target.to_owned()), 0o777, owner, 0);
        self.add(path, EntryKind::Link, owner, make)
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        match kind {
            EntryKind::Directory | EntryKind::Link => Err(os_error(path, libc::EINVAL)),
            EntryKind::File => self.add(path, kind, owner, |owner, _| Inode::file(mode, owner)),
            _ => self.add(path, kind, owner, |owner, _| {
                Inode::new(Content::Special(kind), mode, owner, special_device)
            }),
        }
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        find(&self.root.read(), path)?.set(attributes)
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        find(&self.root.read(), path)?.xattr(name)
    }

    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        find(&self.root.read(), path)?.list_xattrs()
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        find(&self.root.read(), path)?.set_xattr(name, value, how)
    }

    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        find(&self.root.read(), path)?.remove_xattr(name)
    }

    fn statfs(&self) -> Result<StatFs> {
        // As much as the machine's memory, whatever uses it; an exact limit could not be enforced.
        let machine = rustix::system::sysinfo();
        let unit = u64::from(machine.mem_unit);
        let pages = |bytes: u64| bytes * unit / 4096;
        Ok(StatFs {
            block_bytes: 4096,
            blocks: pages(wide(machine.totalram)),
            blocks_free: pages(wide(machine.freeram)),
            blocks_available: pages(wide(machine.freeram)),
            files: pages(wide(machine.totalram)),
            files_free: pages(wide(machine.freeram)),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }
}

impl Write for MemoryBackend {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let make = |owner, _| Inode::file(how.mode, owner);
        let inode = match how.create.then(|| self.add(path, EntryKind::File, how.owner, make)) {
            None | Some(Ok(())) => find(&self.root.read(), path)?,
            Some(Err(error)) if error.kind() == ErrorKind::Exists && !how.exclusive => {
                find(&self.root.read(), path)?
            }
            Some(Err(error)) => return Err(error),
        };
        let inode = with_bytes(inode, path)?;
        if how.truncate
            && let Some(mut file) = inode.change_file()
        {
            file.bytes.set_len(0);
        }
        Ok(Arc::new(MemoryObject::new(inode, path::place(URL, path), true)))
    }
}

/// Widens a number whose width depends on the machine.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// The inode, if it is a file's.
fn with_bytes(inode: Arc<Inode>, path: &Path) -> Result<Arc<Inode>> {
    match &inode.content {
        Content::File(_) => Ok(inode),
        Content::Directory(_) => Err(path::is_a_directory(URL, path).with_errno(libc::EISDIR)),
        Content::Link(_) => Err(os_error(path, libc::ELOOP)),
        Content::Special(_) => {
            let message = format!("{}: has no bytes (a FIFO, socket or device)", path::place(URL, path));
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Fails for renames that POSIX forbids.
fn check_rename(from: (&Path, &Inode), to: (&Path, Option<&Inode>), how: Rename) -> Result<()> {
    let refuse = |errno| Err(os_error(to.0, errno));
    let inside = |outer: &Path, inner: &Path| inner != outer && inner.starts_with(outer);
    if inside(from.0, to.0) || (how == Rename::Exchange && inside(to.0, from.0)) {
        return refuse(libc::EINVAL);
    }
    let Some(there) = to.1 else {
        return if how == Rename::Exchange { refuse(libc::ENOENT) } else { Ok(()) };
    };
    match how {
        Rename::NoReplace => refuse(libc::EEXIST),
        Rename::Exchange => Ok(()),
        Rename::Replace => match (from.1.is_directory(), there.entries()) {
            (false, Some(_)) => refuse(libc::EISDIR),
            (true, None) => refuse(libc::ENOTDIR),
            (true, Some(entries)) if !entries.is_empty() && !std::ptr::eq(from.1, there) => {
                refuse(libc::ENOTEMPTY)
            }
            _ => Ok(()),
        },
    }
}

const URL: &str = "memory:";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Fixture};

    impl Fixture for MemoryBackend {
        fn put(&self, path: &str, bytes: &[u8]) {
            self.insert(path, bytes);
        }

        fn store(&self) -> Arc<dyn Backend> {
            Arc::new(self.clone())
        }
    }

    #[test]
    fn memory_conforms() {
        conformance::run(&MemoryBackend::new());
    }

    #[test]
    fn a_sparse_file_may_be_larger_than_memory() {
        let store = MemoryBackend::new();
        let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
        let object = store.open_write("large".as_ref(), &create).unwrap();
        crate::write_exact(&*object, 1 << 50, b"end", Duration::from_secs(20)).unwrap();
        let entry = store.stat("large".as_ref()).unwrap();
        assert_eq!(entry.size, (1 << 50) + 3);
        assert!(entry.unix.unwrap().blocks <= 128);
    }
}
