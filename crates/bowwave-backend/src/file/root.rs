//! The directory of a file store, and lookups of names that never leave it.
//!
//! Names are looked up from the directory's descriptor with `openat2` and `RESOLVE_BENEATH`. The
//! kernel itself rejects a link that leads outside, at any component of the path, even during
//! concurrent renames. If the kernel or a container's policy has no `openat2`, components are
//! opened one by one and links are rejected.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::descriptors::own;
use crate::{Error, Result, path};

/// The store's directory, held open, so that it stays the same whatever its name becomes.
#[derive(Debug)]
pub(super) struct Root {
    /// For messages.
    place: PathBuf,
    directory: OwnedFd,
    /// The store is this single file of the directory.
    file: Option<OsString>,
    /// `openat2` is missing or forbidden.
    walks: AtomicBool,
}

/// An entry's location: its directory, and its name there.
#[derive(Debug)]
pub(super) struct At<'a> {
    directory: Directory<'a>,
    /// One path component, or `.` for the root.
    pub(super) name: &'a OsStr,
    /// For messages.
    pub(super) place: PathBuf,
}

#[derive(Debug)]
enum Directory<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl Root {
    /// Opens the directory or the file's directory. `place` may be a link, which is followed.
    pub(super) fn open(place: PathBuf) -> Result<Self> {
        let failed = |error: io::Error| Error::from_os(place.display(), &error);
        let real = std::fs::canonicalize(&place).map_err(failed)?;
        let metadata = std::fs::metadata(&real).map_err(failed)?;
        let (directory, file) = if metadata.is_dir() {
            (real.as_path(), None)
        } else {
            (real.parent().unwrap_or(&real), Some(real.file_name().unwrap_or_default().to_owned()))
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = own(|| rustix::fs::open(directory, flags, Mode::empty()))
            .map_err(|error| failed(error.into()))?;
        Ok(Self { place, directory, file, walks: AtomicBool::new(false) })
    }

    /// Location of `path`, for messages.
    pub(super) fn place(&self, path: &Path) -> PathBuf {
        // Joining an empty path would add a slash, and a file has nothing below it.
        if path.as_os_str().is_empty() { self.place.clone() } else { self.place.join(path) }
    }

    /// The store's directory itself.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Finds the directory of `path`. The entry itself need not exist.
    pub(super) fn at<'a>(&'a self, path: &'a Path) -> Result<At<'a>> {
        path::check(path)?;
        let place = self.place(path);
        let root = Directory::Root(self.directory.as_fd());
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            let name = self.file.as_deref().unwrap_or_else(|| OsStr::new("."));
            return Ok(At { directory: root, name, place });
        };
        if self.file.is_some() {
            return Err(os_error(&place, Errno::NOTDIR));
        }
        let directory = if parent.as_os_str().is_empty() {
            root
        } else {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            Directory::Below(self.resolve(parent, flags).map_err(|error| os_error(&place, error))?)
        };
        Ok(At { directory, name, place })
    }

    /// As [`at`](Self::at), for entries to be created, removed or moved, which the root cannot be.
    pub(super) fn named<'a>(&'a self, path: &'a Path) -> Result<At<'a>> {
        if path.as_os_str().is_empty() {
            return Err(os_error(&self.place, Errno::BUSY));
        }
        self.at(path)
    }

    /// Opens the entry at `path` with `flags`, following links that stay inside.
    pub(super) fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        path::check(path)?;
        let place = self.place(path);
        let failed = |error| os_error(&place, error);
        match &self.file {
            Some(_) if !path.as_os_str().is_empty() => Err(failed(Errno::NOTDIR)),
            Some(name) => self.resolve(Path::new(name), flags).map_err(failed),
            None if path.as_os_str().is_empty() => self.resolve(Path::new("."), flags).map_err(failed),
            None => self.resolve(path, flags).map_err(failed),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let mut directory: Option<OwnedFd> = None;
        let mut rest = path;
        let step = OFlags::PATH | OFlags::DIRECTORY;
        // The kernel accepts paths of 4095 bytes; directories may be deeper.
        while let Some(split) = split(rest) {
            let from = directory.as_ref().map_or_else(|| self.directory.as_fd(), AsFd::as_fd);
            directory = Some(self.resolve_from(from, split.0, step)?);
            rest = split.1;
        }
        let from = directory.as_ref().map_or_else(|| self.directory.as_fd(), AsFd::as_fd);
        self.resolve_from(from, rest, flags)
    }

