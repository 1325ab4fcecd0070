//! Logs with one request per line in fixed columns: the published block traces.

use std::num::NonZeroU64;

use super::batch::{Access, Batch, Fault};
use super::repairs::Repair;
use super::text::{SECTOR, columns, fields, hexadecimal, number, scaled, seconds, words};
use super::{Options, Parse};
use crate::Op;
use crate::error::quoted;

/// Maximum columns parsed in any of these formats.
const WIDTH: usize = 7;

/// Default block size in bytes of traces with block numbers of unspecified size: one page.
const PAGE_BLOCK: u64 = 4096;

/// Converts a line to an access.
type Take = fn(&Request<'_>, &mut Batch) -> Result<(), Fault>;

/// Line layout of a format.
#[derive(Debug)]
pub(super) struct Layout {
    /// Column names, for errors and headers.
    names: &'static [&'static str],
    /// Whether the format allows more columns than the named ones.
    more: bool,
    /// Whether columns are separated by commas instead of blanks.
    commas: bool,
    /// Block size in bytes; 1 for formats that count bytes, which ignore the option.
    block: u64,
    take: Take,
}

/// A layout with comma-separated columns.
const fn commas(names: &'static [&'static str], block: u64, take: Take) -> Layout {
    Layout { names, more: false, commas: true, block, take }
}

/// A layout with blank-separated columns.
const fn blanks(names: &'static [&'static str], block: u64, take: Take) -> Layout {
    Layout { commas: false, ..commas(names, block, take) }
}

/// MSR Cambridge: `128166372003061629,hm,1,Read,383496192,32768,413`; times in 100 ns since 1601.
pub(super) const MSR: Layout =
    commas(&["timestamp", "hostname", "disknumber", "type", "offset", "size", "responsetime"], 1, msr);

/// Alibaba Cloud block traces: `419,W,8792731648,16384,1577808144360767`; microseconds.
pub(super) const ALIBABA: Layout =
    commas(&["device_id", "opcode", "offset", "length", "timestamp"], 1, alibaba);

/// Tencent Cloud block storage: `1538323200,12910952,128,0,1063`; seconds, sectors, 0 read and 1
/// write.
pub(super) const TENCENT: Layout =
    commas(&["timestamp", "offset", "size", "iotype", "volumeid"], SECTOR, tencent);

/// Storage Performance Council: `0,303567,3584,w,0.000000`; blocks, bytes, seconds.
pub(super) const SPC: Layout =
    Layout { more: true, ..commas(&["asu", "lba", "size", "opcode", "timestamp"], SECTOR, spc) };

/// vscsi traces as CSV: `1,5633898,2a,512,42932745`; seconds, a SCSI command in hexadecimal, bytes,
/// sectors.
pub(super) const VSCSI_CSV: Layout = commas(&["version", "time", "op", "size", "lbn"], SECTOR, vscsi);

/// ARC: `110765 64 0 0`; first block, number of blocks, ignored, request number.
pub(super) const ARC: Layout = blanks(&["start", "blocks", "ignored", "request"], PAGE_BLOCK, arc);

/// LIRS: a block's number.
pub(super) const LIRS: Layout = blanks(&["block"], PAGE_BLOCK, lirs);

/// MQSim: `11413000 0 657728 16 1`; nanoseconds, device, sector, sectors, 1 read and 0 write.
pub(super) const MQSIM: Layout = blanks(&["time", "device", "start", "sectors", "type"], SECTOR, mqsim);

/// A line's columns, with their names, and the block size.
struct Request<'a> {
    names: &'static [&'static str],
    values: [&'a [u8]; WIDTH],
    block: u64,
}

/// Parses requests of one [`Layout`].
#[derive(Debug)]
pub(super) struct Columns {
    layout: &'static Layout,
    block: u64,
    /// Whether a line was parsed; only the first can be a header.
    started: bool,
}

