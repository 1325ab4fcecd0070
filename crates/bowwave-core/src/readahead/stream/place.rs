//! Places: parts of a file whose pages are read in any order, one place after the other.
//!
//! ```text
//!   file             .|........|# ## ### #|..........|.........|.....    # where recent runs began
//!                              |<- place ->|
//! ```
//!
//! Three signs tell that a reader is in a place:
//!
//! - **Runs in a row.** The last runs began near each other, in no order. Uniformly random reads
//!   hardly ever do that. The place is estimated from where the runs began.
//! - **The place before.** Of each of the last two places read at once, at least a third was used.
//!   Then the next miss elsewhere is expected in a place of the same size.
//! - **Runs among others.** Several of the recent runs began in one aligned place. It is so small
//!   that uniformly random reads hardly ever meet in it. This finds the places of readers that
//!   alternate.
//!
//! The place is read at once if the requests that this saves take longer than its pages. Places by
//! the first two signs are judged when their reader goes elsewhere. Each place in a row of which
//! less than a third was used makes the first sign stricter: the accepted probability that random
//! reads look like a place is squared.

use super::scores::Detector;
use super::tuning::tuning;
use super::{Stream, Wanted};
use crate::page::{PageIndex, PageRange};
use crate::readahead::{Candidate, FileRequests, Plan, Reason, View};

/// Maximum count of places in a row that were hardly used. At this count, no runs in a row are rare
/// enough, so a larger one changes nothing. Smaller: runs in a row may still show a place.
const UNUSED_MAX: u32 = 5;

/// What is known of the places that were read at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    /// The last one, until its reader leaves it.
    last: Option<PageRange>,
    /// Places in a row of which at least a third was used.
    used_well: u32,
    /// Places in a row of which less was used.
    unused: u32,
    /// Of the last place that was used well: pages from the first used one to the last.
    span: u64,
    /// Used pages within `span`, by samples.
    used: u64,
    /// Size in pages of the aligned place around the last place that was used well, and how many
    /// such places in a row had this size. 0 and 0 if none fits.
    fit: (u64, u32),
}

impl Places {
    /// Judges the last place if its reader continues at `page`, and `page` is further from the
    /// place than the place is long.
    fn judge(&mut self, page: u64, view: &View<'_>) {
        let Some(PageRange { start: PageIndex(start), end: PageIndex(end) }) = self.last else { return };
        let size = end - start;
        if (start.saturating_sub(size)..end + size).contains(&page) {
            return;
        }
        self.last = None;
        let samples = size.min(tuning().place_samples);
        let at = |sample: u64| start + size * sample / samples;
        let mut used = (0..samples).filter(|&sample| view.is_used(PageIndex(at(sample))));
        let Some(first) = used.next() else { return self.count_unused() };
        let (count, last) = used.fold((1, first), |(count, _), sample| (count + 1, sample));
        if tuning().place_used * count < samples {
            return self.count_unused();
        }
        (self.used_well, self.unused) = (self.used_well.saturating_add(1), 0);
        let (from, to) = (at(first), at(last + 1));
        (self.span, self.used) = (to - from, count * size / samples);
        self.fit = match aligned(from, to).map(|place| place.count().0) {
            Some(size) if size == self.fit.0 => (size, self.fit.1.saturating_add(1)),
            Some(size) => (size, 1),
            None => (0, 0),
        };
    }

    fn count_unused(&mut self) {
        (self.used_well, self.unused) = (0, (self.unused + 1).min(UNUSED_MAX));
    }

    /// The place around a miss, by the last two places: aligned if both were, else the miss is in
    /// its middle.
    fn expected(&self, page: u64) -> Option<PageRange> {
        if self.used_well < 2 {
            return None;
        }
        let (size, fits) = self.fit;
        let start = if fits >= 2 { page & !(size - 1) } else { page.saturating_sub(self.span / 2) };
        Some(PageRange::new(start, start + if fits >= 2 { size } else { self.span }))
    }
}

/// The smallest aligned range with a power of two of pages that contains `start..end`, if it has at
/// most twice as many pages.
fn aligned(start: u64, end: u64) -> Option<PageRange> {
    let pages = end - start;
    let size = pages.next_power_of_two();
    let size = if start & !(size - 1) == (end - 1) & !(size - 1) { size } else { 2 * size };
    let first = start & !(size - 1);
    (end <= first + size && size <= 2 * pages).then(|| PageRange::new(first, first + size))
}

