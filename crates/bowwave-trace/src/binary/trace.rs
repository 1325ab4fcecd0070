//! Reading the compact form in place.

use std::fmt;
use std::io;
use std::path::Path;

use super::layout::{
    FILE_BYTES, HEADER_BYTES, LONG, LONG_BYTES, ROW_BYTES, STREAM_BYTES, Trailer, check_header,
};
use super::map::Bytes;
use super::writer::Writer;
use crate::bytes::{u32_at, u64_at};
use crate::error::Place;
use crate::{Error, Op, Record, Result};

/// A trace in memory or in a memory map, with random access to rows.
///
/// The tables are checked and copied at open; rows are checked when they are read.
#[derive(Debug)]
pub struct Trace<B = Bytes> {
    bytes: B,
    name: String,
    /// Bytes of the rows, without the header.
    row_bytes: usize,
    rows_crc: u32,
    files: Vec<File>,
    names: String,
    streams: Vec<Stream>,
    longs: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct File {
    end: u64,
    name_end: usize,
}

/// One access, with the number of its stream instead of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time in nanoseconds of the tracer's clock.
    pub time_ns: u64,
    /// Operation.
    pub op: Op,
    /// The stream, which is a process and a file: see [`Trace::stream`].
    pub stream: u32,
    /// First byte accessed.
    pub offset: u64,
    /// Number of bytes accessed; `offset + length` never passes [`u64::MAX`].
    pub length: u64,
}

/// Accesses of one process to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The process.
    pub pid: u64,
    /// The number of the file: see [`Trace::file_name`].
    pub file: u32,
}

/// An invalid row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Its index.
    pub row: u64,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Op(u32),
    Stream(u32),
    Long(u32),
    Range(u64, u64),
}

impl Trace<Bytes> {
    /// Maps the file at `path`, or reads it into memory if it is not a regular file.
    ///
    /// See [`Bytes::open`] for the requirements on the file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a complete binary trace.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = Bytes::open(path).map_err(|error| Error::from_io(&name, Place::Whole, error))?;
        Self::new(bytes, name)
    }

    /// A trace of `records`, in memory.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn of(records: impl IntoIterator<Item = Record>, name: impl Into<String>) -> io::Result<Self> {
        let mut writer = Writer::new(Vec::new())?;
        records.into_iter().try_for_each(|record| writer.write(&record))?;
        Self::new(writer.finish()?.into(), name).map_err(io::Error::other)
    }
}

impl<B: AsRef<[u8]>> Trace<B> {
    /// The trace in `bytes`; errors name it `name`, such as its path.
    ///
    /// # Errors
    /// If the bytes are not a complete binary trace. Rows are not checked yet.
    pub fn new(bytes: B, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let wrong = |message: String| Error::at(&name, Place::Whole, message);
        let file = bytes.as_ref();
        check_header(file).map_err(wrong)?;
        let trailer = Trailer::of_file(file).map_err(wrong)?;
        // The trailer's counts add up to the file's size, so no index is out of bounds.
        let row_bytes = trailer.rows as usize * ROW_BYTES;
        let tables = &file[HEADER_BYTES + row_bytes..file.len() - super::layout::TRAILER_BYTES];
        let (files_part, rest) = tables.split_at(trailer.files as usize * FILE_BYTES);
        let (streams_part, rest) = rest.split_at(trailer.streams as usize * STREAM_BYTES);
        let (longs_part, names_part) = rest.split_at(trailer.longs as usize * LONG_BYTES);
        if crc32fast::hash(tables) != trailer.tables_crc {
            return Err(wrong("the tables of names are damaged: their checksum differs".to_owned()));
        }
        let names = String::from_utf8(names_part.to_vec()).map_err(|error| {
            wrong(format!("byte {} of the names is not UTF-8", error.utf8_error().valid_up_to()))
        })?;
        let files = files(files_part, &names).map_err(wrong)?;
        let streams = streams(streams_part, files.len()).map_err(wrong)?;
        let longs = longs_part.chunks_exact(LONG_BYTES).map(|entry| u64_at(entry, 0)).collect();
        Ok(Self { row_bytes, rows_crc: trailer.rows_crc, files, names, streams, longs, bytes, name })
    }

