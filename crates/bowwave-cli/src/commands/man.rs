//! `bowwave man`: the manual pages, from the same source as `--help`.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::Failure;
use crate::cli::Cli;
use crate::output::{Output, written};

/// Arguments of `bowwave man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bowwave man | man -l -
  bowwave man explain > bowwave-explain.1")]
pub struct Args {
    /// The page of this command; without it, the page of bowwave as a whole
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Prints the page, in roff.
///
/// # Errors
/// Usage if there is no such command; else if standard output cannot be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut whole = Cli::command();
    whole.build();
    let page = match &args.command {
        None => &whole,
        Some(name) => whole.find_subcommand(name).ok_or_else(|| {
            let known: Vec<_> = whole.get_subcommands().map(clap::Command::get_name).collect();
            Failure::usage(format_args!("there is no command '{name}'")).try_this(known.join(", "))
        })?,
    };
    let mut output = Output::stdout();
    let outcome = written(Man::new(page.clone()).render(&mut output));
    output.finish(outcome)
}
