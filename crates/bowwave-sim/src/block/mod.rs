//! Writers in front of a disk: dirty pages in memory, write-back, and throttled writers.
//!
//! ```text
//! write ──► dirty pages ──► write-back (async) ──┐
//!             └─ over the limit: writes back     ├──► request pools ──► queue (elevator) ──► disk
//! fsync ──► its pages, the journal (sync) ───────┘
//! ```
//!
//! Models the parts of Linux of 2009 that the figures of the deadline patch need:
//!
//! - Over the background limit, write-back writes dirty pages, 4 MiB of each file in turn, in
//!   requests of up to 512 KiB. It pauses while the pool of async requests is congested.
//! - A writer over the hard limit (dirty pages plus pages in flight) writes back 6 MiB itself, from
//!   any file, waiting for a pool entry per request. That is `balance_dirty_pages` of 2.6.30: one
//!   and a half times the 4 MiB after which it is called. Writers check the limit every 1024 pages,
//!   and every 8 while it is exceeded. Alternatively each waits in line for as many pages as it has
//!   written ([`Throttling`]).
//! - Each class, sync and async, has a pool of requests. A process that finds it full waits in
//!   line. A pool becomes congested at `congested_on` requests, and stays so down to
//!   `congested_off`.
//! - fsync sends the file's dirty pages as sync requests, waits for all of its pages, then for the
//!   journal: its blocks, then the commit record. The number of these phases depends on the file
//!   system; see [`FsyncTester`].
//! - [`Journal`] blocks writers. A writer that waits for a pool entry holds an open handle. A
//!   commit waits until all handles have ended, and meanwhile no new handle starts. While journal
//!   blocks are written, writes that change an inode wait, because the inodes of a directory share
//!   blocks.
//!
//! Not modelled: block allocation (files are contiguous), reads, processor time beyond copying,
//! several journals, barriers.

mod dirty;
mod fsync;
mod journal;
mod stream;
mod tio;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use bowwave_core::{Instant, Urgency};

use crate::device::{Direction, Request, RequestId};
use crate::queue::{Completed, Elevator, Queue, QueueConfig};
pub use dirty::{File, Files, PAGE_BYTES, Run};
pub use fsync::FsyncTester;
pub use journal::{Journal, JournalState};
pub use stream::Stream;
pub use tio::Tio;

/// Pages per request: 512 KiB.
pub const REQUEST_PAGES: u64 = 128;
/// Pages that a writer over the hard limit must write back.
const DUTY_PAGES: u64 = 1536;
/// Pages that all writers together write between two checks of the limits.
const CHECK_PAGES: u64 = 1024;
/// The same while the hard limit is exceeded.
const CHECK_PAGES_EXCEEDED: u64 = 8;
/// Wait when there is nothing to write back, in nanoseconds.
const PAUSE_NS: u64 = 100_000_000;

/// What a writer over the hard limit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttling {
    /// Writes back itself, as in Linux up to 2.6.30.
    WritesBack,
    /// Waits in line during write-back, first come, first served, one page for each page it wrote:
    /// bowwave's own method.
    WaitsInLine,
}

/// Limits of memory and request pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How writers are throttled at the hard limit.
    pub throttling: Throttling,
    /// Dirty pages from which write-back starts.
    pub background_pages: u64,
    /// Dirty pages plus pages in flight from which writers are throttled.
    pub hard_pages: u64,
    /// Requests per class.
    pub requests_max: usize,
    /// Requests per class from which it is congested.
    pub congested_on: usize,
    /// Requests per class below which it is no longer congested.
    pub congested_off: usize,
}

impl Limits {
    /// The limits of Linux 2.6.29 on a machine with this memory: write-back from 5 % dirty pages,
    /// throttled writers from 10 %; pools of 128 requests.
    pub const fn of_memory(pages: u64, throttling: Throttling) -> Self {
        let (background_pages, hard_pages) = (pages / 20, pages / 10);
        let (requests_max, congested_on, congested_off) = (128, 113, 103);
        Self { throttling, background_pages, hard_pages, requests_max, congested_on, congested_off }
    }
}

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A time.
    Until(Instant),
    /// A pool entry for the request it sent last.
    PoolEntry,
    /// Its turn in the line at the hard limit.
    Line,
    /// The pages of a file in flight.
    File(usize),
    /// All requests it sent.
    Requests,
    /// No dirty pages and none in flight.
    Clean,
    /// The journal to permit changes.
    Journal,
    /// A requested commit, or a time.
    CommitDue(Instant),
    /// All journal handles to end.
    Handles,
    /// A number of completed commits.
    Commits(u64),
    /// Nothing: it has ended.
    End,
}

