//! The records of one line of a foreign log, with monotonic times.

use std::io;

use super::{Format, Repair, Repairs};
use crate::error::Place;
use crate::{Error, Op, Record};

/// Error in a line; the line reader adds the place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) column: Option<&'static str>,
    pub(super) message: String,
}

impl Fault {
    /// An error of the whole line.
    pub(super) fn line(message: impl Into<String>) -> Self {
        Self { column: None, message: message.into() }
    }

    /// An error of the value in `column`.
    pub(super) fn column(column: &'static str, message: impl Into<String>) -> Self {
        Self { column: Some(column), message: message.into() }
    }
}

/// Error of the next line or record.
#[derive(Debug)]
pub(super) enum Wrong {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Wrong {
    /// Adds the place, and a hint about the format to errors of values and rows.
    pub(super) fn error(self, name: &str, place: Place, hint: Option<Format>) -> Error {
        let Fault { column, mut message } = match self {
            Self::Io(error) => return Error::from_io(name, place, error),
            Self::Fault(fault) => fault,
        };
        if let Some(format) = hint {
            message.push_str(&format!("; is this a trace in the format {format}?"));
        }
        let error = Error::at(name, place, message);
        match column {
            Some(column) => error.in_column(column),
            None => error,
        }
    }
}

/// An access as parsed: its name as bytes, its time on the log's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'a> {
    pub(super) time_ns: u64,
    pub(super) pid: u64,
    pub(super) op: Op,
    pub(super) file: &'a [u8],
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Parsed records in order; their memory is reused.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// Number of `records` in use.
    filled: usize,
    /// Number of those already returned.
    returned: usize,
    clock: Clock,
    pub(super) repairs: Repairs,
}

impl Batch {
    /// With `keep_times`, times are the log's; otherwise the first one becomes 0.
    pub(super) fn new(keep_times: bool) -> Self {
        let base = keep_times.then_some(0);
        Self { clock: Clock { base, last: 0 }, ..Self::default() }
    }

    /// Adds an access.
    pub(super) fn push(&mut self, access: Access<'_>) -> Result<(), Fault> {
        let Access { time_ns, pid, op, file, offset, length } = access;
        if offset.checked_add(length).is_none() {
            let message = format!("offset {offset} and length {length} together pass {}", u64::MAX);
            return Err(Fault::line(message));
        }
        let time_ns = self.clock.order(time_ns, &mut self.repairs);
        if self.filled == self.records.len() {
            self.records.push(Record::default());
        }
        let record = &mut self.records[self.filled];
        record.file.clear();
        match std::str::from_utf8(file) {
            Ok(name) => record.file.push_str(name),
            Err(_) => {
                record.file.push_str(&String::from_utf8_lossy(file));
                self.repairs.add(Repair::NameNotText);
            }
        }
        (record.time_ns, record.pid, record.op) = (time_ns, pid, op);
        (record.offset, record.length) = (offset, length);
        self.filled += 1;
        Ok(())
    }

    /// Swaps the next record with the caller's; false if there is none.
    pub(super) fn take(&mut self, record: &mut Record) -> bool {
        if self.returned == self.filled {
            (self.returned, self.filled) = (0, 0);
            return false;
        }
        std::mem::swap(record, &mut self.records[self.returned]);
        self.returned += 1;
        true
    }

    /// Discards records that were not returned.
    pub(super) fn clear(&mut self) {
        (self.returned, self.filled) = (0, 0);
    }
}

/// Times relative to the first one, monotonic.
#[derive(Debug, Default)]
struct Clock {
    base: Option<u64>,
    /// The latest time so far, on the log's clock.
    last: u64,
}

impl Clock {
    fn order(&mut self, time_ns: u64, repairs: &mut Repairs) -> u64 {
        let base = *self.base.get_or_insert(time_ns);
        if time_ns < self.last || time_ns < base {
            repairs.add(Repair::TimeRaised);
        }
        self.last = self.last.max(time_ns).max(base);
        self.last - base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(time_ns: u64, file: &[u8]) -> Access<'_> {
        Access { time_ns, pid: 1, op: Op::Read, file, offset: 0, length: 1 }
    }

    #[test]
    fn times_begin_at_zero_and_are_monotonic() {
        let mut batch = Batch::new(false);
        for time in [100, 130, 90, 120, 140] {
            batch.push(access(time, b"a")).unwrap();
        }
        let mut record = Record::default();
        let times: Vec<_> =
            std::iter::from_fn(|| batch.take(&mut record).then_some(record.time_ns)).collect();
        assert_eq!(times, [0, 30, 30, 30, 40]);
        assert_eq!(batch.repairs.count(Repair::TimeRaised), 2);
    }

    #[test]
    fn keep_times_preserves_the_logs_times() {
        let mut batch = Batch::new(true);
        batch.push(access(100, b"a")).unwrap();
        let mut record = Record::default();
        assert!(batch.take(&mut record) && record.time_ns == 100 && !batch.take(&mut record));
    }

    #[test]
    fn invalid_utf8_names_are_repaired_and_counted() {
        let mut batch = Batch::new(false);
        batch.push(access(0, b"a\xff")).unwrap();
        let mut record = Record::default();
        assert!(batch.take(&mut record));
        assert_eq!((record.file.as_str(), batch.repairs.count(Repair::NameNotText)), ("a\u{fffd}", 1));
    }
}
