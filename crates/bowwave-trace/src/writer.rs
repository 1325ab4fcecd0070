//! Writing a trace.

use std::io::{self, Write};

use crate::{HEADER, ROW_BYTES_MAX, Record};

/// Writes records so that a [`Reader`](crate::Reader) returns them unchanged.
///
/// Writes are small: wrap a file in a [`BufWriter`](io::BufWriter).
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    row: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header and returns the writer.
    ///
    /// # Errors
    /// The output's error.
    pub fn new(mut output: W) -> io::Result<Self> {
        writeln!(output, "{HEADER}")?;
        Ok(Self { output, row: Vec::with_capacity(256) })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// The output's error. `InvalidInput`, with nothing written, for a record that readers reject:
    /// a row longer than [`ROW_BYTES_MAX`] bytes, or an `offset + length` past [`u64::MAX`].
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let Record { time_ns, pid, op, file, offset, length } = record;
        self.row.clear();
        write!(self.row, "{time_ns},{pid},{op},")?;
        push_field(&mut self.row, file.as_bytes());
        writeln!(self.row, ",{offset},{length}")?;
        if self.row.len() > ROW_BYTES_MAX {
            let message = format!("a row of {} bytes; a trace has at most {ROW_BYTES_MAX}", self.row.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if offset.checked_add(*length).is_none() {
            let message = format!("offset {offset} and length {length} together pass {}", u64::MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.output.write_all(&self.row)
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// The output's error.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Appends `field`, quoted if necessary.
fn push_field(row: &mut Vec<u8>, field: &[u8]) {
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        row.extend_from_slice(field);
        return;
    }
    row.push(b'"');
    for &byte in field {
        if byte == b'"' {
            row.push(b'"');
        }
        row.push(byte);
    }
    row.push(b'"');
}
