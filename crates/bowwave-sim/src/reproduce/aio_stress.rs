//! aio-stress -l -s4096 -r128 -t1 on an ISO image, sequential (`-o1`) and random (`-o3`) (000).
//!
//! `-o` is the stage, 1 for reads and 3 for random reads, not the depth. The depth is 64, but
//! 2.6.20 has no asynchronous buffered reads: `io_submit` returns when everything is read, so one
//! read is in flight at a time.

use bowwave_core::{FileId, Policy};

use super::testbed::{Phase, Testbed};
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::machine::Access;
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment =
    Experiment { id: "aio-stress", what: "aio-stress: sequential and random reads of an ISO image", run };

/// `-s4096`.
const FILE_BYTES: u64 = 4 << 30;
/// `-r128`.
const RECORD_BYTES: u64 = 128 << 10;

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let testbed = Testbed::of_2007()?;
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for (row, random, published) in
        [("sequential", false, Pair::new(92.57, 92.54)), ("random", true, Pair::new(311.87, 312.15))]
    {
        let legacy = stage(&testbed, bowwave_baselines::LEGACY, random)?;
        let on_demand = stage(&testbed, Policy::OnDemand, random)?;
        let ours = Pair::new(legacy.seconds(), on_demand.seconds());
        let table = ("000", "aio-stress");
        figures.push(
            Figure::new(table, row, "s", published, ours, Bar::Within(0.1))
                .fitted("the disk by iozone's rates, and the address of the image by the sequential time")
                .note("-o1 and -o3 name stages, not depths"),
        );
        figures.push(Figure::gain(table, format!("{row}, gain"), published, ours, 0.007));
        let service = &on_demand.service;
        notes.push(format!(
            "aio-stress {row}: {:.1} % of the pages were there, {} requests of {:.0} KiB, {:.2} ms each",
            on_demand.hit_share() * 100.0,
            service.requests,
            service.bytes as f64 / 1024.0 / service.requests.max(1) as f64,
            service.total_ns() as f64 / 1e6 / service.requests.max(1) as f64,
        ));
    }
    Ok(Outcome { figures, notes, ..Outcome::default() })
}

/// One stage on a fresh machine.
pub(super) fn stage(testbed: &Testbed, policy: Policy, random: bool) -> Result<Phase, ReproduceError> {
    let mut bench = testbed.bench(policy)?;
    let address = bench.address_at(testbed.image_at_share);
    let file = bench.machine.add_file("knoppix511-dvd-cn.iso", FILE_BYTES, address);
    if random { bench.phase(random_reads(file), 1) } else { bench.phase(sequential(file), 1) }
}

fn sequential(file: FileId) -> impl Iterator<Item = Access> + Send + 'static {
    (0..FILE_BYTES / RECORD_BYTES).map(move |n| Access::read(file, n * RECORD_BYTES, RECORD_BYTES))
}

/// Any page of any MiB except the first: reads start at pages, not records, and overlap. (The
/// random numbers differ from the C library's.)
fn random_reads(file: FileId) -> impl Iterator<Item = Access> + Send + 'static {
    let mut random = Random::from_state(1);
    (0..FILE_BYTES / RECORD_BYTES).map(move |_| {
        let mib = 1 + random.below((FILE_BYTES >> 20) - 1);
        let offset = (mib << 20) + (1 + random.below(256)) * 4096;
        let last = if offset + RECORD_BYTES > FILE_BYTES { RECORD_BYTES } else { 0 };
        Access::read(file, offset - last, RECORD_BYTES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_reads_start_at_any_page_after_the_first_mib_and_end_within_the_file() {
        let offsets: Vec<_> = random_reads(FileId(0)).map(|access| access.offset).collect();
        assert_eq!(offsets.len(), 32_768);
        assert!(offsets.iter().all(|offset| offset % 4096 == 0));
        assert!(offsets.iter().any(|offset| offset % RECORD_BYTES != 0));
        assert!(offsets.iter().all(|offset| (1 << 20..=FILE_BYTES).contains(offset)));
    }
}
