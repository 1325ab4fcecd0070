//! An upload in progress: parts arrive in any order, until all are there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::PutPayload;
use object_store::path::Path as Key;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, oneshot};

use super::cloud::{Assembly, Cloud, Part, unhex};
use super::listing::ListedPart;
use super::meta::{self, Header, Meta};
use super::plan::{OBJECT_BYTES_MAX, Plan, Sizes};
use super::ranged::Version;
use crate::sync::Mutex;
use crate::{Error, ErrorKind, Result, WriteBuf, WriteSink, path};

/// Location of an object, and its bucket. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) cloud: Arc<Cloud>,
    pub(super) key: Key,
    /// For messages.
    pub(super) name: Arc<str>,
    pub(super) sizes: Sizes,
}

/// The next version of an object, during its upload.
#[derive(Debug)]
pub(super) struct ObjectUpload {
    place: Location,
    plan: Plan,
    /// The version that this one continues.
    base: Option<Arc<Version>>,
    /// Publish only over the version with this tag.
    replaces: Option<String>,
    upload: OnceCell<String>,
    /// Memory for slots of several parts, in MiB.
    room: Arc<Semaphore>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// End of the written bytes.
    end: u64,
    /// All written bytes, while they are one short part.
    short: Option<Bytes>,
    slots: BTreeMap<usize, Arc<tokio::sync::Mutex<Slot>>>,
    /// Metadata for publication.
    headers: Vec<Header>,
    /// Metadata that the upload was begun with.
    sent: Vec<Header>,
}

/// Location of a slot's bytes. A slot that was not written has no entry.
#[derive(Debug)]
enum Slot {
    /// A failed write: its contents are unknown.
    Failed,
    /// Accepted by the store.
    Sent { part: Part, len: u64 },
    /// In memory, until its parts are all there and the store has accepted them.
    Gathered(Gathered),
}

/// A slot of several parts.
#[derive(Debug)]
struct Gathered {
    bytes: Vec<u8>,
    /// Bytes present, of each part.
    have: Vec<u64>,
    _room: OwnedSemaphorePermit,
}

impl ObjectUpload {
    /// A version that begins empty, or as `base`; then the first write will be at `offset`.
    pub(super) fn new(place: &Location, base: Option<Arc<Version>>, offset: u64) -> Self {
        let size = base.as_ref().map_or(0, |base| base.identity.size);
        let large = place.cloud.copies_parts() && size >= place.sizes.copied_singly * place.sizes.part;
        let copied = if large { offset.min(size / place.sizes.part * place.sizes.part) } else { 0 };
        Self {
            plan: Plan::new(place.sizes, copied),
            place: place.clone(),
            base,
            replaces: None,
            upload: OnceCell::new(),
            room: Arc::new(Semaphore::new(ROOM_MIB as usize)),
            inner: Mutex::default(),
        }
    }

    /// With the condition that the object still has the tag `etag`.
    pub(super) fn replacing(self, etag: Option<String>) -> Self {
        Self { replaces: etag, ..self }
    }

    /// Sets the metadata for publication.
    pub(super) fn set_headers(&self, headers: Vec<Header>) {
        self.inner.lock().headers = headers;
    }

