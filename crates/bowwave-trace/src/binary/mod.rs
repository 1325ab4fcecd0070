//! The compact form of a trace: fixed rows to stream from a memory map, tables of names behind them.
//!
//! ```text
//!   0                64                    64 + 24·rows                                  size − 80    size
//!   ┌────────────────┬─────────────────────┬─────────┬───────────┬─────────────┬──────────┬────────────┐
//!   │ header         │ rows                │ files   │ streams   │ long lengths│ names    │ trailer    │
//!   │ magic, version │ 24 bytes each       │ 16 each │ 16 each   │ 8 each      │ UTF-8    │ counts, CRC│
//!   └────────────────┴─────────────────────┴─────────┴───────────┴─────────────┴──────────┴────────────┘
//!
//!   header   0 magic "\x89BWTRACE"   8 version u32 = 1   12 bytes of a row u32 = 24   16…63 zero
//!
//!   row      0         8         16       20        24
//!            │ time_ns │ offset  │ length │ what    │
//!            │ u64     │ u64     │ u32    │ u32     │
//!            length: bit 31 clear, the bytes; set, bits 0…30 are an index into the long lengths
//!            what:   bits 0…3 the operation (index into Op::ALL), bits 4…31 the stream
//!
//!   file     0 end u64: the highest offset + length of its accesses   8 end of its name among the names u64
//!   stream   0 pid u64   8 file u64: index of a file
//!   long     0 length u64
//!
//!   trailer  0 rows u64   8 files u64   16 streams u64   24 long lengths u64   32 bytes of names u64
//!            40 CRC-32 of the rows u32   44 CRC-32 of the tables (files to names) u32
//!            48…67 zero   68 CRC-32 of bytes 0…67 of the trailer u32   72 magic again
//! ```
//!
//! All numbers are little-endian. What is not known until the end stands at the end, so a [`Writer`] needs no seek and
//! no more memory than the tables. The counts must add up to the size of the file, so a cut file is found out when it is
//! opened; so is one whose writer was stopped, which has no trailer. The CRC of the tables is checked then, that of the
//! rows by [`Trace::verify`]. Rows are checked one by one as they are read: no bytes make a reader panic.
//!
//! A row costs 24 bytes whatever its names: a hundred million are 2.4 GB.
//!
//! ```
//! use bowwave_trace::{Op, binary};
//!
//! let mut writer = binary::Writer::new(Vec::new())?;
//! let file = writer.file("a")?;
//! let stream = writer.stream(1, file)?;
//! writer.row(binary::Row { time_ns: 0, op: Op::Read, stream, offset: 4096, length: 8192 })?;
//! let trace = binary::Trace::new(writer.finish()?, "example")?;
//! assert_eq!(trace.rows().map(|row| row.map(|row| row.length)).collect::<Vec<_>>(), [Ok(8192)]);
//! assert_eq!((trace.file_name(file), trace.file_end(file)), ("a", 12288));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod layout;
mod map;
mod trace;
mod writer;

pub use map::Bytes;
pub use trace::{BadRow, Records, Row, Rows, Stream, Trace};
pub use writer::Writer;

/// Extension of files of this form.
pub const EXTENSION: &str = "bwt";

/// Whether a file that begins with `head` is meant to be of this form; 8 bytes are enough to tell.
#[must_use]
pub fn is_binary(head: &[u8]) -> bool {
    head.starts_with(&layout::MAGIC)
}
