//! What each constant and each detector of the policy `stream` is worth.
//!
//! ```sh
//! cargo bench -p bowwave-sim --features ablation --bench ablation -- [--all] [TRACE.bwt...]
//! ```
//!
//! Prints a row for each variant: simulated seconds, and in parentheses bytes fetched per byte
//! read, as multiples of the policy as it is. Without `--all`, differences below 1 % are left out,
//! and those below 0.1 % in the means over the family. Simulated figures are exact: one run
//! suffices.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::Path;

use bowwave_sim::reproduce::{ReproduceError, Variant, ablate};

fn main() -> Result<(), ReproduceError> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (flags, traces): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let all = flags.iter().any(|flag| *flag == "--all");
    let traces: Vec<&Path> = traces.into_iter().map(|path| Path::new(path.as_str())).collect();
    let mut baseline: Option<Variant> = None;
    ablate(&traces, |variant| {
        let Some(base) = &baseline else {
            for one in &variant.measured {
                let (seconds, bytes) = (one.seconds, one.amplification);
                println!("{:<28} {seconds:.3} s ({bytes:.2})", one.workload);
            }
            baseline = Some(variant);
            return;
        };
        let mut changes = Vec::new();
        for (now, base) in variant.measured.iter().zip(&base.measured) {
            let seconds = now.seconds / base.seconds;
            let bytes = now.amplification / base.amplification;
            // Over many patterns a smaller difference counts.
            let (least, digits) = if now.workload == "family" { (0.001, 3) } else { (0.01, 2) };
            if all || (seconds - 1.0).abs() >= least || (bytes - 1.0).abs() >= least {
                changes.push(format!("{} {seconds:.digits$} ({bytes:.digits$})", now.workload));
            }
        }
        let changes = if changes.is_empty() { "no difference".to_owned() } else { changes.join(", ") };
        println!("{:<28} {changes}", variant.name);
    })?;
    Ok(())
}
