//! tiotest `-f 80 -t 32 -r 1000` (004): 32 threads, each with a file of 80 MB, 4 KiB at a time, in
//! four phases.
//!
//! The machine is that of [fsync-tester](super::fsync_tester) with 2 GiB of memory: the document's
//! 125 MB of random writes hit a limit only a few times. Writes go through [`crate::block`], reads
//! through the cache with on-demand readahead of 128 KiB. Each read phase starts with an empty
//! cache.

use bowwave_baselines::{ALGORITHMS, DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::schedule::Algorithm;
use bowwave_core::{Config, Instant, Policy, Urgency};

use super::fsync_tester::DEVICE;
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::block::{self, Journal, Limits, Throttling, Tio, World};
use crate::device::{DeviceSpec, Direction, Request, RequestId};
use crate::faults::Faults;
use crate::machine::{Access, AccessOp, Host, Machine, Pace, Process, Setup, Walk};
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
const TABLE: (&str, &str) = ("004", "tiotest");

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

const IN_LINE: &str = "not a figure of the document: the mended scheduler, and writers over the limit wait in line while write-back \
                       works, as bowwave's own do, instead of writing 6 MiB themselves. It is that which counts: before the \
                       original scheduler they wait as long (see the notes)";

const RANDOM_WRITE: &str = "bar: the price of the patch as posted (1.2 to 5.4 s) is not paid. Ten writes of 32,000 stalled in the \
                            document; here none does, for nobody is over the limit and all have written before the first \
                            commit: see the rows on write-back beside fsyncs";

/// Results of one scheduler, by phase.
type Table = [Columns; 4];

/// Results of one scheduler.
#[derive(Clone, Debug)]
struct Run {
    table: Table,
    wait_ms: f64,
    maxima_ms: Vec<f64>,
}

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let elevators = [RW, DEADLINE, LITERAL];
    let runs = parallel::try_map(&elevators, parallel::workers(), |&elevator| {
        Ok::<_, ReproduceError>(Run {
            table: table(elevator, DEVICE)?,
            wait_ms: longest_wait_ms(elevator)?,
            maxima_ms: maxima_ms(elevator, Throttling::WritesBack)?,
        })
    })?;
    let [original, mended, posted] = &runs[..] else {
        return Err(ReproduceError::Device("a run is missing".to_owned()));
    };
    let mut figures = Vec::new();
    for (phase, name) in PHASES.iter().enumerate() {
        for (column, (what, unit)) in COLUMNS.iter().enumerate() {
            let published = Pair::new(PUBLISHED[phase][0][column], PUBLISHED[phase][1][column]);
            let ours = Pair::new(original.table[phase][column], mended.table[phase][column]);
            let (bar, note) = judge(phase, column);
            figures
                .push(Figure::new(TABLE, format!("{name}, {what}"), unit, published, ours, bar).note(note));
        }
    }
    figures.extend(totals(&original.table, &mended.table));
    let published = Pair::new(PUBLISHED[0][0][3], PUBLISHED[0][1][3]);
    let in_line = writes(DEADLINE, Throttling::WaitsInLine, MEMORY_BYTES)?[0];
    let ours = Pair::new(original.table[0][3], in_line[3]);
    let row = "write, maximum latency, writers in line";
    figures.push(Figure::new(TABLE, row, "ms", published, ours, Bar::GainFrom(0.0, 0.5)).note(IN_LINE));
    let waits = [
        ("write-back beside fsyncs, as posted", posted.wait_ms, Bar::Ranges((0.0, 5500.0), (4500.0, 5500.0))),
        ("write-back beside fsyncs, mended", mended.wait_ms, Bar::Ranges((0.0, 5500.0), (0.0, 1500.0))),
    ];
    for (row, improved, bar) in waits {
        let why = "not a figure of the document: longest wait of write-back while 128 sync writes always wait, which is what \
                   its random writes paid with (1.2 to 5.4 s)";
        let ours = Pair::new(original.wait_ms, improved);
        figures.push(Figure::new(TABLE, row, "ms", Pair::default(), ours, bar).note(why));
    }
    for (phase, name) in PHASES.iter().enumerate() {
        for (kind, what) in ["user CPU", "system CPU"].iter().enumerate() {
            let [original, patch] = PUBLISHED_CPU[phase];
            let why = "there is no processor in the simulator";
            let published = Pair::new(original[kind], patch[kind]);
            figures.push(Figure::missing(TABLE, format!("{name}, {what}"), "%", published, why));
        }
    }
    Ok(Outcome { figures, notes: notes([original, posted, mended])?, ..Outcome::default() })
}

