//! Open files, for reading and for writing.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::attributes::identity;
use super::owner::Acting;
use super::request::Request;
use super::root::{At, Root, os_error, reopen};
use super::tree::without_umask;
use super::{Carrier, special};
use crate::descriptors::own;
use crate::{
    Allocate, Attributes, Error, Identity, Object, OpenWrite, ReadBuf, ReadSink, Result, Seek, WriteBuf,
    WriteObject, WriteSink, path,
};

/// An open file, with its identity at the open.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) place: PathBuf,
    pub(super) identity: Identity,
    pub(super) buffered: File,
    /// The same file opened with `O_DIRECT`, if possible.
    pub(super) direct: Option<File>,
    /// Set once the file system has rejected direct I/O after a successful open.
    pub(super) direct_refused: AtomicBool,
    /// Writes of fewer bytes go through the page cache.
    pub(super) direct_writes_from: usize,
    /// Open for writing: it changes by our own writes, and reads do not fail for that.
    pub(super) writable: bool,
}

impl OpenFile {
    /// Opens the file at `path` for reading; follows a link as long as it stays inside the store.
    pub(super) fn read(root: &Root, path: &Path, direct: bool) -> Result<Self> {
        let place = root.place(path);
        // `O_PATH` first: opening a FIFO would wait for a writer, and opening a device may act on
        // it.
        let handle = root.open_at(path, OFlags::PATH)?;
        let failed = |error| os_error(&place, error);
        let stat = rustix::fs::fstat(&handle).map_err(failed)?;
        regular(&stat, &place)?;
        let buffered = reopen(&handle, OFlags::RDONLY).map_err(failed)?;
        let direct = if direct { reopen(&handle, OFlags::RDONLY | OFlags::DIRECT).ok() } else { None };
        let direct_refused = AtomicBool::new(false);
        Ok(Self {
            identity: identity(&stat),
            place,
            buffered,
            direct,
            direct_refused,
            direct_writes_from: 0,
            writable: false,
        })
    }

    /// Opens the file at `at` for writing, and creates it if `how` says so. Does not follow a link.
    /// With `direct`, reads and writes of at least this many bytes bypass the page cache.
    pub(super) fn write(at: &At<'_>, how: &OpenWrite, direct: Option<usize>) -> Result<Self> {
        let failed = |error| at.failed(error);
        let (buffered, handle) = match find_or_create(at, how)? {
            // Created with write access, whatever its mode allows later.
            Found::Created(file) => (file, None),
            Found::There(handle) => {
                let truncate = if how.truncate { OFlags::TRUNC } else { OFlags::empty() };
                let buffered = match reopen(&handle, OFlags::RDWR | truncate) {
                    // A user who may write but not read can still write.
                    Err(Errno::ACCESS) => reopen(&handle, OFlags::WRONLY | truncate),
                    result => result,
                };
                (buffered.map_err(failed)?, Some(handle))
            }
        };
        let flags = OFlags::RDWR | OFlags::DIRECT;
        let direct_from = direct;
        let direct = match handle {
            _ if direct_from.is_none() => None,
            // Kept open: the reopen is by its number.
            Some(handle) => reopen(&handle, flags).ok(),
            None => reopen(&buffered, flags).ok(),
        };
        let identity = identity(&rustix::fs::fstat(&buffered).map_err(failed)?);
        let direct_refused = AtomicBool::new(false);
        let direct_writes_from = direct_from.unwrap_or(0);
        let place = at.place.clone();
        Ok(Self { place, identity, buffered, direct, direct_refused, direct_writes_from, writable: true })
    }

    /// Reopens the file for reading, with its current identity.
    fn anew(&self) -> Result<Self> {
        let flags = self.answer(rustix::fs::fcntl_getfl(&self.buffered))?;
        let buffered = if flags.contains(OFlags::WRONLY) {
            self.answer(reopen(&self.buffered, OFlags::RDONLY))?
        } else {
            // A program that could read it at the open keeps access, whatever its mode is now.
            own(|| self.buffered.try_clone()).map_err(|error| Error::from_os(self.place.display(), &error))?
        };
        Ok(Self {
            identity: identity(&self.answer(rustix::fs::fstat(&buffered))?),
            place: self.place.clone(),
            direct: self.direct.as_ref().and_then(|direct| own(|| direct.try_clone()).ok()),
            direct_refused: AtomicBool::new(self.direct_refused.load(Ordering::Relaxed)),
            direct_writes_from: 0,
            writable: false,
            buffered,
        })
    }

