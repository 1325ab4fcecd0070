//! Object operations of clouds, each retried until its result is known.

mod first;
mod multipart;

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bowwave_core::network::{Retry, RetryLimits, Validators};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use md5::{Digest as _, Md5};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Attribute, AttributeValue, Attributes, Error as StoreError, ObjectStore, PutMode, PutOptions, PutPayload,
};

use percent_encoding::utf8_percent_encode;

use super::checksum;
use super::errors::store_error;
use super::http::PATH;
use super::listing::{self, ListedPart, ListedUpload};
use super::meta::{Header, Meta, Stored};
use super::name_cache::{Known, NameCache};
use super::stat_ahead::StatAhead;
use super::wire::{Outgoing, Wire, explained, foreign};
use super::{validator, xml};
use crate::{EntryKind, Error, ErrorKind, Result};

pub(super) use first::Waiting;
use multipart::hex;
pub(super) use multipart::{Assembly, Part, unhex};

/// A writable bucket.
#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) kind: Kind,
    pub(super) bucket: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) parts: Parts,
    pub(super) wire: Wire,
    /// Whether reads are verified by the store's checksums.
    pub(super) verify: bool,
    /// Whether file attributes are stored in metadata; only with [`Kind::Amazon`].
    pub(super) attributes: bool,
    /// Lookups ahead, where they return more than listings.
    pub(super) ahead: StatAhead,
    /// Names that a mount keeps.
    pub(super) names: NameCache,
    pub(super) uploads: Uploads,
    /// Responses to opens.
    pub(super) waiting: Waiting,
}

/// Which uploads of one request are looked up afterwards, by a mount that opens objects by known
/// versions.
///
/// A response whose entity tag is the MD5 of the sent bytes shows that the store has read them. It
/// does not show that the store keeps them. So the first uploads are looked up, and then samples.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Uploads since one that was not found, or was found as another version.
    since: AtomicU32,
}

