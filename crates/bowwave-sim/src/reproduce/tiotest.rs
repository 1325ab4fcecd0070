//! tiotest `-f 80 -t 32 -r 1000` (004): 32 threads, each with a file of 80 MB, 4 KiB at a time, in
//! four phases.
//!
//! The machine is that of [fsync-tester](super::fsync_tester) with 2 GiB of memory: the document's
//! 125 MB of random writes hit a limit only a few times. Writes go through [`crate::block`], reads
//! through the cache with on-demand readahead of 128 KiB. Each read phase starts with an empty
//! cache.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Instant, Policy, Urgency};

use super::fsync_tester::{DEADLINE, DEVICE, LITERAL, RW};
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::block::{self, Journal, Limits, Throttling, Tio, World};
use crate::device::{DeviceSpec, Direction, Request, RequestId};
use crate::machine::{Access, Host, Machine, Process, Setup, Walk};
use crate::parallel;
use crate::queue::{Elevator, Queue, QueueConfig};
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment =
    Experiment { id: "tiotest", what: "32 threads that write and read, deadline schedulers (004)", run };

const THREADS: u64 = 32;
const FILE_BYTES: u64 = 80 << 20;
const BLOCK: u64 = 4096;
const RANDOM_OPERATIONS: u64 = 1000;
/// Address of the files, which are contiguous with some space for metadata.
const FILES_AT: u64 = 20_000_000_000;
const FILE_EVERY: u64 = 100_000_000;
const JOURNAL_AT: u64 = 8_000_000_000;
const MEMORY_BYTES: u64 = 2 << 30;
/// The disk with a queue of its own.
const DEEP: &str = "hdd:write_cache_kb=2048,depth=31";
/// The original and the patch as posted, and the original and the scheduler of the core.
const TABLE: (&str, &str) = ("004", "tiotest");
const FIXED: (&str, &str) = ("004", "tiotest, fixed");

/// A row of the document's tables: seconds, MB/s, mean and maximum latency in ms, share over 2 s
/// and 10 s in percent.
type Columns = [f64; 6];
const COLUMNS: [(&str, &str); 6] = [
    ("time", "s"),
    ("rate", "MB/s"),
    ("average latency", "ms"),
    ("maximum latency", "ms"),
    ("over 2 s", "%"),
    ("over 10 s", "%"),
];
const PHASES: [&str; 4] = ["write", "random write", "read", "random read"];
/// By phase: the original, the patch.
const PUBLISHED: [[Columns; 2]; 4] = [
    [[103.0, 24.848, 4.122, 17922.920, 0.07980, 0.00061], [103.6, 24.705, 4.040, 8949.999, 0.07614, 0.0]],
    [[98.8, 1.265, 0.599, 1245.200, 0.0, 0.0], [95.9, 1.304, 1.252, 5439.023, 0.03125, 0.0]],
    [[166.2, 15.400, 8.032, 1125.759, 0.0, 0.0], [164.3, 15.580, 7.920, 792.899, 0.0, 0.0]],
    [[193.3, 0.647, 181.968, 972.657, 0.0, 0.0], [129.7, 0.964, 123.807, 910.263, 0.0, 0.0]],
];
/// Over all phases: mean, maximum, over 2 s, over 10 s.
const PUBLISHED_TOTAL: [[f64; 4]; 2] =
    [[10.044, 17922.920, 0.03804, 0.00029], [8.613, 8949.999, 0.03703, 0.0]];
/// By phase, user and system time in percent: the original, the patch.
const PUBLISHED_CPU: [[[f64; 2]; 2]; 4] = [
    [[10.6, 522.2], [9.7, 495.6]],
    [[-1.6, 16.1], [-1.9, 23.8]],
    [[4.2, 82.7], [3.5, 70.1]],
    [[-0.8, 14.5], [0.0, 16.2]],
];

const WRITE_MAXIMUM: &str = "one write of 655,360, and a matter of chance: a writer over the limit writes 6 MiB itself in line \
                             with 31 others, 7 to 9 s with either scheduler, and a few wait for the journal as well, whose \
                             blocks take 1 to 3 s behind write-back (0.1 s if an fsync wants them and the scheduler knows). \
                             With other memory sizes either may have the longer one: see the notes";

