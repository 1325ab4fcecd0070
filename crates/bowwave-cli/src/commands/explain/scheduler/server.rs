//! The driver: the core's cache and scheduler and a simulated device, in the trace's own time.
//!
//! Each row happens at its time, whatever is in flight. At equal times, device events come first,
//! then rows, then dispatches.

use std::collections::{BTreeMap, HashMap, HashSet};

use bowwave_core::schedule::{
    Class, Direction, DispatchId, Priority, Reason, Request, RequestId, Scheduler, SchedulerConfig,
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
    scheduler: Scheduler,
    device: Box<dyn Device>,
    pending: PendingRequests,
    /// A readahead state per (pid, file); the open files.
    handles: HashMap<(Option<u64>, u32), HandleId>,
    opened: HashSet<u32>,
    /// Dispatches at the device, by device request number.
    at_device: HashMap<u64, DispatchId>,
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
            scheduler: Scheduler::new(scheduler)?,
            device,
            pending: PendingRequests::default(),
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
        self.scheduler.stats()
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
        for (start, end) in self.pending.unwritten(row.file, row.start, row.end) {
            self.submit(row.file, start, end, None, Urgency::Readahead);
        }
    }

    /// Promotes all waiting writes of a file to sync.
    fn sync(&mut self, file: u32) {
        for id in self.pending.writes_of(file) {
            if self.scheduler.promote(self.now, id) {
                self.pending.promote(id, id);
            }
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
            let id = self.scheduler.add(self.now, request).id;
            self.pending.insert(Pending {
                row,
                file,
                start,
                end: middle,
                fill,
                urgency,
                promoted: false,
                at_device: false,
                id,
            });
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
        for id in self.pending.of_fill(fill) {
            if let Some(renamed) = self.scheduler.promote_alone(self.now, id) {
                self.pending.promote(id, renamed);
            }
        }
    }

    /// Cancels a fill that has no request at the device.
    fn cancel(&mut self, fill: FillId) {
        let ids = self.pending.of_fill(fill);
        if ids.iter().any(|id| self.pending.get(*id).is_none_or(|one| one.at_device)) {
            return;
        }
        for id in ids {
            self.scheduler.cancel(id);
            self.pending.dropped(id);
        }
        self.pending.forget_fill(fill);
        self.cache.filled(self.now, fill, Err(Faults::CANCELLED), &mut self.actions);
    }

    fn complete(&mut self, done: Done) {
        let Some(id) = self.at_device.remove(&done.id.0) else { return };
        let parts: Vec<_> = self.scheduler.parts(id).collect();
        self.scheduler.complete(self.now, id);
        for part in parts {
            if let Some(fill) = self.pending.ended(part) {
                self.cache.filled(self.now, fill, Ok(()), &mut self.actions);
                self.act();
            }
        }
    }

    fn dispatch(&mut self) {
        while self.at_device.len() < self.device.depth()
            && let Some(dispatch) = self.scheduler.dispatch(self.now)
        {
            let request = dispatch.request;
            let file = u32::try_from(request.object).expect("it was made of a file's number");
            self.numbers += 1;
            self.device.submit(
                self.now,
                &device::Request {
                    id: device::RequestId(self.numbers),
                    direction: match request.direction {
                        Direction::Read => device::Direction::Read,
                        Direction::Write => device::Direction::Write,
                    },
                    start: request.start,
                    bytes: request.bytes(),
                    urgency: request.urgency,
                    owner: 0,
                    object: file,
                },
            );
            self.at_device.insert(self.numbers, dispatch.id);
            let parts: Vec<Pending> =
                self.scheduler.parts(dispatch.id).filter_map(|part| self.pending.dispatched(part)).collect();
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
                waiting: self.pending.waiting,
                at_device: self.at_device.len(),
            });
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The row that caused it.
    pub(super) row: u64,
    pub(super) file: u32,
    /// Pages of the file.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The fill it is part of; `None` for a write.
    pub(super) fill: Option<FillId>,
    pub(super) urgency: Urgency,
    /// Whether it was promoted to sync while it waited.
    pub(super) promoted: bool,
    pub(super) at_device: bool,
    pub(super) id: RequestId,
}

/// Requests that have not completed.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// By [`RequestId::slot`], which stays the same from submission to completion.
    by_slot: Vec<Option<Pending>>,
    /// Per fill, its incomplete requests.
    fills: HashMap<u64, Vec<RequestId>>,
    /// Per file, pages waiting to be written.
    writes: HashMap<u32, BTreeMap<u64, RequestId>>,
    /// Waiting requests: sync, async.
    pub(super) waiting: [u64; 2],
}

impl Pending {
    fn class(&self) -> usize {
        class_of(self.urgency) as usize
    }
}

/// The class of a request.
fn class_of(urgency: Urgency) -> Class {
    match urgency {
        Urgency::Demand => Class::Sync,
        Urgency::Readahead => Class::Async,
    }
}

impl PendingRequests {
    /// Adds a waiting request.
    pub(super) fn insert(&mut self, one: Pending) {
        let slot = one.id.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(one);
        self.waiting[one.class()] += 1;
        match one.fill {
            Some(fill) => self.fills.entry(fill.0).or_default().push(one.id),
            None => {
                let pages = self.writes.entry(one.file).or_default();
                pages.extend((one.start..one.end).map(|page| (page, one.id)));
            }
        }
    }

