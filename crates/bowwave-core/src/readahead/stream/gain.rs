//! Which candidates pay: expected gains under the measured costs, and their record for `explain`.

use super::onward::of_a_page;
use super::{Direction, Stream, Wanted};
use crate::readahead::{Candidate, FileRequests, Verdict, View, WeighedCandidate};

impl Stream {
    /// Whether a candidate is read: its `pages` take at most as long as the `saved` requests, in
    /// the unit of [`FileRequests::ONE`], and the budget allows them.
    pub(super) fn accepts(&mut self, candidate: Candidate, saved: u64, pages: u64, view: &View<'_>) -> bool {
        let pays = view.costs.pays(saved, FileRequests::ONE.saturating_mul(pages));
        let verdict = match pays {
            false => Verdict::NoGain,
            true if self.allows(pages, view) => Verdict::Chosen,
            true => Verdict::NoBudget,
        };
        if self.weighed.is_some() {
            let gain = view.costs.gain_ns(saved, FileRequests::ONE.saturating_mul(pages));
            self.weigh(candidate, pages, gain.map(|gain| gain / FileRequests::ONE.cast_signed()), verdict);
        }
        verdict == Verdict::Chosen
    }

    /// Whether a candidate that a trusted detector predicts is read: the budget allows its `pages`
    /// beside the `planned` ones of this decision.
    pub(super) fn accepts_predicted(
        &mut self,
        candidate: Candidate,
        pages: u64,
        planned: u64,
        view: &View<'_>,
    ) -> bool {
        let allowed = self.allows(planned + pages, view);
        self.weigh(candidate, pages, None, if allowed { Verdict::Chosen } else { Verdict::NoBudget });
        allowed
    }

    /// Whether a run of `read` pages is read ahead.
    pub(super) fn continues(&mut self, read: u64, wanted: &Wanted, view: &View<'_>) -> bool {
        let continues = self.runs.continues(read, of_a_page(wanted, view));
        // A window that pays is recorded with the pages that it gets.
        if !continues {
            self.weigh_end(read, wanted, view);
        }
        continues
    }

    /// Records that a run of `read` pages is not read ahead.
    pub(super) fn weigh_end(&mut self, read: u64, wanted: &Wanted, view: &View<'_>) {
        if self.weighed.is_none() {
            return;
        }
        let gain = self.gain_of_run(read, read, wanted, view);
        self.weigh(Candidate::NextWindow, read, gain, Verdict::NoGain);
    }

    /// Expected gain in nanoseconds of `pages` pages after a run of `read` pages.
    fn gain_of_run(&self, read: u64, pages: u64, wanted: &Wanted, view: &View<'_>) -> Option<i64> {
        let known = view.costs.are_known() && !wanted.mapped;
        known.then(|| self.runs.gain(read, of_a_page(wanted, view)).saturating_mul(pages.cast_signed()))
    }

    /// Records a window of `asked` pages of the stream at `at`, of which `granted` are read.
    #[cold]
    pub(super) fn weigh_window(
        &mut self,
        at: usize,
        (asked, granted): (u64, u64),
        refused: Verdict,
        wanted: &Wanted,
        view: &View<'_>,
    ) {
        let entry = self.table.get(at);
        let (direction, read) = (entry.direction, entry.hi.saturating_sub(entry.lo));
        let candidate = match direction {
            Direction::Stride(_) => Candidate::Stride,
            _ if entry.expected > 0 => Candidate::KnownLength,
            Direction::Down => Candidate::NextWindow,
            _ if entry.lo == 0 && entry.window == 0 => Candidate::FirstWindow,
            _ => Candidate::NextWindow,
        };
        let (pages, verdict) = if granted > 0 { (granted, Verdict::Chosen) } else { (asked, refused) };
        // On a device with a head, windows are judged by what the device does meanwhile, too.
        let by_run = candidate == Candidate::NextWindow && !self.config.seeks;
        let gain = by_run.then(|| self.gain_of_run(read, pages, wanted, view)).flatten();
        self.weigh(candidate, pages, gain, verdict);
    }

    /// Records a candidate, with [`Config::explain`](crate::Config::explain).
    pub(super) fn weigh(&mut self, candidate: Candidate, pages: u64, gain_ns: Option<i64>, verdict: Verdict) {
        if let Some(weighed) = &mut self.weighed {
            weighed.candidates.push(WeighedCandidate { candidate, pages, gain_ns, verdict });
        }
    }
}
