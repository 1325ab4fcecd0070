//! Files and directories in memory, as in a file system: names and inodes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use super::URL;
use super::bytes::Bytes;
use crate::sync::{Mutex, RwLock};
use crate::{
    Attributes, Entry, EntryKind, Error, Identity, Owner, Result, SetAttributes, SetTime, SetXattr, Unix,
    path,
};

/// A file, directory, link or special file, independent of its names.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) content: Content,
    meta: Mutex<Meta>,
}

/// Contents of an inode.
#[derive(Debug)]
pub(super) enum Content {
    File(RwLock<File>),
    /// Accessed only with the tree locked.
    Directory(RwLock<Entries>),
    Link(PathBuf),
    Special(EntryKind),
}

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) bytes: Bytes,
    /// Changes with the bytes; never repeats in this process.
    pub(super) version: u64,
}

/// A directory's entries by name.
type Entries = BTreeMap<OsString, Arc<Inode>>;

#[derive(Debug)]
struct Meta {
    mode: u32,
    owner: Owner,
    /// Names; directories count theirs differently.
    links: u64,
    special_device: u64,
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
    xattrs: BTreeMap<OsString, Vec<u8>>,
}

impl Inode {
    pub(super) fn new(content: Content, mode: u32, owner: Owner, special_device: u64) -> Arc<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let now = SystemTime::now();
        let meta = Meta {
            mode: mode & 0o7777,
            owner,
            links: 1,
            special_device,
            accessed: now,
            modified: now,
            changed: now,
            xattrs: BTreeMap::new(),
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, content, meta: Mutex::new(meta) })
    }

    pub(super) fn file(mode: u32, owner: Owner) -> Arc<Self> {
        let file = File { bytes: Bytes::default(), version: next_version() };
        Self::new(Content::File(RwLock::new(file)), mode, owner, 0)
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }

    pub(super) fn read_file(&self) -> Option<RwLockReadGuard<'_, File>> {
        let Content::File(file) = &self.content else { return None };
        Some(file.read())
    }

    /// The file's bytes, for a change; version and times are updated when the guard is taken.
    pub(super) fn change_file(&self) -> Option<RwLockWriteGuard<'_, File>> {
        let Content::File(file) = &self.content else { return None };
        let mut file = file.write();
        file.version = next_version();
        self.touch();
        Some(file)
    }

    pub(super) fn entries(&self) -> Option<RwLockReadGuard<'_, Entries>> {
        let Content::Directory(directory) = &self.content else { return None };
        Some(directory.read())
    }

    /// The directory's entries, for a change.
    pub(super) fn change_entries(&self) -> Option<RwLockWriteGuard<'_, Entries>> {
        let Content::Directory(directory) = &self.content else { return None };
        self.touch();
        Some(directory.write())
    }

    /// Sets the times of a change of the contents.
    fn touch(&self) {
        let mut meta = self.meta.lock();
        meta.modified = SystemTime::now();
        meta.changed = meta.modified;
    }

    /// Changes the number of names.
    pub(super) fn add_links(&self, count: i64) {
        let mut meta = self.meta.lock();
        meta.links = meta.links.saturating_add_signed(count);
        meta.changed = SystemTime::now();
    }

    /// Owner and mode bits of an entry created in this directory for `owner`.
    pub(super) fn heir(&self, owner: Option<Owner>, kind: EntryKind) -> (Owner, u32) {
        let meta = self.meta.lock();
        let owner = owner.unwrap_or_else(Owner::of_process);
        if meta.mode & 0o2000 == 0 {
            return (owner, 0);
        }
        let bits = if kind == EntryKind::Directory { 0o2000 } else { 0 };
        (Owner { gid: meta.owner.gid, ..owner }, bits)
    }

    pub(super) fn identity(&self) -> Identity {
        let (size, version) = self.read_file().map_or((0, 0), |file| (file.bytes.size(), file.version));
        Identity {
            etag: Some(format!("\"{version}\"")),
            modified_ns: None,
            device: Some(DEVICE),
            inode: Some(self.number),
            size,
        }
    }

    pub(super) fn entry(&self, name: &OsStr) -> Entry {
        let (kind, size, used) = match &self.content {
            Content::File(_) => {
                let (size, used) = self.read_file().map_or((0, 0), |f| (f.bytes.size(), f.bytes.used()));
                (EntryKind::File, size, used)
            }
            Content::Directory(_) => (EntryKind::Directory, 0, 0),
            Content::Link(target) => (EntryKind::Link, target.as_os_str().len() as u64, 0),
            Content::Special(kind) => (*kind, 0, 0),
        };
        let directories = self
            .entries()
            .map(|directory| directory.values().filter(|entry| entry.is_directory()).count() as u64 + 2);
        // Before the lock of the other fields: a change of the file takes the two locks in the
        // other order.
        let identity = (kind == EntryKind::File).then(|| self.identity());
        let meta = self.meta.lock();
        Entry {
            size,
            modified: Some(meta.modified),
            mode: Some(meta.mode),
            identity,
            unix: Some(Unix {
                device: DEVICE,
                inode: self.number,
                links: directories.unwrap_or(meta.links),
                uid: meta.owner.uid,
                gid: meta.owner.gid,
                special_device: meta.special_device,
                accessed: meta.accessed,
                changed: meta.changed,
                blocks: used.div_ceil(512),
            }),
            ..Entry::new(name, kind)
        }
    }
}

