//! The contract between a cache and its driver, checked from outside: for tests and the simulator.
//!
//! | | invariant |
//! |---|---|
//! | I1 | every `Fill` gets exactly one `Filled` |
//! | I2 | every read gets exactly one `Wake`; so do syncs, and writes that wait |
//! | I3 | a page is in at most one fill |
//! | I4 | frames used stay within frames lent; readahead leaves the reserve alone |
//! | I5 | a window's marks are where its plan has them, only on pages new with it (or on any that persist allows), none past the end of the file |
//! | I6 | a failed readahead leaves a counter and nothing else |
//! | I7 | time never runs back |
//! | I8 | replaying the events gives the identical actions (see [`ActionDigest`]) |
//! | I9 | every `WriteOut` gets exactly one `WrittenOut`, and a page is in at most one that is in flight |

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::cache::{Cache, Violation, ensure};
use crate::event::{Action, Decision, Event, Fill, FillError};
use crate::id::{FileId, FillId, FrameId, Waiter, WriteOutId};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::time::Instant;
use crate::write::{Write, WriteOut, WriteOutcome};

/// Watches the events and actions of one cache.
#[derive(Debug, Default)]
pub struct Checker {
    now: Instant,
    files: BTreeMap<FileId, PageCount>,
    fills: BTreeMap<FillId, Fill>,
    /// Frames of the fills, for fills that end as abandoned.
    frames: BTreeMap<FillId, Vec<FrameId>>,
    frames_out: BTreeMap<WriteOutId, Vec<FrameId>>,
    /// Pages in flight, except those invalidated since.
    in_flight: BTreeMap<(FileId, PageIndex), FillId>,
    /// Pages of fills that were invalidated since. Only earlier waiters get them, so another fill
    /// may have the same page.
    stale: BTreeMap<FillId, BTreeSet<PageIndex>>,
    /// Stale pages of the fill that this step ends: if it failed, they may be requested again.
    stale_ended: BTreeSet<PageIndex>,
    reads: BTreeSet<Waiter>,
    write_outs: BTreeMap<WriteOutId, WriteOut>,
    /// The write of this step.
    write: Option<Write>,
    /// Pinned frames.
    pinned: BTreeMap<FrameId, u32>,
    /// Whether an event allowed marks on cached pages.
    persists: bool,
}

/// A digest of an action log (FNV-1a of its debug form). Equal digests mean equal logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionDigest(u64);

