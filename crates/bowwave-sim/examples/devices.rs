//! Compares each device model with published figures.

use std::io::{self, Write};

use bowwave_sim::device::validate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<9} {:<46} {:>10} {:>10}  {:<8} {:>6}  ours from",
        "device", "what", "reference", "ours", "unit", "bound"
    )?;
    let mut failed = 0;
    for check in validate::checks()? {
        let device = check.device.split(':').next().unwrap_or_default();
        let mark = if check.holds() { ' ' } else { '!' };
        failed += usize::from(!check.holds());
        writeln!(
            out,
            "{device:<9.9} {:<46} {:>10.4} {:>10.4}  {:<8} {:>5.1}%{mark} {}",
            check.what,
            check.reference,
            check.ours,
            check.unit,
            check.bound * 100.0,
            check.source
        )?;
    }
    if failed > 0 {
        return Err(format!("{failed} out of bounds (!)").into());
    }
    Ok(())
}
