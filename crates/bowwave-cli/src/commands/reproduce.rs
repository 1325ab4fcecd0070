//! `bowwave reproduce`: compares every published figure of the source documents with ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bowwave_core::Policy;
use bowwave_engine::backend::sync::Mutex;
use bowwave_sim::parallel;
use bowwave_sim::record::Recording;
use bowwave_sim::report::Report;
use bowwave_sim::reproduce::document;
use bowwave_sim::reproduce::overheads::{Drive, TABLE, Workload};
use bowwave_sim::reproduce::{
    Bar, DOCUMENTS, EXPERIMENTS, Experiment, Figure, Options, Outcome, Pair, ReproduceError,
};

use super::report;
use crate::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::table::{Align, Keep, Table};

/// Arguments of `bowwave reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each row is a figure of a source document: the published values of the old and the new algorithm, the values of the \
simulator for both, and what they show. Everything runs in virtual time with the cache and the policies of the \
engine, and gives the same digits each time. Notes after the table explain the figures.

Kinds:
  reproduced    each figure is within the bar, a two-sided tolerance of the published one
  better        an algorithm of our own meets a bar of our own
  direction     the gain has the published sign, but another size
  differs       neither; the note has the reason
  fitted        parameters of the model were set by this very figure
  not modelled  the model lacks what the figure measures

Documents:
  000  the patch 'on-demand readahead' (2007)
  001  the patch 'VMA based swap readahead' (2017)
  002  the paper of the Linux Symposium 2007
  003  Lustre's patch 'try to improve mmap performance' (2021)
  004  the patch 'reduce latencies for synchronous writes in the deadline scheduler' (2009)

Examples:
  bowwave reproduce
  bowwave reproduce thrashing --html thrashing.html
  bowwave reproduce iozone oltp --json
  bowwave reproduce 004
  bowwave reproduce overheads --measure
  bowwave reproduce --list")]
pub(crate) struct Args {
    /// Which experiments, or all of a document by its number; without any, all
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// List the experiments
    #[arg(long, conflicts_with_all = ["ids", "json", "html", "measure"])]
    list: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also measure the reads of 'overheads' on this machine, in nanoseconds a page: the only
    /// figures that vary
    #[arg(long)]
    measure: bool,

    /// Write the document with all rows and mechanisms, docs/REPRODUCED.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ids", "json", "html", "measure", "check"])]
    write: Option<PathBuf>,

    /// Fail if a row has another kind than in this document
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ids", "json", "html", "measure"])]
    check: Option<PathBuf>,

    /// Write the pictures of the runs, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the experiments and prints the figures.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::stdout();
    if args.list {
        let outcome =
            EXPERIMENTS.iter().try_for_each(|one| output.line(format_args!("{:<12} {}", one.id, one.what)));
        return output.finish(outcome);
    }
    let experiments = chosen(&args.ids)?;
    if let Some(path) = args.write.as_ref().or(args.check.as_ref()) {
        let outcomes = reproduce(&experiments, Options { record: false, notes: false })?;
        let figures: Vec<Figure> = outcomes.into_iter().flat_map(|outcome| outcome.figures).collect();
        let text = document::render(&figures);
        if args.write.is_some() {
            std::fs::write(path, text).map_err(|error| failed!("{}: {error}", path.display()))?;
        } else {
            check(path, &text)?;
        }
        let outcome = output.line(document::counts(&figures));
        return output.finish(outcome);
    }
    let options = Options { record: args.html.is_some(), ..Options::default() };
    let mut outcomes = reproduce(&experiments, options)?;
    if args.measure {
        for (experiment, outcome) in experiments.iter().zip(&mut outcomes) {
            if experiment.id == OF {
                add(outcome).map_err(Failure::failed)?;
            }
        }
    }
    if let Some(path) = &args.html {
        report::save(pictures(&outcomes)?, path)?;
    }
    let figures: Vec<&Figure> = outcomes.iter().flat_map(|outcome| &outcome.figures).collect();
    let outcome = if args.json {
        output.json_array(&figures)
    } else {
        output.table(&table(&figures), "a wider terminal and --json have all columns").and_then(|()| {
            let all: Vec<Figure> = figures.iter().copied().cloned().collect();
            output.line(format_args!("\n{}\n", document::counts(&all)))?;
            outcomes.iter().flat_map(|outcome| &outcome.notes).try_for_each(|note| output.line(note))
        })
    };
    output.finish(outcome)
}

fn chosen(ids: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    if ids.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let mut wanted: Vec<&str> = Vec::new();
    for id in ids {
        let document = DOCUMENTS.iter().find(|(document, _)| document == id);
        match document {
            Some((_, names)) => wanted.extend(*names),
            None if EXPERIMENTS.iter().any(|experiment| experiment.id == id) => wanted.push(id),
            None => {
                let names = EXPERIMENTS.iter().map(|experiment| experiment.id);
                let documents = DOCUMENTS.iter().map(|(document, _)| *document);
                let known = names.chain(documents).collect::<Vec<_>>().join(", ");
                return Err(usage!("there is no experiment '{id}'").try_this(known));
            }
        }
    }
    Ok(EXPERIMENTS.iter().filter(|experiment| wanted.contains(&experiment.id)).collect())
}

