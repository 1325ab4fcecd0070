//! Correct responses of every dialect.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use super::Dialect;
use super::answer::Answer;
use super::bucket::{Bucket, Incomplete, Stored, hex};
use super::checksums::{self, Checksum};
use super::listing::Page;
use super::request::{Kind, Request};
use super::time::rfc1123;

/// Path of the bucket, the container, or the web server's directory.
pub(super) const ROOT: &str = "/data";

/// How the server identifies versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validators {
    pub(super) etag: Tag,
    /// Whether `Last-Modified` is sent.
    pub(super) modified: bool,
    /// Whether conditions of requests are honoured.
    pub(super) conditions: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Right,
    Absent,
    AbsentInGets,
    /// The same for all versions.
    Constant(&'static str),
}

impl Validators {
    pub(super) const RIGHT: Self = Self { etag: Tag::Right, modified: true, conditions: true };

    fn etag(self, stored: &Stored, kind: Kind) -> Option<String> {
        match self.etag {
            Tag::Right => Some(stored.etag.clone()),
            Tag::Absent => None,
            Tag::AbsentInGets => Some(stored.etag.clone()).filter(|_| kind == Kind::Head),
            Tag::Constant(tag) => Some(tag.to_owned()),
        }
    }
}

/// Settings that affect responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) dialect: Dialect,
    pub(super) validators: Validators,
    pub(super) checksum: Option<Checksum>,
}

/// The key in a request; `None` for the bucket.
pub(super) fn key(request: &Request) -> Option<&str> {
    request.path.strip_prefix(ROOT)?.strip_prefix('/').filter(|key| !key.is_empty())
}

/// Performs `request` and returns the response.
pub(super) fn answer(bucket: &mut Bucket, request: &Request, setting: Setting) -> Answer {
    let Some(key) = key(request) else {
        return match (request.kind(), setting.dialect) {
            (Kind::List, _) => list(bucket, request, setting.dialect),
            (Kind::Head | Kind::Get, Dialect::Http) => index(),
            (Kind::Head, _) if request.path.starts_with(ROOT) => Answer::new(200),
            _ => Answer::error(404, "NoSuchBucket"),
        };
    };
    match request.kind() {
        Kind::Head | Kind::Get => match bucket.get(key) {
            Some(stored) => object(stored, request, setting),
            None if setting.dialect == Dialect::Http => directory(bucket, key),
            None => Answer::error(404, "NoSuchKey"),
        },
        _ if setting.dialect == Dialect::Http => Answer::error(405, "MethodNotAllowed"),
        Kind::List => Answer::error(404, "NoSuchKey"),
        Kind::Put => put(bucket, key, request, setting.dialect),
        Kind::Post => post(bucket, key, request),
        Kind::Delete => delete(bucket, key, request, setting.dialect),
    }
}

