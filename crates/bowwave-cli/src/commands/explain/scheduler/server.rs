//! The driver: the core's cache and scheduler and a simulated device, in the trace's own time.
//!
//! Each row happens at its time, whatever is in flight. At equal times, device events come first,
//! then rows, then dispatches.

use std::collections::{BTreeMap, HashMap, HashSet};

use bowwave_core::schedule::{
    Class, Direction, DispatchId, Dispatcher, Priority, Reason, Request, RequestId, SchedulerConfig,
    SchedulerStats,
};
use bowwave_core::{
    Action, Advice, Cache, Config, ConfigError, Fault, FileId, Fill, FillId, FrameId, HandleId, Instant,
    PageAccess, PageCount, PageIndex, PageRange, Pattern, Policy, ReadOutcome, Urgency, Waiter,
};
use bowwave_sim::device::{self, Device, Done};
use bowwave_sim::faults::Faults;
use bowwave_trace::Op;

use super::{Layout, PAGE, Row};

/// Pages of a fill, as in the engine: 256 KiB.
const FILL_PAGES: u32 = 64;

/// Configuration of a server.
pub(super) struct Setup<'a> {
    pub(super) policy: Policy,
    pub(super) ra_pages: u32,
    pub(super) device: Box<dyn Device>,
    pub(super) scheduler: SchedulerConfig,
    pub(super) priorities: HashMap<u64, Priority>,
    pub(super) layout: &'a Layout,
}

pub(super) struct Server<'a> {
    layout: &'a Layout,
    priorities: HashMap<u64, Priority>,
    cache: Cache,
    dispatcher: Dispatcher<Pending>,
    device: Box<dyn Device>,
    /// Fills with incomplete requests.
    fills: HashMap<FillId, FillRequests>,
    /// Per file, pages waiting to be written.
    writes: HashMap<u32, BTreeMap<u64, RequestId>>,
    /// Waiting requests: sync, async.
    waiting: [u64; 2],
    /// A readahead state per (pid, file); the open files.
    handles: HashMap<(Option<u64>, u32), HandleId>,
    opened: HashSet<u32>,
    /// Dispatches at the device and their requests, by device request number.
    at_device: HashMap<u64, (DispatchId, Vec<Pending>)>,
    numbers: u64,
    now: Instant,
    /// The current row, and its priority.
    cause: (u64, Priority),
    dispatched: Vec<Dispatched>,
    // Reused buffers.
    actions: Vec<Action>,
    frames: Vec<FrameId>,
}

/// A dispatch to print.
#[derive(Debug)]
pub(super) struct Dispatched {
    pub(super) at: Instant,
    /// The rows its requests belong to, in address order.
    pub(super) rows: Vec<u64>,
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) direction: Direction,
    pub(super) class: Class,
    pub(super) priority: Priority,
    pub(super) reason: Reason,
    pub(super) waited_ns: u64,
    pub(super) expired: bool,
    /// Number of merged requests.
    pub(super) parts: usize,
    pub(super) promoted: bool,
    /// Requests still waiting: sync, async.
    pub(super) waiting: [u64; 2],
    /// Dispatches at the device, including this one.
    pub(super) at_device: usize,
}

impl<'a> Server<'a> {
    pub(super) fn new(setup: Setup<'a>) -> Result<Self, ConfigError> {
        let Setup { policy, ra_pages, device, scheduler, priorities, layout } = setup;
        let config = Config { policy, ra_pages, fill_pages_max: FILL_PAGES, ..Config::default() };
        Ok(Self {
            layout,
            priorities,
            cache: Cache::new(config)?,
            dispatcher: Dispatcher::new(scheduler, device.depth(), 0)?,
            device,
            fills: HashMap::new(),
            writes: HashMap::new(),
            waiting: [0; 2],
            handles: HashMap::new(),
            opened: HashSet::new(),
            at_device: HashMap::new(),
            numbers: 0,
            now: Instant(0),
            cause: (0, Priority::default()),
            dispatched: Vec::new(),
            actions: Vec::new(),
            frames: Vec::new(),
        })
    }

