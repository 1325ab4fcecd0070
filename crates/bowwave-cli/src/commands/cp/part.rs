//! A file being downloaded: written next to its final name, and renamed when complete.
//!
//! ```text
//! .NAME.bowwave-part   | bytes of the file, with holes | header | range sum | range sum | …
//!                      0                          size ^ the log, cut off before the rename
//! ```
//!
//! The log identifies the version of the source and the ranges that are present, each with a
//! CRC-32. When the copy is resumed, ranges damaged by a crash or power loss are detected and
//! copied again.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bowwave_backend::{
    Allocate, Backend, Error, ErrorKind, Identity, Namespace as _, Object, OpenWrite, Rename, Result,
    SetAttributes, SetTime, Write as _, WriteBuf, WriteObject, read_exact, write_exact,
};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// An incomplete file.
#[derive(Debug)]
pub(super) struct PartFile {
    store: Arc<dyn Backend>,
    pub(super) object: Arc<dyn WriteObject>,
    /// Its temporary and final names.
    part: PathBuf,
    path: PathBuf,
    /// Checksums of the present ranges.
    sums: BTreeMap<u64, u32>,
    /// Offset of the next log line; `None` for a copy that cannot be resumed.
    log_at: Option<u64>,
    /// Bytes that an earlier command has copied.
    pub(super) found: u64,
    /// Held so that no other command writes the file.
    _lock: Option<File>,
}

/// Identity of the copied version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    bowwave_part: u32,
    size: u64,
    etag: Option<String>,
    modified_ns: Option<i128>,
    device: Option<u64>,
    inode: Option<u64>,
    chunk: u64,
}

impl Version {
    /// `None` if the version has no identity, or is small enough to copy at once.
    pub(super) fn of(identity: &Identity, chunk: u64) -> Option<Self> {
        let known = identity.etag.is_some() || identity.modified_ns.is_some();
        (known && identity.size > chunk).then(|| Self {
            bowwave_part: 1,
            size: identity.size,
            etag: identity.etag.clone(),
            modified_ns: identity.modified_ns,
            device: identity.device,
            inode: identity.inode,
            chunk,
        })
    }
}

/// State left by an earlier command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// Bytes of this version.
    Same,
    /// Bytes of another version.
    Changed,
    /// Bytes that differ from the store's.
    Damaged,
}

impl PartFile {
    /// Opens the incomplete file of `path` and checks which ranges are present. `local` is the
    /// store's directory, if it has one.
    pub(super) fn open(
        store: &Arc<dyn Backend>,
        path: &Path,
        local: Option<&Path>,
        source: Option<(&Version, &dyn Object)>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Self, Before)> {
        let part = path.with_file_name(part_name(path.file_name().unwrap_or_default()));
        let (object, lock) = open_locked(store.as_ref(), &part, local)?;
        let mut file = Self {
            store: Arc::clone(store),
            object,
            part,
            path: path.to_owned(),
            sums: BTreeMap::new(),
            log_at: None,
            found: 0,
            _lock: lock,
        };
        let Some((version, source)) = source else {
            file.object.set_len(0)?;
            return Ok((file, Before::Nothing));
        };
        let before = file.recall(version, source, is_wanted)?;
        if before != Before::Same {
            let begun = file.begin(version);
            if begun.is_err() {
                file.stop();
            }
            begun?;
        }
        Ok((file, before))
    }

    /// Whether a range is present.
    pub(super) fn has(&self, index: u64) -> bool {
        self.sums.contains_key(&index)
    }

    /// Computes the checksum of a range that is about to be written.
    pub(super) fn note(&self, bytes: &WriteBuf) -> Option<u32> {
        self.log_at.map(|_| sum(bytes.slices()))
    }

    /// Records a written range.
    pub(super) fn wrote(&mut self, index: u64, sum: u32) -> Result<()> {
        let Some(at) = self.log_at else { return Ok(()) };
        let line = line(index, sum);
        write_exact(&*self.object, at, line.as_bytes(), PATIENCE)?;
        self.log_at = Some(at + line.len() as u64);
        self.sums.insert(index, sum);
        Ok(())
    }