/// A simulated process.
pub trait Process {
    /// Runs until it must wait.
    fn step(&mut self, me: usize, world: &mut World) -> Wait;
}

/// State shared by processes.
#[derive(Debug)]
pub struct World {
    /// Files and their dirty pages.
    pub files: Files,
    now: Instant,
    queue: Queue,
    limits: Limits,
    /// Sync, async.
    pools: [Pool; 2],
    ios: BTreeMap<u64, Io>,
    next_id: u64,
    /// Pages in flight.
    writeback: u64,
    /// Requests in flight, by process.
    sent: Vec<usize>,
    /// Processes that wait for everything to be written.
    syncs: usize,
    /// State of the journal.
    pub journal: JournalState,
    /// Pages written since the last check of the limits.
    unchecked: u64,
    /// Whether that check found the hard limit exceeded.
    exceeded: bool,
    /// Writers that wait for a page to be written, one entry per page they wrote.
    line: VecDeque<usize>,
    woken: Vec<usize>,
    completed: Vec<Completed>,
    /// Bytes that reached the disk: sync, async.
    pub written: [u64; 2],
}

#[derive(Debug, Default)]
struct Pool {
    used: usize,
    congested: bool,
    line: VecDeque<Io>,
}

/// A write in flight.
#[derive(Clone, Copy, Debug)]
struct Io {
    start: u64,
    bytes: u64,
    class: usize,
    run: Option<Run>,
    owner: usize,
    /// Whether its owner waits if the pool is full.
    blocks_owner: bool,
}

/// Indices of the classes in arrays.
const SYNC: usize = 0;
const ASYNC: usize = 1;
/// Write-back as an owner.
const WRITE_BACK: usize = usize::MAX;

/// A queue without limits of its own: the pools of a [`World`] come before it.
pub fn unlimited(config: &QueueConfig, elevator: Elevator) -> QueueConfig {
    let max = usize::MAX;
    QueueConfig { elevator, requests_max: max, congested_on: max, congested_off: max, ..config.clone() }
}

impl World {
    /// Creates a world in front of an [`unlimited`] queue.
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

    /// The current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The queue in front of the disk.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether writers are over the hard limit.
    pub fn exceeds_hard_limit(&self) -> bool {
        self.files.dirty + self.writeback > self.limits.hard_pages
    }

    /// The duty of a writer that has written a page, in pages; 0 for none. With
    /// [`Throttling::WritesBack`], pages to write back: 0 unless this page's check finds the hard
    /// limit exceeded. With [`Throttling::WaitsInLine`], 1 if it must wait in line.
    pub fn duty_for_page(&mut self) -> u64 {
        if self.limits.throttling == Throttling::WaitsInLine {
            return u64::from(self.exceeds_hard_limit() || !self.line.is_empty());
        }
        self.unchecked += 1;
        if self.unchecked < if self.exceeded { CHECK_PAGES_EXCEEDED } else { CHECK_PAGES } {
            return 0;
        }
        self.unchecked = 0;
        self.exceeded = self.exceeds_hard_limit();
        if self.exceeded { DUTY_PAGES } else { 0 }
    }

    /// Writes back a process's share. `None` if it is done; otherwise what to wait for before the
    /// next call. `left` is the remaining share.
    pub fn throttle(&mut self, me: usize, left: &mut u64) -> Option<Wait> {
        if self.limits.throttling == Throttling::WaitsInLine {
            // Waits once: a woken writer has had its turn.
            return (std::mem::take(left) > 0).then(|| {
                self.line.push_back(me);
                Wait::Line
            });
        }
        while *left > 0 {
            // A started share is completed: Linux checks the limit only between shares.
            if *left == DUTY_PAGES && !self.exceeds_hard_limit() {
                return None;
            }
            if self.journal.locked {
                return Some(Wait::Journal);
            }
            let Some(run) = self.files.take(REQUEST_PAGES.min(*left)) else {
                *left = DUTY_PAGES;
                return self.exceeds_hard_limit().then(|| Wait::Until(self.now.later(PAUSE_NS)));
            };
            *left -= run.pages;
            if !self.send(run, ASYNC, me, true) {
                self.journal.handles += 1;
                return Some(Wait::PoolEntry);
            }
        }
        None
    }

    /// The share that a writer over the limit must write back, in pages.
    pub const fn duty() -> u64 {
        DUTY_PAGES
    }

