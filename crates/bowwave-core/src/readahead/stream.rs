//! bowwave's own readahead: any number of streams in a file, in whatever order and direction they are read.
//!
//! ```text
//!   miss  ──►  goes on with a stream?  ──►  upward, downward, at an even distance: a window that grows
//!              at page 0               ──►  a small window, as everybody does
//!              behind this handle's last read ► a new stream
//!              small file, tail, even distance, as long as the runs before, repeated jumps:
//!                                           the detector that foretold best lately plans
//!              else                    ──►  the request, and no more
//!   mark  ──►  its stream              ──►  the next window
//! ```
//!
//! One state serves all handles of a file, so it does not matter through which of them, or in which thread, a stream is
//! read. Streams beyond those of the table (`table`) are remembered by the page that their reader is expected at, their
//! mark most often, with all that is known of them.
//!
//! **How much.** Windows grow as Linux's do (`initial_size`, `next_size`) up to `ra_pages`, with as much again ahead. More
//! is kept ahead only of a stream whose readers had to wait for what was in flight, or came to its end: then the distance
//! doubles (PostgreSQL 19, ZFS, AMP, each in its own words).
//!
//! **What it may cost.** The promise has two accounts. That of each stream: what is ahead of its readers is at most
//! [`waste_percent`](StreamConfig::waste_percent) of what they have used, and two windows. And that of the file, which the
//! cache keeps to the page: whatever the readers do, what was ever read ahead and not used is at most as much of what was
//! used, two windows for each stream that is remembered, and sixteen. Readahead gets what it wants, or whole windows, or at
//! least a request worth making, or nothing.
//!
//! **Who is right.** Each detector's predictions are held against what happens, whether or not anything was read for them
//! ([`Scores`]); only those trusted are acted on.

mod config;
mod entry;
mod jumps;
mod pace;
mod plan;
mod runs;
mod scores;
mod table;
#[cfg(test)]
mod tests;

pub use config::StreamConfig;
pub use scores::{Detector, Scores};

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::entry::{Entry, Join, Way};
use self::jumps::Jumps;
use self::runs::{Foretold, Runs};
use self::table::Table;
use super::{Access, FillReport, Plan, Readahead, Reason, View};
use crate::event::Trigger;
use crate::page::PageRange;
use crate::request::Pattern;
use crate::time::Instant;
use crate::window::{initial_size, next_size};

/// Windows that may be ahead of a stream, or wasted, before it has used anything.
const STREAM_WINDOWS: u64 = 2;
/// Windows that may be read ahead in a file, or wasted, before anything of it was used.
const FILE_WINDOWS: u64 = 16;
/// Fewer pages than these are not worth a request of their own.
const SPECULATION_MIN: u64 = 16;
/// A file of at most so many windows is read whole.
const WHOLE_WINDOWS: u64 = 4;
/// Pages at the end of a file where its index may be.
const TAIL_PAGES: u64 = 16;

/// The state of a file.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    table: Table,
    runs: Runs,
    scores: Scores,
    jumps: Jumps,
    /// Runs that nothing led to.
    fresh: u64,
    /// The tail was read ahead, and nobody has asked for more of it so far.
    tail_read: bool,
    /// What is to be read besides the plan given last, the last one first.
    more: Vec<Plan>,
    /// What is asked for now: pages from the first to be decided about on.
    asked: PageRange,
}

/// What is known when a decision is due: the pages `page..end` are wanted, clipped at the end of the file.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    page: u64,
    end: u64,
    /// Where the request begins.
    first: u64,
    now: Instant,
    /// Most pages of a window.
    max: u64,
}

impl Readahead for Stream {
    fn copy(&self) -> Box<dyn Readahead> {
        Box::new(self.clone())
    }

