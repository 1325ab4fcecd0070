//! Every row of `bowwave reproduce` at full size: its published constants, its tolerance and its
//! kind.
//!
//! `published.csv` has the constants a second time, taken from the documents independently of the
//! code. docs/REPRODUCED.md has the kinds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bowwave_sim::parallel;
use bowwave_sim::reproduce::document::{self, MECHANISMS};
use bowwave_sim::reproduce::{EXPERIMENTS, Figure, Kind, Options, Pair};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn readme_quotes_the_counts_of_the_document() {
    let words = |path| read(path).split_whitespace().collect::<Vec<_>>().join(" ");
    let (text, readme) = (words("docs/REPRODUCED.md"), words("README.md"));
    let (_, counts) = text.split_once("time. ").expect("the counts follow");
    let (quoted, _) = counts.split_once(". ").expect("two sentences");
    assert!(quoted.contains(" reproduced, "), "{quoted}");
    assert!(readme.contains(quoted), "README.md: {quoted}");
}

#[test]
fn every_mechanism_names_files_and_a_test_that_exist() {
    for one in MECHANISMS {
        assert!(root().join(one.code).exists(), "{}", one.code);
        assert!(read(one.file).contains(&format!("fn {}(", one.test)), "{}: {}", one.file, one.test);
    }
    for document in ["000", "001", "002", "003", "004"] {
        assert!(MECHANISMS.iter().any(|one| one.document == document), "{document}");
    }
}

/// Minutes of computation, which `make test` runs beside tests that wait.
mod full_size {
    use super::*;

    /// The rows, run once for all tests.
    fn figures() -> &'static [Figure] {
        static FIGURES: OnceLock<Vec<Figure>> = OnceLock::new();
        FIGURES.get_or_init(|| {
            let options = Options { record: false, notes: false };
            let outcomes =
                parallel::try_map(EXPERIMENTS, parallel::workers(), |experiment| (experiment.run)(&options));
            outcomes.unwrap().into_iter().flat_map(|outcome| outcome.figures).collect()
        })
    }

    /// The independent constants, by row.
    fn constants() -> BTreeMap<String, Pair> {
        let text = read("crates/bowwave-sim/tests/published.csv");
        let rows = text.lines().skip(1).map(|line| {
            let [document, table, row, baseline, improved] = line.split(';').collect::<Vec<_>>()[..] else {
                panic!("not five columns: {line}");
            };
            let value = |text: &str| (!text.is_empty()).then(|| text.parse::<f64>().unwrap());
            let pair = Pair { baseline: value(baseline), improved: value(improved) };
            (format!("{document}/{table}/{row}"), pair)
        });
        rows.collect()
    }

    #[test]
    fn published_constants_match_an_independent_copy_of_the_documents() {
        let constants = constants();
        let mut used = BTreeMap::new();
        for figure in figures().iter().filter(|figure| figure.published != Pair::default()) {
            let id = figure.id();
            let (id, theirs) = match (constants.get(&id), id.strip_suffix(", gain")) {
                (Some(pair), _) => (id.clone(), *pair),
                (None, Some(base)) => {
                    let pair = constants.get(base).unwrap_or_else(|| panic!("{id} is not in published.csv"));
                    (base.to_owned(), pair.ratio())
                }
                (None, None) => panic!("{id} is not in published.csv"),
            };
            let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
                (a, b) => a.is_none() && b.is_none(),
            };
            let ours = figure.published;
            assert!(
                same(ours.baseline, theirs.baseline) && same(ours.improved, theirs.improved),
                "{id}: {ours:?} in the code, {theirs:?} in published.csv"
            );
            used.insert(id, ());
        }
        let unused: Vec<&String> = constants.keys().filter(|id| !used.contains_key(*id)).collect();
        assert!(unused.is_empty(), "published figures without a row: {unused:?}");
    }

    #[test]
    fn no_reproduced_row_survives_a_figure_twice_or_half_as_large() {
        let mut tried = 0;
        for figure in figures().iter().filter(|figure| figure.kind == Kind::Reproduced) {
            let published = figure.published;
            for factor in [2.0, 0.5] {
                let wrong = |value: Option<f64>| value.map(|v| if v == 0.0 { 1.0 } else { v * factor });
                let both =
                    Pair { baseline: wrong(figure.ours.baseline), improved: wrong(figure.ours.improved) };
                let mut mutants = vec![both];
                if published.baseline.is_some() {
                    mutants.push(Pair { baseline: both.baseline, ..figure.ours });
                }
                if published.improved.is_some() {
                    mutants.push(Pair { improved: both.improved, ..figure.ours });
                }
                for ours in mutants {
                    let mutant = figure.with_ours(ours);
                    assert!(mutant.kind != Kind::Reproduced && !mutant.holds, "{mutant:?}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 300, "{tried}");
    }

    #[test]
    fn rows_are_unique_and_those_that_differ_have_a_reason() {
        let mut ids: Vec<String> = figures().iter().map(Figure::id).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for figure in figures() {
            let needs = matches!(figure.kind, Kind::Differs | Kind::Fitted | Kind::NotModelled);
            assert!(!needs || !figure.note.is_empty(), "{figure:?}");
            assert!(figure.copy_of.as_ref().is_none_or(|of| ids.binary_search(of).is_ok()), "{figure:?}");
        }
    }

    #[test]
    fn no_row_has_another_kind_than_in_the_document() {
        let written = document::kinds(&read("docs/REPRODUCED.md"));
        assert_eq!(
            document::kinds(&document::render(figures())),
            written,
            "'make reproduced' writes it anew"
        );
        assert_eq!(written.len(), figures().len());
    }
}
