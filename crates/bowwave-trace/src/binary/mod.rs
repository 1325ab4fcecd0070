//! The compact form of a trace: fixed-size rows to stream from a memory map, followed by name
//! tables.
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
//!   file     0 end u64: the highest offset + length of its accesses   8 end of its name in names u64
//!   stream   0 pid u64   8 file u64: index of a file
//!   long     0 length u64
//!
//!   trailer  0 rows u64   8 files u64   16 streams u64   24 long lengths u64   32 bytes of names u64
//!            40 CRC-32 of the rows u32   44 CRC-32 of the tables (files to names) u32
//!            48…67 zero   68 CRC-32 of bytes 0…67 of the trailer u32   72 magic again
//! ```
//!
//! All numbers are little-endian. The tables and counts come last, so a [`Writer`] needs no seek
//! and no memory beyond the tables. The counts must add up to the file's size, so opening detects a
//! truncated file; a file whose writer was stopped has no trailer. Opening also checks the CRC of
//! the tables, and [`Trace::verify`] that of the rows. Each row is checked when it is read: no
//! input makes a reader panic.
//!
//! A row takes 24 bytes whatever its names: a hundred million rows are 2.4 GB.
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
pub use trace::{BadRow, Row, Rows, Stream, Trace};
pub use writer::Writer;

/// File name extension of this format.
pub const EXTENSION: &str = "bwt";

/// Whether a file that starts with `head` has this format; 8 bytes suffice.
pub fn is_binary(head: &[u8]) -> bool {
    head.starts_with(&layout::MAGIC)
}
