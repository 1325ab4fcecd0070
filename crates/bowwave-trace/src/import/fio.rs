//! fio's I/O logs (`write_iolog`), versions 2 and 3.

use super::Parse;
use super::batch::{Access, Batch, Fault};
use super::repairs::Repair;
use super::text::{fields, number, scaled, words};
use crate::Op;
use crate::error::quoted;

/// First bytes of each version's log; the line contains only the version.
const HEADS: [&[u8]; 2] = [b"fio version 2 iolog", b"fio version 3 iolog"];

/// Version of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

/// Whether a log that begins with `head` is fio's.
pub(super) fn is_log(head: &[u8]) -> bool {
    HEADS.iter().any(|known| head.starts_with(known))
}

/// `FILE ACTION [OFFSET LENGTH]`. Version 3 starts with microseconds since the start of the job;
/// version 2 has waits instead.
#[derive(Debug, Default)]
pub(super) struct Fio {
    version: Option<Version>,
    /// Sum of the waits of version 2, in microseconds.
    waited_us: u64,
}

impl Parse for Fio {
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        let Some(version) = self.version else {
            self.version = Some(version(line)?);
            return Ok(());
        };
        let (mut values, mut count) = fields::<5>(words(line));
        let mut time_ns = 0;
        if version == Version::Three {
            time_ns = scaled("timestamp", values[0], "microseconds", 1000)?;
            values.rotate_left(1);
            count -= 1;
        }
        let [file, action, offset, length, _] = values;
        let op = match (action, count) {
            (b"add" | b"open" | b"close", 2) => return Ok(()),
            (b"read", 4) => Op::Read,
            (b"write", 4) => Op::Write,
            (b"sync" | b"datasync", 4) => Op::Fsync,
            (b"sync_file_range" | b"trim", 4) => {
                batch.repairs.add(Repair::OtherRequest);
                return Ok(());
            }
            (b"wait", 4) if version == Version::Two => {
                // The offset is the time; the length is meaningless.
                let wait = number("wait", offset, "microseconds")?;
                self.waited_us = self.waited_us.checked_add(wait).ok_or_else(too_long)?;
                return Ok(());
            }
            (b"add" | b"open" | b"close" | b"read" | b"write" | b"sync" | b"datasync" | b"trim", _) => {
                let message = format!("{count} words, but '{}' has other", action.escape_ascii());
                return Err(Fault::line(message));
            }
            _ => {
                let message =
                    format!("{} is not an action of fio's (read, write, sync, wait …)", quoted(action));
                return Err(Fault::column("action", message));
            }
        };
        if version == Version::Two {
            time_ns = self.waited_us.checked_mul(1000).ok_or_else(too_long)?;
        }
        let flush = op == Op::Fsync;
        let offset = number("offset", offset, "bytes")?;
        let length = number("length", length, "bytes")?;
        // For a flush, fio writes arbitrary values; it concerns the whole file.
        let (offset, length) = if flush { (0, 0) } else { (offset, length) };
        batch.push(Access { time_ns, pid: 0, op, file, offset, length })
    }
}

fn version(line: &[u8]) -> Result<Version, Fault> {
    match line.trim_ascii_end() {
        head if head == HEADS[0] => Ok(Version::Two),
        head if head == HEADS[1] => Ok(Version::Three),
        head => Err(Fault::line(format!(
            "a log of fio's begins with 'fio version 2 iolog' or 3, this one with {} (write it with write_iolog=)",
            quoted(head)
        ))),
    }
}

fn too_long() -> Fault {
    Fault::column("wait", "the waits add up to more than 584 years")
}