const IN_LINE: &str = "not a figure of the document: the fixed scheduler, and writers over the limit wait in line while write-back \
                       works, as bowwave's own do, instead of writing 6 MiB themselves. It is that which counts: before the \
                       original scheduler they wait as long (see the notes)";

const RANDOM_WRITE: &str = "ten writes of 32,000 stalled in the document; here none does: no writer is over the limit, and all have \
                            written before the first commit. See the row on write-back beside fsyncs";

const READS: &str = "a load of reads alone is scheduled alike by both (all of them wait, in disk order), at any depth: what the \
                     document found cannot come from telling sync from async";

const OWN_NOT_WORSE: &str = "bar: no worse than our baseline";

const UNSET: &str = "the document names neither disk nor file system";

/// Tolerance of the published figures.
const NEAR: f64 = 0.25;

/// Results of one scheduler, by phase.
type Table = [Columns; 4];

/// Results of one scheduler.
#[derive(Clone, Debug)]
struct Run {
    table: Table,
    wait_ms: f64,
    maxima_ms: Vec<f64>,
}

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    let elevators = [RW, DEADLINE, LITERAL];
    let runs = parallel::try_map(&elevators, parallel::workers(), |&elevator| {
        Ok::<_, ReproduceError>(Run {
            table: table(elevator, DEVICE)?,
            wait_ms: longest_wait_ms(elevator)?,
            maxima_ms: if options.notes { maxima_ms(elevator, Throttling::WritesBack)? } else { Vec::new() },
        })
    })?;
    let [original, fixed, posted] = &runs[..] else {
        return Err("a run is missing".into());
    };
    let mut figures = Vec::new();
    for (phase, name) in PHASES.iter().enumerate() {
        for (column, (what, unit)) in COLUMNS.iter().enumerate() {
            let published = Pair::new(PUBLISHED[phase][0][column], PUBLISHED[phase][1][column]);
            let ours =
                [posted, fixed].map(|run| Pair::new(original.table[phase][column], run.table[phase][column]));
            let figure = (format!("{name}, {what}"), *unit, published, note(phase, column));
            figures.extend(columns(column, figure, ours));
        }
    }
    for (column, published, ours) in totals([&original.table, &posted.table, &fixed.table]) {
        let (what, unit) = COLUMNS[column];
        let note = if column == 3 { WRITE_MAXIMUM } else { UNSET };
        figures.extend(columns(column, (format!("total, {what}"), unit, published, note), ours));
    }
    let in_line = writes(DEADLINE, Throttling::WaitsInLine, MEMORY_BYTES)?[0];
    let ours = Pair::new(original.table[0][3], in_line[3]);
    let (row, bar) = ("write, maximum latency, writers in line", Bar::GainFrom(0.0, 0.5));
    figures.push(Figure::new(FIXED, row, "ms", Pair::default(), ours, bar).own().note(IN_LINE));
    let ours = Pair::new(posted.wait_ms, fixed.wait_ms);
    let row = "write-back beside fsyncs, as posted and fixed";
    let why = "not a figure of the document: longest wait of write-back while 128 sync writes always wait, which is what \
               its random writes paid with (1.2 to 5.4 s)";
    let bar = Bar::Ranges((4500.0, 5500.0), (0.0, 1500.0));
    figures.push(Figure::new(FIXED, row, "ms", Pair::default(), ours, bar).own().note(why));
    for (phase, name) in PHASES.iter().enumerate() {
        for (kind, what) in ["user CPU", "system CPU"].iter().enumerate() {
            let [original, patch] = PUBLISHED_CPU[phase];
            let why = "there is no processor in the simulator";
            let published = Pair::new(original[kind], patch[kind]);
            figures.push(Figure::missing(TABLE, format!("{name}, {what}"), "%", published, why));
        }
    }
    let notes = if options.notes { notes([original, posted, fixed])? } else { Vec::new() };
    Ok(Outcome { figures, notes, ..Outcome::default() })
}

