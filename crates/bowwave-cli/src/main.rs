//! The `bowwave` command.

mod embedded;

use std::process::ExitCode;

fn main() -> ExitCode {
    bowwave_cli::run(std::env::args_os(), embedded::libraries())
}
