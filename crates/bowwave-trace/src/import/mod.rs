//! Traces of other tools, read as ours.
//!
//! ```text
//!   file ─► unpack (gzip, zstd) ─► lines or records ─► one parser a format ─► times in order ─► Record
//! ```
//!
//! [`open`] tells the format from a file's first bytes, or takes the one it is told, and gives an [`Import`]: a stream of
//! [`Record`]s in the order of the file. It holds one line at a time, whatever the size of the trace; for strace also the
//! open descriptors of the traced processes.
//!
//! What is wrong with an input is one error with its line, or its record in binary formats. What can be repaired without
//! guessing is repaired and counted: see [`Repair`].
//!
//! ```
//! use std::io::Cursor;
//! use bowwave_trace::import::{self, Options};
//!
//! let log = "fio version 3 iolog\n0 data.bin open\n104 data.bin read 61440 4096\n";
//! let import = import::from_reader(Cursor::new(log), "job.iolog", None, &Options::default())?;
//! let records: Vec<_> = import.collect::<Result<_, _>>()?;
//! assert_eq!((records[0].file.as_str(), records[0].offset), ("data.bin", 61440));
//! # Ok::<(), bowwave_trace::Error>(())
//! ```

mod batch;
mod blkparse;
mod columns;
mod fio;
mod format;
mod input;
mod lines;
mod repairs;
mod strace;
mod text;
mod tracefs;
mod vscsi;

use std::io::Read;
use std::num::NonZeroU64;
use std::path::Path;

pub use format::{Format, UnknownFormat};
pub use lines::LINE_BYTES_MAX;
pub use repairs::{Repair, Repairs};

use crate::binary::{self, Trace};
use crate::error::Place;
use crate::oracle_general::{self, Objects};
use crate::{Error, ErrorKind, Reader, Record, Result};
use batch::{Access, Batch, Fault};
use columns::Columns;
use input::{Bytes, Position};
use lines::{LineError, Lines};
use vscsi::{RecordError, Records};

/// What to take out of a trace where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keep the times of the log's own clock; else the first record is at 0.
    pub keep_times: bool,
    /// Bytes of a block in formats that count in blocks; `None` for what the format's publishers say, or 4096 where they
    /// say nothing.
    pub block_bytes: Option<NonZeroU64>,
    /// What the objects of oracleGeneral stand for.
    pub objects: Objects,
    /// Which step of a request counts in blkparse's output.
    pub block_action: BlockAction,
    /// Which events of the kernel's page cache count.
    pub tracefs_events: TracefsEvents,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_times: false,
            block_bytes: None,
            // The published traces of disks number sectors.
            objects: Objects::Blocks(text::SECTOR),
            block_action: BlockAction::default(),
            tracefs_events: TracefsEvents::default(),
        }
    }
}

/// A step in the life of a request, as blktrace records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockAction {
    /// `Q`: the file system asks for it.
    #[default]
    Queued,
    /// `D`: it goes to the device, merged with its neighbours and in the scheduler's order.
    Dispatched,
    /// `C`: the device has done it.
    Completed,
}

impl BlockAction {
    const fn letter(self) -> u8 {
        match self {
            Self::Queued => b'Q',
            Self::Dispatched => b'D',
            Self::Completed => b'C',
        }
    }
}

/// Which of the kernel's page-cache events are taken as rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TracefsEvents {
    /// What programs read and touch: `mm_filemap_get_pages`, `mm_filemap_fault` (Linux 6.10 and later).
    #[default]
    Accesses,
    /// What the kernel brings in, demanded and read ahead alike: `mm_filemap_add_to_page_cache`.
    Fills,
}

/// Bytes of a row in the binary form.
const BINARY_ROW_BYTES: u64 = 24;

/// Makes records of lines.
trait Parse {
    /// Takes one line in, which is not blank.
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> std::result::Result<(), Fault>;

    /// The input has ended.
    fn end(&mut self, _batch: &mut Batch) -> std::result::Result<(), Fault> {
        Ok(())
    }
}

/// Opens the trace at `path`, unpacking gzip and zstd, in `format` or else in the one that it seems to be in.
///
/// # Errors
/// If it cannot be opened, or is in no format that is known.
pub fn open(path: &Path, format: Option<Format>, options: &Options) -> Result<Import> {
    let name = path.display().to_string();
    let mut file = input::open(path, &name)?;
    let refused = |error| Error::from_io(&name, Place::Whole, error);
    if matches!(format, None | Some(Format::Binary)) && input::is_binary(&mut file).map_err(refused)? {
        let bytes = binary::Bytes::open(path).map_err(refused)?;
        let source = Source::Binary(Box::new(Trace::new(bytes, name.as_str())?), 0);
        return Ok(Import::new(source, Format::Binary, &name, Position::default(), options));
    }
    from_reader(file, &name, format, options)
}

