//! Imports traces of other tools.
//!
//! ```text
//!   file ─► unpack (gzip, zstd) ─► lines or records ─► one parser per format ─► monotonic times ─► Record
//! ```
//!
//! [`open`] detects the format from a file's first bytes, unless it is given, and returns an
//! [`Import`]: a stream of [`Record`]s in file order. Memory does not grow with the trace, with two
//! exceptions. strace needs the open descriptors of the traced processes, and a compressed trace in
//! the binary form is unpacked into memory.
//!
//! An invalid input is one error with its line, or its record in binary formats. Problems that can
//! be repaired without guessing are repaired and counted: see [`Repair`].
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
mod records;
mod repairs;
mod strace;
mod text;
mod tracefs;

use std::io::Read;
use std::num::NonZeroU64;
use std::path::Path;

pub use format::Format;
pub use lines::LINE_BYTES_MAX;
pub use records::Objects;
pub use repairs::{Repair, Repairs};

use crate::binary::{self, Trace};
use crate::bytes::LineError;
use crate::error::Place;
use crate::{Error, Reader, Record, Result};
use batch::{Batch, Fault, Wrong};
use columns::Columns;
use input::{Bytes, Position};
use lines::Lines;
use records::{Kind, Records};

/// Import options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether times are the log's; otherwise the first record is at 0.
    pub keep_times: bool,
    /// Block size in bytes of formats that count blocks. `None`: the format's own size, or 4096 if
    /// it does not define one.
    pub block_bytes: Option<NonZeroU64>,
    /// Meaning of oracleGeneral objects.
    pub objects: Objects,
    /// The step of a request to import from blkparse output.
    pub block_action: BlockAction,
    /// The page cache events to import.
    pub tracefs_events: TracefsEvents,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_times: false,
            block_bytes: None,
            // Published disk traces number sectors.
            objects: Objects::Blocks(text::SECTOR),
            block_action: BlockAction::default(),
            tracefs_events: TracefsEvents::default(),
        }
    }
}

/// A step in the life of a request, as recorded by blktrace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockAction {
    /// `Q`: queued by the file system.
    #[default]
    Queued,
    /// `D`: dispatched to the device, after merging and reordering by the scheduler.
    Dispatched,
    /// `C`: completed by the device.
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

/// Page cache events that become rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TracefsEvents {
    /// Accesses of programs: `mm_filemap_get_pages`, `mm_filemap_fault` (Linux 6.10 and later).
    #[default]
    Accesses,
    /// Pages that the kernel reads, on demand or ahead: `mm_filemap_add_to_page_cache`.
    Fills,
}

/// Size of a row in the binary form.
const BINARY_ROW_BYTES: u64 = 24;

/// Converts lines to records.
trait Parse {
    /// Parses one line, which is not blank.
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> std::result::Result<(), Fault>;

    /// Handles the end of the input.
    fn end(&mut self, _batch: &mut Batch) -> std::result::Result<(), Fault> {
        Ok(())
    }
}

/// Opens the trace at `path`, decompressing gzip and zstd. Without a `format`, detects it.
///
/// # Errors
/// If it cannot be opened, or its format is unknown.
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

/// As [`open`], for an input that is not a file; errors name it `name`.
///
/// # Errors
/// If it cannot be read, or its format is unknown.
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
        let names = Format::NAMES.join(", ");
        let message = format!("{what} (say which of {names} it is)");
        Error::at(name, Place::Whole, message)
    })?;
    let source = Source::new(format, bytes, &head, name, options)?;
    Ok(Import::new(source, format, name, position, options))
}

/// A stream of records from a trace of any format.
///
/// It is an iterator; [`Import::read`] does the same without an allocation per row. The first error
/// ends it.
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

/// Parser of the input.
enum Source {
    Ours(Reader<Bytes>),
    Text(Lines<Bytes>, Box<dyn Parse + Send>),
    Records(Records<Bytes>),
    /// A trace in the binary form, and the number of the next row.
    Binary(Box<Trace>, u64),
}

impl Source {
    fn new(format: Format, mut bytes: Bytes, head: &[u8], name: &str, options: &Options) -> Result<Self> {
        let columns = |layout| Box::new(Columns::new(layout, options)) as Box<dyn Parse + Send>;
        let parser: Box<dyn Parse + Send> = match format {
            Format::Csv => return Ok(Self::Ours(Reader::new(bytes, name))),
            Format::Vscsi => {
                let kind = Kind::of_vscsi(head).ok_or_else(|| {
                    let message = "the version of neither form of vscsi stands where it should";
                    Wrong::from(Fault::line(message)).error(name, Place::Row(0), Some(format))
                })?;
                return Ok(Self::Records(Records::new(bytes, kind)));
            }
            Format::OracleGeneral => {
                let kind = Kind::OracleGeneral(options.objects);
                return Ok(Self::Records(Records::new(bytes, kind)));
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

    /// Reads the next record; false at the end of the trace and from then on.
    ///
    /// Reuses the memory of `record.file`, so a loop over one record does not allocate.
    ///
    /// # Errors
    /// The error and its place; the trace ends there, and `record` is unspecified.
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
                Source::Records(records) => {
                    let place = Place::Row(records.count);
                    // Any bytes could be oracleGeneral, so it is never guessed from them: the
                    // caller gave the format, or the file's name says it.
                    let hint = hint.filter(|&format| format != Format::OracleGeneral);
                    let record = records.next_record(&mut self.batch);
                    record.map_err(|wrong| wrong.error(&self.name, place, hint))
                }
                Source::Binary(trace, row) => {
                    let outcome = next_row(trace, *row, record);
                    *row += 1;
                    // Rows make up nearly all of the file.
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

    /// The detected format, if no record has confirmed it yet.
    fn hint(&self) -> Option<Format> {
        (!self.any).then_some(self.format)
    }

    /// The trace's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Repairs and omissions so far; complete once the trace has ended.
    pub fn repairs(&self) -> &Repairs {
        &self.batch.repairs
    }

    /// Bytes of the (compressed) input read so far; for progress bars.
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

/// Parses the next line; false at the end of the input. A truncated last line is skipped if `any`
/// record came before.
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
            return Err(Fault::line(format!("the line is longer than {LINE_BYTES_MAX} bytes")).into());
        }
    };
    let outcome = outcome.or_else(|fault| {
        if any && !lines.ended() {
            batch.repairs.add(Repair::CutShort);
            return parser.end(batch).map(|()| false);
        }
        Err(fault)
    });
    Ok(outcome?)
}

fn next_row(trace: &Trace, row: u64, record: &mut Record) -> Result<bool> {
    match trace.rows_from(row).next() {
        Some(Ok(row)) => trace.fill(row, record),
        Some(Err(bad)) => return Err(trace.error(bad)),
        None => return Ok(false),
    }
    Ok(true)
}