    /// Sends dirty pages of a file as sync writes. `None` if all are sent; the writer then waits
    /// with [`Wait::File`]. Otherwise what to wait for before the next call.
    pub fn fsync(&mut self, me: usize, file: usize) -> Option<Wait> {
        loop {
            if self.journal.locked {
                return Some(Wait::Journal);
            }
            let run = self.files.take_from(file, REQUEST_PAGES)?;
            if !self.send(run, SYNC, me, true) {
                self.journal.handles += 1;
                return Some(Wait::PoolEntry);
            }
        }
    }

    /// Sends a write of the journal; its writer waits with [`Wait::Requests`].
    pub fn write_journal(&mut self, me: usize, start: u64, bytes: u64, sync: bool) {
        let class = if sync { SYNC } else { ASYNC };
        self.enter(Io { start, bytes, class, run: None, owner: me, blocks_owner: false });
    }

    /// Whether a file has pages in flight.
    pub fn is_busy(&self, file: usize) -> bool {
        self.files.file(file).writeback > 0
    }

    /// Starts a sync of all dirty pages; its process waits with [`Wait::Clean`].
    pub fn sync(&mut self) {
        self.syncs += 1;
    }

    fn send(&mut self, run: Run, class: usize, owner: usize, blocks_owner: bool) -> bool {
        self.writeback += run.pages;
        let start = self.files.file(run.file).address + run.page * PAGE_BYTES;
        self.enter(Io { start, bytes: run.pages * PAGE_BYTES, class, run: Some(run), owner, blocks_owner })
    }

    /// Puts a write into its pool, or in line; returns whether it got an entry.
    fn enter(&mut self, io: Io) -> bool {
        if io.owner != WRITE_BACK {
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

    /// Background write-back: above the background limit, or while a process waits for all of it.
    fn write_back(&mut self) {
        while (self.files.dirty > self.limits.background_pages || self.syncs > 0)
            && !self.pools[ASYNC].congested
            && !self.journal.locked
            && let Some(run) = self.files.take(REQUEST_PAGES)
        {
            self.send(run, ASYNC, WRITE_BACK, false);
        }
    }

    /// Advances the disk.
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
                // Below the limit all writers are released: another page might never come.
                let turns = if self.exceeds_hard_limit() { run.pages as usize } else { usize::MAX };
                let turns = self.line.len().min(turns);
                self.woken.extend(self.line.drain(..turns));
            }
            if io.owner != WRITE_BACK {
                self.sent[io.owner] -= 1;
            }
            let pool = &mut self.pools[io.class];
            pool.used -= 1;
            pool.congested &= pool.used >= self.limits.congested_off;
            if let Some(next) = pool.line.pop_front() {
                self.submit(next);
                if next.blocks_owner {
                    self.journal.handles -= 1;
                    self.woken.push(next.owner);
                }
            }
        }
        self.completed = completed;
    }

    fn has_ended(&mut self, wait: Wait, process: usize) -> bool {
        match wait {
            Wait::Until(at) => at <= self.now,
            Wait::File(file) => !self.is_busy(file),
            Wait::Requests => self.sent[process] == 0,
            Wait::Journal => !self.journal.is_held(),
            Wait::CommitDue(at) => at <= self.now || self.journal.requested,
            Wait::Handles => self.journal.handles == 0,
            Wait::Commits(commits) => self.journal.done >= commits,
            Wait::Clean => self.files.dirty == 0 && self.writeback == 0,
            // Woken explicitly or not at all.
            Wait::PoolEntry | Wait::Line | Wait::End => false,
        }
    }
}

/// Runs processes until `end`, or until `processes[..count]` have ended. Returns that time.
pub fn run(world: &mut World, processes: &mut [&mut dyn Process], count: usize, end: Instant) -> Instant {
    // Requests of an earlier run may still be in flight.
    world.sent.resize(world.sent.len().max(processes.len()), 0);
    let mut waits = vec![Wait::Until(Instant(0)); processes.len()];
    let mut timers: BinaryHeap<Reverse<(Instant, usize)>> =
        (0..processes.len()).map(|process| Reverse((Instant(0), process))).collect();
    loop {
        // Timers and pool entries first, in order; waits for writes are checked after each
        // completion.
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
            if !matches!(wait, Wait::Until(_) | Wait::PoolEntry | Wait::Line | Wait::End)
                && world.has_ended(*wait, process)
            {
                ready.push(process);
            }
        }
        let quiet = ready.is_empty();
        for process in ready {
            world.syncs -= usize::from(waits[process] == Wait::Clean);
            waits[process] = processes[process].step(process, world);
            if let Wait::Until(at) | Wait::CommitDue(at) = waits[process] {
                timers.push(Reverse((at, process)));
            }
        }
        world.write_back();
        if !quiet {
            continue;
        }
        let ended = waits[..count].iter().all(|wait| *wait == Wait::End);
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
