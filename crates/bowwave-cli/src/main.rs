//! The `bowwave` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowwave_cli::run(std::env::args_os())
}