    /// The descriptor for I/O at `offset` with memory that is `aligned` or not, and whether it is
    /// the direct one.
    pub(super) fn descriptor(&self, offset: u64, aligned: bool) -> (&File, bool) {
        match &self.direct {
            Some(direct)
                if aligned
                    && offset.is_multiple_of(ALIGNMENT as u64)
                    && !self.direct_refused.load(Ordering::Relaxed) =>
            {
                (direct, true)
            }
            _ => (&self.buffered, false),
        }
    }

    /// Fails if the file is no longer the version that was opened; never for a file open for
    /// writing.
    pub(super) fn check(&self) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        let now = self.answer(rustix::fs::fstat(&self.buffered))?;
        if identity(&now) == self.identity {
            Ok(())
        } else {
            Err(path::changed(&self.place.display().to_string()))
        }
    }

    pub(super) fn answer<T>(&self, answer: std::result::Result<T, Errno>) -> Result<T> {
        answer.map_err(|error| os_error(&self.place, error))
    }
}

/// An open file, and the carrier of its requests.
#[derive(Debug)]
pub(super) struct FileObject {
    pub(super) file: Arc<OpenFile>,
    pub(super) carrier: Arc<Carrier>,
}

impl Object for FileObject {
    fn identity(&self) -> &Identity {
        &self.file.identity
    }

    fn place(&self) -> u64 {
        // A guess of the offset on the device: file systems put files near their inodes and number
        // inodes by position; ext4 creates one for each 16 KiB. The exact offset (`FIEMAP`) costs a
        // system call for each open, and a file has more than one extent.
        self.file.identity.inode.map_or(0, |inode| inode.saturating_mul(16 << 10))
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.carrier.add(Request::read(Arc::clone(&self.file), offset, buf, sink));
    }

    fn read_here(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        Request::read(Arc::clone(&self.file), offset, buf, sink).run();
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        // The descriptor's own position is unused: all I/O passes its offset.
        self.file.answer(rustix::fs::seek(&self.file.buffered, from))
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let anew = |file| Arc::new(Self { file: Arc::new(file), carrier: Arc::clone(&self.carrier) }) as _;
        Some(self.file.anew().map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        Some(&*self.file)
    }
}

impl WriteObject for FileObject {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.carrier.add(Request::write(Arc::clone(&self.file), offset, buf, sink));
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        let file = &self.file.buffered;
        self.file.answer(if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.answer(rustix::fs::ftruncate(&self.file.buffered, len))
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match how {
            Allocate::Reserve { keep_size } => keep(keep_size),
            Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocate::Zero { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
            Allocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
            Allocate::Insert => FallocateFlags::INSERT_RANGE,
        };
        self.file.answer(rustix::fs::fallocate(&self.file.buffered, flags, offset, len))
    }

    fn finish(&self) -> Result<Identity> {
        self.file.answer(rustix::fs::fstat(&self.file.buffered)).map(|stat| identity(&stat))
    }
}

/// Result of [`find_or_create`].
enum Found {
    There(OwnedFd),
    Created(File),
}

fn find_or_create(at: &At<'_>, how: &OpenWrite) -> Result<Found> {
    let mut tries = 0;
    loop {
        match at.handle() {
            Ok(_) if how.create && how.exclusive => return Err(at.failed(Errno::EXIST)),
            Ok(handle) => {
                // Before the open: opening a device may act on it.
                regular(&rustix::fs::fstat(&handle).map_err(|error| at.failed(error))?, &at.place)?;
                return Ok(Found::There(handle));
            }
            Err(Errno::NOENT) if how.create => match create(at, how) {
                // Another process has just created it, or creates and removes it repeatedly.
                Err(Errno::EXIST) if !how.exclusive && tries < TRIES_MAX => tries += 1,
                created => return created.map(Found::Created).map_err(|error| at.failed(error)),
            },
            Err(error) => return Err(at.failed(error)),
        }
    }
}

fn create(at: &At<'_>, how: &OpenWrite) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let acting = Acting::begin(how.owner)?;
    let mode = Mode::from_raw_mode(how.mode & 0o7777);
    let created = own(|| rustix::fs::openat(at.directory(), at.name, flags, mode))?;
    drop(acting);
    if let Some(mode) = without_umask(at, rustix::fs::fstat(&created)?.st_mode, how.mode) {
        rustix::fs::fchmod(&created, mode)?;
    }
    Ok(created.into())
}

/// Fails unless `stat` describes a regular file.
fn regular(stat: &Stat, place: &Path) -> Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::from_os(place.display(), &Errno::ISDIR.into())
            .with_message(format!("{}: is a directory; name a file in it", place.display()))),
        FileType::Symlink => Err(os_error(place, Errno::LOOP)),
        _ => Err(special(place)),
    }
}

/// Largest alignment that O_DIRECT requires on common devices.
pub(super) const ALIGNMENT: usize = 4096;
/// Attempts for a name that other processes create and remove.
const TRIES_MAX: u32 = 16;
