//! Where bytes come from: stores that bowwave can read, behind one small trait.
//!
//! ```text
//!   engine --read(offset, ReadBuf, ReadSink)--> Object --progress(bytes)…, done(ReadBuf, result)--> engine
//! ```
//!
//! A [`Backend`] is a tree of [`Object`]s. Metadata calls block; reads do not: the backend owns the
//! threads, rings or connections that carry them out, fills the lent [`ReadBuf`] and answers through
//! the [`ReadSink`], once. Offsets and bytes are all it knows: no pages, no cache, no policy, no retries.
//!
//! ```
//! use bowwave_backend::{Options, open_url, read_exact};
//! use std::time::Duration;
//!
//! // A made-up file behind an emulated object store: 2 ms to the first byte, then 90 MB/s.
//! let store = open_url("emulate:s3,latency=2ms,metadata=0/1MiB", &Options::default())?;
//! let object = store.open("".as_ref())?;
//! let bytes = read_exact(&*object, 4096, 100, Duration::from_secs(10))?;
//!
//! let mut wanted = [0; 100];
//! bowwave_backend::pattern::fill(bowwave_backend::pattern::seed("1MiB".as_ref()), 4096, &mut wanted);
//! assert_eq!(bytes, wanted);
//! # Ok::<(), bowwave_backend::Error>(())
//! ```
//!
//! # Stores
//!
//! | URL | what | who carries reads out |
//! |---|---|---|
//! | a path, `file:` | [`FileBackend`] | an io_uring and its thread, or threads with `preadv` |
//! | `http:`, `https:` | [`HttpBackend`] | two network threads of the crate |
//! | `s3:`, `gs:`, `az:` | [`ObjectBackend`] | the same |
//! | `memory:` | [`MemoryBackend`] | the caller up to 64 KiB, two copying threads beyond |
//! | `pattern:` | [`PatternBackend`] | the same |
//! | `emulate:` | [`Emulate`] over any of them | the store below, and a timer thread |
//!
//! Over any store: [`Throttle`], [`Limit`], [`Fault`], [`Trace`]. All of them, and yours, pass the suite of the module
//! `conformance` (feature `conformance`).
//!
//! # Driving it
//!
//! Open a store with [`open_url`], ask its [`Profile`], keep no more reads in flight than it has slots and make them
//! no larger than pays. Queues are bounded all the same: a read that finds thousands waiting fails as
//! [`ErrorKind::Throttled`]. Errors say whether trying again may help ([`Error::is_retryable`]) and, where a server
//! says so, when. Dropping a store or an object lets its reads in flight end.
//!
//! # What it does not do
//!
//! It writes nothing, lists no web server, follows no change (a changed object fails its readers, who open it again),
//! and checks no content but its length and version.

mod buf;
mod chance;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod emulate;
mod error;
mod file;
mod generate;
mod memory;
mod net;
mod path;
pub mod pattern;
mod pool;
mod units;
mod url;
mod wait;
mod wrap;

pub use buf::ReadBuf;
pub use emulate::{Device, Disk, Emulate};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileBackend, FileIo};
pub use memory::MemoryBackend;
pub use net::credentials::Credentials;
pub use net::http::HttpBackend;
pub use net::object::ObjectBackend;
pub use pattern::PatternBackend;
pub use units::{parse_duration, parse_rate, parse_size};
pub use url::{Options, open_url};
pub use wait::{Heard, read_exact, read_once, start_read};
pub use wrap::{Fault, Faults, Limit, Record, Throttle, Trace, TraceLog};

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A store: a read-only tree of objects.
///
/// Paths are relative, `/`-separated and normal (no `.`, `..` or empty parts); the empty path is the root.
/// If the URL named a single object, the root is that object.
pub trait Backend: Debug + Send + Sync {
    /// The URL this store was opened with, without credentials; for messages.
    fn url(&self) -> &str;

    /// What the engine must know to use this store well.
    fn profile(&self) -> Profile;

