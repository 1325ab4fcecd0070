#![doc = include_str!("../README.md")]
//!
//! # Driving a store
//!
//! Open a store with [`open_url`] and read its [`Profile`]. Keep at most [`Profile::slots`] reads
//! in flight, each of at most [`Profile::request_bytes_best`] bytes. Further reads wait in the
//! store. With about 4,096 of them, the next read may fail with [`ErrorKind::Throttled`].
//! [`Error::is_retryable`] says whether a retry may help. [`Error::retry_after`] is the pause that
//! the server requested. Reads in flight complete even if the store or the object is dropped.
//!
//! Versions, lengths and, for S3, checksums of responses are verified. The caller retries reads,
//! with the rules of [`bowwave_core::network`].

#[cfg(test)]
extern crate self as bowwave_backend;

mod backend;
mod buf;
mod chance;
#[cfg(any(test, feature = "conformance"))]
#[path = "../tests/conformance/mod.rs"]
pub mod conformance;
pub mod descriptors;
mod emulate;
mod entry;
mod error;
#[cfg(test)]
#[path = "../examples/backend.rs"]
mod example;
mod file;
#[cfg(all(any(test, feature = "fuzzing"), feature = "s3"))]
pub mod fuzzing;
mod generate;
mod memory;
mod namespace;
#[cfg(feature = "http")]
#[cfg_attr(not(feature = "s3"), expect(dead_code, reason = "bounds and checksums of object stores"))]
mod net;
mod part_memory;
mod path;
pub mod pattern;
mod pool;
mod process;
#[doc(hidden)]
pub mod sync;
mod units;
mod url;
mod wait;
mod wrap;
mod write;
mod write_buf;

pub use backend::{Backend, Object, ReadSink, WillRead};
pub use buf::ReadBuf;
pub use emulate::{Device, emulate};
pub use entry::{Entry, EntryKind, Identity, KeepNames, NetworkStats, Profile, SMALL_BYTES, Unix, Validity};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileBackend, FileIo, io_uring};
pub use memory::MemoryBackend;
pub use namespace::{FoundEntry, Namespace};
#[cfg(feature = "http")]
pub use net::http::HttpBackend;
#[cfg(feature = "s3")]
pub use net::object::ObjectBackend;
pub use part_memory::PartMemory;
pub use path::place;
pub use pattern::PatternBackend;
pub use process::forked;
pub use units::{parse_duration, parse_rate, parse_size, size_text};
pub use url::{Credentials, Options, local_path, open_url, redacted};
pub use wait::{
    Heard, read_end, read_exact, read_once, start_read, start_read_here, start_write, write_exact, write_once,
};
pub use wrap::{DiskCache, DiskStats, Fault, Faults, Limit, Throttle, WriteFaults};
#[doc(hidden)]
pub use wrap::{Layer, Wrapped, WrappedObject, WrappedWriteObject};
pub use write::{
    Allocate, Attributes, OpenWrite, Owner, Rename, Seek, SetAttributes, SetTime, SetXattr, StatFs, Upload,
    Write, WriteObject, WriteSink, Writes,
};
pub use write_buf::WriteBuf;
