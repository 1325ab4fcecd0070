//! Multipart uploads: begin, send or copy parts, publish, abort, and list what is unfinished.

use super::*;

/// An accepted part, as the request that publishes the upload names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::net) struct Part {
    pub(in crate::net) etag: String,
    /// The store's CRC-64/NVME of it, in Base64. Some stores publish an upload that was created
    /// with checksums only if each part is named with its own.
    pub(in crate::net) crc64nvme: Option<String>,
}

/// A finished upload, before it is published.
#[derive(Debug)]
pub(in crate::net) struct Assembly<'a> {
    pub(in crate::net) id: &'a str,
    pub(in crate::net) parts: &'a [Part],
    pub(in crate::net) size: u64,
    /// Publish only if the name is free.
    pub(in crate::net) exclusive: bool,
    /// The required tag of the object that has the name.
    pub(in crate::net) replaces: Option<&'a str>,
    /// The object that had the name when the upload began.
    pub(in crate::net) before: Option<&'a Meta>,
}

impl Cloud {
    /// Begins an upload of an object with `headers`; with `copies`, an upload with parts that the
    /// server copies.
    pub(in crate::net) async fn begin(
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
    pub(in crate::net) async fn put_part(
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
    pub(in crate::net) async fn copy_part(
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
    pub(in crate::net) async fn complete(
        &self,
        key: &Key,
        place: &str,
        assembly: Assembly<'_>,
    ) -> Result<Meta> {
        let mut change = self.names.change(key.as_ref());
        let completed = self.persist_upload(|| self.complete_once(key, place, &assembly)).await;
        let completed = match completed {
            Ok(()) => self.head(key, place).await?.ok_or_else(|| vanished(place)),
            // The response to an earlier attempt may have been lost. Then the object exists, and
            // its upload no longer does.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => {
                let found = self.head(key, place).await?;
                found.filter(|found| assembly.is(found)).ok_or(error)
            }
            Err(error) => Err(error),
        };
        change.done(completed.as_ref().map_or(Known::Unknown, Meta::known));
        completed
    }

    async fn complete_once(&self, key: &Key, place: &str, assembly: &Assembly<'_>) -> Result<()> {
        if self.kind == Kind::Azure {
            // Another writer can come between this check and the copy: the library's call has no
            // condition.
            if assembly.exclusive && self.head(key, place).await?.is_some() {
                return Err(Error::new(ErrorKind::Exists, format!("{place}: is there already")));
            }
            let parts = assembly.parts.iter().map(|part| PartId { content_id: part.etag.clone() }).collect();
            let done = self.parts.sent.complete_multipart(key, &assembly.id.to_owned(), parts).await;
            return done.map(drop).map_err(|error| write_error(place, &error));
        }
        let mut body = String::from("<CompleteMultipartUpload>");
        for (index, part) in assembly.parts.iter().enumerate() {
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
        let mut headers = if assembly.exclusive { vec![condition] } else { Vec::new() };
        headers.extend(assembly.replaces.map(|etag| (http::header::IF_MATCH, etag.to_owned())));
        let query = [("uploadId", assembly.id)];
        let request =
            Outgoing { query: &query, headers: &headers, body, ..Outgoing::new(Method::POST, key.as_ref()) };
        let document = self.wire.xml(request, self.patience(assembly.size)).await?;
        xml::read(&document, &["CompleteMultipartUploadResult"], |_, _| Ok(()))
            .map_err(|why| foreign(place, &why))
    }

    /// Aborts an upload.
    ///
    /// # Errors
    /// `NotFound` if it did not exist.
    pub(in crate::net) async fn abort(&self, key: &str, id: &str) -> Result<()> {
        if self.kind == Kind::Azure {
            // Unpublished uploads expire after a week.
            return Ok(());
        }
        let (query, mut tries) = ([("uploadId", id)], 0);
        let gone = self
            .persist(|| {
                tries += 1;
                self.change(Method::DELETE, key, &query, &[])
            })
            .await;
        // After an attempt whose response was lost, our own request has removed it.
        gone.or_else(
            |error| if error.kind() == ErrorKind::NotFound && tries > 1 { Ok(()) } else { Err(error) },
        )
    }

    /// Unfinished uploads of keys that begin with `prefix`.
    pub(in crate::net) async fn uploads(&self, prefix: &str) -> Result<Vec<ListedUpload>> {
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
    pub(in crate::net) async fn uploaded_parts(&self, key: &str, id: &str) -> Result<Vec<ListedPart>> {
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
                Some(next) if next > marker && found.len() <= LISTED_PARTS_MAX => marker = next,
                Some(_) => return Err(foreign(&self.wire.place, "the list of parts has no end")),
            }
        }
        // An upload that was begun with checksums needs those of all parts for publication.
        let sums = self.kind == Kind::Amazon && self.verify;
        found.retain(|part| !sums || part.crc64nvme.is_some());
        Ok(found)
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

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 16 bytes of an MD5 sum from hexadecimal digits.
pub(in crate::net) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Most pages of unfinished uploads: ten million uploads, more than any bucket has.
const UPLOAD_PAGES_MAX: usize = 10_000;
/// Most parts of an upload.
const LISTED_PARTS_MAX: usize = 50_000;
