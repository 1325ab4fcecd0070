//! fsync-tester during `dd bs=8M count=256; sync; rm` in a loop (004): fsync latency under a bulk
//! writer.
//!
//! The document does not give the disk, memory and file system. Assumed: the disk of the readahead
//! documents with 2 MiB of write cache, because without one each write of a stream loses a
//! revolution; 1 GiB of memory, of which 5 % may be dirty before write-back starts and 10 % before
//! writers are throttled (defaults of 2.6.29); pools of 128 requests, congested from 113 down to
//! 103; requests of 512 KiB. An fsync waits for the file's pages only; the notes give the cost of
//! more phases. [`crate::block`] describes the rest.

use bowwave_baselines::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::Instant;
use bowwave_core::schedule::{Algorithm, Reason};

use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::block::{self, FsyncTester, Limits, Stream, Throttling, World};
use crate::device::DeviceSpec;
use crate::queue::{Elevator, Queue};

/// The experiment.
pub(super) const EXPERIMENT: Experiment =
    Experiment { id: "fsync-tester", what: "fsync beside a bulk writer, deadline schedulers (004)", run };

/// Published latencies in seconds: the original, the patch.
const PUBLISHED_ORIGINAL: [f64; 10] =
    [0.7963, 4.5914, 4.2347, 1.1670, 0.8164, 1.9783, 4.9726, 2.4929, 2.5448, 3.9627];
const PUBLISHED_PATCH: [f64; 25] = [
    0.6383, 0.1835, 0.1744, 0.1103, 0.1535, 0.1545, 0.1491, 0.1524, 0.1609, 0.1168, 0.1458, 0.1328, 0.1655,
    0.1731, 0.1356, 0.1746, 0.1166, 0.1609, 0.1370, 0.1379, 0.2096, 0.1438, 0.1652, 0.1612, 0.1438,
];

/// The disk.
pub(super) const DEVICE: &str = "hdd:write_cache_kb=2048";
const MEMORY_PAGES: u64 = (1 << 30) / 4096;
/// Addresses on the disk.
const JOURNAL_AT: u64 = 8_000_000_000;
const TESTER_AT: u64 = 10_000_000_000;
const STREAM_AT: u64 = 20_000_000_000;
const STREAM_BYTES: u64 = 256 * (8 << 20);
/// Start of the tester, when the writer is running.
const STARTS: Instant = Instant(10_000_000_000);
/// Duration of both.
const SECONDS: u64 = 300;
const TABLE: (&str, &str) = ("004", "fsync-tester");
/// The scheduler of the core: the patch without its faults.
const FIXED: &str = "fixed";
/// Tolerance of the published seconds.
const NEAR: f64 = 0.25;

/// A configuration.
#[derive(Clone, Copy, Debug)]
struct Case {
    elevator: Elevator,
    device: &'static str,
    phases: u32,
    contiguous: bool,
}

/// Results of a run.
#[derive(Clone, Debug)]
struct Run {
    /// Seconds, in order of time.
    samples: Vec<f64>,
    background_mb_s: f64,
    expired: u64,
    dispatches: u64,
}

const fn case(elevator: Elevator) -> Case {
    Case { elevator, device: DEVICE, phases: 1, contiguous: false }
}

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    let original = play(case(RW))?;
    let posted = play(case(LITERAL))?;
    let fixed = play(case(DEADLINE))?;
    let mut figures = Vec::new();
    for (name, improved) in [("as posted", &posted), (FIXED, &fixed)] {
        figures.extend(rows(name, &original, improved));
    }
    let share = Pair::new(original.background_mb_s, fixed.background_mb_s);
    let bar = Bar::GainFrom(0.95, f64::INFINITY);
    figures.push(
        Figure::new(TABLE, "background, fixed", "MB/s", Pair::default(), share, bar)
            .own()
            .note("the document does not print it"),
    );
    let mut notes = Vec::new();
    for (name, run) in [("original", &original), ("as posted", &posted), (FIXED, &fixed)] {
        notes.push(say(&format!("fsync-tester, {name}"), run));
    }
    if !options.notes {
        return Ok(Outcome { figures, notes, ..Outcome::default() });
    }
    let three = |elevator| Case { phases: 3, ..case(elevator) };
    let deep = |elevator| Case { device: "hdd:write_cache_kb=2048,depth=31", ..case(elevator) };
    let contiguous = Case { contiguous: true, ..case(RW) };
    for (name, case) in [
        ("original, data, journal and commit record one after the other", three(RW)),
        ("fixed, the same", three(DEADLINE)),
        ("original, 31 commands at the disk", deep(RW)),
        ("fixed, the same", deep(DEADLINE)),
        ("original, with the contiguous-batch rule of 2.6.24", contiguous),
    ] {
        notes.push(say(&format!("fsync-tester, {name}"), &play(case)?));
    }
    Ok(Outcome { figures, notes, ..Outcome::default() })
}

