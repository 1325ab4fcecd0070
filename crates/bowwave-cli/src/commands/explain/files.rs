//! The driver of `explain`: the core's cache, an instant device, unlimited memory.

use std::collections::HashMap;

use bowwave_core::explain::ReadaheadLine;
use bowwave_core::{
    Action, Advice, Cache, Config, Decision, Fault, FileId, Fill, FrameId, HandleId, Instant, PageAccess,
    PageCount, PageIndex, PageRange, PageSize, Pattern, Policy, ReadOutcome, Request, Waiter, Weighed,
    WeighedCandidate,
};
use bowwave_trace::{Op, Record};

use crate::Failure;
use crate::output::{Output, plain};

/// Bytes of a page, as the trace format defines it.
const PAGE: PageSize = PageSize::KIB_4;

/// Pages of an unbounded file: all that 64-bit offsets reach.
const ENDLESS: u64 = 1 << (64 - PAGE.shift());

/// Maximum pages a row may read: twice the 2 GiB that Linux reads per call. More is an error in the
/// trace and would exhaust memory.
const ROW_PAGES_MAX: u64 = 1 << 20;

/// Feeds accesses to a cache and holds the decisions of the last one.
#[derive(Debug)]
pub(super) struct Explainer {
    cache: Cache,
    file_pages: PageCount,
    files: HashMap<String, FileId>,
    /// A readahead state per (pid, file).
    handles: HashMap<(u64, FileId), HandleId>,
    now: Instant,
    decided: Vec<Explained>,
    // Reused buffers, lent to the cache.
    actions: Vec<Action>,
    frames: Vec<FrameId>,
    fills: Vec<Fill>,
}

/// A decision and the fills it caused.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) decision: Decision,
    pub(super) weighed: Option<Weighed>,
    pub(super) submitted: Vec<PageRange>,
}

