//! `stream`, the default policy of `bowwave-engine`: recognizes many interleaved streams in a file,
//! read in any direction.
//!
//! Linux keeps one readahead state for each open file and recognizes sequential reads. `stream`
//! keeps one state for each *file*, with a table of streams, and has seven detectors. It was
//! built for stores where a request costs milliseconds: the distance ahead of a reader follows from
//! measured fill times, and a budget bounds what readahead may waste.
//!
//! # A decision
//!
//! ```text
//!   miss ─► continues a stream of the table    ─► up, down or strided: the next window
//!           adjacent to the handle's last read ─► a new stream
//!           third run at an equal distance     ─► the next blocks of the stride (*)
//!           in a small file                    ─► all of the file, if that pays (*)
//!           first page of the file             ─► an initial window, as in Linux
//!           last pages of the file             ─► the last pages (*)
//!           lengths or offset deltas repeat    ─► a run of that length, the next runs (*)
//!           recent runs began near each other  ─► the place around them, if that pays
//!           few pages of the file used twice   ─► the next pages never read, too, if that pays
//!           else                               ─► the request alone
//!   mark ─► the stream that owns the mark      ─► the next window, before the reader misses
//!           no stream owns it                  ─► the window after the cached pages, as in Linux
//!
//!   (*) if the detector is trusted
//! ```
//!
//! | part | decides |
//! |---|---|
//! | `table`, `entry` | which stream a miss or a mark belongs to |
//! | `onward` | what a continued stream reads: upward, downward, strided |
//! | `blocks` | where the blocks of a stride begin |
//! | `hits` | whether a reader of cached pages read them in order |
//! | `plan` | how much: windows, distance, budget |
//! | `pace` | how fast a reader and its fills are; a stream's share of memory |
//! | `runs` | how long runs are, and what their beginnings have in common |
//! | `jumps` | repeating offset deltas: where the next runs begin |
//! | `place` | clusters whose pages are read in any order |
//! | `rest` | whole files whose pages are read once, in any order |
//! | `whole` | whether a small file is read whole |
//! | `scores` | which detectors are trusted |
//! | `gain` | which candidates pay, and their record for `explain` |
//! | `tuning` | the constants: unit, value, effect, and how they were measured |
//!
//! # Streams
//!
//! A stream is a range `lo..hi` that its readers have requested, a direction, and `edge`, the end
//! of its readahead. It does not matter which handle or thread reads it. A reader may skip pages:
//! at most a third of the pages it has used, and at most 64. Requests that arrive out of order
//! begin streams of their own, which merge when the gap closes. A stream does not merge with one
//! that began before it: that one is of an earlier pass over the file.
//!
//! The table has [`streams`](StreamConfig::streams) entries, or up to four times as many if each
//! has a reader. An evicted stream is parked: it keeps its state, but only an access to the page
//! where its reader is expected restores it.
//!
//! # Places
//!
//! A miss that continues no stream may be in a cluster that is read in any order: a *place*. A
//! place shows if more runs (contiguous ranges that were read) began there than chance explains.
//! The policy expects as many runs again. So it reads the place at once if its pages take less time
//! than the requests of those runs. Places that were used show the size of the next one, which is
//! read at its first miss.
//!
//! Some readers read each page of a file once, in random order. Uniformly random readers repeat
//! pages: when a twelfth of the file was used, one of 24 uses is a repetition. A file counts as
//! read once on three conditions: at least a twelfth of it was used, fills are slow, and
//! repetitions are at most a quarter of those of random reads. Then a miss also requests the next
//! pages never read, up to a window and within the waste budget.
//!
//! # What pays
//!
//! The cache measures, over the fills of all files ([`Costs`](crate::Costs)): the time of a short
//! request, the time of a page of a long request, how much longer short requests take beside
//! others, and the time of requests that continue a run. From these times follow:
//!
//! - **Places and small files:** the requests saved must take at least as long as the pages, plus
//!   the time that waiting reads lose to them. A place is expected to get as many requests again as
//!   it had runs. In a file of at most 16 windows, other small files give the chance that its
//!   requests double (`FileRequests`). Without them it is one half, or 0 for the first doubling if
//!   the first request is at an end of the file: many programs read only a header. In a file that
//!   is read whole, a mark in the middle calls the policy again. While costs are unknown, a request
//!   costs as much as 256 pages.
//! - **Whether a run is read ahead, and how far:** as far as the expected gain of a page covers its
//!   expected cost ([`Runs::continues`], [`Runs::reach`]). A used page saves its part of a request,
//!   and its own time. An unused page costs the time of a page: once for each waiting read, and
//!   twice more. The chance that a run doubles follows from the lengths of earlier runs of the
//!   file. If fewer than one in four doubled (one is added), the run is not read ahead, whatever
//!   that saves: this bounds the bytes. Once it is read ahead, the limit is at least its length so
//!   far. Predicted runs, strides, mapped files and a first window at page 0 have no such limit.
//!
//! `bowwave explain` prints the candidates of each decision, their expected gains, and what became
//! of them ([`Candidate`], [`Verdict`]).
//!
//! # How much to read
//!
//! Windows grow as in Linux (`initial_size`, `next_size`) up to `ra_pages`, and one window stays in
//! flight ahead of the reader. More is requested if a reader with a full window waited for a fill,
//! or reached the end of its readahead. A reader that begins at page 0 is expected to wait. The
//! distance (pages kept ahead of the reader) is then twice the pages that it uses during one fill.
//! While fill times are unknown, it doubles each time. (PostgreSQL 19, ZFS, AMP have such rules.)
//!
//! These are the exact rules for readers in order of files of more than 16 windows, on a store that
//! takes no time (`tools/model_stream.py`). A window begins at the end of the one before, has its
//! mark at its first page, and covers at least the rest of the request. The first window begins at
//! the page that missed; its mark is at the end of the request. A request as long as the window or
//! longer is read with a whole window after it. A first read of 32 pages or more at page 0 has a
//! window of 8 times its length, at most `ra_pages`. The window of a first read at page 0 is
//! requested in parts of a quarter of `ra_pages`, at least 32 pages.
//!
//! Where requests cost only time ([`slow_window_pages`](StreamConfig::slow_window_pages)), a first
//! read at page 0 that is as long as a window or longer has two windows after it.
//!
//! A window that lasts its reader 16 times the time to first byte does not grow. If fills take
//! longer than a window lasts, the first windows are larger. The distance is then split into
//! requests that are served side by side. Under memory pressure a stream gets memory in proportion
//! to the pages that its readers use, and used pages are evicted before unread readahead. Readahead
//! is limited to the memory that waiting reads do not pin.
//!
//! # The waste budget
//!
//! Waste is readahead that no reader uses. Two budgets, of the stream and of the file, bound it,
//! whatever the readers do:
//!
//! - **Of a stream:** its unread readahead is at most a base plus a share. The base is two windows,
//!   or the predicted length or strided block if that is longer. The share is
//!   [`waste_percent`](StreamConfig::waste_percent) of the pages used. On a store that takes time,
//!   a share below sixteen windows is raised to all pages used, up to sixteen windows. If other
//!   streams have readahead, the limit is half of the file's budget that they leave. A strided
//!   stream with blocks of at most 32 pages is limited further on such a store: to the base, or to
//!   half of the pages that it used if that is more.
//! - **Of a stream that is alone**, where requests cost only time
//!   ([`slow_window_pages`](StreamConfig::slow_window_pages)): a share is raised to all pages used,
//!   and to twice as many once a reader in order used twice the base. It is then at most sixteen
//!   windows plus `waste_percent` of the pages used: what its file may waste.
//! - **Of a file:** unread readahead is at most `waste_percent` of the pages used, plus sixteen
//!   windows, plus two windows for each reader after the first. The first two windows of an active
//!   stream do not count. The cache counts used and unread pages exactly. A stream may count as
//!   active although its reader has left it, or has not reached it yet. There are at most 96 such
//!   streams, in the table or parked, or 192 once 32 readers are active. One reader at unrelated
//!   offsets has one active stream, so 18 windows in all (`tools/compare_waste.py` counts them from
//!   what `explain` prints).
//!
//! A plan beyond the budget shrinks to whole windows, then to one request of at least 16 pages (64
//! in a mapped file), then to nothing. A stream that uses two windows or more during a fill is not
//! rounded to windows. Pages that extend a demand request have no minimum.
//!
//! A device with a head serves one request after the other, so readahead delays all readers. There
//! ([`seeks`](StreamConfig::seeks)) a readahead request has at most the pages that take as long as
//! a request that continues a run, times the odds: used pages of the file's readahead for each
//! unused one. The demand requests that it is expected to save must take at least as long as the
//! readahead request. They continue runs, too, and are fast where the head is already there.
//! Extensions of a demand request are exempt from the second rule. The odds never refuse the
//! smallest length, so they can rise again.
//!
//! # Failed fills
//!
//! Pages of a failed fill count neither as waste nor as evicted. The readahead ends before them,
//! and a read of them continues the stream. After two failures in a row only demand is read, until
//! a fill succeeds: a broken store gets no requests but those that readers wait for.
//!
//! # Mapped files
//!
//! Touches of mapped pages are invisible, so mapped pages count as used. The last quarter of a
//! predicted run begins with a *tripwire*: a mark that requests nothing. Its fault shows that the
//! reader came so far. Each mark of a mapped file costs a fault, so there are fewer marks.
//!
//! # Behind a kernel
//!
//! A kernel cuts long requests at its largest window
//! ([`reader_ahead_pages`](StreamConfig::reader_ahead_pages)). If the first request of a run has
//! that length, its program requested more, so the run is longer. If no reader requests the rest,
//! the run was announced by `POSIX_FADV_WILLNEED`. Once the length of runs is known, announced runs
//! are read ahead to that length, the oldest first: one each time a reader comes to another run.
//!
//! The last run of a reader ends when the reader begins another run, or continues a run that
//! another handle began. A mount has one handle for each thread.
//!
//! # Detectors
//!
//! Detectors predict even when they are not trusted, and the next reads score the predictions
//! ([`Scores`]). `Whole` is not scored, and `Tail` is never scored as wrong. At its first request,
//! a run is read ahead only by a trusted detector, except at page 0, in a place, and in a file
//! whose pages are read once. Otherwise the run must first give evidence itself: adjacent requests,
//! two downward reads, or four strided blocks. Three blocks suffice if the gaps are short enough to
//! skip.
//!
//! A stride need not be a whole number of pages: a block that begins one page before or after its
//! predicted page corrects the distance (`blocks`).
//!
//! A strided stream is given up once its reader leaves a block of which it used less than half: the
//! stride or the length of its blocks was wrong, and the next reads show better ones.
//!
//! A miss directly after a strided block has two explanations: sequential streams that began at
//! equal distances, or a reader that begins the next column. It counts as a column if the file has
//! one reader, the distance is a whole number of pages, and the reader goes back by more blocks
//! than the table has entries. The column keeps the stride. On a device with a head, and while
//! costs are unknown, the blocks count as streams.
//!
//! Some random reads are adjacent by chance. So a new stream gets a window only if that is expected
//! to pay ([`Runs::continues`]). While costs are unknown, and in a mapped file, at least as many
//! earlier runs of its length must have doubled as have ended (one that doubled is added).

