//! Local files and directories: reads bypass the kernel's page cache where the file system allows
//! it.
//!
//! Requests go through one io_uring with its own thread (`ring`), or through a small thread pool if
//! the kernel offers no ring. After each read the file is checked: if inode, time of
//! modification or size have changed, the read fails. Files open for writing are exempt: our own
//! writes change them.
//!
//! No name leads out of the directory (`root`), and new files belong to the caller (`owner`).

mod attributes;
mod open;
mod owner;
mod request;
#[cfg(feature = "io-uring")]
mod ring;
mod root;
mod tree;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, OFlags, StatVfsMountFlags, major, minor};
use rustix::io::Errno;

use self::open::{ALIGNMENT, FileObject, OpenFile};
use self::request::Request;
#[cfg(feature = "io-uring")]
pub use self::ring::io_uring;
use self::root::Root;
use crate::pool::Pool;
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Namespace, Object, OpenWrite, Owner, Profile, Rename,
    Result, SetAttributes, SetXattr, StatFs, Write, WriteObject, Writes,
};

/// How reads and writes of files are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileIo {
    /// io_uring if the kernel offers it, threads if not.
    #[default]
    Auto,
    /// io_uring, or fail to open.
    Ring,
    /// Threads that call `preadv`.
    Threads,
}

/// A directory with everything below it, or a single file.
#[derive(Debug)]
pub struct FileBackend {
    url: String,
    root: Root,
    direct: bool,
    slots: u32,
    writes: Writes,
    rotates: bool,
    /// Writes of fewer bytes go through the kernel's cache.
    direct_writes_from: usize,
    carrier: Arc<Carrier>,
}

impl FileBackend {
    /// Opens the directory or file at `root`. With `direct`, files are read with `O_DIRECT` where
    /// their file system supports it. `slots` bounds the reads in flight; the default is 64 for a
    /// ring and 8 for threads.
    ///
    /// # Errors
    /// `NotFound` and the like if `root` cannot be accessed. `Unsupported` if it is neither a file
    /// nor a directory, or if the requested `io` is not available.
    pub fn open(root: impl AsRef<Path>, io: FileIo, direct: bool, slots: Option<u32>) -> Result<Self> {
        let place = root.as_ref();
        let place = std::path::absolute(place).map_err(|error| Error::from_os(place.display(), &error))?;
        let url = format!("file://{}", place.display());
        let metadata = std::fs::metadata(&place).map_err(|error| Error::from_os(place.display(), &error))?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(special(&place));
        }
        let root = Root::open(place)?;
        let carrier = Carrier::start(io, slots)?;
        let slots = slots.unwrap_or_else(|| carrier.slots_default()).max(1);
        let read_only = rustix::fs::fstatvfs(root.directory())
            .is_ok_and(|room| room.f_flag.contains(StatVfsMountFlags::RDONLY));
        let writes = if read_only { Writes::No } else { Writes::Anywhere };
        let rotates = rotates(root.directory());
        let direct_writes_from = DIRECT_BYTES_MIN;
        Ok(Self { url, root, direct, slots, writes, rotates, direct_writes_from, carrier: Arc::new(carrier) })
    }

    /// As [`open`](Self::open). With `direct`, even the smallest aligned write bypasses the
    /// kernel's cache: for files that the caller caches itself, such as a spill file.
    #[must_use]
    pub fn with_all_writes_direct(mut self) -> Self {
        self.direct_writes_from = 0;
        self
    }
}

impl Backend for FileBackend {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        Profile {
            slots: self.slots,
            alignment: if self.direct { ALIGNMENT as u32 } else { 1 },
            latency: Duration::from_micros(100),
            seeks: self.rotates,
            writes: self.writes,
            write_part_bytes: 1 << 20,
            ..Profile::read_only("file")
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let file = OpenFile::read(&self.root, path, self.direct)?;
        Ok(Arc::new(FileObject { file: Arc::new(file), carrier: Arc::clone(&self.carrier) }))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }
}

