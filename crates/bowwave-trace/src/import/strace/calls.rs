//! Effects of each system call on descriptors, and its accesses.

use super::args::{Args, Outcome};
use super::files::{self, Place};
use super::table::{Description, Tables};
use crate::Op;
use crate::import::batch::{Batch, Fault};
use crate::import::repairs::Repair;

/// A completed call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) pid: u64,
    /// Time of its start.
    pub(super) time_ns: u64,
    pub(super) name: &'a [u8],
    pub(super) args: &'a Args<'a>,
}

/// Whether a call of this name creates a process.
pub(super) fn forks(name: &[u8]) -> bool {
    matches!(name, b"fork" | b"vfork" | b"clone" | b"clone2" | b"clone3")
}

/// Whether the new process shares descriptors instead of copying them.
pub(super) fn shares_descriptors(args: &Args<'_>) -> bool {
    (0..3).any(|index| args.has(index, "CLONE_FILES"))
}

/// Whether a call of this name reads or writes, so that a missing end must be reported.
pub(super) fn touches_files(name: &[u8]) -> bool {
    transfer(name).is_some()
        || matches!(
            name,
            b"sendfile" | b"sendfile64" | b"copy_file_range" | b"splice" | b"fsync" | b"fdatasync"
        )
}

/// Applies a call. `child` is the process that was assumed to be its child before it returned.
pub(super) fn apply(
    tables: &mut Tables,
    call: &Call<'_>,
    child: Option<u64>,
    batch: &mut Batch,
) -> Result<(), Fault> {
    let Call { pid, name, args, .. } = *call;
    // A failed call has no effect, except that close always frees its number.
    if name == b"close" {
        if let Some(number) = number(args, 0) {
            tables.close(pid, number);
        }
        return Ok(());
    }
    let Some(outcome) = args.outcome else { return Ok(()) };
    if let Some((op, offset)) = transfer(name) {
        let place = offset.map_or(Place::Position, |index| Place::of(args.number(index)));
        return files::touch(tables, call, 0, op, place, outcome.value, batch);
    }
    match name {
        b"open" | b"creat" | b"openat" | b"openat2" => files::open(tables, call, outcome),
        b"lseek" | b"_llseek" => files::seek(tables, call, outcome),
        b"sendfile" | b"sendfile64" => {
            let from = args.pointed(2).map_or(Place::Position, Place::At);
            files::touch(tables, call, 1, Op::Read, from, outcome.value, batch)?;
            return files::touch(tables, call, 0, Op::Write, Place::Position, outcome.value, batch);
        }
        b"copy_file_range" | b"splice" => {
            let place = |index| args.pointed(index).map_or(Place::Position, Place::At);
            files::touch(tables, call, 0, Op::Read, place(1), outcome.value, batch)?;
            return files::touch(tables, call, 2, Op::Write, place(3), outcome.value, batch);
        }
        b"fsync" | b"fdatasync" => return files::flush(tables, call, batch),
        b"fadvise64" | b"fadvise64_64" => return files::advise(tables, call, batch),
        b"readahead" => return files::read_ahead(tables, call, batch),
        b"mmap" | b"mmap2" => return files::map(tables, call, batch),
        b"fstat" | b"fstat64" | b"newfstatat" | b"fstatat64" | b"statx" => files::learn_size(tables, call),
        b"ftruncate" | b"ftruncate64" => files::resize(tables, call),
        b"io_submit" | b"io_uring_enter" => batch.repairs.add(Repair::UnseenSubmission),
        b"chdir" | b"fchdir" | b"getcwd" => files::change_directory(tables, call),
        b"execve" | b"execveat" => tables.exec(pid),
        b"unshare" if args.has(0, "CLONE_FILES") => tables.unshare(pid),
        _ if forks(name) => fork(tables, call, outcome.value, child),
        _ => descriptors(tables, call, outcome),
    }
    Ok(())
}

/// Reads and writes: the operation, and the index of the offset argument, if any.
fn transfer(name: &[u8]) -> Option<(Op, Option<usize>)> {
    Some(match name {
        b"read" | b"readv" => (Op::Read, None),
        b"pread" | b"pread64" | b"preadv" | b"preadv2" => (Op::Read, Some(3)),
        b"write" | b"writev" => (Op::Write, None),
        b"pwrite" | b"pwrite64" | b"pwritev" | b"pwritev2" => (Op::Write, Some(3)),
        _ => return None,
    })
}

fn fork(tables: &mut Tables, call: &Call<'_>, value: u64, child: Option<u64>) {
    // The call also returns in the child, with 0.
    if value == 0 || child == Some(value) || tables.knows(value) {
        return;
    }
    tables.fork(call.pid, value, shares_descriptors(call.args));
}

/// Calls that only change descriptors.
fn descriptors(tables: &mut Tables, call: &Call<'_>, outcome: Outcome<'_>) {
    let Call { pid, name, args, .. } = *call;
    let value = u32::try_from(outcome.value).ok();
    if matches!(name, b"dup" | b"dup2" | b"dup3" | b"fcntl" | b"fcntl64") {
        // Also files opened before the log began share their position with duplicates.
        files::known(tables, call, 0);
    }
    match name {
        b"dup" | b"dup2" | b"dup3" => {
            if let (Some(old), Some(new)) = (number(args, 0), value) {
                tables.duplicate(pid, old, new, args.has(2, "O_CLOEXEC"));
            }
        }
        b"fcntl" | b"fcntl64" => {
            let Some(old) = number(args, 0) else { return };
            match (args.text(1), value) {
                (b"F_DUPFD", Some(new)) => tables.duplicate(pid, old, new, false),
                (b"F_DUPFD_CLOEXEC", Some(new)) => tables.duplicate(pid, old, new, true),
                (b"F_SETFD", _) => tables.set_close_on_exec(pid, old, args.has(2, "FD_CLOEXEC")),
                (b"F_SETFL", _) => {
                    if let Some(file) = tables.description(pid, old) {
                        file.append = args.has(2, "O_APPEND");
                    }
                }
                _ => {}
            }
        }
        b"close_range" => {
            let bound = |index| args.number(index).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            let (Some(first), Some(last)) = (bound(0), bound(1)) else { return };
            for number in tables.between(pid, first, last) {
                if args.has(2, "CLOSE_RANGE_CLOEXEC") {
                    tables.set_close_on_exec(pid, number, true);
                } else {
                    tables.close(pid, number);
                }
            }
        }
        b"pipe" | b"pipe2" => pair(tables, call, 0),
        b"socketpair" => pair(tables, call, 3),
        b"socket" | b"accept" | b"accept4" | b"epoll_create" | b"epoll_create1" | b"eventfd"
        | b"eventfd2" | b"signalfd" | b"signalfd4" | b"timerfd_create" | b"inotify_init"
        | b"inotify_init1" | b"io_uring_setup" | b"memfd_create" | b"pidfd_open" | b"userfaultfd" => {
            if let Some(number) = value {
                tables.open(pid, number, Description::no_file(), false);
            }
        }
        _ => {}
    }
}

/// Two descriptors in brackets at `index` that are not files.
fn pair(tables: &mut Tables, call: &Call<'_>, index: usize) {
    let close_on_exec = call.args.has(1, "O_CLOEXEC") || call.args.has(1, "SOCK_CLOEXEC");
    for number in call.args.descriptors(index).into_iter().flatten() {
        tables.open(call.pid, number, Description::no_file(), close_on_exec);
    }
}

/// The descriptor at `index`, unless it is the working directory.
pub(super) fn number(args: &Args<'_>, index: usize) -> Option<u32> {
    args.descriptor(index)?.number
}
