//! The driver of `explain`: the core's cache, an instant device, memory without end.

use std::collections::HashMap;

use bowwave_core::{
    Action, Advice, Cache, Config, Decision, Fault, FileId, Fill, FrameId, HandleId, Instant, PageAccess,
    PageCount, PageIndex, PageRange, PageSize, Pattern, Policy, ReadOutcome, Request, Waiter,
};
use bowwave_trace::{Op, Record};

use crate::Failure;

/// Bytes of a page, as the format of traces has it.
const PAGE: PageSize = PageSize::KIB_4;

/// Pages of a file without end: all that 64-bit offsets reach.
const ENDLESS: u64 = 1 << (64 - PAGE.shift());

/// Most pages that one row may bring in: twice the 2 GiB that Linux reads in a call. More is a mistake in the trace, and
/// would fill the memory of this machine.
const ROW_PAGES_MAX: u64 = 1 << 20;

/// Feeds accesses to a cache and keeps the decisions that the last one caused.
#[derive(Debug)]
pub(super) struct Explainer {
    cache: Cache,
    file_pages: PageCount,
    files: HashMap<String, FileId>,
    /// A readahead state for each (pid, file).
    handles: HashMap<(u64, FileId), HandleId>,
    now: Instant,
    decided: Vec<Explained>,
    // Lent to the cache, kept for their memory.
    actions: Vec<Action>,
    frames: Vec<FrameId>,
    fills: Vec<Fill>,
}

/// A decision and what was sent for it.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) decision: Decision,
    pub(super) submitted: Vec<PageRange>,
}

impl Explainer {
    pub(super) fn new(policy: Policy, ra_pages: u32, file_pages: Option<u64>) -> Result<Self, Failure> {
        let cache = Cache::new(Config { ra_pages, policy, ..Config::default() }).map_err(Failure::usage)?;
        Ok(Self {
            cache,
            file_pages: PageCount(file_pages.unwrap_or(ENDLESS).min(ENDLESS)),
            files: HashMap::new(),
            handles: HashMap::new(),
            now: Instant(0),
            decided: Vec::new(),
            actions: Vec::new(),
            frames: Vec::new(),
            fills: Vec::new(),
        })
    }

    /// What the last access made the policy decide, in order.
    pub(super) fn decisions(&self) -> &[Explained] {
        &self.decided
    }

    /// Takes one row in; an error says what is wrong with it.
    pub(super) fn access(&mut self, record: &Record) -> Result<(), String> {
        self.decided.clear();
        // Rows of several processes need not be in order of time; the cache's time never runs back.
        self.now = self.now.max(Instant(record.time_ns));
        let file = self.file(&record.file);
        let request = PAGE.request_of(record.offset, record.length);
        let range = request.range;
        if record.op == Op::Evict {
            self.cache.invalidate(file, range);
            return Ok(());
        }
        let handle = self.handle(record.pid, file);
        let wanted = range.intersect(PageRange::new(0, self.file_pages.0)).count().0;
        // What is planned is brought in bit by bit.
        if wanted > ROW_PAGES_MAX && record.op != Op::Plan {
            return Err(format!("{wanted} pages at once; a row may touch {ROW_PAGES_MAX} at most"));
        }
        match record.op {
            Op::Read if !range.is_empty() => return self.read(handle, request),
            Op::Load | Op::Store => return self.touch(handle, range),
            Op::Plan if range.is_empty() => self.cache.end_plan(self.now, handle, &mut self.actions),
            Op::Plan => self
                .cache
                .follow(self.now, handle, &[range], &mut self.actions)
                .map_err(|error| error.to_string())?,
            Op::WillNeed => self.cache.advise(self.now, handle, range, Advice::WillNeed, &mut self.actions),
            Op::Random => self.cache.advise(self.now, handle, range, Advice::Random, &mut self.actions),
            Op::Sequential => {
                self.cache.advise(self.now, handle, range, Advice::Sequential, &mut self.actions)
            }
            _ => {}
        }
        self.act();
        Ok(())
    }

    fn read(&mut self, handle: HandleId, request: Request) -> Result<(), String> {
        let outcome = self.cache.access(
            self.now,
            Waiter(0),
            PageAccess::read(handle, request),
            &mut self.frames,
            &mut self.actions,
        );
        if outcome == ReadOutcome::Hit {
            self.cache.unpin(self.now, &self.frames, &mut self.actions);
            // A policy that is asked as the reader walks may read ahead even then.
            self.act();
            return Ok(());
        }
        self.woken()
    }

    /// Touches mapped pages, one by one.
    fn touch(&mut self, handle: HandleId, range: PageRange) -> Result<(), String> {
        for page in (range.start.0..range.end.0.min(self.file_pages.0)).map(PageIndex) {
            let fault = Fault { page, pattern: Pattern::Normal };
            self.cache.access(
                self.now,
                Waiter(0),
                PageAccess::fault(handle, fault),
                &mut Vec::new(),
                &mut self.actions,
            );
            self.woken()?;
        }
        Ok(())
    }

    /// Carries out what a read leads to, which must end with its pages.
    fn woken(&mut self) -> Result<(), String> {
        if self.act() { Ok(()) } else { Err(format!("more than {} pages in all", Config::UNLIMITED)) }
    }

    /// Carries out what the cache asks for, each fill at once; tells whether the read that waits was woken with its pages.
    fn act(&mut self) -> bool {
        let mut woken = false;
        while !self.actions.is_empty() {
            for action in self.actions.drain(..) {
                match action {
                    Action::Decided(decision) => {
                        self.decided.push(Explained { decision, submitted: Vec::new() })
                    }
                    Action::Fill(fill) => {
                        if let Some(last) = self.decided.last_mut() {
                            last.submitted.push(fill.range);
                        }
                        self.fills.push(fill);
                    }
                    Action::Wake { result, .. } => {
                        woken = result.is_ok();
                        self.frames = result.unwrap_or_default();
                    }
                    // No file has offset-mapped frames, and nothing is requested twice.
                    Action::Promote { .. }
                    | Action::Cancel { .. }
                    | Action::Unmap { .. }
                    | Action::Released { .. }
                    | Action::Retired { .. }
                    | Action::Took { .. }
                    | Action::WriteOut(_)
                    | Action::PromoteWrite { .. } => {}
                }
            }
            for fill in self.fills.drain(..) {
                self.cache.filled(self.now, fill.id, Ok(()), &mut self.actions);
            }
            if woken {
                self.cache.unpin(self.now, &std::mem::take(&mut self.frames), &mut self.actions);
            }
        }
        woken
    }

    fn file(&mut self, name: &str) -> FileId {
        if let Some(&file) = self.files.get(name) {
            return file;
        }
        let file = FileId(next_number(self.files.len()));
        self.files.insert(name.to_owned(), file);
        self.cache.open_file(file, self.file_pages);
        file
    }

    fn handle(&mut self, pid: u64, file: FileId) -> HandleId {
        let next = HandleId(next_number(self.handles.len()));
        *self.handles.entry((pid, file)).or_insert_with(|| {
            self.cache.open_handle(next, file);
            next
        })
    }
}

fn next_number(count: usize) -> u32 {
    u32::try_from(count).expect("a table of 2^32 names does not fit in memory")
}
