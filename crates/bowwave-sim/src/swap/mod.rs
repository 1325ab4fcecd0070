//! Swapping in virtual time: processes touch anonymous pages, a [`Pager`] as in production decides,
//! and a device holds the swapped pages.
//!
//! ```text
//! processes ──touch──► Pager ──Read, Write──► queue ──► device model
//!    ▲                  │ Map, Wake                        │
//!    └──────────────────┴────────────◄─────────────────────┘
//! ```
//!
//! Modelled: the cost of a fault by kind, the work of sending reads, one concurrent reclaimer, and
//! the device. The faulting thread sends readahead, as in Linux, or another thread does. Not
//! modelled: contention for locks and processors, and other users of memory.

mod workload;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use bowwave_core::swap::pager::{
    PageId, Pager, PagerAction, PagerConfig, PagerFault, ReadId, RegionId, SwapStats, Touch, TouchOutcome,
    Tracking, WriteId,
};
use bowwave_core::{ConfigError, Instant, PageCount, PageIndex, PageRange, Urgency, Waiter};

use hdrhistogram::Histogram;

use crate::device::{Direction, Request, RequestId};
use crate::queue::{Completed, Queue};
pub use workload::{copy, pass, random, sequential};

/// Size of a page, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// A page touch by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page.
    pub page: PageId,
    /// Load or store.
    pub touch: Touch,
    /// Time the process then works on it, in nanoseconds.
    pub work_ns: u64,
    /// Index of its class in the statistics.
    pub class: usize,
}

/// Costs in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A fault on a resident page.
    pub minor_ns: u64,
    /// A fault that maps a zero page.
    pub zero_ns: u64,
    /// A fault that must read, without the read itself.
    pub major_ns: u64,
    /// Per page read: its frame and share of a request.
    pub read_page_ns: u64,
    /// Whether another thread than the faulting one sends readahead.
    pub readahead_by_other_thread: bool,
    /// Per page the reclaimer unmaps.
    pub unmap_page_ns: u64,
}

impl Costs {
    /// Linux's, on processors of 2017. Minor faults (1.7 us) and zero faults (1.9 us) are measured.
    /// The others are measured swap-ins and reclaim, less the device time.
    pub const LINUX: Self = Self {
        minor_ns: 1_700,
        zero_ns: 1_900,
        major_ns: 4_000,
        read_page_ns: 1_000,
        readahead_by_other_thread: false,
        unmap_page_ns: 500,
    };
}

/// A process.
struct Process {
    source: Box<dyn Iterator<Item = Access> + Send>,
    /// The access it waits for, and since when.
    waits: Option<(Access, Instant)>,
    /// It does not continue before this time, whatever the device does.
    busy_until: Instant,
    ended: bool,
}

/// Statistics of a class of accesses.
#[derive(Clone, Debug)]
pub struct Class {
    /// Completed touches.
    pub touches: u64,
    /// First touches of pages that readahead brought in.
    pub ahead_hits: u64,
    /// Nanoseconds from a touch to its end, including work, to three digits.
    pub latencies: Histogram<u64>,
}

impl Default for Class {
    fn default() -> Self {
        let latencies = Histogram::new(3).expect("three digits are among those that it knows");
        Self { touches: 0, ahead_hits: 0, latencies }
    }
}

/// A scheduled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Unmapped { region: u32, start: u64, end: u64 },
    Submit(u64),
    Step(usize),
    Expire,
}

/// The machine.
pub struct Machine {
    pager: Pager,
    costs: Costs,
    queue: Queue,
    now: Instant,
    agenda: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
    processes: Vec<Process>,
    running: usize,
    classes: Vec<Class>,
    /// Requests that are not submitted yet.
    requests: HashMap<u64, Request>,
    /// Pages that readahead requested, and that no process has touched since.
    ahead: HashMap<RegionId, Vec<bool>>,
    /// Pages that readahead requested.
    ahead_pages: u64,
    reclaimer_free: Instant,
    out: Vec<PagerAction>,
    completed: Vec<Completed>,
}

impl Machine {
    /// Creates a machine without regions and processes.
    ///
    /// # Errors
    ///
    /// A field of the configuration that is out of bounds.
    pub fn new(config: PagerConfig, costs: Costs, queue: Queue) -> Result<Self, ConfigError> {
        Ok(Self {
            pager: Pager::new(config)?,
            costs,
            queue,
            now: Instant(0),
            agenda: BinaryHeap::new(),
            sequence: 0,
            processes: Vec::new(),
            running: 0,
            classes: Vec::new(),
            requests: HashMap::new(),
            ahead: HashMap::new(),
            ahead_pages: 0,
            reclaimer_free: Instant(0),
            out: Vec::new(),
            completed: Vec::new(),
        })
    }

