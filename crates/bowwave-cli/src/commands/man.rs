//! `bowwave man`: the manual pages, from the same source as `--help`.

use std::io::Write as _;

use bowwave_control::Setting;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::Failure;
use crate::cli::Cli;
use crate::output::{Output, written};
use crate::tunables::SetArgs;

/// The section of the tunables.
fn page_of_tunables() -> String {
    let mut text = ".SH TUNABLES\nSet by \\fB\\-\\-set\\fR \\fIKEY=VALUE\\fR.\n".to_owned();
    for Setting { key, default, meaning, .. } in SetArgs::default().values() {
        let meaning = meaning.replace('\\', "\\e").replace('-', "\\-");
        text.push_str(&format!(".TP\n\\fB{key}\\fR [default: {default}]\n{meaning}\n"));
    }
    text
}

/// Arguments of `bowwave man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bowwave man | man -l -
  bowwave man explain > bowwave-explain.1")]
pub(crate) struct Args {
    /// The page of this command; by default that of bowwave as a whole
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Prints the page, in roff.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut whole = Cli::command();
    whole.build();
    let page = match &args.command {
        None => &whole,
        Some(name) => whole.find_subcommand(name).ok_or_else(|| {
            let known: Vec<_> = whole.get_subcommands().map(clap::Command::get_name).collect();
            usage!("there is no command '{name}'").try_this(known.join(", "))
        })?,
    };
    let mut output = Output::stdout();
    let tunables = if page.get_arguments().any(|argument| argument.get_id() == "set") {
        page_of_tunables()
    } else {
        String::new()
    };
    let outcome =
        written(Man::new(page.clone()).render(&mut output).and_then(|()| write!(output, "{tunables}")));
    output.finish(outcome)
}
