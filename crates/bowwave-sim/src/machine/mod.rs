//! A virtual machine: processes that read and write, a host, the page cache, a device, and a clock
//! that jumps from event to event.
//!
//! | file | idea |
//! |---|---|
//! | `process` | readers: what each requests next, and when |
//! | `host` | costs of calls, waits and copies |
//! | `driven` | the cache, with or without a checker |
//! | `reads` | a read in progress, page by page or at once |
//! | `writes` | a write in progress; write-outs to the device |
//! | `linked` | accesses that begin after the end of others |
//! | `siblings` | readahead across files |
//! | `recorder` | the sums for the table |
//! | `explained` | decisions with what led to them |
//! | `events` | the events and samples for a report |
//!
//! At equal times, device events come first, then events in the order they were scheduled. So a run
//! depends on its input alone.

mod classes;
mod driven;
mod events;
mod explained;
mod host;
mod linked;
mod process;
mod reads;
mod recorder;
mod siblings;
#[cfg(test)]
mod tests;
mod writes;

pub use explained::Explained;
pub use host::Host;
pub use process::{Access, AccessOp, Link, Links, Pace, Process};
pub use recorder::RecordOptions;
pub use siblings::{Directories, FileAhead};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_core::readahead::SIBLING_SHARE;
use bowwave_core::{
    Action, Cache, Config, ConfigError, Event, FileId, FillError, FillId, FrameId, HandleId, Instant,
    PageCount, PageSize, Target, Violation, Waiter,
};

use crate::device::{Direction, Request, RequestId};
use crate::faults::Faults;
use crate::queue::{Completed, Queue};
use crate::record::Run;
use driven::Driven;
use linked::Linked;
use process::{Descriptors, Running};
use reads::Read;
use recorder::Recorder;
use slab::Slab;
use writes::Writing;

/// Configuration of a machine.
#[derive(Debug)]
pub struct Setup {
    /// The cache and its policy. `fill_pages_max` is lowered to the limits of the device and the
    /// queue.
    pub config: Config,
    /// The host.
    pub host: Host,
    /// The device and its queue.
    pub queue: Queue,
    /// How reads process their pages.
    pub walk: Walk,
    /// Fault injection.
    pub faults: Faults,
    /// Whether every step is checked against the invariants, at some cost.
    pub check: bool,
    /// What to record for a report; `None` records only the table.
    pub record: Option<RecordOptions>,
}

impl Setup {
    /// A free host, all pages of a read at once, no faults, no checks, no recording.
    pub fn new(config: Config, queue: Queue) -> Self {
        let (host, walk, faults) = (Host::FREE, Walk::AtOnce, Faults::NONE);
        Self { config, host, queue, walk, faults, check: false, record: None }
    }
}

/// How a read processes its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// As the engine: all pages at once, then one wait for all.
    #[default]
    AtOnce,
    /// As a kernel's buffered read: waits at each page that is not up to date before it processes
    /// the next.
    PageByPage,
}

/// Identifies a process, in order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// A machine in virtual time.
#[derive(Debug)]
pub struct Machine {
    now: Instant,
    page_size: PageSize,
    cache: Driven,
    queue: Queue,
    host: Host,
    walk: Walk,
    /// Maximum pages of a part of a read.
    part_pages_max: u64,
    faults: Faults,
    files: Vec<File>,
    /// Built at the first open of a file.
    directories: Option<Directories>,
    /// Reads of each file that are known to come.
    reads_left: BTreeMap<(ProcessId, FileId), u64>,
    /// Handles of the files that are read ahead.
    siblings_ahead: BTreeMap<FileId, HandleId>,
    /// Memory of files that are read ahead before they are opened; 0 for policies that read none.
    sibling_bytes_max: u64,
    handles: u32,
    processes: Vec<Running>,
    /// Of processes with [`Pace::Linked`].
    linked: Linked,
    /// Descriptors that threads share.
    shared: Vec<Descriptors>,
    /// When processes run next; the number keeps equal times in order.
    agenda: BinaryHeap<Reverse<(Instant, u64, ProcessId)>>,
    scheduled: u64,
    /// Reads and writes in progress, by the number of their waiter.
    reads: Slab<Read>,
    writes: Slab<Writing>,
    congested: bool,
    /// The process on whose behalf the cache requests fills.
    owner: ProcessId,
    recorder: Recorder,
    /// With [`Config::explain`].
    explained: Option<explained::Decisions>,
    // Reused buffers, lent to the cache and the queue.
    actions: Vec<Action>,
    frames: Vec<FrameId>,
    targets: Vec<Target>,
    completed: Vec<Completed>,
    /// In order of wake-up: the longest waiter runs first.
    woken: VecDeque<(Waiter, Result<Vec<FrameId>, FillError>)>,
    dropped: Vec<FillId>,
}

