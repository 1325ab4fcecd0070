//! How much to read: windows upward, downward and strided, within the budgets.

use super::tuning::tuning;
use super::{Direction, Entry, Stream, Wanted};
use crate::page::{PageCount, PageIndex};
use crate::readahead::{Candidate, Hints, Plan, Reason, Stride, Verdict, View, Window};
use crate::window::next_size;

impl Wanted {
    fn pages(&self) -> u64 {
        self.end - self.page
    }

    /// The requested pages and nothing else.
    pub(super) fn alone(&self) -> Plan {
        let reason = if self.pages() > self.max { Reason::Oversize } else { Reason::Random };
        Plan::new(PageIndex(self.page), self.pages(), 0, reason)
    }

    /// Reads nothing.
    pub(super) fn nothing(&self, reason: Reason) -> Plan {
        Plan::new(PageIndex(self.page), 0, 0, reason)
    }
}

impl Stream {
    /// A window of `size` pages: at the missing page, or at the end of the stream's readahead.
    pub(super) fn window_up(
        &mut self,
        at: usize,
        wanted: &Wanted,
        size: u64,
        reason: Reason,
        view: &View<'_>,
    ) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let async_only = reason == Reason::Lookahead;
        let usual = self.runs.length();
        let entry = self.table.get(at);
        let from = if async_only { entry.edge } else { entry.hi.max(end) };
        let usual = entry.usual_end(usual).saturating_sub(from);
        let grown = self.target(at, size, wanted, reason, view);
        let grown = if reason == Reason::Range { grown } else { grown.min(usual) };
        let room = view.file_pages.0.saturating_sub(from);
        let start = if async_only { first_absent(from, room.min(grown), view) } else { from };
        let skipped = start - from;
        // Requested pages are outside the budget.
        let demanded = end.saturating_sub(start);
        let wanted_ahead = grown.min(room - skipped).saturating_sub(demanded);
        let ahead = self.grant(at, wanted_ahead, wanted, !async_only, view);
        let entry = self.table.get(at);
        let pages = ahead + demanded;
        entry.edge = (start + pages).max(end);
        if pages > 0 {
            entry.window = size.min(max).max(1);
        }
        let (first, mark) = if async_only {
            (start, start)
        } else if reason == Reason::Readahead && from == end {
            (page, page)
        } else {
            (page, from)
        };
        let last = start + pages;
        // Under memory pressure a late mark keeps unread readahead small.
        let mark = if entry.pace.limit < max * tuning().stream_windows && ahead > 1 {
            mark.max(last.saturating_sub(entry.pace.lead()))
        } else {
            mark
        };
        // A predicted run needs no mark: a longer run misses at its end.
        let marked = ahead > 0 && reason != Reason::Range;
        entry.mark = marked.then_some(mark);
        // A window behind a long first read has one mark: more would lie in the read, too.
        entry.mark_every = if reason == Reason::Initial { 0 } else { entry.every(last - mark, wanted, view) };
        let tripwire = last - ahead / tuning().outgrown;
        let trips = wanted.mapped && reason == Reason::Range && ahead >= tuning().speculation_min;
        entry.tripwire = trips.then_some(tripwire);
        let kept = entry.is_proven();
        // The stream has merged with one beyond the request. Pages between the request and the end
        // of that stream are not requested.
        let apart = !async_only && from > end;
        let first = if apart { from } else { first };
        let mut plan = Plan::new(PageIndex(first), last - first, 0, reason);
        if marked {
            plan.window.async_size = PageCount(last - mark);
            plan.mark = Some(PageIndex(mark));
        }
        plan.hints.mark_every = entry.mark_every;
        plan.hints.read_once = self.drop_behind(at, view);
        plan.hints.retain = kept;
        if reason == Reason::Range {
            // Several requests: the reader waits for the first, the others are in flight meanwhile.
            plan.hints.split_every = part(max);
            plan.mark = trips.then_some(PageIndex(tripwire));
        }
        if apart {
            self.more.extend((ahead > 0).then_some(plan));
            return Plan::new(PageIndex(page), end - page, 0, reason);
        }
        plan
    }

    /// A window of `size` pages below the missing page, or below the stream's readahead.
    pub(super) fn window_down(
        &mut self,
        at: usize,
        wanted: &Wanted,
        size: u64,
        reason: Reason,
        view: &View<'_>,
    ) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let async_only = reason == Reason::Lookahead;
        let from = if async_only { self.table.get(at).edge } else { page };
        let grown = self.target(at, size, wanted, reason, view).min(from);
        let ahead = self.grant(at, grown, wanted, !async_only, view);
        let entry = self.table.get(at);
        entry.edge = entry.edge.min(from - ahead);
        entry.window = size.min(max).max(1);
        let top = if async_only { from } else { end };
        let every = entry.every(ahead, wanted, view);
        entry.mark = (ahead > 0).then(|| from - 1);
        let mut plan = Plan::new(PageIndex(from - ahead), top - (from - ahead), 0, reason);
        if ahead > 0 {
            plan.window.async_size = PageCount(ahead);
            plan.mark = Some(PageIndex(from - 1));
            plan.hints.mark_every = every;
            plan.hints.retain = self.table.get(at).is_proven();
        }
        plan
    }

    /// The blocks ahead of a strided stream, with the requested block.
    pub(super) fn window_strided(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, max, .. } = *wanted;
        let entry = self.table.get(at);
        let Direction::Stride(blocks) = entry.direction else { return wanted.alone() };
        let ((length, part), block) = (blocks.distance(), blocks.pages);
        let (lo, edge) = (entry.lo, entry.edge);
        let (proven, entry_over) = (u64::from(entry.proven.max(1)), entry.over);
        let outstanding = entry.ahead() / block;
        let proven = if entry.proven == u8::MAX { u64::MAX } else { proven };
        let window = self.table.get(at).window;
        let next = if wanted.mapped { next_size(window, max) } else { self.next_window(at, max) };
        let size = next.max(block);
        let grown = self.target(at, size, wanted, Reason::Lookahead, view);
        let upward = blocks.is_upward();
        let room =
            if upward { view.file_pages.0.saturating_sub(edge).div_ceil(length) } else { edge / length + 1 };
        let far = self.pages_per_fill() > max && !wanted.mapped;
        // A stride that is no whole number of pages is known only approximately. So it predicts no
        // more blocks than came as predicted.
        let times = if far && part == 0 { tuning().shown_times } else { 1 };
        // At most as many blocks as came as predicted: sequential streams that begin at equal
        // distances look the same at first.
        let shown = if entry_over { 0 } else { proven.saturating_mul(times).saturating_sub(outstanding) };
        let more = if edge == lo { 0 } else { grown.div_ceil(block).min(room).min(shown) };
        let ahead = self.grant(at, more * block, wanted, false, view) / block;
        let entry = self.table.get(at);
        let consumed = entry.consumed;
        entry.window = size.min(max);
        let from = blocks.steps_to(lo, edge).0;
        let to = from.saturating_add((ahead.max(1) - 1).cast_signed());
        let last = blocks.start(lo, to);
        entry.edge = if ahead > 0 { blocks.start(lo, to.saturating_add(1)) } else { edge };
        entry.mark = (ahead > 0).then_some(edge);
        let missing = !view.is_cached(PageIndex(page));
        // If memory does not hold a whole block ahead, it may hold the rest of the current one.
        let rest = match ahead {
            0 if missing => self.grant(
                at,
                lo.saturating_add(block).saturating_sub(wanted.end).min(grown),
                wanted,
                true,
                view,
            ),
            _ => 0,
        };
        let near = if missing { page } else { edge };
        let (first, end) = match (ahead, upward) {
            (0, _) => (page, page),
            (_, true) => (near.min(edge), last + block),
            (_, false) => (last, near.max(edge) + block),
        };
        let end = if missing { end.max(wanted.end + rest) } else { end };
        let window =
            Window { start: PageIndex(first), size: PageCount(end - first), async_size: PageCount(0) };
        // Repeated marks are whole pages apart, so any other stride has one mark.
        let every = self.table.get(at).step(wanted, view).div_ceil(block) * length * u64::from(part == 0);
        let lowest = if upward { 0 } else { to };
        let hints = Hints {
            mark_every: every,
            stride: Some(Stride {
                offset: PageIndex(blocks.start(lo, lowest)),
                length,
                part,
                phase: blocks.phase(lowest),
                data: block,
            }),
            retain: consumed >= (outstanding + ahead).saturating_mul(block),
            ..Hints::default()
        };
        let mark = (ahead > 0).then_some(PageIndex(edge));
        Plan { window, mark, reason: Reason::Stride, hints }
    }

    /// The last pages of a file.
    pub(super) fn tail(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> Plan {
        let pages = view.file_pages.0;
        if !self.accepts_predicted(Candidate::Tail, tuning().tail_pages, 0, view) {
            return wanted.alone();
        }
        self.table.get(at).edge = pages;
        let start = pages.saturating_sub(tuning().tail_pages).min(wanted.page);
        Plan::new(PageIndex(start), pages - start, 0, Reason::Tail)
    }

    /// Decides at a mark that no stream owns. Its window is assumed to reach from the mark to the
    /// end of the cached pages (as in Linux since 2.6.24). The next window begins there.
    pub(super) fn context(&mut self, wanted: &Wanted, view: &View<'_>) -> Plan {
        let Wanted { page, end, max, .. } = *wanted;
        let Some(hole) = view.next_miss(PageIndex(page + 1), PageCount(max)) else {
            return wanted.nothing(Reason::Context);
        };
        let size = next_size(hole.0 - page, max);
        let entry = Entry { direction: Direction::Up, edge: hole.0, window: size, ..Entry::new(page, page) };
        let at = self.enter(entry);
        let hi = end.min(hole.0);
        self.table.get(at).hi = hi;
        let plan = self.window_up(at, wanted, size, Reason::Lookahead, view);
        Plan { reason: Reason::Context, ..plan }
    }

    /// Target size of the next request: the window, or the pages missing from the distance.
    fn target(&mut self, at: usize, size: u64, wanted: &Wanted, reason: Reason, view: &View<'_>) -> u64 {
        let most = (view.frames / tuning().memory_share).min(self.config.distance_pages_max);
        let of_file = self.pace.pages_per_fill();
        let entry = self.table.get(at);
        entry.pace.observe(wanted.now, entry.consumed, view.pressure);
        let floor = wanted.max.saturating_mul(tuning().stream_windows);
        entry.distance = entry.distance.max(1);
        // With known fill times, the distance grows to two fills at once. Otherwise it doubles.
        let enough = entry
            .pace
            .pages_per_fill()
            .or(of_file)
            .map(|pages| pages.saturating_mul(tuning().distance_fills));
        // A reader that begins at the first page is expected to wait.
        let will_wait =
            entry.lo == 0 && reason == Reason::Lookahead && enough.is_some_and(|enough| enough > floor);
        if entry.waited && entry.window >= wanted.max || will_wait && size >= wanted.max {
            let grown = enough.unwrap_or_else(|| entry.distance.max(floor).saturating_mul(2)).min(most);
            entry.distance = entry.distance.max(grown).max(floor);
        }
        let waited = core::mem::take(&mut entry.waited);
        let room = entry.pace.space(entry.ahead(), view.pressure);
        let (mut size, mut distance) = (size, entry.distance);
        // A reader that waited may appear slow although waits are subtracted.
        if self.config.slow_window_pages > 0 && !waited {
            let lasting = entry.pace.lasting(self.config.slow_window_pages, wanted.max);
            if lasting < wanted.max {
                (size, distance) = (size.min(lasting), distance.min(lasting));
            }
        }
        let lacks = distance.saturating_sub(entry.ahead());
        let beyond = size.saturating_sub(wanted.pages());
        let target = match reason {
            Reason::Lookahead => size.max(lacks),
            // The reader reached the end of the readahead, and will again.
            Reason::Readahead | Reason::Backward if beyond > 0 && enough.is_some() => beyond.max(lacks),
            _ if beyond > 0 => beyond,
            // Two windows are the base of its budget, and this reader uses windows at once.
            Reason::Initial if self.config.costs_only_time() => {
                size.min(wanted.max) * tuning().stream_windows
            }
            _ => size.min(wanted.max),
        };
        target.min(room)
    }

    /// How many of `pages` the budgets allow: all, whole windows, one request that is long enough,
    /// or none. A congested device gets no new readahead requests. `joined`: the pages extend a
    /// demand request, which is allowed on a congested device, and at any length.
    fn grant(&mut self, at: usize, pages: u64, wanted: &Wanted, joined: bool, view: &View<'_>) -> u64 {
        let max = wanted.max;
        let least = least(wanted);
        if view.congested && !joined || pages == 0 {
            if pages > 0 && self.weighed.is_some() {
                self.weigh_window(at, (pages, 0), Verdict::NoBudget, wanted, view);
            }
            return 0;
        }
        let percent = u64::from(self.config.waste_percent);
        let pages_per_fill = self.pace.pages_per_fill();
        let entry = self.table.get(at);
        // Before pages were used: two windows, or the predicted length or the strided block if that
        // is longer.
        let block = if let Direction::Stride(blocks) = entry.direction { blocks.pages } else { 0 };
        let first =
            (max * tuning().stream_windows).max(entry.expected).max(block).min(max * tuning().file_windows);
        let (ahead, consumed) = (entry.ahead(), entry.consumed);
        let in_order = matches!(entry.direction, Direction::Up | Direction::Down);
        let near = entry
            .pace
            .pages_per_fill()
            .or(pages_per_fill)
            .is_none_or(|pages| pages < max * tuning().stream_windows);
        let file = self.file_budget(view, pages);
        let takes_time = pages_per_fill.is_some();
        let mut share = consumed.saturating_mul(percent) / 100;
        let first_of_file = max * tuning().file_windows;
        if takes_time && first + share < ahead + pages {
            // All used pages count.
            if self.table.ahead(u64::MAX) <= ahead {
                let only_time = self.config.costs_only_time();
                let of_file = first_of_file + if only_time { share } else { 0 };
                // A reader in order that used twice the base will probably go on.
                let goes_on = only_time && in_order && consumed / 2 >= first;
                share = share.max(consumed.saturating_mul(if goes_on { 2 } else { 1 }).min(of_file));
            } else if share < first_of_file {
                // Half of the file's budget is left to other streams.
                share = share.max(consumed.min(file.saturating_add(ahead) / 2));
            }
        }
        // A strided reader may stop at any block: at most half of its pages are then waste. Two
        // windows hold few long blocks, so these have the whole budget.
        let has_short_blocks = (1..=tuning().in_order).contains(&block);
        let stops = if has_short_blocks && takes_time { first.max(consumed / 2) } else { u64::MAX };
        let reach = self.reach(at, wanted, view);
        let budget = (first + share).min(stops).min(reach);
        // The first windows of a stream are outside the file's budget until the file's budget is
        // used up.
        let own = (max * tuning().stream_windows).saturating_sub(ahead);
        let file = if file > 0 { file.saturating_add(own) } else { 0 };
        let (odds, asked) = (self.odds(least, view), pages);
        let most = budget.saturating_sub(ahead).min(file).min(view.free).min(odds);
        let pages = match most {
            most if pages <= most => pages,
            most if most >= max && near => most / max * max,
            // Pages added to a demand request need no minimum.
            most if most >= least || joined => most,
            _ => 0,
        };
        let pays = joined || self.pays_on_a_head(pages, ahead, wanted.end - wanted.first, view);
        let granted = if pays { pages } else { 0 };
        if self.weighed.is_some() {
            // Chances limit the reach of a run, and the odds a request of a disk.
            let is_limit = reach.saturating_sub(ahead).min(odds) <= most;
            let by_chance = is_limit || pages > 0 && !pays;
            let refused = if by_chance { Verdict::NoGain } else { Verdict::NoBudget };
            self.weigh_window(at, (asked, granted), refused, wanted, view);
        }
        granted
    }

    /// Maximum pages of a readahead request on a store with a head: the pages read in the time of a
    /// request that continues a run (`worth`), times the odds: used pages of the file's readahead
    /// for each unread one. `worth` is added to both counts, so the odds begin at 1. At least
    /// `least`.
    fn odds(&self, least: u64, view: &View<'_>) -> u64 {
        if !self.config.seeks || view.costs.pages_per_request() == 0 {
            return u64::MAX;
        }
        let worth = view.costs.pages_per_onward_request().max(1);
        let (used, unread) = (view.waste.used + worth, view.waste.unread + worth);
        let pages = u128::from(worth) * u128::from(used) / u128::from(unread);
        // Without readahead, the odds would never rise again.
        u64::try_from(pages).unwrap_or(u64::MAX).max(least)
    }

    /// Whether a readahead request of `pages` pages gains time on a store with a head. It saves the
    /// demand requests of its used pages, each of `request` pages and continuing a run. The chance
    /// of use is the share of the file's earlier readahead that was used. The `ahead` pages of the
    /// stream do not count, and `worth`, the pages that a request is worth, is added to the used
    /// ones, so the chance begins at 1. Readahead of other streams counts as unused until it is
    /// used, since one reader's readahead delays the other. True on other stores, and while costs
    /// are unknown.
    fn pays_on_a_head(&self, pages: u64, ahead: u64, request: u64, view: &View<'_>) -> bool {
        let worth = view.costs.pages_per_request();
        if !self.config.seeks || worth == 0 {
            return true;
        }
        let used = view.waste.used + worth;
        let all = used + view.waste.unread.saturating_sub(ahead);
        let onward = view.costs.pages_per_onward_request();
        let [pages, request, worth, onward, used, all] =
            [pages, request, worth, onward, used, all].map(u128::from);
        // In times of a page. The head is often there already for a saved request, and seldom for
        // the readahead request.
        let saved = pages.saturating_mul(onward + request).saturating_mul(used);
        saved >= (worth + pages).saturating_mul(request).saturating_mul(all)
    }

    /// Maximum pages ahead of a stream, as far as the expected gain of a page covers its expected
    /// cost. At least the length of the run. Without limit while costs are unknown, for
    /// predicted runs, strides and mapped files, and for the first window of a stream that begins
    /// at page 0.
    fn reach(&mut self, at: usize, wanted: &Wanted, view: &View<'_>) -> u64 {
        let Some(costs) = view.costs.of_a_page(wanted.end - wanted.first) else { return u64::MAX };
        let entry = self.table.get(at);
        let predicted = entry.expected > 0 || entry.lo == 0 && entry.window == 0;
        let in_order = matches!(entry.direction, Direction::New | Direction::Up | Direction::Down);
        if predicted || !in_order || wanted.mapped {
            return u64::MAX;
        }
        let read = entry.hi - entry.lo;
        self.runs.reach(read, costs).max(read)
    }

    /// Pages of a new run to read at once: the expected length, or less if the waste budget of one
    /// run does not cover it. At least the shortest recent length.
    pub(super) fn affordable(&mut self, view: &View<'_>) -> u64 {
        let longest = self.runs.length();
        // Unread readahead counts as waste until it is used, so the budget keeps one expected
        // length in reserve.
        let reserve = self.others_waste(longest, view).saturating_add(longest).max(1);
        let runs = tuning().remembered + self.table.readers().saturating_sub(1);
        let enough = reserve.saturating_add(longest.saturating_mul(runs));
        let left = self.file_budget(view, enough).min(enough);
        let earned = self.runs.mean().saturating_mul(self.config.waste_percent.into()) / 100;
        let waste = match left.checked_sub(reserve) {
            Some(spare) => earned.saturating_add(spare / runs),
            None => earned.saturating_mul(left) / reserve,
        };
        let pages = self.runs.pages_for_waste(waste, longest);
        match self.config.reader_ahead_pages {
            0 => pages.max(self.runs.shortest()),
            // The kernel's last one or two readahead requests of a run went unused, so they are
            // subtracted.
            ahead => pages.saturating_sub(2 * ahead).max(self.runs.least()),
        }
    }

    /// Whether the waste budget covers a wasted run of `pages` pages.
    pub(super) fn covers_waste(&mut self, pages: u64, view: &View<'_>) -> bool {
        let needed = pages.saturating_add(self.others_waste(pages, view));
        self.file_budget(view, needed) >= needed
    }

    /// Waste budget reserved for the other readers, if each is read ahead by `pages`: their
    /// expected waste and half a window each.
    fn others_waste(&self, pages: u64, view: &View<'_>) -> u64 {
        let others = self.table.readers().saturating_sub(1);
        others.saturating_mul(self.runs.mean_waste(pages).saturating_add(view.ra_pages / 2))
    }

    /// Whether the budget allows `pages` pages of readahead outside of streams.
    pub(super) fn allows(&mut self, pages: u64, view: &View<'_>) -> bool {
        !view.congested && pages <= self.file_budget(view, pages) && pages <= view.free
    }

    /// The file's waste budget in pages after `consumed` used pages. Each reader beyond the first
    /// adds two windows.
    fn file_waste_max(&self, view: &View<'_>, readers: u64, consumed: u64) -> u64 {
        let first = view.ra_pages.max(1)
            * (tuning().file_windows + tuning().stream_windows * readers.saturating_sub(1));
        first + consumed.saturating_mul(self.config.waste_percent.into()) / 100
    }

    /// What is left of the file's waste budget. Exact only if it is less than `pages`.
    pub(super) fn file_budget(&mut self, view: &View<'_>, pages: u64) -> u64 {
        let max = view.ra_pages.max(1);
        let readers = self.table.readers();
        let limit = |consumed: u64| self.file_waste_max(view, readers, consumed);
        let waste = view.waste;
        let left = limit(waste.consumed).saturating_sub(waste.unread);
        if left >= pages {
            return left;
        }
        // Pages of the current request count as used, even if it arrives page by page.
        let (start, end) = (self.requested.start.0, self.requested.end.0);
        let now = (start..end).filter(|&page| view.is_unread(PageIndex(page))).count() as u64;
        let (limit, unread) = (limit(waste.consumed + now), waste.unread.saturating_sub(now));
        let left = limit.saturating_sub(unread);
        if left >= pages {
            return left;
        }
        // The first windows of active streams are not waste yet.
        limit.saturating_sub(unread.saturating_sub(self.table.ahead(max * tuning().stream_windows)))
    }

    /// Estimates from samples how many pages between the stream and `page` were used.
    pub(super) fn used_since(&mut self, at: usize, page: u64, view: &View<'_>) -> u64 {
        let entry = self.table.get(at);
        let (from, to) = match entry.direction {
            Direction::Down => (page, entry.lo),
            _ => (entry.hi, page),
        };
        let span = to.saturating_sub(from);
        if span == 0 {
            return 0;
        }
        let samples = span.min(tuning().samples);
        let used =
            (0..samples).filter(|n| !view.is_unread(PageIndex(from + span * n / samples))).count() as u64;
        span * used / samples
    }
}

