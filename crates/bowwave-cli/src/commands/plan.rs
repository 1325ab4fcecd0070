//! `bowwave plan`: announces to a mount which files will be opened.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use bowwave_control::{Announcement, Error};

use crate::{Failure, mounts};

/// Arguments of `bowwave plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The files are read ahead in the order of the list, up to 128 at once and in half of the mount's cache: small ones whole, the \
first MiB of those above 4 MiB. So it helps programs whose order is known and not guessed, such as a shuffled epoch. Only \
mounts of object stores with --consistency ttl read files ahead, and only the user of the mount and root may announce them. A \
list of which no file is opened for ten minutes is dropped.

Examples:
  bowwave plan /mnt/data epoch-1.txt
  find images -name '*.jpg' | shuf | tee order | bowwave plan /mnt/data -
  bowwave plan /mnt/data more.txt --append")]
pub(crate) struct Args {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// A file with one path a line, below DIR; - reads standard input
    #[arg(value_name = "LIST")]
    list: PathBuf,

    /// Keep the files of the last list that were not opened: these follow
    #[arg(long)]
    append: bool,
}

/// Sends the list to the mount's process.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (peer, point) = mounts::reach(&args.dir)?;
    let shown = args.list.display();
    let of = |error: io::Error| failed!("{shown}: {error}");
    let reader: Box<dyn BufRead> = match args.list == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&args.list).map_err(of)?)),
    };
    let mut announcement = Announcement::to(peer, point, args.append);
    for (line, path) in reader.lines().enumerate() {
        announcement.add(Path::new(&path.map_err(of)?)).map_err(|error| match error {
            Error::Outside { .. } => failed!("{shown}:{}: {error}", line + 1),
            error => error.into(),
        })?;
    }
    Ok(announcement.finish()?)
}
