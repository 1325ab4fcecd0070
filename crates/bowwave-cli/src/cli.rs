//! The command line as a whole.

use clap::{Parser, Subcommand};

use crate::{Failure, commands, secrets};

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
    /// Programs write in the mount as the store allows: any byte of a directory's files, whole objects of a cloud. Written
    /// bytes are in the store when fsync returns, at the latest when the file is closed. The mount ends with Ctrl-C,
    /// SIGTERM, 'bowwave umount DIR', 'fusermount3 -u DIR' or 'umount DIR'. A store that is one file appears as a
    /// directory with that file.
    ///
    /// Other processes cannot trace or dump this one, which holds credentials, unless BOWWAVE_DUMPABLE=1 is set.
    Mount(commands::mount::Args),
    /// End a mount
    Umount(commands::umount::Args),
    /// Copy files and directories from and to stores, without a mount
    Cp(commands::cp::Args),
    /// List a directory, prefix or bucket of a store, without a mount
    Ls(commands::ls::Args),
    /// List mounts, or show the state of one
    Status(commands::status::Args),
    /// Show and change the settings of a running mount
    Ctl(commands::ctl::Args),
    /// Check what this machine lacks, and print the command that provides it
    Doctor(commands::doctor::Args),
    /// List and abort unfinished uploads at an object store
    Uploads(commands::uploads::Args),
    /// Run a program that sees stores as files, without a mount
    ///
    /// The program sees the store's files below PATH, read-only: it opens, reads and maps them, and gets their attributes, by
    /// the C library's functions, which bowwave serves in the program itself. Nothing is mounted, and PATH need not exist.
    /// Children are served, too. Programs that are linked statically, or make system calls by themselves, are not: mount
    /// the store for them. Each process has a cache of its own.
    ///
    /// With --swap the program may have more memory than the machine: what malloc and mmap give it beyond --memory goes to
    /// --spill, and comes back before it is needed. Allocations from --swap-from bytes on, and private maps of memory from
    /// 2MiB on, are served. Each process has its own memory and spill; a child after fork does not have its parent's. It
    /// needs root, the sysctl vm.unprivileged_userfaultfd=1, or permission to open /dev/userfaultfd.
    Run(commands::run::Args),
    /// Read a store in this process and measure it
    ///
    /// Of a file, each thread reads a part of its own; of a directory, threads read the files in turn. Every thread has a
    /// handle, and with it a readahead state, of its own. With --verify, data of pattern: is compared byte by byte (in the
    /// time measured); of other data the SHA-256 is printed.
    ///
    /// With --mmap, the files are mapped into memory, and each page of each block is touched once: times are those of
    /// touches (a touch) and of touches that were page faults (a fault, p50, p99, max). Maps are shared by the threads, but
    /// readahead tells threads apart. A page that cannot be read, after retries, ends the program with SIGBUS, after the
    /// cause is printed. With --mmap=thread the thread that touches a page also fills it.
    Read(commands::read::Args),
    /// Print the decisions of a readahead policy on a trace, one per line
    Explain(commands::explain::Args),
    /// Generate a trace: sequential, random, zipf, database-like and other access patterns
    Generate(commands::generate::Args),
    /// Render recorded runs as one HTML file of pictures
    Report(commands::report::Args),
    /// Convert a trace of another tool into bowwave's own format
    Import(commands::import::Args),
    /// Compare a policy with the system that it follows
    Conformance(commands::conformance::Args),
    /// Replay a trace or a plan in virtual time, under any policy, device and cache size
    Replay(commands::replay::Args),
    /// Compare every published figure of the source documents with ours
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
            secrets::protect();
        }
        match self {
            Self::Demo(args) => commands::demo::run(&args),
            Self::Mount(args) => commands::mount::run(&args),
            Self::Umount(args) => commands::umount::run(&args),
            Self::Cp(args) => commands::cp::run(&args),
            Self::Ls(args) => commands::ls::run(&args),
            Self::Status(args) => commands::status::run(&args),
            Self::Ctl(args) => commands::ctl::run(&args),
            Self::Doctor(args) => commands::doctor::run(&args),
            Self::Uploads(args) => commands::uploads::run(&args),
            Self::Run(args) => commands::run::run(&args),
            Self::Read(args) => commands::read::run(&args),
            Self::Explain(args) => commands::explain::run(&args),
            Self::Generate(args) => commands::generate::run(&args),
            Self::Report(args) => commands::report::run(&args),
            Self::Import(args) => commands::import::run(&args),
            Self::Conformance(args) => commands::conformance::run(&args),
            Self::Replay(args) => commands::replay::run(&args),
            Self::Reproduce(args) => commands::reproduce::run(&args),
            Self::Completions(args) => commands::completions::run(&args),
            Self::Man(args) => commands::man::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
