//! The `bowwave` command: one file per subcommand under `commands`, and shared code.
//!
//! ```text
//! arguments -> cli::Cli -> commands::NAME::run(args) -> Result<(), Failure> -> exit code
//!                             |            |
//!               stdout: data (output)    stderr: messages (progress, note, failure)
//! ```
//!
//! Rules for all commands. Standard output is data only. An error is one line on standard error
//! with cause and remedy. The exit code is 0 on success, 1 on failure, 2 for an invalid command,
//! and 130 after Ctrl-C, SIGTERM or SIGHUP. `run` returns its program's code, as a shell does. A
//! closed standard output ends the command quietly.

// First, because of its macros.
#[macro_use]
mod failure;

mod cli;
mod commands;
mod interrupt;
mod journal;
mod logging;
mod mounted;
mod mounts;
mod output;
mod persisted;
mod progress;
mod requests;
mod setup;
mod table;
mod tunables;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use failure::Failure;

/// The preloaded libraries of `bowwave run`, as files.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// `libbowwave_preload.so`, which serves files.
    pub preload: &'static [u8],
    /// `libbowwave_heap.so`, which provides memory.
    pub heap: &'static [u8],
}

/// The clap command, for tests of its help.
pub fn command() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}

/// Prints the version; `--version`, the long form, also checks the kernel's features.
fn version(error: &clap::Error) -> Result<(), Failure> {
    let text = error.render().to_string();
    let mut output = output::Output::stdout();
    let printed = output.line(text.trim_end()).and_then(|()| match text.trim_end().contains('\n') {
        true => output.line(format_args!("kernel {}", commands::doctor::kernel_parts())),
        false => Ok(()),
    });
    output.finish(printed)
}

/// Runs the command given by `arguments` (program name first) and reports a failure on standard
/// error. `libraries` are used if none are installed next to the program; with `None`, they must be
/// installed.
pub fn run(arguments: impl IntoIterator<Item = OsString>, libraries: Option<Libraries>) -> ExitCode {
    libraries.into_iter().for_each(commands::run::library::embed);
    let outcome = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command.run(),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayVersion => version(&error),
        // clap returns `--help` as an error for standard output.
        Err(error) if !error.use_stderr() => output::written(error.print()),
        Err(error) => Err(Failure::from_clap(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