/// The shortest readahead that is worth a request, in pages.
fn least(wanted: &Wanted) -> u64 {
    if wanted.mapped { least_mapped().min(wanted.max) } else { tuning().speculation_min }
}

/// The shortest readahead of a mapped file: a request also costs a fault.
fn least_mapped() -> u64 {
    tuning().speculation_min * tuning().mapped
}

/// Pages of one request of a run that is read at once.
pub(super) fn part(max: u64) -> u64 {
    (max / tuning().parts).max(tuning().in_order)
}

/// Pages of each request if `pages` is split evenly into requests of at least `least` pages. 0
/// means one request.
fn evenly(pages: u64, least: u64) -> u64 {
    match pages / least {
        0 | 1 => 0,
        pieces => pages.div_ceil(pieces),
    }
}

impl Entry {
    /// Whether its reader has used at least as many pages as are ahead.
    fn is_proven(&self) -> bool {
        self.consumed >= self.ahead()
    }

    /// Distance between marks, in pages; 0 for one mark. On a store that takes time, marks split
    /// the window evenly.
    fn every(&self, pages: u64, wanted: &Wanted, view: &View<'_>) -> u64 {
        let step = self.step(wanted, view);
        match self.pace.pages_per_fill() {
            Some(_) => evenly(pages, step),
            None if pages > step => step,
            None => 0,
        }
    }

