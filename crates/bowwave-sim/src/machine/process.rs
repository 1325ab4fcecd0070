//! Readers and writers: what each asks for next, and when.

use std::collections::HashMap;
use std::fmt;

use bowwave_core::{Advice, FileId, HandleId, Instant};

/// A reader: a source of accesses and a pace.
pub struct Process {
    /// When it begins.
    pub start: Instant,
    /// What it does, in order.
    pub source: Box<dyn Iterator<Item = Access> + Send>,
    /// How fast.
    pub pace: Pace,
    /// Most reads that it has under way at once; at least 1. Above 1 it is an asynchronous reader.
    pub depth: u32,
}

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Not before this time; only [`Pace::Trace`] and [`Pace::Open`] look at it.
    pub at: Instant,
    /// What.
    pub op: AccessOp,
    /// Of which file.
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
    /// A touch of mapped memory: each page by itself.
    Load,
    /// A write call: into the cache, which has it written back.
    Write,
    /// The device is to have what was written to the file.
    Sync,
    /// Advice on the range or the handle.
    Advise(Advice),
    /// The reader will read the range after those that it has named before; no bytes: its plan ends.
    Plan,
    /// The range leaves the cache, whoever did it.
    Evict,
}

/// When a reader's next access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So long after the one before has ended.
    Closed {
        /// Nanoseconds of thought.
        think_ns: u64,
    },
    /// So long after the one before has begun, but not before that has ended: a player, a rate-limited sender.
    Every {
        /// Nanoseconds from one beginning to the next.
        period_ns: u64,
    },
    /// At the access's own time, but not before the one before has ended.
    Trace,
    /// At the access's own time, whatever is under way.
    Open,
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

/// What threads have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threads {
    /// The place of their descriptors in the machine.
    pub(super) group: usize,
}

/// The descriptors that threads share, each with the readahead state that the read which ended last has left.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    pub(super) handles: HashMap<FileId, HandleId>,
    /// Threads that have not ended.
    pub(super) users: u32,
}

/// A process as the machine runs it.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    /// A readahead state for each file that it has read.
    handles: HashMap<FileId, HandleId>,
    /// Its threads, if it has any.
    pub(super) threads: Option<Threads>,
    /// The access that its time has not come for.
    next: Option<Access>,
    /// Not before this: it thinks, or its processor is busy with the last read.
    pub(super) ready_at: Instant,
    /// Reads under way.
    pub(super) under_way: u32,
    /// Whether the heap holds a time for it.
    pub(super) scheduled: bool,
}

impl Running {
    pub(super) fn new(mut process: Process) -> Self {
        let next = process.source.next();
        let ready_at = process.start;
        Self {
            process,
            handles: HashMap::new(),
            threads: None,
            next,
            ready_at,
            under_way: 0,
            scheduled: false,
        }
    }

    /// When the next access begins, if nothing holds it up; none if the process waits for a read or is done.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let next = self.next.as_ref()?;
        let room = self.process.pace == Pace::Open || self.under_way < self.process.depth.max(1);
        let at = match self.process.pace {
            Pace::Trace | Pace::Open => Instant(self.process.start.0.saturating_add(next.at.0)),
            Pace::Closed { .. } | Pace::Every { .. } => self.process.start,
        };
        let ready_at = if self.process.pace == Pace::Open { at } else { at.max(self.ready_at) };
        room.then_some(ready_at)
    }

    /// Takes the next access, which begins now.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Access> {
        let access = self.next.take()?;
        self.next = self.process.source.next();
        if let Pace::Every { period_ns } = self.process.pace {
            self.ready_at = Instant(now.0.saturating_add(period_ns));
        }
        Some(access)
    }

    /// Takes the next range of the plan for a file, if that is named now, too.
    pub(super) fn begin_more_of_plan(&mut self, now: Instant, file: FileId) -> Option<Access> {
        let next = self.next.as_ref()?;
        let is_more = next.op == AccessOp::Plan && next.file == file && next.bytes > 0;
        (is_more && self.next_time()? <= now).then(|| self.begin(now)).flatten()
    }

    /// An access has ended, and kept the processor busy until `free`.
    pub(super) fn end(&mut self, free: Instant) {
        let think = if let Pace::Closed { think_ns } = self.process.pace { think_ns } else { 0 };
        self.ready_at = self.ready_at.max(Instant(free.0.saturating_add(think)));
    }

    /// The readahead state for a file, if it has one.
    pub(super) fn handle(&self, file: FileId) -> Option<HandleId> {
        self.handles.get(&file).copied()
    }

    pub(super) fn keep_handle(&mut self, file: FileId, handle: HandleId) {
        self.handles.insert(file, handle);
    }

    /// The handles it has open, which are closed with it.
    pub(super) fn take_handles(&mut self) -> Vec<HandleId> {
        let mut handles: Vec<HandleId> = self.handles.drain().map(|(_, handle)| handle).collect();
        handles.sort_unstable();
        handles
    }

    /// Whether it has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.next.is_none() && self.under_way == 0
    }
}
