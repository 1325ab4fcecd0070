//! Standard output carries data: one buffer, and a quiet exit when its reader closes it.

use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use serde::Serialize;

use crate::Failure;
use crate::table::{self, Fitted, Table};

/// Buffered standard output. Call [`Output::finish`] in any case, so that output before a failure
/// appears.
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

    /// Writes a table as wide as the terminal, or [`table::WIDTH`] columns without one. A note on
    /// standard error names omitted columns and says that `elsewhere` has them.
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

    /// Writes `rows` as a JSON array, one row per line.
    pub(crate) fn json_array(&mut self, rows: &[impl Serialize]) -> Result<(), Failure> {
        let mut count = 0;
        for row in rows {
            self.json_row(count, row)?;
            count += 1;
        }
        self.json_end(count)
    }

    /// Writes one row of a streamed JSON array after `rows` others. [`Self::json_end`] ends the
    /// array.
    pub(crate) fn json_row(&mut self, rows: u64, row: &impl Serialize) -> Result<(), Failure> {
        written(self.stdout.write_all(if rows == 0 { b"[" } else { b",\n " }))?;
        written(serde_json::to_writer(&mut self.stdout, row).map_err(io::Error::from))
    }

    /// Ends a JSON array of `rows` rows.
    pub(crate) fn json_end(&mut self, rows: u64) -> Result<(), Failure> {
        written(self.stdout.write_all(if rows == 0 { b"[]\n" } else { b"]\n" }))
    }

    /// Flushes, and returns `outcome`, or the failure to write.
    pub(crate) fn finish<T>(mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let flushed = written(self.stdout.flush());
        outcome.and_then(|value| flushed.map(|()| value))
    }
}

/// Width of standard output in columns.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    // A terminal of unknown width reports 0.
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

/// Converts the result of writing to standard output.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| written_error(&error))
}

/// The failure for a write error of standard output; [`Failure::unread`] if the reader has closed
/// it.
pub(crate) fn written_error(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => failed!("cannot write to standard output: {error}"),
    }
}

/// Writes a file next to `path` and renames it when complete: readers never see a partial trace,
/// and mappings of the old file stay valid.
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
        // The original failure is reported; the leftover only takes space.
        let _second_failure = fs::remove_file(&part);
    }
    outcome
}

/// A name from a store without terminal control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// Prints a note on standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    // A closed standard error loses nothing.
    let _nobody_listens = writeln!(io::stderr(), "bowwave: note: {text}");
}
