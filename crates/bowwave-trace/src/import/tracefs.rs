//! The kernel's page cache events: the text of tracefs' `trace` or `trace_pipe`.
//!
//! | event | meaning | imported as |
//! |---|---|---|
//! | `mm_filemap_get_pages` | a read looks up these pages | `read`, among accesses |
//! | `mm_filemap_fault` | page fault on an unmapped page of a mapping | `load`, among accesses |
//! | `mm_filemap_add_to_page_cache` | pages are read, on demand or ahead | `read`, among fills |
//! | `mm_filemap_delete_from_page_cache` | pages are evicted | `evict` |
//! | `mm_filemap_map_pages` | pages around a fault are mapped; the faulting page is unknown | skipped |
//! | `readahead:*` | a kernel decision, not an access | skipped |

use super::batch::{Access, Batch, Fault};
use super::repairs::Repair;
use super::text::{decimal, hexadecimal, seconds, words};
use super::{Parse, TracefsEvents};
use crate::Op;
use crate::error::quoted;

/// The kernel's page size in bytes. Offsets are in bytes, lengths in page orders.
const PAGE: u64 = 4096;

/// Upper bound of a folio's order; a larger one is an error.
const ORDER_MAX: u64 = 30;

/// Parses accesses or fills.
#[derive(Debug)]
pub(super) struct Tracefs {
    events: TracefsEvents,
    /// Whether any event was imported.
    imported: bool,
    /// Whether the other choice would have imported one.
    other_imports: bool,
}

impl Tracefs {
    pub(super) fn new(events: TracefsEvents) -> Self {
        Self { events, imported: false, other_imports: false }
    }

    /// The operation of an event; `None` to skip it.
    fn op(&mut self, event: &[u8]) -> Option<Op> {
        let (op, events) = match event {
            b"mm_filemap_delete_from_page_cache" => return Some(Op::Evict),
            b"mm_filemap_get_pages" => (Op::Read, TracefsEvents::Accesses),
            b"mm_filemap_fault" => (Op::Load, TracefsEvents::Accesses),
            b"mm_filemap_add_to_page_cache" => (Op::Read, TracefsEvents::Fills),
            _ => return None,
        };
        let fits = events == self.events;
        *(if fits { &mut self.imported } else { &mut self.other_imports }) = true;
        fits.then_some(op)
    }
}

impl Parse for Tracefs {
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        if line.starts_with(b"#") {
            return Ok(());
        }
        if line.starts_with(b"CPU:") {
            let repair = if line.ends_with(b"EVENTS]") { Repair::LostEvents } else { Repair::ForeignLine };
            batch.repairs.add(repair);
            return Ok(());
        }
        let Event { pid, time, name, rest } = event(line).ok_or_else(|| {
            let message =
                format!("{} is not an event (text of tracefs' trace or trace_pipe, please)", quoted(line));
            Fault::line(message)
        })?;
        let Some(op) = self.op(name) else {
            batch.repairs.add(Repair::OtherEvent);
            return Ok(());
        };
        let missing = |column| Fault::column(column, format!("{} has no such value", quoted(rest)));
        let device = value(rest, b"dev").ok_or_else(|| missing("dev"))?;
        let inode = value(rest, b"ino").and_then(hexadecimal).ok_or_else(|| missing("ino"))?;
        let (offset, length) = range(rest).ok_or_else(|| missing("ofs"))?;
        let file = [device, b"/", inode.to_string().as_bytes()].concat();
        let time_ns = seconds("time", time)?;
        batch.push(Access { time_ns, pid, op, file: &file, offset, length })
    }

    fn end(&mut self, _batch: &mut Batch) -> Result<(), Fault> {
        let (requested, other) = match self.events {
            TracefsEvents::Accesses => ("accesses (mm_filemap_get_pages, mm_filemap_fault)", "fills"),
            TracefsEvents::Fills => ("fills (mm_filemap_add_to_page_cache)", "accesses"),
        };
        if self.other_imports && !self.imported {
            return Err(Fault::line(format!(
                "the log has no {requested}, but it has {other}: take those instead"
            )));
        }
        Ok(())
    }
}

struct Event<'a> {
    pid: u64,
    time: &'a [u8],
    name: &'a [u8],
    /// The event's own fields.
    rest: &'a [u8],
}

/// Whether `line` is a page cache event.
pub(super) fn fits(line: &[u8]) -> bool {
    event(line)
        .is_some_and(|event| event.name.starts_with(b"mm_filemap_") || event.name.starts_with(b"page_cache_"))
}

/// Parses ` python3-24170 [000] ..... 11474.950385: mm_filemap_get_pages: dev=254:0 …`.
fn event(line: &[u8]) -> Option<Event<'_>> {
    let (open, close) = cpu(line)?;
    let task = line[..open].trim_ascii();
    // With the option `record-tgid` the process ID follows in parentheses; use it.
    let (task, group) = match task.strip_suffix(b")") {
        Some(task) => {
            let at = task.iter().rposition(|&byte| byte == b'(')?;
            (task[..at].trim_ascii(), decimal(task[at + 1..].trim_ascii()))
        }
        None => (task, None),
    };
    let dash = task.iter().rposition(|&byte| byte == b'-')?;
    let thread = decimal(&task[dash + 1..])?;
    let mut rest = line[close + 1..].trim_ascii_start();
    let mut time = next_word(&mut rest);
    if !time.ends_with(b":") {
        // Context flags precede the time.
        time = next_word(&mut rest);
    }
    let name = next_word(&mut rest).strip_suffix(b":")?;
    Some(Event { pid: group.unwrap_or(thread), time: time.strip_suffix(b":")?, name, rest })
}

/// The CPU number in a line: the brackets of the first `[001]`.
fn cpu(line: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let open = from + line[from..].iter().position(|&byte| byte == b'[')?;
        let close = open + line[open..].iter().position(|&byte| byte == b']')?;
        if close - open >= 4 && line[open + 1..close].iter().all(u8::is_ascii_digit) {
            return Some((open, close));
        }
        from = open + 1;
    }
}

fn next_word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after.trim_ascii_start();
    word
}

/// The value of `key`, in the form `key=value` or `key value`.
fn value<'a>(rest: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut words = words(rest);
    while let Some(word) = words.next() {
        match word.strip_prefix(key) {
            Some([]) => return words.next(),
            Some([b'=', value @ ..]) => return Some(value),
            _ => {}
        }
    }
    None
}

/// The byte range of an event: `ofs=4096`, with or without `order=2`, or `ofs=4096-12287`.
fn range(rest: &[u8]) -> Option<(u64, u64)> {
    let offset = value(rest, b"ofs")?;
    if let Some(dash) = offset.iter().position(|&byte| byte == b'-') {
        let (first, last) = (decimal(&offset[..dash])?, decimal(&offset[dash + 1..])?);
        return Some((first, last.checked_sub(first)?.checked_add(1)?));
    }
    let order = value(rest, b"order").map_or(Some(0), decimal)?;
    let offset = decimal(offset)?;
    (order <= ORDER_MAX).then(|| (offset, PAGE << order))
}
