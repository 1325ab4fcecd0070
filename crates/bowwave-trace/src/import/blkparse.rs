//! Output of `blkparse` for a `blktrace` recording, in its default format.

use super::batch::{Access, Batch, Fault};
use super::repairs::Repair;
use super::text::{SECTOR, decimal, fields, number, scaled, seconds, words};
use super::{BlockAction, Parse};
use crate::Op;
use crate::error::quoted;

/// Words of an event including the process: `8,0 3 1 0.000000000 697 Q WS 223490 + 8 [kjournald]`.
const WORDS: usize = 10;

/// Parses the events of one action.
#[derive(Debug)]
pub(super) struct Blkparse {
    action: BlockAction,
    /// Whether the summary has started, which ends the events.
    summary: bool,
}

impl Blkparse {
    pub(super) fn new(action: BlockAction) -> Self {
        Self { action, summary: false }
    }
}

impl Parse for Blkparse {
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        self.summary |= line.starts_with(b"CPU") || line.starts_with(b"Total (");
        if self.summary {
            return Ok(());
        }
        let (values, count) = fields::<WORDS>(words(line));
        if count < 7 || !is_device(values[0]) {
            let message =
                format!("{} is not an event of blkparse's (print them in its default format)", quoted(line));
            return Err(Fault::line(message));
        }
        let [device, _, _, time, pid, action, kind, start, plus, sectors] = values;
        if action != [self.action.letter()] {
            return Ok(());
        }
        let op = match kind {
            _ if kind.iter().any(|flag| matches!(flag, b'D' | b'E')) => None,
            _ if kind.contains(&b'R') => Some(Op::Read),
            _ if kind.contains(&b'W') => Some(Op::Write),
            _ if kind.contains(&b'F') => Some(Op::Fsync),
            _ => None,
        };
        let empty = plus != b"+" || sectors == b"0";
        let op = match op {
            Some(_) if empty && kind.contains(&b'F') => Op::Fsync,
            Some(op) if !empty => op,
            _ => {
                batch.repairs.add(Repair::OtherRequest);
                return Ok(());
            }
        };
        let (offset, length) = match op {
            Op::Fsync => (0, 0),
            _ => {
                (scaled("sector", start, "sectors", SECTOR)?, scaled("sectors", sectors, "sectors", SECTOR)?)
            }
        };
        let time_ns = seconds("time", time)?;
        let pid = number("pid", pid, "")?;
        batch.push(Access { time_ns, pid, op, file: device, offset, length })
    }
}

/// Whether `line` could be an event.
pub(super) fn fits(line: &[u8]) -> bool {
    let (values, count) = fields::<7>(words(line));
    count >= 7
        && is_device(values[0])
        && values[1..3].iter().all(|word| decimal(word).is_some())
        && values[3].contains(&b'.')
        && seconds("time", values[3]).is_ok()
}

/// Whether `word` is a device number: `8,0`.
fn is_device(word: &[u8]) -> bool {
    let mut parts = word.split(|&byte| byte == b',');
    let is_number = |part: Option<&[u8]>| part.is_some_and(|part| decimal(part).is_some());
    is_number(parts.next()) && is_number(parts.next()) && parts.next().is_none()
}