    fn on_access(&mut self, access: Access, view: View<'_>) -> Plan {
        self.more.clear();
        let end = access.request.end.0.min(view.file_pages.0).max(access.page.0 + 1);
        self.asked = PageRange::new(access.page.0, end);
        let wanted = Wanted {
            page: access.page.0,
            end,
            first: access.request.start.0,
            now: access.now,
            max: view.ra_pages.max(1),
        };
        if access.mapped == Some(Pattern::Random) {
            return wanted.alone();
        }
        self.follow_hits(&access);
        let plan = match access.trigger {
            Trigger::Miss => self.missed(&access, wanted, view),
            Trigger::Mark | Trigger::Advice => self.marked(wanted, view),
        };
        Plan { scores: Some(self.scores), ..plan }
    }

    fn on_fill(&mut self, report: &FillReport) {
        let (lo, hi) = (report.range.start.0, report.range.end.0);
        // Devices that take no time tell nothing.
        if report.took_ns > 0
            && let Some(entry) = self.table.filled(lo, hi)
        {
            entry.pace.filled(report.took_ns, report.waited_ns);
            entry.waited |= report.waited_ns.is_some_and(|waited| waited > 0);
        }
    }

    fn more(&mut self, _access: Access, _view: View<'_>) -> Option<Plan> {
        self.more.pop().map(|plan| Plan { scores: Some(self.scores), ..plan })
    }
}

impl Stream {
    /// The state of a file that nobody has read.
    #[must_use]
    pub fn new(config: StreamConfig) -> Self {
        Self {
            table: Table::new(config.streams.max(1) as usize),
            config,
            runs: Runs::new(),
            scores: Scores::new(),
            jumps: Jumps::default(),
            fresh: 0,
            tail_read: false,
            more: Vec::new(),
            asked: PageRange::new(0, 0),
        }
    }

    /// Reads of cached pages are not seen, but where the last one through this handle ended is known.
    fn follow_hits(&mut self, access: &Access) {
        let Some(prev) = access.prev_page else { return };
        let Some(last) = self.table.last() else { return };
        if matches!(last.way, Way::New | Way::Up) && (last.hi..last.edge).contains(&prev.0) {
            last.consumed += prev.0 + 1 - last.hi;
            last.hi = prev.0 + 1;
        }
    }

