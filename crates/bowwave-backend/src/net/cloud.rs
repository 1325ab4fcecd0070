//! Object operations of clouds, each retried until its result is known.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bowwave_core::network::{Retry, Validators};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use md5::{Digest as _, Md5};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Attribute, AttributeValue, Attributes, Error as StoreError, ObjectStore, PutMode, PutOptions, PutPayload,
};

use percent_encoding::utf8_percent_encode;

use super::attributes::Header;
use super::call;
use super::checksum::{self, Checksums};
use super::errors::store_error;
use super::http::PATH;
use super::listing::{self, ListedPart, ListedUpload};
use super::meta::Meta;
use super::stat_ahead::StatAhead;
use super::wire::{Outgoing, Wire, explained, foreign};
use super::{validator, xml};
use crate::{Error, ErrorKind, Result};

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
}

impl Pages {
    /// The first page of keys that begin with `prefix`.
    pub(super) fn below(prefix: &str, delimited: bool, most: u32) -> Self {
        Self { prefix: prefix.to_owned(), delimited, most, token: None }
    }
}

/// An accepted part, as the request that publishes the upload names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) etag: String,
    /// The store's CRC-64/NVME of it, in Base64. Some stores publish an upload that was created
    /// with checksums only if each part is named with its own.
    pub(super) crc64nvme: Option<String>,
}

