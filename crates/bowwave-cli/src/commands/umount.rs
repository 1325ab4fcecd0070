//! `bowwave umount`: ends a mount, alive or dead.

use std::path::PathBuf;

use bowwave_control::{End, Ended};

use crate::Failure;
use crate::interrupt::{INTERRUPTED, Interrupt, Second};
use crate::progress::Progress;

/// Arguments of `bowwave umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Fails while a program uses the mount. If the mount's process has died, this removes the mount.

Returns when all that programs wrote is in the store and the mount's process has ended. Exits with 1 if bytes, modes, \
owners or times were lost, and names them, or if the process ended without a report. Ctrl-C ends the wait: the process \
continues to store what programs wrote. There is no wait for a mount without a control channel that this user may ask \
('bowwave status' shows it as silent); its log has the outcome.

Examples:
  bowwave umount /mnt/data
  bowwave umount /mnt/data && aws s3 ls s3://bucket/prefix/")]
pub(crate) struct Args {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Unmounts, and waits for the end of the mount's process.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mount = bowwave_fuse::mounted_at(&args.dir).map_err(Failure::failed)?;
    let dir = mount.point.display();
    let end = End::of(mount.user, mount.device);
    let interrupt = Interrupt::watch(Second::Kills)?;
    let is_still_mounted = mount.unmount().map_err(Failure::failed)?;
    let Some(end) = end else { return Ok(()) };
    let process = end.process();
    if is_still_mounted {
        note!(
            "{dir} is unmounted; process {process} continues, because another directory or a container has the \
             same mount"
        );
        return Ok(());
    }
    let mut progress = Progress::waiting("waiting until all that was written is in the store");
    let ended = end.wait(|| {
        progress.at(0);
        !interrupt.is_set()
    });
    drop(progress);
    let log = "the log of 'bowwave mount'";
    match ended {
        Ended::Stored => Ok(()),
        Ended::Failed(message) => Err(failed!("{dir}: {message}")),
        Ended::Unknown => Err(failed!(
            "{dir} is unmounted, but process {process} of the mount ended without a report: what programs wrote last \
             may be lost"
        )
        .try_this(log)),
        Ended::Running => Err(failed!(
            "interrupted: {dir} is unmounted, and process {process} continues to store what programs wrote"
        )
        .try_this(format_args!("{log} for the outcome"))
        .with_code(INTERRUPTED)),
    }
}
