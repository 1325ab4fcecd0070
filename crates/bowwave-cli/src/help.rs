//! Help in two lengths, for commands with many options.

/// `--help` prints common options, `--help-all` all of them.
///
/// For commands with `disable_help_flag`; other options have `hide_short_help`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct HelpArgs {
    /// Print this help
    #[arg(long, short, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print all options
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help_all: Option<bool>,
}