/// A finished upload, before it is published.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    pub(super) id: &'a str,
    pub(super) parts: &'a [Part],
    pub(super) size: u64,
    /// Publish only if the name is free.
    pub(super) exclusive: bool,
    /// The required tag of the object that has the name.
    pub(super) replaces: Option<&'a str>,
    /// The object that had the name when the upload began.
    pub(super) before: Option<&'a Meta>,
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
        let client = &self.wire.client;
        call::persist(client.limits.retry, &client.traffic, &self.wire.place, attempt).await
    }

    /// As [`persist`](Self::persist), for requests with long bodies, or that make the store copy.
    pub(super) async fn persist_upload<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let client = &self.wire.client;
        // All changes of objects pass here or through `tell`.
        self.ahead.changed();
        let done =
            call::persist(client.limits.for_uploads(), &client.traffic, &self.wire.place, attempt).await;
        self.ahead.changed();
        done
    }

    /// Longest silence of the store while it copies `bytes` bytes.
    fn patience(&self, bytes: u64) -> Duration {
        self.wire.client.limits.timeout + Duration::from_secs(bytes / COPY_RATE)
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
        let looked = self.persist(|| async {
            let incoming = self.wire.send(Outgoing::new(Method::HEAD, key), self.timeout()).await?;
            match incoming.status().as_u16() {
                404 => Ok(None),
                200..=299 => Ok(Some(incoming.headers().clone())),
                _ => Err(explained(place, incoming).await),
            }
        });
        looked.await
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
            Some(retry) => {
                let (traffic, place) = (&self.wire.client.traffic, &self.wire.place);
                call::go_on(retry, traffic, place, || self.page_once(pages)).await
            }
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
                let tag = format!("\"{}\"", hex(&Md5::digest(&bytes)));
                let found = self.head(key, place).await?;
                let ours =
                    found.filter(|found| found.size == size && found.version.etag.as_ref() == Some(&tag));
                return ours.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        // Detects a store that acknowledges an object and discards it, as after a multipart upload.
        let found = self.head(key, place).await?.ok_or_else(|| vanished(place))?;
        match etag {
            Some(etag) if !etag.starts_with("W/") => Ok(Meta {
                key: key.clone(),
                size,
                // The server sets its time.
                version: Validators { etag: Some(etag), modified: None, size: Some(size) },
                modified: Some(SystemTime::now()),
                coding: None,
                checksums: Checksums::default(),
                headers: found.headers,
            }),
            // Only the server's own time can replace a tag.
            _ => Ok(found),
        }
    }

    /// Begins an upload of an object with `headers`; with `copies`, an upload with parts that the
    /// server copies.
    pub(super) async fn begin(
        &self,
        key: &Key,
        place: &str,
        copies: bool,
        headers: &[Header],
    ) -> Result<String> {
        if !headers.is_empty() {
            return self.begin_with(key, copies, headers).await;
        }
        // A retry after a lost response leaves a stray upload, which `uploads` lists.
        self.parts.of(copies).create_multipart(key).await.map_err(|error| write_error(place, &error))
    }

    /// The library's call for that takes no metadata.
    async fn begin_with(&self, key: &Key, copies: bool, headers: &[Header]) -> Result<String> {
        let mut headers = headers.to_vec();
        headers.extend(self.wire.writing.iter().cloned());
        if self.verify && !copies {
            headers.push((CHECKSUM_ALGORITHM, "CRC64NVME".to_owned()));
        }
        let query = [("uploads", "")];
        let request =
            Outgoing { query: &query, headers: &headers, ..Outgoing::new(Method::POST, key.as_ref()) };
        let document = self.wire.xml(request, self.timeout()).await?;
        let id = xml::find(&document, "InitiateMultipartUploadResult", "UploadId");
        id.filter(|id| !id.is_empty()).ok_or_else(|| foreign(key.as_ref(), "it has no id of the upload"))
    }

    /// Uploads part `index`, from 0, to the upload `id`, which was begun with `copies` or not. One
    /// attempt.
    pub(super) async fn put_part(
        &self,
        key: &Key,
        place: &str,
        (id, copies): (&str, bool),
        index: usize,
        payload: PutPayload,
    ) -> Result<Part> {
        let put = self.parts.of(copies).put_part(key, &id.to_owned(), index, payload).await;
        let content_id = put.map_err(|error| write_error(place, &error))?.content_id;
        // With checksums, the library wraps the tag and the checksum in XML.
        let wrapped = |name| xml::find(content_id.as_bytes(), "PartMetadata", name);
        let crc64nvme = wrapped("checksum_crc64nvme");
        Ok(Part { etag: wrapped("e_tag").unwrap_or(content_id), crc64nvme })
    }

    /// Copies a range of an object into part `index`, on the server.
    pub(super) async fn copy_part(
        &self,
        key: &Key,
        id: &str,
        index: usize,
        source: &Meta,
        range: Range<u64>,
    ) -> Result<Part> {
        let number = (index + 1).to_string();
        let mut headers = vec![
            (COPY_SOURCE, format!("{}/{}", self.bucket, utf8_percent_encode(source.key.as_ref(), PATH))),
            (COPY_SOURCE_RANGE, format!("bytes={}-{}", range.start, range.end - 1)),
        ];
        headers.extend(copy_condition(&source.version));
        self.persist_upload(|| async {
            let query = [("partNumber", number.as_str()), ("uploadId", id)];
            let request =
                Outgoing { query: &query, headers: &headers, ..Outgoing::new(Method::PUT, key.as_ref()) };
            let patience = self.patience(range.end - range.start);
            let document = self.wire.xml(request, patience).await.map_err(|error| match error.kind() {
                // The condition is on the source.
                ErrorKind::Exists => crate::path::changed(source.key.as_ref()),
                _ => error,
            })?;
            let etag = xml::find(&document, "CopyPartResult", "ETag");
            let etag = etag.ok_or_else(|| foreign(key.as_ref(), "it has no tag of the copied part"))?;
            let crc64nvme = xml::find(&document, "CopyPartResult", checksum::CRC64NVME);
            Ok(Part { etag, crc64nvme })
        })
        .await
    }

    /// Publishes an upload.
    pub(super) async fn complete(&self, key: &Key, place: &str, made: Assembly<'_>) -> Result<Meta> {
        let completed = self.persist_upload(|| self.complete_once(key, place, &made)).await;
        match completed {
            Ok(()) => self.head(key, place).await?.ok_or_else(|| vanished(place)),
            // The response to an earlier attempt may have been lost: then the upload is gone and
            // its object exists.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => {
                let found = self.head(key, place).await?;
                found.filter(|found| made.is(found)).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn complete_once(&self, key: &Key, place: &str, made: &Assembly<'_>) -> Result<()> {
        if self.kind == Kind::Azure {
            // Another writer can come between this check and the copy: the library's call has no
            // condition.
            if made.exclusive && self.head(key, place).await?.is_some() {
                return Err(Error::new(ErrorKind::Exists, format!("{place}: is there already")));
            }
            let parts = made.parts.iter().map(|part| PartId { content_id: part.etag.clone() }).collect();
            let done = self.parts.sent.complete_multipart(key, &made.id.to_owned(), parts).await;
            return done.map(drop).map_err(|error| write_error(place, &error));
        }
        let mut body = String::from("<CompleteMultipartUpload>");
        for (index, part) in made.parts.iter().enumerate() {
            let (number, etag) = (index + 1, xml::escaped(&part.etag));
            let checksum = part.crc64nvme.as_deref().map(|crc| {
                let (name, crc) = (checksum::CRC64NVME, xml::escaped(crc));
                format!("<{name}>{crc}</{name}>")
            });
            let checksum = checksum.unwrap_or_default();
            body.push_str(&format!(
                "<Part>{checksum}<ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>"
            ));
        }
        body.push_str("</CompleteMultipartUpload>");
        let condition = match self.kind {
            Kind::Google => (GENERATION_MATCH, "0".to_owned()),
            _ => (http::header::IF_NONE_MATCH, "*".to_owned()),
        };
        let mut headers = if made.exclusive { vec![condition] } else { Vec::new() };
        headers.extend(made.replaces.map(|etag| (http::header::IF_MATCH, etag.to_owned())));
        let query = [("uploadId", made.id)];
        let request =
            Outgoing { query: &query, headers: &headers, body, ..Outgoing::new(Method::POST, key.as_ref()) };
        let document = self.wire.xml(request, self.patience(made.size)).await?;
        xml::read(&document, &["CompleteMultipartUploadResult"], |_, _| Ok(()))
            .map_err(|why| foreign(place, &why))
    }

    /// Aborts an upload.
    ///
    /// # Errors
    /// `NotFound` if it did not exist.
    pub(super) async fn abort(&self, key: &str, id: &str) -> Result<()> {
        if self.kind == Kind::Azure {
            // Unpublished uploads expire after a week.
            return Ok(());
        }
        let (query, mut tries) = ([("uploadId", id)], 0);
        let gone = self
            .persist(|| {
                tries += 1;
                self.tell(Method::DELETE, key, &query, &[])
            })
            .await;
        // After an attempt whose response was lost, it is gone by our own request.
        gone.or_else(
            |error| if error.kind() == ErrorKind::NotFound && tries > 1 { Ok(()) } else { Err(error) },
        )
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
        self.persist_upload(|| async {
            let request = Outgoing { headers: &headers, ..Outgoing::new(Method::PUT, to.as_ref()) };
            self.wire.document(request, self.patience(from.size)).await.map(drop)
        })
        .await
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
        let copied = self.copy_itself(key, from.size, &headers).await;
        let copied = match copied {
            Err(error) if error.kind() == ErrorKind::Unsupported && headers.len() == plain + 2 => {
                self.copy_itself(key, from.size, &headers[..=plain]).await
            }
            copied => copied,
        };
        copied.map_err(|error| match error.kind() {
            ErrorKind::Exists => crate::path::changed(place),
            _ => error,
        })
    }

    async fn copy_itself(&self, key: &str, size: u64, headers: &[Header]) -> Result<()> {
        self.persist_upload(|| async {
            let request = Outgoing { headers, ..Outgoing::new(Method::PUT, key) };
            self.wire.document(request, self.patience(size)).await.map(drop)
        })
        .await
    }

    /// Removes an object; succeeds if there is none.
    pub(super) async fn delete(&self, key: &str) -> Result<()> {
        let gone = self.persist(|| self.tell(Method::DELETE, key, &[], &[])).await;
        gone.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// Puts an empty object at any key, also at one that ends in `/`.
    pub(super) async fn mark(&self, key: &str, headers: &[Header]) -> Result<()> {
        let azure = [(AZURE_BLOB_TYPE, "BlockBlob".to_owned())];
        let headers: &[_] = if self.kind == Kind::Azure { &azure } else { headers };
        self.persist(|| self.tell(Method::PUT, key, &[], headers)).await
    }

    /// Unfinished uploads of keys that begin with `prefix`.
    pub(super) async fn uploads(&self, prefix: &str) -> Result<Vec<ListedUpload>> {
        if self.kind == Kind::Azure {
            return Ok(Vec::new());
        }
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut marker = (String::new(), String::new());
        loop {
            let mut query = vec![("uploads", ""), ("prefix", prefix)];
            if !marker.0.is_empty() {
                query.extend([("key-marker", marker.0.as_str()), ("upload-id-marker", marker.1.as_str())]);
            }
            let page = || Outgoing { query: &query, ..Outgoing::new(Method::GET, "") };
            let page = self.persist(|| self.wire.xml(page(), self.timeout())).await?;
            let page = listing::uploads(&page).map_err(|why| foreign(&self.wire.place, &why))?;
            found.extend(page.uploads.into_iter().filter(|upload| !upload.id.is_empty()));
            let next = match (page.truncated, page.next) {
                (Some(true), Some(next)) => next,
                (Some(true), None) => return Err(foreign(&self.wire.place, "more follows, but not where")),
                _ => return Ok(found),
            };
            // A server that repeats its pages would never end.
            if !seen.insert(next.clone()) || seen.len() > UPLOAD_PAGES_MAX {
                let why = "the list of unfinished uploads has no end";
                return Err(foreign(&self.wire.place, why));
            }
            marker = next;
        }
    }

    /// The parts of an upload that the store has, as far as each can be named at publication.
    pub(super) async fn uploaded_parts(&self, key: &str, id: &str) -> Result<Vec<ListedPart>> {
        if self.kind == Kind::Azure {
            return Ok(Vec::new());
        }
        let (mut found, mut marker) = (Vec::new(), 0);
        loop {
            let after = marker.to_string();
            let query = [("part-number-marker", after.as_str()), ("uploadId", id)];
            let page = || Outgoing { query: &query, ..Outgoing::new(Method::GET, key) };
            let page = self.persist(|| self.wire.xml(page(), self.timeout())).await?;
            let page = listing::parts(&page).map_err(|why| foreign(&self.wire.place, &why))?;
            found.extend(page.parts);
            match page.next {
                None => break,
                Some(next) if next > marker && found.len() <= PARTS_MAX => marker = next,
                Some(_) => return Err(foreign(&self.wire.place, "the list of parts has no end")),
            }
        }
        // An upload that was begun with checksums needs those of all parts for publication.
        let sums = self.kind == Kind::Amazon && self.verify;
        found.retain(|part| !sums || part.crc64nvme.is_some());
        Ok(found)
    }

    async fn tell(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: &[(HeaderName, String)],
    ) -> Result<()> {
        self.ahead.changed();
        let request = Outgoing { query, headers, ..Outgoing::new(method, key) };
        let told = self.wire.document(request, self.timeout()).await.map(drop);
        self.ahead.changed();
        told
    }
}

impl Assembly<'_> {
    /// Whether `found` is the result of this upload.
    fn is(&self, found: &Meta) -> bool {
        let tag = found.version.etag.as_deref().unwrap_or_default();
        // An upload's tag is the MD5 of its parts' MD5 sums, with their number, if the parts' tags
        // are MD5 sums.
        match self.parts.iter().map(|part| unhex(part.etag.trim_matches('"'))).collect::<Option<Vec<_>>>() {
            Some(sums) if tag.trim_matches('"').ends_with(&format!("-{}", sums.len())) => {
                let sum = Md5::digest(sums.concat());
                found.size == self.size && tag.trim_matches('"') == format!("{}-{}", hex(&sum), sums.len())
            }
            // For other tags, only that the object is new and has the right size.
            _ => {
                found.size == self.size
                    && self.before.is_none_or(|before| before.version.etag != found.version.etag)
            }
        }
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

fn vanished(place: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{place}: was written, and has been removed since"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 16 bytes of an MD5 sum from hexadecimal digits.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Least bytes a second at which a store copies and completes uploads.
const COPY_RATE: u64 = 16 << 20;
/// Most pages of unfinished uploads: ten million uploads, more than any bucket has.
const UPLOAD_PAGES_MAX: usize = 10_000;
/// Most parts of an upload.
const PARTS_MAX: usize = 50_000;
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
