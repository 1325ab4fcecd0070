//! `--trace`: writes the reads of a mount as a trace.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bowwave_engine::backend::sync::Mutex;
use bowwave_fuse::{ReadCall, ReadEvent};
use bowwave_trace::{Op, Record, Writer};

use crate::Failure;

/// A trace that is being written. A row is a few microseconds of work: rows are buffered.
#[derive(Debug)]
pub(crate) struct ReadTrace {
    path: PathBuf,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    writer: Option<Writer<BufWriter<File>>>,
    /// Reused.
    record: Record,
    error: Option<io::Error>,
}

impl ReadTrace {
    /// Creates the file, in place of an earlier one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let created = File::create(path).and_then(|file| Writer::new(BufWriter::new(file)));
        let writer = created.map_err(|error| failed!("--trace {}: {error}", path.display()))?;
        let state = State { writer: Some(writer), record: Record::default(), error: None };
        Ok(Self { path: path.to_owned(), begun: Instant::now(), state: Mutex::new(state) })
    }

    /// Adds an event of a read. An error ends the trace, and no read.
    pub(crate) fn write(&self, path: &Path, call: ReadCall) {
        let mut state = self.state.lock();
        let State { writer, record, error } = &mut *state;
        let Some(output) = writer else { return };
        // Under the lock, so that rows are in the order of their times.
        record.time_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        record.pid = call.thread.into();
        record.op = match call.event {
            ReadEvent::Begin => Op::Read,
            ReadEvent::End => Op::Done,
            ReadEvent::WillNeed => Op::WillNeed,
        };
        (record.offset, record.length) = (call.offset, call.length);
        record.file.clear();
        record.file.push_str(&path.to_string_lossy());
        if let Err(failed) = output.write(record) {
            (*writer, *error) = (None, Some(failed));
        }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first error of the file.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let ended = state.writer.take().map_or(Ok(()), |writer| writer.finish().map(drop));
        let result = state.error.take().map_or(ended, Err);
        result.map_err(|error| failed!("--trace {}: the trace is incomplete: {error}", self.path.display()))
    }
}
