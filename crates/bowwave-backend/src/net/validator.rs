//! Headers that identify a response's version and range.

use std::time::{Duration, SystemTime};

use bowwave_core::network::{Condition, Response, Strength, Validators};
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};

use crate::Identity;

/// Entity tag and time of modification, as the server writes them.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let given = |name| text(headers, name).filter(|value| !value.trim().is_empty());
    Validators { etag: given(ETAG), modified: given(LAST_MODIFIED), size: None }
}

/// The header that makes a request fail if the object has changed. A `Last-Modified` that is no
/// time gives none.
pub(super) fn condition(version: &Validators) -> Option<(HeaderName, String)> {
    match version.condition()? {
        Condition::IfMatch(etag) => Some((IF_MATCH, etag.to_owned())),
        Condition::IfUnmodifiedSinceNext(modified) => {
            let next = rfc1123(modified)? + Duration::from_secs(1);
            Some((IF_UNMODIFIED_SINCE, httpdate::fmt_http_date(next)))
        }
    }
}

/// The head of a response as the core checks it. `coding` is the object's `Content-Encoding` at the
/// open.
pub(super) fn response(status: u16, headers: &HeaderMap, coding: Option<&str>) -> Response {
    let has_range = headers.contains_key(CONTENT_RANGE);
    let found = ContentRange::of(headers);
    let total = found.and_then(|found| found.total);
    let coding = coding.filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    // Each line of the header adds a coding.
    let mut codings = headers.get_all(CONTENT_ENCODING).iter().filter(|found| !is(found, "identity"));
    let encoded = match coding {
        None => codings.next().is_some(),
        Some(coding) => codings.next().is_none_or(|found| found != coding) || codings.next().is_some(),
    };
    let parts = headers.get_all(CONTENT_TYPE).iter().any(|kind| is(kind, "multipart/byteranges"));
    Response {
        status,
        version: Validators { size: total, ..validators(headers) },
        range: found.and_then(|found| found.range),
        has_range,
        length: text(headers, CONTENT_LENGTH).and_then(|length| number(&length)),
        encoded: encoded || status == 206 && parts,
    }
}

/// Identity that the cache keeps for a version. A strong tag suffices. A weak tag promises no equal
/// bytes: then the time must be equal, too.
pub(super) fn identity(version: &Validators, modified: Option<SystemTime>) -> Identity {
    let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let modified_ns = match version.strength() {
        Strength::Strong => None,
        // To the second, as in responses: listings are more exact.
        Strength::Dated | Strength::None => since.map(|since| i128::from(since.as_secs()) * 1_000_000_000),
    };
    Identity {
        etag: version.etag.clone(),
        modified_ns,
        size: version.size.unwrap_or(0),
        ..Identity::default()
    }
}

/// A time such as `Sun, 06 Nov 1994 08:49:37 GMT`; `None` for others.
pub(super) fn rfc1123(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// `Content-Range: bytes FIRST-LAST/TOTAL`, as a half-open range; `None` for `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) range: Option<(u64, u64)>,
    pub(super) total: Option<u64>,
}

impl ContentRange {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = text(headers, CONTENT_RANGE)?;
        let (range, total) = value.trim().strip_prefix("bytes")?.split_once('/')?;
        // A space ends the unit's name.
        let range = range.strip_prefix([' ', '\t'])?;
        let range = match range.trim() {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-')?;
                Some((number(first)?, number(last)?.checked_add(1)?))
            }
        };
        let total = match total.trim() {
            "*" => None,
            total => Some(number(total)?),
        };
        Some(Self { range, total })
    }
}

/// A time such as `2026-11-22T03:44:23.000Z`, as lists have it, to the second; `None` for others.
pub(super) fn rfc3339(text: &str) -> Option<SystemTime> {
    let seconds = text.trim().strip_suffix('Z')?.split('.').next()?;
    humantime::parse_rfc3339(&format!("{seconds}Z")).ok()
}

/// The value of a header. Also `None` for several different values: any of them may be right.
pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.all(|other| other == value).then(|| value.to_str().ok().map(str::to_owned))?
}