    /// Size of this version so far, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.inner.lock().end.max(self.base_size())
    }

    /// Admits a write of `len` bytes at `offset`. If they are all the bytes so far, and a short
    /// part, `copy` returns them and the write has ended.
    pub(super) fn admit(&self, offset: u64, len: u64, copy: impl FnOnce() -> Bytes) -> Result<bool> {
        let refused = |kind, why: &str| Err(self.error(kind, why));
        let end = offset.saturating_add(len);
        if end > OBJECT_BYTES_MAX {
            return refused(ErrorKind::TooLarge, "an object has 5 TiB at most");
        }
        if offset < self.plan.copied() {
            return refused(
                ErrorKind::Unsupported,
                "an object store cannot write in the middle of an object",
            );
        }
        let mut inner = self.inner.lock();
        if len < self.place.sizes.part && end < inner.end.max(self.base_size()) {
            return refused(ErrorKind::Invalid, "a part is short, and not the last");
        }
        let alone = offset == 0 && len < self.place.sizes.part && inner.slots.is_empty();
        inner.end = inner.end.max(end);
        if offset == 0 {
            inner.short = alone.then(copy);
        }
        if !alone {
            // Reserves its slot: if the write vanished, finishing would miss it.
            let failed = || Arc::new(tokio::sync::Mutex::new(Slot::Failed));
            inner.slots.entry(self.plan.slot_at(offset)).or_insert_with(failed);
        }
        Ok(alone)
    }

    /// Carries out an admitted write, and ends it.
    pub(super) async fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let index = self.plan.slot_at(offset);
        let slot = self.inner.lock().slots.get(&index).map(Arc::clone);
        let Some(slot) = slot else {
            return sink.done(buf, Err(self.error(ErrorKind::Io, "a write was not admitted")));
        };
        let mut slot = slot.lock().await;
        let range = self.plan.range(index);
        if range.end - range.start > self.place.sizes.part {
            return self.gather(index, &mut slot, offset - range.start, buf, sink).await;
        }
        *slot = Slot::Failed;
        let len = buf.len();
        let (payload, returned) = lend(buf);
        let sent = self.place.cloud.persist_upload(|| self.send(index, payload.clone())).await;
        drop(payload);
        // Received when the connection has released the last byte.
        let Ok(buf) = returned.await else { return };
        match sent {
            Ok(part) => {
                *slot = Slot::Sent { part, len: len as u64 };
                sink.done(buf, Ok(len));
            }
            Err(error) => sink.done(buf, Err(error)),
        }
    }

    /// Keeps a part of a slot until its neighbours arrive; the last one sends them all.
    async fn gather(&self, index: usize, slot: &mut Slot, at: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let range = self.plan.range(index);
        let bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if !matches!(slot, Slot::Gathered(_)) {
            if matches!(slot, Slot::Sent { .. }) {
                let why = "a part of a large object cannot be written again before the object is finished";
                return sink.done(buf, Err(self.error(ErrorKind::Unsupported, why)));
            }
            // Two slots always fit: one to gather, one to send.
            let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).min(ROOM_MIB / 2);
            let Ok(room) = Arc::clone(&self.room).acquire_many_owned(mib).await else {
                return sink.done(buf, Err(self.error(ErrorKind::Io, "the upload was aborted")));
            };
            let have = vec![0; bytes / usize::try_from(self.place.sizes.part).unwrap_or(1)];
            *slot = Slot::Gathered(Gathered { bytes: vec![0; bytes], have, _room: room });
        }
        let Slot::Gathered(gathered) = slot else { return };
        let (len, start) = (buf.len(), usize::try_from(at).unwrap_or(0));
        buf.copy_out(0, &mut gathered.bytes[start..start + len]);
        gathered.have[start / usize::try_from(self.place.sizes.part).unwrap_or(1)] = len as u64;
        let whole = gathered.have.iter().all(|&have| have == self.place.sizes.part);
        sink.done(buf, Ok(len));
        if whole {
            let bytes = Bytes::from(std::mem::take(&mut gathered.bytes));
            match self.send_persistently(index, &bytes).await {
                Ok(part) => *slot = Slot::Sent { part, len: bytes.len() as u64 },
                // Finishing retries, and returns the error.
                Err(_) => gathered.bytes = bytes.into(),
            }
        }
    }

    async fn send(&self, index: usize, payload: PutPayload) -> Result<Part> {
        let (id, place) = (self.upload_id().await?, &self.place);
        place.cloud.put_part(&place.key, &place.name, (id, self.copies()), index, payload).await
    }

    async fn send_persistently(&self, index: usize, bytes: &Bytes) -> Result<Part> {
        let send = || self.send(index, PutPayload::from_bytes(bytes.clone()));
        self.place.cloud.persist_upload(send).await
    }

    async fn upload_id(&self) -> Result<&str> {
        let begin = || async {
            let (place, headers) = (&self.place, self.inner.lock().headers.clone());
            let id = place.cloud.begin(&place.key, &place.name, self.copies(), &headers).await?;
            self.inner.lock().sent = headers;
            Ok(id)
        };
        self.upload.get_or_try_init(begin).await.map(String::as_str)
    }

    /// Whether the server may copy ranges of the earlier version into this one.
    fn copies(&self) -> bool {
        self.base.is_some() && self.place.cloud.copies_parts()
    }

    /// Publishes this version. No write may run meanwhile.
    pub(super) async fn publish(&self, exclusive: bool) -> Result<Meta> {
        let place = &self.place;
        let (short, end, headers) = {
            let inner = self.inner.lock();
            let short = inner.short.clone().filter(|_| inner.slots.is_empty());
            (short, inner.end.max(self.base_size()), inner.headers.clone())
        };
        if short.is_some() || end == 0 {
            let bytes = short.unwrap_or_default();
            return place.cloud.put(&place.key, &place.name, bytes, exclusive, &headers).await;
        }
        let id = place.cloud.persist_upload(|| self.upload_id()).await?;
        let parts: Vec<Part> = futures_util::stream::iter(0..self.plan.slots(end))
            .map(|index| self.part(index, end))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let before = self.base.as_ref().and_then(|base| base.meta());
        let replaces = self.replaces.as_deref();
        let assembly =
            Assembly { id, parts: &parts, size: end, exclusive, replaces, before: before.as_ref() };
        let published = place.cloud.complete(&place.key, &place.name, assembly).await?;
        if self.inner.lock().sent == headers {
            return Ok(published);
        }
        // They changed after the first part was sent.
        meta::replace(place, published, headers).await?;
        let found = place.cloud.head(&place.key, &place.name).await?;
        found.ok_or_else(|| path::not_found(&place.name, Path::new("")))
    }

    /// The upload's part for a slot of an object that ends at `end`.
    async fn part(&self, index: usize, end: u64) -> Result<Part> {
        let range = self.plan.range(index);
        let range = range.start..range.end.min(end);
        let missing = |what: &str| {
            self.error(ErrorKind::Invalid, &format!("{what} at {}; write it again", range.start))
        };
        let slot = self.inner.lock().slots.get(&index).map(Arc::clone);
        let Some(slot) = slot else {
            let base = self.base.as_ref().filter(|base| range.end <= base.identity.size);
            return match base {
                Some(base) => self.bring_in(index, base, range).await,
                None => Err(missing("a part is missing")),
            };
        };
        let mut slot = slot.lock().await;
        let part = match &mut *slot {
            Slot::Failed => return Err(missing("a part could not be written")),
            Slot::Sent { part, len } if *len == range.end - range.start => return Ok(part.clone()),
            Slot::Sent { .. } => return Err(missing("a part is short")),
            Slot::Gathered(gathered) => {
                self.complete_gathered(gathered, &range, missing).await?;
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let bytes = Bytes::from(std::mem::take(&mut gathered.bytes));
                let sent = self.send_persistently(index, &bytes.slice(..len)).await;
                gathered.bytes = bytes.into();
                sent?
            }
        };
        *slot = Slot::Sent { part: part.clone(), len: range.end - range.start };
        Ok(part)
    }

    /// Fills unwritten bytes of a slot with those of the earlier version.
    async fn complete_gathered(
        &self,
        gathered: &mut Gathered,
        range: &Range<u64>,
        missing: impl Fn(&str) -> Error,
    ) -> Result<()> {
        for part in 0..gathered.have.len() {
            let start = range.start + part as u64 * self.place.sizes.part;
            let wanted = start..(start + self.place.sizes.part).min(range.end);
            if wanted.is_empty() || gathered.have[part] == wanted.end - wanted.start {
                continue;
            }
            let base = self
                .base
                .as_ref()
                .filter(|base| gathered.have[part] == 0 && wanted.end <= base.identity.size);
            let base = base.ok_or_else(|| missing("a part is missing or short"))?;
            let bytes = base.bytes(wanted.clone()).await?;
            let at = usize::try_from(start - range.start).unwrap_or(0);
            gathered.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            gathered.have[part] = wanted.end - wanted.start;
        }
        Ok(())
    }

    /// Copies a range of the earlier version into this one.
    async fn bring_in(&self, index: usize, base: &Version, range: Range<u64>) -> Result<Part> {
        let (id, place) = (self.upload_id().await?, &self.place);
        if place.cloud.copies_parts()
            && let Some(source) = base.meta()
        {
            return place.cloud.copy_part(&place.key, id, index, &source, range).await;
        }
        let bytes = base.bytes(range).await?;
        self.send_persistently(index, &bytes).await
    }

    /// Continues the upload `id`, whose `parts` the store has. Parts that `fits` accepts need not
    /// be written; returns their ranges. Without any, or after an upload has begun, nothing
    /// changes.
    pub(super) fn adopt(
        &self,
        id: &str,
        parts: Vec<ListedPart>,
        fits: &mut dyn FnMut(Range<u64>, [u8; 16]) -> bool,
    ) -> Vec<Range<u64>> {
        let (mut slots, mut ranges) = (BTreeMap::new(), Vec::new());
        for listed in parts {
            let Some(index) = listed.number.checked_sub(1).and_then(|index| usize::try_from(index).ok())
            else {
                continue;
            };
            // Beyond the largest object the plan has no slots.
            if index >= self.plan.slots(OBJECT_BYTES_MAX) {
                continue;
            }
            let planned = self.plan.range(index);
            let range = planned.start..planned.start.saturating_add(listed.size);
            let sum = unhex(listed.etag.trim_matches('"')).and_then(|sum| <[u8; 16]>::try_from(sum).ok());
            let Some(sum) = sum.filter(|_| range.end <= planned.end && listed.size > 0) else { continue };
            if fits(range.clone(), sum) {
                let part = Part { etag: listed.etag, crc64nvme: listed.crc64nvme };
                slots.insert(index, Arc::new(tokio::sync::Mutex::new(Slot::Sent { part, len: listed.size })));
                ranges.push(range);
            }
        }
        let mut inner = self.inner.lock();
        if slots.is_empty() || !inner.slots.is_empty() || self.upload.set(id.to_owned()).is_err() {
            return Vec::new();
        }
        inner.end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        inner.slots = slots;
        ranges
    }

    /// Aborts the upload.
    pub(super) async fn abort(&self) {
        if let Some(id) = self.upload.get() {
            // On failure it remains as a stray upload, which the list of uploads shows.
            self.place.cloud.abort(self.place.key.as_ref(), id).await.ok();
        }
    }

    /// Whether the store has anything of it.
    pub(super) fn is_started(&self) -> bool {
        self.upload.initialized()
    }

    fn base_size(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.identity.size)
    }

    fn error(&self, kind: ErrorKind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.place.name))
    }
}

