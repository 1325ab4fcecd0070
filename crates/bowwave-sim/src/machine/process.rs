//! Readers and writers: what each requests next, and when.

use std::collections::HashMap;
use std::fmt;

use bowwave_core::{Advice, FileId, HandleId, Instant};

/// A reader: a source of accesses and a pace.
pub struct Process {
    /// Start time.
    pub start: Instant,
    /// Its accesses, in order.
    pub source: Box<dyn Iterator<Item = Access> + Send>,
    /// Pace of its accesses.
    pub pace: Pace,
    /// Maximum reads in flight; at least 1. Above 1 it is an asynchronous reader.
    pub depth: u32,
}

/// One access of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Earliest start, with [`Pace::Trace`] and [`Pace::Open`]; with [`Pace::Linked`], its number
    /// among the [`Links`].
    pub at: Instant,
    /// Kind.
    pub op: AccessOp,
    /// File.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Kinds of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOp {
    /// A read call.
    Read,
    /// A touch of mapped memory, page by page.
    Load,
    /// A write call into the cache, which writes it back.
    Write,
    /// A sync of the file.
    Sync,
    /// Advice on the range or the handle.
    Advise(Advice),
    /// Announces the next range of the read plan; no bytes end the plan.
    Plan,
    /// Drops the range from the cache.
    Evict,
}

impl Process {
    /// Starts at once and has one access in flight: each begins when the previous one has ended.
    pub fn closed(source: impl Iterator<Item = Access> + Send + 'static) -> Self {
        Self { start: Instant(0), source: Box::new(source), pace: Pace::Closed { think_ns: 0 }, depth: 1 }
    }
}

impl Access {
    /// A read that starts when its process is ready.
    pub const fn read(file: FileId, offset: u64, bytes: u64) -> Self {
        Self { at: Instant(0), op: AccessOp::Read, file, offset, bytes }
    }
}

/// When a reader's next access starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A fixed time after the previous one ended.
    Closed {
        /// Think time in nanoseconds.
        think_ns: u64,
    },
    /// A fixed time after the previous one started, but not before it ended: a player, a
    /// rate-limited sender.
    Every {
        /// Nanoseconds from start to start.
        period_ns: u64,
    },
    /// At the access's own time, but not before the previous one ended.
    Trace,
    /// At the access's own time, however many are in flight.
    Open,
    /// As long after the end of another access as the machine's [`Links`] say, however many are in
    /// flight, but not before the previous one started.
    Linked,
}

/// Which access begins after the end of which other one, of any process: programs as recorded.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// By number of an access.
    pub of: Vec<Link>,
}

/// When an access begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Number of the access that ends before; `None` for the begin of the run.
    pub after: Option<u32>,
    /// Nanoseconds from then to its begin.
    pub think_ns: u64,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("start", &self.start)
            .field("pace", &self.pace)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// Descriptors that threads share, each with the readahead state of the read that ended last.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    pub(super) handles: HashMap<FileId, HandleId>,
    /// Threads that are still running.
    pub(super) users: u32,
}

/// A process in a running machine.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    /// Readahead state per file it has read.
    pub(super) handles: HashMap<FileId, HandleId>,
    /// Index of the descriptors that it shares as a thread.
    pub(super) shared: Option<usize>,
    /// The next access, which has not started.
    next: Option<Access>,
    /// Busy until then: thinking, or copying the last read.
    pub(super) ready_at: Instant,
    /// When the next access starts, with [`Pace::Linked`]; `None` before the access that it waits
    /// for has ended.
    linked_at: Option<Instant>,
    /// Accesses that have started.
    pub(super) begun: u64,
    /// Reads in flight.
    pub(super) in_flight: u32,
    /// Whether the agenda holds a time for it.
    pub(super) scheduled: bool,
}

impl Running {
    pub(super) fn new(mut process: Process) -> Self {
        let next = process.source.next();
        let ready_at = process.start;
        Self {
            process,
            handles: HashMap::new(),
            shared: None,
            next,
            ready_at,
            linked_at: None,
            begun: 0,
            in_flight: 0,
            scheduled: false,
        }
    }

    /// When the next access starts if nothing delays it; `None` if the process waits for a read or
    /// is done.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let next = self.next.as_ref()?;
        if self.process.pace == Pace::Linked {
            return self.linked_at.map(|at| at.max(self.ready_at));
        }
        let room = self.process.pace == Pace::Open || self.in_flight < self.process.depth.max(1);
        let at = match self.process.pace {
            Pace::Trace | Pace::Open => Instant(self.process.start.0.saturating_add(next.at.0)),
            Pace::Closed { .. } | Pace::Every { .. } | Pace::Linked => self.process.start,
        };
        let ready_at = if self.process.pace == Pace::Open { at } else { at.max(self.ready_at) };
        room.then_some(ready_at)
    }

    /// Takes the next access, which starts now.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Access> {
        let access = self.next.take()?;
        self.begun += 1;
        self.next = self.process.source.next();
        match self.process.pace {
            Pace::Every { period_ns } => self.ready_at = Instant(now.0.saturating_add(period_ns)),
            Pace::Linked => (self.ready_at, self.linked_at) = (now, None),
            Pace::Closed { .. } | Pace::Trace | Pace::Open => {}
        }
        Some(access)
    }

    /// The number of the next access, if it is linked and its time is not known yet.
    pub(super) fn unlinked(&self) -> Option<usize> {
        let next = self.next.filter(|_| self.process.pace == Pace::Linked && self.linked_at.is_none())?;
        usize::try_from(next.at.0).ok()
    }

    /// The access that the next one waits for has ended.
    pub(super) fn link(&mut self, at: Instant) {
        self.linked_at = Some(at);
    }

    /// Whether its accesses are numbered.
    pub(super) fn is_linked(&self) -> bool {
        self.process.pace == Pace::Linked
    }

    /// Takes the next range of a file's read plan, if it is announced now, too.
    pub(super) fn begin_more_of_plan(&mut self, now: Instant, file: FileId) -> Option<Access> {
        let next = self.next.as_ref()?;
        let is_more = next.op == AccessOp::Plan && next.file == file && next.bytes > 0;
        (is_more && self.next_time()? <= now).then(|| self.begin(now)).flatten()
    }

    /// An access ended and kept the processor busy until `free`.
    pub(super) fn end(&mut self, free: Instant) {
        if self.is_linked() {
            return;
        }
        let think = if let Pace::Closed { think_ns } = self.process.pace { think_ns } else { 0 };
        self.ready_at = self.ready_at.max(Instant(free.0.saturating_add(think)));
    }

    /// Takes its open handles, to be closed.
    pub(super) fn take_handles(&mut self) -> Vec<HandleId> {
        let mut handles: Vec<HandleId> = self.handles.drain().map(|(_, handle)| handle).collect();
        handles.sort_unstable();
        handles
    }

    /// Whether it is finished.
    pub(super) fn is_done(&self) -> bool {
        self.next.is_none() && self.in_flight == 0
    }
}
