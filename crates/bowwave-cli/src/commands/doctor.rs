//! `bowwave doctor`: checks this machine for missing parts.

use crate::Failure;
use crate::machine::{self, Check};
use crate::output::Output;

/// Arguments of `bowwave doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is 'ok' or 'missing'; what is missing is followed by what does not work without it, and by the command that \
provides it. Exits with 1 if no mount is possible. Run it as the user that mounts.

Examples:
  bowwave doctor
  bowwave doctor --json")]
pub(crate) struct Args {
    /// Print JSON: an array of objects with name, ok, found, without, remedy and needed_for_mount
    #[arg(long)]
    json: bool,
}

/// Prints what is there and what is missing.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checks = machine::checks();
    let mut output = Output::stdout();
    let printed = if args.json { output.json_array(&checks) } else { print(&mut output, &checks) };
    output.finish(printed)?;
    let missing: Vec<_> =
        checks.iter().filter(|check| check.needed_for_mount && !check.ok).map(|check| check.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(failed!("no mount is possible here: {} is missing", missing.join(", ")))
}

fn print(output: &mut Output, checks: &[Check]) -> Result<(), Failure> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, ok, found, without, remedy, .. } in checks {
        let state = if *ok { "ok     " } else { "missing" };
        output.line(format_args!("{state}  {name:width$}  {found}"))?;
        if let Some(remedy) = remedy {
            output.line(format_args!("         {:width$}  without it: no {without}", ""))?;
            output.line(format_args!("         {:width$}  fix: {remedy}", ""))?;
        }
    }
    Ok(())
}
