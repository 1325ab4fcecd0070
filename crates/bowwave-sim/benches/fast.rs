//! Speed and misses of the fast replay of a binary trace on one core.
//!
//! `cargo bench -p bowwave-sim --bench fast` uses generated traces. `-- TRACE.bwt|TRACE.csv
//! [PAGES,…]` uses your own trace and cache sizes, with and without readahead. Times are processor
//! time, so other load on the machine matters less.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bowwave_core::{Eviction, PageSize, Policy};
use bowwave_sim::fast::{self, Setup, Writes};
use bowwave_sim::oracle::Future;
use bowwave_trace::binary::{Trace, Writer};
use bowwave_trace::generate::{Pattern, Spec};
use bowwave_trace::{Reader, Record};

const ROWS: u64 = 5_000_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!(
        "{:<54} {:>9} {:>22} {:>8}",
        "policy, eviction, cache, trace", "Mreads/s", "Mpages/s (lowest)", "misses"
    );
    let Some(path) = args.first() else { return generated() };
    let trace = open(path)?;
    let sizes: Vec<u32> = match args.get(1) {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![10_000, 100_000],
    };
    for pages in sizes.into_iter().map(Some).chain([None]) {
        for (policy, eviction) in [
            (Policy::None, Eviction::Lru),
            (Policy::None, Eviction::TwoList),
            (Policy::OnDemand, Eviction::TwoList),
        ] {
            let setup =
                Setup { policy, eviction, cache_pages: pages, writes: Writes::AsReads, ..Setup::default() };
            measure(path, &trace, &setup)?;
        }
        if let Some(pages) = pages {
            oracle(path, &trace, pages)?;
        }
    }
    Ok(())
}

fn generated() -> Result<(), Box<dyn Error>> {
    let spec = Spec { rows: ROWS, file_bytes: 4 << 30, ..Spec::default() };
    let made = |pattern: Pattern| -> Result<Trace, Box<dyn Error>> {
        Ok(Trace::of(Spec { pattern, ..spec.clone() }.records()?, "generated")?)
    };
    let zipf = made(Pattern::Zipf { exponent: 1.0 })?;
    for pages in [10_000, 100_000] {
        for eviction in Eviction::ALL {
            let setup =
                Setup { policy: Policy::None, eviction, cache_pages: Some(pages), ..Setup::default() };
            measure("zipf", &zipf, &setup)?;
        }
        oracle("zipf", &zipf, pages)?;
    }
    let patterns = [
        ("sequential", Pattern::Sequential),
        ("interleaved", Pattern::Interleaved { streams: 100 }),
        ("clustered", Pattern::Clustered { cluster_bytes: 1 << 20 }),
        ("random", Pattern::Random),
        ("zipf", Pattern::Zipf { exponent: 1.0 }),
    ];
    for (name, pattern) in patterns {
        let trace = made(pattern)?;
        for pages in [Some(100_000), None] {
            measure(name, &trace, &Setup { cache_pages: pages, ..Setup::default() })?;
        }
    }
    Ok(())
}

fn measure(name: &str, trace: &Trace, setup: &Setup) -> Result<(), Box<dyn Error>> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = processor_seconds();
        let outcome = fast::replay(trace, setup)?;
        rounds.push((processor_seconds() - start, outcome));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (best, outcome) = rounds[0];
    let (reads, pages) = (outcome.reads as f64 / 1e6, outcome.stats.accesses as f64 / 1e6);
    let cache = setup.cache_pages.map_or_else(|| "unlimited".to_owned(), |pages| format!("{pages} pages"));
    println!(
        "{:<54} {:>9.1} {:>13.1} ({:>6.1}) {:>8.4}",
        format!("{}, {}, {cache}, {name}", setup.policy, setup.eviction),
        reads / best,
        pages / best,
        pages / rounds[ROUNDS - 1].0,
        outcome.stats.misses as f64 / outcome.stats.accesses as f64
    );
    Ok(())
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Belady's eviction without readahead.
fn oracle(name: &str, trace: &Trace, frames: u32) -> Result<(), Box<dyn Error>> {
    let start = processor_seconds();
    let bound = Future::of(trace, PageSize::KIB_4, Writes::AsReads)?.bound(frames);
    let pages = bound.accesses as f64 / (processor_seconds() - start) / 1e6;
    println!(
        "{:<54} {:>9} {:>13.1} {:>8} {:>8.4}",
        format!("none, opt, {frames} pages, {name}"),
        "",
        pages,
        "",
        bound.misses as f64 / bound.accesses as f64
    );
    Ok(())
}

/// A trace in either form.
fn open(path: &str) -> Result<Trace, Box<dyn Error>> {
    if !path.ends_with(".csv") {
        return Ok(Trace::open(Path::new(path))?);
    }
    let mut reader = Reader::new(BufReader::new(File::open(path)?), path);
    let (mut writer, mut record) = (Writer::new(Vec::new())?, Record::default());
    while reader.read(&mut record)? {
        writer.write(&record)?;
    }
    Ok(Trace::new(writer.finish()?.into(), path)?)
}
