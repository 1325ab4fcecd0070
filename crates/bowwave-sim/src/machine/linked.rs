//! Accesses that begin a given time after the end of another access, of any process.

use std::collections::HashMap;
use std::sync::Arc;

use bowwave_core::Instant;

use super::{Links, Machine, ProcessId};

/// The links of a machine, and what has ended.
#[derive(Debug, Default)]
pub(super) struct Linked {
    links: Arc<Links>,
    ended: HashMap<u32, Instant>,
    /// Processes that wait for the end of an access.
    waiting: HashMap<u32, Vec<ProcessId>>,
}

impl Machine {
    /// Sets the links of processes with [`Pace::Linked`](super::Pace::Linked), before these are
    /// added.
    pub fn set_links(&mut self, links: Arc<Links>) {
        self.linked.links = links;
    }

    /// Finds the time of a process's next access, or waits for the end of the access before it.
    pub(super) fn link(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        let Some(number) = process.unlinked() else { return };
        let link = self.linked.links.of.get(number).copied().unwrap_or_default();
        let since = match link.after {
            None => Some(Instant(0)),
            Some(after) => self.linked.ended.get(&after).copied(),
        };
        match (since, link.after) {
            (Some(since), _) => process.link(Instant(since.0.saturating_add(link.think_ns))),
            (None, Some(after)) => self.linked.waiting.entry(after).or_default().push(id),
            (None, None) => {}
        }
    }

    /// An access has ended: those that begin after it have their time.
    pub(super) fn ended(&mut self, process: ProcessId, number: Option<u32>, free: Instant) {
        let Some(number) = number.filter(|_| self.processes[process.0 as usize].is_linked()) else { return };
        self.linked.ended.insert(number, free);
        for id in self.linked.waiting.remove(&number).unwrap_or_default() {
            self.link(id);
            self.schedule(id);
        }
    }
}
