//! An object's metadata and its first bytes, in one round trip.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bowwave_core::network::{Expected, Validators};
use http::Method;
use http::header::{ACCEPT_ENCODING, HeaderName, RANGE};
use object_store::path::Path as Key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::checksum;
use super::super::exchange::Incoming;
use super::super::first::{Body, First};
use super::super::meta::Meta;
use super::super::validator::response;
use super::super::wire::{Outgoing, explained};
use super::{Cloud, Kind};
use crate::sync::Mutex;
use crate::{Result, WillRead};

/// Responses of a bucket whose bytes wait for reads.
#[derive(Debug)]
pub(in super::super) struct Waiting {
    permits: Arc<Semaphore>,
    /// By key and version: those of lookups, for the next open.
    looked_up: Mutex<HashMap<String, (Validators, First)>>,
    /// Lookups that could request bytes, since the last open that had some.
    unused: AtomicU32,
}

impl Default for Waiting {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(WAITING_MAX));
        Self { permits, looked_up: Mutex::default(), unused: AtomicU32::new(0) }
    }
}

impl Waiting {
    /// Counts a lookup that could request bytes, and returns whether it may.
    pub(in super::super) fn look_up(&self) -> bool {
        let unused = self.unused.fetch_add(1, Ordering::Relaxed);
        unused < UNUSED_MAX || unused.is_multiple_of(LOOKUPS_PER_TRIAL)
    }

    /// Keeps the bytes that came with a lookup, unless another version of the object would have
    /// the same validators.
    pub(in super::super) fn keep(&self, key: &str, version: &Validators, first: First) {
        if !first.is_there() {
            return;
        }
        let mut looked_up = self.looked_up.lock();
        looked_up.retain(|_, (_, first)| first.is_there());
        if version.strong().is_some() {
            looked_up.insert(key.to_owned(), (version.clone(), first));
        }
    }

    /// The bytes that came with the lookup of this version.
    pub(in super::super) fn take(&self, key: &str, version: &Validators) -> First {
        match self.looked_up.lock().remove(key) {
            Some((of, first)) if of.strong() == version.strong() && first.is_there() => {
                self.unused.store(0, Ordering::Relaxed);
                first
            }
            _ => First::default(),
        }
    }
}

impl Cloud {
    /// As [`head_once`](Self::head_once), for a caller that then reads the object.
    ///
    /// The response to a GET of a whole object has its metadata and its checksum. No other GET has
    /// the checksum, so a HEAD is sent at the same time.
    pub(in super::super) async fn first_once(
        self: &Arc<Self>,
        key: &Key,
        place: &str,
        will_read: WillRead,
    ) -> Result<Option<(Meta, First)>> {
        let is_whole = will_read == WillRead::WHOLE;
        // Reads request longer ranges on several connections.
        let will_read = match will_read {
            WillRead::First { start, end } if !is_whole && end.saturating_sub(start) > WHOLE_BYTES_MAX => {
                WillRead::First { start, end: start.saturating_add(START_BYTES) }
            }
            other => other,
        };
        let bytes = match will_read {
            // Google sends compressed objects decompressed, unless their label is known before.
            _ if is_whole => (self.kind != Kind::Google).then(String::new),
            WillRead::First { start, end } if start < end => Some(format!("bytes={start}-{}", end - 1)),
            // Azure has no such ranges.
            WillRead::Last { bytes: bytes @ 1..=WHOLE_BYTES_MAX } if self.kind != Kind::Azure => {
                Some(format!("bytes=-{bytes}"))
            }
            _ => None,
        };
        let permit = bytes
            .and_then(|bytes| Some((Arc::clone(&self.waiting.permits).try_acquire_owned().ok()?, bytes)));
        match permit {
            Some((permit, _)) if is_whole => self.whole_once(key, place, permit).await,
            Some((permit, bytes)) => self.range_once(key, place, (will_read, bytes), permit).await,
            None => Ok(self.head_once(key, place).await?.map(|meta| (meta, First::default()))),
        }
    }

