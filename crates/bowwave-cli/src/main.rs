//! The `bowwave` command.

#[cfg(feature = "embedded")]
mod embedded;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "embedded")]
    let libraries = Some(embedded::libraries());
    #[cfg(not(feature = "embedded"))]
    let libraries = None;
    bowwave_cli::run(std::env::args_os(), libraries)
}
