//! Records readahead across files: its events for a replay, its decisions for people.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bowwave_core::explain::SiblingLine;
use bowwave_core::readahead::{PlannedSibling, SiblingDirectories, SiblingEvent};
use bowwave_core::{Instant as EventTime, Journal};

use crate::decisions::{ActingFor, DecisionLog};

/// The events of readahead across the files of a store, and a digest of the actions they led to.
pub type SiblingJournal = Journal<SiblingEvent>;

/// The journal and the log, if they are enabled.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    journal: Option<(Instant, SiblingJournal)>,
    log: Option<DecisionLog>,
    /// The last open, if there is a log.
    open: Option<Open>,
}

/// An open that may lead to decisions.
#[derive(Debug)]
struct Open {
    /// Its number, from its first decision on.
    access: Option<u64>,
    pid: u64,
    path: PathBuf,
    policy: &'static str,
}

impl Recorder {
    /// A journal of at most `events` events, if more than 0, and this log.
    pub(super) fn new(events: usize, log: Option<DecisionLog>) -> Self {
        let journal = (events > 0).then(|| (Instant::now(), SiblingJournal::new((), events)));
        Self { journal, log, open: None }
    }

    pub(super) fn journal(&self) -> Option<SiblingJournal> {
        self.journal.as_ref().map(|(_, journal)| journal.clone())
    }

    /// Applies an event, and records it.
    pub(super) fn step(
        &mut self,
        siblings: &mut SiblingDirectories,
        event: SiblingEvent,
        plan: &mut Vec<PlannedSibling>,
    ) {
        let before = plan.len();
        let Some((started, journal)) = &mut self.journal else { return siblings.step(event, plan) };
        siblings.step(event.clone(), plan);
        let elapsed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        journal.record(EventTime(elapsed), event, &plan[before..]);
    }

    /// A program opens a file with this policy: later decisions are for it.
    pub(super) fn note_open(&mut self, path: &Path, policy: impl FnOnce() -> &'static str) {
        if self.log.is_some() {
            let (pid, path) = (ActingFor::current(), path.to_owned());
            self.open = Some(Open { access: None, pid, path, policy: policy() });
        }
    }

    /// Writes a decision for the last open to the log: these files of a directory are read ahead.
    pub(super) fn log(&mut self, plan: &[PlannedSibling], path: impl Fn(u32) -> PathBuf) {
        let (Some(log), Some(open)) = (&self.log, &mut self.open) else { return };
        for alike in plan.chunk_by(|a, b| a.sibling.reason == b.sibling.reason) {
            let access = *open.access.get_or_insert_with(|| log.next_access());
            let reason = alike[0].sibling.reason.name();
            let files: Vec<PathBuf> = alike.iter().map(|planned| path(planned.sibling.index)).collect();
            let (pid, file) = (open.pid, open.path.clone());
            log.add(open.policy, None, move || {
                let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                let file = &file.display().to_string();
                SiblingLine { access, pid, file, reason, files: &files }.to_string()
            });
        }
    }
}
