//! Plays the script to our policy, and reports it as the kernel's tracepoints do.

use std::collections::BTreeSet;

use bowwave_baselines::LinuxConfig;
use bowwave_core::{
    Action, Advice, Cache, Config, Decision, Fault, FileId, FrameId, HandleId, Instant, PageAccess,
    PageCount, PageIndex, PageRange, PageSize, Pattern, ReadOutcome, Reason, Request, Trigger, Waiter,
};

use super::event::Event;
use super::script::{Op, Script, Target};

/// Pages the kernel submits at once when forced: 2 MiB.
const FORCED_PAGES: u64 = 512;
const FILE: FileId = FileId(0);
const NOW: Instant = Instant(0);

/// Expected result of a step.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) events: Vec<Event>,
    /// Pages that must be up to date before the step, and their number: pages in flight would
    /// change the result.
    pub(super) settle: Option<(PageRange, u64)>,
}

/// Expected result of a script.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) steps: Vec<Expected>,
    /// Cached pages at the end.
    pub(super) cached: u64,
}

/// Plays a script to a cache with policy `linux` and an instant device.
pub(super) fn play(linux: LinuxConfig, script: &Script) -> Outcome {
    let target = script.target;
    let ra_pages = u32::try_from(script.ra).expect("a window");
    let config = Config { ra_pages, policy: bowwave_baselines::linux(linux), ..Config::default() };
    let mut player = Player {
        cache: Cache::new(config).expect("a valid configuration"),
        target,
        folios: linux.folio_order_max > 0,
        ra_pages: script.ra,
        patterns: Vec::new(),
        wide: BTreeSet::new(),
        touched: BTreeSet::new(),
        actions: Vec::new(),
        decisions: Vec::new(),
    };
    player.cache.open_file(FILE, PageCount(target.pages()));
    let steps = script.ops.iter().map(|&op| player.step(op)).collect();
    Outcome { steps, cached: player.cached(PageRange::new(0, target.pages())) }
}

struct Player {
    cache: Cache,
    target: Target,
    folios: bool,
    ra_pages: u64,
    /// The `madvise` pattern of each handle's mapping, one per handle.
    patterns: Vec<Pattern>,
    /// Handles with doubled windows.
    wide: BTreeSet<usize>,
    /// Pages of each handle's mapping that no longer fault.
    touched: BTreeSet<(usize, u64)>,
    actions: Vec<Action>,
    decisions: Vec<Decision>,
}

impl Player {
    fn step(&mut self, op: Op) -> Expected {
        match op {
            Op::Read { handle, offset, length } => self.read(handle, offset, length),
            Op::Touch { handle, page } => self.touch(handle, page),
            Op::Advise { handle, pages, advice } => {
                match advice {
                    Advice::Sequential => _ = self.wide.insert(handle),
                    Advice::Normal => _ = self.wide.remove(&handle),
                    _ => {}
                }
                let settle = (advice == Advice::DontNeed).then(|| (pages, self.cached(pages)));
                let handle = self.handle(handle);
                self.cache.advise(NOW, handle, pages, advice, &mut self.actions);
                self.act();
                Expected {
                    events: self.events(|player, decision, events| player.forced(decision, events)),
                    settle,
                }
            }
            Op::MapAdvise { handle, pattern } => {
                self.handle(handle);
                self.patterns[handle] = pattern;
                Expected::default()
            }
        }
    }

    fn read(&mut self, handle: usize, offset: u64, length: u64) -> Expected {
        let handle = self.handle(handle);
        let page = PageSize::KIB_4;
        let range = page.request_of(offset, length).range;
        // A read cut short by the end of the file leaves the position there.
        let end = (offset + length).min(self.target.bytes());
        let request = Request { range, ends_inside: !end.is_multiple_of(page.bytes()) };
        let mut frames = Vec::new();
        let outcome = self.cache.access(
            NOW,
            Waiter(0),
            PageAccess::read(handle, request),
            &mut frames,
            &mut self.actions,
        );
        if outcome == ReadOutcome::Hit {
            self.unpin(&frames);
        }
        self.act();
        let events = self.events(|player, decision, events| {
            let (index, req) = (decision.page.0, decision.req_pages.0);
            if decision.trigger == Trigger::Mark {
                events.push(Event::Async { index, req });
                player.window(decision, events);
            } else {
                events.push(Event::Sync { index, req });
                player.sync(decision, events);
            }
        });
        Expected { events, settle: None }
    }