mod blocks;
mod config;
mod entry;
mod gain;
mod hits;
mod jumps;
mod onward;
mod pace;
mod place;
mod plan;
mod rest;
mod runs;
mod scores;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_stores;
mod tuning;
mod whole;

pub use config::StreamConfig;
pub use scores::{Detector, Scores};
#[cfg(feature = "ablation")]
pub use tuning::{Tuning, set_tuning};

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::entry::{Direction, Entry, Join};
use self::jumps::Jumps;
use self::pace::Pace;
use self::runs::{Prediction, Runs};
use self::table::Table;
use self::tuning::tuning;
use super::{Access, Candidate, FillReport, Plan, Plans, Readahead, Reason, Verdict, View, Weighed};
use crate::event::Trigger;
use crate::id::HandleId;
use crate::page::{PageIndex, PageRange};
use crate::request::Pattern;
use crate::time::Instant;
use crate::window::{initial_size, next_size};

/// The state of a file.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    table: Table,
    runs: Runs,
    scores: Scores,
    jumps: Jumps,
    /// Estimated requests of the readers of a small file in this pass over it, before the current
    /// one.
    requests: u64,
    /// Used pages that are counted in `requests`.
    counted: u64,
    /// Pages of the last request.
    request: u64,
    /// Levels of [`FileRequests`](super::FileRequests) that the file has reached.
    reached: u8,
    /// The tail was read ahead, and no read has used it yet.
    tail_read: bool,
    /// Fills that failed since the last one that succeeded.
    failed: u64,
    places: place::Places,
    /// Further plans of the last decision, in reverse order.
    more: Vec<Plan>,
    /// What this decision weighed, with [`Config::explain`](crate::Config::explain).
    weighed: Option<Box<Weighed>>,
    /// Pace of all streams of the file together.
    pace: Pace,
    /// Rest of the current request, from the accessed page to its end.
    requested: PageRange,
}

