//! `bowwave plan`: announces to a mount which files will be opened.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::control::{self, Request};

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
    let point = control::mount_at(&args.dir)?.point;
    let shown = args.list.display();
    let of = |error: io::Error| failed!("{shown}: {error}");
    let reader: Box<dyn BufRead> = match args.list == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&args.list).map_err(of)?)),
    };
    let (mut part, mut bytes, mut append) = (Vec::new(), 0, args.append);
    for (line, path) in reader.lines().enumerate() {
        let path = path.map_err(of)?;
        let below = Path::new(&path).strip_prefix(&point).unwrap_or_else(|_| Path::new(&path));
        let below = below.strip_prefix(".").unwrap_or(below);
        if below.as_os_str().is_empty() {
            continue;
        }
        let Some(below) = below.to_str().filter(|below| !below.starts_with('/') && below.len() <= PATH_MAX)
        else {
            return Err(failed!("{shown}:{}: '{path}' is not in {}", line + 1, point.display()));
        };
        // JSON escapes a byte by six at most.
        if bytes + 6 * below.len() + 3 > PART_BYTES {
            control::ask(&point, &Request::Plan { files: std::mem::take(&mut part), append })?;
            (bytes, append) = (0, true);
        }
        bytes += 6 * below.len() + 3;
        part.push(below.to_owned());
    }
    control::ask(&point, &Request::Plan { files: part, append }).map(drop)
}

/// Longest path of Linux.
const PATH_MAX: usize = 4096;
/// Bytes of names in a request: a request has at most 64 KiB.
const PART_BYTES: usize = 60 << 10;
