//! What a cloud does to objects, each request tried until it is clear how it ended.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use md5::{Digest as _, Md5};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};

use super::client::COPY_PATIENCE;
use super::version::store_error;
use super::wire::{Ask, Wire, encoded};
use super::{validator, xml};
use crate::{Error, ErrorKind, Result};

/// A bucket that can be written.
#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) kind: Kind,
    pub(super) bucket: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) parts: Parts,
    pub(super) wire: Wire,
}

/// Whose cloud it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// S3 and what speaks as it does.
    Amazon,
    Google,
    Azure,
}

/// The library's calls for uploads.
pub(super) struct Parts(pub(super) Arc<dyn MultipartStore>);

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// An unfinished upload, as a cloud lists it.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) begun: Option<SystemTime>,
}

/// A finished upload, before it is published.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    pub(super) id: &'a str,
    pub(super) parts: &'a [PartId],
    pub(super) size: u64,
    /// Publish only if nothing has the name.
    pub(super) exclusive: bool,
    /// What had the name when the upload was begun.
    pub(super) before: Option<&'a ObjectMeta>,
}

impl Cloud {
    /// Whether the server copies ranges of objects into parts.
    pub(super) fn copies_parts(&self) -> bool {
        self.kind == Kind::Amazon
    }

    pub(super) async fn head(&self, key: &Key, place: &str) -> Result<Option<ObjectMeta>> {
        persist(|| self.head_once(key, place)).await
    }