/// The request of a decision: `page..end` is its rest, clipped at the end of the file.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    page: u64,
    end: u64,
    /// First page of the request.
    first: u64,
    now: Instant,
    /// Largest window, in pages.
    max: u64,
    /// A fault of a mapped page, not a read.
    mapped: bool,
}

impl Readahead for Stream {
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        if access.trigger == Trigger::Mapped {
            self.mapped(access.handle, access.request);
            return;
        }
        let view = &view;
        self.more.clear();
        core::mem::swap(&mut self.weighed, &mut plans.weighed);
        let end = access.request.end.0.min(view.file_pages.0).max(access.page.0 + 1);
        self.requested = PageRange::new(access.page.0, end);
        let wanted = &Wanted {
            page: access.page.0,
            end,
            first: access.request.start.0,
            now: access.now,
            max: view.ra_pages.max(1),
            mapped: access.mapped.is_some(),
        };
        let off = view.ra_pages == 0 || access.mapped == Some(Pattern::Random);
        if off || self.failed >= tuning().failed_max {
            core::mem::swap(&mut self.weighed, &mut plans.weighed);
            return plans.push(wanted.alone());
        }
        self.table.read_by(access.handle);
        self.pace.observe(access.now, view.waste.consumed, view.pressure);
        plans.reached = self.count_requests(wanted, view);
        let jumped = self.follow_hits(&access, wanted, view);
        plans.push(match access.trigger {
            Trigger::Miss => self.missed(&access, jumped, wanted, view),
            _ => self.marked(jumped, wanted, view),
        });
        while let Some(plan) = self.more.pop() {
            plans.push(plan);
        }
        if let Some(weighed) = &mut self.weighed {
            weighed.scores = Some(self.scores);
        }
        core::mem::swap(&mut self.weighed, &mut plans.weighed);
    }

    fn on_fill(&mut self, report: &FillReport) {
        let (lo, hi) = (report.range.start.0, report.range.end.0);
        if report.failed {
            self.failed += 1;
            return self.table.failed(lo, hi);
        }
        self.failed = 0;
        // A store that takes no time (tests, simulations) reports no fill times.
        if report.took_ns == 0 {
            return;
        }
        self.pace.filled(report);
        if let Some(entry) = self.table.filled(lo, hi) {
            entry.pace.filled(report);
            entry.waited |= report.waited_ns.is_some_and(|waited| waited > 0);
        }
    }
}