    /// Describes one entry. Blocks.
    ///
    /// # Errors
    /// `NotFound` if nothing stands there; any other kind as the store says.
    fn stat(&self, path: &Path) -> Result<Entry>;

    /// Lists a folder in byte order of names. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `Unsupported` where the store cannot list (plain HTTP).
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;

    /// Reads a symbolic link. Blocks.
    ///
    /// # Errors
    /// `Unsupported` for stores without links (the default).
    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Err(Error::new(ErrorKind::Unsupported, format!("{}: this store has no links", path.display())))
    }

    /// Opens an object for reading and fixes its identity and size. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and as the store says.
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>>;
}

/// An open object: immutable bytes of a known size and identity.
pub trait Object: Debug + Send + Sync {
    /// Size in bytes, as of `open`.
    fn size(&self) -> u64;

    /// What makes these bytes these bytes, as of `open`.
    fn identity(&self) -> &Identity;

    /// Starts reading `buf.len()` bytes at `offset` and returns without waiting for the store.
    ///
    /// The answer comes through `sink`, on a thread of the backend, possibly before this call returns:
    /// any number of [`ReadSink::progress`], then [`ReadSink::done`] exactly once, whatever happens.
    /// The buffer comes back with `done`; until then nobody else touches it. A read that reaches past the end
    /// of the object gives the bytes up to the end; `Ok(n)` with `n` short of both means the store stopped
    /// early (a short read), and the caller asks again for the rest.
    ///
    /// If the object is no longer the one that was opened, the read fails with [`ErrorKind::Changed`]; bytes of
    /// two versions never meet.
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>);
}

/// Hears how a read goes. Called on the backend's threads: be quick and never block.
///
/// What `progress` has called final is the reader's from then on: nobody may touch those bytes again. A sink that is
/// dropped without `done` counts as a failed read. Memory that has not come back when the read has ended, because
/// something may still write to it, is the store's until the last piece of the buffer is dropped.
pub trait ReadSink: Send {
    /// The first `bytes` bytes of the buffer are final. Grows from call to call.
    fn progress(&mut self, bytes: usize);

    /// The read has ended: the first `n` bytes are final, or it failed. Gives the buffer back.
    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>);
}

/// One entry of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Last part of the path; empty for the root.
    pub name: OsString,
    /// File, folder or link.
    pub kind: EntryKind,
    /// Size in bytes; 0 for folders.
    pub size: u64,
    /// Time of the last modification, where the store knows it.
    pub modified: Option<SystemTime>,
    /// Unix permission bits, where the store has them.
    pub mode: Option<u32>,
    /// Identity, where the store tells it in a listing.
    pub identity: Option<Identity>,
}

impl Entry {
    /// A folder of which nothing but the name is known.
    fn directory(name: &OsStr) -> Self {
        Self {
            name: name.to_owned(),
            kind: EntryKind::Directory,
            size: 0,
            modified: None,
            mode: None,
            identity: None,
        }
    }
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An object with bytes.
    File,
    /// A folder (of object stores: a common prefix).
    Directory,
    /// A symbolic link.
    Link,
}

/// What must stay equal for two reads to be of the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// Entity tag, as the server sent it, quotes and weakness mark included.
    pub etag: Option<String>,
    /// Last modification in nanoseconds since the Unix epoch.
    pub modified_ns: Option<i128>,
    /// Inode number, for local files.
    pub inode: Option<u64>,
    /// Size in bytes.
    pub size: u64,
}

/// How a store wants to be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Short name for reports: `file`, `http`, `s3`, `memory`, `emulate:s3` …
    pub kind: String,
    /// Request size in bytes beyond which larger requests no longer pay (about ten times latency × bandwidth
    /// of one connection). A power of two.
    pub request_bytes_best: u64,
    /// Most requests that the store serves at once; the engine keeps no more in flight.
    pub slots: u32,
    /// Alignment in bytes that offsets and buffers must have (1 where anything goes).
    pub alignment: u32,
    /// Typical time to the first byte, for choosing between few large and many small requests.
    pub latency: Duration,
}