    async fn whole_once(
        &self,
        key: &Key,
        place: &str,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<(Meta, First)>> {
        let mut headers = vec![(ACCEPT_ENCODING, "identity".to_owned())];
        if self.verify && self.kind == Kind::Amazon {
            headers.push((checksum::MODE, "ENABLED".to_owned()));
        }
        let incoming = self.get_once(key, &headers).await?;
        match incoming.status().as_u16() {
            404 => return Ok(None),
            200..=299 => {}
            _ => return Err(explained(place, incoming).await),
        }
        match self.described(key, &incoming) {
            Some(meta) if meta.size == 0 => Ok(Some((meta, First::default()))),
            Some(meta) => {
                let taken = if meta.size <= WHOLE_BYTES_MAX { meta.size } else { START_BYTES };
                let body = Body::new(incoming, meta.size, Some(permit));
                Ok(Some((meta, First::of(0..taken, body))))
            }
            // Not the object's bytes, or of an unknown version.
            None => Ok(self.head_once(key, place).await?.map(|meta| (meta, First::default()))),
        }
    }

    /// The metadata in the response to a GET of a whole object, if its body is the bytes of a
    /// version that can be told from others.
    fn described(&self, key: &Key, incoming: &Incoming) -> Option<Meta> {
        let mut meta = Meta::of(key.clone(), incoming.headers())?;
        meta.version.strong()?;
        let expected = Expected { version: meta.version.clone(), start: 0, end: meta.size };
        expected.check(&response(incoming.status().as_u16(), incoming.headers(), None)).ok()?;
        if self.attributes {
            meta.headers = incoming.headers().clone();
        }
        Some(meta)
    }

    async fn range_once(
        self: &Arc<Self>,
        key: &Key,
        place: &str,
        (will_read, bytes): (WillRead, String),
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<(Meta, First)>> {
        let headers = [(ACCEPT_ENCODING, "identity".to_owned()), (RANGE, bytes)];
        let (cloud, requested) = (Arc::clone(self), key.clone());
        let get = tokio::spawn(async move { cloud.get_once(&requested, &headers).await });
        let Some(meta) = self.head_once(key, place).await? else {
            get.abort();
            return Ok(None);
        };
        let range = match will_read {
            WillRead::First { start, end } => start..end.min(meta.size),
            WillRead::Last { bytes } => meta.size.saturating_sub(bytes)..meta.size,
            WillRead::Any | WillRead::Nothing => 0..0,
        };
        if range.is_empty() {
            get.abort();
            return Ok(Some((meta, First::default())));
        }
        let (sender, body) = oneshot::channel();
        let expected = Expected { version: meta.version.clone(), start: range.start, end: range.end };
        let coding = meta.coding.clone();
        // The open does not wait for it.
        tokio::spawn(async move {
            let Ok(Ok(incoming)) = get.await else { return };
            let found = response(incoming.status().as_u16(), incoming.headers(), coding.as_deref());
            // A read that gets nothing requests its bytes itself, and finds the error.
            if expected.check(&found).is_ok() {
                sender.send(Body::new(incoming, expected.bytes(), Some(permit))).ok();
            }
        });
        Ok(Some((meta, First::new(range, body))))
    }

    async fn get_once(&self, key: &Key, headers: &[(HeaderName, String)]) -> Result<Incoming> {
        let request = Outgoing { headers, ..Outgoing::new(Method::GET, key.as_ref()) };
        self.wire.send(request, self.timeout()).await
    }
}

/// Most lookups that requested bytes in vain, one after another. Programs that only look at names
/// cost little more.
const UNUSED_MAX: u32 = 4;
/// After these, one lookup in 16 requests bytes, until an open has some.
const LOOKUPS_PER_TRIAL: u32 = 16;
/// Most responses of a bucket whose bytes wait for reads: its connections.
const WAITING_MAX: usize = 64;
/// Largest object whose bytes one connection sends to an open: in about the time of three round
/// trips. Of larger ones, a few bytes come with the open, and reads request the rest on several
/// connections.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
const START_BYTES: u64 = 2 << 20;