    /// Adds a region of `pages` pages.
    ///
    /// # Errors
    ///
    /// If region numbers or address space are exhausted.
    pub fn add_region(&mut self, pages: u64) -> Result<RegionId, ConfigError> {
        let region = RegionId(self.ahead.len() as u32);
        // Each starts at a page-table boundary, with a gap between them.
        let base = u64::from(region.0 + 1) << 30;
        self.pager.add_region(region, PageIndex(base), PageCount(pages))?;
        self.ahead.insert(region, vec![false; pages as usize]);
        Ok(region)
    }

    /// Adds a process, which starts now.
    pub fn add_process(&mut self, source: impl Iterator<Item = Access> + Send + 'static) {
        let process = self.processes.len();
        let source = Box::new(source);
        self.processes.push(Process { source, waits: None, busy_until: self.now, ended: false });
        self.running += 1;
        self.schedule(self.now, Event::Step(process));
    }

    /// Runs until every process has ended or until a time; returns the time.
    pub fn run(&mut self, until: Instant) -> Instant {
        while self.running > 0 {
            let scheduled = self.agenda.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = scheduled.into_iter().chain(self.queue.next_event()).min() else { break };
            if next > until {
                self.now = until;
                break;
            }
            self.now = next;
            // At equal times the device's event comes first.
            if self.queue.next_event().is_some_and(|at| at <= next) {
                self.completions();
            } else if let Some(Reverse((_, _, event))) = self.agenda.pop() {
                self.handle(event);
            }
        }
        self.now
    }

    /// The current time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Statistics by class.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The pager's counters.
    pub fn stats(&self) -> &SwapStats {
        self.pager.stats()
    }

    /// The pager.
    pub fn pager(&self) -> &Pager {
        &self.pager
    }

