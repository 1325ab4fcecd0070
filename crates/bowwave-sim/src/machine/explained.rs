//! Decisions with what led to them, for `explain`.

use bowwave_core::{Decision, PageRange, Weighed};

use super::ProcessId;

/// A decision of the machine's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The process that read.
    pub process: ProcessId,
    /// Accesses that the process had begun, the current one included.
    pub accesses: u64,
    /// The decision.
    pub decision: Decision,
    /// What the policy weighed, for the first of its decisions at a page.
    pub weighed: Option<Weighed>,
    /// The ranges that were requested.
    pub submitted: Vec<PageRange>,
}

/// The decisions so far, if they are collected.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub(super) list: Vec<Explained>,
    weighed: Option<Weighed>,
}

impl Decisions {
    pub(super) fn weighed(&mut self, weighed: Weighed) {
        self.weighed = Some(weighed);
    }

    pub(super) fn decided(&mut self, process: ProcessId, accesses: u64, decision: Decision) {
        let weighed = self.weighed.take();
        self.list.push(Explained { process, accesses, decision, weighed, submitted: Vec::new() });
    }

    pub(super) fn requested(&mut self, range: PageRange) {
        if let Some(last) = self.list.last_mut() {
            last.submitted.push(range);
        }
    }
}
