//! Targets of one file's bytes: a file system, an object store, or standard output.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bowwave_backend::{
    Backend, Error, ErrorKind, Identity, Object, OpenWrite, Result, Write as _, WriteBuf, WriteObject,
    read_exact,
};
use md5::{Digest as _, Md5};

use super::part::PartFile;
use super::shared::Shared;
use super::transfer::Writing;
use crate::Failure;
use crate::output::written;

/// The target of one file.
#[derive(Debug)]
pub(super) enum Target {
    /// A file system: ranges in any order.
    Part {
        file: PartFile,
        /// Checksums of the ranges in flight.
        sums: BTreeMap<u64, u32>,
    },
    /// An object store: parts in any order.
    Whole(Upload),
    /// In order.
    Stdout(Ordered),
}

/// An object upload.
#[derive(Debug)]
pub(super) struct Upload {
    store: Arc<dyn Backend>,
    object: Arc<dyn WriteObject>,
    path: PathBuf,
    part: u64,
    /// Bytes and MD5 sum of each part.
    sums: BTreeMap<u64, (u64, [u8; 16])>,
    /// Parts that an earlier command has sent.
    there: BTreeSet<u64>,
    /// The same upload may succeed later.
    is_worth_keeping: bool,
}

/// Ranges that arrive in any order and are written in order.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    bytes: u64,
    next: u64,
    early: BTreeMap<u64, WriteBuf>,
}

/// How a new file is finished.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: Option<SystemTime>,
    pub(super) replace: bool,
}

impl Target {
    /// A file of a file system.
    pub(super) fn part(file: PartFile) -> Self {
        Self::Part { file, sums: BTreeMap::new() }
    }

    /// Bytes of the whole copy, for a source of `size` bytes or standard input.
    pub(super) fn bytes(&self, size: u64) -> u64 {
        match self {
            Self::Part { file, .. } => {
                size.max(file.object.attributes().and_then(|now| now.stat().ok()).map_or(0, |now| now.size))
            }
            Self::Whole(upload) => upload.sums.values().map(|(bytes, _)| bytes).sum(),
            Self::Stdout(ordered) => ordered.bytes,
        }
    }

    /// Bytes of a range.
    pub(super) fn chunk(&self) -> u64 {
        match self {
            Self::Part { .. } | Self::Stdout(_) => CHUNK_BYTES,
            Self::Whole(upload) => upload.part,
        }
    }

    /// Whether a range is already present.
    pub(super) fn has(&self, index: u64) -> bool {
        match self {
            Self::Part { file, .. } => file.has(index),
            Self::Whole(upload) => upload.there.contains(&index),
            Self::Stdout(_) => false,
        }
    }