/// Results that are not in the rows.
fn notes([original, posted, fixed]: [&Run; 3]) -> Result<Vec<String>, ReproduceError> {
    let mut notes = Vec::new();
    for (name, run) in [("original", original), ("patch as posted", posted), ("fixed", fixed)] {
        let maxima: Vec<String> = run.maxima_ms.iter().map(|ms| format!("{:.1}", ms / 1e3)).collect();
        notes.push(format!(
            "tiotest, write, maximum with 1, 1.25, 1.5, 1.75, 2 and 2.25 GiB of memory, {name}: {} s",
            maxima.join(", ")
        ));
    }
    for (name, elevator) in [("original", RW), ("fixed", DEADLINE)] {
        let row = writes(elevator, Throttling::WaitsInLine, MEMORY_BYTES)?[0];
        notes.push(format!(
            "tiotest, write, writers in line, {name}: {:.1} s, {:.2} MB/s, {:.3} ms, at most {:.0} ms, {:.4} % over 2 s",
            row[0], row[1], row[2], row[3], row[4]
        ));
        let row = reads(elevator, DEEP, true)?;
        notes.push(format!(
            "tiotest, random read, {name}, 31 commands at the disk: {:.1} s, {:.3} ms, at most {:.0} ms",
            row[0], row[2], row[3]
        ));
    }
    Ok(notes)
}

/// Why a figure differs, if it does.
const fn note(phase: usize, column: usize) -> &'static str {
    match (phase, column) {
        (0, 3) => WRITE_MAXIMUM,
        (1, 2..) => RANDOM_WRITE,
        (2 | 3, _) => READS,
        _ => UNSET,
    }
}

/// The rows of a published figure: the patch as posted and, where schedulers matter, the fixed one.
fn columns(
    column: usize,
    (row, unit, published, note): (String, &'static str, Pair, &'static str),
    [posted, fixed]: [Pair; 2],
) -> Vec<Figure> {
    if published == Pair::new(0.0, 0.0) {
        // "None over 10 s" is no measurement of a run without long waits.
        return Vec::new();
    }
    let higher = column == 1;
    let bar = if higher { Bar::GainFrom(0.98, f64::INFINITY) } else { Bar::GainFrom(0.0, 1.02) };
    let own = match (fixed.baseline, fixed.improved) {
        // No ratio of nothing: as few as the baseline.
        (Some(0.0), _) => Bar::Ranges((0.0, 0.0), (0.0, 0.0)),
        _ => bar,
    };
    let mut figures =
        vec![Figure::new(TABLE, row.clone(), unit, published, posted, Bar::Within(NEAR)).note(note)];
    if posted != fixed || posted.gain() != Some(1.0) {
        figures.push(Figure::new(FIXED, row, unit, published, fixed, own).own().note(OWN_NOT_WORSE));
    }
    figures
}

/// Column, published figures, and ours: as posted, and fixed.
fn totals([original, posted, fixed]: [&Table; 3]) -> Vec<(usize, Pair, [Pair; 2])> {
    let counts = [THREADS * FILE_BYTES / BLOCK, THREADS * RANDOM_OPERATIONS];
    let total = |table: &Table, column: usize| {
        if column == 3 {
            return table.iter().map(|row| row[3]).fold(0.0, f64::max);
        }
        let weighted: f64 = (0..4).map(|phase| table[phase][column] * counts[phase % 2] as f64).sum();
        weighted / (2 * (counts[0] + counts[1])) as f64
    };
    let row = |(index, column): (usize, usize)| {
        let published = Pair::new(PUBLISHED_TOTAL[0][index], PUBLISHED_TOTAL[1][index]);
        let ours = [posted, fixed].map(|table| Pair::new(total(original, column), total(table, column)));
        (column, published, ours)
    };
    (2..COLUMNS.len()).enumerate().map(row).collect()
}