    pub(super) fn stats(&self) -> &SchedulerStats {
        self.dispatcher.stats()
    }

    /// The dispatches since the last call.
    pub(super) fn dispatched(&mut self) -> impl Iterator<Item = Dispatched> + use<> {
        std::mem::take(&mut self.dispatched).into_iter()
    }

    /// Processes rows of one time.
    pub(super) fn at(&mut self, rows: &[Row]) {
        let Some(first) = rows.first() else { return };
        let now = Instant(first.time_ns);
        self.advance(now);
        self.now = now;
        rows.iter().for_each(|row| self.row(row));
        self.dispatch();
    }

    /// Runs until everything has completed.
    pub(super) fn finish(&mut self) {
        self.advance(Instant(u64::MAX));
    }

    fn advance(&mut self, until: Instant) {
        let mut done = Vec::new();
        while let Some(at) = self.device.next_event()
            && at <= until
        {
            self.now = at;
            self.device.advance(at, &mut done);
            done.drain(..).for_each(|done| self.complete(done));
            self.dispatch();
        }
    }

    fn row(&mut self, row: &Row) {
        let priority = self.priorities.get(&row.pid).copied().unwrap_or_default();
        self.cause = (row.number, priority);
        let (file, range) = (self.open(row.file), PageRange::new(row.start, row.end));
        match row.op {
            Op::Write => self.write(row),
            Op::Fsync => self.sync(row.file),
            Op::Evict => self.cache.invalidate(file, range),
            Op::Read if range.is_empty() => {}
            Op::Read => self.read(row, range),
            Op::Load | Op::Store => {
                let handle = self.handle(Some(row.pid), row.file);
                for page in (row.start..row.end).map(PageIndex) {
                    let fault = Fault { page, pattern: Pattern::Normal };
                    self.cache.access(
                        self.now,
                        Waiter(0),
                        PageAccess::fault(handle, fault),
                        &mut Vec::new(),
                        &mut self.actions,
                    );
                }
            }
            Op::WillNeed | Op::Random | Op::Sequential => {
                let handle = self.handle(Some(row.pid), row.file);
                let advice = match row.op {
                    Op::WillNeed => Advice::WillNeed,
                    Op::Random => Advice::Random,
                    _ => Advice::Sequential,
                };
                self.cache.advise(self.now, handle, range, advice, &mut self.actions);
            }
            Op::Plan => {
                let handle = self.handle(Some(row.pid), row.file);
                if range.is_empty() {
                    self.cache.end_plan(self.now, handle, &mut self.actions);
                } else {
                    // Ranges beyond the maximum of a plan are not announced.
                    let _refused = self.cache.set_read_plan(self.now, handle, &[range], &mut self.actions);
                }
            }
            Op::DontNeed | Op::Done => {}
        }
        self.act();
    }

    fn read(&mut self, row: &Row, range: PageRange) {
        let handle = self.handle(Some(row.pid), row.file);
        let request = bowwave_core::Request { range, ends_inside: row.ends_inside };
        let Self { cache, frames, actions, now, .. } = self;
        if cache.access(*now, Waiter(0), PageAccess::read(handle, request), frames, actions)
            == ReadOutcome::Hit
        {
            cache.unpin(*now, &std::mem::take(frames), actions);
        }
    }

    /// Marks pages dirty and queues async write-back, except for pages that already wait for it.
    fn write(&mut self, row: &Row) {
        let handle = self.handle(None, row.file);
        let range = PageRange::new(row.start, row.end);
        self.cache.advise(self.now, handle, range, Advice::WillNeed, &mut self.actions);
        let fills: Vec<FillId> = self
            .actions
            .drain(..)
            .filter_map(|action| match action {
                Action::Fill(fill) => Some(fill.id),
                _ => None,
            })
            .collect();
        fills.into_iter().for_each(|fill| self.cache.filled(self.now, fill, Ok(()), &mut self.actions));
        for (start, end) in self.unwritten(row.file, row.start, row.end) {
            self.submit(row.file, start, end, None, Urgency::Readahead);
        }
    }

