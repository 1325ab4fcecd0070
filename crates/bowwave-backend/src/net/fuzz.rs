//! Entry points of fuzzers: parsers of servers' data, without a network.

use std::ops::Range;
use std::time::SystemTime;

use bowwave_core::network::{Expected, Fault};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use url::Url;

use super::{connector, http as web, listing, validator, wire};

/// A page of a listing, of any dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Objects or unfinished uploads, in order.
    pub entries: Vec<Entry>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// Whether the store announces more entries.
    pub truncated: Option<bool>,
    /// Start of the next page: a token, or a key and an upload identifier.
    pub next: Option<(String, String)>,
}

/// An entry of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The entity tag with its quotes, or the identifier of an upload.
    pub tag: Option<String>,
    /// Bytes; `None` for uploads.
    pub size: Option<u64>,
    /// When it was modified or begun, in whole seconds.
    pub time: Option<SystemTime>,
}

/// Dialect of an XML document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `ListBucketResult` of S3 and Google.
    S3,
    /// `EnumerationResults` of Azure.
    Azure,
    /// `ListMultipartUploadsResult` of S3.
    Uploads,
}

/// Checks the head of a response to a range request. `coding` is the object's `Content-Encoding` at
/// the open. `None` if `headers` are not valid response headers.
///
/// # Errors
/// Why the response is rejected.
pub fn check_response(
    status: u16,
    headers: &[(String, Vec<u8>)],
    coding: Option<&str>,
    expected: &Expected,
) -> Option<Result<(), Fault>> {
    Some(expected.check(&validator::response(status, &header_map(headers)?, coding)))
}

/// The error message for a response that is not a success; `None` if status or headers are invalid.
#[must_use]
pub fn explain(status: u16, headers: &[(String, Vec<u8>)], body: &str) -> Option<String> {
    let status = StatusCode::from_u16(status).ok()?;
    let headers = header_map(headers)?;
    let error = wire::explain("fuzz", status, &headers, body);
    connector::redirected("fuzz", status, &headers);
    Some(error.to_string())
}

/// The time of `text` in `Last-Modified` headers, and in listings.
#[must_use]
pub fn times(text: &str) -> (Option<SystemTime>, Option<SystemTime>) {
    (validator::rfc1123(text), validator::rfc3339(text))
}

/// Target of a redirection from a URL, with its credentials, and the `Authorization` header sent
/// there. `None` if `from` is no URL of a store, or if the redirection is not followed.
#[must_use]
pub fn redirect(from: &str, location: &str) -> Option<(String, Option<String>)> {
    let from = Url::parse(from).ok()?;
    if !matches!(from.scheme(), "http" | "https") || from.host_str().is_none() {
        return None;
    }
    let to = web::redirected_url(&from, from.join(location).ok()?).ok()?;
    let request = web::request("", &Method::GET, &to, &[]).ok()?;
    let authorization = request.headers().get(http::header::AUTHORIZATION);
    Some((to.into(), authorization.and_then(|value| Some(value.to_str().ok()?.to_owned()))))
}

/// Parses a page of a listing.
///
/// # Errors
/// Why it is invalid.
pub fn list(dialect: Dialect, document: &[u8]) -> Result<Page, String> {
    if dialect == Dialect::Uploads {
        let page = listing::uploads(document)?;
        let entry = |upload: listing::ListedUpload| Entry {
            key: upload.key,
            tag: Some(upload.id),
            size: None,
            time: upload.begun,
        };
        let entries = page.uploads.into_iter().map(entry).collect();
        return Ok(Page { entries, prefixes: Vec::new(), truncated: page.truncated, next: page.next });
    }
    let page = if dialect == Dialect::S3 { listing::s3(document)? } else { listing::azure(document)? };
    let entry = |object: listing::Listed| Entry {
        key: object.key,
        tag: object.version.etag,
        size: object.version.size,
        time: object.modified,
    };
    Ok(Page {
        entries: page.objects.into_iter().map(entry).collect(),
        prefixes: page.prefixes,
        truncated: page.truncated,
        next: page.next.map(|next| (next, String::new())),
    })
}

/// Whether a key of a listing is shown as a file.
#[must_use]
pub fn is_path(key: &str) -> bool {
    listing::is_path(key)
}

/// The ranges with checksums in a table of parts, if the table is of an object of `size` bytes with
/// this tag.
#[must_use]
pub fn parts(document: &[u8], tag: &str, size: u64) -> Option<Vec<Range<u64>>> {
    Some(listing::part_checksums(document, tag, size)?.into_iter().map(|(range, _)| range).collect())
}

fn header_map(headers: &[(String, Vec<u8>)]) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        map.try_append(name, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(map)
}
