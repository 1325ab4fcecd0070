//! Writing the compact form in one pass.

use std::collections::HashMap;
use std::io::{self, Write};

use super::Row;
use super::layout::{LONG, ROW_BYTES, STREAMS_MAX, Trailer, header};
use crate::{Op, ROW_BYTES_MAX, Record};

/// Rows buffered for checksumming and writing.
const BUFFERED_ROWS: usize = 8192;

/// Writes rows as they come. Memory grows only with the number of files and streams.
///
/// Without [`finish`](Self::finish) the file is incomplete, and readers reject it. The writer needs
/// no buffer: writes are 192 KiB each.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    buffer: Vec<u8>,
    rows: u64,
    rows_crc: crc32fast::Hasher,
    files: Vec<File>,
    names: Vec<u8>,
    file_numbers: HashMap<Box<str>, u32>,
    streams: Vec<(u64, u32)>,
    stream_numbers: HashMap<(u64, u32), u32>,
    longs: Vec<u64>,
    long_numbers: HashMap<u64, u32>,
    /// File and stream of the last [`write`](Self::write), often repeated by the next.
    last: Option<(String, u64, u32)>,
}

#[derive(Debug)]
struct File {
    end: u64,
    name_end: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header and returns the writer.
    ///
    /// # Errors
    /// The output's error.
    pub fn new(mut output: W) -> io::Result<Self> {
        output.write_all(&header())?;
        Ok(Self {
            output,
            buffer: Vec::with_capacity(BUFFERED_ROWS * ROW_BYTES),
            rows: 0,
            rows_crc: crc32fast::Hasher::new(),
            files: Vec::new(),
            names: Vec::new(),
            file_numbers: HashMap::new(),
            streams: Vec::new(),
            stream_numbers: HashMap::new(),
            longs: Vec::new(),
            long_numbers: HashMap::new(),
            last: None,
        })
    }

    /// The number of the file with this name; the same for every call.
    ///
    /// # Errors
    /// `InvalidInput` for a name longer than a CSV row may be, or if the numbers are exhausted.
    pub fn file(&mut self, name: &str) -> io::Result<u32> {
        if let Some(&file) = self.file_numbers.get(name) {
            return Ok(file);
        }
        if name.len() > ROW_BYTES_MAX {
            return Err(invalid(format!(
                "a name of {} bytes; at most {ROW_BYTES_MAX} are taken",
                name.len()
            )));
        }
        let file = number(self.files.len(), u32::MAX, "files")?;
        self.names.extend_from_slice(name.as_bytes());
        self.files.push(File { end: 0, name_end: self.names.len() as u64 });
        self.file_numbers.insert(name.into(), file);
        Ok(file)
    }

    /// The number of a stream: one process's accesses to one file. The same for every call.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is not from [`file`](Self::file), or beyond 2^28 streams.
    pub fn stream(&mut self, pid: u64, file: u32) -> io::Result<u32> {
        if let Some(&stream) = self.stream_numbers.get(&(pid, file)) {
            return Ok(stream);
        }
        if file as usize >= self.files.len() {
            return Err(invalid(format!("there is no file {file}")));
        }
        let stream = number(self.streams.len(), STREAMS_MAX, "pairs of process and file")?;
        self.streams.push((pid, file));
        self.stream_numbers.insert((pid, file), stream);
        Ok(stream)
    }

