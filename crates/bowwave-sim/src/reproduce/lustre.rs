//! 003: mapped reads of a file on Lustre by 32 jobs, with and without fault ranges.
//!
//! The published job is fio's randread of 128 KiB blocks through mmap, 32 jobs on one file of 200
//! GB for 30 seconds; each page of a block faults separately. Also run: the document's pattern `[1M
//! data] [hole] [0.5M data] [hole] [0.7M data] [1M data]`, and sequential and strided reads, which
//! must not regress. `Before` is Lustre's engine without ranges, on the same cache and device.

mod sweep;

use bowwave_baselines::{ALGORITHMS, CLUSTERS_BEFORE, CLUSTERS_LITERAL};
use bowwave_core::{Clusters, Config, FileId, Instant, Policy, RangeConfig, readahead::RangeEvent};

use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::device::DeviceSpec;
use crate::machine::{Access, AccessOp, Host, Machine, Process, Setup, Walk};
use crate::parallel;
use crate::queue::Queue;
use bowwave_core::Random;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lustre-mmap",
    what: "mapped reads on Lustre by 32 jobs: fio's randread, blocks with holes, in order, strided (003)",
    run,
};
pub(super) use sweep::EXPERIMENT as SWEEP;

/// The patch as posted, with windows that grow by 4 MiB and by 1 MiB, both in RPCs of 1 MiB; and
/// the fixed detector.
const LARGE: (&str, &str) = ("003", "page faults, windows of 4 MiB");
const SMALL: (&str, &str) = ("003", "page faults, windows of 1 MiB");
const FIXED: (&str, &str) = ("003", "page faults, fixed");
const JOBS: u64 = 32;
const FILE_BYTES: u64 = 200_000_000_000;
/// Memory of the client; not in the document.
const CACHE_BYTES: u64 = 16 << 30;
const PAGE: u64 = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// A client and its servers.
#[derive(Clone, Copy, Debug)]
struct Client<'a> {
    device: &'a str,
    /// By how much windows grow.
    window_pages: u32,
}

/// Eight servers with 8 RPCs in flight each, as one AI400 has, and windows that grow by 4 MiB. The
/// document gives neither.
const MACHINE: Client<'_> = Client { device: "lustre:depth=64", window_pages: 1024 };
/// Alternatives for the notes.
const OTHERS: [Client<'_>; 3] = [
    Client { device: "lustre:depth=64", window_pages: 256 },
    Client { device: "lustre", window_pages: 1024 },
    Client { device: "lustre", window_pages: 256 },
];
/// Kernel time of a fault on a cached page; not in the document.
const FAULT_NS: u64 = 1_500;

bowwave_core::named_enum! {
    /// Access pattern of the jobs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Workload {
        Random = "randread of 128 KiB",
        Holes = "[1M data] [hole] [0.5M data] [hole] [0.7M data] [1M data]",
        ShuffledHoles = "the same, pages of a block in no order",
        Sequential = "in order",
        Strided = "64 KiB of each 256",
    }
}

/// Fault latencies.
#[derive(Clone, Debug)]
struct Faulted {
    average_us: f64,
    max_us: f64,
    amplification: f64,
    faults: u64,
    ranges: u64,
}

fn run(options: &Options) -> Result<Outcome, ReproduceError> {
    use Workload::{Holes, Random, Sequential, ShuffledHoles, Strided};
    let workloads = [Random, Holes, ShuffledHoles, Sequential, Strided];
    let cases: Vec<(Workload, Clusters)> = workloads
        .into_iter()
        .flat_map(|workload| {
            [CLUSTERS_BEFORE, CLUSTERS_LITERAL, Clusters::Fixed].map(|clusters| (workload, clusters))
        })
        .collect();
    let runs = parallel::try_map(&cases, parallel::workers(), |&(workload, clusters)| {
        faults(workload, clusters, &MACHINE, workload.end())
    })?;
    let mut outcome = Outcome::default();
    for (workload, runs) in workloads.into_iter().zip(runs.chunks(3)) {
        let [before, posted, fixed] = runs else { continue };
        if workload == Random {
            published(LARGE, before, posted, &mut outcome.figures);
        }
        let average = Pair::new(before.average_us, fixed.average_us);
        let max = Pair::new(before.max_us, fixed.max_us);
        workload.figures(average, max, &mut outcome.figures);
        outcome.notes.push(format!("lustre-mmap, {}:", workload.name()));
        for (name, run) in ["before the patch", "as published", "fixed"].into_iter().zip(runs) {
            outcome.notes.push(format!(
                "  {name}: average {:.1} us, most {:.0} us, {:.2} bytes fetched a byte touched, {} faults, {} windows around one",
                run.average_us, run.max_us, run.amplification, run.faults, run.ranges
            ));
        }
    }
    others(options, &mut outcome)?;
    Ok(outcome)
}

