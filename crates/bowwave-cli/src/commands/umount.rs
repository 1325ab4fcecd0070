//! `bowwave umount`: ends a mount, alive or dead.

use std::path::PathBuf;

use crate::Failure;

/// Arguments of `bowwave umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The mount must not be in use. If the process that served it has died, this clears what it left behind.

Examples:
  bowwave umount /mnt/data")]
pub struct Args {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Unmounts.
///
/// # Errors
/// If there is no bowwave mount, if somebody uses it, or if this user may not.
pub fn run(args: &Args) -> Result<(), Failure> {
    bowwave_fuse::unmount(&args.dir).map_err(Failure::failed)
}