impl Namespace for FileBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let at = self.root.at(path)?;
        let stat = rustix::fs::statat(at.directory(), at.name, AtFlags::SYMLINK_NOFOLLOW);
        let name = path.file_name().unwrap_or_default();
        stat.map(|stat| attributes::entry(name, &stat)).map_err(|error| at.failed(error))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let directory = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let failed = |error| root::os_error(&self.root.place(path), error);
        let mut entries = Vec::new();
        for found in Dir::read_from(&directory).map_err(failed)? {
            let found = found.map_err(failed)?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(attributes::entry(OsStr::from_bytes(name.to_bytes()), &stat)),
                // Removed between the two calls.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let at = self.root.at(path)?;
        match rustix::fs::readlinkat(at.directory(), at.name, Vec::new()) {
            Ok(target) => Ok(PathBuf::from(OsString::from_vec(target.into_bytes()))),
            Err(Errno::INVAL) => {
                Err(Error::new(ErrorKind::Unsupported, format!("{}: is not a link", at.place.display())))
            }
            Err(error) => Err(at.failed(error)),
        }
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let at = self.root.named(path)?;
        tree::create_directory(&at, mode, owner).map_err(|error| at.failed(error))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let at = self.root.named(path)?;
        tree::remove(&at, false).map_err(|error| at.failed(error))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let at = self.root.named(path)?;
        tree::remove(&at, true).map_err(|error| at.failed(error))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let (from, to) = (self.root.named(from)?, self.root.named(to)?);
        tree::rename(&from, &to, how).map_err(|error| to.failed(error))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (self.root.named(from)?, self.root.named(to)?);
        tree::link(&from, &to).map_err(|error| to.failed(error))
    }

    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let at = self.root.named(path)?;
        tree::symlink(target, &at, owner).map_err(|error| at.failed(error))
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        let at = self.root.named(path)?;
        tree::create_node(&at, kind, mode, special_device, owner).map_err(|error| at.failed(error))
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let at = self.root.at(path)?;
        attributes::set(&at, attributes).map_err(|error| at.failed(error))
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let at = self.root.at(path)?;
        attributes::xattr(&at, name).map_err(|error| at.failed(error))
    }

    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        let at = self.root.at(path)?;
        attributes::list_xattrs(&at).map_err(|error| at.failed(error))
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let at = self.root.at(path)?;
        attributes::set_xattr(&at, name, value, how).map_err(|error| at.failed(error))
    }

    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        let at = self.root.at(path)?;
        attributes::remove_xattr(&at, name).map_err(|error| at.failed(error))
    }

    fn statfs(&self) -> Result<StatFs> {
        let room = rustix::fs::fstatvfs(self.root.directory())
            .map_err(|error| root::os_error(&self.root.place(Path::new("")), error))?;
        Ok(StatFs {
            block_bytes: room.f_frsize,
            blocks: room.f_blocks,
            blocks_free: room.f_bfree,
            blocks_available: room.f_bavail,
            files: room.f_files,
            files_free: room.f_ffree,
            name_bytes_max: u32::try_from(room.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let directory = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::fsync(directory).map_err(|error| root::os_error(&self.root.place(path), error))
    }
}

impl Write for FileBackend {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let direct = self.direct.then_some(self.direct_writes_from);
        let file = OpenFile::write(&self.root.at(path)?, how, direct)?;
        Ok(Arc::new(FileObject { file: Arc::new(file), carrier: Arc::clone(&self.carrier) }))
    }
}

#[derive(Debug)]
enum Carrier {
    #[cfg(feature = "io-uring")]
    Ring(ring::Ring),
    /// Calls of `preadv` and `pwritev`.
    Threads(Pool),
}

impl Carrier {
    fn add(&self, request: Request) {
        match self {
            #[cfg(feature = "io-uring")]
            Self::Ring(ring) => ring.add(request),
            Self::Threads(pool) => pool.add(Box::new(request)),
        }
    }

    fn start(io: FileIo, slots: Option<u32>) -> Result<Self> {
        let failed = |what: &str, error: &io::Error| {
            let remedy = "use FileIo::Auto or FileIo::Threads";
            Error::new(ErrorKind::Unsupported, format!("cannot start {what}: {error}; {remedy}"))
        };
        #[cfg(not(feature = "io-uring"))]
        if io == FileIo::Ring {
            io_uring().map_err(|error| failed("io_uring", &error))?;
        }
        #[cfg(feature = "io-uring")]
        if io != FileIo::Threads {
            match ring::Ring::start(slots.unwrap_or(RING_SLOTS)) {
                Ok(ring) => return Ok(Self::Ring(ring)),
                Err(error) if io == FileIo::Ring => return Err(failed("io_uring", &error)),
                // An old kernel, a container policy or a sysctl forbids rings: threads do the same,
                // somewhat slower.
                Err(_) => {}
            }
        }
        let threads = slots.unwrap_or(THREADS).clamp(1, THREADS_MAX) as usize;
        Pool::start("bowwave-file", threads).map(Self::Threads).map_err(|error| failed("threads", &error))
    }

    fn slots_default(&self) -> u32 {
        match self {
            #[cfg(feature = "io-uring")]
            Self::Ring(_) => RING_SLOTS,
            Self::Threads(_) => THREADS,
        }
    }
}

/// Whether a file system lies on a rotating disk, as the kernel reports it; a partition has its
/// disk's flag.
fn rotates(directory: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(directory) else { return false };
    let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
    ["", "/.."].iter().any(|whole| {
        let flag = std::fs::read_to_string(format!("{device}{whole}/queue/rotational"));
        flag.is_ok_and(|flag| flag.trim() == "1")
    })
}

fn special(place: &Path) -> Error {
    let message = format!("{}: is neither file nor directory (a FIFO, socket or device)", place.display());
    Error::new(ErrorKind::Unsupported, message)
}

/// Smaller writes go through the kernel's cache by default. On a disk, the transfer time of such a
/// write matters beside the seek.
const DIRECT_BYTES_MIN: usize = 256 << 10;
/// Whether this process may use io_uring: never in this build.
///
/// # Errors
/// Always.
#[cfg(not(feature = "io-uring"))]
pub fn io_uring() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "built without the feature `io-uring`"))
}

/// Requests in flight in a ring: enough for an NVMe drive, and the engine's limit.
#[cfg(feature = "io-uring")]
const RING_SLOTS: u32 = 64;
/// Threads where there is no ring.
const THREADS: u32 = 8;
/// Most threads. More only compete for the device.
const THREADS_MAX: u32 = 64;

#[cfg(test)]
mod tests;
