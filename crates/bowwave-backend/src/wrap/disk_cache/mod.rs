//! What a slow store gave, kept in a folder on a near disk, beyond the end of the process.
//!
//! ```text
//!   read ──► all of it in the folder, with the right checksums ──► from there
//!        └─► else the store below is asked for all of it ──► the reader, and a copy to the folder, later
//! ```
//!
//! Objects are known by URL, path and version (entity tag, or time and size): of a changed object nothing old is served to
//! who opens it anew. Objects whose version cannot be told are passed by, and so is what was changed in the last seconds,
//! for a time tells two changes apart only if some time lies between them; and what is open for writing. The folder may be
//! used by several processes at once, holds no more than it may, and owes nothing to how a process ended. Faults of the disk
//! slow nothing down but what the disk was to make faster: they are counted.

mod room;
mod segment;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use self::room::Room;
use self::segment::{Found, Key, Segment};
use super::{forward_lookups, forward_tree};
use crate::pool::{Job, Pool};
use crate::process::PerProcess;
use crate::{
    Attributes, Backend, Error, Identity, Object, OpenWrite, Profile, ReadBuf, ReadSink, Result, Seek,
    WriteObject,
};

/// A store whose objects are kept on a disk, too, once they were read.
#[derive(Debug)]
pub struct DiskCache {
    inner: Arc<dyn Backend>,
    tier: Arc<Tier>,
    url: String,
}

/// What a disk cache has done, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Requests served from the folder.
    pub hits: u64,
    /// Requests that went to the store.
    pub misses: u64,
    /// Bytes read from the folder.
    pub bytes_read: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Bytes removed from it, to make room.
    pub bytes_evicted: u64,
    /// Bytes not kept, because the disk was too slow, full or taken by others.
    pub bytes_dropped: u64,
    /// Requests that found bytes which were not those written.
    pub damaged: u64,
    /// Failures of the disk.
    pub errors: u64,
}

impl DiskCache {
    /// Keeps in `folder` what is read of `inner`, up to `bytes` on the disk (at least 64 MiB), of all processes that name it.
    /// The folder is made if it is not there.
    ///
    /// # Errors
    /// A folder that has other files in it or cannot be written, too few bytes.
    pub fn new(inner: Arc<dyn Backend>, folder: &Path, bytes: u64) -> Result<Self> {
        let tier = Tier {
            url: inner.url().to_owned(),
            folder: folder.to_owned(),
            room: Room::open(folder, bytes)?,
            queued: AtomicUsize::new(0),
            counters: Counters::default(),
        };
        let url = format!("disk:{}", inner.url());
        Ok(Self { inner, tier: Arc::new(tier), url })
    }

    fn below(&self) -> &dyn Backend {
        &*self.inner
    }
}

impl Backend for DiskCache {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        self.inner.profile()
    }

    fn network(&self) -> Option<crate::NetworkStats> {
        self.inner.network()
    }

    fn disk(&self) -> Option<DiskStats> {
        Some(self.tier.stats())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        Ok(CachedObject::over(self.inner.open(path)?, path.into(), &self.tier))
    }

    /// What is being written has no version.
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.inner.open_write(path, how)
    }

    forward_lookups!();
    forward_tree!();
}

/// A version of an object.
#[derive(Debug)]
struct CachedObject {
    inner: Arc<dyn Object>,
    path: Arc<Path>,
    key: Arc<Key>,
    tier: Arc<Tier>,
}

impl CachedObject {
    /// What was opened at `path`: as it is, if its version cannot be told.
    fn over(inner: Arc<dyn Object>, path: Arc<Path>, tier: &Arc<Tier>) -> Arc<dyn Object> {
        match Key::new(&tier.url, &path, inner.identity()) {
            Some(key) => Arc::new(Self { inner, path, key: Arc::new(key), tier: Arc::clone(tier) }),
            None => inner,
        }
    }
}

impl Object for CachedObject {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.inner.place()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let (Some(wanted), Some(pools)) = (self.key.pages(offset, buf.len()), pools()) else {
            return self.inner.read(offset, buf, sink);
        };
        let (tier, inner, key) = (Arc::clone(&self.tier), Arc::clone(&self.inner), Arc::clone(&self.key));
        pools.reads.add(Box::new(Lookup { tier, inner, key, wanted, buf, sink }));
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let anew = |inner| Self::over(inner, Arc::clone(&self.path), &self.tier);
        Some(self.inner.opened_anew()?.map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
    }
}

#[derive(Debug)]
struct Tier {
    /// Of the store below.
    url: String,
    folder: PathBuf,
    room: Room,
    /// Bytes that wait to be written.
    queued: AtomicUsize,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    bytes_dropped: AtomicU64,
    damaged: AtomicU64,
    errors: AtomicU64,
}

/// Most bytes that wait to be written; more are not kept.
const QUEUED_MAX: usize = 64 << 20;
/// How old a version must be to be told from the next one by its time.
const SETTLED: Duration = Duration::from_secs(2);

