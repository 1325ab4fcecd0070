//! Invariants of the cache's state; slow, for tests and the simulator.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;

use super::Cache;
use super::frames::{Flag, State};
use crate::id::{FileId, FrameId};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an invariant does not hold: {}", self.0)
    }
}

impl core::error::Error for Violation {}

impl Cache {
    /// Checks that table, frames, lists, fills, waits and counters agree.
    ///
    /// Takes time proportional to the frames.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_frames()?;
        self.check_fills()?;
        self.check_waits()?;
        self.check_unwritten()
    }

    /// Dirty and in-flight pages are in the listed frames, and pinned.
    fn check_unwritten(&self) -> Result<(), Violation> {
        let (mut dirty, mut going) = (0, 0);
        for id in self.frames.ids() {
            let frame = self.frames.get(id);
            let is_dirty = frame.has(Flag::Dirty);
            ensure(!is_dirty || matches!(frame.state, State::Inactive | State::Active), || {
                format!("dirty frame {} is {:?}", id.0, frame.state)
            })?;
            ensure(!frame.is_unwritten() || frame.pins > 0, || format!("dirty frame {} lacks a pin", id.0))?;
            ensure(!is_dirty || self.is_dirty(frame.file, frame.index), || {
                format!("dirty page {} is not listed", frame.index.0)
            })?;
            dirty += u64::from(is_dirty);
            going += u64::from(frame.has(Flag::Writing));
        }
        let listed = self.listed_unwritten();
        ensure(listed == (dirty, going) && self.pages_unwritten() == (dirty, going), || {
            format!("{listed:?} pages are listed as dirty and going out, frames say {:?}", (dirty, going))
        })
    }

    /// I4, and the page table agrees with the frames.
    fn check_frames(&self) -> Result<(), Violation> {
        ensure(self.frames.used() <= self.limit, || {
            format!("I4: {} frames used, {} lent", self.frames.used(), self.limit)
        })?;
        let (mut inactive, mut active, mut pinned) = (0, 0, 0);
        for id in self.frames.ids() {
            let frame = self.frames.get(id);
            let entry = self.table.get(frame.file, frame.index).frame();
            match frame.state {
                State::Free => ensure(frame.pins == 0, || format!("free frame {} is pinned", id.0))?,
                State::Doomed => {
                    ensure(entry != Some(id), || format!("doomed frame {} is in the table", id.0))?
                }
                State::InFlight | State::Inactive | State::Active => {
                    ensure(entry == Some(id), || format!("frame {} is not in the table", id.0))?;
                }
            }
            inactive += u32::from(frame.state == State::Inactive);
            active += u32::from(frame.state == State::Active);
            pinned += u32::from(matches!(frame.state, State::Inactive | State::Active) && frame.pins > 0);
        }
        let lists = (self.frames.inactive_len(), self.frames.active_len(), self.frames.pinned());
        ensure(lists == (inactive, active, pinned), || {
            format!("lists and pins count {lists:?}, frames say {:?}", (inactive, active, pinned))
        })?;
        let unused = self.frames.ids().filter(|&id| self.frames.get(id).has(Flag::Unused)).count();
        ensure(self.frames.unused() as usize == unused, || {
            format!("{} frames count as not used, and {unused} are", self.frames.unused())
        })?;
        let histories = self.files.iter().flatten().filter_map(|file| file.history.as_ref());
        let words: usize = histories.map(|history| history.words.len()).sum();
        ensure(self.histories.words == words, || {
            format!("histories count {} words, and have {words}", self.histories.words)
        })?;
        for (number, file) in (0..).zip(&self.files) {
            for (page, slot) in self.table.pages_of(FileId(number)) {
                ensure(file.is_some(), || {
                    format!("page {} of closed file {number} is in the table", page.0)
                })?;
                if let Some(id) = slot.frame() {
                    let frame = self.frames.get(id);
                    ensure((frame.file, frame.index) == (FileId(number), page), || {
                        format!("the table has frame {} for a page that it does not hold", id.0)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// I3: a frame in flight belongs to exactly one fill, and a fill has the frames of its range.
    fn check_fills(&self) -> Result<(), Violation> {
        let mut owner: BTreeMap<FrameId, u64> = BTreeMap::new();
        let ahead: u64 = self.fills.iter().map(|(_, fill)| fill.ahead).sum();
        ensure(ahead == self.ahead, || format!("{} pages count as ahead, and {ahead} are", self.ahead))?;
        for (id, fill) in self.fills.iter() {
            let mut page = fill.range.start.0;
            let mut next = Some(fill.first);
            while let Some(frame) = next {
                ensure(owner.insert(frame, id).is_none(), || {
                    format!("I3: frame {} is in two fills", frame.0)
                })?;
                let entry = self.frames.get(frame);
                ensure(
                    matches!(entry.state, State::InFlight | State::Doomed) && entry.index.0 == page,
                    || format!("fill {id} has frame {} in state {:?} for page {page}", frame.0, entry.state),
                )?;
                page += 1;
                next = self.frames.chained(frame);
            }
            ensure(page == fill.range.end.0, || format!("fill {id} has too few frames"))?;
        }
        let in_flight = self.frames.ids().filter(|&id| self.frames.get(id).state == State::InFlight);
        for id in in_flight {
            ensure(owner.get(&id) == Some(&self.frames.fill_of(id)), || {
                format!("frame {} has no fill", id.0)
            })?;
        }
        Ok(())
    }

    /// I2: each wait counts its fills correctly, has at least one, and pins its frames. `awaited`
    /// is the sum of their pages.
    fn check_waits(&self) -> Result<(), Violation> {
        let mut pending: BTreeMap<u64, u32> = BTreeMap::new();
        for (_, fill) in self.fills.iter() {
            for &wait in &fill.waits {
                *pending.entry(wait).or_default() += 1;
            }
        }
        let mut pins: BTreeMap<FrameId, u32> = BTreeMap::new();
        for (id, wait) in self.waits.iter() {
            ensure(wait.pending > 0 && pending.remove(&id) == Some(wait.pending), || {
                format!("I2: wait {id} counts {} fills", wait.pending)
            })?;
            for &frame in &wait.frames {
                *pins.entry(frame).or_default() += 1;
            }
        }
        ensure(pending.is_empty(), || format!("I2: fills name ended waits {pending:?}"))?;
        let awaited: u64 = self.waits.iter().map(|(_, wait)| wait.range.count().0).sum();
        ensure(awaited == self.awaited, || format!("I2: {awaited} awaited pages, not {}", self.awaited))?;
        for (frame, count) in pins {
            ensure(self.frames.get(frame).pins >= count, || format!("frame {} lacks pins", frame.0))?;
        }
        Ok(())
    }
}

pub(crate) fn ensure(holds: bool, say: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(say())) }
}
