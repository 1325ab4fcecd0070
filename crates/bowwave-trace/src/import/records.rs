//! Traces of fixed-size little-endian records without a header: vscsi in two forms, oracleGeneral.
//!
//! ```text
//!   bytes     vscsi 1                    vscsi 2                    oracleGeneral
//!   0         u32 serial number          u16 command, u16 version   u32 time in seconds
//!   4         u32 length in bytes        u32 serial number          u64 object
//!   8         u32 scatter-gather parts   u32 length in bytes
//!   12        u16 command, u16 version   u32 scatter-gather parts   u32 size in bytes
//!   16        u64 sector                 u64 sector                 i64 next request, -1 for never
//!   24        u64 time in microseconds   u64 time in microseconds
//!   32                                   u64 response time
//! ```
//!
//! The version of vscsi is in the upper byte of its field. The next request is counted from 1; the
//! largest `i64` also means never. oracleGeneral has objects and sizes, but neither files nor
//! operations (see [`Objects`]). It has no header, so its content cannot identify it.

use std::io::BufRead;

use super::batch::{Access, Batch, Fault, Wrong};
use super::columns::scsi;
use super::repairs::Repair;
use super::text::SECTOR;
use crate::Op;
use crate::bytes::{fill, u16_at, u32_at, u64_at};

/// Size of the largest record.
const RECORD_BYTES_MAX: usize = 40;

/// Meaning of an object number of oracleGeneral.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// A block of this many bytes in one file called `objects`; its offset is number times size.
    /// 512 for disk traces, whose objects are sectors.
    Blocks(u64),
    /// A file of its own, named by the number.
    Files,
}

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Vscsi1,
    Vscsi2,
    OracleGeneral(Objects),
}

impl Kind {
    /// Detects the kind of a vscsi trace that starts with `head`.
    pub(super) fn of_vscsi(head: &[u8]) -> Option<Self> {
        let is = |kind: Self| {
            let records = head.chunks_exact(kind.bytes()).take(4);
            records.len() > 0 && records.clone().all(|record| kind.check_version(record).is_ok())
        };
        [Self::Vscsi2, Self::Vscsi1].into_iter().find(|&kind| is(kind))
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Vscsi1 => 32,
            Self::Vscsi2 => RECORD_BYTES_MAX,
            Self::OracleGeneral(_) => 24,
        }
    }

    fn check_version(self, record: &[u8]) -> Result<(), Fault> {
        let (at, known) = if self == Self::Vscsi1 { (14, 1) } else { (2, 2) };
        let version = u16_at(record, at) >> 8;
        if version == known {
            return Ok(());
        }
        let message = format!("version {version}, but the records before it have {known}");
        Err(Fault::column("version", message))
    }
}

/// Reads records one at a time.
#[derive(Debug)]
pub(super) struct Records<R> {
    input: R,
    kind: Kind,
    /// Records read so far.
    pub(super) count: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R, kind: Kind) -> Self {
        Self { input, kind, count: 0 }
    }

    /// Parses the next record; false at the end of the input. A truncated last record of vscsi is
    /// skipped if others came before.
    pub(super) fn next_record(&mut self, batch: &mut Batch) -> Result<bool, Wrong> {
        let mut record = [0; RECORD_BYTES_MAX];
        let record = &mut record[..self.kind.bytes()];
        let filled = fill(&mut self.input, record)?;
        if filled == 0 {
            return Ok(false);
        }
        if filled < record.len() {
            let message = match self.kind {
                Kind::OracleGeneral(_) => {
                    let bytes = record.len();
                    format!(
                        "the last record has {filled} of {bytes} bytes: the file is truncated, or is not \
                         oracleGeneral"
                    )
                }
                _ if self.count > 0 => {
                    batch.repairs.add(Repair::CutShort);
                    return Ok(false);
                }
                _ => "the file ends within its first record: is it truncated?".to_owned(),
            };
            return Err(Fault::line(message).into());
        }
        match self.kind {
            Kind::OracleGeneral(objects) => oracle_general(objects, record, batch)?,
            vscsi => self::vscsi(vscsi, record, batch)?,
        }
        self.count += 1;
        Ok(true)
    }
}

