//! `explain --across-files`: which files `stream` reads ahead when a program opens others.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bowwave_core::explain::SiblingLine;
use bowwave_core::{FileId, Instant};
use bowwave_sim::machine::{Directories, FileAhead, ProcessId};
use bowwave_trace::Op;

use super::{Args, Input};
use crate::Failure;
use crate::output::{Output, plain};

/// Names of files that a line for people has.
const NAMES_MAX: usize = 3;

/// Reads of adjacent bytes, one after the other. The first one of a file by a process is an open.
struct Read {
    access: u64,
    now: Instant,
    pid: u64,
    process: ProcessId,
    file: FileId,
    bytes: Range<u64>,
}

/// Reads the trace and prints the decisions.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::stdout();
    let outcome = Input::open(&args.trace, args.format).and_then(|input| explain(args, input, &mut output));
    output.finish(outcome)
}

fn explain(args: &Args, input: Input, output: &mut Output) -> Result<(), Failure> {
    let (mut known, mut names, mut sizes) = (HashMap::<String, FileId>::new(), Vec::new(), Vec::new());
    let (mut processes, mut reads) = (HashMap::new(), Vec::new());
    // Reads of each file by each process that come later.
    let mut left = HashMap::<(ProcessId, FileId), u64>::new();
    let mut now = Instant(0);
    input.each("explaining", |access, record| {
        if matches!(record.op, Op::Read | Op::Load) && record.length > 0 {
            let file = *known.entry(record.file.clone()).or_insert_with(|| {
                names.push(record.file.clone());
                sizes.push(0);
                FileId(u32::try_from(sizes.len() - 1).expect("a table of 2^32 names does not fit in memory"))
            });
            let size = &mut sizes[file.0 as usize];
            *size = record.offset.saturating_add(record.length).max(*size);
            now = now.max(Instant(record.time_ns));
            let number =
                u32::try_from(processes.len()).expect("a table of 2^32 processes does not fit in memory");
            let process = *processes.entry(record.pid).or_insert(ProcessId(number));
            let bytes = record.offset..record.offset.saturating_add(record.length);
            match reads.last_mut() {
                // A sequential read of a long file is one.
                Some(Read { process: before, file: same, bytes: read, .. })
                    if (*before, *same, read.end) == (process, file, bytes.start) =>
                {
                    read.end = bytes.end;
                }
                _ => {
                    *left.entry((process, file)).or_default() += 1;
                    reads.push(Read { access, now, pid: record.pid, process, file, bytes });
                }
            }
        }
        Ok(true)
    })?;
    if let Some(pages) = args.file_pages {
        sizes.fill(pages.saturating_mul(4096));
    }
    if !args.json {
        output.line(columns("access", "pid", "reason", "count", "file", "read ahead"))?;
    }
    let mut directories = Directories::new(&names, sizes);
    let mut opened = HashSet::new();
    for Read { access, now, pid, process, file, bytes } in reads {
        let left = left.get_mut(&(process, file)).map(|left| {
            *left -= 1;
            *left
        });
        directories.read(process, file, bytes, left);
        if !opened.insert((process, file)) {
            continue;
        }
        let (_, planned) = directories.opened(file, now, u64::MAX);
        for alike in planned.chunk_by(|a, b| a.reason == b.reason) {
            let name = |ahead: &FileAhead| names[ahead.file.0 as usize].as_str();
            let files: Vec<&str> = alike.iter().map(name).collect();
            let (file, reason) = (names[file.0 as usize].as_str(), alike[0].reason.name());
            let line = SiblingLine { access, pid, file, reason, files: &files };
            output.line(if args.json { line.to_string() } else { for_people(&line) })?;
        }
    }
    Ok(())
}

fn for_people(line: &SiblingLine<'_>) -> String {
    let shown: Vec<String> = line.files.iter().take(NAMES_MAX).map(|name| plain(name)).collect();
    let more = if line.files.len() > NAMES_MAX { " …" } else { "" };
    let [access, pid, count] =
        [line.access, line.pid, line.files.len() as u64].map(|number| number.to_string());
    let files = format!("{}{more}", shown.join(" "));
    columns(&access, &pid, line.reason, &count, &plain(line.file), &files)
}

fn columns(access: &str, pid: &str, reason: &str, count: &str, file: &str, files: &str) -> String {
    format!("{access:>7} {pid:>6} {reason:<8} {count:>5} {file:<20} {files}")
}
