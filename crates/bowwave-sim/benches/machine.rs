//! Page accesses per second through the whole machine (cache, processes, queue, device model) on
//! one core.
//!
//! `cargo bench -p bowwave-sim --bench machine` uses generated binary traces. Times are processor
//! time, so other load on the machine matters less.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_core::Policy;
use bowwave_sim::replay::{ReplayOptions, Workload};
use bowwave_sim::sweep::{Case, Common};
use bowwave_trace::binary::Trace;
use bowwave_trace::generate::{Pattern, Spec};

const ROWS: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<44} {:>22} {:>8} {:>10}",
        "device, policy, trace", "Mpages/s (lowest)", "misses", "requests"
    );
    let spec = Spec { rows: ROWS, file_bytes: 1 << 30, ..Spec::default() };
    let patterns = [
        ("sequential, 4 KiB", Pattern::Sequential, 4096),
        ("sequential, 128 KiB", Pattern::Sequential, 128 << 10),
        ("zipf, 4 KiB", Pattern::Zipf { exponent: 1.0 }, 4096),
        ("random, 4 KiB", Pattern::Random, 4096),
    ];
    for (name, pattern, block_bytes) in patterns {
        let rows = if block_bytes == 4096 { ROWS } else { ROWS / 16 };
        let records = Spec { pattern, block_bytes, rows, ..spec.clone() }.records()?;
        let workload = Workload::new(Trace::of(records, "generated")?, None)?;
        for device in ["nvme", "hdd", "s3", "instant"] {
            measure(name, &workload, device)?;
        }
    }
    Ok(())
}

fn measure(name: &str, workload: &Workload, device: &str) -> Result<(), Box<dyn Error>> {
    let case = Case {
        policy: Policy::OnDemand,
        cache_bytes: Some(512 << 20),
        device: device.to_owned(),
        ..Case::default()
    };
    let (common, progress) = (Common::default(), Arc::new(AtomicU64::new(0)));
    let mut times = Vec::new();
    let mut row = None;
    for _ in 0..ROUNDS {
        let start = processor_seconds();
        let run =
            case.run(&common, &|machine, _| workload.add_to(machine, ReplayOptions::default()), &progress)?;
        times.push(processor_seconds() - start);
        row = Some(run.row);
    }
    times.sort_by(f64::total_cmp);
    let row = row.ok_or("no rounds")?;
    let pages = row.accesses as f64 / 1e6;
    println!(
        "{:<44} {:>13.1} ({:>6.1}) {:>8.4} {:>10}",
        format!("{device}, {}, {name}", case.policy),
        pages / times[0],
        pages / times[ROUNDS - 1],
        row.misses as f64 / row.accesses as f64,
        row.requests
    );
    Ok(())
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
