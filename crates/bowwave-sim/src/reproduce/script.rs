//! Scripted reads: a cache with an instant device, one file, and the decisions of each read.

use bowwave_core::{
    Action, Advice, Cache, Config, Decision, FileId, FrameId, HandleId, Instant, PageCount, PageRange,
    PageSize, Part, Policy, ReadOutcome, Reason, Request, Stats, Waiter,
};

use super::ReproduceError;

/// A decision and the pages it submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    pub(super) sent: Vec<PageRange>,
}

/// An unbounded cache, one file, handles by number.
#[derive(Debug)]
pub(super) struct Script {
    cache: Cache,
    handles: u32,
    decided: Vec<Decided>,
    /// Counters before the observed part.
    before: Stats,
    actions: Vec<Action>,
    frames: Vec<FrameId>,
}

/// What a policy did in the observed part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Calls of the policy.
    pub(super) calls: u64,
    /// Page-cache lookups.
    pub(super) lookups: u64,
    /// Requests to the device.
    pub(super) requests: u64,
    /// Its decisions.
    pub(super) decided: Vec<Decided>,
}

impl Seen {
    /// Number of decisions with this reason.
    pub(super) fn count(&self, reason: Reason) -> u64 {
        self.decided.iter().filter(|one| one.is(reason)).count() as u64
    }
}

const FILE: FileId = FileId(0);
const NOW: Instant = Instant(0);

impl Script {
    /// An uncached file of `pages` pages, and handle 0.
    pub(super) fn new(policy: Policy, ra_pages: u32, pages: u64) -> Result<Self, ReproduceError> {
        let mut cache = Cache::new(Config { policy, ra_pages, ..Config::default() })?;
        cache.open_file(FILE, PageCount(pages));
        let mut script = Self {
            cache,
            handles: 0,
            decided: Vec::new(),
            before: Stats::default(),
            actions: Vec::new(),
            frames: Vec::new(),
        };
        script.open();
        Ok(script)
    }

    /// Opens another handle of the file and uses it from now on.
    pub(super) fn open(&mut self) {
        self.cache.open_handle(HandleId(self.handles), FILE);
        self.handles += 1;
    }

    /// Reads pages in one call.
    pub(super) fn read(&mut self, start: u64, pages: u64) {
        self.read_some(start, pages, pages);
    }

    /// A read of `pages` pages that returns after the first `got`.
    pub(super) fn read_some(&mut self, start: u64, pages: u64, got: u64) {
        self.walk(PageRange::new(start, start + pages).into(), got);
    }

    /// Reads bytes in one call.
    pub(super) fn read_bytes(&mut self, offset: u64, bytes: u64) {
        let request = PageSize::KIB_4.request_of(offset, bytes);
        self.walk(request, request.range.count().0);
    }

    fn walk(&mut self, request: Request, got: u64) {
        let start = request.range.start.0;
        let handle = HandleId(self.handles - 1);
        for page in start..start + got {
            let part = Part { handle, request, pages: PageRange::new(page, page + 1) };
            let outcome = self.cache.access(NOW, Waiter(0), part.into(), &mut self.frames, &mut self.actions);
            if outcome == ReadOutcome::Hit {
                self.cache.unpin(NOW, &self.frames, &mut self.actions);
            }
            self.act();
        }
    }

    /// Sequential reads of `each` pages over a range.
    pub(super) fn read_all(&mut self, range: std::ops::Range<u64>, each: u64) {
        for start in range.step_by(each as usize) {
            self.read(start, each);
        }
    }

    /// Announces pages (`WILLNEED`).
    pub(super) fn will_need(&mut self, start: u64, pages: u64) {
        let range = PageRange::new(start, start + pages);
        self.cache.advise(NOW, HandleId(self.handles - 1), range, Advice::WillNeed, &mut self.actions);
        self.act();
    }