    /// Writes one row.
    ///
    /// # Errors
    /// The output's error. `InvalidInput`, with nothing written, for a stream that is not from
    /// [`stream`](Self::stream) or an `offset + length` past [`u64::MAX`].
    pub fn row(&mut self, row: Row) -> io::Result<()> {
        let Row { time_ns, op, stream, offset, length } = row;
        let end = offset.checked_add(length).ok_or_else(|| {
            invalid(format!("offset {offset} and length {length} together pass {}", u64::MAX))
        })?;
        let &(_, file) = self
            .streams
            .get(stream as usize)
            .ok_or_else(|| invalid(format!("there is no stream {stream}")))?;
        let length = match u32::try_from(length) {
            Ok(length) if length < LONG => length,
            _ => LONG | self.long(length)?,
        };
        let file = &mut self.files[file as usize];
        if op.is_access() {
            file.end = file.end.max(end);
        }
        self.buffer.extend_from_slice(&time_ns.to_le_bytes());
        self.buffer.extend_from_slice(&offset.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&(stream << 4 | op as u32).to_le_bytes());
        self.rows += 1;
        if self.buffer.len() == BUFFERED_ROWS * ROW_BYTES { self.flush_rows() } else { Ok(()) }
    }

    /// Writes one row and adds its file and process to the tables.
    ///
    /// # Errors
    /// As [`file`](Self::file), [`stream`](Self::stream) and [`row`](Self::row).
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let Record { time_ns, pid, op, ref file, offset, length } = *record;
        let stream = match &self.last {
            Some((name, last, stream)) if *last == pid && name == file => *stream,
            _ => {
                let number = self.file(file)?;
                let stream = self.stream(pid, number)?;
                self.last = Some((file.clone(), pid, stream));
                stream
            }
        };
        self.row(Row { time_ns, op, stream, offset, length })
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes the tables and the trailer, flushes, and returns the output.
    ///
    /// # Errors
    /// The output's error.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_rows()?;
        let mut tables_crc = crc32fast::Hasher::new();
        let output = &mut self.output;
        let mut put = |bytes: &[u8]| {
            tables_crc.update(bytes);
            output.write_all(bytes)
        };
        // In chunks of a few KiB, so that the output needs no buffer.
        for chunk in self.files.chunks(512) {
            let bytes: Vec<u8> =
                chunk.iter().flat_map(|file| [file.end, file.name_end]).flat_map(u64::to_le_bytes).collect();
            put(&bytes)?;
        }
        for chunk in self.streams.chunks(512) {
            let bytes: Vec<u8> =
                chunk.iter().flat_map(|&(pid, file)| [pid, file.into()]).flat_map(u64::to_le_bytes).collect();
            put(&bytes)?;
        }
        for chunk in self.longs.chunks(512) {
            let bytes: Vec<u8> = chunk.iter().copied().flat_map(u64::to_le_bytes).collect();
            put(&bytes)?;
        }
        put(&self.names)?;
        let trailer = Trailer {
            rows: self.rows,
            files: self.files.len() as u64,
            streams: self.streams.len() as u64,
            longs: self.longs.len() as u64,
            name_bytes: self.names.len() as u64,
            rows_crc: self.rows_crc.finalize(),
            tables_crc: tables_crc.finalize(),
        };
        self.output.write_all(&trailer.to_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    /// The index of a length that does not fit into a row.
    fn long(&mut self, length: u64) -> io::Result<u32> {
        if let Some(&index) = self.long_numbers.get(&length) {
            return Ok(index);
        }
        let index = number(self.longs.len(), LONG, "different lengths from 2 GiB on")?;
        self.longs.push(length);
        self.long_numbers.insert(length, index);
        Ok(index)
    }

    fn flush_rows(&mut self) -> io::Result<()> {
        self.rows_crc.update(&self.buffer);
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The number of the next entry of a table with `len` entries; must be below `bound`.
fn number(len: usize, bound: u32, what: &str) -> io::Result<u32> {
    u32::try_from(len)
        .ok()
        .filter(|&next| next < bound)
        .ok_or_else(|| invalid(format!("more than {bound} {what}; the binary form has no numbers for them")))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The code of an operation in a row is its index in [`Op::ALL`].
const _: () = {
    let mut code = 0;
    while code < Op::ALL.len() {
        assert!(Op::ALL[code] as usize == code, "rows hold operations by their place in Op::ALL");
        code += 1;
    }
};
