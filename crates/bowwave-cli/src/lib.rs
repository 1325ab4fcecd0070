//! The `bowwave` command: one file a subcommand under `commands`, and what they share.
//!
//! ```text
//!   arguments -> cli::Cli -> commands::NAME::run(args) -> Result<(), Failure> -> exit code
//!                                 |            |
//!                     stdout: data (output)    stderr: talk (progress, note, failure)
//! ```
//!
//! The rules for all: standard output is data and nothing else; an error is one line on standard error that names the
//! cause and what to try; the exit code is 0 when done, 1 when it failed, 2 when the command was wrong; a reader of our
//! output that goes away ends us quietly.

// First, for its macros.
#[macro_use]
mod failure;

mod cli;
mod commands;
mod control;
mod help;
mod interrupt;
mod logging;
mod lustre;
mod machine;
mod mounted;
mod output;
mod progress;
mod requests;
mod secrets;
mod setup;
mod table;
mod tunables;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use failure::Failure;

/// The libraries that `bowwave run` loads into programs, as files.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// `libbowwave_preload.so`, which serves files.
    pub preload: &'static [u8],
    /// `libbowwave_heap.so`, which gives memory.
    pub heap: &'static [u8],
}

/// The command line, for tests of its help.
pub fn command() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}

/// Prints the version: with `--version`, the long form, also what the kernel has, which only then is looked at.
fn version(error: &clap::Error) -> Result<(), Failure> {
    let text = error.render().to_string();
    let mut output = output::Output::stdout();
    let printed = output.line(text.trim_end()).and_then(|()| match text.trim_end().contains('\n') {
        true => output.line(format_args!("kernel {}", machine::kernel_parts())),
        false => Ok(()),
    });
    output.finish(printed)
}

/// Runs the command that `arguments` (the program's name first) ask for, and reports a failure on standard error. `libraries`
/// are used where none are installed beside the program; without them, they must be.
pub fn run(arguments: impl IntoIterator<Item = OsString>, libraries: Option<Libraries>) -> ExitCode {
    libraries.into_iter().for_each(commands::run::library::embed);
    let outcome = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command.run(),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayVersion => version(&error),
        // `--help` comes as an error that goes to standard output.
        Err(error) if !error.use_stderr() => output::written(error.print()),
        Err(error) => Err(Failure::from_clap(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