/// As [`open`] for an input that is not a file; `name` is what errors call it.
///
/// # Errors
/// If it cannot be read, or is in no format that is known.
pub fn from_reader(
    input: impl Read + Send + 'static,
    name: &str,
    format: Option<Format>,
    options: &Options,
) -> Result<Import> {
    let position = Position::default();
    let (bytes, head) = input::unpack(input, name, &position)?;
    let format = format.or_else(|| Format::detect(&head, Path::new(name))).ok_or_else(|| {
        let what =
            if head.is_empty() { "the file is empty" } else { "the format of this trace is not known" };
        let names = Format::ALL.map(Format::name).join(", ");
        let message = format!("{what} (say which of {names} it is)");
        Error::at(ErrorKind::Header, name, Place::Whole, message)
    })?;
    let source = Source::new(format, bytes, &head, name, options)?;
    Ok(Import::new(source, format, name, position, options))
}

/// A stream of records out of a trace of any format.
///
/// It is an iterator; [`Import::read`] does the same without an allocation a row. The first error ends it.
pub struct Import {
    source: Source,
    batch: Batch,
    name: String,
    format: Format,
    position: Position,
    /// Whether a record was found.
    any: bool,
    ended: bool,
}

/// How the records are found in the bytes.
enum Source {
    Ours(Reader<Bytes>),
    Text(Lines<Bytes>, Box<dyn Parse + Send>),
    Vscsi(Records<Bytes>),
    Oracle(oracle_general::Reader<Bytes>),
    /// A trace in the binary form, and the number of the next row.
    Binary(Box<Trace>, u64),
}

impl Source {
    fn new(format: Format, mut bytes: Bytes, head: &[u8], name: &str, options: &Options) -> Result<Self> {
        let columns = |layout| Box::new(Columns::new(layout, options)) as Box<dyn Parse + Send>;
        let parser: Box<dyn Parse + Send> = match format {
            Format::Csv => return Ok(Self::Ours(Reader::new(bytes, name))),
            Format::Vscsi => return Ok(Self::Vscsi(Records::new(bytes, head))),
            Format::OracleGeneral => {
                let reader = oracle_general::Reader::new(bytes, name, options.objects);
                return Ok(Self::Oracle(reader));
            }
            Format::Binary => {
                let mut held = Vec::new();
                bytes.read_to_end(&mut held).map_err(|error| Error::from_io(name, Place::Whole, error))?;
                return Ok(Self::Binary(Box::new(Trace::new(held.into(), name)?), 0));
            }
            Format::Fio => Box::new(fio::Fio::default()),
            Format::Strace => Box::new(strace::Strace::default()),
            Format::Blkparse => Box::new(blkparse::Blkparse::new(options.block_action)),
            Format::Tracefs => Box::new(tracefs::Tracefs::new(options.tracefs_events)),
            Format::Msr => columns(&columns::MSR),
            Format::Alibaba => columns(&columns::ALIBABA),
            Format::Tencent => columns(&columns::TENCENT),
            Format::Spc => columns(&columns::SPC),
            Format::Arc => columns(&columns::ARC),
            Format::Lirs => columns(&columns::LIRS),
            Format::Mqsim => columns(&columns::MQSIM),
            Format::VscsiCsv => columns(&columns::VSCSI_CSV),
        };
        Ok(Self::Text(Lines::new(bytes), parser))
    }
}

impl Import {
    fn new(source: Source, format: Format, name: &str, position: Position, options: &Options) -> Self {
        let batch = Batch::new(options.keep_times);
        Self { source, batch, name: name.to_owned(), format, position, any: false, ended: false }
    }

    /// Reads the next record; false at the end of the trace, and again on each call after it.
    ///
    /// The memory of `record.file` is used again, so a loop over one record allocates nothing.
    ///
    /// # Errors
    /// What is wrong and where; the trace ends there, and `record` is of no use.
    pub fn read(&mut self, record: &mut Record) -> Result<bool> {
        loop {
            if self.batch.take(record) {
                self.any = true;
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            let hint = self.hint();
            let outcome = match &mut self.source {
                Source::Ours(reader) => {
                    let outcome = reader.read(record);
                    self.ended = !matches!(outcome, Ok(true));
                    return outcome;
                }
                Source::Text(lines, parser) => {
                    let line = next_line(lines, parser.as_mut(), &mut self.batch, self.any);
                    line.map_err(|wrong| wrong.error(&self.name, Place::Line(lines.number()), hint))
                }
                Source::Vscsi(records) => {
                    let place = Place::Row(records.count);
                    let record = next_record(records, &mut self.batch);
                    record.map_err(|wrong| wrong.error(&self.name, place, hint))
                }
                Source::Oracle(reader) => next_request(reader, record, &mut self.batch, &self.name),
                Source::Binary(trace, row) => {
                    let outcome = next_row(trace, *row, record);
                    *row += 1;
                    // Nearly all of the file is rows.
                    self.position.set(*row * BINARY_ROW_BYTES);
                    self.ended = !matches!(outcome, Ok(true));
                    return outcome;
                }
            };
            self.ended = !matches!(outcome, Ok(true));
            if outcome.is_err() {
                self.batch.clear();
            }
            outcome?;
        }
    }

    /// The trace itself, if it is in the binary form.
    ///
    /// # Errors
    /// The import, if the trace is in another form.
    pub fn into_trace(self) -> std::result::Result<Trace, Box<Self>> {
        match self.source {
            Source::Binary(trace, _) => Ok(*trace),
            source => Err(Box::new(Self { source, ..self })),
        }
    }

    /// The format to doubt, as long as nothing was found that shows that it is the right one.
    fn hint(&self) -> Option<Format> {
        (!self.any).then_some(self.format)
    }

    /// The format that the trace is read in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was repaired or left out so far; all of it once the trace has ended.
    #[must_use]
    pub fn repairs(&self) -> &Repairs {
        &self.batch.repairs
    }

    /// Bytes of the input that have been read, packed as they are; for progress bars.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.position.bytes()
    }
}

