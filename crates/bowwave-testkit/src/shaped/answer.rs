//! Responses: the part of S3 that reads need.

use std::fmt::Write as _;

use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE};
use hyper::http::response::Builder;
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;

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
/// Most keys and common prefixes of a page, as on S3.
const PAGE_KEYS: usize = 1000;

impl Answer {
    /// The response; the objects are sorted by key.
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
        let key = decoded(key);
        let Ok(number) = objects.binary_search_by(|(name, _)| name.cmp(&key)) else {
            return if head {
                Self::text(StatusCode::NOT_FOUND, String::new())
            } else {
                Self::error(StatusCode::NOT_FOUND, "NoSuchKey")
            };
        };
        let range = request.headers().get(RANGE).and_then(|value| value.to_str().ok());
        Self::object(number, objects[number].1, range, head)
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

    /// Lists the objects with the requested prefix, by pages, with common prefixes up to a
    /// delimiter.
    fn list(query: &str, objects: &[(String, u64)]) -> Self {
        if query.split('&').any(|part| part == "location" || part == "location=") {
            let text = "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
            return Self::text(StatusCode::OK, text.to_owned());
        }
        let value = |name: &str| {
            let found = query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            found.map(decoded).filter(|text| !text.is_empty())
        };
        let prefix = value("prefix").unwrap_or_default();
        let delimiter = value("delimiter");
        let most = value("max-keys").and_then(|text| text.parse().ok()).unwrap_or(PAGE_KEYS).min(PAGE_KEYS);
        let after = value("continuation-token").or_else(|| value("start-after")).unwrap_or_default();
        let (mut text, mut count, mut last) = (String::new(), 0, None);
        let mut at = objects.partition_point(|(key, _)| *key <= after || *key < prefix);
        while let Some((key, bytes)) = objects.get(at).filter(|(key, _)| key.starts_with(&prefix)) {
            let common = delimiter.as_ref().and_then(|delimiter| {
                let end = key[prefix.len()..].find(delimiter)? + prefix.len() + delimiter.len();
                Some(&key[..end])
            });
            // A token names a common prefix, which sorts before its keys.
            if common.is_some_and(|common| common <= after.as_str() || after.starts_with(common)) {
                at += 1;
                continue;
            }
            if count == most {
                break;
            }
            // Writing to a string does not fail.
            let _ = match common {
                Some(common) => write!(text, "<CommonPrefixes><Prefix>{common}</Prefix></CommonPrefixes>"),
                None => write!(
                    text,
                    "<Contents><Key>{key}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified><ETag>{}</ETag>\
                     <Size>{bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    tag(at)
                ),
            };
            count += 1;
            last = Some(common.unwrap_or(key));
            at +=
                common.map_or(1, |common| objects[at..].partition_point(|(key, _)| key.starts_with(common)));
        }
        let rest = objects.get(at).filter(|(key, _)| key.starts_with(&prefix)).and(last);
        let next = rest.map(|last| format!("<NextContinuationToken>{last}</NextContinuationToken>"));
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>data</Name><MaxKeys>{most}</MaxKeys>\
             <IsTruncated>{}</IsTruncated>{}<Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>{text}\
             </ListBucketResult>",
            next.is_some(),
            next.unwrap_or_default()
        );
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

/// Text of a URL without percent encoding.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
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

    #[test]
    fn pages_of_a_list_have_each_name_once() {
        let names = ["a/x/1", "a/x/2", "a/y", "a/z z/1", "a/z z/2", "a/zz", "b"];
        let objects = names.map(|name| (name.to_owned(), 1));
        let names_of = |query: &str| {
            let request = Request::builder().uri(format!("/data?list-type=2&max-keys=2&{query}"));
            let text = Answer::to(&request.body(()).expect("a request"), &objects).text.expect("a list");
            let between = |part: &str, end: &str| part.split_once(end).map(|part| part.0.to_owned());
            let found = text.split("<Key>").skip(1).filter_map(|part| between(part, "</Key>"));
            let commons = text.split("<CommonPrefixes><Prefix>").skip(1);
            let names: Vec<_> = found.chain(commons.filter_map(|part| between(part, "</Prefix>"))).collect();
            let token = text.split_once("<NextContinuationToken>").map(|parts| parts.1);
            (names, token.and_then(|part| between(part, "</NextContinuationToken>")))
        };
        for (query, listed) in [
            ("prefix=a%2F&delimiter=%2F", vec!["a/x/", "a/y", "a/z z/", "a/zz"]),
            ("prefix=a/z%20z/", vec!["a/z z/1", "a/z z/2"]),
            ("delimiter=/", vec!["a/", "b"]),
            ("start-after=a/y", vec!["a/z z/1", "a/z z/2", "a/zz", "b"]),
        ] {
            let (mut all, mut token) = names_of(query);
            while let Some(next) = token {
                let next = next.replace(' ', "%20");
                let (more, then) = names_of(&format!("{query}&continuation-token={next}"));
                all.extend(more);
                token = then;
            }
            all.sort_unstable();
            assert_eq!(all, listed, "{query}");
        }
    }
}