/// Whether a header's value is `name`, or `name` with parameters.
fn is(value: &HeaderValue, name: &str) -> bool {
    let value = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    value.trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}

/// Digits with optional white space: no sign.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim();
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use bowwave_core::network::{Expected, Fault};

    /// Checks the head of a response to a request for the first ten of a hundred bytes of version
    /// `"1"`.
    fn check(changes: &[(HeaderName, &'static str)], coding: Option<&str>) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(ETAG, "\"1\""), (CONTENT_LENGTH, "10"), (CONTENT_RANGE, "bytes 0-9/100")] {
            if changes.iter().all(|(changed, _)| *changed != name) {
                headers.append(name, HeaderValue::from_static(value));
            }
        }
        for (name, value) in changes {
            headers.append(name, HeaderValue::from_static(value));
        }
        let version = Validators { etag: Some("\"1\"".to_owned()), modified: None, size: Some(100) };
        Expected { version, start: 0, end: 10 }.check(&response(206, &headers, coding))
    }

    #[test]
    fn a_response_that_names_two_ranges_or_versions_is_refused() {
        let range = |value| (CONTENT_RANGE, value);
        assert_eq!(check(&[], None), Ok(()));
        assert_eq!(check(&[range("bytes 0-9/100"), range("bytes 0-9/100")], None), Ok(()));
        let both = [range("bytes 0-9/100"), range("bytes 10-19/100")];
        assert_eq!(check(&both, None), Err(Fault::OtherRange));
        assert_eq!(check(&[(ETAG, "\"1\""), (ETAG, "\"2\"")], None), Err(Fault::Unversioned));
    }

    #[test]
    fn a_second_content_coding_is_not_overlooked() {
        let coding = |value| (CONTENT_ENCODING, value);
        assert_eq!(check(&[coding("identity")], None), Ok(()));
        assert_eq!(check(&[coding("identity"), coding("gzip")], None), Err(Fault::Encoded));
        assert_eq!(check(&[coding("identity"), coding("gzip")], Some("gzip")), Ok(()));
        assert_eq!(check(&[coding("gzip"), coding("br")], Some("gzip")), Err(Fault::Encoded));
        assert_eq!(check(&[], Some("gzip")), Err(Fault::Encoded));
    }

    #[test]
    fn parts_of_several_ranges_are_refused_in_any_spelling() {
        for kind in ["multipart/byteranges; boundary=x", " Multipart/ByteRanges;boundary=x"] {
            assert_eq!(check(&[(CONTENT_TYPE, kind)], None), Err(Fault::Encoded), "{kind}");
        }
        assert_eq!(check(&[(CONTENT_TYPE, "multipart/mixed")], None), Ok(()));
    }

    #[test]
    fn numbers_with_a_sign_and_a_unit_without_a_space_are_no_range() {
        for range in ["bytes +0-9/100", "bytes 0-+9/100", "bytes 0-9/+100", "bytes0-9/100"] {
            assert_eq!(check(&[(CONTENT_RANGE, range)], None), Err(Fault::OtherRange), "{range}");
        }
        assert_eq!(check(&[(CONTENT_RANGE, "bytes  0 - 9 / 100")], None), Ok(()));
    }

    #[test]
    fn times_of_lists_are_read_to_the_second() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1994-11-06T08:49:37.999Z", Some(784_111_777)),
            ("2024-02-29T12:00:00.000Z", Some(1_709_208_000)),
            ("2024-13-01T12:00:00Z", None),
            ("2024-02-29 12:00:00", None),
            ("T", None),
        ] {
            let time = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(rfc3339(text), time, "{text}");
        }
    }

    #[test]
    fn last_modified_is_read_as_a_time() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 29 Feb 2024 12:00:00 GMT", Some(1_709_208_000)),
            ("yesterday", None),
            ("Sun, 06 Nov 0000 08:49:37 GMT", None),
        ] {
            let time = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(rfc1123(text), time, "{text}");
        }
    }
}
