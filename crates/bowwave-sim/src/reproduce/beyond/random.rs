//! Random reads: bytes fetched beyond the requested ones.

use std::sync::Arc;

use bowwave_core::Policy;
use bowwave_trace::generate::Random;

use super::{Bar, Figure, HOST, Outcome, Pair, ReproduceError, STORE, machine};
use crate::machine::{Access, Pace, Process};

const READS: u64 = 100_000;
/// Pages of a file, and of the cache for the transactions.
const FILE_PAGES: u64 = 1 << 20;
const CACHE_BYTES: u64 = 256 << 20;

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for (row, cache_bytes, reads) in [
        ("10^5 uniform random reads", 0, uniform()),
        ("10^5 reads of transactions", CACHE_BYTES, transactions()),
    ] {
        let reads = Arc::new(reads);
        let asked = fetched(Policy::None, cache_bytes, &reads)?;
        let stream = fetched(Policy::Stream, cache_bytes, &reads)?;
        let limit = 1.05 * asked;
        let ours = Pair::new(asked, stream);
        let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, limit));
        let row = format!("{row}: MB asked for and missing, and fetched");
        outcome
            .figures
            .push(Figure::new(("beyond", "random reads"), row, "MB", Pair::default(), ours, bar).own());
    }
    Ok(())
}

/// Reads of 1 to 4 pages at random offsets.
fn uniform() -> Vec<(u64, u64)> {
    let mut random = Random::new(5);
    (0..READS).map(|_| (random.below(FILE_PAGES - 4), 1 + random.below(4))).collect()
}

/// Transactions on tables of 8 KiB blocks: the hot root and branch of an index, a leaf, and a row
/// or a short range of rows; occasionally the last appended rows.
fn transactions() -> Vec<(u64, u64)> {
    let mut random = Random::new(6);
    let mut reads = Vec::new();
    let mut appended = FILE_PAGES / 8 * 7;
    while (reads.len() as u64) < READS {
        let table = random.below(6) * (FILE_PAGES / 8);
        let skewed = random.below(FILE_PAGES / 16).min(random.below(FILE_PAGES / 16)) * 2;
        reads.push((table, 2));
        reads.push((table + 2 + random.below(64) * 2, 2));
        reads.push((table + 1024 + skewed / 64 * 2, 2));
        let row = table + 8192 + skewed % (FILE_PAGES / 8 - 8192);
        let blocks = if random.below(10) == 0 { 1 + random.below(4) } else { 1 };
        reads.extend((0..blocks).map(|block| (row / 2 * 2 + block * 2, 2)));
        if random.below(20) == 0 {
            appended = (appended + 2).min(FILE_PAGES - 2);
            reads.push((appended, 2));
        }
    }
    reads.truncate(READS as usize);
    reads
}

/// Megabytes fetched by these reads.
fn fetched(policy: Policy, cache_bytes: u64, reads: &Arc<Vec<(u64, u64)>>) -> Result<f64, ReproduceError> {
    let mut machine = machine(policy, STORE, cache_bytes, 32)?;
    let file = machine.add_file("random", FILE_PAGES * 4096, 0);
    let reads = Arc::clone(reads);
    let source = (0..reads.len()).map(move |at| {
        let (page, pages) = reads[at];
        Access::read(file, page * 4096, pages * 4096)
    });
    let pace = Pace::Closed { think_ns: HOST.call_ns };
    machine.add_process(Process { pace, ..Process::closed(source) });
    machine.run(None)?;
    Ok(machine.summary().row.bytes_fetched as f64 / 1e6)
}
