//! Calls on open files: their positions.

use super::args::{Args, Outcome, unescape};
use super::calls::{Call, number};
use super::table::{Description, Tables};
use crate::Op;
use crate::import::batch::{Access, Batch, Fault};
use crate::import::repairs::Repair;

/// Position of a read or write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// At the file position, which advances.
    Position,
    /// At this offset; the file position stays.
    At(u64),
}

impl Place {
    /// The position of a call with this offset argument; an invalid offset, such as -1, means the
    /// file position.
    pub(super) fn of(offset: Option<u64>) -> Self {
        offset.map_or(Self::Position, Self::At)
    }
}

/// Paths that are not storage: reading them uses no page cache.
const NO_STORAGE: &[&[u8]] = &[
    b"/proc/",
    b"/sys/",
    b"/dev/null",
    b"/dev/zero",
    b"/dev/full",
    b"/dev/random",
    b"/dev/urandom",
    b"/dev/tty",
    b"/dev/pts/",
    b"/dev/ptmx",
    b"/dev/console",
];

/// Whether a path is a file or disk.
fn is_storage(path: &[u8]) -> bool {
    !path.is_empty() && !NO_STORAGE.iter().any(|prefix| path.starts_with(prefix))
}

/// Opens the file of an open call.
pub(super) fn open(tables: &mut Tables, call: &Call<'_>, outcome: Outcome<'_>) {
    let Call { pid, name, args, .. } = *call;
    let Ok(new) = u32::try_from(outcome.value) else { return };
    let at = usize::from(name.starts_with(b"openat"));
    let flags = at + 1;
    let mut path = Vec::new();
    match outcome.path {
        Some(known) => plain_path(known, &mut path),
        None => {
            let base = (at == 1).then(|| args.descriptor(0)).flatten();
            if !resolve(tables, pid, args, at, base.map(|base| (base.number, base.path)), &mut path) {
                return tables.close(pid, new);
            }
        }
    }
    let truncated = name == b"creat" || args.has(flags, "O_TRUNC");
    let description = Description {
        path,
        position: Some(0),
        size: truncated.then_some(0),
        append: args.has(flags, "O_APPEND"),
    };
    tables.open(pid, new, description, args.has(flags, "O_CLOEXEC"));
}

/// The path at `index` of the arguments, resolved relative to its directory if the log contains
/// that.
fn resolve(
    tables: &mut Tables,
    pid: u64,
    args: &Args<'_>,
    index: usize,
    base: Option<(Option<u32>, Option<&[u8]>)>,
    path: &mut Vec<u8>,
) -> bool {
    let mut name = Vec::new();
    if !args.path(index, &mut name) {
        return false;
    }
    if !name.starts_with(b"/") {
        match base {
            Some((_, Some(annotation))) => unescape(annotation, path),
            Some((Some(number), None)) => {
                if let Some(directory) = tables.description(pid, number) {
                    path.extend_from_slice(&directory.path);
                }
            }
            _ => path.extend_from_slice(tables.directory(pid).unwrap_or_default()),
        }
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest.to_vec();
        }
    }
    path.extend_from_slice(&name);
    true
}

/// A path as printed by `-y` and `-yy`, without the device information of `-yy`.
fn plain_path(annotation: &[u8], path: &mut Vec<u8>) {
    let end = annotation.iter().position(|&byte| byte == b'<').unwrap_or(annotation.len());
    unescape(&annotation[..end], path);
}

/// The open file at descriptor argument `index`. A file opened before the log began is identified
/// by its path, if the log has it.
fn file<'a>(
    tables: &'a mut Tables,
    call: &Call<'_>,
    index: usize,
    batch: &mut Batch,
) -> Option<&'a mut Description> {
    let known = known(tables, call, index);
    let descriptor = call.args.descriptor(index)?;
    if !known && descriptor.path.is_none() && descriptor.number.is_some_and(|number| number > LAST_STANDARD) {
        batch.repairs.add(Repair::UnknownDescriptor);
    }
    if known { tables.description(call.pid, descriptor.number?) } else { None }
}

