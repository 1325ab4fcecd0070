//! A cache whose steps are logged, checked and replayed.

use bowwave_core::check::Checker;
use bowwave_core::{Action, Cache, Config, Event, Instant, Journal};

pub(crate) struct Checked {
    pub(crate) cache: Cache,
    pub(crate) checker: Checker,
    pub(crate) now: u64,
    journal: Journal<Event>,
}

impl Checked {
    pub(crate) fn new(config: Config) -> Self {
        let cache = Cache::new(config.clone()).expect("within bounds");
        Self { cache, checker: Checker::default(), now: 0, journal: Journal::new(config, usize::MAX) }
    }

    /// Number of events so far.
    pub(crate) fn events(&self) -> usize {
        self.journal.events().len()
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
        self.journal.record(now, event, out);
        Ok(())
    }

    /// I8: replays the log, with the same actions; returns the resulting cache.
    pub(crate) fn replay(&self) -> Cache {
        self.journal.replay().expect("I8: the replay of the log acts differently")
    }
}