fn table(elevator: Elevator, device: &str) -> Result<Table, ReproduceError> {
    let [write, random_write] = writes(elevator, Throttling::WritesBack, MEMORY_BYTES)?;
    Ok([write, random_write, reads(elevator, device, false)?, reads(elevator, device, true)?])
}

/// Slowest sequential write with memory from 1 to 2.25 GiB.
fn maxima_ms(elevator: Elevator, throttling: Throttling) -> Result<Vec<f64>, ReproduceError> {
    (4..10).map(|quarters| Ok(writes(elevator, throttling, quarters << 28)?[0][3])).collect()
}

fn megabytes(random: bool) -> f64 {
    let operations = if random { RANDOM_OPERATIONS } else { FILE_BYTES / BLOCK };
    (THREADS * operations * BLOCK) as f64 / (1 << 20) as f64
}

fn writes(elevator: Elevator, throttling: Throttling, memory: u64) -> Result<[Columns; 2], ReproduceError> {
    let limits = Limits::of_memory(memory / BLOCK, throttling);
    let mut world = World::new(queue(elevator, DEVICE, true)?, limits);
    let files: Vec<_> = (0..THREADS).map(|thread| world.files.add(FILES_AT + thread * FILE_EVERY)).collect();
    let mut columns = [[0.0; 6]; 2];
    for (phase, columns) in columns.iter_mut().enumerate() {
        let start = world.now();
        let random = |file: usize| (phase == 1).then_some((file as u64, RANDOM_OPERATIONS));
        let mut threads: Vec<_> =
            files.iter().map(|&file| Tio::new(file, FILE_BYTES / BLOCK, random(file))).collect();
        let mut journal = Journal::new(JOURNAL_AT + phase as u64 * (1 << 30));
        let mut processes: Vec<&mut dyn block::Process> =
            threads.iter_mut().map(|thread| thread as &mut dyn block::Process).collect();
        processes.push(&mut journal);
        let end = block::run(&mut world, &mut processes, THREADS as usize, Instant(u64::MAX));
        let seconds = (end.0 - start.0) as f64 / 1e9;
        let taken: Vec<u64> = threads.iter().flat_map(|thread| thread.latencies_ns.iter().copied()).collect();
        let over = |seconds: u64| {
            let count = taken.iter().filter(|&&ns| ns > seconds * 1_000_000_000).count();
            count as f64 * 100.0 / taken.len() as f64
        };
        let average = taken.iter().sum::<u64>() as f64 / taken.len() as f64 / 1e6;
        let maximum = taken.iter().copied().max().unwrap_or(0) as f64 / 1e6;
        *columns = [seconds, megabytes(phase == 1) / seconds, average, maximum, over(2), over(10)];
    }
    Ok(columns)
}

fn reads(elevator: Elevator, device: &str, random: bool) -> Result<Columns, ReproduceError> {
    let config = Config {
        frames: (MEMORY_BYTES / BLOCK * 9 / 10) as u32,
        ra_pages: 32,
        policy: Policy::OnDemand,
        ..Config::default()
    };
    let host = Host { call_ns: 0, wait_ns: 85_000, copy_ns_a_kib: 853.3 };
    let (walk, queue) = (Walk::PageByPage, queue(elevator, device, false)?);
    let mut machine = Machine::new(Setup { host, walk, ..Setup::new(config, queue) })?;
    let operations = if random { RANDOM_OPERATIONS } else { FILE_BYTES / BLOCK };
    for thread in 0..THREADS {
        let file = machine.add_file(&format!("file {thread}"), FILE_BYTES, FILES_AT + thread * FILE_EVERY);
        let mut places = Random::new(thread);
        let offsets =
            (0..operations).map(move |n| if random { places.below(FILE_BYTES / BLOCK) } else { n } * BLOCK);
        let source = offsets.map(move |offset| Access::read(file, offset, BLOCK));
        machine.add_process(Process::closed(source));
    }
    machine.run(None)?;
    let row = machine.summary().row;
    // Each thread does nothing but wait for its next read.
    let average = row.seconds * 1e3 / operations as f64;
    let maximum = row.latency_ns.max as f64 / 1e6;
    if maximum > 2000.0 {
        return Err(format!("a read took {maximum} ms: shares over 2 s are not counted").into());
    }
    Ok([row.seconds, megabytes(random) / row.seconds, average, maximum, 0.0, 0.0])
}