impl Uploads {
    fn must_verify(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        if since < UPLOADS_FIRST || since.is_multiple_of(UPLOADS_PER_SAMPLE) {
            return true;
        }
        self.since.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn verified(&self) {
        self.since.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

/// The cloud's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// S3 and compatible stores.
    Amazon,
    Google,
    Azure,
}

/// The library's calls for uploads.
pub(super) struct Parts {
    /// For uploads whose parts are all sent from here.
    pub(super) sent: Arc<dyn MultipartStore>,
    /// For uploads with parts that the server copies: without checksums. versitygw 1.8 gives a
    /// copied range the checksum of its whole source, and so publishes an object with a wrong
    /// checksum, which readers would reject.
    pub(super) copied: Arc<dyn MultipartStore>,
}

impl Parts {
    fn of(&self, copies: bool) -> &dyn MultipartStore {
        if copies { &*self.copied } else { &*self.sent }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// Which keys to list.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    pub(super) prefix: String,
    /// Keys with a slash after the prefix are listed as one common prefix each.
    pub(super) delimited: bool,
    /// Most entries of a page; 0 for the store's default.
    pub(super) most: u32,
    /// Token of the page.
    pub(super) token: Option<String>,
    /// Keys up to this one are left out. Azure has no such parameter.
    pub(super) after: Option<String>,
}

impl Pages {
    /// The first page of keys that begin with `prefix`.
    pub(super) fn below(prefix: &str, delimited: bool, most: u32) -> Self {
        Self { prefix: prefix.to_owned(), delimited, most, token: None, after: None }
    }
}

impl Cloud {
    /// Whether the server copies ranges of objects into parts.
    pub(super) fn copies_parts(&self) -> bool {
        self.kind == Kind::Amazon
    }

    /// Runs a call that changes nothing, or may be repeated.
    pub(super) async fn persist<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.wire.client.persist(&self.wire.place, attempt).await
    }

    /// As [`persist`](Self::persist), for requests with long bodies, or that make the store copy.
    pub(super) async fn persist_upload<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let client = &self.wire.client;
        // All changes of objects pass here or through `change`.
        self.ahead.changed();
        let done = client.persist_within(client.limits.for_uploads(), &self.wire.place, attempt).await;
        self.ahead.changed();
        done
    }

    /// Longest silence of the store while it copies `bytes` bytes.
    fn patience(&self, bytes: u64) -> Duration {
        self.wire.client.limits.timeout + Duration::from_secs(bytes / COPY_RATE)
    }

    /// Limits of a single attempt, for a call that has a fallback.
    pub(super) fn once(&self) -> RetryLimits {
        RetryLimits { attempts_max: 1, ..self.wire.client.limits.retry }
    }

    fn timeout(&self) -> Duration {
        self.wire.client.limits.timeout
    }

    pub(super) async fn head(&self, key: &Key, place: &str) -> Result<Option<Meta>> {
        self.persist(|| self.head_once(key, place)).await
    }

    /// As [`Self::head`], one attempt: for a call of several requests.
    pub(super) async fn head_once(&self, key: &Key, place: &str) -> Result<Option<Meta>> {
        let mode = [(checksum::MODE, "ENABLED".to_owned())];
        let headers = if self.verify && self.kind == Kind::Amazon { &mode[..] } else { &[] };
        let request = Outgoing { headers, ..Outgoing::new(Method::HEAD, key.as_ref()) };
        let incoming = self.wire.send(request, self.timeout()).await?;
        match incoming.status().as_u16() {
            404 => return Ok(None),
            200..=299 => {}
            status => {
                let error = explained(place, incoming).await;
                return Err(self.reason(key, place, status).await.unwrap_or(error));
            }
        }
        let meta = Meta::of(key.clone(), incoming.headers());
        let mut meta = meta.ok_or_else(|| foreign(place, "it tells no size"))?;
        // Every object store sends at least one of them; a server that responds to any request with
        // its own page does not.
        if meta.version.etag.is_none() && meta.version.modified.is_none() {
            return Err(foreign(place, "it has neither ETag nor Last-Modified"));
        }
        if self.attributes {
            meta.headers = incoming.headers().clone();
        }
        Ok(Some(meta))
    }

    /// The headers of a directory's marker, whose key ends in `/`; `None` if there is none.
    pub(super) async fn head_marker(&self, key: &str, place: &str) -> Result<Option<HeaderMap>> {
        self.persist(|| async {
            let incoming = self.wire.send(Outgoing::new(Method::HEAD, key), self.timeout()).await?;
            match incoming.status().as_u16() {
                404 => Ok(None),
                200..=299 => Ok(Some(incoming.headers().clone())),
                _ => Err(explained(place, incoming).await),
            }
        })
        .await
    }

    /// The error for a HEAD that a store rejected with `status`. A HEAD response has no body with
    /// the reason, so the first byte is requested. `None` if that returns no reason either.
    async fn reason(&self, key: &Key, place: &str, status: u16) -> Option<Error> {
        if !matches!(status, 400 | 401 | 403) {
            return None;
        }
        let headers = [(http::header::RANGE, "bytes=0-0".to_owned())];
        let request = Outgoing { headers: &headers, ..Outgoing::new(Method::GET, key.as_ref()) };
        let incoming = self.wire.send(request, self.timeout()).await.ok()?;
        match incoming.status().as_u16() == status {
            true => Some(explained(place, incoming).await),
            false => None,
        }
    }

    /// A page of a listing, as the store sends it, with the attempts and the deadline of `retry`,
    /// if given.
    pub(super) async fn page(&self, pages: &Pages, retry: Option<&mut Retry>) -> Result<Bytes> {
        match retry {
            Some(retry) => self.wire.client.go_on(retry, &self.wire.place, || self.page_once(pages)).await,
            None => self.persist(|| self.page_once(pages)).await,
        }
    }

    /// As [`page`](Self::page), one attempt: for a call of several requests.
    pub(super) async fn page_once(&self, pages: &Pages) -> Result<Bytes> {
        let most = pages.most.to_string();
        let mut query = match self.kind {
            Kind::Azure => vec![("comp", "list"), ("restype", "container")],
            Kind::Amazon | Kind::Google => vec![("list-type", "2")],
        };
        if let Some(token) = &pages.token {
            query.push((if self.kind == Kind::Azure { "marker" } else { "continuation-token" }, token));
        } else if let Some(after) = &pages.after {
            query.push(("start-after", after));
        }
        if pages.delimited {
            query.push(("delimiter", "/"));
        }
        if pages.most > 0 {
            query.push((if self.kind == Kind::Azure { "maxresults" } else { "max-keys" }, &most));
        }
        if !pages.prefix.is_empty() {
            query.push(("prefix", &pages.prefix));
        }
        let request = Outgoing { query: &query, ..Outgoing::new(Method::GET, "") };
        self.wire.xml(request, self.timeout()).await
    }

    /// The table of the checksums that S3 stores for the parts of an object.
    pub(super) async fn part_table(&self, key: &str) -> Result<Bytes> {
        let headers = [(ATTRIBUTES, "ETag,ObjectParts".to_owned()), (PARTS_MAX, "10000".to_owned())];
        let query = [("attributes", "")];
        let request = || Outgoing { query: &query, headers: &headers, ..Outgoing::new(Method::GET, key) };
        self.persist(|| self.wire.xml(request(), self.timeout())).await
    }

    /// Parses a page.
    ///
    /// # Errors
    /// `Protocol` if it is invalid: an empty listing would look like an empty directory.
    pub(super) fn parse(&self, page: &[u8]) -> Result<listing::Page> {
        let parsed = match self.kind {
            Kind::Azure => listing::azure(page),
            Kind::Amazon | Kind::Google => listing::s3(page),
        };
        parsed.map_err(|why| foreign(&self.wire.place, &why))
    }

    /// Uploads `bytes` as the object, with one request.
    pub(super) async fn put(
        &self,
        key: &Key,
        place: &str,
        bytes: Bytes,
        exclusive: bool,
        headers: &[Header],
    ) -> Result<Meta> {
        let size = bytes.len() as u64;
        let mut change = self.names.change(key.as_ref());
        let attributes: Attributes = headers.iter().filter_map(attribute).collect();
        let put = self
            .persist_upload(|| async {
                let mode = if exclusive { PutMode::Create } else { PutMode::Overwrite };
                let options = PutOptions { mode, attributes: attributes.clone(), ..PutOptions::default() };
                let payload = PutPayload::from_bytes(bytes.clone());
                self.store.put_opts(key, payload, options).await.map_err(|error| write_error(place, &error))
            })
            .await;
        let etag = match put {
            Ok(put) => put.e_tag,
            Err(error) if error.kind() == ErrorKind::Exists => {
                // It may be ours: an earlier attempt whose response was lost.
                let found = self.head(key, place).await?;
                let is_ours = |found: &Meta| {
                    found.size == size && found.version.etag.as_ref().is_some_and(|etag| is_md5(etag, &bytes))
                };
                let ours = found.filter(is_ours);
                change.done(ours.as_ref().map_or(Known::Unknown, Meta::known));
                return ours.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        let ours = |etag: String, headers: HeaderMap| Meta {
            key: key.clone(),
            size,
            version: Validators { etag: Some(etag), modified: None, size: Some(size) },
            // The server sets its time.
            modified: Some(SystemTime::now()),
            coding: None,
            checksum: None,
            known: Some(Stored::of(&headers, EntryKind::File)),
            headers,
            // The next reader requests its checksum.
            head: None,
        };
        let etag = etag.filter(|etag| !etag.starts_with("W/"));
        if let Some(etag) = &etag
            && self.names.answers_opens()
            && is_md5(etag, &bytes)
            && !self.uploads.must_verify()
        {
            let sent = |(name, value): &Header| Some((name.clone(), value.parse().ok()?));
            let meta = Meta {
                modified: Some(this_second()),
                ..ours(etag.clone(), headers.iter().filter_map(sent).collect())
            };
            change.done(meta.known());
            return Ok(meta);
        }
        // Detects a store that acknowledges an object and discards it, as after a multipart upload.
        let Some(found) = self.head(key, place).await? else {
            self.uploads.failed();
            return Err(vanished(place));
        };
        change.done(found.known());
        match etag {
            Some(etag) if found.version.etag.as_ref() != Some(&etag) => {
                self.uploads.failed();
                Ok(ours(etag, found.headers))
            }
            Some(_) => {
                self.uploads.verified();
                Ok(Meta { modified: Some(SystemTime::now()), ..found })
            }
            // Without a tag, only the server's own time identifies the version.
            None => Ok(found),
        }
    }

    /// Copies a whole object on the server, with `headers` in place of its metadata, if there are
    /// any.
    pub(super) async fn copy(
        &self,
        from: &Meta,
        to: &Key,
        exclusive: bool,
        replaced: &[Header],
    ) -> Result<()> {
        let source = format!("{}/{}", self.bucket, utf8_percent_encode(from.key.as_ref(), PATH));
        let mut headers = match self.kind {
            Kind::Amazon => vec![(COPY_SOURCE, source)],
            Kind::Google => vec![(GOOGLE_COPY_SOURCE, source)],
            Kind::Azure => vec![(AZURE_COPY_SOURCE, self.wire.source_url(from.key.as_ref()).await?)],
        };
        headers.extend(match (exclusive, self.kind) {
            (false, _) => None,
            (true, Kind::Google) => Some((GENERATION_MATCH, "0".to_owned())),
            (true, _) => Some((http::header::IF_NONE_MATCH, "*".to_owned())),
        });
        if !replaced.is_empty() {
            headers.push((METADATA_DIRECTIVE, "REPLACE".to_owned()));
            headers.extend(replaced.iter().cloned());
        }
        self.copy_with(to.as_ref(), from.size, &headers).await
    }

    /// Copies an object of at most 5 GiB onto itself with new metadata, unless it was replaced
    /// since `from`.
    pub(super) async fn copy_onto_itself(&self, from: &Meta, place: &str, replaced: &[Header]) -> Result<()> {
        let key = from.key.as_ref();
        let mut headers = vec![
            (COPY_SOURCE, format!("{}/{}", self.bucket, utf8_percent_encode(key, PATH))),
            (METADATA_DIRECTIVE, "REPLACE".to_owned()),
        ];
        headers.extend(replaced.iter().cloned());
        let plain = headers.len();
        headers.extend(copy_condition(&from.version));
        if let Some(etag) = from.version.strong() {
            // All servers support conditions on the source, but only some on the overwritten
            // object.
            headers.push((http::header::IF_MATCH, etag.to_owned()));
        }
        let copied = match self.copy_with(key, from.size, &headers).await {
            Err(error) if error.kind() == ErrorKind::Unsupported && headers.len() == plain + 2 => {
                self.copy_with(key, from.size, &headers[..=plain]).await
            }
            copied => copied,
        };
        copied.map_err(|error| match error.kind() {
            ErrorKind::Exists => crate::path::changed(place),
            _ => error,
        })
    }

    /// Requests a copy to `key`; the headers name its source.
    async fn copy_with(&self, key: &str, size: u64, headers: &[Header]) -> Result<()> {
        // The server sets tag and time of the copy.
        let _change = self.names.change(key);
        self.persist_upload(|| async {
            let request = Outgoing { headers, ..Outgoing::new(Method::PUT, key) };
            self.wire.document(request, self.patience(size)).await.map(drop)
        })
        .await
    }

    /// Removes an object; succeeds if there is none.
    pub(super) async fn delete(&self, key: &str) -> Result<()> {
        let mut change = self.names.change(key);
        let gone = self.persist(|| self.change(Method::DELETE, key, &[], &[])).await;
        gone.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        if !key.ends_with('/') {
            change.done(Known::Absent);
        }
        Ok(())
    }

    /// Puts an empty object at any key, also at one that ends in `/`.
    pub(super) async fn mark(&self, key: &str, headers: &[Header]) -> Result<()> {
        let azure = [(AZURE_BLOB_TYPE, "BlockBlob".to_owned())];
        let headers: &[_] = if self.kind == Kind::Azure { &azure } else { headers };
        let mut change = self.names.change(key);
        self.persist(|| self.change(Method::PUT, key, &[], headers)).await?;
        change.done(Known::Directory);
        Ok(())
    }

    async fn change(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: &[(HeaderName, String)],
    ) -> Result<()> {
        self.ahead.changed();
        let request = Outgoing { query, headers, ..Outgoing::new(method, key) };
        let done = self.wire.document(request, self.timeout()).await.map(drop);
        self.ahead.changed();
        done
    }
}

/// The error of a request that changes something.
fn write_error(place: &str, error: &StoreError) -> Error {
    match error {
        StoreError::AlreadyExists { .. }
        | StoreError::Precondition { .. }
        | StoreError::NotModified { .. } => {
            Error::new(ErrorKind::Exists, format!("{place}: is there already"))
        }
        error => store_error(place, error),
    }
}

/// A metadata header as the library sends it.
fn attribute((name, value): &Header) -> Option<(Attribute, AttributeValue)> {
    let name = name.as_str().strip_prefix("x-amz-meta-")?;
    Some((Attribute::Metadata(name.to_owned().into()), value.clone().into()))
}

/// Whether an entity tag is the MD5 of these bytes.
fn is_md5(etag: &str, bytes: &[u8]) -> bool {
    let text = etag.trim_matches('"');
    text.len() == 32 && *text == hex(&Md5::digest(bytes))
}

/// The time of a version that we have just written, in whole seconds, as stores report it.
fn this_second() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

fn vanished(place: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("{place}: was written, and has been removed since; check for other writers"),
    )
}

/// Uploads that are looked up first, and one in this many of the later ones. More samples: small
/// files cost more requests. Fewer: a store that loses objects is noticed later.
const UPLOADS_FIRST: u32 = 2;
const UPLOADS_PER_SAMPLE: u32 = 64;
/// Least bytes a second at which a store copies and completes uploads.
const COPY_RATE: u64 = 16 << 20;
/// The header that makes a copy fail if its source is no longer this version.
fn copy_condition(source: &Validators) -> Option<Header> {
    let (condition, value) = validator::condition(source)?;
    let name = if condition == http::header::IF_MATCH {
        COPY_SOURCE_IF_MATCH
    } else {
        COPY_SOURCE_IF_UNMODIFIED_SINCE
    };
    Some((name, value))
}

/// Requested attributes of an object.
const ATTRIBUTES: HeaderName = HeaderName::from_static("x-amz-object-attributes");
/// Maximum parts in a table of parts.
const PARTS_MAX: HeaderName = HeaderName::from_static("x-amz-max-parts");

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const COPY_SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");
const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const COPY_SOURCE_IF_UNMODIFIED_SINCE: HeaderName =
    HeaderName::from_static("x-amz-copy-source-if-unmodified-since");
const METADATA_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");
const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const GOOGLE_COPY_SOURCE: HeaderName = HeaderName::from_static("x-goog-copy-source");
const GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");
const AZURE_COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const AZURE_BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