    /// Its name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        (self.row_bytes / ROW_BYTES) as u64
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.row_bytes == 0
    }

    /// The rows in order; double-ended.
    pub fn rows(&self) -> Rows<'_> {
        Rows { bytes: self.row_slice(), streams: self.streams.len() as u32, longs: &self.longs, first: 0 }
    }

    /// The rows from `first` on; none past the end.
    pub fn rows_from(&self, first: u64) -> Rows<'_> {
        let first = first.min(self.len());
        Rows { bytes: &self.row_slice()[first as usize * ROW_BYTES..], first, ..self.rows() }
    }

    /// The rows as records, with their names.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.rows().map(|row| {
            let mut record = Record::default();
            self.fill(row.map_err(|bad| self.error(bad))?, &mut record);
            Ok(record)
        })
    }

    /// Number of files.
    pub fn file_count(&self) -> u32 {
        // Checked at open.
        self.files.len() as u32
    }

    /// The name of a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn file_name(&self, file: u32) -> &str {
        let file = file as usize;
        let start = if file == 0 { 0 } else { self.files[file - 1].name_end };
        &self.names[start..self.files[file].name_end]
    }

    /// One past the last byte of a file that a row reads, writes, loads or stores, as recorded by
    /// the writer. Advice and evictions may refer to bytes beyond it.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn file_end(&self, file: u32) -> u64 {
        self.files[file as usize].end
    }

    /// The streams, by number.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The process and file of a stream.
    ///
    /// # Panics
    /// If there is no such stream; rows refer only to existing ones.
    pub fn stream(&self, stream: u32) -> Stream {
        self.streams[stream as usize]
    }

    /// Copies a row of this trace into `record` and reuses its memory.
    pub fn fill(&self, row: Row, record: &mut Record) {
        let Stream { pid, file } = self.stream(row.stream);
        (record.time_ns, record.pid, record.op) = (row.time_ns, pid, row.op);
        (record.offset, record.length) = (row.offset, row.length);
        record.file.clear();
        record.file.push_str(self.file_name(file));
    }

    /// The error to report for a bad row of this trace.
    pub fn error(&self, bad: BadRow) -> Error {
        Error::at(&self.name, Place::Row(bad.row), bad.why.to_string())
    }

    /// Reads and checks every row and the checksum.
    ///
    /// # Errors
    /// The first invalid row, or a checksum mismatch.
    pub fn verify(&self) -> Result<()> {
        // In blocks that stay in the CPU cache between the two passes.
        const BLOCK_ROWS: usize = 16 << 10;
        let mut crc = crc32fast::Hasher::new();
        for (block, bytes) in self.row_slice().chunks(BLOCK_ROWS * ROW_BYTES).enumerate() {
            crc.update(bytes);
            let mut rows = Rows { bytes, first: (block * BLOCK_ROWS) as u64, ..self.rows() };
            if let Some(bad) = rows.find_map(std::result::Result::err) {
                return Err(self.error(bad));
            }
        }
        if crc.finalize() == self.rows_crc {
            return Ok(());
        }
        let message = "the rows are damaged: their checksum differs".to_owned();
        Err(Error::at(&self.name, Place::Whole, message))
    }

    fn row_slice(&self) -> &[u8] {
        &self.bytes.as_ref()[HEADER_BYTES..][..self.row_bytes]
    }
}

fn files(bytes: &[u8], names: &str) -> std::result::Result<Vec<File>, String> {
    if u32::try_from(bytes.len() / FILE_BYTES).is_err() {
        return Err("more than 2^32 files".to_owned());
    }
    let mut start = 0;
    let mut files = Vec::with_capacity(bytes.len() / FILE_BYTES);
    for entry in bytes.chunks_exact(FILE_BYTES) {
        let name_end = usize::try_from(u64_at(entry, 8)).unwrap_or(usize::MAX);
        if name_end < start || !names.is_char_boundary(name_end) {
            return Err(format!("the name of file {} ends outside the names", files.len()));
        }
        files.push(File { end: u64_at(entry, 0), name_end });
        start = name_end;
    }
    Ok(files)
}

fn streams(bytes: &[u8], files: usize) -> std::result::Result<Vec<Stream>, String> {
    if u32::try_from(bytes.len() / STREAM_BYTES).is_err() {
        return Err("more than 2^32 streams".to_owned());
    }
    let mut streams = Vec::with_capacity(bytes.len() / STREAM_BYTES);
    for entry in bytes.chunks_exact(STREAM_BYTES) {
        let file = u64_at(entry, 8);
        match u32::try_from(file) {
            Ok(number) if (number as usize) < files => {
                streams.push(Stream { pid: u64_at(entry, 0), file: number });
            }
            _ => return Err(format!("stream {} is of file {file}, but there are {files}", streams.len())),
        }
    }
    Ok(streams)
}

/// The rows of a [`Trace`]; double-ended.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    bytes: &'a [u8],
    /// Number of streams.
    streams: u32,
    longs: &'a [u64],
    /// Index of the first remaining row.
    first: u64,
}

impl Rows<'_> {
    /// Parses the row in `bytes`; its index is only for errors.
    #[inline]
    fn parse(&self, row: u64, bytes: &[u8; ROW_BYTES]) -> std::result::Result<Row, BadRow> {
        let (time_ns, offset) = (u64_at(bytes, 0), u64_at(bytes, 8));
        let (length, what) = (u32_at(bytes, 16), u32_at(bytes, 20));
        let bad = |why| BadRow { row, why };
        let stream = what >> 4;
        if stream >= self.streams {
            return Err(bad(Why::Stream(stream)));
        }
        let op = *Op::ALL.get((what & 15) as usize).ok_or_else(|| bad(Why::Op(what & 15)))?;
        let length = if length & LONG == 0 {
            length.into()
        } else {
            let index = length & !LONG;
            *self.longs.get(index as usize).ok_or_else(|| bad(Why::Long(index)))?
        };
        if offset.checked_add(length).is_none() {
            return Err(bad(Why::Range(offset, length)));
        }
        Ok(Row { time_ns, op, stream, offset, length })
    }
}

impl Iterator for Rows<'_> {
    type Item = std::result::Result<Row, BadRow>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (bytes, rest) = self.bytes.split_first_chunk()?;
        let row = self.first;
        (self.bytes, self.first) = (rest, row + 1);
        Some(self.parse(row, bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.bytes.len() / ROW_BYTES;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Rows<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let (rest, bytes) = self.bytes.split_last_chunk()?;
        self.bytes = rest;
        Some(self.parse(self.first + (rest.len() / ROW_BYTES) as u64, bytes))
    }
}

impl ExactSizeIterator for Rows<'_> {}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: {}", self.row, self.why)
    }
}

impl std::error::Error for BadRow {}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Op(code) => write!(f, "there is no operation {code}"),
            Self::Stream(stream) => write!(f, "there is no stream {stream}"),
            Self::Long(index) => write!(f, "there is no long length {index}"),
            Self::Range(offset, length) => {
                write!(f, "offset {offset} and length {length} together pass {}", u64::MAX)
            }
        }
    }
}