    /// As [`Self::head`], for who tries again by itself.
    pub(super) async fn head_once(&self, key: &Key, place: &str) -> Result<Option<ObjectMeta>> {
        match self.store.head(key).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(place, &error)),
        }
    }

    /// Makes `bytes` the object, at once.
    pub(super) async fn put(
        &self,
        key: &Key,
        place: &str,
        bytes: Bytes,
        exclusive: bool,
    ) -> Result<ObjectMeta> {
        let size = bytes.len() as u64;
        let put = persist(|| async {
            let mode = if exclusive { PutMode::Create } else { PutMode::Overwrite };
            let options = PutOptions { mode, ..PutOptions::default() };
            let payload = PutPayload::from_bytes(bytes.clone());
            self.store.put_opts(key, payload, options).await.map_err(|error| write_error(place, &error))
        })
        .await;
        let etag = match put {
            Ok(put) => put.e_tag,
            Err(error) if error.kind() == ErrorKind::Exists => {
                // It may be ours: an earlier try whose answer was lost.
                let tag = format!("\"{}\"", hex(&Md5::digest(&bytes)));
                let found = self.head(key, place).await?;
                let ours = found.filter(|found| found.size == size && found.e_tag.as_ref() == Some(&tag));
                return ours.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        match etag {
            Some(etag) if !etag.starts_with("W/") => Ok(ObjectMeta {
                location: key.clone(),
                last_modified: SystemTime::now().into(),
                size,
                e_tag: Some(etag),
                version: None,
            }),
            // Only the server's own time can stand in for a tag.
            _ => self.head(key, place).await?.ok_or_else(|| vanished(place)),
        }
    }

    /// Begins an upload.
    pub(super) async fn begin(&self, key: &Key, place: &str) -> Result<String> {
        // Not tried again at once: a try whose answer was lost leaves a stray upload.
        self.parts.0.create_multipart(key).await.map_err(|error| write_error(place, &error))
    }

    /// Uploads part `index`, from 0. Tries once.
    pub(super) async fn put_part(
        &self,
        key: &Key,
        place: &str,
        id: &str,
        index: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        let put = self.parts.0.put_part(key, &id.to_owned(), index, payload).await;
        put.map_err(|error| write_error(place, &error))
    }

    /// Makes a range of an object the part `index`, on the server.
    pub(super) async fn copy_part(
        &self,
        key: &Key,
        id: &str,
        index: usize,
        source: &ObjectMeta,
        range: Range<u64>,
    ) -> Result<PartId> {
        let number = (index + 1).to_string();
        let mut headers = vec![
            ("x-amz-copy-source", format!("{}/{}", self.bucket, encoded(source.location.as_ref(), true))),
            ("x-amz-copy-source-range", format!("bytes={}-{}", range.start, range.end - 1)),
        ];
        if let Some(etag) = source.e_tag.clone().filter(|etag| !etag.starts_with("W/")) {
            headers.push(("x-amz-copy-source-if-match", etag));
        }
        persist(|| async {
            let query = [("partNumber", number.as_str()), ("uploadId", id)];
            let ask = Ask {
                method: Method::PUT,
                key: key.as_ref(),
                query: &query,
                headers: &headers,
                body: String::new(),
            };
            let answer =
                self.wire.ask_patiently(ask, COPY_PATIENCE).await.map_err(|error| match error.kind() {
                    // The condition is on the source.
                    ErrorKind::Exists => crate::path::changed(source.location.as_ref()),
                    _ => error,
                })?;
            let etag = xml::text(&answer, "ETag");
            let content_id = etag.ok_or_else(|| {
                Error::new(
                    ErrorKind::Protocol,
                    format!("{key}: the server copied a part and gave no tag for it"),
                )
            })?;
            Ok(PartId { content_id })
        })
        .await
    }

    /// Publishes an upload.
    pub(super) async fn complete(&self, key: &Key, place: &str, made: Assembly<'_>) -> Result<ObjectMeta> {
        let completed = persist(|| self.complete_once(key, place, &made)).await;
        match completed {
            Ok(()) => self.head(key, place).await?.ok_or_else(|| vanished(place)),
            // The answer to an earlier try may have been lost: then the upload is gone, and its object there.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => {
                let found = self.head(key, place).await?;
                found.filter(|found| made.is(found)).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn complete_once(&self, key: &Key, place: &str, made: &Assembly<'_>) -> Result<()> {
        if self.kind == Kind::Azure {
            // Between this look and the deed another writer can slip in: the library's call has no condition.
            if made.exclusive && self.head(key, place).await?.is_some() {
                return Err(Error::new(ErrorKind::Exists, format!("{place}: is there already")));
            }
            let done = self.parts.0.complete_multipart(key, &made.id.to_owned(), made.parts.to_vec()).await;
            return done.map(drop).map_err(|error| write_error(place, &error));
        }
        let mut body = String::from("<CompleteMultipartUpload>");
        for (index, part) in made.parts.iter().enumerate() {
            let tag = xml::escaped(&part.content_id);
            body.push_str(&format!("<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>", index + 1));
        }
        body.push_str("</CompleteMultipartUpload>");
        let condition = match self.kind {
            Kind::Google => ("x-goog-if-generation-match", "0".to_owned()),
            _ => ("if-none-match", "*".to_owned()),
        };
        let headers = if made.exclusive { std::slice::from_ref(&condition) } else { &[] };
        let query = [("uploadId", made.id)];
        let ask = Ask { method: Method::POST, key: key.as_ref(), query: &query, headers, body };
        self.wire.ask_patiently(ask, COPY_PATIENCE).await.map(drop)
    }

    /// Gives an upload up.
    ///
    /// # Errors
    /// `NotFound` if it was gone before.
    pub(super) async fn abort(&self, key: &str, id: &str) -> Result<()> {
        if self.kind == Kind::Azure {
            // What was not published goes away by itself, after a week.
            return Ok(());
        }
        let (query, mut tries) = ([("uploadId", id)], 0);
        let gone = persist(|| {
            tries += 1;
            self.tell(Method::DELETE, key, &query, &[])
        })
        .await;
        // After a try whose answer was lost it is gone by our doing.
        gone.or_else(
            |error| if error.kind() == ErrorKind::NotFound && tries > 1 { Ok(()) } else { Err(error) },
        )
    }

    /// Copies a whole object on the server.
    pub(super) async fn copy(&self, from: &Key, to: &Key, place: &str, exclusive: bool) -> Result<()> {
        persist(|| async {
            let copied = match exclusive {
                true => self.store.copy_if_not_exists(from, to).await,
                false => self.store.copy(from, to).await,
            };
            copied.map_err(|error| write_error(place, &error))
        })
        .await
    }

    /// Removes an object; none is as well.
    pub(super) async fn delete(&self, key: &str) -> Result<()> {
        let gone = persist(|| self.tell(Method::DELETE, key, &[], &[])).await;
        gone.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// Puts an empty object at any key, also at one that ends in `/`.
    pub(super) async fn mark(&self, key: &str) -> Result<()> {
        let azure = [("x-ms-blob-type", "BlockBlob".to_owned())];
        let headers: &[_] = if self.kind == Kind::Azure { &azure } else { &[] };
        persist(|| self.tell(Method::PUT, key, &[], headers)).await
    }

    /// Unfinished uploads of keys that begin with `prefix`.
    pub(super) async fn uploads(&self, prefix: &str) -> Result<Vec<Listed>> {
        if self.kind == Kind::Azure {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let mut marker = (String::new(), String::new());
        loop {
            let mut query = vec![("uploads", ""), ("prefix", prefix)];
            if !marker.0.is_empty() {
                query.extend([("key-marker", marker.0.as_str()), ("upload-id-marker", marker.1.as_str())]);
            }
            let ask =
                || Ask { method: Method::GET, key: "", query: &query, headers: &[], body: String::new() };
            let page = persist(|| self.wire.ask(ask())).await?;
            found.extend(xml::each(&page, "Upload").filter_map(|upload| {
                let begun = xml::text(upload, "Initiated").and_then(|time| validator::rfc3339(&time));
                Some(Listed { key: xml::text(upload, "Key")?, id: xml::text(upload, "UploadId")?, begun })
            }));
            let next = xml::text(&page, "NextKeyMarker").filter(|next| !next.is_empty());
            let next = next.map(|key| (key, xml::text(&page, "NextUploadIdMarker").unwrap_or_default()));
            match next {
                // A server that repeats itself would keep us here for ever.
                Some(next)
                    if next != marker && xml::text(&page, "IsTruncated").as_deref() == Some("true") =>
                {
                    marker = next;
                }
                _ => return Ok(found),
            }
        }
    }

    async fn tell(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: &[(&'static str, String)],
    ) -> Result<()> {
        self.wire.ask(Ask { method, key, query, headers, body: String::new() }).await.map(drop)
    }
}

impl Assembly<'_> {
    /// Whether `found` is what this upload has become.
    fn is(&self, found: &ObjectMeta) -> bool {
        let tag = found.e_tag.as_deref().unwrap_or_default();
        // An upload's tag is the MD5 sum of its parts' MD5 sums, and their number, where those are what their tags are.
        match self
            .parts
            .iter()
            .map(|part| unhex(part.content_id.trim_matches('"')))
            .collect::<Option<Vec<_>>>()
        {
            Some(sums) if tag.trim_matches('"').ends_with(&format!("-{}", sums.len())) => {
                let sum = Md5::digest(sums.concat());
                found.size == self.size && tag.trim_matches('"') == format!("{}-{}", hex(&sum), sums.len())
            }
            // Of other tags all that can be said is that the object is a new one of the right size.
            _ => found.size == self.size && self.before.is_none_or(|before| before.e_tag != found.e_tag),
        }
    }
}

/// Tries until it is done, or cannot be done, or was tried often enough.
pub(super) async fn persist<T, F>(mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = PAUSE_FIRST;
    for _ in 1..TRIES {
        match attempt().await {
            Err(error) if error.is_retryable() => {
                tokio::time::sleep(error.retry_after().unwrap_or(pause).min(PAUSE_MAX)).await;
                pause *= 2;
            }
            result => return result,
        }
    }
    attempt().await
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

fn vanished(place: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{place}: was written, and has been removed since"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 16 bytes of an MD5 sum in hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Times that a request is tried, as the engine does with reads.
const TRIES: u32 = 6;
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(5);