/// Whether descriptor argument `index` is a known file, or becomes one by its path in the log.
pub(super) fn known(tables: &mut Tables, call: &Call<'_>, index: usize) -> bool {
    let Some(descriptor) = call.args.descriptor(index) else { return false };
    let Some(number) = descriptor.number else { return false };
    let Some(annotation) = descriptor.path else { return tables.description(call.pid, number).is_some() };
    let mut path = Vec::new();
    plain_path(annotation, &mut path);
    // Sockets, pipes and the like have names that are not paths.
    if !path.starts_with(b"/")
        || annotation.ends_with(b">") && annotation.windows(6).any(|part| part == b"<char ")
    {
        return false;
    }
    if tables.description(call.pid, number).is_none_or(|file| file.path != path) {
        let description = Description { path, position: None, size: None, append: false };
        tables.open(call.pid, number, description, false);
    }
    true
}

/// Descriptors up to this number are mostly terminals and pipes; not reported as unknown.
const LAST_STANDARD: u32 = 2;

/// Adds a read or write of `length` bytes at `place` of the descriptor at `index`.
pub(super) fn touch(
    tables: &mut Tables,
    call: &Call<'_>,
    index: usize,
    op: Op,
    place: Place,
    length: u64,
    batch: &mut Batch,
) -> Result<(), Fault> {
    if length == 0 {
        return Ok(());
    }
    let owner = tables.owner(call.pid);
    let Some(file) = file(tables, call, index, batch) else { return Ok(()) };
    if !is_storage(&file.path) {
        return Ok(());
    }
    let offset = match place {
        Place::At(offset) if !(file.append && op == Op::Write) => offset,
        _ if file.append && op == Op::Write => {
            if file.size.is_none() {
                batch.repairs.add(Repair::UnknownSize);
            }
            file.size.or(file.position).unwrap_or(0)
        }
        _ => file.position.unwrap_or_else(|| {
            batch.repairs.add(Repair::UnknownPosition);
            0
        }),
    };
    let end = offset.saturating_add(length);
    if matches!(place, Place::Position) {
        file.position = Some(end);
    }
    if op == Op::Write {
        file.size = match file.size {
            Some(size) => Some(size.max(end)),
            None => file.append.then_some(end),
        };
    }
    let access = Access { time_ns: call.time_ns, pid: owner, op, file: &file.path, offset, length };
    batch.push(access)
}

pub(super) fn seek(tables: &mut Tables, call: &Call<'_>, outcome: Outcome<'_>) {
    let Call { pid, name, args, .. } = *call;
    let Some(number) = number(args, 0) else { return };
    let llseek = name == b"_llseek";
    let position = if llseek { args.pointed(2) } else { Some(outcome.value) };
    // It may have been opened before the log began.
    known(tables, call, 0);
    let whence = args.text(if llseek { 3 } else { 2 });
    let (Some(file), Some(position)) = (tables.description(pid, number), position) else { return };
    file.position = Some(position);
    if whence == b"SEEK_END" && args.text(1) == b"0" {
        file.size = Some(position);
    }
}

pub(super) fn flush(tables: &mut Tables, call: &Call<'_>, batch: &mut Batch) -> Result<(), Fault> {
    push(tables, call, Op::Fsync, 0, 0, batch)
}

/// Advice; a length of 0 extends to the end of the file, if known.
pub(super) fn advise(tables: &mut Tables, call: &Call<'_>, batch: &mut Batch) -> Result<(), Fault> {
    let args = call.args;
    let op = match args.text(3) {
        b"POSIX_FADV_WILLNEED" => Op::WillNeed,
        b"POSIX_FADV_DONTNEED" => Op::DontNeed,
        b"POSIX_FADV_RANDOM" => Op::Random,
        b"POSIX_FADV_SEQUENTIAL" => Op::Sequential,
        _ => return Ok(()),
    };
    let (Some(offset), Some(mut length)) = (args.number(1), args.number(2)) else { return Ok(()) };
    if length == 0 {
        let size = file(tables, call, 0, batch).and_then(|file| file.size);
        length = size.map_or(0, |size| size.saturating_sub(offset));
    }
    push(tables, call, op, offset, length, batch)
}

