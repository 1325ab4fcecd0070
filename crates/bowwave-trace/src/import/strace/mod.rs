//! Imports `strace` logs: converts system calls to accesses.
//!
//! A log has descriptors, but positions only as arguments of some calls. So the importer tracks,
//! for each process, the open file of each descriptor and its position, like the kernel.
//! Descriptors are inherited, shared between threads, duplicated, and closed by `execve`;
//! duplicates share the position of their open file.
//!
//! A call that is split over two lines has the time of its start and the result of its end. A
//! failed call, and a read at the end of a file, give no record.

mod args;
mod calls;
mod files;
mod line;
mod table;

use super::batch::{Batch, Fault};
use super::repairs::Repair;
use super::{Parse, strace::line::Body};
use args::Args;
use calls::Call;
use line::{Line, Stamp};
use table::{Pending, Tables};

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;
/// Decrease of a time of day that means a new day.
const NEW_DAY_NS: u64 = DAY_NS / 2;

/// Converts calls to accesses.
#[derive(Debug, Default)]
pub(super) struct Strace {
    tables: Tables,
    /// Processes with a fork in progress and no child yet, oldest first.
    forking: Vec<u64>,
    /// The latest time, and the start of the current day.
    now_ns: u64,
    day_ns: u64,
    /// Whether a call was seen.
    any: bool,
}

/// Whether `line` is a call with its result.
pub(super) fn fits(line: &[u8]) -> bool {
    let whole = |text| Args::parse(text).is_some() || text.ends_with(b"= ?");
    matches!(line::parse(line), Some(Line { body: Body::Call { text, .. }, .. }) if whole(text))
}

impl Parse for Strace {
    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        let Some(Line { pid, stamp, body }) = line::parse(line) else {
            batch.repairs.add(Repair::ForeignLine);
            return Ok(());
        };
        self.tick(stamp);
        // The log of a single process has no process IDs.
        let pid = pid.unwrap_or(0);
        match body {
            Body::Call { name, text } => {
                let Some(args) = Args::parse(text) else {
                    batch.repairs.add(Repair::ForeignLine);
                    return Ok(());
                };
                self.arrive(pid, batch);
                let call = Call { pid, time_ns: self.now_ns, name, args: &args };
                calls::apply(&mut self.tables, &call, None, batch)
            }
            Body::Unfinished { name, text } => {
                self.arrive(pid, batch);
                self.begin(pid, name, text, batch);
                Ok(())
            }
            Body::Resumed { text } => self.resume(pid, text, batch),
            Body::Ended => {
                self.forking.retain(|&parent| parent != pid);
                self.tables.end(pid);
                Ok(())
            }
            Body::Superseded { by } => {
                self.forking.retain(|&parent| parent != pid);
                self.tables.rename(by, pid);
                Ok(())
            }
            Body::Other => Ok(()),
        }
    }

    fn end(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        for name in self.tables.pending_names() {
            if calls::touches_files(name) {
                batch.repairs.add(Repair::UnfinishedCall);
            }
        }
        if self.any {
            return Ok(());
        }
        Err(Fault::line("there is no system call in this log (is it strace's?)"))
    }
}

impl Strace {
    /// Advances the time to that of a line.
    fn tick(&mut self, stamp: Stamp) {
        match stamp {
            Stamp::None => {}
            Stamp::Absolute(ns) => self.now_ns = ns,
            Stamp::Since(ns) => self.now_ns = self.now_ns.saturating_add(ns),
            Stamp::OfDay(ns) => {
                let mut now = self.day_ns.saturating_add(ns);
                if now < self.now_ns && self.now_ns - now > NEW_DAY_NS {
                    self.day_ns = self.day_ns.saturating_add(DAY_NS);
                    now = now.saturating_add(DAY_NS);
                }
                self.now_ns = now;
            }
        }
    }

    /// Adds `pid` if it is new: as the child of a forking process, or as started before the log.
    fn arrive(&mut self, pid: u64, batch: &mut Batch) {
        self.any = true;
        if self.tables.knows(pid) {
            return;
        }
        if self.forking.len() > 1 {
            batch.repairs.add(Repair::UnknownParent);
        }
        if self.forking.is_empty() {
            self.tables.begin(pid);
            return;
        }
        let parent = self.forking.remove(0);
        let Some(pending) = self.tables.pending(parent) else {
            self.tables.begin(pid);
            return;
        };
        pending.child = Some(pid);
        let shared = calls::shares_descriptors(&Args::unfinished(&pending.text));
        self.tables.fork(parent, pid, shared);
    }

    fn begin(&mut self, pid: u64, name: &[u8], text: &[u8], batch: &mut Batch) {
        if calls::forks(name) {
            self.forking.push(pid);
        }
        if name == b"close" {
            // Its number may be reused before the log shows that the close returned.
            if let Some(number) =
                Args::unfinished(text).descriptor(0).and_then(|descriptor| descriptor.number)
            {
                self.tables.close(pid, number);
            }
            return;
        }
        let pending = Pending { name: name.to_vec(), text: text.to_vec(), time_ns: self.now_ns, child: None };
        if self.tables.begin_call(pid, pending).is_some_and(|lost| calls::touches_files(&lost.name)) {
            batch.repairs.add(Repair::UnfinishedCall);
        }
    }

    fn resume(&mut self, pid: u64, text: &[u8], batch: &mut Batch) -> Result<(), Fault> {
        let Some(Pending { name, text: mut whole, time_ns, child }) = self.tables.resume_call(pid) else {
            // Started before the log, or a close that has been handled.
            return Ok(());
        };
        self.forking.retain(|&parent| parent != pid);
        whole.extend_from_slice(text);
        let Some(args) = Args::parse(&whole) else {
            batch.repairs.add(Repair::ForeignLine);
            return Ok(());
        };
        let call = Call { pid, time_ns, name: &name, args: &args };
        calls::apply(&mut self.tables, &call, child, batch)
    }
}

#[cfg(test)]
mod tests;
