//! A cache whose steps are logged, checked and replayed.

use bowwave_core::check::{ActionDigest, Checker};
use bowwave_core::{Action, Cache, Config, Event, Instant};

pub(crate) struct Checked {
    config: Config,
    pub(crate) cache: Cache,
    pub(crate) checker: Checker,
    pub(crate) now: u64,
    log: Vec<(Instant, Event)>,
    digest: ActionDigest,
}

impl Checked {
    pub(crate) fn new(config: Config) -> Self {
        let cache = Cache::new(config.clone()).expect("within bounds");
        let (checker, digest) = (Checker::default(), ActionDigest::default());
        Self { config, cache, checker, now: 0, log: Vec::new(), digest }
    }

    /// Number of events so far.
    pub(crate) fn events(&self) -> usize {
        self.log.len()
    }

    /// Makes a step; returns its actions, or the violated invariant.
    pub(crate) fn step(&mut self, event: Event) -> Result<Vec<Action>, String> {
        let mut out = Vec::new();
        self.cache.step(Instant(self.now), event.clone(), &mut out);
        self.record(event, &out)?;
        Ok(out)
    }

    /// Logs and checks a call that stands for this event and had these actions.
    pub(crate) fn record(&mut self, event: Event, out: &[Action]) -> Result<(), String> {
        let now = Instant(self.now);
        let checked = self.checker.check(now, &event, out, &self.cache);
        checked.map_err(|violation| format!("{} at {event:?}", violation.0))?;
        self.digest.add(out);
        self.log.push((now, event));
        Ok(())
    }

    /// I8: replays the log, with the same actions; returns the resulting cache.
    pub(crate) fn replay(&self) -> Cache {
        let mut cache = Cache::new(self.config.clone()).expect("valid before");
        let (mut digest, mut out) = (ActionDigest::default(), Vec::new());
        for (now, event) in &self.log {
            out.clear();
            cache.step(*now, event.clone(), &mut out);
            digest.add(&out);
        }
        assert_eq!(digest, self.digest, "I8: the replay of the log acts differently");
        cache
    }
}
