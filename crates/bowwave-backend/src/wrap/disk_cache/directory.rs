//! The cache's directory, held by descriptor. Each entry is checked before the cache uses it.
//!
//! Names are opened without following links and without blocking, and then checked by `fstat`. An
//! entry is foreign ([`Fault::Foreign`]) if it has the wrong type: a FIFO, socket, device or link,
//! or a directory in place of a file. Entries of other users, and entries that others may write,
//! are foreign. So are files with a second hard link, or larger than a segment. The cache truncates
//! damaged segments; with a second hard link, that would destroy another file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::segment::SEGMENT_FILE;
use crate::descriptors::own;
use crate::{Error, ErrorKind, Result};

/// An open directory of the cache: the top, or a subdirectory.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    /// Holds or fails each open of a file, like a disk that hangs or is broken.
    #[cfg(test)]
    pub(super) gate: std::sync::Arc<super::tests::Gate>,
}

/// Why an entry cannot be used.
#[derive(Debug)]
pub(super) enum Fault {
    /// No such entry.
    Absent,
    /// Damage: not a file or directory that the cache created, or not safe from other users.
    Foreign,
    /// The disk failed.
    Os(io::Error),
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::Absent,
            // In this order: a link; a file in place of a directory; a directory in place of a
            // file; a non-empty directory; a socket or a device without driver; no permission,
            // although the cache never takes permissions from its own files.
            Errno::LOOP
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NOTEMPTY
            | Errno::NXIO
            | Errno::NODEV
            | Errno::ACCESS
            | Errno::PERM => Self::Foreign,
            error => Self::Os(error.into()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Os(error), |errno| Errno::from_raw_os_error(errno).into())
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Absent => io::ErrorKind::NotFound.into(),
            Fault::Foreign => Self::other("an entry that is not the disk cache's own and cannot be replaced"),
            Fault::Os(error) => error,
        }
    }
}

/// Flags of every open: a FIFO must not block, a link must not lead elsewhere.
const SAFE: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = SAFE.union(OFlags::DIRECTORY);
/// Flags for a parent directory, which need not be readable.
const ON_THE_WAY: OFlags = DIRECTORY.union(OFlags::PATH);
/// Write permission of the group or of others.
const OTHERS_WRITE: u32 = 0o022;
/// In a directory with this bit, users cannot remove or rename files of other users.
const STICKY: u32 = 0o1000;

