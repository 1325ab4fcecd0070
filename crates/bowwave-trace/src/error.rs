//! Errors in traces, as one line.

use std::fmt;
use std::io;

/// Result of reading a trace.
pub type Result<T> = std::result::Result<T, Error>;

/// Error in a trace, with its place.
///
/// Prints as one line: `trace.csv:17: offset: '12x' is not a whole number of bytes`, or for formats
/// without lines `trace.bwt: row 17: there is no operation 12`.
#[derive(Debug)]
pub struct Error {
    source_name: String,
    place: Place,
    column: Option<&'static str>,
    message: String,
    io: Option<io::Error>,
}

/// Place of an error in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Line, from 1.
    Line(u64),
    /// Row, from 0, in formats without lines.
    Row(u64),
    /// The file as a whole.
    Whole,
}

impl Error {
    /// An error for a valid trace that cannot be used for its purpose.
    pub fn unfit(source_name: &str, why: String) -> Self {
        Self::at(source_name, Place::Whole, why)
    }

    pub(crate) fn at(source_name: &str, place: Place, message: String) -> Self {
        Self { source_name: source_name.to_owned(), place, column: None, message, io: None }
    }

    pub(crate) fn in_column(mut self, column: &'static str) -> Self {
        self.column = Some(column);
        self
    }

    pub(crate) fn from_io(source_name: &str, place: Place, error: io::Error) -> Self {
        let message = error.to_string();
        Self { io: Some(error), ..Self::at(source_name, place, message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.source_name)?;
        match self.place {
            Place::Line(line) => write!(f, "{line}: ")?,
            Place::Row(row) => write!(f, " row {row}: ")?,
            Place::Whole => f.write_str(" ")?,
        }
        if let Some(column) = self.column {
            write!(f, "{column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io.as_ref().map(|error| error as &(dyn std::error::Error + 'static))
    }
}

/// `bytes` in quotes, shortened and printable on one line, for messages.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let head = &bytes[..bytes.len().min(SHOWN)];
    let text: String = String::from_utf8_lossy(head).chars().flat_map(char::escape_debug).collect();
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("'{text}{more}'")
}
