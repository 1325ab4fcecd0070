//! Rows of RFC 4180 CSV, bounded in size, with the number of the line where each field begins.

use std::io::BufRead;

use crate::ROW_BYTES_MAX;
use crate::bytes::{LineError, append_line, without_end};

/// Columns of a row. Of a row with more, only the first ones are stored; the caller rejects it.
pub(crate) const COLUMNS: usize = 6;

/// Reads rows of at most [`ROW_BYTES_MAX`] bytes, one at a time, and reuses their memory. Stores
/// the first [`COLUMNS`] fields of each.
#[derive(Debug)]
pub(crate) struct Rows<R> {
    input: R,
    /// Raw bytes of the row, including line ends.
    raw: Vec<u8>,
    /// Unquoted bytes of the row, if any field was quoted.
    plain: Vec<u8>,
    /// Lines read so far.
    lines: u64,
    /// Bytes read so far.
    bytes: u64,
}

/// One row: its fields and their lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row<'a> {
    /// The unquoted fields; those past `count` are empty.
    pub(crate) fields: [&'a [u8]; COLUMNS],
    /// The number of each field's first line, from 1.
    pub(crate) lines: [u64; COLUMNS],
    /// Number of fields in the row, possibly more than stored.
    pub(crate) count: usize,
    /// Whether the line was empty.
    pub(crate) blank: bool,
}

/// An invalid row.
#[derive(Debug)]
pub(crate) enum RowError {
    Line(LineError),
    /// A quoted field without end; its first line.
    Unclosed(u64),
    /// A misplaced quote; its line.
    StrayQuote(u64),
}

impl<R: BufRead> Rows<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, raw: Vec::with_capacity(256), plain: Vec::new(), lines: 0, bytes: 0 }
    }

    /// The last line of the last row read; the next row starts on the following line.
    pub(crate) fn line(&self) -> u64 {
        self.lines
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next row, or `None` at the end of the input.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError> {
        self.raw.clear();
        if !self.append_line()? {
            return Ok(None);
        }
        if self.raw.contains(&b'"') {
            return self.quoted_row().map(Some);
        }
        let line = without_end(&self.raw);
        let mut row = Row { lines: [self.lines; COLUMNS], blank: line.is_empty(), ..Row::default() };
        for field in line.split(|&byte| byte == b',') {
            if let Some(place) = row.fields.get_mut(row.count) {
                *place = field;
            }
            row.count += 1;
        }
        Ok(Some(row))
    }

    /// Parses the row in `raw`; reads on if a quoted field continues on the next line.
    fn quoted_row(&mut self) -> Result<Row<'_>, RowError> {
        self.plain.clear();
        let mut bounds = [(0, 0); COLUMNS];
        let mut lines = [0; COLUMNS];
        let mut count = 0;
        let mut at = 0;
        loop {
            let (start, line) = (self.plain.len(), self.lines);
            let next = self.field(at)?;
            if let Some(place) = bounds.get_mut(count) {
                *place = (start, self.plain.len());
                lines[count] = line;
            }
            count += 1;
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        let mut row = Row { lines, count, ..Row::default() };
        for (field, (start, end)) in row.fields.iter_mut().zip(bounds) {
            *field = &self.plain[start..end];
        }
        Ok(row)
    }

    /// Appends the field at `at` to `plain`. Returns the start of the next field, or `None` after
    /// the last.
    fn field(&mut self, mut at: usize) -> Result<Option<usize>, RowError> {
        if self.raw.get(at) != Some(&b'"') {
            let line = without_end(&self.raw);
            let end =
                line[at..].iter().position(|&byte| byte == b',').map_or(line.len(), |length| at + length);
            if line[at..end].contains(&b'"') {
                return Err(RowError::StrayQuote(self.lines));
            }
            self.plain.extend_from_slice(&line[at..end]);
            return Ok((end < line.len()).then_some(end + 1));
        }
        let opened = self.lines;
        at += 1;
        loop {
            match self.raw[at..].iter().position(|&byte| byte == b'"') {
                None => {
                    self.plain.extend_from_slice(&self.raw[at..]);
                    at = self.raw.len();
                    if !self.append_line()? {
                        return Err(RowError::Unclosed(opened));
                    }
                }
                Some(length) => {
                    let quote = at + length;
                    self.plain.extend_from_slice(&self.raw[at..quote]);
                    at = quote + 1;
                    if self.raw.get(at) != Some(&b'"') {
                        break;
                    }
                    self.plain.push(b'"');
                    at += 1;
                }
            }
        }
        match &self.raw[at..] {
            [b',', ..] => Ok(Some(at + 1)),
            [] | [b'\n'] | [b'\r', b'\n'] | [b'\r'] => Ok(None),
            _ => Err(RowError::StrayQuote(self.lines)),
        }
    }

    /// Appends one line with its end to `raw`; false at the end of the input.
    fn append_line(&mut self) -> Result<bool, RowError> {
        let before = self.raw.len();
        if let Err(error) = append_line(&mut self.input, &mut self.raw, ROW_BYTES_MAX) {
            self.lines += u64::from(matches!(error, LineError::TooLong));
            return Err(RowError::Line(error));
        }
        self.bytes += (self.raw.len() - before) as u64;
        let any = self.raw.len() > before;
        self.lines += u64::from(any);
        Ok(any)
    }
}