/// Longest wait, in ms, of 1000 random pages of write-back against a constantly full pool of sync
/// requests, as when other threads sync their files.
fn longest_wait_ms(elevator: Elevator) -> Result<f64, ReproduceError> {
    const SYNC_WRITES: u64 = 128;
    const SECONDS: u64 = 60;
    let mut queue = queue(elevator, DEVICE, true)?;
    let mut random = Random::new(4);
    let mut submit = |queue: &mut Queue, now: Instant, id: u64| {
        let start = FILES_AT + random.below(THREADS * FILE_EVERY / BLOCK) * BLOCK;
        let urgency = if id == 0 { Urgency::Readahead } else { Urgency::Demand };
        let (id, direction) = (RequestId(id), Direction::Write);
        queue.submit(now, Request { id, direction, start, bytes: BLOCK, urgency, owner: 0, object: 0 });
    };
    (0..=SYNC_WRITES).for_each(|id| submit(&mut queue, Instant(0), id));
    let (mut completed, mut longest) = (Vec::new(), 0);
    while let Some(now) = queue.next_event().filter(|now| now.0 < SECONDS * 1_000_000_000) {
        queue.advance(now, &mut completed);
        for done in completed.drain(..) {
            if done.id.0 == 0 {
                longest = longest.max(done.ended.0 - done.queued.0);
            }
            submit(&mut queue, now, done.id.0);
        }
    }
    Ok(longest as f64 / 1e6)
}

/// The queue in front of the disk; unlimited if the pools of writers come before it.
fn queue(elevator: Elevator, device: &str, unlimited: bool) -> Result<Queue, ReproduceError> {
    let device = DeviceSpec::open(device, &ALGORITHMS)?;
    let config = if unlimited {
        block::unlimited(device.queue(), elevator)
    } else {
        QueueConfig { elevator, ..device.queue().clone() }
    };
    Ok(Queue::new(device.build(0), config)?)
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn write_back_under_fsyncs_waits_for_its_expiry_as_posted_and_less_when_fixed() {
        let posted = longest_wait_ms(LITERAL).unwrap();
        let fixed = longest_wait_ms(DEADLINE).unwrap();
        assert!((4500.0..5500.0).contains(&posted) && fixed <= 1500.0, "{posted} and {fixed} ms");
    }

    #[test]
    fn every_published_figure_has_a_row_and_failures_have_a_note() {
        let figures = run(&Options::default()).unwrap().figures;
        let posted = |row: &str| figures.iter().find(|figure| figure.table == TABLE.1 && figure.row == row);
        for (name, rows) in PHASES.iter().zip(PUBLISHED) {
            for (column, (what, _)) in COLUMNS.iter().enumerate() {
                let pair = Pair::new(rows[0][column], rows[1][column]);
                let row = posted(&format!("{name}, {what}"));
                assert_eq!(row.map(|figure| figure.published), (pair != Pair::new(0.0, 0.0)).then_some(pair));
            }
        }
        let cpu = figures.iter().filter(|figure| figure.kind == Kind::NotModelled).count();
        assert_eq!(cpu, 2 * PHASES.len());
        for figure in figures {
            assert!(figure.holds || !figure.note.is_empty(), "{figure:?}");
        }
    }

    #[test]
    fn reads_alone_are_scheduled_alike() {
        let [rw, patch] = [RW, LITERAL].map(|elevator| reads(elevator, DEVICE, true));
        assert_eq!(rw.unwrap(), patch.unwrap());
    }

    #[test]
    fn published_seconds_and_rates_agree() {
        for (phase, rows) in PUBLISHED.iter().enumerate() {
            for [seconds, rate, ..] in rows {
                assert!(
                    (seconds * rate / megabytes(phase % 2 == 1) - 1.0).abs() < 0.005,
                    "{}",
                    PHASES[phase]
                );
            }
        }
    }
}