fn list(bucket: &Bucket, request: &Request, dialect: Dialect) -> Answer {
    if request.query("uploads").is_some() {
        let uploads = bucket
            .uploads()
            .map(|(key, id)| format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"));
        let uploads: String = uploads.collect();
        return Answer::xml(format!(
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{uploads}</ListMultipartUploadsResult>"
        ));
    }
    Answer::xml(Page::of(bucket, request).xml(dialect))
}

fn index() -> Answer {
    Answer::new(200).header("Content-Type", "text/html").body(b"<html>a directory</html>".to_vec())
}

/// Web servers redirect to the name with a slash.
fn directory(bucket: &Bucket, key: &str) -> Answer {
    let prefix = format!("{}/", key.trim_end_matches('/'));
    match bucket.objects().any(|(key, _)| key.starts_with(&prefix)) {
        true if key.ends_with('/') => index(),
        true => Answer::new(301).header("Location", format!("{ROOT}/{key}/")),
        false => Answer::error(404, "NoSuchKey"),
    }
}

fn object(stored: &Stored, request: &Request, setting: Setting) -> Answer {
    let Setting { dialect, validators, checksum } = setting;
    let etag = validators.etag(stored, request.kind());
    if validators.conditions && !holds(request, stored, etag.as_deref()) {
        return Answer::error(412, "PreconditionFailed");
    }
    let size = stored.bytes.len();
    let asked_checksum = checksum.filter(|_| dialect == Dialect::S3);
    if let Some(checksum) = asked_checksum
        && request.query("attributes").is_some()
    {
        return Answer::xml(checksum.attributes(stored));
    }
    let part = request.query("partNumber").and_then(|number| number.parse::<usize>().ok());
    let part = part.filter(|_| dialect == Dialect::S3);
    let asked = match part {
        Some(1) if stored.parts.is_empty() => Some(Ok((0, size))),
        Some(number) => match checksums::parts(stored).nth(number.wrapping_sub(1)) {
            Some(range) => Some(Ok(range)),
            None => return Answer::error(416, "InvalidPartNumber"),
        },
        None => request.range(size),
    };
    let (from, end) = match asked {
        None => (0, size),
        Some(Ok(range)) => range,
        Some(Err(())) => {
            return Answer::error(416, "InvalidRange").header("Content-Range", format!("bytes */{size}"));
        }
    };
    let mut answer = Answer::new(if asked.is_some() { 206 } else { 200 });
    answer.set("ETag", etag);
    answer.set("Last-Modified", validators.modified.then(|| rfc1123(stored.modified)));
    answer = answer.header("Accept-Ranges", "bytes").header("Content-Type", "application/octet-stream");
    if asked.is_some() {
        answer = answer.header("Content-Range", format!("bytes {from}-{}/{size}", end.saturating_sub(1)));
    }
    if part.is_some() && !stored.parts.is_empty() {
        answer = answer.header("x-amz-mp-parts-count", stored.parts.len().to_string());
    }
    if let Some(checksum) =
        asked_checksum.filter(|_| request.header("x-amz-checksum-mode") == Some("ENABLED"))
    {
        answer = with_checksum(answer, checksum, stored, (from, end));
    }
    if dialect == Dialect::Google {
        let sum = Checksum::Crc32c.of(&stored.bytes);
        answer = answer.header("x-goog-hash", format!("crc32c={sum}"));
    }
    answer.body(stored.bytes[from..end].to_vec())
}

/// Adds the checksum of a whole object or one of its parts; S3 has none for other ranges.
fn with_checksum(answer: Answer, checksum: Checksum, stored: &Stored, range: (usize, usize)) -> Answer {
    let name = format!("x-amz-checksum-{}", checksum.name());
    if range == (0, stored.bytes.len()) {
        let (sum, kind) = checksum.of_object(stored);
        return answer.header(&name, sum).header("x-amz-checksum-type", kind);
    }
    match checksums::parts(stored).any(|part| part == range) {
        true => answer.header(&name, checksum.of(&stored.bytes[range.0..range.1])),
        false => answer,
    }
}

/// Whether the conditions of a read hold.
fn holds(request: &Request, stored: &Stored, etag: Option<&str>) -> bool {
    if let Some(wanted) = request.header("if-match") {
        // A weak tag never matches.
        return wanted == "*" || etag.is_some_and(|etag| etag == wanted && !etag.starts_with("W/"));
    }
    // Times are compared as text in our own format. A new version is a minute later.
    let same = |time| [0, 1].into_iter().any(|later| time == rfc1123(stored.modified + later));
    request.header("if-unmodified-since").is_none_or(same)
}

fn put(bucket: &mut Bucket, key: &str, request: &Request, dialect: Dialect) -> Answer {
    if let Some(refused) = refusal(bucket, key, request) {
        return refused;
    }
    let bytes = request.body.clone();
    if let (Some(id), Some(number)) = (request.query("uploadId"), request.query("partNumber")) {
        let number = number.parse().unwrap_or(0);
        return match bucket.put_part(id, number, bytes) {
            None => Answer::error(404, "NoSuchUpload"),
            Some(etag) => Answer::new(200).header("ETag", etag),
        };
    }
    let etag = match (request.query("comp"), request.query("blockid")) {
        (Some("block"), Some(id)) => {
            bucket.put_block(key, id, bytes);
            return Answer::new(201);
        }
        (Some("blocklist"), _) => match bucket.put_block_list(key, &texts(&bytes, "Latest", "Uncommitted")) {
            Some(etag) => etag,
            None => return Answer::error(400, "InvalidBlockList"),
        },
        _ => bucket.put(key, bytes),
    };
    stored(bucket, key, etag, dialect)
}

/// The response to a completed PUT.
fn stored(bucket: &Bucket, key: &str, etag: String, dialect: Dialect) -> Answer {
    let modified = rfc1123(bucket.get(key).map_or(0, |stored| stored.modified));
    match dialect {
        Dialect::Azure => Answer::new(201).header("ETag", etag).header("Last-Modified", modified),
        _ => Answer::new(200).header("ETag", etag),
    }
}

/// The response to a write whose conditions or checksums fail.
fn refusal(bucket: &Bucket, key: &str, request: &Request) -> Option<Answer> {
    if !may_write(bucket, key, request) {
        return Some(Answer::error(412, "PreconditionFailed"));
    }
    let wrong = Checksum::ALL.into_iter().any(|sum| {
        let sent = request.header(&format!("x-amz-checksum-{}", sum.name()));
        sent.is_some_and(|sent| sent != sum.of(&request.body))
    });
    let md5 =
        request.header("content-md5").is_some_and(|sent| sent != STANDARD.encode(Md5::digest(&request.body)));
    (wrong || md5).then(|| Answer::error(400, "BadDigest"))
}

/// Whether the conditions of a write hold.
fn may_write(bucket: &Bucket, key: &str, request: &Request) -> bool {
    let existing = bucket.get(key);
    let exclusive = request.header("if-none-match") == Some("*")
        || request.header("x-goog-if-generation-match") == Some("0");
    let wanted = request.header("if-match").filter(|wanted| *wanted != "*");
    let is_wanted = wanted.is_none_or(|wanted| existing.is_some_and(|stored| stored.etag == wanted));
    is_wanted && !(exclusive && existing.is_some())
}

fn post(bucket: &mut Bucket, key: &str, request: &Request) -> Answer {
    if request.query("uploads").is_some() {
        let id = bucket.begin(key);
        return Answer::xml(format!(
            "<InitiateMultipartUploadResult><Bucket>data</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>"
        ));
    }
    let Some(id) = request.query("uploadId") else { return Answer::error(400, "InvalidRequest") };
    if !may_write(bucket, key, request) {
        return Answer::error(412, "PreconditionFailed");
    }
    let numbers = texts(&request.body, "PartNumber", "PartNumber");
    let tags = texts(&request.body, "ETag", "ETag");
    let parts = numbers.iter().zip(tags).map(|(number, tag)| (number.parse().unwrap_or(0), tag));
    let parts: Vec<_> = parts.map(|(number, tag)| (number, tag.replace("&quot;", "\""))).collect();
    match bucket.complete(id, &parts) {
        Ok(etag) => Answer::xml(format!(
            "<CompleteMultipartUploadResult><Bucket>data</Bucket><Key>{key}</Key><ETag>{etag}</ETag>\
             </CompleteMultipartUploadResult>"
        )),
        Err(Incomplete::NoSuchUpload) => Answer::error(404, "NoSuchUpload"),
        Err(Incomplete::InvalidPart) => Answer::error(400, "InvalidPart"),
    }
}

fn delete(bucket: &mut Bucket, key: &str, request: &Request, dialect: Dialect) -> Answer {
    if let Some(id) = request.query("uploadId") {
        return match bucket.abort(id) {
            true => Answer::new(204),
            false => Answer::error(404, "NoSuchUpload"),
        };
    }
    match (bucket.remove(key), dialect) {
        (true, Dialect::Azure) => Answer::new(202),
        (false, Dialect::Azure | Dialect::Google) => Answer::error(404, "NoSuchKey"),
        _ => Answer::new(204),
    }
}

/// The texts of elements with either name, in order.
fn texts(xml: &[u8], name: &str, other: &str) -> Vec<String> {
    let xml = String::from_utf8_lossy(xml);
    let pieces = xml.split('<').filter_map(|piece| {
        let (element, text) = piece.split_once('>')?;
        (element == name || element == other).then(|| text.to_owned())
    });
    pieces.collect()
}

/// A tag that no content has.
pub(super) fn wrong_tag() -> String {
    format!("\"{}\"", hex(&[0xab; 16]))
}