impl Tier {
    fn stats(&self) -> DiskStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        DiskStats {
            hits: get(&counters.hits),
            misses: get(&counters.misses),
            bytes_read: get(&counters.bytes_read),
            bytes_written: get(&counters.bytes_written),
            bytes_evicted: get(&self.room.evicted),
            bytes_dropped: get(&counters.bytes_dropped),
            damaged: get(&counters.damaged),
            errors: get(&counters.errors),
        }
    }

    /// Reads all of `wanted` from the folder; `false` if it is not all there.
    fn look_up(&self, key: &Key, wanted: &Range<u64>, buf: &mut ReadBuf) -> bool {
        let mut whole = true;
        for (number, part) in segment::parts(wanted.clone()) {
            let at = (part.start - wanted.start) as usize;
            let found = Segment::open(&self.folder, key, number).and_then(|segment| {
                let Some(segment) = segment else { return Ok(Found::Absent) };
                let found = segment.read(key, &part, buf, at)?;
                segment.touch()?;
                Ok(found)
            });
            match found {
                Ok(Found::Here) => {}
                Ok(Found::Absent) => return false,
                Ok(Found::Damaged) => {
                    add(&self.counters.damaged, 1);
                    // What has the right checksum would not be written again.
                    let _best_effort = segment::remove(&self.folder, key, number);
                    whole = false;
                }
                Err(_) => {
                    add(&self.counters.errors, 1);
                    return false;
                }
            }
        }
        whole
    }

    /// Writes to the folder what the store gave.
    fn keep(&self, key: &Key, range: &Range<u64>, bytes: &[u8]) {
        for (number, part) in segment::parts(range.clone()) {
            let piece = &bytes[(part.start - range.start) as usize..(part.end - range.start) as usize];
            // With the head of a segment, and whole pages; what is there already is given back.
            let most = (piece.len() as u64).next_multiple_of(segment::PAGE) + 2 * segment::PAGE;
            let written = match self.room.take(most) {
                Ok(true) => {
                    let written = segment::write(&self.folder, key, number, &part, piece);
                    if let Ok(0) = written {
                        self.room.give(most);
                    }
                    written
                }
                Ok(false) => {
                    add(&self.counters.bytes_dropped, piece.len() as u64);
                    continue;
                }
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => add(&self.counters.bytes_written, written),
                Err(_) => {
                    add(&self.counters.errors, 1);
                    add(&self.counters.bytes_dropped, piece.len() as u64);
                }
            }
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// A read that looks in the folder first.
struct Lookup {
    tier: Arc<Tier>,
    inner: Arc<dyn Object>,
    key: Arc<Key>,
    wanted: Range<u64>,
    buf: ReadBuf,
    sink: Box<dyn ReadSink>,
}

impl Job for Lookup {
    fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
        let Self { tier, inner, key, wanted, mut buf, sink } = *self;
        let len = wanted.end - wanted.start;
        if tier.look_up(&key, &wanted, &mut buf) {
            add(&tier.counters.hits, 1);
            add(&tier.counters.bytes_read, len);
            sink.done(buf, Ok(len as usize));
        } else {
            add(&tier.counters.misses, 1);
            let offset = wanted.start;
            let copy = is_settled(inner.identity()).then_some((tier, key, offset));
            match copy {
                Some(copy) => inner.read(offset, buf, Box::new(Copying { sink, copy })),
                None => inner.read(offset, buf, sink),
            }
        }
        None
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.sink.done(self.buf, Err(error));
    }
}

/// Whether a version can be told from one that is made now.
fn is_settled(identity: &Identity) -> bool {
    let modified = identity.modified_ns.and_then(|ns| u64::try_from(ns).ok()).map(Duration::from_nanos);
    let age = modified.and_then(|modified| (SystemTime::UNIX_EPOCH + modified).elapsed().ok());
    identity.etag.is_some() || age.is_some_and(|age| age > SETTLED)
}

/// A read of the store below, of which a copy is kept.
struct Copying {
    sink: Box<dyn ReadSink>,
    copy: (Arc<Tier>, Arc<Key>, u64),
}

impl ReadSink for Copying {
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, mut buf: ReadBuf, result: Result<usize>) {
        let Self { sink, copy: (tier, key, offset) } = *self;
        let kept = result.as_ref().ok().and_then(|&count| key.pages(offset, count));
        let job = kept.and_then(|range| {
            let len = (range.end - range.start) as usize;
            if tier.queued.fetch_add(len, Ordering::Relaxed) + len > QUEUED_MAX {
                tier.queued.fetch_sub(len, Ordering::Relaxed);
                add(&tier.counters.bytes_dropped, len as u64);
                return None;
            }
            // Before the reader gets them: then they are the reader's.
            let mut bytes = Vec::with_capacity(len);
            buf.fill_with(0..len, |_, piece| bytes.extend_from_slice(piece));
            Some(Keep { tier, key, range, bytes })
        });
        sink.done(buf, result);
        if let (Some(job), Some(pools)) = (job, pools()) {
            pools.writes.add(Box::new(job));
        }
    }
}

/// Bytes on their way to the folder.
struct Keep {
    tier: Arc<Tier>,
    key: Arc<Key>,
    range: Range<u64>,
    bytes: Vec<u8>,
}

impl Job for Keep {
    fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
        self.tier.keep(&self.key, &self.range, &self.bytes);
        self.tier.queued.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        None
    }

    fn refuse(self: Box<Self>, _: Error) {
        add(&self.tier.counters.bytes_dropped, self.bytes.len() as u64);
        self.tier.queued.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// The threads of all disk caches of the process.
struct Pools {
    reads: Pool,
    writes: Pool,
}

/// `None` if no threads can be had: then all goes to the store.
fn pools() -> Option<&'static Pools> {
    static POOLS: PerProcess<Option<Pools>> = PerProcess::new();
    let start = || -> io::Result<Pools> {
        Ok(Pools { reads: Pool::start("bowwave-disk", 4)?, writes: Pool::start("bowwave-keep", 1)? })
    };
    POOLS.get_or_init(|| start().ok()).as_ref()
}
