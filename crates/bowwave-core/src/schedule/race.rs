//! Hedged reads at the device: when each is late, and which of its requests are in flight.

use alloc::vec::Vec;

use super::DispatchId;
use crate::network::Hedging;
use crate::time::Instant;

/// Bytes. The longest read that may be hedged. Larger: times also depend on the length. Smaller:
/// fewer late reads are hedged.
const BYTES_MAX: u64 = 256 << 10;

/// The hedged reads of a store. Unordered: there are few.
#[derive(Debug)]
pub(super) struct Races {
    hedging: Hedging,
    races: Vec<Race>,
}

/// A read that may have two requests. The first response ends it.
#[derive(Clone, Copy, Debug)]
struct Race {
    id: DispatchId,
    /// When each request was sent.
    sent: [Instant; 2],
    /// When the read is late; `None` after that time has come, whether it was hedged or not.
    late: Option<Instant>,
    /// Requests in flight.
    running: u32,
}

impl Races {
    pub(super) const fn new(hedging: Hedging) -> Self {
        Self { hedging, races: Vec::new() }
    }

    pub(super) fn begin(&mut self, now: Instant, id: DispatchId, bytes: u64) -> bool {
        if bytes > BYTES_MAX {
            return false;
        }
        let late = Some(Instant(now.0.saturating_add(self.hedging.begin())));
        self.races.push(Race { id, sent: [now; 2], late, running: 1 });
        true
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.races.iter().filter_map(|race| race.late).min()
    }

    /// A late read that may be hedged: its second request is now in flight.
    pub(super) fn expire(&mut self, now: Instant) -> Option<DispatchId> {
        for race in &mut self.races {
            if race.late.is_some_and(|late| late <= now) {
                race.late = None;
                if self.hedging.grant() {
                    (race.sent[1], race.running) = (now, 2);
                    return Some(race.id);
                }
            }
        }
        None
    }

    pub(super) fn answered(&mut self, now: Instant, id: DispatchId, is_second: bool) -> bool {
        let Some(at) = self.at(id) else { return false };
        let sent = self.races.swap_remove(at).sent[usize::from(is_second)];
        self.hedging.took(now.0.saturating_sub(sent.0));
        true
    }

    pub(super) fn failed(&mut self, id: DispatchId) -> bool {
        let Some(at) = self.at(id) else { return false };
        self.races[at].running -= 1;
        let is_last = self.races[at].running == 0;
        if is_last {
            self.races.swap_remove(at);
        }
        is_last
    }

    fn at(&self, id: DispatchId) -> Option<usize> {
        self.races.iter().position(|race| race.id == id)
    }
}
