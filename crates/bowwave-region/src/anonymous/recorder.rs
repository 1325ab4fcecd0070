//! Journal of a pager's events, and log of its decisions.

use std::collections::{BTreeMap, HashMap};

use bowwave_core::explain::{SwapLine, in_order};
use bowwave_core::swap::pager::{
    PageId, Pager, PagerAction, PagerEvent, RegionId, SwapDecision, SwapIn, SwapTuning, Touch, TouchOutcome,
};
use bowwave_core::{ConfigError, Instant, PageCount, PageIndex, Waiter};
use bowwave_engine::{ActingFor, DecisionLog};

use super::memory::{Memory, Pages};
use super::queue::now;
use super::region::SwapOptions;
use super::swap::State;
use crate::uffd::SYSTEM_PAGE;

/// The events of a swap's pager since it began, and a digest of the actions they led to.
pub type SwapJournal = bowwave_core::Journal<PagerEvent>;

/// What the options of a swap request.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) journal: Option<SwapJournal>,
    log: Option<DecisionLog>,
    /// Address of page 0.
    start: usize,
}

impl Recorder {
    /// `None` if nothing is requested.
    pub(super) fn new(options: &SwapOptions, pager: &Pager, memory: &Memory) -> Option<Box<Self>> {
        let events = options.journal_events;
        let journal = (events > 0).then(|| SwapJournal::new(*pager.config(), events));
        let recorder = Self { journal, log: options.decisions.clone(), start: memory.address(0) };
        is_requested(options).then(|| Box::new(recorder))
    }

    fn record(
        &mut self,
        now: Instant,
        event: PagerEvent,
        actions: &[PagerAction],
        (pager, regions): (&Pager, &HashMap<RegionId, Pages>),
    ) {
        if let Some(log) = &self.log {
            let mut access = None;
            let decided = actions.iter().enumerate().filter_map(|(at, action)| match action {
                PagerAction::Decided(decision) => Some((decision, reads_of(&actions[at + 1..]))),
                _ => None,
            });
            for (decision, reads) in decided {
                let access = *access.get_or_insert_with(|| log.next_access());
                let ids = reads.iter().flat_map(|read| &read.pages).chain([&decision.page]);
                let places = ids.filter_map(|id| Some((id.region, regions.get(&id.region)?.start)));
                let places: BTreeMap<RegionId, u64> = places.collect();
                let (decision, start) = (decision.clone(), self.start);
                let line = move || line(access, &decision, reads, &places, start);
                log.add(pager.config().policy.name(), None, line);
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.record(now, event, actions);
        }
    }
}

/// Whether the options request that anything is recorded.
pub(super) fn is_requested(options: &SwapOptions) -> bool {
    options.journal_events > 0 || options.decisions.is_some()
}

/// The reads up to the next decision.
fn reads_of(actions: &[PagerAction]) -> Vec<SwapIn> {
    let own = actions.iter().take_while(|action| !matches!(action, PagerAction::Decided(_)));
    let reads = own.filter_map(|action| match action {
        PagerAction::Read(read) => Some(read.clone()),
        _ => None,
    });
    in_order(reads.collect())
}

/// A line of the log. Regions are named by their addresses.
fn line(
    access: u64,
    decision: &SwapDecision,
    reads: Vec<SwapIn>,
    places: &BTreeMap<RegionId, u64>,
    start: usize,
) -> String {
    let address = |page: &u64| format!("{:#x}", start + *page as usize * SYSTEM_PAGE);
    let names: BTreeMap<RegionId, String> = places.iter().map(|(&id, page)| (id, address(page))).collect();
    let pid = ActingFor::current();
    let name = |id: PageId| (pid, names.get(&id.region).map_or("", String::as_str));
    SwapLine { access, decision, reads: &reads, name }.to_string()
}

impl State {
    /// A program touches a page.
    pub(super) fn touch(&mut self, waiter: Waiter, id: PageId, touch: Touch) -> TouchOutcome {
        let event = PagerEvent::Touched { waiter, id, touch };
        self.call(Some(event), |pager, now, out| pager.touch(now, waiter, id, touch, out))
    }

    /// Adds a region.
    pub(super) fn add(
        &mut self,
        region: RegionId,
        base: PageIndex,
        pages: PageCount,
    ) -> Result<(), ConfigError> {
        let event = PagerEvent::RegionAdded { region, base, pages };
        self.call(Some(event), |pager, _, _| pager.add_region(region, base, pages))
    }

    /// Changes settings.
    pub(super) fn tune(&mut self, tuning: SwapTuning) -> Result<(), ConfigError> {
        self.call(Some(PagerEvent::Tuned { tuning }), |pager, _, _| pager.tune(tuning))
    }

    /// Applies any other event to the pager.
    pub(super) fn apply(&mut self, event: PagerEvent) {
        let recorded = self.recorder.is_some().then(|| event.clone());
        self.call(recorded, |pager, now, out| pager.step(now, event, out));
    }

    /// Calls the pager, and records the event with the actions it leads to.
    fn call<T>(
        &mut self,
        event: Option<PagerEvent>,
        call: impl FnOnce(&mut Pager, Instant, &mut Vec<PagerAction>) -> T,
    ) -> T {
        let now = now();
        let (Some(recorder), Some(event)) = (&mut self.recorder, event) else {
            return call(&mut self.pager, now, &mut self.out);
        };
        // Apart from earlier actions, the last of which the pager may extend.
        let mut out = Vec::new();
        let result = call(&mut self.pager, now, &mut out);
        recorder.record(now, event, &out, (&self.pager, &self.regions));
        self.out.append(&mut out);
        result
    }
}
