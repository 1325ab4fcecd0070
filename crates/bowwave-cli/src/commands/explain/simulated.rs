//! `explain --device`: the decisions of a policy while a simulated device serves the trace.
//!
//! As in `replay`, each process reads as soon as its last read has ended. So policies that measure
//! the device decide as they would there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_core::Policy;
use bowwave_core::explain::ReadaheadLine;
use bowwave_sim::replay::{self, Workload};
use bowwave_sim::sweep::{Case, Common};

use super::files::Lines;
use super::{Args, open, trace};
use crate::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Reads the trace and prints the decisions; returns the number of skipped rows.
pub(super) fn run(args: &Args, policy: Policy, device: &str) -> Result<u64, Failure> {
    let (import, total) = open(&args.trace, args.format)?;
    let mut progress = Progress::bytes("reading", total);
    let (rows, repairs) =
        replay::compact(import, &args.trace, |bytes| progress.at(bytes)).map_err(Failure::failed)?;
    drop(progress);
    trace::note_repairs(repairs);
    let file_bytes = args.file_pages.map(|pages| pages.saturating_mul(4096));
    let workload = Workload::new(rows, file_bytes).map_err(Failure::failed)?;
    let reads = Arc::new(AtomicU64::new(0));
    let case = Case { policy, ra_pages: args.ra_pages, device: device.to_owned(), ..Case::default() };
    let decisions = Progress::counting("explaining", workload.counts().reads, &reads, || {
        workload.explain(&case, &Common::default(), &reads).map_err(Failure::failed)
    })?;
    let mut output = Output::stdout();
    let mut lines = Lines::new(&mut output, args.json, policy);
    let rows = workload.trace();
    let outcome = lines.head().and_then(|()| {
        decisions.iter().try_for_each(|(access, explained)| {
            let row = rows.rows_from(*access).next().and_then(Result::ok).expect("the row was replayed");
            let stream = rows.stream(row.stream);
            lines.decision(&ReadaheadLine {
                access: *access,
                pid: stream.pid,
                file: rows.file_name(explained.decision.file.0),
                decision: &explained.decision,
                submitted: &explained.submitted,
                weighed: explained.weighed.as_ref(),
            })
        })
    });
    output.finish(outcome)?;
    let counts = workload.counts();
    Ok(counts.writes + counts.left_out)
}
