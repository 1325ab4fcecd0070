//! Writers before a disk: what is dirty in memory, who writes it back, and who waits for that.
//!
//! ```text
//!   write ──► dirty pages ──► write-back (async) ──┐
//!     └─ over the limit: writes back itself        ├──► request pools ──► queue (elevator) ──► disk
//!   fsync ──► its pages, the journal (sync) ───────┘
//! ```
//!
//! As much of Linux of 2009 as the figures of the deadline patch need:
//!
//! - Over the background limit, write-back sends what is dirty, file after file, 4 MiB of each in turn, in requests of up
//!   to 512 KiB, until the pool of async requests is congested, and again when it no longer is.
//! - A writer that finds more dirty pages and pages on their way than the hard limit writes back 6 MiB itself, from
//!   whatever file, waiting for a place in the pool for each request (`balance_dirty_pages` of 2.6.30: one and a half times
//!   the 4 MiB after which it is called). Writers look at the limit each 1024 pages, and each 8 while it is exceeded. Or
//!   each waits in line for as many pages as it has written ([`Throttling`]).
//! - Each class, sync and async, has a pool of requests; who finds it full waits in line. From `congested_on` to
//!   `congested_off` requests it is congested.
//! - fsync sends the file's dirty pages as sync requests and waits for all of its pages, then for the journal: its blocks,
//!   then the commit record. How many of these phases there are is the file system's; see [`FsyncTester`].
//! - [`Journal`] holds writers: who waits for a place in a pool with a page is inside of a change, a commit waits for the end
//!   of those, and until then none begins; while its blocks are being written, writes that change an inode wait, for all
//!   inodes of a folder share some blocks.
//!
//! What it does not have: allocation of blocks (files are contiguous), reads, the processor's time beyond copying, more
//! than one file system's journal, barriers.

mod dirty;
mod fsync;
mod journal;
mod stream;
mod tio;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use bowwave_core::{Instant, Urgency};

use crate::device::{Direction, Request, RequestId};
use crate::queue::{Completed, Queue};
pub use dirty::{File, Files, PAGE, Run};
pub use fsync::FsyncTester;
pub use journal::{Journal, JournalState};
pub use stream::Stream;
pub use tio::Tio;

/// Pages of a request: 512 KiB.
pub const REQUEST_PAGES: u64 = 128;
/// Pages that a writer over the hard limit must write back.
const DUTY_PAGES: u64 = 1536;
/// Pages that are written, by whomever, before a writer looks at the limits; and as long as they are exceeded.
const CHECK_PAGES: u64 = 1024;
const CHECK_PAGES_EXCEEDED: u64 = 8;
/// How long it waits if there is nothing to write back, in nanoseconds.
const PAUSE_NS: u64 = 100_000_000;

/// What a writer over the hard limit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttling {
    /// Writes back itself, as in Linux up to 2.6.30.
    WritesBack,
    /// Waits in line while write-back works, first come, first served, a page for each that was written: bowwave's own way.
    WaitsInLine,
}

/// How memory and pools are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What is done about the hard limit.
    pub throttling: Throttling,
    /// Dirty pages from which write-back begins.
    pub background_pages: u64,
    /// Dirty pages and pages on their way from which writers must help.
    pub hard_pages: u64,
    /// Requests of a class.
    pub requests_max: usize,
    /// Requests of a class from which it is congested.
    pub congested_on: usize,
    /// Requests of a class below which it no longer is.
    pub congested_off: usize,
}

/// Of what a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For a time.
    Until(Instant),
    /// For a place in a pool, for the request that it sent last.
    Place,
    /// For its turn among those over the hard limit.
    Turn,
    /// Until all pages of a file that are on their way have arrived.
    File(usize),
    /// Until all requests that it sent have ended.
    Requests,
    /// Until nothing is dirty or on its way.
    Clean,
    /// Until the journal lets what it has be changed.
    Journal,
    /// Until somebody wants a commit, until a time at most.
    Asked(Instant),
    /// Until nobody is inside of a change.
    Handles,
    /// Until so many commits are done.
    Commits(u64),
    /// For nothing more.
    End,
}

/// Someone who writes.
pub trait Process {
    /// Goes on until it must wait.
    fn step(&mut self, me: usize, world: &mut World) -> Wait;
}

/// The state that processes share.
#[derive(Debug)]
pub struct World {
    /// What is dirty.
    pub files: Files,
    now: Instant,
    queue: Queue,
    limits: Limits,
    /// Sync, async.
    pools: [Pool; 2],
    ios: BTreeMap<u64, Io>,
    next_id: u64,
    /// Pages on their way.
    writeback: u64,
    /// Requests on their way, by process.
    sent: Vec<usize>,
    /// Who waits for everything to be written.
    syncs: usize,
    /// Where the journal stands.
    pub journal: JournalState,
    /// Pages written since a writer last looked at the limits.
    unchecked: u64,
    /// Whether the hard limit was exceeded when it did.
    exceeded: bool,
    /// Who waits for a page to be written, for the one it wrote.
    line: VecDeque<usize>,
    woken: Vec<usize>,
    completed: Vec<Completed>,
    /// Bytes that have reached the disk: sync, async.
    pub written: [u64; 2],
}