    /// Renames the file to its final name, after syncing all its bytes.
    pub(super) fn finish(
        &self,
        size: u64,
        mode: u32,
        modified: Option<SystemTime>,
        replace: bool,
    ) -> Result<()> {
        if self.log_at.is_some() {
            // Bytes first, which may take long: the log is cut off only when just the rename is
            // missing.
            self.object.sync(true)?;
            self.object.set_len(size)?;
        }
        let modified = modified.map(SetTime::At);
        let attributes = SetAttributes { mode: Some(mode), modified, ..SetAttributes::default() };
        let set = match self.object.attributes() {
            Some(open) => open.set(&attributes),
            None => self.store.set_attributes(&self.part, &attributes),
        };
        match set {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            set => set?,
        }
        self.object.sync(false)?;
        let how = if replace { Rename::Replace } else { Rename::NoReplace };
        self.store.rename(&self.part, &self.path, how)
    }

    /// Forgets all ranges, because some of them are damaged.
    pub(super) fn distrust(&mut self) {
        self.sums.clear();
        self.log_at = None;
    }

    /// Keeps a partial copy that can be resumed, and removes everything else. Returns whether it
    /// can be resumed.
    pub(super) fn stop(&self) -> bool {
        let resumable = !self.sums.is_empty();
        if !resumable {
            // The original failure counts; the next copy overwrites leftovers.
            let _best_effort = self.store.remove_file(&self.part);
        }
        resumable
    }

    /// Reads the log of an earlier command and verifies its ranges.
    fn recall(
        &mut self,
        version: &Version,
        source: &dyn Object,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Before> {
        let end = self.object.size();
        if end == 0 {
            return Ok(Before::Nothing);
        }
        let log = match end.checked_sub(version.size) {
            Some(bytes @ 1..=LOG_BYTES_MAX) => {
                read_exact(self.object.as_ref(), version.size, usize::try_from(bytes).unwrap_or(0), PATIENCE)?
            }
            _ => Vec::new(),
        };
        let Some((known, ranges, bytes)) = parse(&log) else { return Ok(Before::Changed) };
        if known != *version {
            return Ok(Before::Changed);
        }
        self.log_at = Some(version.size + bytes as u64);
        for (index, expected) in ranges {
            let offset = index.saturating_mul(version.chunk);
            let len = version.chunk.min(version.size.saturating_sub(offset));
            if len == 0 || !is_wanted() {
                continue;
            }
            let bytes = read_exact(
                self.object.as_ref(),
                offset,
                usize::try_from(len).unwrap_or(usize::MAX),
                PATIENCE,
            )?;
            if bytes.len() as u64 != len || sum([bytes.as_slice()]) != expected {
                continue;
            }
            if source.recall(offset, &bytes).is_err() {
                // Damaged before it was written.
                (self.sums, self.found) = (BTreeMap::new(), 0);
                return Ok(Before::Damaged);
            }
            self.sums.insert(index, expected);
            self.found += len;
        }
        Ok(Before::Same)
    }

    fn begin(&mut self, version: &Version) -> Result<()> {
        self.object.set_len(0)?;
        let header =
            serde_json::to_string(version).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        match self.object.allocate(0, version.size, Allocate::Reserve { keep_size: false }) {
            Err(error) if error.kind() == ErrorKind::NoSpace => return Err(error),
            // It only detects mismatches early.
            _ => {}
        }
        write_exact(&*self.object, version.size, format!("{header}\n").as_bytes(), PATIENCE)?;
        self.log_at = Some(version.size + header.len() as u64 + 1);
        Ok(())
    }
}

/// Opens the incomplete file exclusively.
fn open_locked(
    store: &dyn Backend,
    part: &Path,
    local: Option<&Path>,
) -> Result<(Arc<dyn WriteObject>, Option<File>)> {
    for _ in 0..OPENS_MAX {
        let new = OpenWrite { create: true, exclusive: true, mode: 0o600, ..OpenWrite::default() };
        let (object, is_new) = match store.open_write(part, &new) {
            Err(error) if error.kind() == ErrorKind::Exists => {
                match store.open_write(part, &OpenWrite::default()) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    opened => (opened?, false),
                }
            }
            opened => (opened?, true),
        };
        let Some(local) = local else { return Ok((object, None)) };
        let place = local.join(part);
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let flags = i32::try_from(flags).unwrap_or_default();
        let failed = |error: &std::io::Error| Error::from_os(place.display(), error);
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(&place) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&error)),
        };
        // File systems without locks reject them: then the user must keep two commands apart.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            let message = format!("{}: another command copies to it", place.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        let meta = file.metadata().map_err(|error| failed(&error))?;
        if !is_new && (meta.uid() != rustix::process::geteuid().as_raw() || meta.nlink() > 1) {
            // In a directory writable by others, they could read the copy or truncate another file
            // of ours.
            store.remove_file(part)?;
            continue;
        }
        // Another command may have completed it in the meantime: then this is the final file.
        let inode = meta.ino();
        let named = store.stat(part).ok().and_then(|entry| entry.unix).map(|unix| unix.inode);
        let opened = object.identity().inode;
        if named == Some(inode) && opened.is_none_or(|opened| opened == inode) {
            return Ok((object, Some(file)));
        }
    }
    let message = format!("{}: other commands copy to it", part.display());
    Err(Error::new(ErrorKind::Busy, message))
}