    fn touch(&mut self, handle: usize, page: u64) -> Expected {
        if !self.touched.insert((handle, page)) {
            return Expected::default();
        }
        let one = PageRange::new(page, page + 1);
        let settle = Some((one, self.cached(one)));
        let id = self.handle(handle);
        let pattern = self.patterns[handle];
        // In the kernel a fault requests a window.
        let req = self.ra_pages * if self.wide.contains(&handle) { 2 } else { 1 };
        let fault = Fault { page: PageIndex(page), pattern };
        self.cache.access(NOW, Waiter(0), PageAccess::fault(id, fault), &mut Vec::new(), &mut self.actions);
        self.act();
        let events = self.events(|player, decision, events| {
            let index = decision.page.0;
            if decision.trigger == Trigger::Mark {
                events.push(Event::Async { index, req });
                player.window(decision, events);
            } else if pattern == Pattern::Sequential {
                events.push(Event::Sync { index, req });
                player.sync(decision, events);
            } else if decision.plan.reason == Reason::Around {
                player.window(decision, events);
            }
        });
        Expected { events, settle }
    }

    /// Events of the decisions since the last call.
    fn events(&mut self, add: impl Fn(&Self, &Decision, &mut Vec<Event>)) -> Vec<Event> {
        let decisions = std::mem::take(&mut self.decisions);
        let mut events = Vec::new();
        for decision in decisions.iter().filter(|decision| decision.plan.reason != Reason::Demand) {
            add(self, decision, &mut events);
        }
        events
    }

    /// Events after a miss.
    fn sync(&self, decision: &Decision, events: &mut Vec<Event>) {
        match decision.plan.reason {
            Reason::Random => self.submit(decision, 0, events),
            Reason::Forced => self.forced(decision, events),
            _ => self.window(decision, events),
        }
    }

    /// A window and its submission, page by page without folios.
    fn window(&self, decision: &Decision, events: &mut Vec<Event>) {
        let window = decision.plan.window;
        if window.size.0 == 0 {
            return;
        }
        let (size, async_size) = (window.size.0, window.async_size.0);
        events.push(Event::Window { start: window.start.0, size, async_size });
        if !self.folios {
            self.submit(decision, async_size, events);
        }
    }

    fn submit(&self, decision: &Decision, lookahead: u64, events: &mut Vec<Event>) {
        let window = decision.plan.window.range().clip(PageIndex(self.target.pages()));
        if !window.is_empty() {
            events.push(Event::Submit { start: window.start.0, size: window.count().0, lookahead });
        }
    }

    fn forced(&self, decision: &Decision, events: &mut Vec<Event>) {
        let window = decision.plan.window.range().clip(PageIndex(self.target.pages()));
        let mut start = window.start.0;
        while start < window.end.0 {
            let size = FORCED_PAGES.min(window.end.0 - start);
            events.push(Event::Submit { start, size, lookahead: 0 });
            start += size;
        }
    }

    /// Returns a handle by number; opens it if needed.
    fn handle(&mut self, number: usize) -> HandleId {
        let id = |number: usize| HandleId(u32::try_from(number).expect("scripts have a handful of handles"));
        while self.patterns.len() <= number {
            self.cache.open_handle(id(self.patterns.len()), FILE);
            self.patterns.push(Pattern::Normal);
        }
        id(number)
    }

    fn cached(&self, range: PageRange) -> u64 {
        let range = range.intersect(PageRange::new(0, self.target.pages()));
        (range.start.0..range.end.0).filter(|&page| self.cache.is_cached(FILE, PageIndex(page))).count()
            as u64
    }

    /// Performs the cache's actions at once.
    fn act(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Decided(decision) => self.decisions.push(decision),
                    Action::Fill(fill) => self.cache.filled(NOW, fill.id, Ok(()), &mut self.actions),
                    Action::Wake { result: Ok(frames), .. } => self.unpin(&frames),
                    _ => {}
                }
            }
        }
    }

    fn unpin(&mut self, frames: &[FrameId]) {
        self.cache.unpin(NOW, frames, &mut self.actions);
    }
}
