//! Interleaved streams: no more requests than separate ones, except for two per stream.

use bowwave_core::Policy;

use super::{Bar, Figure, Outcome, Pair, ReproduceError, machine};
use crate::machine::{Access, Pace, Process};

/// Reads per stream, one page each.
const READS: u64 = 512;
/// Linux's default window.
const RA_PAGES: u32 = 32;
const FILE_BYTES: u64 = 64 << 30;

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for streams in [2, 4, 8, 16, 32, 64] {
        for descriptors in [1, streams] {
            let on_demand = requests(Policy::OnDemand, streams, descriptors)?;
            let together = requests(Policy::Stream, streams, descriptors)?;
            let alone = |stream| count(Policy::Stream, vec![vec![begin(stream)]]);
            let apart = (0..streams).map(alone).sum::<Result<u64, ReproduceError>>()?;
            let row = format!("{streams} streams, {descriptors} descriptors: requests apart, and together");
            let limit = (apart + 2 * streams) as f64;
            let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, limit));
            let ours = Pair::new(apart as f64, together as f64);
            let note = format!("{on_demand} with ondemand");
            let figure = Figure::new(("beyond", "interleaved"), row, "", Pair::default(), ours, bar).own();
            outcome.figures.push(figure.note(note));
        }
    }
    Ok(())
}

/// Start of a stream; starts are not strided.
fn begin(stream: u64) -> u64 {
    (stream * 1_000_000_007 + stream * stream % 13 * 7_654_321) / 4096 * 4096 % (FILE_BYTES / 2)
}

fn requests(policy: Policy, streams: u64, descriptors: u64) -> Result<u64, ReproduceError> {
    let begins: Vec<u64> = (0..streams).map(begin).collect();
    let per = streams / descriptors;
    let readers = (0..descriptors)
        .map(|reader| begins[(reader * per) as usize..((reader + 1) * per) as usize].to_vec());
    count(policy, readers.collect())
}

/// Counts requests of readers of one file, each alternating between its streams.
fn count(policy: Policy, readers: Vec<Vec<u64>>) -> Result<u64, ReproduceError> {
    let mut machine = machine(policy, "instant", 0, RA_PAGES)?;
    let file = machine.add_file("shared", FILE_BYTES, 0);
    for begins in readers {
        let source = (0..READS).flat_map(move |read| {
            let begins = begins.clone();
            begins.into_iter().map(move |begin| Access::read(file, begin + read * 4096, 4096))
        });
        // A short think time, so that all run concurrently.
        let pace = Pace::Closed { think_ns: 1000 };
        machine.add_process(Process { pace, ..Process::closed(source) });
    }
    machine.run(None)?;
    Ok(machine.summary().row.requests)
}