impl Stream {
    /// A touch of the first page mapped the whole range.
    fn mapped(&mut self, handle: HandleId, range: PageRange) {
        self.table.read_by(handle);
        let Some(last) = self.table.last() else { return };
        if matches!(last.direction, Direction::New | Direction::Up)
            && (last.lo..last.edge).contains(&range.start.0)
        {
            // Assumes that all of it is used. If not, the reader never reaches the next tripwire.
            last.come_to(range.end.0.min(last.edge));
        }
    }

    /// The state of a file that was never read.
    pub fn new(config: StreamConfig) -> Self {
        Self {
            table: Table::new(config.streams.max(1) as usize),
            config,
            runs: Runs::new(),
            scores: Scores::new(),
            jumps: Jumps::default(),
            requests: 0,
            counted: 0,
            request: 1,
            reached: 0,
            tail_read: false,
            places: place::Places::default(),
            failed: 0,
            more: Vec::new(),
            weighed: None,
            pace: Pace::default(),
            requested: PageRange::new(0, 0),
        }
    }

    /// Pages that a reader of this file uses during one fill; 0 while unknown.
    fn pages_per_fill(&self) -> u64 {
        self.pace.pages_per_fill().unwrap_or(0) / self.table.readers().max(1)
    }

    /// The first window of a stream. It covers the pages that a reader uses during one fill, up to
    /// a quarter of the largest window: a few more pages cost little then.
    fn first_window(&self, wanted: &Wanted) -> u64 {
        let Wanted { page, end, max, .. } = *wanted;
        // Adjacent touches of a map are clusters more often than sequential reads.
        let least = if wanted.mapped { 0 } else { self.pages_per_fill().min(max / 4) };
        initial_size(end - page, max).max(least)
    }