    /// The pages of a range that are not waiting to be written, as runs.
    fn unwritten(&self, file: u32, start: u64, end: u64) -> Vec<(u64, u64)> {
        let waiting = self.writes.get(&file);
        let taken = waiting.into_iter().flat_map(|pages| pages.range(start..end)).map(|(&page, _)| page);
        let (mut runs, mut at) = (Vec::new(), start);
        for page in taken.chain([end]) {
            if at < page {
                runs.push((at, page));
            }
            at = page + 1;
        }
        runs
    }

    /// Promotes all waiting writes of a file to sync.
    fn sync(&mut self, file: u32) {
        let mut ids: Vec<RequestId> =
            self.writes.get(&file).into_iter().flat_map(BTreeMap::values).copied().collect();
        ids.dedup();
        for id in ids {
            if self.dispatcher.promote_merged(self.now, id) {
                self.promoted(id);
            }
        }
    }

    /// A waiting request became sync.
    fn promoted(&mut self, id: RequestId) {
        let Some(one) = self.dispatcher.payload_mut(id) else { return };
        if one.class == Class::Async {
            (one.class, one.promoted) = (Class::Sync, true);
            self.waiting[Class::Async as usize] -= 1;
            self.waiting[Class::Sync as usize] += 1;
        }
    }

    /// Adds a request, split for the device.
    fn submit(&mut self, file: u32, start: u64, end: u64, fill: Option<FillId>, urgency: Urgency) {
        let pages_max = (self.device.request_bytes_max() >> PAGE.shift()).max(1);
        let at = self.layout.files[file as usize].at;
        let (row, priority) = self.cause;
        let mut start = start;
        while start < end {
            let middle = end.min(start.saturating_add(pages_max));
            let direction = if fill.is_some() { Direction::Read } else { Direction::Write };
            let request = Request {
                start: (at + start) << PAGE.shift(),
                end: (at + middle) << PAGE.shift(),
                direction,
                object: file.into(),
                urgency,
                priority,
            };
            let class = request.class();
            let one = Pending { row, file, start, end: middle, fill, class, promoted: false };
            let id = self.dispatcher.add(self.now, request, one).id;
            self.waiting[class as usize] += 1;
            match fill {
                Some(fill) => self.fills.entry(fill).or_default().waiting.push(id),
                None => {
                    let pages = (start..middle).map(|page| (page, id));
                    self.writes.entry(file).or_default().extend(pages);
                }
            }
            start = middle;
        }
    }

