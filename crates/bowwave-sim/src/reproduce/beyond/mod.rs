//! Future work of the documents, and current use: `stream` compared with the other policies.
//!
//! | file | idea |
//! |---|---|
//! | `workloads` | twelve workloads on an object store |
//! | `plans` | readers that announce their reads |
//! | `regret` | comparison with an oracle |
//! | `streams` | requests of interleaved streams |
//! | `memory` | sequential readers under memory pressure |
//! | `pressure` | the thrashing experiment of the on-demand patch, with `stream` |
//! | `random` | waste with random reads |
//! | `ablation` | each constant and detector of `stream`, changed (a benchmark) |
//! | `losses` | experiments of the documents where readahead cannot gain |
//!
//! None of this was published, so the columns of published figures are empty. The baseline is
//! on-demand readahead unless the row says otherwise, and `stream` is the improved policy. The
//! notes have all policies.

#[cfg(feature = "ablation")]
mod ablation;
mod losses;
mod memory;
mod plans;
mod pressure;
mod random;
mod regret;
mod streams;
mod workloads;

#[cfg(feature = "ablation")]
pub use ablation::{Measured, Variant, ablate};
use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Policy};

use self::workloads::Workload;
use super::{Bar, Experiment, Figure, Options, Outcome, Pair, ReproduceError};
use crate::device::DeviceSpec;
use crate::machine::{Host, Machine, Process, Setup};
use crate::queue::Queue;
use crate::record::Row;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beyond",
    what: "stream beside the others: twelve workloads on an object store, interleaved streams, thrashing",
    run,
};

/// All connections are equal: 30 ms, 90 MB/s.
const STORE: &str = "s3-steady";
/// 1 MiB.
const RA_PAGES: u32 = 256;
const POLICIES: [Policy; 5] =
    [Policy::None, Policy::OnDemand, bowwave_baselines::LINUX, Policy::Range, Policy::Stream];
/// Costs of a call, a wake-up and a copy on a current machine.
const HOST: Host = Host { call_ns: 1_000, wait_ns: 5_000, copy_ns_a_kib: 100.0 };

fn run(_: &Options) -> Result<Outcome, ReproduceError> {
    let mut outcome = Outcome::default();
    twelve(&mut outcome)?;
    plans::fill(&mut outcome)?;
    streams::fill(&mut outcome)?;
    random::fill(&mut outcome)?;
    losses::fill(&mut outcome)?;
    memory::fill(&mut outcome)?;
    pressure::fill(&mut outcome)?;
    Ok(outcome)
}

/// The twelve workloads, each with each policy.
fn twelve(outcome: &mut Outcome) -> Result<(), ReproduceError> {
    for workload in workloads::all() {
        let rows = POLICIES.map(|policy| measure(&workload, policy, false));
        let mut seconds = Vec::new();
        for (policy, row) in POLICIES.into_iter().zip(rows) {
            let row = row?;
            let late = row.latency_ns.max > workloads::PERIOD_NS;
            outcome.notes.push(format!(
                "{} {:<42} {:<9} {:>8.3} s {:>7.2} times the bytes, {:>6} requests, {} pages unread{}",
                workload.id,
                workload.what,
                policy.name(),
                row.seconds,
                row.amplification,
                row.requests,
                row.pages_wasted,
                if workload.id == "k" && late { ", deadlines missed" } else { "" },
            ));
            seconds.push(row);
        }
        let [on_demand, stream] = [&seconds[1], &seconds[4]];
        let place = ("beyond", "object store");
        let times = if workload.id == "k" {
            let worst = |row: &Row| row.latency_ns.max as f64 / 1e9;
            let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, workloads::PERIOD_NS as f64 / 1e9));
            let ours = Pair::new(worst(on_demand), worst(stream));
            let row = format!("{}: {}, longest read", workload.id, workload.what);
            Figure::new(place, row, "s", Pair::default(), ours, bar).own()
        } else {
            let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, workload.seconds));
            let ours = Pair::new(on_demand.seconds, stream.seconds);
            let row = format!("{}: {}", workload.id, workload.what);
            Figure::new(place, row, "s", Pair::default(), ours, bar).own()
        };
        outcome.figures.push(times);
        let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, workload.amplification));
        let ours = Pair::new(on_demand.amplification, stream.amplification);
        let row = format!("{}: bytes fetched for each wanted", workload.id);
        outcome.figures.push(Figure::new(place, row, "", Pair::default(), ours, bar).own());
        regret::fill(&workload, &device(&workload), &seconds, outcome)?;
    }
    Ok(())
}

/// The store of a workload.
fn device(workload: &Workload) -> String {
    match (workload.device, workload.link_mb_s) {
        (STORE, link) if link > 0 => format!("{STORE}:total_mb_s={link}"),
        (device, _) => device.to_owned(),
    }
}

/// Measures one workload with one policy; `planned` readers announce their reads.
fn measure(workload: &Workload, policy: Policy, planned: bool) -> Result<Row, ReproduceError> {
    let mut machine = machine(policy, &device(workload), workload.cache_bytes, RA_PAGES)?;
    for (number, reader) in workload.readers.iter().enumerate() {
        let address = number as u64 * (workload.file_bytes.next_multiple_of(1 << 20) + (1 << 20));
        let file = machine.add_file(&format!("{}-{number}", workload.id), workload.file_bytes, address);
        let source = reader.source(file, planned);
        machine.add_process(Process { pace: reader.pace, ..Process::closed(source) });
    }
    machine.run(None)?;
    Ok(machine.summary().row)
}

/// A current machine; 0 bytes of cache mean unlimited.
fn machine(policy: Policy, device: &str, cache_bytes: u64, ra_pages: u32) -> Result<Machine, ReproduceError> {
    let device = DeviceSpec::open(device, &ALGORITHMS)?;
    let queue = Queue::new(device.build(0), device.queue().clone())?;
    let frames = u32::try_from(cache_bytes >> 12).ok().filter(|&frames| frames > 0);
    let frames = frames.unwrap_or(Config::UNLIMITED);
    let stream = device.stream_config();
    let config = Config { frames, ra_pages, policy, stream, reserve_frames: 64, ..Config::default() };
    Ok(Machine::new(Setup { host: HOST, ..Setup::new(config, queue) })?)
}
