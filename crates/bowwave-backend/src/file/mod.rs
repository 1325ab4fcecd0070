//! Local files and folders, read past the kernel's page cache where the file system allows it.
//!
//! Reads go through one io_uring with its own thread (`ring`), or through a small pool of threads where the kernel
//! offers no ring (`threads`). After each read the file is looked at again: if inode, time of modification or size
//! have moved, the bytes are not given out.

mod ring;
mod threads;

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Identity, Object, Profile, ReadBuf, ReadSink, Result, Unix,
};
use crate::{generate, path};

/// How file reads are carried out.
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

/// A folder and all below it, or a single file.
#[derive(Debug)]
pub struct FileBackend {
    url: String,
    root: PathBuf,
    direct: bool,
    slots: u32,
    reader: Arc<Reader>,
}

impl FileBackend {
    /// Opens the folder or file at `root`. With `direct`, files are read with `O_DIRECT` where their file system has
    /// it. `slots` bounds the reads in flight; the default is 64 for a ring and 8 for threads.
    ///
    /// # Errors
    /// `NotFound` and the like if `root` cannot be looked at, `Unsupported` if it is neither file nor folder or if the
    /// asked-for `io` is not to be had.
    pub fn open(root: impl AsRef<Path>, io: FileIo, direct: bool, slots: Option<u32>) -> Result<Self> {
        let root = std::path::absolute(root.as_ref()).map_err(|error| io_error(root.as_ref(), &error))?;
        let url = format!("file://{}", root.display());
        // The root alone may be a link: who names a link means what it points to.
        let metadata = fs::metadata(&root).map_err(|error| io_error(&root, &error))?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(special(&root));
        }
        let reader = Reader::start(io, slots)?;
        let slots = slots.unwrap_or_else(|| reader.slots_default()).max(1);
        Ok(Self { url, root, direct, slots, reader: Arc::new(reader) })
    }

    fn place(&self, path: &Path) -> PathBuf {
        // Joining an empty path would add a slash, and a file has nothing below it.
        if path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(path) }
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
            ..Profile::read_only("file")
        }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        path::check(path)?;
        let place = self.place(path);
        let root = path.as_os_str().is_empty();
        let metadata = if root { fs::metadata(&place) } else { fs::symlink_metadata(&place) };
        let metadata = metadata.map_err(|error| io_error(&place, &error))?;
        Ok(entry(path.file_name().unwrap_or_default(), &metadata))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        path::check(path)?;
        let place = self.place(path);
        let mut entries = Vec::new();
        for found in fs::read_dir(&place).map_err(|error| io_error(&place, &error))? {
            let found = found.map_err(|error| io_error(&place, &error))?;
            match found.metadata() {
                Ok(metadata) => entries.push(entry(&found.file_name(), &metadata)),
                // Gone between the two looks.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(&found.path(), &error)),
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        path::check(path)?;
        let place = self.place(path);
        fs::read_link(&place).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                Error::new(ErrorKind::Unsupported, format!("{}: is not a link", place.display()))
            }
            _ => io_error(&place, &error),
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        path::check(path)?;
        let file = OpenFile::open(self.place(path), self.direct)?;
        Ok(Arc::new(FileObject { file: Arc::new(file), reader: Arc::clone(&self.reader) }))
    }
}

#[derive(Debug)]
struct FileObject {
    file: Arc<OpenFile>,
    reader: Arc<Reader>,
}

impl Object for FileObject {
    fn size(&self) -> u64 {
        self.file.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.file.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let request = Request::new(Arc::clone(&self.file), offset, buf, sink);
        match &*self.reader {
            Reader::Ring(ring) => ring.add(request),
            Reader::Threads(threads) => threads.add(request),
        }
    }
}

#[derive(Debug)]
enum Reader {
    Ring(ring::Ring),
    Threads(threads::Threads),
}

impl Reader {
    fn start(io: FileIo, slots: Option<u32>) -> Result<Self> {
        let failed = |what: &str, error: &io::Error| {
            let remedy = "use FileIo::Auto or FileIo::Threads";
            Error::new(ErrorKind::Unsupported, format!("cannot start {what}: {error}; {remedy}"))
        };
        if io != FileIo::Threads {
            match ring::Ring::start(slots.unwrap_or(RING_SLOTS)) {
                Ok(ring) => return Ok(Self::Ring(ring)),
                Err(error) if io == FileIo::Ring => return Err(failed("io_uring", &error)),
                // Old kernel, container policy or sysctl: threads do the same, somewhat slower.
                Err(_) => {}
            }
        }
        let threads = threads::Threads::start(slots.unwrap_or(THREADS)).map_err(|e| failed("threads", &e))?;
        Ok(Self::Threads(threads))
    }

    fn slots_default(&self) -> u32 {
        match self {
            Self::Ring(_) => RING_SLOTS,
            Self::Threads(_) => THREADS,
        }
    }
}

/// A file held open, with the identity it had then.
#[derive(Debug)]
struct OpenFile {
    place: PathBuf,
    identity: Identity,
    buffered: File,
    /// The same file opened past the page cache, where that is possible.
    direct: Option<File>,
    /// Set once the file system has refused a direct read that it promised.
    direct_refused: AtomicBool,
}