    /// Performs the cache's actions.
    fn act(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Fill(Fill { id, file, range, urgency }) => {
                        self.submit(file.0, range.start.0, range.end.0, Some(id), urgency);
                    }
                    Action::Promote { fill } => self.promote(fill),
                    Action::Cancel { fill } => self.cancel(fill),
                    Action::Wake { result, .. } => {
                        self.cache.unpin(self.now, &result.unwrap_or_default(), &mut self.actions);
                    }
                    Action::Decided(_)
                    | Action::Weighed(_)
                    | Action::Unmap { .. }
                    | Action::Released { .. }
                    | Action::Retired { .. }
                    | Action::Accepted { .. }
                    | Action::WriteOut(_)
                    | Action::PromoteWrite { .. } => {}
                }
            }
        }
    }

    fn promote(&mut self, fill: FillId) {
        let Some(requests) = self.fills.get_mut(&fill) else { return };
        let mut ids = std::mem::take(&mut requests.waiting);
        for id in &mut ids {
            if let Some(renamed) = self.dispatcher.promote_alone(self.now, *id) {
                *id = renamed;
                self.promoted(renamed);
            }
        }
        self.fills.entry(fill).or_default().waiting = ids;
    }

    /// Cancels a fill that has no request at the device.
    fn cancel(&mut self, fill: FillId) {
        if self.fills.get(&fill).is_some_and(|requests| requests.at_device > 0) {
            return;
        }
        for id in self.fills.remove(&fill).unwrap_or_default().waiting {
            if let Some((one, _)) = self.dispatcher.cancel(id) {
                self.waiting[one.class as usize] -= 1;
            }
        }
        self.cache.filled(self.now, fill, Err(Faults::CANCELLED), &mut self.actions);
    }

    fn complete(&mut self, done: Done) {
        let Some((id, parts)) = self.at_device.remove(&done.id.0) else { return };
        self.dispatcher.complete(self.now, id);
        for fill in parts.into_iter().filter_map(|part| part.fill) {
            let Some(requests) = self.fills.get_mut(&fill) else { continue };
            requests.at_device -= 1;
            if requests.at_device == 0 && requests.waiting.is_empty() {
                self.fills.remove(&fill);
                self.cache.filled(self.now, fill, Ok(()), &mut self.actions);
                self.act();
            }
        }
    }

    fn dispatch(&mut self) {
        let mut parts = Vec::new();
        while let Some(dispatch) = self.dispatcher.next(self.now, &mut parts) {
            let request = dispatch.request;
            let file = u32::try_from(request.object).expect("it was made of a file's number");
            self.numbers += 1;
            self.device.submit(
                self.now,
                &device::Request {
                    id: device::RequestId(self.numbers),
                    direction: request.direction,
                    start: request.start,
                    bytes: request.bytes(),
                    urgency: request.urgency,
                    owner: 0,
                    object: file,
                },
            );
            for part in &parts {
                self.waiting[part.class as usize] -= 1;
                match part.fill {
                    Some(fill) => {
                        let requests = self.fills.entry(fill).or_default();
                        requests.waiting.retain(|&id| self.dispatcher.payload_mut(id).is_some());
                        requests.at_device += 1;
                    }
                    None => {
                        let pages = self.writes.entry(part.file).or_default();
                        (part.start..part.end).for_each(|page| _ = pages.remove(&page));
                    }
                }
            }
            let at = self.layout.files[file as usize].at << PAGE.shift();
            let mut rows: Vec<u64> = parts.iter().map(|part| part.row).collect();
            rows.dedup();
            self.dispatched.push(Dispatched {
                at: self.now,
                rows,
                file,
                offset: request.start - at,
                length: request.bytes(),
                direction: request.direction,
                class: dispatch.class,
                priority: request.priority,
                reason: dispatch.reason,
                waited_ns: self.now.0 - dispatch.added.0,
                expired: dispatch.deadline.is_some_and(|deadline| deadline < self.now),
                parts: parts.len(),
                promoted: parts.iter().any(|part| part.promoted),
                waiting: self.waiting,
                at_device: self.dispatcher.at_device(),
            });
            self.at_device.insert(self.numbers, (dispatch.id, std::mem::take(&mut parts)));
        }
    }

    fn open(&mut self, file: u32) -> FileId {
        if self.opened.insert(file) {
            self.cache.open_file(FileId(file), PageCount(self.layout.files[file as usize].pages));
        }
        FileId(file)
    }

    /// The handle of a process; writes have no process.
    fn handle(&mut self, pid: Option<u64>, file: u32) -> HandleId {
        let id = self.open(file);
        let next = HandleId(
            u32::try_from(self.handles.len()).expect("a table of 2^32 handles does not fit in memory"),
        );
        *self.handles.entry((pid, file)).or_insert_with(|| {
            self.cache.open_handle(next, id);
            next
        })
    }
}

/// A request to the scheduler.
#[derive(Debug)]
struct Pending {
    /// The row that caused it.
    row: u64,
    file: u32,
    /// Pages of the file.
    start: u64,
    end: u64,
    /// The fill it is part of; `None` for a write.
    fill: Option<FillId>,
    class: Class,
    /// Whether it was promoted to sync while it waited.
    promoted: bool,
}

/// The incomplete requests of a fill.
#[derive(Debug, Default)]
struct FillRequests {
    /// In order of creation.
    waiting: Vec<RequestId>,
    at_device: usize,
}