impl Checker {
    /// Checks one step after it was made: `actions` are the result of `event` on `cache`.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub fn check(
        &mut self,
        now: Instant,
        event: &Event,
        actions: &[Action],
        cache: &Cache,
    ) -> Result<(), Violation> {
        ensure(now >= self.now, || format!("I7: time ran back from {} to {}", self.now.0, now.0))?;
        self.now = now;
        self.stale_ended.clear();
        self.write = if let Event::Write { write, .. } = event { Some(*write) } else { None };
        let failed = self.take_in(event)?;
        let mut decision = None;
        for action in actions {
            if let Action::Fill(fill) = action {
                self.frames.insert(fill.id, cache.fill_frames(fill.id).collect());
            }
            if let Action::WriteOut(write) = action {
                self.frames_out.insert(write.id, cache.write_out_frames(write.id).to_vec());
            }
            self.act(action, &mut decision)?;
        }
        if let Some(fill) = failed {
            self.check_failed(&fill, cache)?;
        }
        ensure(cache.frames_used() <= cache.frame_limit(), || "I4: more frames used than lent".into())
    }

    /// Fills in flight, in the order of their identifiers.
    pub fn fills(&self) -> impl Iterator<Item = &Fill> {
        self.fills.values()
    }

    /// Write-outs in flight, in the order of their identifiers.
    pub fn write_outs(&self) -> impl Iterator<Item = &WriteOut> {
        self.write_outs.values()
    }

    /// Reads, writes and syncs that still wait.
    pub fn reads_waiting(&self) -> usize {
        self.reads.len()
    }

    /// Applies an event; returns a fill that it reports as failed.
    fn take_in(&mut self, event: &Event) -> Result<Option<Fill>, Violation> {
        match event {
            Event::OpenFile { file, pages } => {
                self.files.insert(*file, *pages);
            }
            Event::Tuned { windows, .. } => self.persists = windows.persist,
            Event::CloseFile { file } => {
                self.files.remove(file);
                self.invalidate(*file, |_| true);
            }
            Event::Invalidate { file, range } => {
                self.invalidate(*file, |page| range.contains(page));
            }
            Event::Write { write, .. } if write.range.is_empty() => {
                return Err(Violation("driver: nothing is written".into()));
            }
            Event::WrittenOut { id, result } => {
                let frames = self.frames_out.remove(id).unwrap_or_default();
                if *result == Err(FillError::ABANDONED) {
                    frames.into_iter().for_each(|frame| *self.pinned.entry(frame).or_default() += 1);
                }
                let ended = self.write_outs.remove(id);
                ensure(ended.is_some(), || format!("I9: write-out {} ended twice", id.0))?;
            }
            Event::Access { waiter, .. }
            | Event::Write { waiter, .. }
            | Event::Sync { waiter, .. }
            | Event::Discard { waiter, .. } => {
                ensure(self.reads.insert(*waiter), || format!("driver: waiter {} reads twice", waiter.0))?;
            }
            Event::Unpin { frames } => {
                for frame in frames {
                    let count = self.pinned.get_mut(frame).filter(|count| **count > 0);
                    let count =
                        count.ok_or_else(|| Violation(format!("driver: frame {} is not pinned", frame.0)))?;
                    *count -= 1;
                }
            }
            Event::Filled { fill, result } => {
                let ended = self.fills.remove(fill);
                let ended = ended.ok_or_else(|| Violation(format!("I1: fill {} ended twice", fill.0)))?;
                self.in_flight.retain(|_, of| of != fill);
                let frames = self.frames.remove(fill).unwrap_or_default();
                if *result == Err(FillError::ABANDONED) {
                    frames.into_iter().for_each(|frame| *self.pinned.entry(frame).or_default() += 1);
                }
                self.stale_ended = self.stale.remove(fill).unwrap_or_default();
                return Ok(result.is_err().then_some(ended));
            }
            _ => {}
        }
        Ok(None)
    }

    fn invalidate(&mut self, file: FileId, is_of: impl Fn(PageIndex) -> bool) {
        let stale = self.in_flight.extract_if(.., |&(of, page), _| of == file && is_of(page));
        for ((_, page), fill) in stale {
            self.stale.entry(fill).or_default().insert(page);
        }
    }

    fn act(&mut self, action: &Action, decision: &mut Option<Decision>) -> Result<(), Violation> {
        match action {
            Action::Decided(decided) => {
                self.check_mark(decided)?;
                *decision = Some(*decided);
            }
            Action::Weighed(_) => {}
            Action::Fill(fill) => {
                ensure(self.fills.insert(fill.id, *fill).is_none(), || {
                    format!("I1: fill {} again", fill.id.0)
                })?;
                ensure(!fill.range.is_empty(), || format!("fill {} is empty", fill.id.0))?;
                let end = self.files.get(&fill.file).map_or(0, |pages| pages.0);
                ensure(fill.range.end.0 <= end, || {
                    format!("fill {} is past the end of its file", fill.id.0)
                })?;
                for page in (fill.range.start.0..fill.range.end.0).map(PageIndex) {
                    // Requested again without a decision of its own.
                    if decision.is_none() && self.stale_ended.contains(&page) {
                        self.stale.entry(fill.id).or_default().insert(page);
                        continue;
                    }
                    let other = self.in_flight.insert((fill.file, page), fill.id);
                    ensure(other.is_none(), || format!("I3: page {} is in two fills", page.0))?;
                }
                if let Some(decided) = decision {
                    let inside = fill.range.intersect(decided.plan.window.range()) == fill.range;
                    ensure(inside, || format!("fill {} is not of the window {:?}", fill.id.0, decided.plan))?;
                }
            }
            Action::Wake { waiter, result } => {
                ensure(self.reads.remove(waiter), || format!("I2: waiter {} woken again", waiter.0))?;
                for frame in result.iter().flatten() {
                    *self.pinned.entry(*frame).or_default() += 1;
                }
            }
            Action::Promote { fill } | Action::Cancel { fill } => {
                ensure(self.fills.contains_key(fill), || format!("fill {} is not in flight", fill.0))?;
            }
            Action::Accepted { .. } | Action::WriteOut(_) | Action::PromoteWrite { .. } => {
                self.act_on_write(action)?
            }
            // Offset-mapped frames are checked by tests that use them.
            Action::Unmap { range, .. } | Action::Released { range, .. } => {
                ensure(!range.is_empty(), || "no page is unmapped or released".into())?;
            }
            Action::Retired { frames } => {
                let held = frames.iter().find(|frame| self.pinned.get(frame).is_some_and(|&count| count > 0));
                ensure(held.is_none(), || format!("pinned frame {held:?} was retired"))?;
            }
        }
        Ok(())
    }

    /// I9.
    fn act_on_write(&mut self, action: &Action) -> Result<(), Violation> {
        match action {
            Action::Accepted { waiter, outcome, targets } => {
                if *outcome != WriteOutcome::Wait {
                    self.reads.remove(waiter);
                }
                let taken = if let WriteOutcome::Accepted(pages) = outcome { *pages } else { 0 };
                ensure(taken == targets.len() as u64, || format!("{taken} pages taken, {targets:?}"))?;
                if let Some(write) = self.write {
                    let range = PageRange::from_start(write.range.start, PageCount(taken));
                    if let Some(pages) = self.files.get_mut(&write.file) {
                        *pages = (*pages).max(PageCount(range.end.0));
                    }
                    // Waiters of a fill of these pages get its frames, which are no longer the page
                    // table's.
                    self.invalidate(write.file, |page| range.contains(page));
                }
                Ok(())
            }
            Action::WriteOut(write) => {
                let overlaps = |other: &WriteOut| {
                    other.file == write.file && !other.range.intersect(write.range).is_empty()
                };
                ensure(!self.write_outs.values().any(overlaps), || {
                    format!("I9: {write:?} has a page that is being written out")
                })?;
                let fresh = self.write_outs.insert(write.id, *write).is_none();
                ensure(fresh && !write.range.is_empty(), || format!("I9: {write:?} again, or empty"))
            }
            Action::PromoteWrite { id } => {
                ensure(self.write_outs.contains_key(id), || format!("write-out {} is not in flight", id.0))
            }
            _ => Ok(()),
        }
    }

    /// I5. A new page was not in flight before; the fills show that it was not resident.
    fn check_mark(&self, decided: &Decision) -> Result<(), Violation> {
        let Some(mark) = decided.mark else { return Ok(()) };
        let window = decided.plan.window;
        ensure(decided.plan.marks(mark) && window.range().contains(mark), || {
            format!("I5: mark {} is not that of {window:?}", mark.0)
        })?;
        let end = self.files.get(&decided.file).map_or(0, |pages| pages.0);
        ensure(mark.0 < end, || format!("I5: mark {} is past the end of the file", mark.0))?;
        let old = !self.persists && self.in_flight.contains_key(&(decided.file, mark));
        ensure(!old, || format!("I5: mark {} is on a page that was in flight", mark.0))
    }

    /// I6: pages of a failed fill are absent, unless they were requested again at once.
    fn check_failed(&self, fill: &Fill, cache: &Cache) -> Result<(), Violation> {
        if self.files.get(&fill.file).is_none_or(|pages| pages.0 < fill.range.end.0) {
            return Ok(());
        }
        for page in (fill.range.start.0..fill.range.end.0).map(PageIndex) {
            let left =
                cache.is_in_flight(fill.file, page) && !self.in_flight.contains_key(&(fill.file, page));
            ensure(!left, || {
                format!("I6: page {} of failed fill {} is in flight for ever", page.0, fill.id.0)
            })?;
        }
        Ok(())
    }
}

impl Default for ActionDigest {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl ActionDigest {
    /// Adds the actions of one step.
    pub fn add<A: fmt::Debug>(&mut self, actions: &[A]) {
        for action in actions {
            writeln!(self, "{action:?}").expect("hashing does not fail");
        }
    }
}

impl fmt::Write for ActionDigest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        Ok(())
    }
}
