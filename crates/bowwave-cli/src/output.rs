//! Standard output is data: written through one buffer, and left quietly when its reader closes it.

use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use bowwave_trace::binary;
use serde::Serialize;

use crate::Failure;
use crate::table::{self, Fitted, Table};

/// Buffered standard output. What was written before a failure is still shown: call [`Output::finish`] in any case.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Standard output, locked for the rest of the command.
    pub(crate) fn stdout() -> Self {
        Self { stdout: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        written(writeln!(self.stdout, "{text}"))
    }

    /// Writes a table in the width of the terminal, or of [`table::WIDTH`] columns if standard output is none. Standard error
    /// says which columns were left out for it, and that `elsewhere` has them.
    pub(crate) fn table(&mut self, table: &Table, elsewhere: &str) -> Result<(), Failure> {
        let Fitted { text, left_out } = table.fit(width());
        self.line(text.trim_end())?;
        if !left_out.is_empty() {
            written(self.stdout.flush())?;
            note(format_args!("left out of the table: {}; {elsewhere}", left_out.join(", ")));
        }
        Ok(())
    }

    /// Writes `value` as JSON on one line.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        written(serde_json::to_writer(&mut self.stdout, value).map_err(io::Error::from))?;
        written(self.stdout.write_all(b"\n"))
    }

    /// Writes `rows` as a JSON array, a row a line.
    pub(crate) fn json_array(&mut self, rows: &[impl Serialize]) -> Result<(), Failure> {
        let mut count = 0;
        for row in rows {
            self.json_row(count, row)?;
            count += 1;
        }
        self.json_end(count)
    }

    /// Writes one row of a JSON array that is written row by row: `rows` have been before it. [`Self::json_end`] ends the array.
    pub(crate) fn json_row(&mut self, rows: u64, row: &impl Serialize) -> Result<(), Failure> {
        written(self.stdout.write_all(if rows == 0 { b"[" } else { b",\n " }))?;
        written(serde_json::to_writer(&mut self.stdout, row).map_err(io::Error::from))
    }

    /// Ends a JSON array of `rows` rows.
    pub(crate) fn json_end(&mut self, rows: u64) -> Result<(), Failure> {
        written(self.stdout.write_all(if rows == 0 { b"[]\n" } else { b"]\n" }))
    }

    /// Flushes, and gives back the `outcome` of the command, or the failure to write its end.
    pub(crate) fn finish<T>(mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let flushed = written(self.stdout.flush());
        outcome.and_then(|value| flushed.map(|()| value))
    }
}

/// Columns of a line of standard output.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    // A terminal that does not tell its width says 0.
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&width| width > 0).unwrap_or(table::WIDTH)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// The outcome of writing to standard output.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| written_error(&error))
}

/// The failure for an error of writing to standard output; [`Failure::unread`] if the reader has closed it.
pub(crate) fn written_error(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => failed!("cannot write to standard output: {error}"),
    }
}

/// Whether a trace at `path` is to be in the binary form, as its ending says.
pub(crate) fn is_binary_form(path: &Path) -> Result<bool, Failure> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(binary::EXTENSION) => Ok(true),
        Some("csv") => Ok(false),
        _ => {
            let message = format!("the ending of {} names no form of a trace", path.display());
            Err(Failure::usage(message).try_this("FILE.csv or FILE.bwt"))
        }
    }
}

/// Writes a file beside the one at `path` and renames it when it is complete: no reader sees half a trace, and no
/// map of the old file is cut short.
pub(crate) fn into_file<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refused = |error: io::Error| failed!("cannot write {}: {error}", path.display());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let mut file = File::create_new(&part).map_err(refused)?;
    let outcome = write(&mut file).and_then(|value| fs::rename(&part, path).map(|()| value).map_err(refused));
    if outcome.is_err() {
        // What went wrong is what we report; a leftover would only take room.
        let _second_failure = fs::remove_file(&part);
    }
    outcome
}

/// A name from a store without what would drive a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// Says something on standard error that is neither data nor an error.
pub(crate) fn note(text: impl std::fmt::Display) {
    // A closed standard error loses nothing.
    let _nobody_listens = writeln!(io::stderr(), "bowwave: note: {text}");
}