    /// Whether bytes count as copied when written, not when read.
    pub(super) fn counts_writes(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Computes the checksum of a range that is about to be written.
    pub(super) fn note(&mut self, index: u64, bytes: &WriteBuf) {
        match self {
            Self::Part { file, sums, .. } => sums.extend(file.note(bytes).map(|sum| (index, sum))),
            Self::Whole(upload) => {
                let mut sum = Md5::new();
                bytes.slices().for_each(|bytes| sum.update(bytes));
                upload.sums.insert(index, (bytes.len() as u64, sum.finalize().into()));
            }
            Self::Stdout(_) => {}
        }
    }

    /// Starts writing `bytes`; `sink` receives the completion. A target that writes synchronously
    /// drops `sink` and returns the completed ranges.
    pub(super) fn write(
        &mut self,
        index: u64,
        offset: u64,
        bytes: WriteBuf,
        sink: Writing,
    ) -> std::result::Result<Vec<u64>, Failure> {
        let object = match self {
            Self::Part { file, .. } => &file.object,
            Self::Whole(upload) => &upload.object,
            Self::Stdout(ordered) => {
                sink.forget();
                return ordered.write(index, bytes);
            }
        };
        object.write(offset, bytes, Box::new(sink));
        Ok(Vec::new())
    }

    /// Records a written range.
    pub(super) fn wrote(&mut self, index: u64) -> Result<()> {
        match self {
            Self::Part { file, sums, .. } => match sums.remove(&index) {
                Some(sum) => file.wrote(index, sum),
                None => Ok(()),
            },
            Self::Whole(_) | Self::Stdout(_) => Ok(()),
        }
    }

    /// Publishes the complete file under its name.
    pub(super) fn finish(&self, shared: &Shared<'_>, how: Finish) -> std::result::Result<(), Failure> {
        match self {
            Self::Part { file, .. } => {
                let finished = file.finish(how.size, how.mode, how.modified, how.replace);
                finished.map_err(Failure::from)
            }
            Self::Whole(upload) => upload.finish(shared).map_err(Failure::from),
            Self::Stdout(_) => written(io::stdout().lock().flush()),
        }
    }

    /// Records why the copy fails.
    pub(super) fn failed(&mut self, error: &Error) {
        match self {
            // A checksum over several ranges does not show which one is damaged.
            Self::Part { file, .. } if error.kind() == ErrorKind::Corrupt => file.distrust(),
            Self::Whole(upload) => upload.is_worth_keeping |= error.is_retryable(),
            Self::Part { .. } | Self::Stdout(_) => {}
        }
    }

    /// Keeps a partial copy that can be resumed, and removes everything else; returns whether it
    /// can be resumed.
    pub(super) fn stop(&self, shared: &Shared<'_>) -> bool {
        match self {
            Self::Part { file, .. } => file.stop(),
            Self::Whole(upload) if shared.interrupt.is_set() || upload.is_worth_keeping => {
                upload.object.leave_upload()
            }
            // An upload that the store rejects for good would only cost storage.
            Self::Whole(upload) => {
                upload.object.abort();
                false
            }
            Self::Stdout(_) => false,
        }
    }
}

impl Upload {
    /// Starts a new version of the object at `path`.
    pub(super) fn begin(store: &Arc<dyn Backend>, path: &Path, replace: bool) -> Result<Self> {
        let how = OpenWrite { create: true, truncate: true, exclusive: !replace, ..OpenWrite::default() };
        let object = store.open_write(path, &how)?;
        let part = store.profile().write_part_bytes.max(1);
        Ok(Self {
            store: Arc::clone(store),
            object,
            path: path.to_owned(),
            part,
            sums: BTreeMap::new(),
            there: BTreeSet::new(),
            is_worth_keeping: false,
        })
    }

    /// Resumes an upload of the same bytes by an earlier command. Returns the bytes the store has.
    pub(super) fn resume(&mut self, shared: &Shared<'_>, source: &dyn Object) -> u64 {
        if source.size() <= self.part {
            return 0;
        }
        for upload in shared.uploads_of(self.store.as_ref(), &self.path) {
            let mut fits = |range: Range<u64>, sum: [u8; 16]| {
                let known = (!shared.interrupt.is_set()).then(|| parts(source, &range, self.part));
                match known.flatten() {
                    Some((parts, all)) if all == sum => {
                        self.there.extend(parts.keys());
                        self.sums.extend(parts);
                        true
                    }
                    _ => false,
                }
            };
            // If the parts cannot be listed, all are sent again.
            let found = self.object.continue_upload(&upload, &mut fits).unwrap_or_default();
            if !found.is_empty() {
                return found.iter().map(|range| range.end - range.start).sum();
            }
            self.there.clear();
            self.sums.clear();
        }
        0
    }