/// Results that are not in the rows.
fn notes([original, posted, mended]: [&Run; 3]) -> Result<Vec<String>, ReproduceError> {
    let rows = PHASES.iter().zip(&posted.table).map(|(name, row)| {
        format!(
            "tiotest, {name}, patch as posted: {:.1} s, {:.2} MB/s, {:.3} ms, at most {:.0} ms",
            row[0], row[1], row[2], row[3]
        )
    });
    let mut notes: Vec<String> = rows.collect();
    for (name, run) in [("original", original), ("patch as posted", posted), ("mended", mended)] {
        let maxima: Vec<String> = run.maxima_ms.iter().map(|ms| format!("{:.1}", ms / 1e3)).collect();
        notes.push(format!(
            "tiotest, write, maximum with 1, 1.25, 1.5, 1.75, 2 and 2.25 GiB of memory, {name}: {} s",
            maxima.join(", ")
        ));
    }
    for (name, elevator) in [("original", RW), ("mended", DEADLINE)] {
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

/// The bar of a figure, and a remark.
fn judge(phase: usize, column: usize) -> (Bar, &'static str) {
    let reads = "a load of reads alone is scheduled alike by both (all of them wait, in disk order), at any depth: what the \
                 document found cannot come from telling sync from async";
    match (phase, column) {
        (0, 3) => (Bar::GainFrom(0.0, 0.5), WRITE_MAXIMUM),
        // Not paid: no more than the original had, but for half of its longest stall.
        (1, 2) => (Bar::Ranges((0.0, 0.6), (0.0, 0.6)), RANDOM_WRITE),
        (1, 3) => (Bar::Ranges((0.0, 1500.0), (0.0, 1500.0)), RANDOM_WRITE),
        (1, 4) => (Bar::Ranges((0.0, 1e-9), (0.0, 1e-9)), RANDOM_WRITE),
        (_, 4 | 5) => (Bar::Ranges((0.0, 0.1), (0.0, 0.1)), ""),
        (2 | 3, 3) => (Bar::GainFrom(0.0, 0.999), reads),
        (3, _) => (Bar::GainWithin(0.1), reads),
        _ => (Bar::GainWithin(0.1), ""),
    }
}

fn totals(original: &Table, mended: &Table) -> Vec<Figure> {
    let counts = [THREADS * FILE_BYTES / BLOCK, THREADS * RANDOM_OPERATIONS];
    let total = |table: &Table, column: usize| {
        let weighted: f64 = (0..4).map(|phase| table[phase][column] * counts[phase % 2] as f64).sum();
        weighted / (2 * (counts[0] + counts[1])) as f64
    };
    let maximum = |table: &Table| table.iter().map(|row| row[3]).fold(0.0, f64::max);
    let ours = [
        Pair::new(total(original, 2), total(mended, 2)),
        Pair::new(maximum(original), maximum(mended)),
        Pair::new(total(original, 4), total(mended, 4)),
        Pair::new(total(original, 5), total(mended, 5)),
    ];
    let bars = [
        Bar::GainWithin(0.15),
        Bar::GainFrom(0.0, 0.5),
        Bar::Ranges((0.0, 0.1), (0.0, 0.1)),
        Bar::Ranges((0.0, 0.1), (0.0, 0.1)),
    ];
    let rows = COLUMNS[2..].iter().zip(ours).zip(bars).enumerate();
    rows.map(|(index, (((what, unit), ours), bar))| {
        let published = Pair::new(PUBLISHED_TOTAL[0][index], PUBLISHED_TOTAL[1][index]);
        let note = if index == 1 { WRITE_MAXIMUM } else { "" };
        Figure::new(TABLE, format!("total, {what}"), unit, published, ours, bar).note(note)
    })
    .collect()
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
    let memory_pages = memory / BLOCK;
    let limits = Limits {
        throttling,
        background_pages: memory_pages / 20,
        hard_pages: memory_pages / 10,
        requests_max: 128,
        congested_on: 113,
        congested_off: 103,
    };
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
        let taken: Vec<u64> = threads.iter().flat_map(|thread| thread.taken_ns.iter().copied()).collect();
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
    let mut machine = Machine::new(Setup {
        config,
        host: Host { call_ns: 0, wait_ns: 85_000, copy_ns_a_kib: 853.3 },
        queue: queue(elevator, device, false)?,
        walk: Walk::PageByPage,
        faults: Faults::NONE,
        check: false,
        record: None,
    })?;
    let operations = if random { RANDOM_OPERATIONS } else { FILE_BYTES / BLOCK };
    for thread in 0..THREADS {
        let file = machine.add_file(&format!("file {thread}"), FILE_BYTES, FILES_AT + thread * FILE_EVERY);
        let mut places = Random::new(thread);
        let offsets =
            (0..operations).map(move |n| if random { places.below(FILE_BYTES / BLOCK) } else { n } * BLOCK);
        let source = offsets.map(move |offset| Access {
            at: Instant(0),
            op: AccessOp::Read,
            file,
            offset,
            bytes: BLOCK,
        });
        let pace = Pace::Closed { think_ns: 0 };
        machine.add_process(Process { start: Instant(0), source: Box::new(source), pace, depth: 1 });
    }
    machine.run(None)?;
    let row = machine.summary().row;
    // Each thread does nothing but wait for its next read.
    let average = row.seconds * 1e3 / operations as f64;
    let maximum = row.latency_ns.max as f64 / 1e6;
    if maximum > 2000.0 {
        return Err(ReproduceError::Device(format!(
            "a read took {maximum} ms: shares over 2 s are not counted"
        )));
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

/// The queue in front of the disk; `open` if the pools come before it.
fn queue(elevator: Elevator, device: &str, open: bool) -> Result<Queue, ReproduceError> {
    let device =
        DeviceSpec::open(device, &ALGORITHMS).map_err(|error| ReproduceError::Device(error.to_string()))?;
    let mut config = QueueConfig { elevator, ..device.queue().clone() };
    if open {
        (config.requests_max, config.congested_on, config.congested_off) =
            (usize::MAX, usize::MAX, usize::MAX);
    }
    Queue::new(device.build(0), config).map_err(|error| ReproduceError::Device(error.to_string()))
}

/// Linux 2.6.29's scheduler, the patch to the letter, and the core's.
const RW: Elevator = Elevator::Scheduler(DEADLINE_RW);
const LITERAL: Elevator = Elevator::Scheduler(DEADLINE_LITERAL);
const DEADLINE: Elevator = Elevator::Scheduler(Algorithm::Deadline);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_back_beside_fsyncs_waits_for_its_expiry_as_posted_and_for_its_turn_when_mended() {
        let posted = longest_wait_ms(LITERAL).unwrap();
        let mended = longest_wait_ms(DEADLINE).unwrap();
        assert!((4500.0..5500.0).contains(&posted) && mended <= 1500.0, "{posted} and {mended} ms");
    }

    #[test]
    fn every_published_figure_has_a_row_and_what_does_not_hold_says_why() {
        let figures = run(&Options::default()).unwrap().figures;
        // Six columns of four phases and the total without time and rate; user and system time;
        // three of ours.
        assert_eq!(figures.len(), 6 * 4 + 4 + 2 * 4 + 3);
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
    fn what_was_published_agrees_with_itself() {
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