fn rows(name: &str, original: &Run, improved: &Run) -> Vec<Figure> {
    let own = name == FIXED;
    let row = |row: &str, measure: fn(&[f64]) -> f64, bar: Bar| {
        let published = Pair::new(measure(&PUBLISHED_ORIGINAL), measure(&PUBLISHED_PATCH));
        let ours = Pair::new(measure(&original.samples), measure(&improved.samples));
        let bar = if own { bar } else { Bar::Within(NEAR) };
        let figure = Figure::new(TABLE, format!("{row}, {name}"), "s", published, ours, bar);
        if own { figure.own() } else { figure }
    };
    let seventh = Bar::GainFrom(0.0, 1.0 / 7.0);
    let spread = "ours waits for the write expiry of 5 s nearly each time: one stream writes back, and disk order does not \
                  come back to the file before; theirs is spread from 0.8 to 5 s";
    let first = "the one outlier of the document is its first; nothing like it happens here";
    vec![
        row("median", median, seventh).note(spread),
        row("mean", mean, seventh).note(spread),
        row("worst", worst_of, Bar::Ranges((4.5, 5.5), (0.0, 0.25))).note(first),
        row("worst after the first", |all| worst_of(&all[1..]), Bar::Ranges((4.5, 5.5), (0.0, 0.25))),
        row("first", |all| all[0], seventh).note(first),
        row("least", |all| all.iter().copied().fold(f64::INFINITY, f64::min), seventh).note(spread),
    ]
}

fn say(name: &str, run: &Run) -> String {
    format!(
        "{name}: {} fsyncs, median {:.3} s, worst {:.3} s; background {:.1} MB/s; {:.1} % of {} dispatches began with an \
         expired request",
        run.samples.len(),
        median(&run.samples),
        worst_of(&run.samples),
        run.background_mb_s,
        run.expired as f64 * 100.0 / run.dispatches.max(1) as f64,
        run.dispatches,
    )
}

fn play(case: Case) -> Result<Run, ReproduceError> {
    let mut world = world(case)?;
    let stream = world.files.add(STREAM_AT);
    let file = world.files.add(TESTER_AT);
    let mut tester = FsyncTester::new(file, JOURNAL_AT, case.phases, STARTS);
    let mut stream = Stream::new(stream, STREAM_BYTES);
    let end = Instant(SECONDS * 1_000_000_000);
    let ended = block::run(&mut world, &mut [&mut tester, &mut stream], 2, end);
    let stats = world.queue().scheduler_stats().copied().unwrap_or_default();
    Ok(Run {
        samples: tester.latencies_ns.iter().map(|&ns| ns as f64 / 1e9).collect(),
        background_mb_s: world.written[1] as f64 * 1e3 / ended.0 as f64,
        expired: stats.dispatched_for(Reason::Expired),
        dispatches: stats.dispatches(),
    })
}

fn world(case: Case) -> Result<World, ReproduceError> {
    let device = DeviceSpec::open(case.device, &ALGORITHMS)?;
    let mut config = block::unlimited(device.queue(), case.elevator);
    config.scheduler.batch_contiguous = case.contiguous;
    let queue = Queue::new(device.build(0), config)?;
    Ok(World::new(queue, Limits::of_memory(MEMORY_PAGES, Throttling::WritesBack)))
}

/// The median; the mean of both middle values of an even number.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn worst_of(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(0.0, f64::max)
}

/// Linux 2.6.29's scheduler, the patch as published, and the core's.
pub(super) const RW: Elevator = Elevator::Scheduler(DEADLINE_RW);
pub(super) const LITERAL: Elevator = Elevator::Scheduler(DEADLINE_LITERAL);
pub(super) const DEADLINE: Elevator = Elevator::Scheduler(Algorithm::Deadline);

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn the_published_samples_have_the_published_medians_and_means() {
        assert_eq!((median(&PUBLISHED_ORIGINAL), median(&PUBLISHED_PATCH)), (2.51885, 0.1535));
        assert!(
            (mean(&PUBLISHED_ORIGINAL) - 2.756).abs() < 1e-3 && (mean(&PUBLISHED_PATCH) - 0.172).abs() < 1e-3
        );
    }

    #[test]
    fn an_fsync_waits_for_the_write_expiry_with_the_original_and_for_a_batch_with_the_patch() {
        let outcome = run(&Options::default()).unwrap();
        let worst = |row: &str| outcome.figures.iter().find(|figure| figure.row == row).unwrap().ours;
        for row in ["worst, as posted", "worst, fixed"] {
            let ours = worst(row);
            assert!((4.5..5.5).contains(&ours.baseline.unwrap()), "{ours:?}");
            assert!(ours.improved.unwrap() <= 0.25, "{ours:?}");
        }
        for figure in outcome.figures.iter().filter(|figure| figure.row.ends_with(FIXED)) {
            assert_eq!(figure.kind, Kind::Better, "{figure:?}");
        }
    }

    #[test]
    fn a_deep_device_queue_does_not_delay_fsync_if_async_is_limited_by_sync_latency() {
        let deep = |elevator| Case { device: "hdd:write_cache_kb=2048,depth=31", ..case(elevator) };
        let [posted, limited] = [LITERAL, DEADLINE].map(|elevator| play(deep(elevator)).unwrap());
        let medians = (median(&posted.samples), median(&limited.samples));
        assert!(medians.0 > 0.5 && medians.1 < 0.1, "{medians:?} s");
        assert!(
            limited.background_mb_s > posted.background_mb_s,
            "nor does it cost the writer: the disk seeks less"
        );
    }
}
