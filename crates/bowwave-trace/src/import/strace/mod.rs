//! Logs of `strace`: system calls, made into the accesses that they were.
//!
//! A log names descriptors, and positions only where a call has one among its arguments. So the reader keeps, for each
//! process in the log, which descriptor is which open file and where that stands, as the kernel does: descriptors are
//! inherited, shared between threads, duplicated and closed by `execve`; open files share their position with their
//! duplicates.
//!
//! A call that is split in two lines counts with the time at which it began and with what it returned. A call that
//! failed, and a read at the end of a file, touched nothing and gives no record.

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

/// Nanoseconds of a day, and how far a time of day must fall for a new day to have begun.
const DAY_NS: u64 = 86_400_000_000_000;
const NEW_DAY_NS: u64 = DAY_NS / 2;

/// Makes accesses of calls.
#[derive(Debug, Default)]
pub(super) struct Strace {
    tables: Tables,
    /// Processes whose call to fork has begun, and no child been found for; the earliest first.
    forking: Vec<u64>,
    /// The latest time, and the day that a time of day belongs to.
    now_ns: u64,
    day_ns: u64,
    /// Whether a call was seen.
    any: bool,
}

/// Whether `line` could be of such a log: a call with its result.
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
        // The log of one process does not number it.
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
    /// Moves time on to that of a line.
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

    /// Makes sure that `pid` is known: a new process is the child of a process that forks, or began before the log.
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
        let shared = calls::shares_descriptors(&Args::begun(&pending.text));
        self.tables.fork(parent, pid, shared);
    }

    fn begin(&mut self, pid: u64, name: &[u8], text: &[u8], batch: &mut Batch) {
        if calls::forks(name) {
            self.forking.push(pid);
        }
        if name == b"close" {
            // Its number may be taken again before the log says that it came back.
            if let Some(number) = Args::begun(text).descriptor(0).and_then(|descriptor| descriptor.number) {
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
            // It began before the log, or is a close that has been dealt with.
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
