//! Requests, from the row that caused them to their dispatch.

use std::collections::{BTreeMap, HashMap};

use bowwave_core::schedule::{Class, RequestId};
use bowwave_core::{FillId, Urgency};

/// A request to the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The row that caused it.
    pub(super) row: u64,
    pub(super) file: u32,
    /// Pages of the file.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The fill it is part of; `None` for a write.
    pub(super) fill: Option<FillId>,
    pub(super) urgency: Urgency,
    /// Whether it was promoted to sync while it waited.
    pub(super) promoted: bool,
    pub(super) at_device: bool,
    pub(super) id: RequestId,
}

/// Requests that have not completed.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// By [`RequestId::slot`], which stays the same from submission to completion.
    by_slot: Vec<Option<Piece>>,
    /// Per fill, its incomplete requests.
    fills: HashMap<u64, Vec<RequestId>>,
    /// Per file, pages waiting to be written.
    writes: HashMap<u32, BTreeMap<u64, RequestId>>,
    /// Waiting requests: sync, async.
    pub(super) waiting: [u64; 2],
}

impl Piece {
    fn class(&self) -> usize {
        class_of(self.urgency) as usize
    }
}

/// The class of a request.
fn class_of(urgency: Urgency) -> Class {
    match urgency {
        Urgency::Demand => Class::Sync,
        Urgency::Readahead => Class::Async,
    }
}

impl Pieces {
    /// Adds a waiting request.
    pub(super) fn insert(&mut self, piece: Piece) {
        let slot = piece.id.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(piece);
        self.waiting[piece.class()] += 1;
        match piece.fill {
            Some(fill) => self.fills.entry(fill.0).or_default().push(piece.id),
            None => {
                let pages = self.writes.entry(piece.file).or_default();
                pages.extend((piece.start..piece.end).map(|page| (page, piece.id)));
            }
        }
    }

    /// A request that has not completed.
    pub(super) fn get(&self, id: RequestId) -> Option<&Piece> {
        self.by_slot.get(id.slot())?.as_ref().filter(|piece| piece.id == id)
    }

    /// Marks a waiting request as demand; its id may change.
    pub(super) fn promote(&mut self, old: RequestId, id: RequestId) {
        let Some(piece) = self.by_slot[old.slot()].take() else { return };
        self.waiting[piece.class()] -= 1;
        let promoted = piece.promoted || piece.urgency == Urgency::Readahead;
        let piece = Piece { urgency: Urgency::Demand, promoted, id, ..piece };
        if let Some(fill) = piece.fill
            && let Some(ids) = self.fills.get_mut(&fill.0)
        {
            ids.retain(|&other| other != old);
        }
        self.insert(piece);
    }

    /// The request was dispatched.
    pub(super) fn dispatched(&mut self, id: RequestId) -> Option<Piece> {
        let piece = *self.get(id)?;
        self.by_slot[id.slot()] = Some(Piece { at_device: true, ..piece });
        self.waiting[piece.class()] -= 1;
        if piece.fill.is_none()
            && let Some(pages) = self.writes.get_mut(&piece.file)
        {
            (piece.start..piece.end).for_each(|page| _ = pages.remove(&page));
        }
        Some(piece)
    }

    /// The request completed; returns its fill if that is now complete.
    pub(super) fn ended(&mut self, id: RequestId) -> Option<FillId> {
        let fill = self.by_slot[id.slot()].take()?.fill?;
        let ids = self.fills.get_mut(&fill.0)?;
        ids.retain(|&other| other != id);
        if !ids.is_empty() {
            return None;
        }
        self.fills.remove(&fill.0);
        Some(fill)
    }

    /// The request was cancelled before dispatch.
    pub(super) fn dropped(&mut self, id: RequestId) {
        if let Some(piece) = self.by_slot[id.slot()].take() {
            self.waiting[piece.class()] -= 1;
        }
    }

    /// The incomplete requests of a fill, in order of creation.
    pub(super) fn of_fill(&self, fill: FillId) -> Vec<RequestId> {
        self.fills.get(&fill.0).cloned().unwrap_or_default()
    }

    /// The fill was cancelled.
    pub(super) fn forget_fill(&mut self, fill: FillId) {
        self.fills.remove(&fill.0);
    }

    /// The waiting writes of a file, in address order.
    pub(super) fn writes_of(&self, file: u32) -> Vec<RequestId> {
        let mut ids: Vec<RequestId> =
            self.writes.get(&file).into_iter().flat_map(BTreeMap::values).copied().collect();
        ids.dedup();
        ids
    }

    /// The pages of a range that are not waiting to be written, as runs.
    pub(super) fn unwritten(&self, file: u32, start: u64, end: u64) -> Vec<(u64, u64)> {
        let waiting = self.writes.get(&file);
        let taken = waiting.into_iter().flat_map(|pages| pages.range(start..end)).map(|(&page, _)| page);
        let (mut runs, mut at) = (Vec::new(), start);
        for page in taken.chain([end]) {
            if at < page {
                runs.push((at, page));
            }
            at = page + 1;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_core::Instant;
    use bowwave_core::schedule::{Direction, Priority, Request, Scheduler, SchedulerConfig};

    fn piece(scheduler: &mut Scheduler, start: u64, end: u64, fill: Option<u64>) -> Piece {
        let (direction, urgency, priority) = (Direction::Write, Urgency::Readahead, Priority::default());
        let request = Request { start, end, direction, object: 0, urgency, priority };
        let id = scheduler.add(Instant(0), request).id;
        Piece {
            row: 0,
            file: 3,
            start,
            end,
            fill: fill.map(FillId),
            urgency,
            promoted: false,
            at_device: false,
            id,
        }
    }

    #[test]
    fn pages_wait_to_be_written_until_the_device_has_them_and_requests_end_once() {
        let mut scheduler = Scheduler::new(SchedulerConfig::default()).unwrap();
        let mut pieces = Pieces::default();
        let (low, high) = (piece(&mut scheduler, 4, 6, None), piece(&mut scheduler, 8, 9, None));
        pieces.insert(high);
        pieces.insert(low);
        assert_eq!(pieces.unwritten(3, 0, 12), [(0, 4), (6, 8), (9, 12)]);
        assert_eq!(pieces.unwritten(3, 4, 6), []);
        assert_eq!((pieces.writes_of(3), pieces.waiting), (vec![low.id, high.id], [0, 2]));
        pieces.promote(low.id, low.id);
        assert_eq!(pieces.waiting, [1, 1]);
        assert!(pieces.dispatched(low.id).is_some_and(|piece| piece.promoted));
        assert_eq!((pieces.unwritten(3, 0, 7), pieces.waiting), (vec![(0, 7)], [0, 1]));
        let parts = [0, 1].map(|part| piece(&mut scheduler, 20 + 4 * part, 22 + 4 * part, Some(7)));
        parts.iter().for_each(|&part| pieces.insert(part));
        assert_eq!(pieces.ended(parts[0].id), None);
        assert_eq!((pieces.ended(parts[1].id), pieces.ended(parts[1].id)), (Some(FillId(7)), None));
    }
}