/// The temporary name of a file.
fn part_name(name: &OsStr) -> OsString {
    let full = [b".", name.as_bytes(), SUFFIX.as_bytes()].concat();
    if full.len() <= NAME_BYTES_MAX {
        return OsString::from_vec(full);
    }
    let digest = Sha256::digest(name.as_bytes());
    let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    OsString::from(format!(".{digits}{SUFFIX}"))
}

/// Whether this is the temporary name of an incomplete copy.
pub(super) fn is_part_name(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(SUFFIX.as_bytes())
}

fn line(index: u64, sum: u32) -> String {
    format!("{index} {sum:08x}\n")
}

fn sum<'a>(bytes: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    bytes.into_iter().for_each(|bytes| hasher.update(bytes));
    hasher.finalize()
}

/// Parses a log: version, ranges and length. A truncated or damaged line ends it.
fn parse(log: &[u8]) -> Option<(Version, BTreeMap<u64, u32>, usize)> {
    let mut lines = log.split_inclusive(|&byte| byte == b'\n');
    let header = lines.next()?;
    let version = serde_json::from_slice(header.strip_suffix(b"\n")?).ok()?;
    let (mut ranges, mut bytes) = (BTreeMap::new(), header.len());
    for line in lines {
        let range = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n')?.split_once(' '));
        let parsed =
            range.and_then(|(index, sum)| Some((index.parse().ok()?, u32::from_str_radix(sum, 16).ok()?)));
        let Some((index, sum)) = parsed else { break };
        ranges.insert(index, sum);
        bytes += line.len();
    }
    Some((version, ranges, bytes))
}

const SUFFIX: &str = ".bowwave-part";
/// Linux's `NAME_MAX`.
const NAME_BYTES_MAX: usize = 255;
/// Longest log to read: that of 16 TiB.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Maximum opens of a file that other commands complete at the same time.
const OPENS_MAX: u32 = 8;
/// Longest wait for a read or write of the incomplete file, on a loaded disk.
const PATIENCE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        let identity = Identity { etag: Some("\"1\"".to_owned()), size: 30, ..Identity::default() };
        Version::of(&identity, 10).expect("has a tag")
    }

    #[test]
    fn a_torn_line_of_the_log_ends_it() {
        let header = serde_json::to_string(&version()).unwrap();
        let log = format!("{header}\n{}{}2 0000", line(0, 7), line(1, 8));
        let (known, ranges, bytes) = parse(log.as_bytes()).unwrap();
        assert_eq!((known, ranges), (version(), BTreeMap::from([(0, 7), (1, 8)])));
        assert_eq!(bytes, log.len() - "2 0000".len());
        assert_eq!(parse(&log.as_bytes()[..header.len()]), None, "a header without its end is none");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn names_of_incomplete_files_fit_any_file_system() {
        assert_eq!(part_name("a".as_ref()), ".a.bowwave-part");
        let long = part_name("x".repeat(255).as_ref());
        assert!(long.len() <= NAME_BYTES_MAX && is_part_name(&long));
        assert_ne!(long, part_name("y".repeat(255).as_ref()));
    }

    #[test]
    fn a_version_without_validators_is_not_continued() {
        assert_eq!(Version::of(&Identity { size: 30, ..Identity::default() }, 10), None);
        let small = Identity { etag: Some("x".to_owned()), size: 10, ..Identity::default() };
        assert_eq!(Version::of(&small, 10), None);
    }
}
