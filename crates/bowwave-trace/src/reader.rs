//! Reading a trace, row by row.

use std::io::BufRead;

use crate::bytes::LineError;
use crate::csv::{COLUMNS, Row, RowError, Rows};
use crate::error::{Place, quoted};
use crate::{Error, HEADER, Op, ROW_BYTES_MAX, Record, Result};

/// Streams the records of a trace in file order.
///
/// Holds one row at a time, whatever the size of the trace. It is an iterator of records;
/// [`Reader::read`] does the same without an allocation per row. The first error ends the trace.
#[derive(Debug)]
pub struct Reader<R> {
    rows: Rows<R>,
    name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The header comes next.
    Start,
    Rows,
    /// At the end, or after an error.
    Ended,
}

impl<R: BufRead> Reader<R> {
    /// A reader of `input`; errors name it `name`, such as its path.
    pub fn new(input: R, name: impl Into<String>) -> Self {
        Self { rows: Rows::new(input), name: name.into(), state: State::Start }
    }

    /// Reads the next row into `record`; false at the end of the trace and from then on.
    ///
    /// Reuses the memory of `record.file`, so a loop over one record does not allocate.
    ///
    /// # Errors
    /// A defect of the trace, with its line. Later calls return false, and `record` is unspecified.
    pub fn read(&mut self, record: &mut Record) -> Result<bool> {
        let outcome = match self.state {
            State::Ended => return Ok(false),
            State::Start => self.header().and_then(|()| self.row(record)),
            State::Rows => self.row(record),
        };
        self.state = if matches!(outcome, Ok(true)) { State::Rows } else { State::Ended };
        outcome
    }

    /// Bytes read so far, in whole rows; for progress bars.
    pub fn bytes_read(&self) -> u64 {
        self.rows.bytes()
    }

    fn header(&mut self) -> Result<()> {
        let name = &self.name;
        let wrong = |what: String| {
            let message = format!("{what}: the first line must be '{HEADER}'");
            Error::at(name, Place::Line(1), message)
        };
        let row = match self.rows.next_row() {
            Ok(Some(row)) => row,
            Ok(None) => return Err(wrong("the file is empty".to_owned())),
            Err(RowError::Line(LineError::Io(error))) => {
                return Err(Error::from_io(name, Place::Line(1), error));
            }
            Err(_) => return Err(wrong("this is not a trace".to_owned())),
        };
        let mut fields = row.fields;
        fields[0] = fields[0].strip_prefix("\u{feff}".as_bytes()).unwrap_or(fields[0]);
        if row.count == COLUMNS && fields.into_iter().eq(HEADER.split(',').map(str::as_bytes)) {
            return Ok(());
        }
        Err(wrong(format!("the header is {}", quoted(&fields[..row.count.min(COLUMNS)].join(&b',')))))
    }

    fn row(&mut self, record: &mut Record) -> Result<bool> {
        let name = &self.name;
        let before = self.rows.line();
        let row = match self.rows.next_row() {
            Ok(Some(row)) if row.blank => return self.blank_tail(before + 1),
            Ok(Some(row)) => row,
            Ok(None) => return Ok(false),
            Err(error) => return Err(row_error(name, before, error)),
        };
        match parse(&row, record) {
            Ok(()) => Ok(true),
            Err(Bad::Columns) => {
                let (count, plural) = (row.count, if row.count == 1 { "" } else { "s" });
                let message = format!("{count} column{plural}, expected the {COLUMNS} of '{HEADER}'");
                Err(Error::at(name, Place::Line(row.lines[0]), message))
            }
            Err(Bad::Value(index, message)) => {
                let column = HEADER.split(',').nth(index).expect("a column's index is below their number");
                Err(Error::at(name, Place::Line(row.lines[index]), message).in_column(column))
            }
        }
    }

    /// Checks that only blank lines follow the blank line `line`.
    fn blank_tail(&mut self, line: u64) -> Result<bool> {
        loop {
            let before = self.rows.line();
            match self.rows.next_row() {
                Ok(None) => return Ok(false),
                Ok(Some(row)) if row.blank => {}
                Err(RowError::Line(LineError::Io(error))) => {
                    return Err(Error::from_io(&self.name, Place::Line(before + 1), error));
                }
                Ok(Some(_)) | Err(_) => {
                    let message = "blank line before the end of the trace (remove it)".to_owned();
                    return Err(Error::at(&self.name, Place::Line(line), message));
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let mut record = Record::default();
        self.read(&mut record).map(|more| more.then_some(record)).transpose()
    }
}

fn row_error(name: &str, before: u64, error: RowError) -> Error {
    let (line, message) = match error {
        RowError::Line(LineError::Io(error)) => return Error::from_io(name, Place::Line(before + 1), error),
        RowError::Line(LineError::TooLong) => {
            (before + 1, format!("the row is longer than {ROW_BYTES_MAX} bytes: is this a trace?"))
        }
        RowError::Unclosed(line) => (line, "a quoted value begins here and never ends".to_owned()),
        RowError::StrayQuote(line) => {
            (line, "a quote stands inside a value (quote the whole value and double its quotes)".to_owned())
        }
    };
    Error::at(name, Place::Line(line), message)
}

/// Error in a row: its shape, or the value in the column with this index.
enum Bad {
    Columns,
    Value(usize, String),
}

fn parse(row: &Row<'_>, record: &mut Record) -> std::result::Result<(), Bad> {
    if row.count != COLUMNS {
        return Err(Bad::Columns);
    }
    let [time_ns, pid, op, file, offset, length] = row.fields;
    record.time_ns = number(0, time_ns, "nanoseconds")?;
    record.pid = number(1, pid, "")?;
    record.op = Op::from_bytes(op).ok_or_else(|| {
        let names = Op::NAMES.join(", ");
        Bad::Value(2, format!("{} is not an operation (one of {names})", quoted(op)))
    })?;
    let name = std::str::from_utf8(file)
        .map_err(|error| Bad::Value(3, format!("byte {} is not UTF-8", error.valid_up_to() + 1)))?;
    record.file.clear();
    record.file.push_str(name);
    record.offset = number(4, offset, "bytes")?;
    record.length = number(5, length, "bytes")?;
    if record.offset.checked_add(record.length).is_none() {
        let message = format!(
            "offset {} and length {} together pass {}, the largest offset there is",
            record.offset,
            record.length,
            u64::MAX
        );
        return Err(Bad::Value(5, message));
    }
    Ok(())
}

/// Parses a whole number in the column `index`; errors name its `unit`.
fn number(index: usize, text: &[u8], unit: &str) -> std::result::Result<u64, Bad> {
    whole_number(text, unit).map_err(|message| Bad::Value(index, message))
}

/// Parses a whole number; errors name its `unit`.
pub(crate) fn whole_number(text: &[u8], unit: &str) -> std::result::Result<u64, String> {
    let mut value = 0u64;
    let mut valid = !text.is_empty();
    let mut fits = true;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        valid &= digit <= 9;
        match value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => fits = false,
        }
    }
    if valid && fits {
        return Ok(value);
    }
    let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
    let problem = match text {
        [] => "is empty".to_owned(),
        _ if valid => format!("is more than {}", u64::MAX),
        [b'-' | b'+', ..] => format!("has a sign; expected a whole number{of} without one"),
        _ => format!("is not a whole number{of}"),
    };
    Err(if text.is_empty() { problem } else { format!("{} {problem}", quoted(text)) })
}