impl Explainer {
    pub(super) fn new(policy: Policy, ra_pages: u32, file_pages: Option<u64>) -> Result<Self, Failure> {
        let cache = Cache::new(Config { ra_pages, policy, explain: true, ..Config::default() })
            .map_err(Failure::usage)?;
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

    /// The decisions that the last access caused, in order.
    pub(super) fn decisions(&self) -> &[Explained] {
        &self.decided
    }

    /// Processes a row; an error says what is wrong with it.
    pub(super) fn access(&mut self, record: &Record) -> Result<(), String> {
        self.decided.clear();
        // Rows of several processes may be out of order; the cache's time never runs back.
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
        // A read plan is read in parts.
        if wanted > ROW_PAGES_MAX && record.op != Op::Plan {
            return Err(format!("{wanted} pages at once; a row may touch {ROW_PAGES_MAX} at most"));
        }
        match record.op {
            Op::Read if !range.is_empty() => return self.read(handle, request),
            Op::Load | Op::Store => return self.touch(handle, range),
            Op::Plan if range.is_empty() => self.cache.end_plan(self.now, handle, &mut self.actions),
            Op::Plan => self
                .cache
                .set_read_plan(self.now, handle, &[range], &mut self.actions)
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
            // A policy that runs on every access may read ahead even then.
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

    /// Performs a read's actions, which must wake it with its pages.
    fn woken(&mut self) -> Result<(), String> {
        if self.act() { Ok(()) } else { Err(format!("more than {} pages in all", Config::UNLIMITED)) }
    }

    /// Performs the cache's actions, completing each fill at once; returns whether the waiting read
    /// was woken with its pages.
    fn act(&mut self) -> bool {
        let (mut woken, mut weighed) = (false, None);
        while !self.actions.is_empty() {
            for action in self.actions.drain(..) {
                match action {
                    Action::Weighed(by_policy) => weighed = Some(by_policy),
                    Action::Decided(decision) => {
                        let weighed = weighed.take();
                        self.decided.push(Explained { decision, weighed, submitted: Vec::new() })
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
                    | Action::Accepted { .. }
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

/// A policy as another crate has it.
#[cfg(test)]
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../../../bowwave-core/examples/policy.rs"]
mod policy;

/// Prints decisions as they come.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    output: &'a mut Output,
    json: bool,
    /// The policy records its candidates.
    weighs: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(output: &'a mut Output, json: bool, policy: Policy) -> Self {
        Self { output, json, weighs: policy == Policy::Stream }
    }

    /// Prints the column headings.
    pub(super) fn head(&mut self) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.output.line(columns(
            ["access", "pid", "page", "req", "trigger", "reason", "start", "size", "async"],
            "submitted",
            "mark",
            if self.weighs { "file  candidates" } else { "file" },
        ))
    }

    /// Prints a decision.
    pub(super) fn decision(&mut self, line: &ReadaheadLine<'_>) -> Result<(), Failure> {
        self.output.line(if self.json { line.to_string() } else { for_people(line) })
    }
}

impl Explained {
    /// Its line, if row number `access` led to it.
    pub(super) fn line<'a>(&'a self, access: u64, record: &'a Record) -> ReadaheadLine<'a> {
        let Self { decision, weighed, submitted } = self;
        let weighed = weighed.as_ref();
        ReadaheadLine { access, pid: record.pid, file: &record.file, decision, submitted, weighed }
    }
}

/// A candidate, as in `place 256 pages -3.1 ms no_gain`.
fn candidate(weighed: &WeighedCandidate) -> String {
    let &WeighedCandidate { candidate, pages, gain_ns, verdict } = weighed;
    let gain = gain_ns.map_or_else(String::new, |gain_ns| format!(" {:+.1} ms", gain_ns as f64 / 1e6));
    let unit = if pages == 1 { "page" } else { "pages" };
    format!("{candidate} {pages} {unit}{gain} {verdict}")
}

fn for_people(line: &ReadaheadLine<'_>) -> String {
    let &ReadaheadLine { access, pid, decision, .. } = line;
    let window = decision.plan.window;
    let numbers = [access, pid, decision.page.0, decision.req_pages.0].map(|number| number.to_string());
    let [access, pid, page, req] = &numbers;
    let window = [window.start.0, window.size.0, window.async_size.0].map(|number| number.to_string());
    let [start, size, ahead] = &window;
    let (trigger, reason) = (decision.trigger.name(), decision.plan.reason.name());
    let runs: Vec<String> =
        line.submitted.iter().map(|range| format!("{}..{}", range.start.0, range.end.0)).collect();
    let mark = decision.mark.map_or_else(|| "-".to_owned(), |page| page.0.to_string());
    let weighed = line.weighed.map_or(&[][..], |weighed| &weighed.candidates);
    let candidates: Vec<String> = weighed.iter().map(candidate).collect();
    let file = match candidates.as_slice() {
        [] => plain(line.file),
        all => format!("{}  {}", plain(line.file), all.join(", ")),
    };
    columns(
        [access, pid, page, req, trigger, reason, start, size, ahead],
        if runs.is_empty() { "-".to_owned() } else { runs.join(",") }.as_str(),
        &mark,
        &file,
    )
}

/// A line of columns, wide enough for most traces; wider values shift the rest.
fn columns(cells: [&str; 9], submitted: &str, mark: &str, file: &str) -> String {
    let [access, pid, page, req, trigger, reason, start, size, ahead] = cells;
    format!(
        "{access:>7} {pid:>6} {page:>8} {req:>5} {trigger:<7} {reason:<11} {start:>8} {size:>5} {ahead:>5} {submitted:<17} {mark:>8} {file}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_another_crate_is_explained() {
        let mut explainer = Explainer::new(policy::DOUBLING, 32, None).expect("a valid configuration");
        let mut windows = Vec::new();
        for page in 0..20 {
            let record = Record {
                op: Op::Read,
                file: "a".to_owned(),
                offset: page * 4096,
                length: 4096,
                ..Record::default()
            };
            explainer.access(&record).expect("a page of an endless file");
            windows.extend(explainer.decisions().iter().map(|explained| {
                let plan = explained.decision.plan;
                (plan.reason.name(), plan.window.start.0, plan.window.size.0)
            }));
        }
        let sizes = [("miss", 0, 2), ("lookahead", 2, 4), ("lookahead", 6, 8), ("lookahead", 14, 16)];
        assert_eq!(windows[..4], sizes);
        assert_eq!(windows[4..], [("lookahead", 30, 32)], "the largest window");
    }
}