impl Iterator for Import {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::default();
        self.read(&mut record).map(|more| more.then_some(record)).transpose()
    }
}

impl std::fmt::Debug for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, format, .. } = self;
        f.debug_struct("Import").field("name", name).field("format", format).finish_non_exhaustive()
    }
}

/// Why there is no next line or record.
enum Wrong {
    Io(std::io::Error),
    Fault(Fault),
}

impl Wrong {
    /// The same with its place, and with a hint that follows what is wrong with a value or row.
    fn error(self, name: &str, place: Place, hint: Option<Format>) -> Error {
        let Fault { column, mut message } = match self {
            Self::Io(error) => return Error::from_io(name, place, error),
            Self::Fault(fault) => fault,
        };
        if let Some(format) = hint {
            message.push_str(&format!("; is this a trace in the format {format}?"));
        }
        let kind = if column.is_some() { ErrorKind::Value } else { ErrorKind::Row };
        let error = Error::at(kind, name, place, message);
        match column {
            Some(column) => error.in_column(column),
            None => error,
        }
    }
}

/// Parses the next line; false at the end of the input. With `any` record found before, a last line that is cut off is
/// left out.
fn next_line(
    lines: &mut Lines<Bytes>,
    parser: &mut dyn Parse,
    batch: &mut Batch,
    any: bool,
) -> std::result::Result<bool, Wrong> {
    let outcome = match lines.next_line() {
        Ok(Some(line)) if line.trim_ascii().is_empty() => return Ok(true),
        Ok(Some(line)) => parser.line(line, batch).map(|()| true),
        Ok(None) => parser.end(batch).map(|()| false),
        Err(LineError::Io(error)) => return Err(Wrong::Io(error)),
        Err(LineError::TooLong) => {
            return Err(Wrong::Fault(Fault::line(format!("the line is longer than {LINE_BYTES_MAX} bytes"))));
        }
    };
    let outcome = outcome.or_else(|fault| {
        if any && !lines.ended() {
            batch.repairs.add(Repair::CutShort);
            return parser.end(batch).map(|()| false);
        }
        Err(fault)
    });
    outcome.map_err(Wrong::Fault)
}

/// Takes the next record in; false at the end of the input. A truncated last record is left out, if others came before.
fn next_record(records: &mut Records<Bytes>, batch: &mut Batch) -> std::result::Result<bool, Wrong> {
    match records.next_record(batch) {
        Err(RecordError::CutShort) if records.count > 0 => {
            batch.repairs.add(Repair::CutShort);
            Ok(false)
        }
        Err(RecordError::CutShort) => {
            Err(Wrong::Fault(Fault::line("the file ends within its first record: is it cut off?")))
        }
        Err(RecordError::Io(error)) => Err(Wrong::Io(error)),
        Err(RecordError::Fault(fault)) => Err(Wrong::Fault(fault)),
        Ok(more) => Ok(more),
    }
}

fn next_row(trace: &Trace, row: u64, record: &mut Record) -> Result<bool> {
    match trace.rows_from(row).next() {
        Some(Ok(row)) => trace.fill(row, record),
        Some(Err(bad)) => return Err(trace.error(bad)),
        None => return Ok(false),
    }
    Ok(true)
}

/// Takes the next request in, through `record`'s memory.
fn next_request(
    reader: &mut oracle_general::Reader<Bytes>,
    record: &mut Record,
    batch: &mut Batch,
    name: &str,
) -> Result<bool> {
    if !reader.read(record)? {
        return Ok(false);
    }
    let &mut Record { time_ns, pid, op, ref file, offset, length } = record;
    let access = Access { time_ns, pid, op, file: file.as_bytes(), offset, length };
    batch.push(access).map(|()| true).map_err(|fault| Wrong::Fault(fault).error(name, Place::Whole, None))
}