impl Columns {
    pub(super) fn new(layout: &'static Layout, options: &Options) -> Self {
        let block =
            if layout.block == 1 { 1 } else { options.block_bytes.map_or(layout.block, NonZeroU64::get) };
        Self { layout, block, started: false }
    }
}

impl Parse for Columns {
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        let layout = self.layout;
        let (values, count) =
            if layout.commas { fields::<WIDTH>(columns(line)) } else { fields::<WIDTH>(words(line)) };
        let first = !std::mem::replace(&mut self.started, true);
        if first && layout.commas && layout.is_header(&values, count) {
            return Ok(());
        }
        if count < layout.names.len() || (count > layout.names.len() && !layout.more) {
            let separator = if layout.commas { "," } else { " " };
            let plural = if count == 1 { "" } else { "s" };
            let names = layout.names.join(separator);
            let message = format!("{count} column{plural}, expected the {} of '{names}'", layout.names.len());
            return Err(Fault::line(message));
        }
        (layout.take)(&Request { names: layout.names, values, block: self.block }, batch)
    }
}

impl Layout {
    /// Whether a line has the column names of the format's publishers.
    fn is_header(&self, values: &[&[u8]], count: usize) -> bool {
        count == self.names.len()
            && values.iter().zip(self.names).all(|(found, name)| found.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Whether a line could be a request of this format.
    pub(super) fn fits(&'static self, line: &[u8]) -> bool {
        let mut parser = Columns { layout: self, block: self.block, started: false };
        parser.line(line, &mut Batch::default()).is_ok()
    }
}

impl Request<'_> {
    fn number(&self, column: usize, unit: &str) -> Result<u64, Fault> {
        number(self.names[column], self.values[column], unit)
    }

    fn scaled(&self, column: usize, unit: &str, size: u64) -> Result<u64, Fault> {
        scaled(self.names[column], self.values[column], unit, size)
    }

    /// The operation in `column`, as one of these words.
    fn op(&self, column: usize, read: &str, write: &str) -> Result<Op, Fault> {
        let word = self.values[column];
        if word.eq_ignore_ascii_case(read.as_bytes()) {
            return Ok(Op::Read);
        }
        if word.eq_ignore_ascii_case(write.as_bytes()) {
            return Ok(Op::Write);
        }
        let message = format!("{} is neither '{read}' nor '{write}'", quoted(word));
        Err(Fault::column(self.names[column], message))
    }
}

/// `prefix` and a number, such as `volume-12`, on the stack: naming a row must not allocate.
struct Numbered {
    text: [u8; Self::BYTES_MAX],
    length: usize,
}

impl Numbered {
    const BYTES_MAX: usize = 128;
    /// Space for the prefix, next to the largest number.
    const PREFIX_BYTES_MAX: usize = Self::BYTES_MAX - 20;