impl OpenFile {
    fn open(place: PathBuf, direct: bool) -> Result<Self> {
        let failed = |error: io::Error| io_error(&place, &error);
        // A look first: opening a FIFO would wait for a writer, opening a device may act on it.
        let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&place).map_err(failed)?;
        let metadata = handle.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                format!("{}: is a folder; name a file in it", place.display()),
            ));
        }
        if !metadata.is_file() {
            return Err(special(&place));
        }
        let buffered = reopen(&handle, 0).map_err(failed)?;
        let direct = if direct { reopen(&handle, libc::O_DIRECT).ok() } else { None };
        let identity = identity(&metadata);
        Ok(Self { place, identity, buffered, direct, direct_refused: AtomicBool::new(false) })
    }

    /// The descriptor to read `len` bytes at `offset` into `buf` with, and whether it is the direct one.
    fn descriptor(&self, offset: u64, buf: &ReadBuf) -> (&File, bool) {
        match &self.direct {
            Some(direct)
                if offset.is_multiple_of(ALIGNMENT as u64)
                    && buf.is_aligned(ALIGNMENT)
                    && !self.direct_refused.load(Ordering::Relaxed) =>
            {
                (direct, true)
            }
            _ => (&self.buffered, false),
        }
    }

    /// Fails if the file is no longer the one that was opened.
    fn check(&self) -> Result<()> {
        let now = self.buffered.metadata().map_err(|error| io_error(&self.place, &error))?;
        if identity(&now) == self.identity {
            Ok(())
        } else {
            Err(path::changed(&self.place.display().to_string()))
        }
    }
}

/// A read on its way: carried out part by part, by whichever reader.
struct Request {
    file: Arc<OpenFile>,
    offset: u64,
    buf: ReadBuf,
    /// Bytes that lie before the end of the file.
    len: usize,
    done: usize,
    sink: Box<dyn ReadSink>,
}

/// What is left of a request after one of its parts.
enum After {
    More(Request),
    Ended,
}

impl Request {
    fn new(file: Arc<OpenFile>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) -> Self {
        let len = generate::within(file.identity.size, offset, buf.len());
        Self { file, offset, buf, len, done: 0, sink }
    }

    /// The bytes of the buffer that the next system call should fill. May reach past the end of the file, because a
    /// direct read is of whole blocks.
    fn part(&self) -> std::ops::Range<usize> {
        self.done..self.buf.len().min(self.done + PART_BYTES)
    }

    /// Takes the result of reading [`Self::part`], `direct` or not.
    fn advance(mut self, result: io::Result<usize>, direct: bool) -> After {
        match result {
            Ok(count) => {
                self.done = (self.done + count).min(self.len);
                if let Err(error) = self.file.check() {
                    return self.end(Err(error));
                }
                if count == 0 || self.done == self.len {
                    // Zero before the end cannot be: the size was checked just now. If it is, it is a short read.
                    let done = self.done;
                    return self.end(Ok(done));
                }
                self.sink.progress(self.done);
                After::More(self)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => After::More(self),
            // Some file systems accept O_DIRECT and then refuse the read.
            Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => {
                self.file.direct_refused.store(true, Ordering::Relaxed);
                After::More(self)
            }
            Err(error) => {
                let error = io_error(&self.file.place, &error);
                self.end(Err(error))
            }
        }
    }

    fn end(self, result: Result<usize>) -> After {
        self.sink.done(self.buf, result);
        After::Ended
    }

    /// Whether nothing is to be read; then the request ends without a system call.
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn end_empty(self) {
        let result = self.file.check().map(|()| 0);
        self.end(result);
    }
}

/// Opens the file behind `handle` for reading. By descriptor, not by name: it is the one that was looked at.
fn reopen(handle: &File, flags: i32) -> io::Result<File> {
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(flags).open(name)
}

fn identity(metadata: &Metadata) -> Identity {
    let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Identity {
        etag: None,
        modified_ns: Some(modified_ns),
        device: Some(metadata.dev()),
        inode: Some(metadata.ino()),
        size: metadata.len(),
    }
}

/// The entry for what `metadata` describes.
fn entry(name: &OsStr, metadata: &Metadata) -> Entry {
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => EntryKind::Directory,
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_symlink() => EntryKind::Link,
        kind if kind.is_fifo() => EntryKind::Fifo,
        kind if kind.is_socket() => EntryKind::Socket,
        kind if kind.is_char_device() => EntryKind::CharDevice,
        _ => EntryKind::BlockDevice,
    };
    let has_size = matches!(kind, EntryKind::File | EntryKind::Link);
    Entry {
        name: name.to_owned(),
        kind,
        size: if has_size { metadata.len() } else { 0 },
        modified: metadata.modified().ok(),
        mode: Some(metadata.mode() & 0o7777),
        identity: (kind == EntryKind::File).then(|| identity(metadata)),
        unix: Some(unix(metadata)),
    }
}

fn unix(metadata: &Metadata) -> Unix {
    Unix {
        device: metadata.dev(),
        inode: metadata.ino(),
        links: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        special_device: metadata.rdev(),
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        changed: time(metadata.ctime(), metadata.ctime_nsec()),
        blocks: metadata.blocks(),
    }
}

/// The time `seconds` and `nanoseconds` after the epoch; the seconds may be negative. The epoch itself if the clock's
/// type cannot hold it.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    let part = Duration::from_nanos(nanoseconds.unsigned_abs());
    second.and_then(|second| second.checked_add(part)).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn special(place: &Path) -> Error {
    let message = format!("{}: is neither file nor folder (a FIFO, socket or device)", place.display());
    Error::new(ErrorKind::Unsupported, message)
}

fn io_error(place: &Path, error: &io::Error) -> Error {
    Error::from_os(place.display(), error)
}

/// What O_DIRECT may ask of offsets and addresses at most, on any common device.
const ALIGNMENT: usize = 4096;
/// Bytes of one system call. Readers hear of a large read in steps of this size.
const PART_BYTES: usize = 1 << 20;
/// Reads in flight in a ring: enough for an NVMe drive, and what the engine asks for at most.
const RING_SLOTS: u32 = 64;
/// Threads where there is no ring.
const THREADS: u32 = 8;

#[cfg(test)]
mod tests;
