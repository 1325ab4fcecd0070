//! Heads of responses, times, redirections and error documents.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowwave_backend::fuzzing::{check_response, explain, redirect, times};
use bowwave_core::network::{Expected, Strength, Validators};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use super::steps::Steps;

/// A request and the head of its response.
#[derive(Arbitrary, Debug)]
pub struct Input {
    status: Status,
    etag: Option<Tag>,
    modified: Option<Time>,
    sized: bool,
    start: u16,
    len: u16,
    rest: u8,
    coding: Option<Coding>,
    location: Location,
    body: String,
    /// Below 128 the status is 206; from 192 on the lowest bits omit headers.
    lacks: u8,
    headers: Steps<Header>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Status {
    Partial,
    Whole,
    Unsatisfiable,
    Other(u16),
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Tag {
    One,
    Two,
    Weak,
    Empty,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
struct Time(u32);

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Coding {
    Identity,
    Gzip,
    Brotli,
}

/// A header; numbers are relative to those of the request.
#[derive(Arbitrary, Debug)]
enum Header {
    Range { first: i8, last: i8, total: Option<i8>, form: Form },
    Unsatisfied(i8),
    Etag(Tag),
    Modified(Time),
    Length { delta: i8, form: Form },
    Coding(Coding),
    Type(bool),
    RetryAfter(u32),
    Raw(Name, Vec<u8>),
}

/// How a number or range is written.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Spaced,
    Signed,
    Joined,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Name {
    Range,
    Etag,
    Modified,
    Length,
    Coding,
    Location,
    RetryAfter,
}

#[derive(Arbitrary, Debug)]
enum Location {
    Same(String),
    Host { https: bool, host: u8, rest: String },
    Raw(String),
}

impl Tag {
    fn text(self) -> &'static str {
        match self {
            Self::One => "\"one\"",
            Self::Two => "\"two\"",
            Self::Weak => "W/\"one\"",
            Self::Empty => "",
        }
    }
}

impl Coding {
    fn text(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }
}

impl Time {
    fn text(self) -> String {
        http_date(u64::from(self.0))
    }
}

impl Name {
    fn text(self) -> &'static str {
        match self {
            Self::Range => "content-range",
            Self::Etag => "etag",
            Self::Modified => "last-modified",
            Self::Length => "content-length",
            Self::Coding => "content-encoding",
            Self::Location => "location",
            Self::RetryAfter => "retry-after",
        }
    }
}

/// Seconds from 1970 to the year 10000, which no format can express.
const SECONDS_END: u64 = 253_402_300_800;

/// Checks all parts of an input. Returns whether the response was accepted.
pub fn run(input: Input) -> bool {
    let Input { status, etag, modified, sized, start, len, rest, coding, location, body, lacks, headers } =
        input;
    let (start, end) = (u64::from(start), u64::from(start) + u64::from(len) + 1);
    let size = end + u64::from(rest);
    let status = match status {
        _ if lacks < 128 => 206,
        Status::Partial => 206,
        Status::Whole => 200,
        Status::Unsatisfiable => 416,
        Status::Other(status) => status,
    };
    let version = Validators {
        etag: etag.map(|tag| tag.text().to_owned()),
        modified: modified.map(Time::text),
        size: sized.then_some(size),
    };
    let expected = Expected { version, start, end };
    let right = [
        Some(Header::Range { first: 0, last: 0, total: Some(0), form: Form::Plain }),
        etag.map(Header::Etag),
        modified.map(Header::Modified),
        Some(Header::Length { delta: 0, form: Form::Plain }),
        coding.map(Header::Coding),
    ];
    let right = right.into_iter().enumerate().filter(|(at, _)| lacks < 192 || lacks >> at & 1 == 0);
    let right: Vec<_> = right.filter_map(|(_, header)| header).collect();
    // As the HTTP library delivers them: values without surrounding spaces.
    let trimmed = |(name, value): (String, Vec<u8>)| (name, value.trim_ascii().to_vec());
    let headers: Vec<_> =
        right.iter().chain(&headers.0).map(|header| trimmed(header.line(start, end, size))).collect();
    let coding = coding.map(Coding::text);
    let verdict = check_response(status, &headers, coding, &expected);
    if verdict == Some(Ok(())) {
        must_be(&expected, status, &headers, coding);
    }
    if let Some(message) = explain(status, &headers, &body) {
        assert!(!message.contains('\n') && message.len() < 1000, "{message}");
    }
    check_times(modified.map_or(0, |time| u64::from(time.0)) * 59 % SECONDS_END, &body);
    check_redirect(&location);
    verdict == Some(Ok(()))
}

impl Header {
    fn line(&self, start: u64, end: u64, size: u64) -> (String, Vec<u8>) {
        let near = |number: u64, delta: i8| number.saturating_add_signed(delta.into());
        let (name, value) = match self {
            Self::Range { first, last, total, form } => {
                let (first, last) = (near(start, *first), near(end - 1, *last));
                let total = total.map_or("*".to_owned(), |total| near(size, total).to_string());
                let text = match form {
                    Form::Plain => format!("bytes {first}-{last}/{total}"),
                    Form::Spaced => format!(" bytes  {first} - {last} / {total} "),
                    Form::Signed => format!("bytes +{first}-+{last}/{total}"),
                    Form::Joined => format!("bytes{first}-{last}/{total}"),
                };
                (Name::Range, text)
            }
            Self::Unsatisfied(total) => (Name::Range, format!("bytes */{}", near(size, *total))),
            Self::Etag(tag) => (Name::Etag, tag.text().to_owned()),
            Self::Modified(time) => (Name::Modified, time.text()),
            Self::Length { delta, form } => {
                let length = near(end - start, *delta);
                let text = match form {
                    Form::Plain => length.to_string(),
                    Form::Spaced => format!(" {length} "),
                    Form::Signed => format!("+{length}"),
                    Form::Joined => format!("{length}, {length}"),
                };
                (Name::Length, text)
            }
            Self::Coding(coding) => (Name::Coding, coding.text().to_owned()),
            Self::Type(upper) => {
                let kind = if *upper { "Multipart/ByteRanges" } else { "multipart/byteranges" };
                return ("content-type".to_owned(), format!("{kind}; boundary=x").into());
            }
            Self::RetryAfter(seconds) => (Name::RetryAfter, seconds.to_string()),
            Self::Raw(name, value) => return (name.text().to_owned(), value.clone()),
        };
        (name.text().to_owned(), value.into())
    }
}

/// Content of an accepted response, by an independent parser: every value of each header counts.
fn must_be(expected: &Expected, status: u16, headers: &[(String, Vec<u8>)], coding: Option<&str>) {
    let values = |name: &'static str| {
        headers.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.trim_ascii())
    };
    let bytes = expected.end - expected.start;
    for value in values("content-range").filter(|_| status == 206) {
        assert_eq!(plain_range(value), Some((expected.start, expected.end)), "{headers:?}");
    }
    match status {
        206 => assert!(values("content-range").next().is_some(), "{headers:?}"),
        200 => assert_eq!(expected.version.size, Some(bytes), "{headers:?}"),
        _ => panic!("accepted: {status}"),
    }
    // The HTTP library rejects differing or invalid lengths.
    let lengths: Vec<_> = values("content-length").map(number).collect();
    if lengths.windows(2).all(|pair| pair[0] == pair[1]) {
        assert!(lengths.iter().flatten().all(|&length| length == bytes), "{headers:?}");
    }
    // The coding `identity` is ignored; any other counts each time.
    let plain = |coding: &&[u8]| !coding.eq_ignore_ascii_case(b"identity");
    let wanted: Vec<_> = coding.map(str::as_bytes).into_iter().filter(plain).collect();
    let found: Vec<_> = values("content-encoding").filter(plain).collect();
    assert_eq!(found, wanted, "{headers:?}");
    if status == 206 {
        let parts = b"multipart/byteranges";
        let is_parts =
            |kind: &[u8]| kind.get(..parts.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(parts));
        assert!(!values("content-type").any(is_parts), "{headers:?}");
    }
    if expected.version.strength() == Strength::Strong {
        let etag = expected.version.etag.as_deref().map(str::as_bytes);
        assert!(values("etag").next().is_some(), "{headers:?}");
        assert!(values("etag").all(|value| Some(value) == etag), "{headers:?}");
    }
}