    /// `prefix` has at most [`Self::PREFIX_BYTES_MAX`] bytes.
    fn new(prefix: &[u8], mut number: u64) -> Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        let digits = &digits[at..];
        let length = prefix.len() + digits.len();
        let mut text = [0; Self::BYTES_MAX];
        text[..prefix.len()].copy_from_slice(prefix);
        text[prefix.len()..length].copy_from_slice(digits);
        Self { text, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

fn msr(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    const UNIT_NS: u64 = 100;
    let disk = request.number(2, "")?;
    let mut prefix = [0; Numbered::PREFIX_BYTES_MAX];
    let host = request.values[1];
    let Some(place) = prefix.get_mut(..=host.len()) else {
        return Err(Fault::column(request.names[1], format!("a name of {} bytes", host.len())));
    };
    place[..host.len()].copy_from_slice(host);
    place[host.len()] = b'_';
    batch.push(Access {
        time_ns: request.scaled(0, "units of 100 ns", UNIT_NS)?,
        pid: 0,
        op: request.op(3, "Read", "Write")?,
        file: Numbered::new(place, disk).bytes(),
        offset: request.number(4, "bytes")?,
        length: request.number(5, "bytes")?,
    })
}

fn alibaba(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    batch.push(Access {
        time_ns: request.scaled(4, "microseconds", 1000)?,
        pid: 0,
        op: request.op(1, "R", "W")?,
        file: Numbered::new(b"volume-", request.number(0, "")?).bytes(),
        offset: request.number(2, "bytes")?,
        length: request.number(3, "bytes")?,
    })
}

fn tencent(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    batch.push(Access {
        time_ns: request.scaled(0, "seconds", 1_000_000_000)?,
        pid: 0,
        op: request.op(3, "0", "1")?,
        file: Numbered::new(b"volume-", request.number(4, "")?).bytes(),
        offset: request.scaled(1, "sectors", request.block)?,
        length: request.scaled(2, "sectors", request.block)?,
    })
}

fn spc(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    batch.push(Access {
        time_ns: seconds(request.names[4], request.values[4])?,
        pid: 0,
        op: request.op(3, "r", "w")?,
        file: Numbered::new(b"asu-", request.number(0, "")?).bytes(),
        offset: request.scaled(1, "blocks", request.block)?,
        length: request.number(2, "bytes")?,
    })
}

fn vscsi(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    if !matches!(request.number(0, "")?, 1 | 2) {
        return Err(Fault::column(
            request.names[0],
            format!("{} is neither 1 nor 2", quoted(request.values[0])),
        ));
    }
    let command = hexadecimal(request.values[2]).ok_or_else(|| {
        let message =
            format!("{} is not a SCSI command in hexadecimal, such as 28", quoted(request.values[2]));
        Fault::column(request.names[2], message)
    })?;
    let time_ns = request.scaled(1, "seconds", 1_000_000_000)?;
    let length = request.number(3, "bytes")?;
    let offset = request.scaled(4, "sectors", request.block)?;
    scsi(command, batch, Access { time_ns, pid: 0, op: Op::Read, file: b"disk", offset, length })
}

/// Adds the access of a SCSI `command`.
pub(super) fn scsi(command: u64, batch: &mut Batch, access: Access<'_>) -> Result<(), Fault> {
    let op = match command {
        // READ(6), READ(10), READ(12), READ(16).
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        // WRITE(6), (10), (12), (16); WRITE AND VERIFY(10), (12), (16).
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Op::Write,
        // SYNCHRONIZE CACHE(10), (16).
        0x35 | 0x91 => return batch.push(Access { op: Op::Fsync, offset: 0, length: 0, ..access }),
        _ => {
            batch.repairs.add(Repair::OtherRequest);
            return Ok(());
        }
    };
    batch.push(Access { op, ..access })
}

fn arc(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    request.number(3, "")?;
    batch.push(Access {
        time_ns: 0,
        pid: 0,
        op: Op::Read,
        file: b"blocks",
        offset: request.scaled(0, "blocks", request.block)?,
        length: request.scaled(1, "blocks", request.block)?,
    })
}

fn lirs(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    // Some of these traces end with an asterisk.
    if request.values[0] == b"*" {
        return Ok(());
    }
    let offset = request.scaled(0, "blocks", request.block)?;
    batch.push(Access { time_ns: 0, pid: 0, op: Op::Read, file: b"blocks", offset, length: request.block })
}

fn mqsim(request: &Request<'_>, batch: &mut Batch) -> Result<(), Fault> {
    batch.push(Access {
        time_ns: request.number(0, "nanoseconds")?,
        pid: 0,
        op: request.op(4, "1", "0")?,
        file: Numbered::new(b"device-", request.number(1, "")?).bytes(),
        offset: request.scaled(2, "sectors", request.block)?,
        length: request.scaled(3, "sectors", request.block)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_work_up_to_the_largest() {
        for number in [0, 7, 10, 1063, u64::MAX] {
            let name = format!("volume-{number}");
            assert_eq!(Numbered::new(b"volume-", number).bytes(), name.as_bytes());
        }
    }
}