    /// The smallest distance between marks.
    fn step(&self, wanted: &Wanted, view: &View<'_>) -> u64 {
        let max = wanted.max;
        if self.distance <= max.saturating_mul(tuning().stream_windows) {
            return max;
        }
        // Strided blocks are separate requests anyway. On a store that takes no time, steps follow
        // from twice the distance, so there are fewer requests.
        let timeless = self.pace.pages_per_fill().is_none();
        let shortest =
            if timeless || matches!(self.direction, Direction::Stride(_)) { 1 } else { tuning().in_order };
        let least = (max / tuning().step_windows).max(shortest).min(max);
        let ahead = if timeless { self.distance * 2 } else { self.ahead().max(view.pressure.unread) };
        let steps = tuning().steps / if wanted.mapped { tuning().mapped } else { 1 };
        let step = (ahead / steps).clamp(least, max * tuning().step_windows);
        if wanted.mapped { step.max((self.distance / tuning().mapped).min(least_mapped())) } else { step }
    }
}

fn first_absent(from: u64, pages: u64, view: &View<'_>) -> u64 {
    if pages == 0 || !view.is_cached(PageIndex(from)) {
        return from;
    }
    view.next_miss(PageIndex(from), PageCount(pages)).map_or(from + pages, |page| page.0)
}