pub(super) fn read_ahead(tables: &mut Tables, call: &Call<'_>, batch: &mut Batch) -> Result<(), Fault> {
    let (Some(offset), Some(length)) = (call.args.number(1), call.args.number(2)) else { return Ok(()) };
    push(tables, call, Op::WillNeed, offset, length, batch)
}

/// A mapping: its accesses are not in the log, except that `MAP_POPULATE` reads it immediately.
pub(super) fn map(tables: &mut Tables, call: &Call<'_>, batch: &mut Batch) -> Result<(), Fault> {
    let args = call.args;
    if args.has(3, "MAP_ANONYMOUS") {
        return Ok(());
    }
    let offset = args.number(5);
    let moved = Call { args: &args.with_first(args.text(4)), ..*call };
    let Some(file) = file(tables, &moved, 0, batch) else { return Ok(()) };
    if !is_storage(&file.path) {
        return Ok(());
    }
    batch.repairs.add(Repair::MappedFile);
    match (offset, args.number(1)) {
        (Some(offset), Some(length)) if args.has(3, "MAP_POPULATE") => {
            push(tables, &moved, Op::WillNeed, offset, length, batch)
        }
        _ => Ok(()),
    }
}

/// Adds an access that is neither a read nor a write, of the descriptor in the first argument.
fn push(
    tables: &mut Tables,
    call: &Call<'_>,
    op: Op,
    offset: u64,
    length: u64,
    batch: &mut Batch,
) -> Result<(), Fault> {
    let owner = tables.owner(call.pid);
    let Some(file) = file(tables, call, 0, batch) else { return Ok(()) };
    if !is_storage(&file.path) {
        return Ok(());
    }
    batch.push(Access { time_ns: call.time_ns, pid: owner, op, file: &file.path, offset, length })
}

/// Records the size of an open file from a call that returns it.
pub(super) fn learn_size(tables: &mut Tables, call: &Call<'_>) {
    let Call { pid, name, args, .. } = *call;
    let (at, member) = match name {
        b"fstat" | b"fstat64" => (1, "st_size"),
        b"statx" if args.text(1) == b"\"\"" => (4, "stx_size"),
        b"newfstatat" | b"fstatat64" if args.text(1) == b"\"\"" => (2, "st_size"),
        _ => return,
    };
    let (Some(size), Some(number)) = (args.member(at, member), number(args, 0)) else { return };
    if let Some(file) = tables.description(pid, number) {
        file.size = Some(size);
    }
}

pub(super) fn resize(tables: &mut Tables, call: &Call<'_>) {
    let (Some(size), Some(number)) = (call.args.number(1), number(call.args, 0)) else { return };
    if let Some(file) = tables.description(call.pid, number) {
        file.size = Some(size);
    }
}

pub(super) fn change_directory(tables: &mut Tables, call: &Call<'_>) {
    let Call { pid, name, args, .. } = *call;
    let mut path = Vec::new();
    let known = match name {
        b"fchdir" => match args.descriptor(0) {
            Some(descriptor) => {
                let annotation = descriptor.path.map(|annotation| unescape(annotation, &mut path));
                annotation.is_some()
                    || descriptor.number.and_then(|number| tables.description(pid, number)).is_some_and(
                        |directory| {
                            path.extend_from_slice(&directory.path);
                            true
                        },
                    )
            }
            None => false,
        },
        _ => resolve(tables, pid, args, 0, None, &mut path),
    };
    if known {
        tables.set_directory(pid, path);
    }
}
