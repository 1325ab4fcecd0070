//! 000 "readahead thrashing", 002 section 4.5 and figure 6: memory pressure, one more slow reader
//! each second.
//!
//! A machine with 128 MB, of which the page cache has what the kernel leaves. Each second one more
//! stream of 100 KB/s starts, up to 200. Readahead pages are then evicted before they are read. The
//! 2.6.20 algorithm reads lost pages one by one; on-demand readahead starts a new window at the
//! missing page.

use bowwave_core::{Instant, Policy};

use super::lab::{self, Lab};
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

/// Page cache of the 128 MB. No document gives it; fitted to the second at which thrashing begins:
/// 20 streams with two windows of 1 MiB each. The notes have other sizes.
pub(super) const CACHE_BYTES: u64 = 48 << 20;
pub(super) const STREAMS: u64 = 200;
/// Bytes per second each stream requests.
pub(super) const RATE: u64 = 100_000;
/// Read size of a stream: what a server sends at a time. Not in the documents; the notes have other
/// sizes.
const READ_BYTES: u64 = 64 << 10;
/// At most 1 MiB is read ahead, as in all runs of the documents.
const RA_PAGES: u32 = 256;
/// Span of the disk over which files are spread.
const SPREAD_BYTES: u64 = 40_000_000_000;
/// Seconds for which all streams run.
const SECONDS_MORE: u64 = 20;
/// Averaging interval of curves in seconds, as the eye does with figure 6.
const SMOOTH: usize = 5;
const WHERE: [(&str, &str); 2] = [("000", "thrashing"), ("002", "figure 6")];

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    let runs = lab::both(|policy| thrash(policy, STREAMS, READ_BYTES, None))?;
    let [baseline, improved] = &runs;
    let mut figures = Vec::new();
    let pair =
        |measure: fn(&Samples) -> f64| Pair::new(measure(&baseline.samples), measure(&improved.samples));
    let throughput = pair(|samples| peak(&delivered(samples)) / 1e6);
    let size = pair(|samples| io_sizes(samples).into_iter().fold(f64::INFINITY, f64::min) / 1e3);
    let onset = pair(onset_seconds);
    let overload = pair(overload_seconds);
    let theirs = Pair::new(5.0, 15.0);
    for place in WHERE {
        let both = [
            Figure::new(place, "max throughput", "MB/s", theirs, throughput, Bar::Within(0.2)),
            Figure::gain(place, "max throughput, gain", theirs, throughput, 0.2),
        ];
        figures.extend(both.map(|figure| {
            let row = figure.row.clone();
            if place == WHERE[0] { figure } else { figure.copy_of(WHERE[0], &row) }
        }));
    }
    let theirs = Pair::new(16.0, 140.0);
    let figure = Figure::new(WHERE[0], "min average I/O size", "KB", theirs, size, Bar::Within(0.2));
    figures.push(figure.note("depends on the size of the streams' reads, which the documents leave open"));
    let theirs = Pair::new(20.0, 20.0);
    let figure = Figure::new(WHERE[1], "thrashing begins", "s", theirs, onset, Bar::Within(0.25));
    figures.push(figure.fitted("the size of the page cache, 48 of the 128 MB, was set by this"));
    let theirs = Pair { baseline: Some(40.0), improved: None };
    figures.push(Figure::new(WHERE[1], "disk overloaded", "s", theirs, overload, Bar::Within(0.25)));
    let recording = if options.record {
        Recording { runs: runs.into_iter().collect(), ..lab::recording("readahead thrashing", "thrashing") }
    } else {
        Recording::default()
    };
    let notes = if options.notes { notes()? } else { Vec::new() };
    Ok(Outcome { figures, notes, recording })
}

/// Sensitivity to what the documents leave open.
fn notes() -> Result<Vec<String>, ReproduceError> {
    let mut notes = vec![format!(
        "thrashing: {} MiB of page cache, reads of {} KiB, disk queue in C-LOOK order",
        CACHE_BYTES >> 20,
        READ_BYTES >> 10
    )];
    for read_bytes in [4 << 10, 16 << 10, 32 << 10, 100_000] {
        notes.push(format!("  with reads of {read_bytes} bytes: {}", variant(read_bytes, None)?));
    }
    for mib in [32, 64, 96] {
        let [old, new] = lab::both(|policy| thrash_in(mib << 20, policy, STREAMS, READ_BYTES, None))?;
        notes.push(format!("  with {mib} MiB of page cache: {}", said(&old, &new)));
    }
    for elevator in [Elevator::Noop, Elevator::Anticipatory] {
        notes.push(format!("  with the elevator {elevator}: {}", variant(READ_BYTES, Some(elevator))?));
    }
    Ok(notes)
}

fn variant(read_bytes: u64, elevator: Option<Elevator>) -> Result<String, ReproduceError> {
    let [old, new] = lab::both(|policy| thrash(policy, STREAMS, read_bytes, elevator))?;
    Ok(said(&old, &new))
}

fn said(old: &Run, new: &Run) -> String {
    let speed = |run: &Run| peak(&delivered(&run.samples)) / 1e6;
    let least = |run: &Run| io_sizes(&run.samples).into_iter().fold(f64::INFINITY, f64::min) / 1e3;
    format!(
        "{:.1} -> {:.1} MB/s ({:.1} times), least average I/O {:.0} -> {:.0} KB, thrashing from second {:.0} and {:.0}, disk \
         overloaded from second {:.0} and {:.0}",
        speed(old),
        speed(new),
        speed(new) / speed(old),
        least(old),
        least(new),
        onset_seconds(&old.samples),
        onset_seconds(&new.samples),
        overload_seconds(&old.samples),
        overload_seconds(&new.samples),
    )
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
    let run = thrash(policy, streams, READ_BYTES, None)?;
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
    policy: Policy,
    streams: u64,
    read_bytes: u64,
    elevator: Option<Elevator>,
) -> Result<Run, ReproduceError> {
    thrash_in(CACHE_BYTES, policy, streams, read_bytes, elevator)
}

/// The same with another size of the page cache.
fn thrash_in(
    cache_bytes: u64,
    policy: Policy,
    streams: u64,
    read_bytes: u64,
    elevator: Option<Elevator>,
) -> Result<Run, ReproduceError> {
    let record = RecordOptions { sample_ns: 1_000_000_000, samples_max: 4096, ..RecordOptions::default() };
    let lab = Lab { policy, ra_pages: RA_PAGES, cache_bytes, record: Some(record), ..Lab::disk() };
    let lab = match elevator {
        Some(elevator) => lab.with_elevator(elevator)?,
        None => lab,
    };
    let mut machine = lab.machine()?;
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
    Ok(lab.name(machine.summary()))
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
