//! Rejects a run that contradicts itself, naming the place. Later code relies on these checks.

use super::Error;
use crate::record::{Row, Run};

/// Largest count, size or time in a recording: exact in a JavaScript number, with space for sums.
const VALUE_MAX: u64 = 1 << 52;

/// Rejects an invalid run. `number` counts runs from 0.
pub(super) fn run(run: &Run, number: usize) -> Result<(), Error> {
    let (policy, device) = (&run.row.policy, &run.row.device);
    let at = |defect: String| Error::new(format_args!("runs[{number}] ({policy} on {device}): {defect}"));
    row(run).map_err(at)?;
    lengths(run).map_err(at)?;
    reads(run).map_err(at)?;
    decisions(run).map_err(at)?;
    requests(run).map_err(at)?;
    samples(run).map_err(at)
}

/// Rejects an invalid bound. `number` counts bounds from 0.
pub(super) fn bound(row: &Row, number: usize) -> Result<(), Error> {
    let at = |defect: String| {
        Error::new(format_args!("bounds[{number}] ({} on {}): {defect}", row.policy, row.device))
    };
    figures(row).map_err(at)
}

fn row(run: &Run) -> Result<(), String> {
    let row = &run.row;
    if row.accesses == 0 {
        return Err("row.accesses is 0: nothing was read".to_owned());
    }
    if run.page_bytes == 0 {
        return Err("page_bytes is 0".to_owned());
    }
    figures(row)?;
    share("row.utilisation", row.utilisation)?;
    for (name, every) in [
        ("reads_every", run.reads_every),
        ("decisions_every", run.decisions_every),
        ("requests_every", run.requests_every),
    ] {
        // 0 means that nothing was recorded.
        if every > VALUE_MAX {
            return Err(format!("{name} is {every}, which is too large"));
        }
    }
    all("page_bytes", [run.page_bytes])?;
    for (place, class) in row.classes.iter().enumerate() {
        let name = format!("row.classes[{place}]");
        if !(class.depth.is_finite() && (0.0..=1e15).contains(&class.depth)) {
            return Err(format!("{name}.depth is {}, which is no number of requests", class.depth));
        }
        let [latency, waited] = [class.latency_ns, class.waited_ns];
        all(&name, [class.requests, class.expired])?;
        all(&name, [latency.p50, latency.p90, latency.p99, latency.max])?;
        all(&name, [waited.p50, waited.p90, waited.p99, waited.max])?;
    }
    all("row.latency_ns", [row.latency_ns.p50, row.latency_ns.p90, row.latency_ns.p99, row.latency_ns.max])
}

/// Figures that both runs and bounds have.
fn figures(row: &Row) -> Result<(), String> {
    for (name, value) in
        [("seconds", row.seconds), ("amplification", row.amplification), ("avg_io_bytes", row.avg_io_bytes)]
    {
        if !(value.is_finite() && (0.0..=1e15).contains(&value)) {
            return Err(format!("row.{name} is {value}, which is not a size or time"));
        }
    }
    all("row", [row.bytes_fetched, row.bytes_wanted, row.accesses, row.requests])?;
    all("row", [row.hits, row.late, row.misses, row.pages_used, row.pages_wasted, row.pages_thrashed])
}

/// All columns of a list have one length.
fn lengths(run: &Run) -> Result<(), String> {
    let Run { reads, decisions, requests, samples, .. } = run;
    for (list, columns) in [
        ("reads", reads.lengths()),
        ("decisions", decisions.lengths()),
        ("requests", requests.lengths()),
        ("samples", samples.lengths()),
    ] {
        let (first, length) = columns[0];
        let fits = |&(name, other): &(_, usize)| other == length || other == 0 && ADDED.contains(&name);
        if let Some((name, other)) = columns.iter().find(|column| !fits(column)) {
            return Err(format!("{list}.{name} has {other} values and {list}.{first} has {length}"));
        }
    }
    Ok(())
}

/// Columns that older recordings lack.
const ADDED: [&str; 3] = ["thrashed", "queued_async", "expired"];

fn reads(run: &Run) -> Result<(), String> {
    let reads = &run.reads;
    values("reads.time_ns", &reads.time_ns)?;
    values("reads.latency_ns", &reads.latency_ns)?;
    values("reads.start", &reads.start)?;
    files("reads.file", &reads.file, run)?;
    match reads.outcome.iter().position(|outcome| *outcome > 2) {
        Some(index) => {
            Err(format!("reads.outcome[{index}] is {}, which is none of 0, 1 and 2", reads.outcome[index]))
        }
        None => Ok(()),
    }
}

fn decisions(run: &Run) -> Result<(), String> {
    let decisions = &run.decisions;
    rising("decisions.time_ns", &decisions.time_ns)?;
    files("decisions.file", &decisions.file, run)?;
    values("decisions.start", &decisions.start)?;
    values("decisions.size", &decisions.size)?;
    values("decisions.async_size", &decisions.async_size)?;
    match decisions.mark.iter().position(|mark| mark.is_some_and(|page| page > VALUE_MAX)) {
        Some(index) => Err(format!("decisions.mark[{index}] is too large")),
        None => Ok(()),
    }
}

fn requests(run: &Run) -> Result<(), String> {
    let requests = &run.requests;
    values("requests.ended_ns", &requests.ended_ns)?;
    values("requests.start", &requests.start)?;
    files("requests.file", &requests.file, run)?;
    let times = requests.queued_ns.iter().zip(&requests.started_ns).zip(&requests.ended_ns);
    for (index, ((queued, started), ended)) in times.enumerate() {
        if queued > started || started > ended {
            return Err(format!(
                "requests[{index}] was asked for at {queued}, begun at {started}, done at {ended} ns"
            ));
        }
    }
    Ok(())
}

fn samples(run: &Run) -> Result<(), String> {
    let samples = &run.samples;
    rising("samples.time_ns", &samples.time_ns)?;
    values("samples.bytes_fetched", &samples.bytes_fetched)?;
    values("samples.bytes_delivered", &samples.bytes_delivered)?;
    values("samples.thrashed", &samples.thrashed)?;
    for (index, busy) in samples.busy.iter().enumerate() {
        share(&format!("samples.busy[{index}]"), *busy)?;
    }
    Ok(())
}

/// A share of time: 0 to 1, with a tolerance for rounding.
fn share(name: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0 + 1e-6).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}, which is no share from 0 to 1"))
}

/// Values in order of time.
fn rising(name: &str, values_ns: &[u64]) -> Result<(), String> {
    values(name, values_ns)?;
    match values_ns.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(index) => Err(format!("{name}[{}] is before the one it follows", index + 1)),
        None => Ok(()),
    }
}

fn values(name: &str, values: &[u64]) -> Result<(), String> {
    match values.iter().position(|value| *value > VALUE_MAX) {
        Some(index) => Err(format!("{name}[{index}] is {}, which is too large", values[index])),
        None => Ok(()),
    }
}

fn all<const N: usize>(name: &str, values: [u64; N]) -> Result<(), String> {
    match values.iter().find(|value| **value > VALUE_MAX) {
        Some(value) => Err(format!("{name} holds {value}, which is too large")),
        None => Ok(()),
    }
}

fn files(name: &str, numbers: &[u32], run: &Run) -> Result<(), String> {
    let count = run.files.len();
    match numbers.iter().position(|number| usize::try_from(*number).map_or(true, |number| number >= count)) {
        Some(index) => Err(format!("{name}[{index}] is {}, and there are {count} files", numbers[index])),
        None => Ok(()),
    }
}