    /// A page is not there.
    fn missed(&mut self, access: &Access, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, .. } = wanted;
        let known = self.table.joined(page, end);
        let known = known.or_else(|| self.table.unpark(page).and_then(|_| self.table.joined(page, end)));
        if let Some((at, join)) = known {
            if join == Join::Up && self.leapt(at, wanted, view) {
                return self.begun(wanted, view);
            }
            self.table.touch(at);
            if let Some(plan) = self.leaves_out(at, join, wanted, view) {
                return plan;
            }
            return match join {
                Join::Up => self.upward(at, wanted, view),
                Join::Down => self.downward(at, wanted, view),
                Join::Stride => self.strided(at, wanted, view),
                Join::Behind => self.behind(at, wanted, view),
            };
        }
        let follows = access.prev_page.is_some_and(|prev| page.wrapping_sub(prev.0) <= 1);
        if follows && page == access.request.start.0 {
            // What lies before was cached, by whomever.
            let at = self.enter(Entry { way: Way::Up, ..Entry::new(page, page) });
            return self.upward(at, wanted, view);
        }
        self.begun(wanted, view)
    }

    /// A read that leaves pages out between the last one and itself. The second one that leaves out as many makes a stream
    /// at an even distance; before, one cannot tell, and nothing is read ahead of a stream that has not shown more.
    fn leaves_out(&mut self, at: usize, join: Join, wanted: Wanted, view: View<'_>) -> Option<Plan> {
        let Wanted { page, end, first, .. } = wanted;
        let entry = self.table.get(at);
        let (gap, past) = match join {
            Join::Up => (first.saturating_sub(entry.hi), entry.hi),
            Join::Down => (entry.lo.saturating_sub(end), entry.lo),
            Join::Stride | Join::Behind => return None,
        };
        if gap == 0 {
            return None;
        }
        let apart = first.wrapping_sub(entry.piece).cast_signed();
        let block = if join == Join::Up { past.saturating_sub(entry.piece) } else { end - first };
        let even = apart == entry.apart && (1..apart.unsigned_abs()).contains(&block);
        let untried = entry.window == 0;
        (entry.piece, entry.apart) = (first, apart);
        if even && let Some(edge) = first.checked_add_signed(apart) {
            entry.way = Way::Stride { step: apart, block };
            (entry.lo, entry.hi, entry.edge, entry.window) = (first, end, edge, 0);
            entry.consumed = entry.consumed.saturating_add(end - page);
            let fits = end - page <= block;
            return Some(if fits { self.window_strided(at, wanted, view) } else { wanted.alone() });
        }
        if untried {
            entry.consumed = entry.consumed.saturating_add(end - page);
            (entry.lo, entry.hi) = (entry.lo.min(page), entry.hi.max(end));
            entry.edge = if join == Join::Up { entry.hi } else { entry.lo };
            entry.way = if join == Join::Up { Way::Up } else { Way::Down };
            return Some(wanted.alone());
        }
        None
    }

    /// Whether a reader came to `page` over the pages that were read ahead for it, and not through them. It did not go on,
    /// then, however well what it wants fits to a window's end: windows are powers of two, and so are most even distances.
    /// Requests that come in another order leave out little more than themselves, and come to the rest at once.
    fn leapt(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> bool {
        let entry = self.table.get(at);
        let span = wanted.page.saturating_sub(entry.hi);
        let near = entry.slack().max(2 * (wanted.end - wanted.page));
        if !matches!(entry.way, Way::New | Way::Up) || span <= near {
            return false;
        }
        // Most of what lies between was read ahead, and not used.
        let ahead = entry.edge.min(wanted.page).saturating_sub(entry.hi);
        ahead > span / 2 && self.used_since(at, wanted.page, view) < span / 2
    }

    /// A miss or a mark of a stream that is read upward.
    fn upward(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = wanted;
        let trusted = self.scores.trusts(Detector::Sequential);
        let entry = self.table.get(at);
        let began = entry.window == 0;
        if entry.way == Way::New {
            self.scores.count(Detector::Sequential, true);
            if began && !trusted {
                // Among many reads in no order some lie side by side. A third one in a row is more than chance.
                entry.way = Way::Up;
                entry.consumed = entry.consumed.saturating_add(end - page);
                (entry.hi, entry.edge) = (entry.hi.max(end), entry.edge.max(end));
                return wanted.alone();
            }
        }
        let lost = page < entry.edge;
        entry.way = Way::Up;
        entry.consumed = entry.consumed.saturating_add(end - page).saturating_add(page - entry.hi.min(page));
        entry.hi = end.max(entry.hi);
        let (size, reason) = if lost {
            entry.pace.thrashed(entry.window);
            ((entry.edge - page).min(entry.window), Reason::Thrash)
        } else if began {
            (initial_size(end - page, max), Reason::Miss)
        } else if entry.consumed < entry.expected.saturating_mul(4) {
            // A run that is longer than expected will not be so by much.
            (end - page + (entry.expected / 4).max(SPECULATION_MIN), Reason::Range)
        } else {
            entry.waited = true;
            (next_size(entry.window, max), Reason::Readahead)
        };
        let at = self.table.close_gaps(at);
        self.window_up(at, wanted, size, reason, view)
    }

    /// A miss of a stream that is read downward.
    fn downward(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = wanted;
        let entry = self.table.get(at);
        entry.proven = entry.proven.saturating_add(1);
        let known = entry.way == Way::Down || entry.proven > 1;
        if entry.way == Way::New {
            self.scores.count(Detector::Backward, true);
            entry.edge = entry.lo;
        }
        let lost = page >= entry.edge;
        let began = entry.window == 0;
        entry.consumed = entry.consumed.saturating_add(end - page);
        entry.lo = page;
        let (size, reason) = if lost {
            entry.pace.thrashed(entry.window);
            ((end - entry.edge).min(entry.window), Reason::Thrash)
        } else if began {
            (initial_size(end - page, max), Reason::Backward)
        } else {
            entry.waited = true;
            (next_size(entry.window, max), Reason::Backward)
        };
        if !known && !self.scores.trusts(Detector::Backward) {
            // Two requests that came in the wrong order look like this: it may go on either way.
            let entry = self.table.get(at);
            entry.edge = entry.hi;
            return wanted.alone();
        }
        self.table.get(at).way = Way::Down;
        let at = self.table.close_gaps(at);
        self.window_down(at, wanted, size, reason, view)
    }

    /// A miss of a stream at an even distance.
    fn strided(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let entry = self.table.get(at);
        let Way::Stride { step, block } = entry.way else { return wanted.alone() };
        let (steps, within) = entry.steps_to(wanted.page, step);
        let overtook = steps >= entry.steps_to(entry.edge, step).0;
        if steps > 0 {
            entry.proven = entry.proven.saturating_add(steps.min(255) as u8);
            entry.waited |= overtook && entry.window > 0;
            entry.consumed = entry.consumed.saturating_add(block);
            entry.lo = entry.lo.wrapping_add_signed(step.wrapping_mul(steps));
            if overtook {
                entry.edge = entry.lo.checked_add_signed(step).unwrap_or(entry.lo);
                self.scores.count(Detector::Stride, true);
            }
        }
        if wanted.end - wanted.page > block - within {
            return wanted.alone();
        }
        self.window_strided(at, wanted, view)
    }

    /// What looked like blocks at an even distance are streams that began at even distances.
    fn behind(&mut self, at: usize, wanted: Wanted, view: View<'_>) -> Plan {
        let entry = self.table.get(at);
        let began = !entry.over;
        entry.over = true;
        if began {
            self.scores.count(Detector::Stride, false);
        }
        let at = self.enter(Entry { way: Way::Up, ..Entry::new(wanted.page, wanted.page) });
        self.upward(at, wanted, view)
    }

    /// The reader has come to a mark.
    fn marked(&mut self, wanted: Wanted, view: View<'_>) -> Plan {
        let Some(at) = self.table.marked(wanted.page) else { return self.context(wanted, view) };
        if self.table.get(at).way == Way::Expected {
            return self.landed(at, wanted, view);
        }
        if self.leapt(at, wanted, view) {
            return self.begun(wanted, view);
        }
        self.table.touch(at);
        let read = self.used_since(at, wanted.page, view);
        let Wanted { page, end, max, .. } = wanted;
        let entry = self.table.get(at);
        match entry.way {
            Way::New | Way::Up => {
                let before = entry.hi;
                entry.consumed = entry.consumed.saturating_add(read);
                entry.hi = entry.hi.max(end.min(entry.edge)).max(page);
                entry.consumed = entry.consumed.saturating_add(entry.hi - page.max(before).min(entry.hi));
                entry.way = Way::Up;
                let size = next_size(entry.window, max);
                let plan = self.window_up(at, wanted, size, Reason::Lookahead, view);
                Plan { done: self.done(at, before, page), ..plan }
            }
            Way::Down => {
                entry.consumed = entry.consumed.saturating_add(read);
                entry.lo = entry.lo.min(page);
                let size = next_size(entry.window, max);
                self.window_down(at, wanted, size, Reason::Lookahead, view)
            }
            Way::Stride { step, block } => {
                let steps = entry.steps_to(page, step).0;
                entry.proven = entry.proven.saturating_add(steps.min(255) as u8);
                entry.consumed = entry.consumed.saturating_add(block.saturating_mul(steps.unsigned_abs()));
                entry.lo = entry.lo.wrapping_add_signed(step.wrapping_mul(steps));
                self.window_strided(at, wanted, view)
            }
            Way::Expected => wanted.nothing(Reason::Jumps),
        }
    }

    /// The pages between where a stream was and `page`, if memory is short and nobody comes behind.
    fn done(&mut self, at: usize, before: u64, page: u64) -> Option<PageRange> {
        let limit = self.table.get(at).pace.limit;
        if limit == u64::MAX || before >= page {
            return None;
        }
        let followed = self.table.any_up_to(at, page.saturating_sub(limit.saturating_mul(4)), page);
        (!followed).then(|| PageRange::new(before, page))
    }

    /// A run begins that belongs to nothing known.
    fn begun(&mut self, wanted: Wanted, view: View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = wanted;
        self.close_last();
        self.fresh += 1;
        let step = self.runs.step_to(page);
        let expected = if self.is_short(view) { self.runs.shortest() } else { self.runs.length() };
        self.judge_jump(page);
        self.runs.push(page);
        if self.tail_read && page + TAIL_PAGES >= view.file_pages.0 {
            self.scores.count(Detector::Tail, true);
            self.tail_read = false;
        }
        let strided = step.and_then(|step| self.stride_begun(wanted, step, view));
        let at = self.enter(Entry::new(page, end));
        if let Some(plan) = strided {
            return plan;
        }
        let file = view.file_pages.0;
        if self.fresh > 1 && file <= WHOLE_WINDOWS * max && self.scores.trusts(Detector::Whole) {
            return self.whole(at, wanted, view);
        }
        if page == 0 {
            let size = initial_size(end, max);
            return self.window_up(at, wanted, size, Reason::Initial, view);
        }
        if page >= file.saturating_sub(TAIL_PAGES) && file > max && self.scores.trusts(Detector::Tail) {
            self.tail_read = true;
            return self.tail(at, wanted, view);
        }
        if self.scores.trusts(Detector::Cluster) && expected > end - page {
            self.table.get(at).expected = expected;
            let plan = self.window_up(at, wanted, expected.min(max * FILE_WINDOWS), Reason::Range, view);
            self.jump(at, plan.window.size.0, wanted, view);
            return plan;
        }
        self.jump(at, 0, wanted, view);
        wanted.alone()
    }

    /// The run before has ended: is it as long as the ones before it?
    fn close_last(&mut self) {
        let Some(last) = self.table.last() else { return };
        if !matches!(last.way, Way::New | Way::Up) {
            return;
        }
        let (pages, alone) = (last.hi.saturating_sub(last.lo), last.way == Way::New && last.window == 0);
        // One request says how long requests are, and not how long runs.
        match self.runs.ended(if alone { 1 } else { pages }) {
            Some(Foretold::Exactly) => self.scores.count_exact(Detector::Cluster),
            Some(foretold) => self.scores.count(Detector::Cluster, foretold == Foretold::Roughly),
            None => {}
        }
        if alone {
            self.scores.count(Detector::Sequential, false);
        }
    }

    /// Three runs at an even distance: a stream, to be believed when a fourth one comes where it should.
    fn stride_begun(&mut self, wanted: Wanted, step: i64, view: View<'_>) -> Option<Plan> {
        let before = wanted.page.wrapping_add_signed(step.wrapping_neg());
        let block = match self.table.begun_at(before) {
            Some(at) => {
                let entry = self.table.get(at);
                entry.hi.saturating_sub(entry.lo)
            }
            None => wanted.end - wanted.page,
        };
        let edge = wanted.page.checked_add_signed(step)?;
        if block >= step.unsigned_abs() || wanted.end - wanted.page > block {
            return None;
        }
        let way = Way::Stride { step, block };
        let at = self.enter(Entry { way, edge, ..Entry::new(wanted.page, wanted.end) });
        // It may as well be the begin of a stream like any other: several begin at even distances if one file is shared out.
        self.scores.trusts(Detector::Stride).then(|| self.window_strided(at, wanted, view))
    }

    /// Enters a stream; one that has to go tells whether it was one.
    fn enter(&mut self, entry: Entry) -> usize {
        let (at, gone) = self.table.insert(entry);
        match gone.map(|gone| (gone.way, gone.proven)) {
            Some((Way::Stride { .. }, 0)) => self.scores.count(Detector::Stride, false),
            Some((Way::Down, 1)) => self.scores.count(Detector::Backward, false),
            _ => {}
        }
        at
    }
}