    fn resolve_from(
        &self,
        from: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
    ) -> std::result::Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        while !self.walks.load(Ordering::Relaxed) {
            match own(|| rustix::fs::openat2(from, path, flags, Mode::empty(), how)) {
                Err(Errno::NOSYS) => self.walks.store(true, Ordering::Relaxed),
                // The policy forbids the call, or the file system returned this error: the
                // component-wise walk shows which.
                Err(Errno::PERM) if walk(from, path, flags).is_ok() => {
                    self.walks.store(true, Ordering::Relaxed);
                }
                // An entry was moved while a link with `..` was followed.
                Err(Errno::AGAIN) if tries < TRIES_MAX => tries += 1,
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
        walk(from, path, flags)
    }
}

impl At<'_> {
    /// The directory.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        match &self.directory {
            Directory::Root(directory) => *directory,
            Directory::Below(directory) => directory.as_fd(),
        }
    }

    /// A handle of the entry itself, not of a link's target. Opening it has no effect.
    pub(super) fn handle(&self) -> std::result::Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        own(|| rustix::fs::openat(self.directory(), self.name, flags, Mode::empty()))
    }

    /// A path to the entry through the directory's descriptor, for calls that take only paths.
    pub(super) fn through_descriptor(&self) -> PathBuf {
        descriptor_path(&self.directory()).join(self.name)
    }

    /// The result of a call for this entry.
    pub(super) fn result<T>(&self, result: std::result::Result<T, Errno>) -> Result<T> {
        result.map_err(|error| self.failed(error))
    }

    /// The error for this place.
    pub(super) fn failed(&self, error: Errno) -> Error {
        os_error(&self.place, error)
    }
}

/// Opens the file of `handle` by descriptor, not by name: the one that was checked.
pub(super) fn reopen(handle: &impl AsFd, flags: OFlags) -> std::result::Result<File, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    own(|| rustix::fs::openat(CWD, descriptor_path(handle), flags, Mode::empty())).map(File::from)
}

/// The kernel's path of an open descriptor.
pub(super) fn descriptor_path(handle: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()))
}

/// The error for an operating system error at `place`.
pub(super) fn os_error(place: &Path, error: Errno) -> Error {
    if error == Errno::XDEV {
        let message = format!("{}: leads out of the store, or to another file system", place.display());
        return Error::from_os(place.display(), &error.into()).with_message(message);
    }
    Error::from_os(place.display(), &error.into())
}

/// Splits a path that is too long for one system call at the last slash that fits.
fn split(path: &Path) -> Option<(&Path, &Path)> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= PATH_BYTES_MAX {
        return None;
    }
    let slash = bytes[..PATH_BYTES_MAX].iter().rposition(|&byte| byte == b'/')?;
    Some((Path::new(OsStr::from_bytes(&bytes[..slash])), Path::new(OsStr::from_bytes(&bytes[slash + 1..]))))
}

/// Opens `path` component by component; rejects links on the way and at the end.
fn walk(from: BorrowedFd<'_>, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let mut directory: Option<OwnedFd> = None;
    let mut parts = path.iter().peekable();
    while let Some(part) = parts.next() {
        let from = directory.as_ref().map_or(from, AsFd::as_fd);
        let flags =
            if parts.peek().is_some() { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC } else { flags };
        let opened = own(|| rustix::fs::openat(from, part, flags | OFlags::NOFOLLOW, Mode::empty()))?;
        let found = rustix::fs::fstat(&opened)?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink() {
            return Err(Errno::LOOP);
        }
        directory = Some(opened);
    }
    directory.ok_or(Errno::NOENT)
}

/// Longest path of one system call, without its NUL.
const PATH_BYTES_MAX: usize = 4095;
/// Attempts of a lookup that is disturbed by renames.
const TRIES_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_components_are_walked_and_links_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/file"), b"x").unwrap();
        std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
        let root = Root::open(directory.path().to_owned()).unwrap();
        for walks in [false, true] {
            root.walks.store(walks, Ordering::Relaxed);
            root.open_at("a/b/file".as_ref(), OFlags::PATH).unwrap();
            assert_eq!(root.open_at("link/b".as_ref(), OFlags::PATH).is_err(), walks, "walks: {walks}");
            assert_eq!(root.open_at("link".as_ref(), OFlags::PATH).is_err(), walks, "walks: {walks}");
            root.open_at("a/b/none".as_ref(), OFlags::PATH).unwrap_err();
            root.open_at("a/../a".as_ref(), OFlags::PATH).unwrap_err();
        }
    }
}
