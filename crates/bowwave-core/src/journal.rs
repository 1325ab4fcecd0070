//! Journals: the events of a state machine, from which its decisions are replayed.

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::cache::Cache;
use crate::check::ActionDigest;
use crate::config::Config;
use crate::event::{Action, Decision, Event};
use crate::time::Instant;

/// The events of one state machine since it began, and a digest of the actions they led to.
#[derive(Clone, Debug)]
pub struct Journal<E: Replay> {
    config: E::Config,
    events: Vec<(Instant, E)>,
    /// Most events recorded.
    limit: usize,
    digest: ActionDigest,
    /// Events came after the limit was reached; the journal replays up to there.
    truncated: bool,
}

/// An event of a state machine whose actions depend on its configuration and its events alone.
pub trait Replay: Clone + Debug {
    /// The state machine.
    type Machine;
    /// What it is built from.
    type Config: Clone + Debug;
    /// What it returns.
    type Action: Debug;
    /// What its policies decide.
    type Decision;

    /// A machine without events; `None` if the configuration is out of bounds.
    fn machine(config: &Self::Config) -> Option<Self::Machine>;

    /// Applies the event, and appends all actions that it leads to.
    fn apply(self, machine: &mut Self::Machine, now: Instant, out: &mut Vec<Self::Action>);

    /// The decision that an action reports.
    fn decision(action: &Self::Action) -> Option<Self::Decision>;
}

impl<E: Replay> Journal<E> {
    /// A journal of at most `limit` events of a new machine.
    pub fn new(config: E::Config, limit: usize) -> Self {
        Self { config, events: Vec::new(), limit, digest: ActionDigest::default(), truncated: false }
    }

    /// Records an event and its actions.
    pub fn record(&mut self, now: Instant, event: E, actions: &[E::Action]) {
        if self.events.len() >= self.limit {
            self.truncated = true;
            return;
        }
        self.events.push((now, event));
        self.digest.add(actions);
    }

    /// The events in order.
    pub fn events(&self) -> &[(Instant, E)] {
        &self.events
    }

    /// Whether events were omitted.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The decisions of the policies, each with the number of the event that led to it, from a
    /// replay.
    pub fn decisions(&self) -> Vec<(usize, E::Decision)> {
        let mut decisions = Vec::new();
        self.run(|number, actions| {
            decisions.extend(actions.iter().filter_map(E::decision).map(|decision| (number, decision)));
        });
        decisions
    }

    /// Whether a replay in a new machine has identical actions.
    pub fn replays(&self) -> bool {
        self.replay().is_some()
    }

    /// Replays the events; returns the new machine if its actions are identical.
    pub fn replay(&self) -> Option<E::Machine> {
        let mut digest = ActionDigest::default();
        let machine = self.run(|_, actions| digest.add(actions))?;
        (digest == self.digest).then_some(machine)
    }

    /// Applies the events to a new machine; `None` if it cannot be built.
    fn run(&self, mut see: impl FnMut(usize, &[E::Action])) -> Option<E::Machine> {
        let mut machine = E::machine(&self.config)?;
        let mut out = Vec::new();
        for (number, (now, event)) in self.events.iter().enumerate() {
            out.clear();
            event.clone().apply(&mut machine, *now, &mut out);
            see(number, &out);
        }
        Some(machine)
    }
}

impl Replay for Event {
    type Machine = Cache;
    type Config = Config;
    type Action = Action;
    type Decision = Decision;

    fn machine(config: &Config) -> Option<Cache> {
        Cache::new(config.clone()).ok()
    }

    fn apply(self, cache: &mut Cache, now: Instant, out: &mut Vec<Action>) {
        cache.step(now, self, out);
    }

    fn decision(action: &Action) -> Option<Decision> {
        if let Action::Decided(decision) = action { Some(*decision) } else { None }
    }
}
