//! 000 "readahead thrashing", 002 section 4.5 and figure 6: memory pressure, one more slow reader
//! each second.
//!
//! A machine with 128 MB, of which the page cache has what the kernel leaves. Each second one more
//! stream of 100 KB/s starts, up to 200. Readahead pages are then evicted before they are read. The
//! 2.6.20 algorithm reads lost pages one by one; on-demand readahead starts a new window at the
//! missing page.

use bowwave_core::{Instant, Policy};

use super::testbed::{OLD_AND_NEW, Testbed};
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::machine::{Access, Pace, Process, RecordOptions};
use crate::queue::Elevator;
use crate::record::{Recording, Run, Samples};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    id: "thrashing",
    what: "128 MB of memory, one more 100 KB/s stream each second, up to 200 (000; 002, 4.5 and figure 6)",
    run,
};

/// Page cache of the 128 MB, in MiB. The text has `mem=128m` alone; this share of it is fitted to
/// the second at which thrashing begins: 20 streams with two windows of 1 MiB each, and some more.
/// With 32 it begins nearer to the published second, but 2.6.20 then overloads the disk too early.
const CACHE_MIB: u32 = 48;
/// Other sizes, to show what depends on the fitted one.
const OTHER_MIB: [(u32, &str); 3] = [
    (32, "thrashing, 32 of 128 MB for the page cache"),
    (64, "thrashing, 64 of 128 MB for the page cache"),
    (96, "thrashing, 96 of 128 MB for the page cache"),
];
pub(super) const STREAMS: u64 = 200;
/// Bytes per second each stream requests.
pub(super) const RATE: u64 = 100_000;
/// Read size of a stream: what a server sends at a time. Not in the documents; the notes have other
/// sizes.
const READ_BYTES: u64 = 64 << 10;
/// Span of the disk over which files are spread.
const SPREAD_BYTES: u64 = 40_000_000_000;
/// Seconds for which all streams run.
const SECONDS_MORE: u64 = 20;
/// Averaging interval of curves in seconds, as the eye does with figure 6.
const SMOOTH: usize = 5;
const WHERE: [(&str, &str); 2] = [("000", "thrashing"), ("002", "figure 6")];

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    let runs = both(|policy| thrash(CACHE_MIB, policy, STREAMS, READ_BYTES, None))?;
    let [throughput, size, onset, overload] = rows(WHERE, &runs);
    let gain = Figure::gain(WHERE[0], "max throughput, gain", THROUGHPUT, throughput.ours, NEAR);
    let copies = [&throughput, &gain].map(|figure| {
        let mut copy = figure.clone().copy_of(WHERE[0], &figure.row);
        (copy.document, copy.table) = WHERE[1];
        copy
    });
    let onset = onset
        .fitted("the size of the page cache, 48 of the 128 MB, was set by this; the text has mem=128m alone");
    let mut figures = vec![throughput, gain, size];
    figures.extend(copies);
    figures.extend([onset, overload]);
    curve(&runs, &mut figures);
    for (mib, table) in OTHER_MIB {
        let runs = both(|policy| thrash(mib, policy, STREAMS, READ_BYTES, None))?;
        figures
            .extend(rows([(WHERE[0].0, table); 2], &runs).map(|figure| figure.note("not the fitted size")));
    }
    let recording = if options.record {
        let (title, command) = ("readahead thrashing".to_owned(), "bowwave reproduce thrashing".to_owned());
        Recording { title, command, runs: runs.into_iter().collect(), ..Recording::new() }
    } else {
        Recording::default()
    };
    let notes = if options.notes { notes()? } else { Vec::new() };
    Ok(Outcome { figures, notes, recording })
}

/// Published maximum throughput in MB/s.
const THROUGHPUT: Pair = Pair::new(5.0, 15.0);
/// Tolerance of the published figures.
const NEAR: f64 = 0.2;

/// The published figures, in the tables of the two documents.
fn rows([patch, paper]: [(&'static str, &'static str); 2], runs: &[Run; 2]) -> [Figure; 4] {
    let [throughput, size, onset, overload] = measured(runs);
    let sizes = Pair::new(16.0, 140.0);
    let overloaded = Pair { baseline: Some(40.0), improved: None };
    [
        Figure::new(patch, "max throughput", "MB/s", THROUGHPUT, throughput, Bar::Within(NEAR))
            .note("that of 2.6.20 grows with the page cache, whose size is fitted: see the other sizes"),
        Figure::new(patch, "min average I/O size", "KB", sizes, size, Bar::Within(NEAR))
            .note("depends on the size of the streams' reads, which the documents leave open"),
        Figure::new(paper, "thrashing begins", "s", Pair::new(20.0, 20.0), onset, Bar::Within(0.25)),
        Figure::new(paper, "disk overloaded", "s", overloaded, overload, Bar::Within(0.25)),
    ]
}

