//! Traces that commands read and write.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use bowwave_trace::import::{self, Format, Import, Options, Repair};
use bowwave_trace::{Record, Writer, binary};

use crate::Failure;
use crate::output::{self, Output};

/// Writes one row of a trace.
pub(super) type WriteRow<'a> = &'a mut dyn FnMut(&Record) -> Result<(), Failure>;

/// Where a trace is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Destination<'a> {
    /// CSV to standard output.
    Stdout,
    Csv(&'a Path),
    Binary(&'a Path),
}

/// Opens the trace at `path`, or standard input for `-`; returns the size in bytes of a file.
pub(super) fn open(
    path: &Path,
    format: Option<Format>,
    options: &Options,
) -> Result<(Import, Option<u64>), Failure> {
    if is_stdin(path) {
        let import = import::from_reader(io::stdin(), STDIN, format, options);
        return Ok((import.map_err(Failure::failed)?, None));
    }
    let total = path.metadata().ok().filter(Metadata::is_file).map(|metadata| metadata.len());
    Ok((import::open(path, format, options).map_err(Failure::failed)?, total))
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Notes how many rows were repaired or left out, and why.
pub(super) fn note_repairs(repairs: impl IntoIterator<Item = (Repair, u64)>) {
    for (repair, count) in repairs {
        note!("{}: {count}", repair.name());
    }
}

/// Name of standard input in errors.
pub(super) const STDIN: &str = "standard input";

impl<'a> Destination<'a> {
    /// The file `path`, in the form that its ending names; without it, standard output.
    pub(super) fn new(path: Option<&'a Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(binary::EXTENSION) => Ok(Self::Binary(path)),
            Some("csv") => Ok(Self::Csv(path)),
            _ => {
                let message = format!("the ending of {} names no form of a trace", path.display());
                Err(Failure::usage(message).try_this("FILE.csv or FILE.bwt"))
            }
        }
    }

    /// Creates the trace; `rows` writes its rows.
    pub(super) fn save<T>(self, rows: impl FnOnce(WriteRow<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Self::Stdout => {
                let mut output = Output::stdout();
                let outcome = csv(&mut output, rows, |error| output::written_error(&error));
                output.finish(outcome)
            }
            Self::Csv(path) => output::into_file(path, |file| {
                csv(BufWriter::with_capacity(1 << 20, file), rows, |error| cannot_write(path, &error))
            }),
            Self::Binary(path) => save_binary(path, |writer| {
                rows(&mut |record| writer.write(record).map_err(|error| cannot_write(path, &error)))
            }),
        }
    }
}

fn csv<T>(
    output: impl Write,
    rows: impl FnOnce(WriteRow<'_>) -> Result<T, Failure>,
    refused: impl Fn(io::Error) -> Failure,
) -> Result<T, Failure> {
    let mut writer = Writer::new(output).map_err(&refused)?;
    let value = rows(&mut |record| writer.write(record).map_err(&refused))?;
    writer.finish().map(|_| value).map_err(refused)
}

/// Creates a trace in the binary form; `rows` writes its rows.
pub(super) fn save_binary<T>(
    path: &Path,
    rows: impl FnOnce(&mut binary::Writer<&mut File>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refused = |error| cannot_write(path, &error);
    output::into_file(path, |file| {
        let mut writer = binary::Writer::new(file).map_err(refused)?;
        let value = rows(&mut writer)?;
        writer.finish().map(|_| value).map_err(refused)
    })
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    failed!("cannot write {}: {error}", path.display())
}
