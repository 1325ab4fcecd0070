//! `bowwave completions`: shell completion of commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Failure;
use crate::cli::Cli;
use crate::output::{Output, written};

/// Arguments of `bowwave completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bowwave completions bash > ~/.local/share/bash-completion/completions/bowwave
  bowwave completions fish > ~/.config/fish/completions/bowwave.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bowwave", &mut script);
    let mut output = Output::stdout();
    let outcome = written(std::io::Write::write_all(&mut output, &script));
    output.finish(outcome)
}