#[derive(Clone, Copy, Debug)]
struct File {
    pages: PageCount,
    /// Device address of its first byte.
    address: u64,
}

impl Machine {
    /// Creates a machine without files and processes.
    ///
    /// # Errors
    ///
    /// The field of the cache's configuration that is out of bounds.
    pub fn new(setup: Setup) -> Result<Self, ConfigError> {
        let Setup { mut config, host, queue, walk, faults, check, record } = setup;
        let largest = queue.device().request_bytes_max().min(queue.config().fill_bytes_max);
        let largest = (largest / config.page_size.bytes()).max(1);
        config.fill_pages_max = config.fill_pages_max.min(u32::try_from(largest).unwrap_or(u32::MAX));
        let frames = config.frames;
        let memory = u64::from(frames).saturating_mul(config.page_size.bytes());
        let explained = config.explain.then(explained::Decisions::default);
        let reads_siblings = config.policy.capabilities().siblings;
        Ok(Self {
            now: Instant(0),
            page_size: config.page_size,
            cache: Driven::new(config, check)?,
            queue,
            host,
            walk,
            part_pages_max: u64::from(frames / 2).max(1),
            faults,
            files: Vec::new(),
            directories: None,
            reads_left: BTreeMap::new(),
            siblings_ahead: BTreeMap::new(),
            sibling_bytes_max: if reads_siblings { memory / SIBLING_SHARE } else { 0 },
            handles: 0,
            processes: Vec::new(),
            linked: Linked::default(),
            shared: Vec::new(),
            agenda: BinaryHeap::new(),
            scheduled: 0,
            reads: Slab::new(),
            writes: Slab::new(),
            congested: false,
            owner: ProcessId(0),
            recorder: Recorder::new(record),
            explained,
            actions: Vec::new(),
            frames: Vec::new(),
            targets: Vec::new(),
            completed: Vec::new(),
            woken: VecDeque::new(),
            dropped: Vec::new(),
        })
    }

    /// Adds a file of `bytes` bytes at `address` of the device.
    pub fn add_file(&mut self, name: &str, bytes: u64, address: u64) -> FileId {
        let pages = self.page_size.count_for(bytes);
        // A machine never has 2^32 files.
        let file = FileId(self.files.len() as u32);
        self.files.push(File { pages, address });
        self.cache.note(self.now, Event::OpenFile { file, pages });
        self.recorder.files.push(name.to_owned());
        file
    }

    /// Number of files; the identifier of the next one.
    pub fn file_count(&self) -> u32 {
        self.files.len() as u32
    }