    /// Reclaims pages.
    pub(super) fn lose(&mut self, start: u64, pages: u64) {
        self.cache.invalidate(FILE, PageRange::new(start, start + pages));
    }

    /// Sets whether the device's queue is congested.
    pub(super) fn congested(&mut self, congested: bool) {
        self.cache.set_congested(congested);
    }

    /// Starts the observed part.
    pub(super) fn look(&mut self) {
        self.decided.clear();
        self.before = self.cache.stats();
    }

    /// Results of the observed part.
    pub(super) fn seen(self) -> Seen {
        let (before, after) = (self.before, self.cache.stats());
        Seen {
            calls: after.policy_calls - before.policy_calls,
            lookups: after.lookups() - before.lookups(),
            requests: after.fills - before.fills,
            decided: self.decided,
        }
    }

    /// Completes the cache's requests at once.
    fn act(&mut self) {
        while !self.actions.is_empty() {
            let actions = std::mem::take(&mut self.actions);
            let mut fills = Vec::new();
            for action in actions {
                match action {
                    Action::Weighed(_) => {}
                    Action::Decided(decision) => self.decided.push(Decided { decision, sent: Vec::new() }),
                    Action::Fill(fill) => {
                        if let Some(decided) = self.decided.last_mut() {
                            decided.sent.push(fill.range);
                        }
                        fills.push(fill.id);
                    }
                    Action::Wake { result: Ok(frames), .. } => {
                        self.cache.unpin(NOW, &frames, &mut self.actions);
                    }
                    Action::Wake { .. } | Action::Promote { .. } | Action::Cancel { .. } => {}
                    Action::Unmap { .. } | Action::Released { .. } | Action::Retired { .. } => {}
                    Action::Accepted { .. } | Action::WriteOut(_) | Action::PromoteWrite { .. } => {
                        unreachable!("nobody writes here")
                    }
                }
            }
            for fill in fills {
                self.cache.filled(NOW, fill, Ok(()), &mut self.actions);
            }
        }
    }
}

impl Decided {
    /// Whether it was decided for this reason.
    pub(super) fn is(&self, reason: Reason) -> bool {
        self.decision.plan.reason == reason
    }

    /// First page and pages of its window.
    pub(super) fn window(&self) -> (u64, u64) {
        let window = self.decision.plan.window;
        (window.start.0, window.size.0)
    }

    /// `reason@start+size/async`, with `=` before a fully cached window.
    pub(super) fn line(&self) -> String {
        let (start, size) = self.window();
        let ahead = self.decision.plan.window.async_size.0;
        let reason = self.decision.plan.reason.name();
        let idle = if self.sent.is_empty() && size > 0 { "=" } else { "" };
        if size == 0 {
            format!("{reason}@{start}")
        } else if ahead == 0 {
            format!("{idle}{reason}@{start}+{size}")
        } else {
            format!("{idle}{reason}@{start}+{size}/{ahead}")
        }
    }
}

/// Plays a script with the old algorithm and the new.
pub(super) fn both(
    ra_pages: u32,
    pages: u64,
    play: impl Fn(&mut Script),
) -> Result<[Seen; 2], ReproduceError> {
    let one = |policy| {
        let mut script = Script::new(policy, ra_pages, pages)?;
        play(&mut script);
        Ok::<_, ReproduceError>(script.seen())
    };
    Ok([one(bowwave_baselines::LEGACY)?, one(Policy::OnDemand)?])
}

/// Decisions in a line, with repetitions counted.
pub(super) fn lines(decided: &[Decided], most: usize) -> String {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for one in decided {
        let line = one.line();
        match parts.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => parts.push((line, 1)),
        }
    }
    let left = parts.len().saturating_sub(most);
    let shown = parts.into_iter().take(most);
    let mut shown: Vec<String> =
        shown.map(|(line, count)| if count > 1 { format!("{count}×{line}") } else { line }).collect();
    if left > 0 {
        shown.push(format!("… {left} more"));
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(" ") }
}