/// Rows of the published table, for windows of one size.
fn published(
    table: (&'static str, &'static str),
    before: &Faulted,
    posted: &Faulted,
    figures: &mut Vec<Figure>,
) {
    let calibrated = table == LARGE;
    for (row, published, ours) in [
        ("average", AVERAGE, Pair::new(before.average_us, posted.average_us)),
        ("maximum", MAXIMUM, Pair::new(before.max_us, posted.max_us)),
    ] {
        let old = Pair { improved: None, ..published };
        let new = Pair { baseline: None, ..published };
        let figure = Figure::new(
            table,
            format!("randread of 128 KiB, {row}, before the patch"),
            "us",
            old,
            Pair { improved: None, ..ours },
            Bar::Within(NEAR),
        );
        figures.push(if calibrated { figure.fitted(CALIBRATED) } else { figure.note(OPEN) });
        let row = format!("randread of 128 KiB, {row}");
        let ours_new = Pair { baseline: None, ..ours };
        figures.push(Figure::new(table, row.clone(), "us", new, ours_new, Bar::Within(NEAR)).note(OPEN));
        figures.push(Figure::gain(table, format!("{row}, gain"), published, ours, NEAR).note(OPEN));
    }
}

/// The published job with what the document leaves open: windows of 1 MiB as rows, others as notes.
fn others(options: &Options, outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let others = if options.notes { &OTHERS[..] } else { &OTHERS[..1] };
    let cases: Vec<(&Client<'_>, Clusters)> = others
        .iter()
        .flat_map(|client| [CLUSTERS_BEFORE, CLUSTERS_LITERAL].map(|clusters| (client, clusters)))
        .collect();
    let runs = parallel::try_map(&cases, parallel::workers(), |&(client, clusters)| {
        faults(Workload::Random, clusters, client, Workload::Random.end())
    })?;
    published(SMALL, &runs[0], &runs[1], &mut outcome.figures);
    outcome.notes.push(format!(
        "lustre-mmap: {} and windows that grow by {} KiB; the document names neither RPCs in flight nor their size:",
        MACHINE.device,
        u64::from(MACHINE.window_pages) * PAGE / 1024
    ));
    for (client, runs) in OTHERS.iter().zip(runs.chunks(2)) {
        outcome.notes.push(format!(
            "  randread of 128 KiB with {} and {} KiB: average {:.0} -> {:.0} us ({:.2} times), most {:.0} -> {:.0} us",
            client.device,
            u64::from(client.window_pages) * PAGE / 1024,
            runs[0].average_us,
            runs[1].average_us,
            runs[0].average_us / runs[1].average_us,
            runs[0].max_us,
            runs[1].max_us
        ));
    }
    Ok(())
}

impl Workload {
    /// End of a run, after 5 or 10 seconds. The published job ran for 30; these have hundreds of
    /// thousands of faults in less.
    fn end(self) -> Instant {
        match self {
            Self::Sequential | Self::Strided => Instant(5 * SECOND_NS),
            _ => Instant(10 * SECOND_NS),
        }
    }

    fn figures(self, average: Pair, max: Pair, figures: &mut Vec<Figure>) {
        let row = |what: &str| format!("{}, {what}", self.name());
        let must_not_lose = matches!(self, Self::Sequential | Self::Strided);
        for (what, theirs, ours, gain) in
            [("average", AVERAGE, average, GAIN_AVERAGE), ("maximum", MAXIMUM, max, GAIN_MAX)]
        {
            let theirs = if self == Self::Random { theirs } else { Pair::default() };
            let note = if must_not_lose { NOT_WORSE } else { self.note(what) };
            let bar = Bar::GainFrom(0.0, if must_not_lose { 1.02 } else { gain });
            figures.push(Figure::new(FIXED, row(what), "us", theirs, ours, bar).own().note(note));
        }
    }

    /// Remark on a figure.
    fn note(self, what: &str) -> &'static str {
        match (self, what) {
            (Self::Random, _) => "",
            (Self::ShuffledHoles, "maximum") => {
                "no time published; before the patch few RPCs are large, and the slowest of 1 MiB take 37 ms"
            }
            (Self::Holes, "average") => {
                "no time published; blocks are touched in order, so before the patch they are read ahead, too, and the hole with them"
            }
            _ => "no time published",
        }
    }

    /// The pages a job touches, in order, without end.
    fn pages(self, job: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        let mut random = Random::new(job);
        let pages = FILE_BYTES / PAGE;
        let own = job * (pages / JOBS);
        match self {
            Self::Random => {
                Box::new(std::iter::repeat_with(move || random.below(pages / 32)).flat_map(|block| {
                    let start = block * 32;
                    start..start + 32
                }))
            }
            Self::Sequential => Box::new((own..).map(move |page| page % pages)),
            Self::Strided => Box::new((0..).map(move |page| (own + page / 16 * 64 + page % 16) % pages)),
            Self::Holes | Self::ShuffledHoles => {
                let mut at = own;
                let blocks = [(256, true), (128, true), (179, false), (256, true)];
                let source = blocks.into_iter().cycle().flat_map(move |(count, hole)| {
                    let mut block: Vec<u64> = (at..at + count).map(|page| page % pages).collect();
                    if self == Self::ShuffledHoles {
                        for last in (1..block.len()).rev() {
                            block.swap(last, random.below(last as u64 + 1) as usize);
                        }
                    }
                    // From 1 to 64 MiB.
                    at += count + if hole { 256 + random.below(63 * 256) } else { 0 };
                    block
                });
                Box::new(source)
            }
        }
    }
}

