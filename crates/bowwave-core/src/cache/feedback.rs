//! What policies of files are told of what they have had read, and pages that they are done with.

use super::frames::{Flag, State};
use super::{Cache, FillState};
use crate::event::Urgency;
use crate::id::FileId;
use crate::page::{PageIndex, PageRange};
use crate::readahead::FillReport;

impl Cache {
    /// Tells the policy of a file that a fill has ended well.
    pub(super) fn report_fill(&mut self, fill: &FillState) {
        let now = self.now;
        let Some(Some(file)) = self.files.get_mut(fill.file.0 as usize) else { return };
        let Some(policy) = &mut file.policy else { return };
        let since = |then: crate::Instant| now.0.saturating_sub(then.0);
        policy.on_fill(&FillReport {
            now,
            range: fill.range,
            took_ns: since(fill.begun),
            waited_ns: fill.overtaken.map(since),
            demanded: fill.urgency == Urgency::Demand && fill.overtaken.is_none(),
        });
    }

    /// Readers are done with these pages: those that were used, once, are the next to go, as soon as nobody uses them.
    pub(super) fn let_go(&mut self, file: FileId, range: PageRange) {
        for page in (range.start.0..range.end.0).map(PageIndex) {
            let Some(id) = self.table.get(file, page).frame() else { continue };
            let frame = self.frames.get(id);
            match frame.state {
                _ if frame.has(Flag::Unused) => {}
                State::Inactive if frame.pins == 0 => self.frames.move_to_tail(id),
                State::Inactive | State::InFlight => self.frames.get_mut(id).set(Flag::Spent),
                State::Active | State::Doomed | State::Free => {}
            }
        }
    }
}