    /// The queue in front of the device.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Share of readahead pages that were touched, from 0 to 1, whether or not the pager saw it;
    /// `None` without readahead.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits: u64 = self.classes.iter().map(|class| class.ahead_hits).sum();
        (self.ahead_pages > 0).then(|| hits as f64 / self.ahead_pages as f64)
    }

    /// Checks the pager's invariants.
    ///
    /// # Errors
    ///
    /// The first violated invariant.
    pub fn check(&self) -> Result<(), PagerFault> {
        self.pager.check()
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.agenda.push(Reverse((at, self.sequence, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step(process) => self.step(process),
            Event::Submit(id) => {
                if let Some(request) = self.requests.remove(&id) {
                    self.queue.submit(self.now, request);
                }
            }
            Event::Unmapped { region, start, end } => {
                let (region, pages) = (RegionId(region), PageRange::new(start, end));
                self.pager.unmapped(self.now, region, pages, None, &mut self.out);
                self.act(None);
            }
            Event::Expire => {
                self.pager.expire(self.now, &mut self.out);
                self.act(None);
            }
        }
    }

    fn completions(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        self.queue.advance(self.now, &mut completed);
        for done in completed.drain(..) {
            let id = done.id.0;
            if done.direction == Direction::Write {
                self.pager.written(self.now, WriteId(id), Ok(()), &[], &mut self.out);
            } else {
                self.pager.read_done(self.now, ReadId(id), Ok(()), &mut self.out);
            }
            self.act(None);
        }
        self.completed = completed;
    }

    /// Runs a process until it must wait or another event is due first.
    fn step(&mut self, process: usize) {
        loop {
            let Some(access) = self.processes[process].source.next() else {
                self.processes[process].ended = true;
                self.running -= 1;
                return;
            };
            let (start, before) = (self.now, *self.pager.stats());
            let tracks_accesses = self.pager.config().tracking == Tracking::Accessed;
            let mut cost = 0;
            if tracks_accesses || !self.pager.is_mapped(access.page, access.touch) {
                let waiter = Waiter(process as u64);
                let outcome = self.pager.touch(self.now, waiter, access.page, access.touch, &mut self.out);
                cost = self.cost_since(&before);
                if outcome == TouchOutcome::Wait {
                    self.processes[process].waits = Some((access, start));
                    self.processes[process].busy_until = Instant(start.0 + cost);
                    self.act(Some(process));
                    return;
                }
                cost += self.act(Some(process));
            }
            let end = self.finish(access, start, Instant(start.0 + cost));
            // Events due earlier come first.
            let next = self
                .agenda
                .peek()
                .map(|Reverse((at, ..))| *at)
                .into_iter()
                .chain(self.queue.next_event())
                .min();
            if next.is_some_and(|next| next <= end) {
                self.schedule(end, Event::Step(process));
                return;
            }
            self.now = end;
        }
    }

    /// A process gets its page at `at`; returns when it is done with it.
    fn finish(&mut self, access: Access, start: Instant, at: Instant) -> Instant {
        let end = Instant(at.0 + access.work_ns);
        if self.classes.len() <= access.class {
            self.classes.resize_with(access.class + 1, Class::default);
        }
        let class = &mut self.classes[access.class];
        class.touches += 1;
        // The histogram grows as needed and accepts any number.
        _ = class.latencies.record(end.0 - start.0);
        if let Some(ahead) = self
            .ahead
            .get_mut(&access.page.region)
            .and_then(|ahead| ahead.get_mut(access.page.page.0 as usize))
        {
            class.ahead_hits += u64::from(std::mem::take(ahead));
        }
        end
    }

    /// Cost of a fault, by the pager's counters.
    fn cost_since(&self, before: &SwapStats) -> u64 {
        let (now, costs) = (self.pager.stats(), &self.costs);
        let zeroed = now.zero_in - before.zero_in;
        let minor =
            now.minor_faults - before.minor_faults - zeroed.min(now.minor_faults - before.minor_faults);
        let major = now.major_faults - before.major_faults;
        // A touch of a page in flight costs as much as a minor fault.
        let late = now.late - before.late;
        zeroed * costs.zero_ns + (minor + late) * costs.minor_ns + major * costs.major_ns
    }

    /// Performs the pager's actions; returns their cost to the touching process.
    fn act(&mut self, toucher: Option<usize>) -> u64 {
        let mut charged = 0;
        let mut actions = std::mem::take(&mut self.out);
        for action in actions.drain(..) {
            match action {
                PagerAction::Read(read) => {
                    let cost = self.costs.read_page_ns * read.pages.len() as u64;
                    let beside = self.costs.readahead_by_other_thread && read.urgency == Urgency::Readahead;
                    charged += if beside { 0 } else { cost };
                    let at = self.start_of(toucher, if beside { charged + cost } else { charged });
                    self.note_ahead(toucher, &read.pages);
                    let bytes = read.pages.len() as u64 * PAGE_BYTES;
                    self.send(at, read.id.0, Direction::Read, read.slot.0 * PAGE_BYTES, bytes, read.urgency);
                }
                PagerAction::Write(write) => {
                    let bytes = write.pages.len() as u64 * PAGE_BYTES;
                    self.send(
                        self.now,
                        write.id.0,
                        Direction::Write,
                        write.slot.0 * PAGE_BYTES,
                        bytes,
                        write.urgency,
                    );
                }
                PagerAction::Promote { id } => match self.requests.get_mut(&id.0) {
                    Some(request) => request.urgency = Urgency::Demand,
                    None => self.queue.promote(RequestId(id.0)),
                },
                PagerAction::Unmap { region, pages } => {
                    let cost = pages.count().0 * self.costs.unmap_page_ns;
                    self.reclaimer_free = Instant(self.reclaimer_free.max(self.now).0 + cost);
                    let (start, end) = (pages.start.0, pages.end.0);
                    self.schedule(self.reclaimer_free, Event::Unmapped { region: region.0, start, end });
                }
                PagerAction::Drop { region, pages } => {
                    if let Some(ahead) = self.ahead.get_mut(&region) {
                        ahead[pages.start.0 as usize..pages.end.0 as usize].fill(false);
                    }
                }
                PagerAction::Wake { waiter, .. } => self.wake(waiter.0 as usize),
                PagerAction::Map { .. }
                | PagerAction::Zero { .. }
                | PagerAction::Retired { .. }
                | PagerAction::Decided(_) => {}
            }
        }
        self.out = actions;
        if let Some(at) = self.pager.next_deadline() {
            self.schedule(at, Event::Expire);
        }
        if let Some(toucher) = toucher {
            self.processes[toucher].busy_until.0 += charged;
        }
        charged
    }

    /// When a request of the touching process is sent.
    fn start_of(&self, toucher: Option<usize>, cost: u64) -> Instant {
        let waiting = toucher.filter(|&process| self.processes[process].waits.is_some());
        let start = waiting.map_or(self.now, |process| self.processes[process].busy_until.max(self.now));
        Instant(start.0 + cost)
    }

    /// Records readahead: all requested pages without a waiter.
    fn note_ahead(&mut self, toucher: Option<usize>, pages: &[PageId]) {
        let wanted = toucher.and_then(|process| self.processes[process].waits).map(|(access, _)| access.page);
        for &page in pages {
            if Some(page) != wanted && !self.is_waited_for(page) {
                self.ahead_pages += 1;
                if let Some(ahead) = self.ahead.get_mut(&page.region) {
                    ahead[page.page.0 as usize] = true;
                }
            }
        }
    }

    fn is_waited_for(&self, page: PageId) -> bool {
        self.processes.iter().any(|process| process.waits.is_some_and(|(access, _)| access.page == page))
    }

    fn send(&mut self, at: Instant, id: u64, direction: Direction, start: u64, bytes: u64, urgency: Urgency) {
        let request = Request { id: RequestId(id), direction, start, bytes, urgency, owner: 0, object: 0 };
        if at <= self.now {
            self.queue.submit(self.now, request);
        } else {
            self.requests.insert(id, request);
            self.schedule(at, Event::Submit(id));
        }
    }

    fn wake(&mut self, process: usize) {
        let Some((access, start)) = self.processes[process].waits.take() else { return };
        let at = self.now.max(self.processes[process].busy_until);
        let end = self.finish(access, start, at);
        self.schedule(end, Event::Step(process));
    }
}

#[cfg(test)]
mod tests;