/// Compares the kinds of a document with those of a new one.
fn check(path: &Path, new: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(path).map_err(|error| failed!("{}: {error}", path.display()))?;
    let (old, new) = (document::kinds(&old), document::kinds(new));
    let rows: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = rows.into_iter().filter(|row| old.get(*row) != new.get(*row));
    let changed: Vec<String> = changed
        .map(|row| {
            let kind = |kinds: &BTreeMap<String, String>| {
                kinds.get(row).cloned().unwrap_or_else(|| "absent".to_owned())
            };
            format!("{row}: {} is now {}", kind(&old), kind(&new))
        })
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(failed!("{}", changed.join("\n")).try_this("'make reproduced', if the change is meant"))
}

fn reproduce(experiments: &[&Experiment], options: Options) -> Result<Vec<Outcome>, Failure> {
    let progress = Mutex::new((Progress::rows("reproducing", experiments.len() as u64), 0));
    let one = |experiment: &&Experiment| -> Result<Outcome, ReproduceError> {
        let outcome = (experiment.run)(&options)?;
        let mut progress = progress.lock();
        progress.1 += 1;
        let done = progress.1;
        progress.0.at(done);
        Ok(outcome)
    };
    parallel::try_map(experiments, parallel::workers(), one).map_err(Failure::failed)
}

fn pictures(outcomes: &[Outcome]) -> Result<Report, Failure> {
    let runs = outcomes.iter().flat_map(|outcome| outcome.recording.runs.iter().cloned()).collect();
    let titles: Vec<&str> = outcomes.iter().map(|outcome| outcome.recording.title.as_str()).collect();
    let title = titles.into_iter().filter(|title| !title.is_empty()).collect::<Vec<_>>().join(", ");
    let recording = Recording { title, command: "bowwave reproduce".to_owned(), runs, ..Recording::new() };
    Report::of(&recording)
        .map_err(|error| failed!("no pictures: {error}").try_this("thrashing, which has some"))
}

fn table(figures: &[&Figure]) -> Table {
    let mut table = Table::new([
        ("doc", Align::Left, Keep::Always),
        ("table", Align::Left, Keep::Always),
        ("row", Align::Left, Keep::Always),
        ("unit", Align::Left, Keep::Rank(1)),
        ("theirs", Align::Right, Keep::Always),
        ("ours", Align::Right, Keep::Always),
        ("their gain", Align::Right, Keep::Rank(2)),
        ("our gain", Align::Right, Keep::Rank(3)),
        ("kind", Align::Left, Keep::Always),
        ("bar", Align::Left, Keep::Rank(4)),
        ("note", Align::Left, Keep::Below),
    ]);
    for figure in figures {
        table.row([
            figure.document.to_owned(),
            figure.table.to_owned(),
            figure.row.clone(),
            figure.unit.to_owned(),
            pair(figure.published),
            pair(figure.ours),
            gain(figure.gain_published),
            gain(figure.gain_ours),
            figure.kind.name().to_owned(),
            figure.bar.clone(),
            figure.note.clone(),
        ]);
    }
    table
}

fn pair(pair: Pair) -> String {
    match (pair.baseline, pair.improved) {
        (None, None) => "-".to_owned(),
        (Some(one), None) | (None, Some(one)) => number(one),
        (Some(baseline), Some(improved)) => format!("{} > {}", number(baseline), number(improved)),
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn gain(gain: Option<f64>) -> String {
    gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.3}"))
}

/// The experiment it extends.
const OF: &str = "overheads";

/// Rounds; the median counts. Odd, so that there is one.
const ROUNDS: usize = 41;

/// Adds a row per workload: nanoseconds per page for each algorithm.
fn add(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for workload in Workload::ALL {
        let ours = nanoseconds(workload)?;
        let row = format!("{}: measured", workload.name());
        let published = workload.published();
        let figure = Figure::new(TABLE, row, "s; ns/page", published, ours, Bar::GainFrom(0.0, 1.01)).own();
        outcome
            .figures
            .push(figure.note("this machine's, without a copy of the data; differs from run to run"));
    }
    outcome.notes.push(format!(
        "overheads, measured: the cache's own work a page, nothing copied, median of {ROUNDS} rounds of both in turn"
    ));
    Ok(())
}

/// Nanoseconds per page with the old algorithm and the new. They alternate in changing order, so
/// that other load affects both.
fn nanoseconds(workload: Workload) -> Result<Pair, ReproduceError> {
    let mut drives =
        [Drive::new(bowwave_baselines::LEGACY, workload)?, Drive::new(Policy::OnDemand, workload)?];
    let mut times = [Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS)];
    for round in 0..ROUNDS {
        for place in [round % 2, 1 - round % 2] {
            let started = Instant::now();
            let pages = drives[place].pass();
            times[place].push(started.elapsed().as_nanos() as f64 / pages as f64);
        }
    }
    let [old, new] = times.map(median);
    Ok(Pair::new(old, new))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn each_row_of_the_table_gets_a_time() {
        let mut outcome = Outcome::default();
        add(&mut outcome).unwrap();
        assert_eq!(outcome.figures.len(), 5);
        for figure in outcome.figures {
            assert!(figure.ours.baseline > Some(0.0) && figure.ours.improved > Some(0.0), "{figure:?}");
        }
    }
}