/// Figure 6 as streams against throughput. Its text: the throughput of 2.6.20 ends at 5 MB/s, the
/// one of on-demand readahead keeps growing.
fn curve(runs: &[Run; 2], figures: &mut Vec<Figure>) {
    let [old, new] = runs.each_ref().map(|run| delivered(&run.samples));
    // Means of the seconds up to the start of the last of these streams.
    let at = |streams: u64| streams as usize - SMOOTH;
    for streams in (40..=STREAMS).step_by(20) {
        let before = (new[at(streams - 20)] / 1e4).floor() / 1e2;
        let at = at(streams);
        let ours = Pair::new(old[at] / 1e6, new[at] / 1e6);
        let most = THROUGHPUT.baseline.unwrap_or_default() * (1.0 + NEAR);
        let bar = Bar::Ranges((0.0, most), (before, f64::INFINITY));
        let row = format!("throughput at {streams} streams");
        let figure = Figure::new(WHERE[1], row, "MB/s", Pair::default(), ours, bar).stated();
        figures.push(figure.note("a curve without figures: 2.6.20 up to 5 MB/s, on-demand keeps growing"));
    }
}

/// Sensitivity to what the documents leave open.
fn notes() -> Result<Vec<String>, ReproduceError> {
    let mut notes = vec![format!(
        "thrashing: {CACHE_MIB} MiB of page cache, reads of {} KiB, disk queue in C-LOOK order",
        READ_BYTES >> 10
    )];
    for read_bytes in [4 << 10, 16 << 10, 32 << 10, 100_000] {
        notes.push(format!("  with reads of {read_bytes} bytes: {}", variant(read_bytes, None)?));
    }
    for elevator in [Elevator::Noop, Elevator::Anticipatory] {
        notes.push(format!("  with the elevator {elevator}: {}", variant(READ_BYTES, Some(elevator))?));
    }
    Ok(notes)
}

fn variant(read_bytes: u64, elevator: Option<Elevator>) -> Result<String, ReproduceError> {
    let runs = both(|policy| thrash(CACHE_MIB, policy, STREAMS, read_bytes, elevator))?;
    let [throughput, size, onset, overload] = measured(&runs).map(|pair| {
        let one = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
        (one(pair.baseline), one(pair.improved))
    });
    Ok(format!(
        "{:.1} -> {:.1} MB/s ({:.1} times), least average I/O {:.0} -> {:.0} KB, thrashing from second {:.0} and {:.0}, disk \
         overloaded from second {:.0} and {:.0}",
        throughput.0,
        throughput.1,
        throughput.1 / throughput.0,
        size.0,
        size.1,
        onset.0,
        onset.1,
        overload.0,
        overload.1,
    ))
}

/// Maximum throughput in MB/s, least average I/O size in KB, and the seconds at which thrashing
/// begins and the disk is overloaded; none if that never happens.
fn measured([old, new]: &[Run; 2]) -> [Pair; 4] {
    let one = |value: f64| value.is_finite().then_some(value);
    let pair = |measure: fn(&Samples) -> f64| Pair {
        baseline: one(measure(&old.samples)),
        improved: one(measure(&new.samples)),
    };
    [
        pair(|samples| peak(&delivered(samples)) / 1e6),
        pair(|samples| io_sizes(samples).into_iter().fold(f64::INFINITY, f64::min) / 1e3),
        pair(onset_seconds),
        pair(overload_seconds),
    ]
}

/// Results of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressed {
    /// Maximum bytes delivered in a second, smoothed, and the mean of the last seconds.
    pub(super) peak: f64,
    pub(super) last: f64,
    /// Standard deviation of the last seconds as a share of their mean.
    pub(super) swing: f64,
    /// Share of the fetched pages that were evicted unread.
    pub(super) lost: f64,
    /// Mean request size in the last seconds, in KB.
    pub(super) io_kb: f64,
}

