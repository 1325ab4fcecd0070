//! How fast a trace in the binary form is replayed on one core, and what it misses.
//!
//! `cargo bench -p bowwave-sim --bench fast` takes generated traces; `-- TRACE.bwt|TRACE.csv [PAGES,…]` a trace and cache
//! sizes of your own, without readahead and with.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant as Clock;

use bowwave_core::Policy;
use bowwave_sim::fast::{self, Setup, Writes};
use bowwave_trace::binary::{Row, Trace, Writer};
use bowwave_trace::generate::{FILE, PID, Pattern, Spec};
use bowwave_trace::{Reader, Record};

const ROWS: u64 = 5_000_000;
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!("{:<44} {:>9} {:>22} {:>8}", "trace, policy, cache", "Mreads/s", "Mpages/s (lowest)", "misses");
    let Some(path) = args.first() else { return generated() };
    let trace = open(path)?;
    let sizes: Vec<u32> = match args.get(1) {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![10_000, 100_000],
    };
    for pages in sizes.into_iter().map(Some).chain([None]) {
        for policy in [Policy::None, Policy::OnDemand] {
            let setup = Setup { policy, cache_pages: pages, writes: Writes::AsReads, ..Setup::default() };
            measure(path, &trace, &setup)?;
        }
    }
    Ok(())
}

fn generated() -> Result<(), Box<dyn Error>> {
    let spec = Spec { rows: ROWS, file_bytes: 4 << 30, ..Spec::default() };
    let zipf = made(&Spec { pattern: Pattern::Zipf { exponent: 1.0 }, ..spec.clone() })?;
    for pages in [10_000, 100_000] {
        let setup = Setup { policy: Policy::None, cache_pages: Some(pages), ..Setup::default() };
        measure("zipf", &zipf, &setup)?;
    }
    let patterns = [
        ("sequential", Pattern::Sequential),
        ("interleaved", Pattern::Interleaved { streams: 100 }),
        ("clustered", Pattern::Clustered { cluster_bytes: 1 << 20 }),
        ("random", Pattern::Random),
        ("zipf", Pattern::Zipf { exponent: 1.0 }),
    ];
    for (name, pattern) in patterns {
        let trace = made(&Spec { pattern, ..spec.clone() })?;
        for pages in [Some(100_000), None] {
            measure(name, &trace, &Setup { cache_pages: pages, ..Setup::default() })?;
        }
    }
    Ok(())
}

fn measure<B: AsRef<[u8]>>(name: &str, trace: &Trace<B>, setup: &Setup) -> Result<(), Box<dyn Error>> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Clock::now();
        let outcome = fast::replay(trace, setup)?;
        rounds.push((start.elapsed().as_secs_f64(), outcome));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (best, outcome) = rounds[0];
    let (reads, pages) = (outcome.reads as f64 / 1e6, outcome.stats.accesses as f64 / 1e6);
    let cache = setup.cache_pages.map_or_else(|| "unlimited".to_owned(), |pages| format!("{pages} pages"));
    println!(
        "{:<44} {:>9.1} {:>13.1} ({:>6.1}) {:>8.4}",
        format!("{name}, {}, {cache}", setup.policy),
        reads / best,
        pages / best,
        pages / rounds[ROUNDS - 1].0,
        outcome.stats.misses as f64 / outcome.stats.accesses as f64
    );
    Ok(())
}

fn made(spec: &Spec) -> Result<Trace<Vec<u8>>, Box<dyn Error>> {
    let mut writer = Writer::new(Vec::new())?;
    let file = writer.file(FILE)?;
    let stream = writer.stream(PID, file)?;
    for row in spec.generate()? {
        writer.row(Row { stream, ..row })?;
    }
    Ok(Trace::new(writer.finish()?, "generated")?)
}

/// A trace in either form.
fn open(path: &str) -> Result<Trace<Vec<u8>>, Box<dyn Error>> {
    if !path.ends_with(".csv") {
        return Ok(Trace::new(std::fs::read(Path::new(path))?, path)?);
    }
    let mut reader = Reader::new(BufReader::new(File::open(path)?), path);
    let (mut writer, mut record) = (Writer::new(Vec::new())?, Record::default());
    while reader.read(&mut record)? {
        writer.write(&record)?;
    }
    Ok(Trace::new(writer.finish()?, path)?)
}
