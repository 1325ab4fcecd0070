//! The command line as a whole.

use clap::{Parser, Subcommand};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::{Failure, commands};

/// A page cache for any storage: readahead, caching and I/O scheduling in user space.
#[derive(Debug, Parser)]
#[command(
    name = "bowwave",
    version,
    long_version = LONG_VERSION,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// The subcommand
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print all options
    ///
    /// Commands whose `--help` leaves options out have an option of this name that help shows.
    #[arg(long, global = true, hide = true, action = clap::ArgAction::HelpLong)]
    help_all: Option<bool>,
}

/// Output of `--version` after the name, followed by the kernel's parts.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit ",
    env!("BOWWAVE_COMMIT"),
    "\nfeatures mount, run, swap, s3, gs, az, http"
);

/// The subcommands, in the order of the help.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum Command {
    /// See what readahead does for a slow store, on this machine and without network
    Demo(commands::demo::Args),
    /// Show a store as files
    ///
    /// Programs can write as the store allows: any byte of files in a directory, whole objects in a
    /// cloud. Written bytes are in the store when fsync returns, at the latest when the file is
    /// closed. The mount ends with Ctrl-C, SIGTERM, 'bowwave umount DIR', 'fusermount3 -u DIR' or
    /// 'umount DIR'. A store that is one file appears as a directory with that file.
    ///
    /// Other processes cannot trace or dump this one, which holds credentials, unless
    /// BOWWAVE_DUMPABLE=1 is set.
    Mount(commands::mount::Args),
    /// End a mount
    Umount(commands::umount::Args),
    /// Copy files and directories from and to stores, without a mount
    Cp(commands::cp::Args),
    /// List a directory, prefix or bucket of a store, without a mount
    Ls(commands::ls::Args),
    /// List mounts and programs with a cache, or show the state of one
    Status(commands::status::Args),
    /// Show and change the settings of a running mount or program
    Ctl(commands::ctl::Args),
    /// Tell a mount how a file will be read, as posix_fadvise does, which FUSE does not carry
    Advise(commands::advise::Args),
    /// Announce to a mount which files will be opened, and in which order
    Plan(commands::plan::Args),
    /// Check what this machine lacks, and print the command that provides it
    Doctor(commands::doctor::Args),
    /// List and abort unfinished uploads at an object store
    Uploads(commands::uploads::Args),
    /// Run a program on files of a store, or with memory larger than RAM
    ///
    /// The program sees the store's files below PATH, read-only. It opens, reads and maps them, and
    /// gets their attributes, through the C library's functions, which bowwave replaces in the
    /// process. Nothing is mounted, and PATH need not exist. Child processes are served, too.
    /// Programs that are linked statically or make system calls directly are not served: mount the
    /// store for them. Each process has its own cache.
    ///
    /// With --swap the program can use more memory than the machine has: pages of malloc and mmap
    /// beyond --memory are swapped to --spill, and read back ahead of their use. This covers
    /// allocations of --swap-from bytes or more and private anonymous maps of 2MiB or more. Each
    /// process has its own memory and spill; after fork, the child does not have its parent's. It
    /// needs root, the sysctl vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd.
    Run(commands::run::Args),
    /// Read a store in this process and measure it
    ///
    /// Threads share a file by parts, and a directory by files. Each thread has its own handle, and
    /// with it its own readahead state. With --verify, data of pattern: is compared byte by byte
    /// (within the measured time), and the SHA-256 of other data is printed.
    ///
    /// With --mmap, the files are mapped into memory, and each page of each block is touched once.
    /// Times are those of touches (a touch) and of touches that were page faults (a fault, p50,
    /// p99, max). Threads share the maps, but readahead distinguishes threads. If a page cannot be
    /// read after retries, the cause is printed and the program ends with SIGBUS. With
    /// --mmap=thread the thread that touches a page also fills it.
    Read(commands::read::Args),
    /// Print the decisions of a readahead policy on a trace, one per line
    Explain(commands::explain::Args),
    /// Generate a trace: sequential, random, zipf, database-like and other access patterns
    Generate(commands::generate::Args),
    /// Render recorded runs as one HTML file of pictures
    Report(commands::report::Args),
    /// Convert a trace of another tool into bowwave's own format
    Import(commands::import::Args),
    /// Replay a trace or an experiment in virtual time, under any policy, device and cache size
    #[command(visible_alias = "sweep")]
    Replay(commands::replay::Args),
    /// Compare stream with every other policy on patterns drawn from seeds
    Regret(commands::regret::Args),
    /// Compare the published figures of five documents with the simulator's
    Reproduce(commands::reproduce::Args),
    /// Print the completion script of a shell
    Completions(commands::completions::Args),
    /// Print the manual page
    Man(commands::man::Args),
}

impl Command {
    /// Whether it opens the user's stores, and so holds their credentials.
    fn opens_stores(&self) -> bool {
        matches!(
            self,
            Self::Mount(_) | Self::Cp(_) | Self::Ls(_) | Self::Uploads(_) | Self::Run(_) | Self::Read(_)
        )
    }

    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.opens_stores() {
            protect();
        }
        match self {
            Self::Demo(args) => commands::demo::run(&args),
            Self::Mount(args) => commands::mount::run(&args),
            Self::Umount(args) => commands::umount::run(&args),
            Self::Cp(args) => commands::cp::run(&args),
            Self::Ls(args) => commands::ls::run(&args),
            Self::Status(args) => commands::status::run(&args),
            Self::Ctl(args) => commands::ctl::run(&args),
            Self::Advise(args) => commands::advise::run(&args),
            Self::Plan(args) => commands::plan::run(&args),
            Self::Doctor(args) => commands::doctor::run(&args),
            Self::Uploads(args) => commands::uploads::run(&args),
            Self::Run(args) => commands::run::run(&args),
            Self::Read(args) => commands::read::run(&args),
            Self::Explain(args) => commands::explain::run(&args),
            Self::Generate(args) => commands::generate::run(&args),
            Self::Report(args) => commands::report::run(&args),
            Self::Import(args) => commands::import::run(&args),
            Self::Replay(args) => commands::replay::run(&args),
            Self::Regret(args) => commands::regret::run(&args),
            Self::Reproduce(args) => commands::reproduce::run(&args),
            Self::Completions(args) => commands::completions::run(&args),
            Self::Man(args) => commands::man::run(&args),
        }
    }
}

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

/// Protects credentials in memory: the kernel writes no core dump of this process, and only root
/// may trace it or read its memory and environment. Ends with `exec`, so a program that `bowwave
/// run` starts is not affected. `BOWWAVE_DUMPABLE` disables it, for debuggers.
fn protect() {
    if std::env::var_os(DUMPABLE).is_none_or(|value| value.is_empty()) {
        let protected = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        debug_assert!(protected.is_ok(), "{protected:?}");
    }
}

/// Leaves the process open to debuggers.
const DUMPABLE: &str = "BOWWAVE_DUMPABLE";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(&format!("\n  bowwave {}", command.get_name())), "{help}");
        }
    }
}