    /// The next window of the stream at `at`: at least the pages that a reader uses during one
    /// fill. A window that lasts its reader `first_bytes` times the time to first byte does not
    /// grow.
    fn next_window(&mut self, at: usize, max: u64) -> u64 {
        let far = self.pages_per_fill().min(max);
        let entry = self.table.get(at);
        let enough =
            entry.pace.pages_per_ttfb().map_or(max, |pages| pages.saturating_mul(tuning().first_bytes));
        next_size(entry.window, max)
            .max(far)
            .min(enough.max(max / tuning().step_windows).max(tuning().in_order))
    }

    /// Decides at a missing page.
    fn missed(&mut self, access: &Access, jumped: bool, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, .. } = *wanted;
        let last = self.table.last_at();
        let evicted = || view.was_used(PageIndex(page));
        let known = self.table.joined(page, end, &evicted);
        let known = known.or_else(|| {
            if self.table.is_parked_new(page, end, &evicted)? {
                self.close_last(page);
            }
            self.table.unpark(page).and_then(|_| self.table.joined(page, end, &evicted))
        });
        let follows = access.prev_page.is_some_and(|prev| page.wrapping_sub(prev.0) <= 1);
        if let Some((at, join)) = known {
            if join == Join::Up && (jumped && page >= self.table.get(at).edge || self.leapt(at, wanted, view))
            {
                return self.begun(wanted, view);
            }
            // Among many random reads, some are adjacent by chance. Two consecutive reads of a
            // handle hardly are.
            let direct = last == Some(at) || follows;
            let begun = self.table.last().map(|last| last.lo);
            if join == Join::Up && self.table.is_new_to_reader(at) {
                self.close_last(page);
            }
            self.table.touch(at);
            if let Some(plan) = self.skips(at, join, wanted, view) {
                return plan;
            }
            return match join {
                Join::Up => {
                    let plan = self.upward(at, wanted, view);
                    if plan.reason == Reason::Range {
                        self.announced(plan.window.size.0, wanted, view);
                    }
                    plan
                }
                Join::Down => self.downward(at, direct, wanted, view),
                Join::Stride => self.strided(at, begun, wanted, view),
                Join::Behind => self.behind(at, wanted, view),
            };
        }
        if follows && page == access.request.start.0 {
            // The pages before were cached, through any handle.
            let before = page.saturating_sub(end - page);
            let at = self.enter(Entry { direction: Direction::Up, consumed: 0, ..Entry::new(before, page) });
            return self.upward(at, wanted, view);
        }
        self.begun(wanted, view)
    }

    /// Decides at a lookahead mark.
    fn marked(&mut self, jumped: bool, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Some(at) = self.table.marked(wanted.page) else { return self.context(wanted, view) };
        if self.table.get(at).direction == Direction::Expected {
            return self.landed(at, wanted, view);
        }
        if self.table.get(at).tripwire == Some(wanted.page) {
            if self.table.is_new_to_reader(at) {
                self.close_last(wanted.page);
            }
            self.table.touch(at);
            self.table.get(at).come_to(wanted.page + 1);
            self.announced(0, wanted, view);
            return wanted.nothing(Reason::Range);
        }
        if jumped && self.table.last_at() == Some(at) {
            // The next window of a reader that jumps may be another run's.
            if wanted.page > self.table.get(at).hi {
                self.jumped_to(at, wanted.page, wanted.end - wanted.first);
            }
            self.table.get(at).come_to(wanted.end);
            return wanted.nothing(Reason::Lookahead);
        }
        if self.leapt(at, wanted, view) {
            return self.begun(wanted, view);
        }
        self.table.touch(at);
        let read = self.used_since(at, wanted.page, view);
        let Wanted { page, end, max, .. } = *wanted;
        let entry = self.table.get(at);
        match entry.direction {
            Direction::New | Direction::Up => {
                let before = entry.hi;
                entry.consumed = entry.consumed.saturating_add(read);
                entry.hi = entry.hi.max(end.min(entry.edge)).max(page);
                entry.consumed = entry.consumed.saturating_add(entry.hi - page.max(before).min(entry.hi));
                entry.direction = Direction::Up;
                let size = self.next_window(at, max);
                let mut plan = self.window_up(at, wanted, size, Reason::Lookahead, view);
                plan.hints.drop_behind = self.done(at, before, page, view);
                plan
            }
            Direction::Down => {
                entry.consumed = entry.consumed.saturating_add(read);
                entry.lo = entry.lo.min(page);
                let size = self.next_window(at, max);
                self.window_down(at, wanted, size, Reason::Lookahead, view)
            }
            Direction::Stride(blocks) => {
                entry.advance_by(blocks.steps_to(entry.lo, page).0);
                self.window_strided(at, wanted, view)
            }
            Direction::Expected => wanted.nothing(Reason::Jumps),
        }
    }

    /// The pages from `before` to `page` if they can be dropped behind the reader, else an empty
    /// range.
    fn done(&mut self, at: usize, before: u64, page: u64, view: &View<'_>) -> PageRange {
        let done = before < page && self.drop_behind(at, view);
        PageRange::new(if done { before } else { page }, page)
    }

    /// Whether memory is short, and no other reader follows closely enough to use this stream's
    /// pages.
    pub(super) fn drop_behind(&mut self, at: usize, view: &View<'_>) -> bool {
        let entry = self.table.get(at);
        let (limit, hi) = (entry.pace.limit, entry.hi);
        let short = limit != u64::MAX && view.pressure.unread > view.pressure.cold / tuning().memory_share;
        short && !self.table.any_up_to(at, hi.saturating_sub(limit.saturating_mul(4)), hi)
    }

    /// Decides at the first miss of a run that continues no stream.
    fn begun(&mut self, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let stride = self.stride_to(page);
        if !self.reordered(page, end) {
            self.close_last(page);
            self.judge_jump(page);
        }
        self.runs.push(page);
        if self.tail_read && page + tuning().tail_pages >= view.file_pages.0 {
            self.scores.count(Detector::Tail, true);
            self.tail_read = false;
        }
        let strided = stride.and_then(|stride| self.stride_begun(wanted, stride, view));
        let at = self.enter(Entry { request: end - wanted.first, ..Entry::new(page, end) });
        if let Some(plan) = strided {
            return plan;
        }
        let file = view.file_pages.0;
        if whole::is_small(max, view)
            && self.scores.trusts(Detector::Whole)
            && let Some(plan) = self.whole(at, wanted, view)
        {
            return plan;
        }
        if page == 0 {
            let requested = self.config.program_pages(end);
            let least = if requested >= tuning().in_order {
                (requested * tuning().in_order_times).min(max)
            } else {
                0
            };
            let size = initial_size(requested, max).max(least).max(end.min(max));
            if self.config.reader_ahead_pages > 0 && size <= end {
                return Plan { reason: Reason::Initial, ..wanted.alone() };
            }
            let mut plan = self.window_up(at, wanted, size, Reason::Initial, view);
            plan.hints.split_every = (max / tuning().step_windows).max(tuning().in_order);
            return plan;
        }
        if page >= file.saturating_sub(tuning().tail_pages)
            && file > max
            && self.scores.trusts(Detector::Tail)
        {
            self.tail_read = true;
            return self.tail(at, wanted, view);
        }
        let trusted = self.scores.trusts(Detector::Cluster);
        if !trusted && self.runs.length() > end - page {
            self.weigh(Candidate::KnownLength, self.runs.length(), None, Verdict::NotTrusted);
        }
        if trusted {
            // Runs aligned to bytes may be a page longer, and readers of fixed-size requests end
            // with a whole request.
            let expected = self.affordable(view).next_multiple_of(end - page);
            let known = expected > end - page;
            if known {
                self.table.get(at).expected = expected;
            }
            // A short mapped run is read ahead when it continues.
            if known && (!wanted.mapped || expected >= tuning().speculation_min) {
                let plan = self.window_up(
                    at,
                    wanted,
                    expected.min(max * tuning().file_windows),
                    Reason::Range,
                    view,
                );
                self.jump(at, plan.window.size.0, wanted, view);
                return plan;
            }
        }
        self.jump(at, 0, wanted, view);
        self.place(wanted, view).unwrap_or_else(|| self.with_rest(wanted, view))
    }

    /// Whether the gap between the last run and this one is at most one request long. Then both may
    /// be one run whose requests arrived out of order, as the queues of a kernel's mount can cause.
    fn reordered(&mut self, page: u64, end: u64) -> bool {
        self.table.last().is_some_and(|last| {
            matches!(last.direction, Direction::New | Direction::Up)
                && page > last.hi
                && page - last.hi <= (end - page).min(last.request)
        })
    }

    /// Ends the reader's last run when a run begins at `next`, and scores its predicted length.
    fn close_last(&mut self, next: u64) {
        let Some(last) = self.table.last() else { return };
        if !matches!(last.direction, Direction::New | Direction::Up) {
            return;
        }
        let pages = last.hi.saturating_sub(last.lo);
        let alone = last.direction == Direction::New && pages <= last.request;
        if alone && self.config.is_clipped(last.request) {
            // Its program requested more, and will read it.
            return;
        }
        // Two adjacent reads may be chance.
        let was_predicted = last.expected > 0 && last.window > 0;
        let short = alone || !was_predicted && pages <= last.request.saturating_mul(2);
        // Nearby reads may belong to the same run, out of order.
        if last.hi.abs_diff(next) > tuning().nearby {
            self.runs.count(pages);
        }
        let usual = self.runs.median().min(self.runs.length());
        let predicted = if last.expected > 0 { last.expected.min(usual) } else { usual };
        match if short { self.runs.ended_alone() } else { self.runs.ended_of(pages, predicted) } {
            Some(Prediction::Exactly) => self.scores.count_exact(Detector::Cluster),
            Some(predicted) => self.scores.count(Detector::Cluster, predicted == Prediction::Roughly),
            // Three consecutive requests are not chance, so this run predicts the next one.
            None => {
                if !short {
                    self.scores.count(Detector::Cluster, true);
                }
            }
        }
        if alone {
            self.scores.count(Detector::Sequential, false);
        }
    }

    /// Enters a stream. If that evicts an unproven stream, its detector is scored as wrong.
    fn enter(&mut self, entry: Entry) -> usize {
        let (at, gone) = self.table.insert(entry);
        match gone {
            Some((Direction::Stride(_), 0)) => self.scores.count(Detector::Stride, false),
            Some((Direction::Down, 1)) => self.scores.count(Detector::Backward, false),
            _ => {}
        }
        at
    }
}