impl Attributes for Inode {
    fn stat(&self) -> Result<Entry> {
        Ok(self.entry(OsStr::new("")))
    }

    fn set(&self, attributes: &SetAttributes) -> Result<()> {
        if attributes.mode.is_some() && matches!(self.content, Content::Link(_)) {
            return Err(os_error(Path::new(""), libc::EOPNOTSUPP));
        }
        let now = SystemTime::now();
        let at = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let mut meta = self.meta.lock();
        meta.changed = now;
        if attributes.uid.is_some() || attributes.gid.is_some() || attributes.is_empty() {
            meta.owner.uid = attributes.uid.unwrap_or(meta.owner.uid);
            meta.owner.gid = attributes.gid.unwrap_or(meta.owner.gid);
            if !self.is_directory() {
                // As the kernel: set-group-id without the execute bit means something else.
                meta.mode &= if meta.mode & 0o010 != 0 { !0o6000 } else { !0o4000 };
            }
        }
        meta.mode = attributes.mode.map_or(meta.mode, |mode| mode & 0o7777);
        meta.accessed = attributes.accessed.map_or(meta.accessed, at);
        meta.modified = attributes.modified.map_or(meta.modified, at);
        Ok(())
    }
}

impl Inode {
    pub(super) fn xattr(&self, name: &OsStr) -> Result<Vec<u8>> {
        let value = self.meta.lock().xattrs.get(name).cloned();
        value.ok_or_else(|| os_error(Path::new(name), libc::ENODATA))
    }

    pub(super) fn list_xattrs(&self) -> Result<Vec<OsString>> {
        Ok(self.meta.lock().xattrs.keys().cloned().collect())
    }

    pub(super) fn set_xattr(&self, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        check_name(Path::new(name), name)?;
        let mut meta = self.meta.lock();
        match (how, meta.xattrs.contains_key(name)) {
            (SetXattr::Create, true) => return Err(os_error(Path::new(name), libc::EEXIST)),
            (SetXattr::Replace, false) => return Err(os_error(Path::new(name), libc::ENODATA)),
            _ => {}
        }
        meta.xattrs.insert(name.to_owned(), value.to_vec());
        meta.changed = SystemTime::now();
        Ok(())
    }

    pub(super) fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        let mut meta = self.meta.lock();
        meta.changed = SystemTime::now();
        meta.xattrs.remove(name).map(drop).ok_or_else(|| os_error(Path::new(name), libc::ENODATA))
    }
}

/// A new directory.
pub(super) fn directory(mode: u32, owner: Owner) -> Arc<Inode> {
    Inode::new(Content::Directory(RwLock::default()), mode, owner, 0)
}

/// Finds the entry at `path` below `root`. Does not follow links.
pub(super) fn find(root: &Arc<Inode>, path: &Path) -> Result<Arc<Inode>> {
    path::check(path)?;
    let mut here = Arc::clone(root);
    for name in path {
        check_name(path, name)?;
        let below = match here.entries() {
            Some(directory) => directory.get(name).map(Arc::clone),
            None => return Err(os_error(path, libc::ENOTDIR)),
        };
        here = below.ok_or_else(|| path::not_found(URL, path).with_errno(libc::ENOENT))?;
    }
    Ok(here)
}

/// Finds the directory of `path`, which is not the root, and its name in it.
pub(super) fn parent<'a>(root: &Arc<Inode>, path: &'a Path) -> Result<(Arc<Inode>, &'a OsStr)> {
    path::check(path)?;
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Err(os_error(path, libc::EBUSY));
    };
    let directory = find(root, parent)?;
    check_name(path, name)?;
    if directory.is_directory() { Ok((directory, name)) } else { Err(os_error(path, libc::ENOTDIR)) }
}

/// Fails for invalid names.
fn check_name(path: &Path, name: &OsStr) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        Err(os_error(path, libc::ENAMETOOLONG))
    } else if name.as_bytes().contains(&0) {
        Err(os_error(path, libc::EINVAL))
    } else {
        Ok(())
    }
}

/// The error that a kernel would return for `path`.
pub(super) fn os_error(path: &Path, errno: i32) -> Error {
    Error::from_os(path::place(URL, path), &std::io::Error::from_raw_os_error(errno))
}

pub(super) fn next_version() -> u64 {
    // Versions differ across processes, too: a disk cache may outlive both.
    static VERSIONS: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        AtomicU64::new((now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 40))
    });
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

/// Longest name, as on most file systems.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Device number of these files; no device has it.
const DEVICE: u64 = 0;
