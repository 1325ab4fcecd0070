//! A journal of all events of a shard, for replay.

use bowwave_core::check::ActionDigest;
use bowwave_core::{Action, Cache, Config, Decision, Event, Instant};

/// The events of one shard since it began, and a digest of the actions they led to.
#[derive(Clone, Debug)]
pub struct Journal {
    config: Config,
    events: Vec<(Instant, Event)>,
    /// Most events recorded.
    limit: usize,
    digest: ActionDigest,
    /// Events came after the limit was reached; the journal replays up to there.
    truncated: bool,
}

impl Journal {
    pub(crate) fn new(config: Config, limit: usize) -> Self {
        Self { config, events: Vec::new(), limit, digest: ActionDigest::default(), truncated: false }
    }

    /// Records an event and its actions.
    pub(crate) fn record(&mut self, now: Instant, event: Event, actions: &[Action]) {
        if self.events.len() >= self.limit {
            self.truncated = true;
            return;
        }
        self.events.push((now, event));
        self.digest.add(actions);
    }

    /// The events in order.
    pub fn events(&self) -> &[(Instant, Event)] {
        &self.events
    }

    /// Whether events were omitted.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The decisions of the policies, each with the number of the event that led to it, from a
    /// replay.
    pub fn decisions(&self) -> Vec<(usize, Decision)> {
        let Ok(mut cache) = Cache::new(self.config.clone()) else { return Vec::new() };
        let (mut decisions, mut out) = (Vec::new(), Vec::new());
        for (number, (now, event)) in self.events.iter().enumerate() {
            out.clear();
            cache.step(*now, event.clone(), &mut out);
            decisions.extend(out.iter().filter_map(|action| match action {
                Action::Decided(decision) => Some((number, *decision)),
                _ => None,
            }));
        }
        decisions
    }

    /// Replays the events in a new cache; returns whether its actions are identical.
    pub fn replays(&self) -> bool {
        let Ok(mut cache) = Cache::new(self.config.clone()) else { return false };
        let (mut digest, mut out) = (ActionDigest::default(), Vec::new());
        for (now, event) in &self.events {
            out.clear();
            cache.step(*now, event.clone(), &mut out);
            digest.add(&out);
        }
        digest == self.digest
    }
}
