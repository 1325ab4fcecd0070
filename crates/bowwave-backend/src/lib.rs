//! Where bytes come from and go to: stores that bowwave can read, and some that it can write, behind one small trait.
//!
//! ```text
//!   engine --read(offset, ReadBuf, ReadSink)--> Object --progress(bytes)…, done(ReadBuf, result)--> engine
//! ```
//!
//! A [`Backend`] is a tree of [`Object`]s. Metadata calls block; reads do not: the backend owns the
//! threads, rings or connections that carry them out, fills the lent [`ReadBuf`] and answers through
//! the [`ReadSink`], once. Writes go the same way: from a lent [`WriteBuf`] of a [`WriteObject`] to a [`WriteSink`]. Offsets and bytes are all it knows: no pages, no cache, no policy, no retries.
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
//! | URL | what | who carries requests out |
//! |---|---|---|
//! | a path, `file:` | [`FileBackend`] | an io_uring and its thread, or threads with `preadv` and `pwritev` |
//! | `http:`, `https:` | [`HttpBackend`], read only | two network threads of the crate |
//! | `s3:`, `gs:`, `az:` | [`ObjectBackend`] | the same |
//! | `memory:` | [`MemoryBackend`] | the caller up to 64 KiB, two copying threads beyond |
//! | `pattern:` | [`PatternBackend`], read only | the same |
//! | `emulate:` | [`Emulate`] over any of them | the store below, and a timer thread |
//!
//! Over any store: [`DiskCache`], [`Throttle`], [`Limit`], [`Fault`], [`Trace`]. All of them, and yours, pass the suite of the module
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
//! It repeats no read: that is the engine's part, with the same rules ([`bowwave_core::network`]). It locks nothing, writes
//! no web server, and follows no change: a changed object fails its readers, who open it again. It checks
//! versions, lengths and, of S3, checksums.

mod backend;
mod buf;
mod chance;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod emulate;
mod entry;
mod error;
mod file;
#[cfg(all(any(test, feature = "fuzzing"), feature = "s3"))]
pub mod fuzzing;
mod generate;
mod memory;
#[cfg(feature = "http")]
#[cfg_attr(not(feature = "s3"), expect(dead_code, reason = "bounds and checksums of object stores"))]
mod net;
mod part_memory;
mod path;
pub mod pattern;
mod pool;
mod process;
mod units;
mod url;
mod wait;
mod wrap;
mod write;
mod write_buf;

pub use backend::{Backend, FoundEntry, Object, ReadSink};
pub use buf::ReadBuf;
pub use emulate::{Device, Disk, Emulate};
pub use entry::{Entry, EntryKind, Identity, NetworkStats, Profile, Unix};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileBackend, FileIo, io_uring};
pub use memory::MemoryBackend;
#[cfg(feature = "http")]
pub use net::http::HttpBackend;
#[cfg(feature = "s3")]
pub use net::object::ObjectBackend;
pub use part_memory::PartMemory;
pub use pattern::PatternBackend;
pub use process::forked;
pub use units::{parse_duration, parse_rate, parse_size, size_text};
pub use url::{Credentials, Options, local_path, open_url, redacted};
pub use wait::{
    Heard, read_exact, read_once, start_read, start_read_here, start_write, write_exact, write_once,
};
pub use wrap::{
    DiskCache, DiskStats, Fault, Faults, Limit, Operation, Record, Throttle, Trace, TraceLog, WriteFaults,
};
pub use write::{
    Allocate, Attributes, OpenWrite, Owner, Rename, Seek, SetAttributes, SetTime, SetXattr, StatFs, Upload,
    WriteObject, WriteSink, Writes,
};
pub use write_buf::WriteBuf;