fn vscsi(kind: Kind, record: &[u8], batch: &mut Batch) -> Result<(), Fault> {
    kind.check_version(record)?;
    let (command, length) = match kind {
        Kind::Vscsi1 => (u16_at(record, 12), u32_at(record, 4)),
        _ => (u16_at(record, 0), u32_at(record, 8)),
    };
    let scaled = |column, number: u64, size| {
        number.checked_mul(size).ok_or_else(|| Fault::column(column, format!("{number} is too large")))
    };
    let time_ns = scaled("time", u64_at(record, 24), 1000)?;
    let offset = scaled("sector", u64_at(record, 16), SECTOR)?;
    let access = Access { time_ns, pid: 0, op: Op::Read, file: b"disk", offset, length: length.into() };
    scsi(command.into(), batch, access)
}

fn oracle_general(objects: Objects, record: &[u8], batch: &mut Batch) -> Result<(), Fault> {
    let next = u64_at(record, 16).cast_signed();
    if next < -1 || next == 0 {
        return Err(Fault::line(format!("the next request is {next}; it must be -1 or a number from 1")));
    }
    let (object, length) = (u64_at(record, 4), u64::from(u32_at(record, 12)));
    let time_ns = u64::from(u32_at(record, 0)) * 1_000_000_000;
    let access = Access { time_ns, pid: 0, op: Op::Read, file: b"objects", offset: 0, length };
    let Objects::Blocks(bytes) = objects else {
        return batch.push(Access { file: object.to_string().as_bytes(), ..access });
    };
    let offset = object.checked_mul(bytes).filter(|&at| at.checked_add(length).is_some());
    let offset = offset.ok_or_else(|| {
        let end = u64::MAX;
        Fault::line(format!(
            "object {object} as a block of {bytes} bytes lies past byte {end} (read objects as files)"
        ))
    })?;
    batch.push(Access { offset, ..access })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use crate::import::{Format, Options, from_reader};

    fn row(time_s: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
        [&time_s.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    }

    fn read(bytes: &[u8], objects: Objects) -> Vec<crate::Result<Record>> {
        let options = Options { objects, keep_times: true, ..Options::default() };
        let input = std::io::Cursor::new(bytes.to_vec());
        from_reader(input, "t", Some(Format::OracleGeneral), &options).expect("it opens").collect()
    }

    #[test]
    fn objects_are_blocks_or_files() {
        let bytes = [row(7, 3, 512, 2), row(8, 3, 512, -1), row(9, 4, 512, i64::MAX)].concat();
        assert_eq!(&bytes[..24], b"\x07\0\0\0\x03\0\0\0\0\0\0\0\0\x02\0\0\x02\0\0\0\0\0\0\0");
        for (objects, file, offset) in [(Objects::Blocks(512), "objects", 1536), (Objects::Files, "3", 0)] {
            let records = read(&bytes, objects);
            assert!(records.len() == 3 && records.iter().all(Result::is_ok), "{records:?}");
            let Ok(record) = &records[0] else { unreachable!("checked above") };
            let found = (record.time_ns, record.op, record.file.as_str(), record.offset, record.length);
            assert_eq!(found, (7_000_000_000, Op::Read, file, offset, 512));
        }
    }

    #[test]
    fn errors_name_the_row() {
        let mut bytes = [row(7, 1, 512, -1), row(8, u64::MAX, 512, -1)].concat();
        let error = |bytes: &[u8], objects| {
            let mut records = read(bytes, objects);
            assert_eq!(records.len(), 2, "the first error ends the trace");
            records.remove(1).expect_err("an error").to_string()
        };
        let far = error(&bytes, Objects::Blocks(512));
        assert!(far.starts_with("t: row 1: object 18446744073709551615"), "{far}");
        bytes[47] = 0x80;
        let next = error(&bytes, Objects::Files);
        assert!(next.contains("row 1: the next request is -"), "{next}");
        let cut = error(&bytes[..40], Objects::Files);
        assert!(cut.contains("row 1: the last record has 16 of 24 bytes"), "{cut}");
    }
}
