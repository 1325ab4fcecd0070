//! Sequential readers under memory pressure: the remaining throughput.

use bowwave_core::Policy;

use super::workloads::{self, Workload};
use super::{Bar, Figure, Outcome, Pair, ReproduceError, measure};

const MIB: u64 = 1 << 20;
/// More than the readers read, as in workload b; an eighth of that; and less.
const MUCH: u64 = 4096 * MIB;
const LITTLE: u64 = 256 * MIB;
const LESS: [u64; 2] = [160 * MIB, 64 * MIB];

pub(super) fn fill(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for workload in workloads::all().into_iter().filter(|workload| workload.id == "b") {
        let bytes: u64 = workload.readers.iter().flat_map(|reader| reader.reads()).map(|read| read.1).sum();
        let mb_s = |seconds: f64| bytes as f64 / 1e6 / seconds;
        let with =
            |cache_bytes| measure(&Workload { cache_bytes, ..workload.clone() }, Policy::Stream, false);
        let (much, little) = (with(MUCH)?, with(LITTLE)?);
        let place = ("beyond", "little memory");
        let row = format!("{}: {}, in 4 GiB and in 256 MiB", workload.id, workload.what);
        let ours = Pair::new(mb_s(much.seconds), mb_s(little.seconds));
        let bar = Bar::GainFrom(0.9, f64::INFINITY);
        outcome.figures.push(Figure::new(place, row, "MB/s", Pair::default(), ours, bar).own());
        let row = format!("{}: bytes fetched for each wanted, in 4 GiB and in 256 MiB", workload.id);
        let ours = Pair::new(much.amplification, little.amplification);
        let bar = Bar::Ranges((0.0, 1.01), (0.0, 1.01));
        outcome.figures.push(Figure::new(place, row, "", Pair::default(), ours, bar).own());
        for memory in LESS {
            let less = with(memory)?;
            outcome.notes.push(format!(
                "{} in {} MiB: {:.2} of the speed, {:.3} times the bytes, {} requests, {} with much memory",
                workload.id,
                memory / MIB,
                much.seconds / less.seconds,
                less.amplification,
                less.requests,
                much.requests
            ));
        }
    }
    Ok(())
}
