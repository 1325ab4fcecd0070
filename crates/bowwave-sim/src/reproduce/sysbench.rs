//! sysbench fileio, rndrw: random 64 KiB over 4 GiB in 128 files, 10,000 requests by 1 to 256
//! threads (000).
//!
//! Three of five requests read, the others write (`--file-rw-ratio=1.5`, the default). Every 100
//! requests each file is synced (`--file-fsync-freq=100`, the default), and once more at the end.
//! All threads take their next request from the same sequence, the syncs too. The patch calls the
//! results "roughly the same", and attributes the spread to the writes.

use bowwave_core::{FileId, Instant, Policy};

use super::testbed::Testbed;
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::machine::{Access, AccessOp};
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "sysbench-fileio",
    what: "sysbench fileio rndrw: random reads and writes with fsyncs, by threads",
    run,
};

/// Threads, 2.6.20 and on-demand in seconds.
const FIRST: [(u32, f64, f64); 9] = [
    (1, 59.1974, 59.2262),
    (2, 58.0575, 58.2269),
    (4, 48.0545, 47.1164),
    (8, 41.0684, 41.2229),
    (16, 35.8817, 36.4448),
    (32, 32.6614, 32.8240),
    (64, 23.7601, 24.1481),
    (128, 24.3719, 23.8225),
    (256, 23.2366, 22.0488),
];
const SECOND: [(u32, f64, f64); 4] =
    [(1, 59.6720, 59.5671), (8, 41.5158, 41.9541), (64, 25.0200, 23.9634), (256, 22.5491, 20.9486)];
const SUM: Pair = Pair::new(495.046, 491.514);

const FILES: u64 = 128;
const FILE_BYTES: u64 = (4 << 30) / FILES;
const BLOCK_BYTES: u64 = 64 << 10;
/// `--max-requests=10000`.
const REQUESTS: u64 = 10_000;
/// Requests between two rounds of fsyncs.
const SYNC_EVERY: u64 = 100;

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    let testbed = Testbed::of_2007()?;
    let unordered = Testbed { depth: 1, ..testbed.clone() };
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    let mut sum = (0.0, 0.0);
    for (table, rows, seed) in
        [("sysbench fileio, first run", &FIRST[..], 1), ("sysbench fileio, second run", &SECOND[..], 2)]
    {
        let threads: Vec<u32> = rows.iter().map(|row| row.0).collect();
        let legacy = seconds(&testbed, bowwave_baselines::LEGACY, &threads, seed)?;
        let on_demand = seconds(&testbed, Policy::OnDemand, &threads, seed)?;
        for (&(threads, baseline, improved), (legacy, on_demand)) in
            rows.iter().zip(legacy.into_iter().zip(on_demand))
        {
            sum = (sum.0 + legacy, sum.1 + on_demand);
            let (published, ours) = (Pair::new(baseline, improved), Pair::new(legacy, on_demand));
            let (table, row) = (("000", table), format!("{threads} threads"));
            figures.push(Figure::new(table, row.clone(), "s", published, ours, SECONDS).note(NOTE));
            figures.push(Figure::gain(table, format!("{row}, gain"), published, ours, SAME).note(SPREAD));
        }
        if !options.notes {
            continue;
        }
        let queued = seconds(&unordered, Policy::OnDemand, &threads, seed)?;
        let listed: Vec<_> =
            threads.iter().zip(queued).map(|(threads, s)| format!("{threads}: {s:.1}")).collect();
        notes.push(format!(
            "{table}, with a disk that takes one command at a time, seconds by threads: {}",
            listed.join(", ")
        ));
    }
    let total = Pair::new(sum.0, sum.1);
    let table = ("000", "sysbench fileio");
    figures.push(Figure::new(table, "sum all up", "s", SUM, total, SECONDS).note(NOTE));
    figures.push(Figure::gain(table, "sum all up, gain", SUM, total, SAME));
    Ok(Outcome { figures, notes, ..Outcome::default() })
}

/// Seconds of all requests by each number of threads, which share file descriptors. The runs follow
/// each other on one machine, where preparing the files left their ends in the page cache.
pub(super) fn seconds(
    testbed: &Testbed,
    policy: Policy,
    threads: &[u32],
    seed: u64,
) -> Result<Vec<f64>, ReproduceError> {
    let mut bench = testbed.bench(policy)?;
    let address = testbed.address(&bench);
    for number in 0..FILES {
        bench.machine.add_file(&format!("test_file.{number}"), FILE_BYTES, address + number * FILE_BYTES);
    }
    bench.phase(
        (0..FILES * FILE_BYTES / BLOCK_BYTES).map(|block| access(AccessOp::Read, block * BLOCK_BYTES)),
        1,
    )?;
    let mut random = Random::from_state(seed);
    let mut all = Vec::with_capacity(threads.len());
    for &threads in threads {
        all.push(bench.phase(requests(random.bits()), threads)?.seconds());
    }
    Ok(all)
}

/// Reads, writes and syncs of a run.
fn requests(seed: u64) -> impl Iterator<Item = Access> + Send + 'static {
    let mut random = Random::from_state(seed);
    (1..=REQUESTS).flat_map(move |n| {
        let op = if n % 5 < 3 { AccessOp::Read } else { AccessOp::Write };
        let request = access(op, random.below(FILES * FILE_BYTES / BLOCK_BYTES) * BLOCK_BYTES);
        let syncs = if n % SYNC_EVERY == 0 { FILES as u32 } else { 0 };
        std::iter::once(request).chain((0..syncs).map(|file| Access {
            at: Instant(0),
            op: AccessOp::Sync,
            file: FileId(file),
            offset: 0,
            bytes: 0,
        }))
    })
}

/// The block at an offset in all files together.
fn access(op: AccessOp, place: u64) -> Access {
    // 128 files.
    let file = FileId((place / FILE_BYTES) as u32);
    Access { at: Instant(0), op, file, offset: place % FILE_BYTES, bytes: BLOCK_BYTES }
}

/// Tolerance of a gain: the published gains of the same row differ by this much between the runs.
const SAME: f64 = 0.02;
const SECONDS: Bar = Bar::Within(0.15);
const NOTE: &str = "the file system and its journal are left out";
const SPREAD: &str = "\"not very stable because of the writes\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_of_five_requests_read_and_every_hundredth_syncs_each_file() {
        let count = |op| requests(1).filter(|access| access.op == op).count() as u64;
        assert_eq!((count(AccessOp::Read), count(AccessOp::Write)), (6000, 4000));
        assert_eq!(count(AccessOp::Sync), REQUESTS / SYNC_EVERY * FILES);
    }

    #[test]
    fn more_threads_are_faster_with_ncq_and_both_algorithms_alike() {
        let testbed = Testbed::of_2007().unwrap();
        // A tiny cache, so that little must be prepared.
        let testbed = Testbed { cache_mib: 8, device: "hdd:rpm=7200".to_owned(), ..testbed };
        let legacy = seconds(&testbed, bowwave_baselines::LEGACY, &[1, 64], 1).unwrap();
        let on_demand = seconds(&testbed, Policy::OnDemand, &[1, 64], 1).unwrap();
        assert!(on_demand[1] < on_demand[0] * 0.7, "{on_demand:?}");
        for (legacy, on_demand) in legacy.iter().zip(&on_demand) {
            assert!((on_demand / legacy - 1.0).abs() < 0.01, "{on_demand} against {legacy}");
        }
    }
}