impl Stream {
    /// Reads the place in which the request is, if there is one and it pays.
    pub(super) fn place(&mut self, wanted: &Wanted, view: &View<'_>) -> Option<Plan> {
        let request = wanted.end - wanted.page;
        // Most misses end here: large requests, and stores that take no time or whose costs are
        // unknown.
        if view.costs.pages_per_request() < request || wanted.mapped {
            return None;
        }
        self.places.judge(wanted.page, view);
        if let Some(place) = self.places.expected(wanted.page) {
            return self.all_of(place, self.places.used / request, wanted, view);
        }
        if let Some((runs, place)) = self.runs_in_a_row(wanted, view)
            && let Some(plan) = self.all_of(place, runs, wanted, view)
        {
            return Some(plan);
        }
        self.runs_among_others(wanted, view)
    }

    /// The place of the last runs in a row, and how many of them began there.
    fn runs_in_a_row(&self, wanted: &Wanted, view: &View<'_>) -> Option<(u64, PageRange)> {
        if self.scores.trusts(Detector::Jumps) {
            return None;
        }
        let request = wanted.end - wanted.page;
        // As rare by chance as three runs in a row in one of the smaller places of runs among
        // others.
        let bits = (2 * tuning().place_chance.ilog2()) << self.places.unused;
        let most = wanted.max * tuning().stream_windows;
        let (runs, begun) = self.runs.near(view.file_pages.0, bits.into(), most)?;
        let (start, end) = (begun.start.0, begun.end.0 + request);
        // Extends the range at both ends by the mean distance between the runs.
        let apart = (end - start) / (runs - 1);
        let unaligned = || PageRange::new(start.saturating_sub(apart), end + apart);
        let place = aligned(start, end).unwrap_or_else(unaligned);
        (place.count().0 <= tuning().file_windows * runs * request).then_some((runs, place))
    }

    /// Reads the rest of the largest aligned place in which enough recent runs began.
    fn runs_among_others(&mut self, wanted: &Wanted, view: &View<'_>) -> Option<Plan> {
        let Wanted { page, end, max, .. } = *wanted;
        let most = (view.file_pages.0 / tuning().place_chance).min(max);
        let mut size = 1 << most.checked_ilog2()?;
        while size >= tuning().speculation_min.max(2 * (end - page)) {
            let start = page & !(size - 1);
            let runs = self.runs.begun_within(start, size);
            if runs < tuning().place_runs {
                // A smaller place within this one cannot have more runs.
                return None;
            }
            let stop = (start + size).min(view.file_pages.0);
            if stop > end && self.accepts(Candidate::Place, runs * FileRequests::ONE, size, view) {
                return Some(Plan::new(PageIndex(start), stop - start, 0, Reason::Range));
            }
            size /= 2;
        }
        None
    }

    /// Reads the rest of a place if the saved requests would take longer than its pages.
    fn all_of(&mut self, place: PageRange, saved: u64, wanted: &Wanted, view: &View<'_>) -> Option<Plan> {
        let Wanted { page, end, .. } = *wanted;
        let (mut start, mut stop) = (place.start.0, place.end.0.min(view.file_pages.0).max(end));
        let last = self.places.last.unwrap_or_else(|| PageRange::new(start, stop));
        // The last place grows to the side of the miss.
        if page < last.start.0 {
            stop = stop.min(last.start.0);
        } else if page >= last.end.0 {
            start = start.max(last.end.0);
        }
        let pages = stop.saturating_sub(start);
        let least = tuning().speculation_min.max(2 * (end - page));
        let saved = saved.saturating_mul(FileRequests::ONE);
        if stop <= end || pages < least || !self.accepts(Candidate::Place, saved, pages, view) {
            return None;
        }
        let touches = start <= last.end.0 && stop >= last.start.0;
        let grown = PageRange::new(start.min(last.start.0), stop.max(last.end.0));
        self.places.last = Some(if touches { grown } else { PageRange::new(start, stop) });
        Some(Plan::new(PageIndex(start), pages, 0, Reason::Range))
    }
}