impl Directory {
    /// Opens the directory at `path`. Creates it and its parents, for the owner alone, if they are
    /// missing.
    ///
    /// # Errors
    /// If another user owns the directory, may write to it, or could replace it through a parent.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::from_os(format_args!("disk cache {}", path.display()), &error);
        let (real, missing) = resolve(path).map_err(failed)?;
        let mut names: Vec<&OsStr> = real.iter().skip(1).collect();
        let existing = names.len();
        names.extend(missing.iter().map(OsString::as_os_str));
        let refused =
            |why: String| Error::new(ErrorKind::Invalid, format!("disk cache {}: {why}", path.display()));
        let mut place = PathBuf::from("/");
        let mut fd =
            own(|| rustix::fs::open("/", DIRECTORY, Mode::empty())).map_err(|error| failed(error.into()))?;
        for (index, name) in names.iter().enumerate() {
            let parent = rustix::fs::fstat(&fd).map_err(|error| failed(error.into()))?;
            if let Some(why) = unsafe_parent(&parent, &place) {
                return Err(refused(why));
            }
            if index >= existing {
                match rustix::fs::mkdirat(&fd, *name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(failed(error.into())),
                }
            }
            let flags = if index + 1 == names.len() { DIRECTORY } else { ON_THE_WAY };
            fd = own(|| rustix::fs::openat(&fd, *name, flags, Mode::empty()))
                .map_err(|error| failed(error.into()))?;
            place.push(name);
        }
        let stat = rustix::fs::fstat(&fd).map_err(|error| failed(error.into()))?;
        match unsafe_directory(&stat) {
            None => Ok(Self::of(fd)),
            Some(why) => Err(refused(why)),
        }
    }

    fn of(fd: OwnedFd) -> Self {
        Self {
            fd,
            #[cfg(test)]
            gate: std::sync::Arc::default(),
        }
    }

    /// Opens a file; `flags` set the access, and whether it is created.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> std::result::Result<File, Fault> {
        #[cfg(test)]
        self.gate.pass()?;
        let fd = own(|| rustix::fs::openat(&self.fd, name, SAFE | flags, Mode::RUSR | Mode::WUSR))?;
        let stat = rustix::fs::fstat(&fd)?;
        let ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && is_private(&stat)
            // 0 if it was unlinked since the open.
            && stat.st_nlink <= 1
            && u64::try_from(stat.st_size).is_ok_and(|size| size <= SEGMENT_FILE);
        if ours { Ok(File::from(fd)) } else { Err(Fault::Foreign) }
    }

    /// Opens a file for reading and writing, and creates it if it is missing. Removes a foreign
    /// entry in its place; `true` if there was one.
    pub(super) fn own_file(&self, name: &str) -> std::result::Result<(File, bool), Fault> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        match self.file(name, flags) {
            Err(Fault::Foreign) => {
                self.remove(name)?;
                self.file(name, flags).map(|file| (file, true))
            }
            opened => opened.map(|file| (file, false)),
        }
    }

    /// Opens a subdirectory.
    pub(super) fn subdirectory(&self, name: &str) -> std::result::Result<Self, Fault> {
        let fd = own(|| rustix::fs::openat(&self.fd, name, DIRECTORY, Mode::empty()))?;
        if !is_private(&rustix::fs::fstat(&fd)?) {
            return Err(Fault::Foreign);
        }
        Ok(Self {
            fd,
            #[cfg(test)]
            gate: std::sync::Arc::clone(&self.gate),
        })
    }

    /// As [`subdirectory`](Self::subdirectory), created if missing. Removes a foreign entry in its
    /// place; `true` if there was one.
    pub(super) fn own_subdirectory(&self, name: &str) -> std::result::Result<(Self, bool), Fault> {
        let removed = match self.subdirectory(name) {
            Ok(found) => return Ok((found, false)),
            Err(Fault::Absent) => false,
            Err(Fault::Foreign) => {
                self.remove(name)?;
                true
            }
            Err(fault) => return Err(fault),
        };
        match rustix::fs::mkdirat(&self.fd, name, Mode::RWXU) {
            // Another process may have been first.
            Ok(()) | Err(Errno::EXIST) => self.subdirectory(name).map(|found| (found, removed)),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks the directory until it is closed. A non-blocking lock fails if another one conflicts.
    pub(super) fn lock(&self, how: FlockOperation) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.fd, how)?)
    }

    /// Removes any entry, except a non-empty directory. Succeeds if another process has removed it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let removed = match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Attributes of an entry itself; nothing is opened or followed.
    pub(super) fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in the directory. A name that is not UTF-8 is not the cache's: it is returned as
    /// an empty string.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = Dir::new(own(|| rustix::fs::openat(&self.fd, ".", DIRECTORY, Mode::empty()))?)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
            Ok(entry) => Some(Ok(entry.file_name().to_str().unwrap_or_default().to_owned())),
            Err(error) => Some(Err(error.into())),
        }))
    }
}

/// The existing part of `path`, without links, and the missing names below it.
fn resolve(path: &Path) -> io::Result<(PathBuf, Vec<OsString>)> {
    let path = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut existing = path.as_path();
    loop {
        match std::fs::canonicalize(existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(Component::Normal(name))) =
                    (existing.parent(), existing.components().next_back())
                else {
                    return Err(error);
                };
                missing.insert(0, name.to_owned());
                existing = parent;
            }
            found => return Ok((found?, missing)),
        }
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether only this user and root can write.
fn is_private(stat: &Stat) -> bool {
    stat.st_uid == user() && stat.st_mode & OTHERS_WRITE == 0
}

/// Why the cache cannot use this directory, with a remedy.
fn unsafe_directory(stat: &Stat) -> Option<String> {
    let (owner, user, mode) = (stat.st_uid, user(), stat.st_mode & 0o7777);
    if owner != user {
        return Some(format!(
            "user {owner} owns the directory, and this process runs as user {user}: name a directory of your own, or a new one"
        ));
    }
    (mode & OTHERS_WRITE != 0).then(|| {
        format!(
            "other users may write to the directory (mode {mode:04o}): name a new directory, or empty this one and `chmod go-w` it"
        )
    })
}

/// Why a parent directory is not safe, with a remedy. The rule of `sshd` for home directories,
/// except that sticky directories such as `/tmp` are safe: only its owner can rename or remove an
/// entry.
fn unsafe_parent(stat: &Stat, place: &Path) -> Option<String> {
    let (owner, user, mode) = (stat.st_uid, user(), stat.st_mode & 0o7777);
    let place = place.display();
    if owner != user && owner != 0 {
        return Some(format!(
            "user {owner} owns {place} and could replace what is below it: name a directory whose parents belong to root \
             or to user {user}"
        ));
    }
    (mode & OTHERS_WRITE != 0 && mode & STICKY == 0).then(|| {
        format!(
            "other users may write to {place} (mode {mode:04o}) and could replace what is below it: `chmod go-w {place}`, or \
             name another directory"
        )
    })
}
