//! Responses: the part of S3 that reads need.

use std::fmt::Write as _;

use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE};
use hyper::http::response::Builder;
use hyper::{Method, Request, Response, StatusCode};

/// A response before it is slowed down.
pub(super) struct Answer {
    pub(super) head: Builder,
    /// Its body, if not from an object.
    pub(super) text: Option<String>,
    /// The object's bytes in the body.
    pub(super) range: (u64, u64),
    /// The object.
    pub(super) number: usize,
    pub(super) own: Own,
}

/// The server's own endpoints, served at once and not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    No,
    Pattern,
    Counters,
}

const MODIFIED: &str = "Sun, 01 Nov 2026 00:00:00 GMT";

impl Answer {
    pub(super) fn to<B>(request: &Request<B>, objects: &[(String, u64)]) -> Self {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or("");
        match path {
            "/_pattern" => return Self { own: Own::Pattern, ..Self::text(StatusCode::OK, String::new()) },
            "/_counters" => return Self { own: Own::Counters, ..Self::text(StatusCode::OK, String::new()) },
            _ => {}
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Self::error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed");
        }
        let head = request.method() == Method::HEAD;
        let Some(path) = path.strip_prefix("/data").filter(|rest| rest.is_empty() || rest.starts_with('/'))
        else {
            return Self::error(StatusCode::NOT_FOUND, "NoSuchBucket");
        };
        let key = path.trim_start_matches('/');
        if key.is_empty() {
            return if head { Self::text(StatusCode::OK, String::new()) } else { Self::list(query, objects) };
        }
        let Some((number, &(_, bytes))) = objects.iter().enumerate().find(|(_, (name, _))| name == key)
        else {
            return if head {
                Self::text(StatusCode::NOT_FOUND, String::new())
            } else {
                Self::error(StatusCode::NOT_FOUND, "NoSuchKey")
            };
        };
        let range = request.headers().get(RANGE).and_then(|value| value.to_str().ok());
        Self::object(number, bytes, range, head)
    }

    fn object(number: usize, bytes: u64, range: Option<&str>, head: bool) -> Self {
        let wanted = match range.map(|range| wanted(range, bytes)) {
            Some(None) => return Self::error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
            Some(Some(range)) => range,
            None => (0, bytes),
        };
        let mut answer = Response::builder()
            .header(ETAG, tag(number))
            .header(LAST_MODIFIED, MODIFIED)
            .header(ACCEPT_RANGES, "bytes")
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, wanted.1 - wanted.0);
        if range.is_some() {
            let says = format!("bytes {}-{}/{bytes}", wanted.0, wanted.1 - 1);
            answer = answer.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, says);
        }
        let text = head.then(String::new);
        Self { head: answer, text, range: wanted, number, own: Own::No }
    }

    /// Lists the objects with the requested prefix, without directories.
    fn list(query: &str, objects: &[(String, u64)]) -> Self {
        if query.split('&').any(|part| part == "location" || part == "location=") {
            let text = "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
            return Self::text(StatusCode::OK, text.to_owned());
        }
        let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix=")).unwrap_or("");
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>data</Name><MaxKeys>1000</MaxKeys>\
             <IsTruncated>false</IsTruncated>",
        );
        let listed = || objects.iter().enumerate().filter(|(_, (key, _))| key.starts_with(prefix));
        // Writing to a string does not fail.
        let _ = write!(text, "<Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount>", listed().count());
        for (number, (key, bytes)) in listed() {
            let tag = tag(number);
            let _ = write!(
                text,
                "<Contents><Key>{key}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified><ETag>{tag}</ETag>\
                 <Size>{bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            );
        }
        text.push_str("</ListBucketResult>");
        Self::text(StatusCode::OK, text)
    }

    fn error(status: StatusCode, code: &str) -> Self {
        Self::text(status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
    }

    fn text(status: StatusCode, text: String) -> Self {
        let head = Response::builder().status(status).header(CONTENT_TYPE, "application/xml");
        Self { head, text: Some(text), range: (0, 0), number: 0, own: Own::No }
    }
}

/// In the form of a multipart tag, so that no client takes it for an MD5 sum.
fn tag(number: usize) -> String {
    format!("\"{number:032x}-2\"")
}

/// The bytes of a range header, if any.
fn wanted(range: &str, bytes: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    if from.is_empty() {
        return Some((bytes.saturating_sub(to.parse().ok()?), bytes)).filter(|(from, to)| from < to);
    }
    let from = from.parse().ok()?;
    let last = if to.is_empty() { u64::MAX } else { to.parse::<u64>().ok()? };
    Some((from, last.saturating_add(1).min(bytes))).filter(|(from, to)| from < to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &str, range: Option<&str>) -> (StatusCode, (u64, u64), Option<String>) {
        let objects = [("a".to_owned(), 1000), ("big".to_owned(), 1 << 36)];
        let mut request = Request::builder().uri(path);
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let answer = Answer::to(&request.body(()).expect("a request"), &objects);
        (answer.head.body(()).expect("a head").status(), answer.range, answer.text)
    }

    #[test]
    fn ranges_are_what_their_headers_say() {
        assert_eq!(answer("/data/a", None), (StatusCode::OK, (0, 1000), None));
        assert_eq!(answer("/data/a", Some("bytes=10-19")), (StatusCode::PARTIAL_CONTENT, (10, 20), None));
        assert_eq!(answer("/data/a", Some("bytes=990-")).1, (990, 1000));
        assert_eq!(answer("/data/a", Some("bytes=-7")).1, (993, 1000));
        assert_eq!(answer("/data/big", Some("bytes=68719476735-68719999999")).1, ((1 << 36) - 1, 1 << 36));
        for range in ["bytes=1000-", "bytes=9-3", "bytes=x-", "lines=1-2", "bytes=-0"] {
            assert_eq!(answer("/data/a", Some(range)).0, StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
        }
    }

    #[test]
    fn lists_have_what_begins_as_asked_for() {
        let (_, _, text) = answer("/data?list-type=2&prefix=b&delimiter=%2F", None);
        let text = text.expect("a list");
        assert!(text.contains("<Key>big</Key>") && !text.contains("<Key>a</Key>"), "{text}");
        assert_eq!(answer("/data/none", None).0, StatusCode::NOT_FOUND);
        assert_eq!(answer("/other/a", None).0, StatusCode::NOT_FOUND);
    }
}