#[derive(Debug, Default)]
struct Pool {
    used: usize,
    congested: bool,
    line: VecDeque<Io>,
}

/// A write on its way.
#[derive(Clone, Copy, Debug)]
struct Io {
    start: u64,
    bytes: u64,
    class: usize,
    run: Option<Run>,
    owner: usize,
    /// Whether its owner waits for its place.
    waits: bool,
}

const SYNC: usize = 0;
const ASYNC: usize = 1;
/// Write-back itself, as an owner.
const NOBODY: usize = usize::MAX;

impl World {
    /// Before a queue, which must have no bound of its own.
    #[must_use]
    pub fn new(queue: Queue, limits: Limits) -> Self {
        Self {
            files: Files::default(),
            now: Instant(0),
            queue,
            limits,
            pools: Default::default(),
            ios: BTreeMap::new(),
            next_id: 0,
            writeback: 0,
            sent: Vec::new(),
            syncs: 0,
            journal: JournalState::default(),
            unchecked: 0,
            exceeded: false,
            line: VecDeque::new(),
            woken: Vec::new(),
            completed: Vec::new(),
            written: [0; 2],
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The queue before the disk.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether writers must help.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.files.dirty + self.writeback > self.limits.hard_pages
    }

    /// Counts a page that was written, and says what its writer must write back: nothing, unless it is the one that looks at
    /// the limits and they are exceeded.
    pub fn duty_for_page(&mut self) -> u64 {
        if self.limits.throttling == Throttling::WaitsInLine {
            return u64::from(self.is_over() || !self.line.is_empty());
        }
        self.unchecked += 1;
        if self.unchecked < if self.exceeded { CHECK_PAGES_EXCEEDED } else { CHECK_PAGES } {
            return 0;
        }
        self.unchecked = 0;
        self.exceeded = self.is_over();
        if self.exceeded { DUTY_PAGES } else { 0 }
    }

    /// Writes a process's part of what must be written: `None` if that is done, else what it must wait for before it asks
    /// again. `left` is what remains of its duty.
    pub fn throttle(&mut self, me: usize, left: &mut u64) -> Option<Wait> {
        if self.limits.throttling == Throttling::WaitsInLine {
            // Once: whoever is woken has had its turn.
            return (std::mem::take(left) > 0).then(|| {
                self.line.push_back(me);
                Wait::Turn
            });
        }
        while *left > 0 {
            // Whoever has begun does all of it: Linux looks at the limit again only between such turns.
            if *left == DUTY_PAGES && !self.is_over() {
                return None;
            }
            if self.journal.locked {
                return Some(Wait::Journal);
            }
            let Some(run) = self.files.take(REQUEST_PAGES.min(*left)) else {
                *left = DUTY_PAGES;
                return self.is_over().then(|| Wait::Until(self.now.later(PAUSE_NS)));
            };
            *left -= run.pages;
            if !self.send(run, ASYNC, me, true) {
                self.journal.handles += 1;
                return Some(Wait::Place);
            }
        }
        None
    }

    /// What a writer over the limit must write back.
    #[must_use]
    pub const fn duty() -> u64 {
        DUTY_PAGES
    }

    /// Sends dirty pages of a file as sync writes: `None` if all are sent, after which their writer waits with
    /// [`Wait::File`], else what it must wait for before it asks again.
    pub fn fsync(&mut self, me: usize, file: usize) -> Option<Wait> {
        loop {
            if self.journal.locked {
                return Some(Wait::Journal);
            }
            let run = self.files.take_of(file, REQUEST_PAGES)?;
            if !self.send(run, SYNC, me, true) {
                self.journal.handles += 1;
                return Some(Wait::Place);
            }
        }
    }

    /// Sends a write of the journal; its writer waits with [`Wait::Requests`].
    pub fn write_journal(&mut self, me: usize, start: u64, bytes: u64, waited_for: bool) {
        let class = if waited_for { SYNC } else { ASYNC };
        self.enter(Io { start, bytes, class, run: None, owner: me, waits: false });
    }

    /// Whether a file has pages on their way.
    #[must_use]
    pub fn is_busy(&self, file: usize) -> bool {
        self.files.file(file).writeback > 0
    }

    /// Everything dirty is to be written, for someone who waits with [`Wait::Clean`].
    pub fn sync(&mut self) {
        self.syncs += 1;
    }

    fn send(&mut self, run: Run, class: usize, owner: usize, waits: bool) -> bool {
        self.writeback += run.pages;
        let start = self.files.file(run.file).address + run.page * PAGE;
        self.enter(Io { start, bytes: run.pages * PAGE, class, run: Some(run), owner, waits })
    }

    /// Gives a write a place in its pool, or in line; whether it has one.
    fn enter(&mut self, io: Io) -> bool {
        if io.owner != NOBODY {
            self.sent[io.owner] += 1;
        }
        let pool = &mut self.pools[io.class];
        if !pool.line.is_empty() || pool.used >= self.limits.requests_max {
            pool.line.push_back(io);
            return false;
        }
        self.submit(io);
        true
    }

    fn submit(&mut self, io: Io) {
        let pool = &mut self.pools[io.class];
        pool.used += 1;
        pool.congested |= pool.used >= self.limits.congested_on;
        let id = self.next_id;
        self.next_id += 1;
        self.ios.insert(id, io);
        let request = Request {
            id: RequestId(id),
            direction: Direction::Write,
            start: io.start,
            bytes: io.bytes,
            urgency: if io.class == SYNC { Urgency::Demand } else { Urgency::Readahead },
            owner: io.owner as u32,
            object: 0,
        };
        self.queue.submit(self.now, request);
    }

    /// Write-back without a writer: while there is more than the background limit, or someone waits for all of it.
    fn write_back(&mut self) {
        while (self.files.dirty > self.limits.background_pages || self.syncs > 0)
            && !self.pools[ASYNC].congested
            && !self.journal.locked
            && let Some(run) = self.files.take(REQUEST_PAGES)
        {
            self.send(run, ASYNC, NOBODY, false);
        }
    }

    /// Lets the disk do what is due.
    fn advance(&mut self, to: Instant) {
        self.now = to;
        let mut completed = std::mem::take(&mut self.completed);
        self.queue.advance(to, &mut completed);
        for done in completed.drain(..) {
            let Some(io) = self.ios.remove(&done.id.0) else { continue };
            self.written[io.class] += io.bytes;
            if let Some(run) = io.run {
                self.files.written(run.file, run.pages);
                self.writeback -= run.pages;
                // Nobody waits once the limit is kept, lest no other page comes.
                let turns = if self.is_over() { run.pages as usize } else { usize::MAX };
                let turns = self.line.len().min(turns);
                self.woken.extend(self.line.drain(..turns));
            }
            if io.owner != NOBODY {
                self.sent[io.owner] -= 1;
            }
            let pool = &mut self.pools[io.class];
            pool.used -= 1;
            pool.congested &= pool.used >= self.limits.congested_off;
            if let Some(next) = pool.line.pop_front() {
                self.submit(next);
                if next.waits {
                    self.journal.handles -= 1;
                    self.woken.push(next.owner);
                }
            }
        }
        self.completed = completed;
    }

    fn is_over_for(&mut self, wait: Wait, process: usize) -> bool {
        match wait {
            Wait::Until(at) => at <= self.now,
            Wait::File(file) => !self.is_busy(file),
            Wait::Requests => self.sent[process] == 0,
            Wait::Journal => !self.journal.is_held(),
            Wait::Asked(at) => at <= self.now || self.journal.asked,
            Wait::Handles => self.journal.handles == 0,
            Wait::Commits(commits) => self.journal.done >= commits,
            Wait::Clean => self.files.dirty == 0 && self.writeback == 0,
            // They are woken, or not at all.
            Wait::Place | Wait::Turn | Wait::End => false,
        }
    }
}

/// Runs processes until `end`, or until the first `until` of them have ended; when that was.
pub fn run(world: &mut World, processes: &mut [&mut dyn Process], until: usize, end: Instant) -> Instant {
    // Of processes of an earlier run something may still be on its way.
    world.sent.resize(world.sent.len().max(processes.len()), 0);
    let mut waits = vec![Wait::Until(Instant(0)); processes.len()];
    let mut timers: BinaryHeap<Reverse<(Instant, usize)>> =
        (0..processes.len()).map(|process| Reverse((Instant(0), process))).collect();
    loop {
        // What is due by time or by a place, in order; what waits for writes is looked at after each completion.
        while let Some(&Reverse((at, process))) = timers.peek()
            && at <= world.now
        {
            timers.pop();
            if matches!(waits[process], Wait::Until(_)) {
                world.woken.push(process);
            }
        }
        let mut ready = std::mem::take(&mut world.woken);
        for (process, wait) in waits.iter().enumerate() {
            if !matches!(wait, Wait::Until(_) | Wait::Place | Wait::Turn | Wait::End)
                && world.is_over_for(*wait, process)
            {
                ready.push(process);
            }
        }
        let quiet = ready.is_empty();
        for process in ready {
            world.syncs -= usize::from(waits[process] == Wait::Clean);
            waits[process] = processes[process].step(process, world);
            if let Wait::Until(at) | Wait::Asked(at) = waits[process] {
                timers.push(Reverse((at, process)));
            }
        }
        world.write_back();
        if !quiet {
            continue;
        }
        let ended = waits[..until].iter().all(|wait| *wait == Wait::End);
        let next = [timers.peek().map(|&Reverse((at, _))| at), world.queue.next_event()];
        match next.into_iter().flatten().min() {
            Some(next) if !ended && next <= end => world.advance(next),
            _ => return world.now,
        }
    }
}

trait Later {
    fn later(self, ns: u64) -> Self;
}

impl Later for Instant {
    fn later(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

#[cfg(test)]
mod tests;
