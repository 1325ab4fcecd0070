//! A journal of everything that happened to a shard: a field report that replays.

use bowwave_core::check::ActionDigest;
use bowwave_core::{Action, Cache, Config, Event, Instant};

/// The events of one shard since it began, and a digest of the actions they led to.
#[derive(Clone, Debug)]
pub struct Journal {
    config: Config,
    events: Vec<(Instant, Event)>,
    /// Most events kept.
    limit: usize,
    digest: ActionDigest,
    /// Events came after the limit was reached; what is kept replays up to there.
    truncated: bool,
}

impl Journal {
    pub(crate) fn new(config: Config, limit: usize) -> Self {
        Self { config, events: Vec::new(), limit, digest: ActionDigest::default(), truncated: false }
    }

    /// Notes an event and its actions.
    pub(crate) fn record(&mut self, now: Instant, event: Event, actions: &[Action]) {
        if self.events.len() >= self.limit {
            self.truncated = true;
            return;
        }
        self.events.push((now, event));
        self.digest.add(actions);
    }

    /// The events in order.
    #[must_use]
    pub fn events(&self) -> &[(Instant, Event)] {
        &self.events
    }

    /// Whether more happened than was kept.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Steps a fresh cache through the events; tells whether it acted exactly as the shard did.
    #[must_use]
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