/// The bytes of `buf` for a request, without a copy, and the channel that returns `buf` when all
/// references to them are dropped.
fn lend(buf: WriteBuf) -> (PutPayload, oneshot::Receiver<WriteBuf>) {
    let (back, returned) = oneshot::channel();
    let segments = buf.segments().len();
    let lent = Arc::new(Lent { buf: Some(buf), back: Some(back) });
    let pieces = (0..segments).map(|segment| Bytes::from_owner(Segment { lent: Arc::clone(&lent), segment }));
    (pieces.collect(), returned)
}

struct Lent {
    buf: Option<WriteBuf>,
    back: Option<oneshot::Sender<WriteBuf>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(buf), Some(back)) = (self.buf.take(), self.back.take()) {
            // Without a receiver the buffer is dropped here.
            back.send(buf).ok();
        }
    }
}

struct Segment {
    lent: Arc<Lent>,
    segment: usize,
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        self.lent.buf.as_ref().map_or(&[], |buf| buf.segment(self.segment))
    }
}

/// Requests in flight while a version is completed.
const AT_ONCE: usize = 16;
/// Memory for slots of several parts of one object; two slots always fit, however large. Smaller:
/// fewer parallel uploads.
const ROOM_MIB: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_its_last_piece_is_dropped() {
        let mut buf = WriteBuf::from_vec(b"abcdef".to_vec());
        let tail = buf.split_off(2);
        buf.unsplit(tail);
        let (payload, mut returned) = lend(buf);
        let kept = payload.as_ref()[1].clone();
        assert_eq!(Bytes::from(payload), "abcdef");
        assert!(returned.try_recv().is_err(), "a piece is still read");
        assert_eq!(kept, "cdef");
        drop(kept);
        assert_eq!(returned.try_recv().expect("all pieces are gone").to_vec(), b"abcdef");
    }
}
