//! `bowwave advise`: tells a mount how a file will be read.

use std::fs::File;
use std::path::PathBuf;

use bowwave_core::Advice;
use bowwave_fuse::{AdviceRequest, AdviceScope};
use rustix::fs::{Advice as KernelAdvice, fadvise};

use crate::{Failure, values};

/// Arguments of `bowwave advise`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
--sequential, --random, --noreuse and --normal hold for all open and later descriptors of the file, until --normal or the end \
of the mount, and only the user of the mount and root may give them. --willneed and --dontneed act now, once.

Examples:
  bowwave advise /mnt/data/table.db --random
  bowwave advise /mnt/data/model.safetensors --willneed --len 1GiB
  bowwave advise /mnt/data/log --dontneed",
    group = clap::ArgGroup::new("advice").required(true)
)]
pub(crate) struct Args {
    /// A file of a mount
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// It will be read in order: twice the window
    #[arg(long, group = "advice")]
    sequential: bool,

    /// It will be read at random: no readahead
    #[arg(long, group = "advice")]
    random: bool,

    /// Each page will be read once: drop it behind the reader
    #[arg(long, group = "advice")]
    noreuse: bool,

    /// Undo these
    #[arg(long, group = "advice")]
    normal: bool,

    /// The range will be read soon: read it now
    #[arg(long, group = "advice")]
    willneed: bool,

    /// The range will not be read: drop its pages, the kernel's too
    #[arg(long, group = "advice")]
    dontneed: bool,

    /// First byte of the range
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::size)]
    offset: u64,

    /// Bytes of the range; 0 means to the end
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::size)]
    len: u64,
}

/// Gives the advice.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let choices = [
        (args.sequential, Advice::Sequential),
        (args.random, Advice::Random),
        (args.noreuse, Advice::NoReuse),
        (args.normal, Advice::Normal),
        (args.willneed, Advice::WillNeed),
        (args.dontneed, Advice::DontNeed),
    ];
    let advice = choices.into_iter().find(|choice| choice.0).map_or(Advice::Normal, |choice| choice.1);
    let of_range = matches!(advice, Advice::WillNeed | Advice::DontNeed);
    if !of_range && (args.offset, args.len) != (0, 0) {
        return Err(usage!("--offset and --len are for --willneed and --dontneed"));
    }
    let shown = args.file.display();
    let file = File::open(&args.file).map_err(|error| failed!("{shown}: {error}"))?;
    if advice == Advice::DontNeed {
        // The kernel's pages would hide that bowwave's are dropped.
        let len = std::num::NonZeroU64::new(args.len);
        fadvise(&file, args.offset, len, KernelAdvice::DontNeed)
            .map_err(|error| failed!("{shown}: the kernel's page cache: {error}"))?;
    }
    let request = AdviceRequest { offset: args.offset, len: args.len, advice, scope: AdviceScope::File };
    bowwave_fuse::advise(&file, request).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY | libc::ENOSYS) => {
            failed!("{shown}: not in a mount of bowwave").try_this("bowwave status")
        }
        Some(libc::EPERM) => failed!("{shown}: only the user of the mount and root may advise for others"),
        _ => failed!("{shown}: {error}"),
    })
}