    /// A request that has not completed.
    pub(super) fn get(&self, id: RequestId) -> Option<&Pending> {
        self.by_slot.get(id.slot())?.as_ref().filter(|one| one.id == id)
    }

    /// Marks a waiting request as demand; its id may change.
    pub(super) fn promote(&mut self, old: RequestId, id: RequestId) {
        let Some(one) = self.by_slot[old.slot()].take() else { return };
        self.waiting[one.class()] -= 1;
        let promoted = one.promoted || one.urgency == Urgency::Readahead;
        let one = Pending { urgency: Urgency::Demand, promoted, id, ..one };
        if let Some(fill) = one.fill
            && let Some(ids) = self.fills.get_mut(&fill.0)
        {
            ids.retain(|&other| other != old);
        }
        self.insert(one);
    }

    /// The request was dispatched.
    pub(super) fn dispatched(&mut self, id: RequestId) -> Option<Pending> {
        let one = *self.get(id)?;
        self.by_slot[id.slot()] = Some(Pending { at_device: true, ..one });
        self.waiting[one.class()] -= 1;
        if one.fill.is_none()
            && let Some(pages) = self.writes.get_mut(&one.file)
        {
            (one.start..one.end).for_each(|page| _ = pages.remove(&page));
        }
        Some(one)
    }

    /// The request completed; returns its fill if that is now complete.
    pub(super) fn ended(&mut self, id: RequestId) -> Option<FillId> {
        let fill = self.by_slot[id.slot()].take()?.fill?;
        let ids = self.fills.get_mut(&fill.0)?;
        ids.retain(|&other| other != id);
        if !ids.is_empty() {
            return None;
        }
        self.fills.remove(&fill.0);
        Some(fill)
    }

    /// The request was cancelled before dispatch.
    pub(super) fn dropped(&mut self, id: RequestId) {
        if let Some(one) = self.by_slot[id.slot()].take() {
            self.waiting[one.class()] -= 1;
        }
    }

    /// The incomplete requests of a fill, in order of creation.
    pub(super) fn of_fill(&self, fill: FillId) -> Vec<RequestId> {
        self.fills.get(&fill.0).cloned().unwrap_or_default()
    }

    /// The fill was cancelled.
    pub(super) fn forget_fill(&mut self, fill: FillId) {
        self.fills.remove(&fill.0);
    }

    /// The waiting writes of a file, in address order.
    pub(super) fn writes_of(&self, file: u32) -> Vec<RequestId> {
        let mut ids: Vec<RequestId> =
            self.writes.get(&file).into_iter().flat_map(BTreeMap::values).copied().collect();
        ids.dedup();
        ids
    }

    /// The pages of a range that are not waiting to be written, as runs.
    pub(super) fn unwritten(&self, file: u32, start: u64, end: u64) -> Vec<(u64, u64)> {
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
}

#[cfg(test)]
mod tests {
    use bowwave_core::Instant;
    use bowwave_core::schedule::{Direction, Priority, Request, Scheduler, SchedulerConfig};

    use super::*;

    fn one(scheduler: &mut Scheduler, start: u64, end: u64, fill: Option<u64>) -> Pending {
        let (direction, urgency, priority) = (Direction::Write, Urgency::Readahead, Priority::default());
        let request = Request { start, end, direction, object: 0, urgency, priority };
        let id = scheduler.add(Instant(0), request).id;
        Pending {
            row: 0,
            file: 3,
            start,
            end,
            fill: fill.map(FillId),
            urgency,
            promoted: false,
            at_device: false,
            id,
        }
    }

    #[test]
    fn pages_wait_to_be_written_until_the_device_has_them_and_requests_end_once() {
        let mut scheduler = Scheduler::new(SchedulerConfig::default()).unwrap();
        let mut pending = PendingRequests::default();
        let (low, high) = (one(&mut scheduler, 4, 6, None), one(&mut scheduler, 8, 9, None));
        pending.insert(high);
        pending.insert(low);
        assert_eq!(pending.unwritten(3, 0, 12), [(0, 4), (6, 8), (9, 12)]);
        assert_eq!(pending.unwritten(3, 4, 6), []);
        assert_eq!((pending.writes_of(3), pending.waiting), (vec![low.id, high.id], [0, 2]));
        pending.promote(low.id, low.id);
        assert_eq!(pending.waiting, [1, 1]);
        assert!(pending.dispatched(low.id).is_some_and(|one| one.promoted));
        assert_eq!((pending.unwritten(3, 0, 7), pending.waiting), (vec![(0, 7)], [0, 1]));
        let parts = [0, 1].map(|part| one(&mut scheduler, 20 + 4 * part, 22 + 4 * part, Some(7)));
        parts.iter().for_each(|&part| pending.insert(part));
        assert_eq!(pending.ended(parts[0].id), None);
        assert_eq!((pending.ended(parts[1].id), pending.ended(parts[1].id)), (Some(FillId(7)), None));
    }
}
