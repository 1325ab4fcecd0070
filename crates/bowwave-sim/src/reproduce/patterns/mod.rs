//! The situations of section 3 of the paper (002), and the cases of its tables 2 and 3: the
//! decisions of both algorithms.
//!
//! | file | idea |
//! |---|---|
//! | `cases` | sections 2.1 and 2.4: sizes, tables 2 and 3, what changed |
//! | `hits` | 3.1, table 4: cached files and chunks |
//! | `trouble` | 3.2 and 3.3: a congested queue, pages evicted before they are read |
//! | `order` | 3.4 to 3.6: unaligned, retried and interleaved reads |
//!
//! The paper publishes claims here rather than figures: "called on every page", "not called", "one
//! by one". Each is counted, and the claimed count is the bar. The notes print the decisions of
//! both algorithms as `reason@start+pages/ahead`: with `=` before a completely cached window, and
//! with `7×` before a window that came seven times in a row.

mod cases;
mod hits;
mod order;
mod trouble;

use super::script::{self, Script, Seen, lines};
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "patterns",
    what: "what both algorithms decide: tables 2 to 4, and each situation of section 3 (002)",
    run,
};

/// 1 MiB, the paper's.
const RA_PAGES: u32 = 256;
/// Maximum decisions in a note.
const SHOWN: usize = 14;

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let mut sheet = Sheet::default();
    cases::fill(&mut sheet)?;
    hits::fill(&mut sheet)?;
    trouble::fill(&mut sheet)?;
    order::fill(&mut sheet)?;
    Ok(Outcome { figures: sheet.figures, notes: sheet.notes, ..Outcome::default() })
}

/// Collects figures and notes.
#[derive(Debug, Default)]
struct Sheet {
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl Sheet {
    /// Plays a script with both algorithms, and notes their decisions.
    fn play(
        &mut self,
        name: &str,
        ra_pages: u32,
        pages: u64,
        play: impl Fn(&mut Script),
    ) -> Result<[Seen; 2], ReproduceError> {
        let seen = script::both(ra_pages, pages, play)?;
        self.notes.push(format!("patterns, {name}:"));
        for (algorithm, seen) in ["2.6.20", "on-demand"].into_iter().zip(&seen) {
            self.notes.push(format!(
                "  {algorithm:<9} {} calls, {} look-ups, {} requests: {}",
                seen.calls,
                seen.lookups,
                seen.requests,
                lines(&seen.decided, SHOWN)
            ));
        }
        Ok(seen)
    }

    /// A figure of the paper.
    fn add(
        &mut self,
        table: &'static str,
        row: &str,
        unit: &'static str,
        (theirs, ours): (Pair, Pair),
        bar: Bar,
    ) -> &mut Figure {
        self.figures.push(Figure::new(("002", table), row, unit, theirs, ours, bar));
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// A figure of the paper that is no plain comparison.
    fn change(
        &mut self,
        table: &'static str,
        row: &str,
        unit: &'static str,
        (theirs, ours): (Pair, Pair),
        bar: Bar,
        change: impl Fn(Figure) -> Figure,
    ) {
        self.figures.push(change(Figure::new(("002", table), row, unit, theirs, ours, bar)));
    }

    /// A figure that must match the paper exactly.
    fn exact(
        &mut self,
        table: &'static str,
        row: &str,
        unit: &'static str,
        theirs: [f64; 2],
        ours: [f64; 2],
    ) {
        let pairs = (pair(theirs), pair(ours));
        self.add(table, row, unit, pairs, Bar::Within(0.0));
    }
}

fn pair([old, new]: [f64; 2]) -> Pair {
    Pair::new(old, new)
}

/// The same measure of both.
fn of(seen: &[Seen; 2], measure: impl Fn(&Seen) -> u64) -> [f64; 2] {
    [measure(&seen[0]) as f64, measure(&seen[1]) as f64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_paper_holds_but_its_misprint() {
        let outcome = run(&Options::default()).unwrap();
        let broken: Vec<&str> =
            outcome.figures.iter().filter(|figure| !figure.holds).map(|figure| figure.row.as_str()).collect();
        let inexact = [
            "page-cache look-ups",
            "cached pages looked at until readahead is off",
            "reads of 10000 B that have the pages printed, of 9",
        ];
        assert_eq!(broken, inexact);
        assert!(outcome.figures.len() > 30, "{}", outcome.figures.len());
    }

    #[test]
    fn the_notes_print_the_decisions_side_by_side() {
        let notes = run(&Options::default()).unwrap().notes;
        let at = notes.iter().position(|note| note == "patterns, 3.3, and on from there:").unwrap();
        let legacy = "  2.6.20    348 calls, 1038 look-ups, 4 requests: ahead@116+62 ahead@178+124 ahead@302+248 ahead@550+256";
        assert_eq!(notes[at + 1], legacy);
        assert!(notes[at + 2].contains("miss@140+4/3 lookahead@144+16/16"), "{}", notes[at + 2]);
    }
}