    /// Adds a process, which starts at its time or now, whichever is later.
    pub fn add_process(&mut self, process: Process) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        let mut running = Running::new(process);
        running.ready_at = running.ready_at.max(self.now);
        self.processes.push(running);
        self.link(id);
        self.schedule(id);
        id
    }

    /// Adds a process of several threads, which share one descriptor per file.
    ///
    /// As in Linux 2.6, a read works on a copy of the descriptor's readahead state and stores it
    /// back when it ends. Of two concurrent reads, the one that ends last leaves its state.
    pub fn add_threads(&mut self, threads: impl IntoIterator<Item = Process>) {
        let group = self.shared.len();
        let threads: Vec<ProcessId> = threads.into_iter().map(|thread| self.add_process(thread)).collect();
        // A machine never has 2^32 threads.
        self.shared.push(Descriptors { users: threads.len() as u32, ..Descriptors::default() });
        for thread in threads {
            self.processes[thread.0 as usize].shared = Some(group);
        }
    }

    /// When virtual time ends: after 146 years, long before nanoseconds overflow.
    pub const END: Instant = Instant(1 << 62);

    /// Runs until every process has ended, or until `until` or [`END`](Self::END).
    ///
    /// # Errors
    /// An invariant of the cache that does not hold, if each step is checked.
    pub fn run(&mut self, until: Option<Instant>) -> Result<(), Violation> {
        let until = until.map(|until| until.min(Self::END));
        while let Some(next) = self.next_event() {
            if next > until.unwrap_or(Self::END) {
                break;
            }
            self.recorder.pass(next, self.cache.get(), &self.queue);
            self.now = next;
            self.handle_event();
            self.cache.violation()?;
        }
        if let Some(until) = until {
            self.recorder.pass(until, self.cache.get(), &self.queue);
            self.now = self.now.max(until);
        }
        Ok(())
    }

    /// Adds completed reads to `count` from now on, in batches: for progress bars.
    pub fn count_reads_in(&mut self, count: Arc<AtomicU64>) {
        self.recorder.count_reads_in(count);
    }

    /// Reads so far: completed, and failed among them.
    pub fn reads(&self) -> (u64, u64) {
        (self.recorder.reads, self.recorder.reads_failed)
    }

    /// Mean latency of completed reads in nanoseconds, to about three digits.
    pub fn latency_mean_ns(&self) -> f64 {
        self.recorder.latency.mean()
    }

    /// Bytes of completed writes.
    pub fn bytes_written(&self) -> u64 {
        self.recorder.bytes_written
    }

    /// The current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Borrows the cache.
    pub fn cache(&self) -> &Cache {
        self.cache.get()
    }

    /// Borrows the queue and its device.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The run so far: the table row and the recording.
    pub fn summary(&self) -> Run {
        self.recorder.summary(self.now, self.page_size, self.cache.get(), &self.queue)
    }

    /// Takes the decisions so far, in order; none without [`Config::explain`].
    pub fn take_explained(&mut self) -> Vec<Explained> {
        self.explained.as_mut().map(|explained| std::mem::take(&mut explained.list)).unwrap_or_default()
    }

    /// Time of the next event. Device events count while a process has work left.
    fn next_event(&self) -> Option<Instant> {
        let scheduled = self.agenda.peek().map(|Reverse((at, _, _))| *at);
        if scheduled.is_none() && self.reads.is_empty() && self.writes.is_empty() {
            return None;
        }
        [self.queue.next_event(), self.cache.get().next_expiry(), scheduled].into_iter().flatten().min()
    }

    fn handle_event(&mut self) {
        if self.queue.next_event().is_some_and(|at| at <= self.now) {
            self.device_event();
            return;
        }
        if self.cache.get().next_expiry().is_some_and(|at| at <= self.now) {
            self.cache.step(self.now, Event::Expire, &mut self.actions);
            return self.act();
        }
        let Some(Reverse((_, _, id))) = self.agenda.pop() else { return };
        self.processes[id.0 as usize].scheduled = false;
        self.resume(id);
    }

    /// Runs a process whose time has come.
    fn resume(&mut self, id: ProcessId) {
        while let Some(at) = self.processes[id.0 as usize].next_time() {
            if at > self.now {
                self.schedule(id);
                return;
            }
            let Some(access) = self.processes[id.0 as usize].begin(self.now) else { break };
            self.link(id);
            self.begin(id, access);
        }
        self.close_if_done(id);
        self.act();
    }

    /// Puts a process on the agenda, if it has a next time.
    fn schedule(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        let Some(at) = process.next_time().filter(|_| !process.scheduled) else { return };
        process.scheduled = true;
        self.scheduled += 1;
        self.agenda.push(Reverse((at.max(self.now), self.scheduled, id)));
    }

    /// Closes the handles of a finished process; the caller performs the resulting actions.
    fn close_if_done(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        if !process.is_done() {
            return;
        }
        let mut handles = process.take_handles();
        if let Some(group) = process.shared.take() {
            let group = &mut self.shared[group];
            group.users -= 1;
            if group.users == 0 {
                let shared = std::mem::take(&mut group.handles);
                handles.extend(shared.into_values());
                handles.sort_unstable();
            }
        }
        for handle in handles {
            self.cache.step(self.now, Event::CloseHandle { handle }, &mut self.actions);
        }
    }

    /// Copies the readahead state between a thread and the shared descriptor, at the start and end
    /// of a read.
    fn copy_shared(&mut self, id: ProcessId, file: FileId, own: HandleId, begins: bool) {
        let Some(group) = self.processes[id.0 as usize].shared else { return };
        let shared = match self.shared[group].handles.get(&file) {
            Some(&shared) => shared,
            None => {
                let shared = self.open_handle(file);
                self.shared[group].handles.insert(file, shared);
                shared
            }
        };
        let (from, to) = if begins { (shared, own) } else { (own, shared) };
        self.cache.note(self.now, Event::CopyHandle { from, to });
    }

    fn open_handle(&mut self, file: FileId) -> HandleId {
        let handle = HandleId(self.handles);
        self.handles += 1;
        self.cache.note(self.now, Event::OpenHandle { handle, file });
        handle
    }

    /// The readahead state of a process for a file.
    fn handle(&mut self, id: ProcessId, file: FileId) -> HandleId {
        if let Some(&handle) = self.processes[id.0 as usize].handles.get(&file) {
            return handle;
        }
        let handle = self.open_handle(file);
        self.processes[id.0 as usize].handles.insert(file, handle);
        handle
    }

    /// Processes a completion, or the end of an anticipatory wait.
    fn device_event(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        self.queue.advance(self.now, &mut completed);
        for done in completed.drain(..) {
            self.recorder.request_ended(&done);
            let event = match writes::write_out(done.id) {
                Some(id) => Event::WrittenOut { id, result: Ok(()) },
                None => Event::Filled { fill: FillId(done.id.0), result: self.faults.judge(done.id.0) },
            };
            self.cache.step(self.now, event, &mut self.actions);
            self.act();
        }
        self.completed = completed;
    }

    /// Tells the cache whether the queue is congested.
    fn note_congestion(&mut self) {
        let congested = self.queue.is_congested(Direction::Read);
        if congested != self.congested {
            self.congested = congested;
            self.cache.note(self.now, Event::Congestion { congested });
        }
    }

    /// Performs the cache's actions and their consequences.
    fn act(&mut self) {
        loop {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Weighed(weighed) => {
                        if let Some(explained) = &mut self.explained {
                            explained.weighed(weighed);
                        }
                    }
                    Action::Decided(decision) => {
                        if let Some(explained) = &mut self.explained {
                            let accesses = self.processes[self.owner.0 as usize].begun;
                            explained.decided(self.owner, accesses, decision);
                        }
                        self.recorder.decision(self.now, &decision);
                    }
                    Action::Fill(fill) => {
                        if let Some(explained) = &mut self.explained {
                            explained.requested(fill.range);
                        }
                        self.submit(&fill);
                    }
                    Action::Promote { fill } => self.queue.promote(RequestId(fill.0)),
                    Action::Cancel { fill } => {
                        if self.queue.cancel(self.now, RequestId(fill.0)) {
                            self.dropped.push(fill);
                        }
                    }
                    Action::Wake { waiter, result } => self.woken.push_back((waiter, result)),
                    Action::Unmap { .. } | Action::Released { .. } | Action::Retired { .. } => {}
                    Action::WriteOut(out) => self.submit_write_out(&out),
                    Action::PromoteWrite { id } => self.queue.promote(writes::request_of(id)),
                    // Removed from the actions where the write was requested.
                    Action::Accepted { .. } => {}
                }
            }
            self.actions = actions;
            if let Some(fill) = self.dropped.pop() {
                self.recorder.request_dropped(fill);
                let result = Err(Faults::CANCELLED);
                self.cache.step(self.now, Event::Filled { fill, result }, &mut self.actions);
            } else if let Some((waiter, result)) = self.woken.pop_front() {
                if writes::is_write(waiter) {
                    self.write_woken(waiter, result);
                } else {
                    self.read_woken(waiter, result);
                }
            } else if self.actions.is_empty() {
                return;
            }
        }
    }

    fn submit(&mut self, fill: &bowwave_core::Fill) {
        let shift = self.page_size.shift();
        let file = self.files[fill.file.0 as usize];
        let request = Request {
            id: RequestId(fill.id.0),
            direction: Direction::Read,
            start: file.address + (fill.range.start.0 << shift),
            bytes: fill.range.count().0 << shift,
            urgency: fill.urgency,
            owner: self.owner.0,
            object: fill.file.0,
        };
        self.recorder.request(self.now, fill);
        self.queue.submit(self.now, request);
    }
}
