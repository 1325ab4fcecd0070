//! Access logs: which process touched which bytes of which file, and when.
//!
//! ```text
//!   time_ns,pid,op,file,offset,length        one header, then one access a row
//!   0,1,read,movie.mkv,0,131072
//!   1500000,1,read,movie.mkv,131072,131072
//! ```
//!
//! A [`Reader`] streams [`Record`]s out of any [`BufRead`](std::io::BufRead) in constant memory, a [`Writer`] puts
//! them back, and what one writes the other reads as the same record. The format is RFC 4180 CSV with exactly these
//! six columns: times in nanoseconds of the tracer's clock, offsets and lengths in bytes, names in UTF-8.
//!
//! ```
//! use bowwave_trace::{Op, Reader};
//!
//! let text = "time_ns,pid,op,file,offset,length\n0,1,read,\"a,b\",0,4096\n";
//! let records: Vec<_> = Reader::new(text.as_bytes(), "example").collect::<Result<_, _>>()?;
//! assert_eq!((records[0].op, records[0].file.as_str()), (Op::Read, "a,b"));
//! # Ok::<(), bowwave_trace::Error>(())
//! ```
//!
//! [`binary`] is a second form of the same rows, for traces of many millions; [`generate`] makes traces up; [`import`]
//! reads the logs of other tools as the same records.
//!
//! The crate knows no pages and no policy, keeps no index and does not sort: rows come in the order of the file.

pub mod binary;
mod bytes;
mod csv;
mod error;
pub mod generate;
pub mod import;
pub mod oracle_general;
mod reader;
mod record;
mod words;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use reader::Reader;
pub use record::{Op, Record};
pub use writer::Writer;

/// The first line of every trace.
pub const HEADER: &str = "time_ns,pid,op,file,offset,length";

/// Most bytes a row may have, line ends included: the bound on what a [`Reader`] holds of its input.
///
/// A path has at most 4096 bytes, twice that if each is a quote; sixteen times that leaves room for object keys and
/// still refuses a binary file at once.
pub const ROW_BYTES_MAX: usize = 64 << 10;
