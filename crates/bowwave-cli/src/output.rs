//! Standard output is data: written through one buffer, and left quietly when nobody reads it any more.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::Failure;

/// Buffered standard output. What was written before a failure is still shown: call [`Output::finish`] in any case.
#[derive(Debug)]
pub struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Standard output, locked for the rest of the command.
    #[must_use]
    pub fn stdout() -> Self {
        Self { stdout: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes a line of text.
    ///
    /// # Errors
    /// As [`written`] has it.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        written(writeln!(self.stdout, "{text}"))
    }

    /// Writes `value` as JSON on one line.
    ///
    /// # Errors
    /// As [`written`] has it.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        written(serde_json::to_writer(&mut self.stdout, value).map_err(io::Error::from))?;
        written(self.stdout.write_all(b"\n"))
    }

    /// Writes `rows` as a JSON array, a row a line.
    ///
    /// # Errors
    /// As [`written`] has it.
    pub fn json_array(&mut self, rows: &[impl Serialize]) -> Result<(), Failure> {
        for (index, row) in rows.iter().enumerate() {
            written(self.stdout.write_all(if index == 0 { b"[" } else { b",\n " }))?;
            written(serde_json::to_writer(&mut self.stdout, row).map_err(io::Error::from))?;
        }
        written(self.stdout.write_all(if rows.is_empty() { b"[]\n" } else { b"]\n" }))
    }

    /// Flushes, and gives back the `outcome` of the command, or the failure to write its end.
    ///
    /// # Errors
    /// That of `outcome`, else as [`written`] has it.
    pub fn finish<T>(mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let flushed = written(self.stdout.flush());
        outcome.and_then(|value| flushed.map(|()| value))
    }
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
///
/// # Errors
/// [`Failure::unread`] if the reader has gone, else what the system says.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::failed(format_args!("cannot write to standard output: {error}")),
    })
}

/// Says something on standard error that is neither data nor an error.
pub fn note(text: impl std::fmt::Display) {
    // If nobody listens there, nothing is lost.
    let _nobody_listens = writeln!(io::stderr(), "bowwave: note: {text}");
}