/// The experiment with a current policy and `streams` streams, one more each second.
pub(super) fn pressed(policy: Policy, streams: u64) -> Result<Pressed, ReproduceError> {
    const LAST: usize = 20;
    let run = thrash(CACHE_MIB, policy, streams, READ_BYTES, None)?;
    let delivered = delivered(&run.samples);
    let last = &delivered[delivered.len().saturating_sub(LAST)..];
    let mean = last.iter().sum::<f64>() / last.len().max(1) as f64;
    let variance = last.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / last.len().max(1) as f64;
    let sizes = io_sizes(&run.samples);
    let sizes = &sizes[sizes.len().saturating_sub(LAST)..];
    let pages = run.row.bytes_fetched as f64 / 4096.0;
    Ok(Pressed {
        peak: peak(&delivered),
        last: mean,
        swing: variance.sqrt() / mean,
        lost: run.row.pages_thrashed as f64 / pages,
        io_kb: sizes.iter().sum::<f64>() / sizes.len().max(1) as f64 / 1e3,
    })
}

/// One run of the experiment.
fn thrash(
    cache_mib: u32,
    policy: Policy,
    streams: u64,
    read_bytes: u64,
    elevator: Option<Elevator>,
) -> Result<Run, ReproduceError> {
    let record = RecordOptions { sample_ns: 1_000_000_000, samples_max: 4096, ..RecordOptions::default() };
    let mut testbed = Testbed { cache_mib, record: Some(record), ..Testbed::of_2007()? };
    if let Some(elevator) = elevator {
        testbed.device += &format!(",queue_elevator={elevator}");
    }
    let mut machine = testbed.bench(policy)?.machine;
    let seconds = streams + SECONDS_MORE;
    let file_bytes = seconds * RATE;
    for stream in 0..streams {
        let address = SPREAD_BYTES / streams * stream;
        let file = machine.add_file(&format!("stream-{stream}"), file_bytes, address);
        let reads =
            (0..file_bytes / read_bytes).map(move |index| Access::read(file, index * read_bytes, read_bytes));
        let (start, period_ns) = (Instant(stream * 1_000_000_000), read_bytes * 1_000_000_000 / RATE);
        let pace = Pace::Every { period_ns };
        machine.add_process(Process { start, pace, ..Process::closed(reads) });
    }
    machine.run(Some(Instant(seconds * 1_000_000_000)))?;
    let mut run = machine.summary();
    run.row.policy = policy.name().to_owned();
    run.row.device = "hdd".to_owned();
    run.row.cache_bytes = Some(u64::from(cache_mib) << 20);
    run.row.ra_pages = testbed.ra_pages;
    Ok(run)
}

/// Runs `run` with both algorithms in parallel.
fn both<T: Send>(run: impl Fn(Policy) -> Result<T, ReproduceError> + Sync) -> Result<[T; 2], ReproduceError> {
    let [old, new] = OLD_AND_NEW;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(old));
        let new = run(new);
        let old = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([old?, new?])
    })
}

/// Bytes delivered per second, smoothed.
fn delivered(samples: &Samples) -> Vec<f64> {
    smooth(&samples.bytes_delivered.iter().map(|&bytes| bytes as f64).collect::<Vec<_>>())
}

/// Mean request size per second while thrashing may happen, smoothed.
fn io_sizes(samples: &Samples) -> Vec<f64> {
    let bytes = smooth(&samples.bytes_fetched.iter().map(|&bytes| bytes as f64).collect::<Vec<_>>());
    let requests = smooth(&samples.requests.iter().map(|&count| f64::from(count)).collect::<Vec<_>>());
    let sizes = bytes.iter().zip(&requests).filter(|(_, requests)| **requests > 0.0);
    sizes.map(|(bytes, requests)| bytes / requests).collect()
}

/// First second in which pages were evicted unread and missed.
fn onset_seconds(samples: &Samples) -> f64 {
    let first = samples.thrashed.iter().position(|&pages| pages > 0);
    first.map_or(f64::INFINITY, |second| (second + 1) as f64)
}

/// First second from which the disk stays busy for a while.
fn overload_seconds(samples: &Samples) -> f64 {
    let busy = smooth(&samples.busy);
    busy.iter().position(|&busy| busy > 0.99).map_or(f64::INFINITY, |second| (second + 1) as f64)
}

fn peak(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Means over [`SMOOTH`] neighbours.
fn smooth(values: &[f64]) -> Vec<f64> {
    values.windows(SMOOTH).map(|window| window.iter().sum::<f64>() / SMOOTH as f64).collect()
}