/// One run.
fn faults(
    workload: Workload,
    clusters: Clusters,
    client: &Client<'_>,
    end: Instant,
) -> Result<Faulted, ReproduceError> {
    let device = DeviceSpec::open(client.device, &ALGORITHMS)?;
    let queue = Queue::new(device.build(0), device.queue().clone())?;
    let config = Config {
        frames: u32::try_from(CACHE_BYTES / PAGE).unwrap_or(Config::UNLIMITED),
        ra_pages: client.window_pages,
        policy: Policy::Range,
        range: RangeConfig { clusters, ..RangeConfig::default() },
        ..Config::default()
    };
    let (host, walk) = (Host { call_ns: FAULT_NS, ..Host::FREE }, Walk::PageByPage);
    let mut machine = Machine::new(Setup { host, walk, ..Setup::new(config, queue) })?;
    let file: FileId = machine.add_file("randread", FILE_BYTES, 0);
    for job in 0..JOBS {
        machine.add_process(Process::closed(
            workload
                .pages(job)
                .map(move |page| Access { op: AccessOp::Load, ..Access::read(file, page * PAGE, PAGE) }),
        ));
    }
    machine.run(Some(end))?;
    let row = machine.summary().row;
    Ok(Faulted {
        average_us: machine.latency_mean_ns() / 1e3,
        max_us: row.latency_ns.max as f64 / 1e3,
        amplification: row.amplification,
        faults: machine.reads().0,
        ranges: RangeEvent::MmapRangeRead.of(&machine.cache().stats()),
    })
}

/// How near a fault time must be to the published one.
const NEAR: f64 = 0.2;
/// Published fault times in microseconds.
const AVERAGE: Pair = Pair::new(512.0, 52.0);
const MAXIMUM: Pair = Pair::new(37_698.0, 6_543.0);
/// Bars of the fixed detector: the published speedups of 9.75 and 5.76.
const GAIN_AVERAGE: f64 = 1.0 / 9.75;
const GAIN_MAX: f64 = 1.0 / 5.76;
const CALIBRATED: &str = "the latency of an RPC and its cap were set by this";
const OPEN: &str = "the document leaves windows, RPCs in flight and their size open";
const NOT_WORSE: &str =
    "not published; no more than 2 % worse: windows begin to grow after 256 faults in order, not after 4";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_make_clustered_faults_faster_and_fetch_less() {
        for workload in [Workload::Random, Workload::ShuffledHoles] {
            let [before, after] = [CLUSTERS_BEFORE, Clusters::Fixed]
                .map(|clusters| faults(workload, clusters, &MACHINE, Instant(SECOND_NS)).unwrap());
            assert!(after.average_us * 5.0 < before.average_us, "{workload:?} {before:?} {after:?}");
            assert!(after.amplification < before.amplification, "{workload:?} {before:?} {after:?}");
            assert!(before.ranges == 0 && after.ranges > 1000, "{workload:?} {before:?} {after:?}");
        }
    }

    #[test]
    fn jobs_touch_the_pages_of_the_workload() {
        let pages = |workload: Workload, count| workload.pages(0).take(count).collect::<Vec<_>>();
        let random = pages(Workload::Random, 64);
        assert!(random.chunks(32).all(|block| block[0] % 32 == 0 && block[31] == block[0] + 31));
        assert_eq!(pages(Workload::Strided, 18)[14..], [14, 15, 64, 65]);
        let holes = pages(Workload::Holes, 256 + 128 + 179 + 256);
        assert!(
            holes[255] == 255 && holes[256] >= 512 && holes[563] == holes[562] + 1,
            "no hole before the last"
        );
        let mut shuffled = pages(Workload::ShuffledHoles, 256);
        assert_ne!(shuffled, holes[..256]);
        shuffled.sort_unstable();
        assert_eq!(shuffled, holes[..256]);
    }
}
