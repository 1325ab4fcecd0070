//! The time of a policy that knows the future: the [`oracle`](crate::oracle) for each of the twelve
//! workloads.
//!
//! ```text
//!               ┌ the device, reading what must be read at its highest rate ┐
//!   maximum of  │ one TTFB, then each reader's calls and copies alone       │ seconds
//!               └───────────────────────────────────────────────────────────┘
//! ```
//!
//! This bound comes from the device and the reader, not from a policy. The regret of a policy is
//! its time, divided by the bound. No policy reaches the bound for random reads, because none knows
//! the future. So the acceptance bar of `stream` is not a constant. It is the regret of the best
//! other policy on the same workload.

use std::io;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, PageSize};
use bowwave_trace::binary::Trace;
use bowwave_trace::{Op, Record};

use super::workloads::{Reader, Workload};
use super::{Bar, Figure, HOST, Outcome, POLICIES, Pair, ReproduceError};
use crate::device::DeviceSpec;
use crate::fast::Writes;
use crate::machine::{AccessOp, Pace};
use crate::oracle::Future;
use crate::record::Row;

/// The regret of `stream` may be at most 1 % larger than that of the best other policy.
const SAME: f64 = 1.01;

/// Adds the row of a workload. `rows` are in the order of [`POLICIES`], `stream` last.
pub(super) fn fill(
    workload: &Workload,
    device: &str,
    rows: &[Row],
    outcome: &mut Outcome,
) -> Result<(), ReproduceError> {
    let least = seconds(workload, device)?;
    let regrets: Vec<f64> = rows.iter().map(|row| row.seconds / least).collect();
    let (&stream, others) = regrets.split_last().expect("there are policies");
    let best = others.iter().copied().fold(f64::INFINITY, f64::min);
    let named: Vec<String> =
        POLICIES.iter().zip(&regrets).map(|(policy, regret)| format!("{policy} {regret:.2}")).collect();
    outcome.notes.push(format!(
        "{}: the oracle takes {least:.3} s; times that: {}",
        workload.id,
        named.join(", ")
    ));
    let row = format!("{}: regret, times the oracle's seconds", workload.id);
    let bar = Bar::Ranges((0.0, f64::INFINITY), (0.0, best * SAME));
    let ours = Pair::new(regrets[1], stream);
    let figure = Figure::new(("beyond", "regret"), row, "times", Pair::default(), ours, bar).own();
    let note = format!("the oracle takes {least:.3} s; the bar is the best of the other policies");
    outcome.figures.push(figure.note(note));
    Ok(())
}

/// Minimum seconds for the workload.
fn seconds(workload: &Workload, device: &str) -> Result<f64, ReproduceError> {
    let device = DeviceSpec::open(device, &ALGORITHMS)?;
    let limits = device.limits().ok_or("the store has no limits")?;
    let future = Future::of(&trace(workload)?, PageSize::KIB_4, Writes::LeftOut)?;
    let frames = u32::try_from(workload.cache_bytes >> 12).unwrap_or(Config::UNLIMITED);
    let bound = future.bound(frames);
    let alone = workload.readers.iter().map(|reader| alone_ns(reader, limits.request_ns_min)).max();
    Ok(bound.device_ns(&limits).max(alone.unwrap_or(0)) as f64 / 1e9)
}

/// Nanoseconds until a reader begins its last read, if only its first read waits, for one TTFB. At
/// least that TTFB.
fn alone_ns(reader: &Reader, first_byte_ns: u64) -> u64 {
    let before = reader.reads().split_last().map_or(&[][..], |(_, before)| before);
    match reader.pace {
        Pace::Trace | Pace::Open | Pace::Linked => first_byte_ns,
        // The first read delays no other, if the period is longer than the TTFB.
        Pace::Every { period_ns } => (before.len() as u64 * period_ns).max(first_byte_ns),
        Pace::Closed { think_ns } => {
            first_byte_ns + before.iter().map(|&(_, bytes)| HOST.read_ns(bytes, 0) + think_ns).sum::<u64>()
        }
    }
}

/// All reads of a workload, its readers interleaved.
fn trace(workload: &Workload) -> io::Result<Trace> {
    let most = workload.readers.iter().map(|reader| reader.reads().len()).max().unwrap_or(0);
    let records = (0..most).flat_map(|at| {
        (0..).zip(&workload.readers).filter_map(move |(pid, reader)| {
            let &(offset, length) = reader.reads().get(at)?;
            let op = if reader.op == AccessOp::Load { Op::Load } else { Op::Read };
            let file = format!("{}-{pid}", workload.id);
            Some(Record { time_ns: at as u64, pid, op, file, offset, length })
        })
    });
    Trace::of(records, workload.id)
}

#[cfg(test)]
mod tests {
    use super::super::{STORE, workloads};
    use super::*;

    fn least(id: &str) -> f64 {
        let workload = workloads::all().into_iter().find(|workload| workload.id == id).unwrap();
        seconds(&workload, STORE).unwrap()
    }

    #[test]
    fn the_oracle_waits_for_one_ttfb_and_then_reads_at_the_readers_speed() {
        // 100 reads of a page: 30 ms, and for each 1 µs and 4 KiB copied.
        assert!((least("l") - (0.030 + 100.0 * 1.4e-6)).abs() < 1e-4, "{}", least("l"));
        // 1 GiB through 64 connections of 90 MB/s, which is longer than it takes to copy.
        assert!((least("a") - 1024.0 * 1048.576e3 / (64.0 * 90e6)).abs() < 1e-3, "{}", least("a"));
        // Two streams of 64 MiB in 2048 reads: 30 ms, and for each 1 µs and 64 KiB copied.
        assert!((least("e") - (0.030 + 2048.0 * 7.4e-6)).abs() < 1e-3, "{}", least("e"));
        // The last of 120 reads comes after 119 quarters of a second.
        assert!((least("k") - 29.75).abs() < 0.001, "{}", least("k"));
    }
}