    fn finish(&self, shared: &Shared<'_>) -> Result<()> {
        let identity = self.object.finish()?;
        let sent: u64 = self.sums.values().map(|(bytes, _)| bytes).sum();
        if identity.size != sent {
            let message =
                format!("{}: {sent} bytes were sent, the store has {}", self.place(), identity.size);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if shared.tags_differ.load(Ordering::Relaxed) || self.tag_fits(&identity) != Some(false) {
            return Ok(());
        }
        // Damaged, or a tag that is no MD5 sum, as for an encrypted object: compare the bytes.
        self.compare()?;
        if !shared.tags_differ.swap(true, Ordering::Relaxed) && !shared.args.quiet {
            note!("the tags of {} are not MD5 sums, and are not compared", self.store.url());
        }
        Ok(())
    }

    /// Whether the store's tag matches the sent bytes; `None` for tags without checksums.
    fn tag_fits(&self, identity: &Identity) -> Option<bool> {
        let tag = identity.etag.as_deref()?.trim_matches('"').to_owned();
        let is_sum = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hex = |sum: &[u8]| sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match tag.split_once('-') {
            None if is_sum(&tag) && self.sums.len() <= 1 => {
                let empty = || Md5::digest(b"").into();
                let sum = self.sums.values().next().map_or_else(empty, |(_, sum)| *sum);
                Some(tag.eq_ignore_ascii_case(&hex(&sum)))
            }
            // Large uploads have parts of several ranges.
            Some((sum, parts)) if is_sum(sum) && parts.parse() == Ok(self.sums.len()) => {
                let mut all = Md5::new();
                self.sums.values().for_each(|(_, sum)| all.update(sum));
                Some(sum.eq_ignore_ascii_case(&hex(&all.finalize())))
            }
            _ => None,
        }
    }

    /// Reads the object back and compares its bytes with the sent ones.
    fn compare(&self) -> Result<()> {
        let object = self.store.open(&self.path)?;
        for (index, (bytes, sum)) in &self.sums {
            let len = usize::try_from(*bytes).unwrap_or(usize::MAX);
            let found = read_exact(object.as_ref(), index.saturating_mul(self.part), len, PATIENCE)?;
            let found: [u8; 16] = Md5::digest(&found).into();
            if found != *sum {
                let message = format!("{}: the store has other bytes than were sent", self.place());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        display(self.store.url(), &self.path)
    }
}

/// Length and MD5 sum of each part of a range of `source`, and the MD5 sum of all; `None` if they
/// are unreadable or not parts.
#[expect(clippy::type_complexity, reason = "a table and a sum")]
fn parts(
    source: &dyn Object,
    range: &Range<u64>,
    part: u64,
) -> Option<(BTreeMap<u64, (u64, [u8; 16])>, [u8; 16])> {
    let (mut parts, mut all, mut at) = (BTreeMap::new(), Md5::new(), range.start);
    // A part that ends before the end of the source has another layout.
    let ends_well = range.end.is_multiple_of(part) || range.end == source.size();
    if !range.start.is_multiple_of(part) || range.end > source.size() || !ends_well {
        return None;
    }
    while at < range.end {
        let len = part.min(range.end - at);
        let bytes = read_exact(source, at, usize::try_from(len).ok()?, PATIENCE).ok()?;
        all.update(&bytes);
        parts.insert(at / part, (len, Md5::digest(&bytes).into()));
        at += len;
    }
    Some((parts, all.finalize().into()))
}

impl Ordered {
    fn write(&mut self, index: u64, bytes: WriteBuf) -> std::result::Result<Vec<u64>, Failure> {
        self.early.insert(index, bytes);
        let (mut done, mut stdout) = (Vec::new(), io::stdout().lock());
        while let Some(bytes) = self.early.remove(&self.next) {
            for bytes in bytes.slices() {
                written(stdout.write_all(bytes))?;
                self.bytes += bytes.len() as u64;
            }
            done.push(self.next);
            self.next += 1;
        }
        Ok(done)
    }
}

/// A path of the store at `url`, for messages.
pub(super) fn display(url: &str, path: &Path) -> String {
    if path.as_os_str().is_empty() {
        url.to_owned()
    } else {
        format!("{}/{}", url.trim_end_matches('/'), path.display())
    }
}

/// Bytes of a range if the store sets no size: large enough to make TTFB a small share of the time.
pub(super) const CHUNK_BYTES: u64 = 8 << 20;
/// Longest wait for a range that is read back.
const PATIENCE: Duration = Duration::from_secs(300);
