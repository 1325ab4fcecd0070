//! Bytes of a slow store, kept in a directory on a local disk beyond the end of the process.
//!
//! ```text
//!   read ──► all in the directory, with matching checksums ──► from there
//!        └─► else all from the store below ──► the reader, and later a copy to the directory
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `key` | which version of which object bytes belong to |
//! | `directory` | opening entries of the directory, none of which is trusted |
//! | `segment` | the format of files, and their checksums |
//! | `quota` | the directory's size, shared by processes |
//! | `reads`, `health` | threads that read, their deadline, and bypassing a disk that hangs |
//! | `writes` | the thread that writes, and which copies it drops |
//!
//! Objects are identified by URL, path and version (strong entity tag, or time and size). A new
//! open of a changed object never gets old bytes. These objects bypass the cache: those with an
//! unknown version, those open for writing, and those that changed in the last seconds, since equal
//! times may then hide two changes.
//!
//! Several processes may use the directory at once. It never exceeds its size, however a process
//! ends. A disk that fails, hangs or returns other bytes than were written only makes reads slower:
//! the event is counted.

mod directory;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz;
mod health;
mod key;
mod quota;
mod reads;
mod segment;
#[cfg(test)]
mod tests;
mod writes;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::fuzz::fuzz_disk_segment;
use self::health::Limits;
use self::key::Key;
use self::reads::{Pending, Reads};
use self::writes::Writes;
use crate::sync::Mutex;
use crate::{Attributes, Backend, Error, Identity, Object, ReadBuf, ReadSink, Result, Seek, WillRead};

/// A store whose objects are also kept on a disk after they are read.
#[derive(Debug)]
pub struct DiskCache {
    inner: Arc<dyn Backend>,
    tier: Arc<Tier>,
    url: String,
}

/// Counters of a disk cache in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStats {
    /// Requests served from the directory.
    pub hits: u64,
    /// Requests that went to the store.
    pub misses: u64,
    /// Misses that the disk did not complete in time.
    pub timed_out: u64,
    /// Misses that bypassed the disk after earlier time-outs.
    pub bypassed: u64,
    /// Bytes read from the directory.
    pub bytes_read: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Bytes removed from it, to free space.
    pub bytes_evicted: u64,
    /// Bytes not written, because the disk was too slow, full or used up by other processes.
    pub bytes_dropped: u64,
    /// Entries and bytes that differ from those written.
    pub damaged: u64,
    /// Failures of the disk.
    pub errors: u64,
}

impl DiskCache {
    /// Keeps bytes read from `inner` in `directory`, up to `bytes` on the disk (at least 64 MiB),
    /// shared by all processes that use the directory. Creates it, for its owner alone, if it is
    /// missing. Blocks for at most ten seconds.
    ///
    /// Stores with an equal [`Backend::url`] share their bytes. The URL of a web server hides the
    /// query: open such a store with [`open_url`](crate::open_url) and a `disk:` URL, which
    /// distinguishes them.
    ///
    /// # Errors
    /// `Invalid` for a directory with other files, for one that another user owns, may write to or
    /// could replace through a parent, and for too few bytes. `Io` if the disk hangs. Otherwise as
    /// the disk says.
    pub fn new(inner: Arc<dyn Backend>, directory: &Path, bytes: u64) -> Result<Self> {
        let source = inner.url().to_owned();
        Self::of_source(inner, source, directory, bytes)
    }

    /// As [`new`](Self::new), for a store that was opened with the URL `opened` and, if it is not
    /// at the cloud's own server, this endpoint: stores that differ in the hidden parts of their
    /// URL share no bytes.
    pub(super) fn of_url(
        inner: Arc<dyn Backend>,
        (opened, endpoint): (&str, Option<&str>),
        directory: &Path,
        bytes: u64,
    ) -> Result<Self> {
        let source = key::source(inner.url(), opened, endpoint);
        Self::of_source(inner, source, directory, bytes)
    }

    fn of_source(inner: Arc<dyn Backend>, source: String, directory: &Path, bytes: u64) -> Result<Self> {
        let limits = Limits::over(inner.profile().latency);
        Self::with_limits(inner, source, directory, bytes, limits, OPEN_LIMIT)
    }

    fn with_limits(
        inner: Arc<dyn Backend>,
        source: String,
        directory: &Path,
        bytes: u64,
        limits: Limits,
        open_limit: Duration,
    ) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let (writes, directory) = Writes::start(directory.to_owned(), bytes, &counters, limits, open_limit)?;
        let reads = Reads::start(directory, Arc::clone(&writes), Arc::clone(&counters), limits);
        let reads = reads.map_err(|error| {
            writes.close(true);
            Error::from_os("disk cache: cannot start threads", &error)
        })?;
        let url = format!("disk:{}", inner.url());
        Ok(Self { inner, tier: Arc::new(Tier { source, counters, reads, writes }), url })
    }
}

/// Longest wait for a disk at the open: the spin-up time of a disk.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

impl Backend for DiskCache {
    fn url(&self) -> &str {
        &self.url
    }

    fn disk(&self) -> Option<DiskStats> {
        Some(self.tier.counters.stats())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.open_to_read(path, WillRead::Any)
    }

    fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<Arc<dyn Object>> {
        // The bytes may be on the disk: they are not requested before it is looked up there.
        let will_read = match will_read {
            WillRead::First { .. } | WillRead::Last { .. } => WillRead::Any,
            other => other,
        };
        Ok(CachedObject::over(self.inner.open_to_read(path, will_read)?, path.into(), &self.tier))
    }

    /// Objects open for writing are the inner store's: they have no version.
    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}

/// A version of an object.
#[derive(Debug)]
struct CachedObject {
    inner: Arc<dyn Object>,
    path: Arc<Path>,
    key: Arc<Key>,
    tier: Arc<Tier>,
}

impl CachedObject {
    /// Wraps an opened object; returns it unchanged if its version is unknown.
    fn over(inner: Arc<dyn Object>, path: Arc<Path>, tier: &Arc<Tier>) -> Arc<dyn Object> {
        match Key::new(&tier.source, &path, inner.identity()) {
            Some(key) => Arc::new(Self { inner, path, key: Arc::new(key), tier: Arc::clone(tier) }),
            None => inner,
        }
    }
}

impl Object for CachedObject {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.inner.place()
    }

    fn is_confirmed(&self) -> bool {
        self.inner.is_confirmed()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let Some(wanted) = self.key.pages(offset, buf.len()) else {
            return self.inner.read(offset, buf, sink);
        };
        let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
        self.tier.reads.add(Pending { inner, key, wanted, buf, sink });
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let anew = |inner| Self::over(inner, Arc::clone(&self.path), &self.tier);
        Some(self.inner.opened_anew()?.map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
    }
}

/// State of a cache that its objects share.
#[derive(Debug)]
struct Tier {
    /// Identity of the store below, in keys.
    source: String,
    counters: Arc<Counters>,
    reads: Arc<Reads>,
    writes: Arc<Writes>,
}

impl Drop for Tier {
    /// Waits briefly for a working disk to write the rest, and not for another.
    fn drop(&mut self) {
        let hurry = !self.reads.is_up();
        self.reads.stop();
        self.writes.close(hurry);
    }
}

#[derive(Debug, Default)]
struct Counters(Mutex<DiskStats>);

impl Counters {
    fn count(&self, add: impl FnOnce(&mut DiskStats)) {
        add(&mut self.0.lock());
    }

    fn stats(&self) -> DiskStats {
        *self.0.lock()
    }
}
