//! vscsi traces in two binary forms: fixed-size little-endian records without a header.

use std::io::{self, BufRead};

use super::batch::{Access, Batch, Fault};
use super::columns::scsi;
use super::text::SECTOR;
use crate::Op;
use crate::bytes::{fill, u16_at, u32_at, u64_at};

/// Size of the largest record.
const RECORD_BYTES_MAX: usize = 40;

/// The two binary forms.
///
/// ```text
///   bytes     version 1                  version 2
///   0         u32 serial number          u16 command, u16 version << 8
///   4         u32 length in bytes        u32 serial number
///   8         u32 scatter-gather parts   u32 length in bytes
///   12        u16 command, u16 version   u32 scatter-gather parts
///   16        u64 sector                 u64 sector
///   24        u64 time in microseconds   u64 time in microseconds
///   32                                   u64 response time
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    One,
    Two,
}

impl Form {
    /// Detects the form of a trace that starts with `head`.
    fn detect(head: &[u8]) -> Option<Self> {
        let is = |form: Self| {
            let records = head.chunks_exact(form.bytes()).take(4);
            records.len() > 0 && records.clone().all(|record| form.version(record) == form as u16 + 1)
        };
        [Self::Two, Self::One].into_iter().find(|&form| is(form))
    }

    const fn bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => RECORD_BYTES_MAX,
        }
    }

    fn version(self, record: &[u8]) -> u16 {
        let at = if self == Self::One { 14 } else { 2 };
        u16_at(record, at) >> 8
    }
}

/// Whether a file that starts with `head` is a binary vscsi trace.
pub(super) fn is_trace(head: &[u8]) -> bool {
    Form::detect(head).is_some()
}

/// Reads records one at a time.
#[derive(Debug)]
pub(super) struct Records<R> {
    input: R,
    form: Option<Form>,
    /// Records read so far.
    pub(super) count: u64,
}

/// An invalid record.
#[derive(Debug)]
pub(super) enum RecordError {
    Io(io::Error),
    /// The input ends within a record.
    CutShort,
    Fault(Fault),
}

impl<R: BufRead> Records<R> {
    /// The records of `input`, which starts with `head`.
    pub(super) fn new(input: R, head: &[u8]) -> Self {
        Self { input, form: Form::detect(head), count: 0 }
    }

    /// Parses the next record; false at the end of the input.
    pub(super) fn next_record(&mut self, batch: &mut Batch) -> Result<bool, RecordError> {
        let mut record = [0; RECORD_BYTES_MAX];
        let Some(form) = self.form else {
            let message = "the version of neither form of vscsi stands where it should";
            return Err(RecordError::Fault(Fault::line(message)));
        };
        let record = &mut record[..form.bytes()];
        let filled = fill(&mut self.input, record).map_err(RecordError::Io)?;
        match filled {
            0 => return Ok(false),
            _ if filled < record.len() => return Err(RecordError::CutShort),
            _ => {}
        }
        take(form, record, batch).map_err(RecordError::Fault)?;
        self.count += 1;
        Ok(true)
    }
}

fn take(form: Form, record: &[u8], batch: &mut Batch) -> Result<(), Fault> {
    let version = form.version(record);
    if version != form as u16 + 1 {
        let message = format!("version {version}, but the records before it have {}", form as u16 + 1);
        return Err(Fault::column("version", message));
    }
    let (command, length) = match form {
        Form::One => (u16_at(record, 12), u32_at(record, 4)),
        Form::Two => (u16_at(record, 0), u32_at(record, 8)),
    };
    let (sector, time_us) = (u64_at(record, 16), u64_at(record, 24));
    let scaled = |column, number: u64, size| {
        number.checked_mul(size).ok_or_else(|| Fault::column(column, format!("{number} is too large")))
    };
    let time_ns = scaled("time", time_us, 1000)?;
    let offset = scaled("sector", sector, SECTOR)?;
    let access = Access { time_ns, pid: 0, op: Op::Read, file: b"disk", offset, length: length.into() };
    scsi(command.into(), batch, access)
}