/// `bytes FIRST-LAST/TOTAL` with spaces between the tokens, half open.
fn plain_range(value: &[u8]) -> Option<(u64, u64)> {
    let rest = value.strip_prefix(b"bytes")?;
    let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let dash = rest[..slash].iter().position(|&byte| byte == b'-')?;
    Some((number(&rest[..dash])?, number(&rest[dash + 1..slash])? + 1))
}

/// Digits, with spaces around them.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A written time parses as itself, and any text as some time or none.
fn check_times(seconds: u64, text: &str) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(times(&http_date(seconds)), (Some(time), None));
    let (year, month, day) = date(seconds);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let listed = format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.123Z", month + 1);
    assert_eq!(times(&listed), (None, Some(time)));
    let far = |time: Option<SystemTime>| time.is_none_or(|time| time >= UNIX_EPOCH);
    let (header, listed) = times(text);
    assert!(far(header) && far(listed), "{text:?}");
}

/// Seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_date(seconds: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = date(seconds);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // 1970 began on a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(seconds / 86_400 % 7) as usize];
    format!("{weekday}, {day:02} {} {year:04} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month])
}

/// Year, month from 0 and day from 1, counted year by year.
fn date(seconds: u64) -> (u64, usize, u64) {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month, days + 1)
}

/// Credentials go only to their own origin, and never from `https` to `http`.
fn check_redirect(location: &Location) {
    const HOSTS: [&str; 4] = ["a.example:81", "b.example:81", "a.example:82", "x:y@a.example:81"];
    let location = match location {
        Location::Same(rest) => rest.clone(),
        Location::Host { https, host, rest } => {
            let host = HOSTS[usize::from(*host) % HOSTS.len()];
            format!("{}://{host}/{rest}", if *https { "https" } else { "http" })
        }
        Location::Raw(text) => text.clone(),
    };
    for scheme in ["http", "https"] {
        let from = format!("{scheme}://user:secret@a.example:81/dir/file?signature=1");
        let Some((to, authorization)) = redirect(&from, &location) else { continue };
        let (found, rest) = to.split_once("://").expect("a URL with a scheme");
        assert!(found == "https" || found == "http" && scheme == "http", "{from} to {to}");
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let same = found == scheme && authority == "user:secret@a.example:81";
        assert!(same || !authority.contains('@'), "{from} to {to}");
        assert_eq!(authorization.as_deref(), same.then_some("Basic dXNlcjpzZWNyZXQ="), "{from} to {to}");
    }
}
