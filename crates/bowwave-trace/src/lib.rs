#![doc = include_str!("../README.md")]
//!
//! [`binary`] is the binary form, [`generate`] generates traces, [`import`] reads the logs of other
//! tools.

pub mod binary;
mod bytes;
mod csv;
mod error;
pub mod generate;
pub mod import;
mod reader;
mod record;
mod writer;

pub use error::{Error, Result};
pub use reader::Reader;
pub use record::{Op, Record};
pub use writer::Writer;

/// The first line of every trace.
pub const HEADER: &str = "time_ns,pid,op,file,offset,length";

/// Maximum bytes of a row, including line ends: limits the memory of a [`Reader`].
///
/// A path has at most 4096 bytes, or 8 KiB with every quote escaped. Smaller: long object keys do
/// not fit. Larger: a binary file is rejected later.
pub const ROW_BYTES_MAX: usize = 64 << 10;
