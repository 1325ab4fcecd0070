//! Tells a mount which files will be opened.

use std::fs;
use std::path::{Path, PathBuf};

use crate::client::{Peer, peers};
use crate::protocol::Request;
use crate::{Error, Result};

/// Announces `files` to the mount at `mount`, in the order of their opens: paths below the mount
/// point, with or without it in front. The mount reads them ahead, with the limits that
/// `bowwave plan --help` names. With `append`, they follow the previous list; else they replace it.
///
/// ```no_run
/// bowwave_control::announce("/mnt/data".as_ref(), ["images/7.jpg", "images/3.jpg"], false)?;
/// # Ok::<(), bowwave_control::Error>(())
/// ```
///
/// # Errors
/// [`Error::NoMount`]; [`Error::Outside`] for a path that is not in the mount;
/// [`Error::Refused`] if the mount does not read files ahead, or as [`Peer::ask`]. Files before the
/// failure may have been announced.
pub fn announce<P: AsRef<Path>>(
    mount: &Path,
    files: impl IntoIterator<Item = P>,
    append: bool,
) -> Result<()> {
    let mut announcement = Announcement::new(mount, append)?;
    for file in files {
        announcement.add(file.as_ref())?;
    }
    announcement.finish()
}

/// Files that are announced one by one, as [`announce()`] does.
#[derive(Debug)]
pub struct Announcement {
    peer: Peer,
    point: PathBuf,
    files: Vec<String>,
    /// Bytes of the next request, at most.
    bytes: usize,
    append: bool,
}

impl Announcement {
    /// To the mount at `mount`.
    ///
    /// # Errors
    /// [`Error::NoMount`].
    pub fn new(mount: &Path, append: bool) -> Result<Self> {
        let (peer, point) = find(mount).ok_or_else(|| Error::NoMount(mount.to_owned()))?;
        Ok(Self::to(peer, point, append))
    }

    /// To the mount of `peer` at `point`.
    pub fn to(peer: Peer, point: PathBuf, append: bool) -> Self {
        Self { peer, point, files: Vec::new(), bytes: 0, append }
    }

    /// Adds a file; the mount point itself is skipped. Sends the list so far if it is long.
    ///
    /// # Errors
    /// As [`announce()`].
    pub fn add(&mut self, file: &Path) -> Result<()> {
        let below = file.strip_prefix(&self.point).unwrap_or(file);
        let below = below.strip_prefix(".").unwrap_or(below);
        if below.as_os_str().is_empty() {
            return Ok(());
        }
        let below = below.to_str().filter(|below| !below.starts_with('/') && below.len() <= PATH_MAX);
        let below = below
            .ok_or_else(|| Error::Outside { file: file.to_owned(), mount: self.point.clone() })?
            .to_owned();
        // JSON escapes a byte by six at most.
        let bytes = 6 * below.len() + 3;
        if self.bytes + bytes > PART_BYTES {
            self.send()?;
        }
        self.bytes += bytes;
        self.files.push(below);
        Ok(())
    }

    /// Sends the rest. An announcement without files and without `append` ends the previous list.
    ///
    /// # Errors
    /// As [`announce()`].
    pub fn finish(mut self) -> Result<()> {
        self.send()
    }

    fn send(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.files);
        self.peer.ask(&Request::Plan { files, append: self.append })?;
        (self.bytes, self.append) = (0, true);
        Ok(())
    }
}

/// The mount at `dir`, and its path as the mount knows it.
fn find(dir: &Path) -> Option<(Peer, PathBuf)> {
    let mounts: Vec<_> = peers().into_iter().filter(Peer::is_mount).collect();
    let answers: Vec<_> =
        mounts.into_iter().filter_map(|peer| Some((peer.ask(&Request::Status).ok()?, peer))).collect();
    let at = |point: &Path| {
        let here = answers.iter().filter(|(answer, _)| answer["dir"].as_str().map(Path::new) == Some(point));
        // A later mount hides an earlier one.
        let last = here.min_by_key(|(answer, _)| answer["age_seconds"].as_u64());
        last.map(|(_, peer)| (peer.clone(), point.to_owned()))
    };
    // The path as given first: another mount on the way to it may hang.
    let given: PathBuf = std::path::absolute(dir).ok()?.components().collect();
    at(&given).or_else(|| at(&fs::canonicalize(dir).ok()?))
}

/// Longest path of Linux.
const PATH_MAX: usize = 4096;
/// Bytes of names in a request: a request has at most 64 KiB.
const PART_BYTES: usize = 60 << 10;
