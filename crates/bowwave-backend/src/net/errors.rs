//! Network errors: from a response, a failed exchange or the object-store library to the error for
//! callers.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, RETRY_AFTER};
use http::uri::Scheme;
use http::{StatusCode, Uri};
use hyper_util::client::legacy;
#[cfg(feature = "s3")]
use object_store::Error as StoreError;

use super::connect::ThroughProxy;
use super::validator::rfc1123;
use crate::{Error, ErrorKind};

/// The remedy for responses that break the protocol.
pub(super) const PROXY: &str = "is there a proxy that changes responses?";

/// The error for a response, unless it is a success.
pub(crate) fn status_error(place: &str, status: StatusCode, headers: &HeaderMap) -> Option<Error> {
    let (kind, remedy) = match status.as_u16() {
        200..=299 => return None,
        401 => (ErrorKind::Unauthenticated, "; give credentials"),
        403 => (
            ErrorKind::PermissionDenied,
            "; the credentials, or their absence, do not suffice: check the key, its secret and its rights",
        ),
        404 | 410 => (ErrorKind::NotFound, ""),
        407 => (ErrorKind::Unauthenticated, "; give user and password in the proxy's URL"),
        408 => (ErrorKind::TimedOut, ""),
        412 => (ErrorKind::Changed, ": the object has changed since it was opened; open it again"),
        429 | 503 => (
            ErrorKind::Throttled,
            ": the server asks to slow down; try again later, or use fewer --connections",
        ),
        501 => (ErrorKind::Unsupported, ": the server does not know this kind of request"),
        500..=599 => (ErrorKind::Unavailable, ": the server has failed; try again later, or raise --retries"),
        300..=399 => {
            (ErrorKind::Protocol, ": a redirection that leads nowhere; check the endpoint and region")
        }
        _ => (ErrorKind::Protocol, ": the server refuses the request; check the URL and the settings"),
    };
    let error = Error::new(kind, format!("{place}: {status}{remedy}"));
    Some(match retry_after(headers) {
        Some(pause) => error.after(pause),
        None => error,
    })
}

/// The error for a failure of a library above the client, which may pass on one of ours.
#[cfg(feature = "s3")]
pub(crate) fn transport_error(place: &str, error: &(dyn StdError + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(known) = error.downcast_ref::<Error>() {
            return known.clone();
        }
        cause = error.source();
    }
    Error::new(ErrorKind::Protocol, format!("{place}: {}", chain(error)))
}

/// The error for a request to which no response came.
pub(super) fn request_error(place: &str, to: &Uri, error: &legacy::Error) -> Error {
    let cause = root(error);
    let proxy = find(error).map(|ThroughProxy { proxy, .. }| proxy);
    let through = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
    let failed = |kind, what: &str| Error::new(kind, format!("{place}: {what} ({cause})"));
    if find(error).is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::TimedOut) {
        return failed(ErrorKind::TimedOut, &format!("no answer in time{through}; {LATE}"));
    }
    if !error.is_connect() {
        return broken(place, error);
    }
    if cause.contains("certificate") {
        let whose = if proxy.is_some() { "a certificate" } else { "the server's certificate" };
        let what = format!("{whose} is not trusted{through}; install ca-certificates or set SSL_CERT_FILE");
        return failed(ErrorKind::Unavailable, &what).retryable(false);
    }
    if cause.contains("InvalidContentType") {
        let what = match proxy {
            // Advice to use http:// would send credentials without TLS.
            Some(_) => format!("no TLS is spoken{through}; does the proxy's URL begin with http://?"),
            None => "the server does not speak TLS; use http://, and --allow-http".to_owned(),
        };
        return Error::new(ErrorKind::Unavailable, format!("{place}: {what}")).retryable(false);
    }
    let usual = if to.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let port = to.port_u16().unwrap_or(usual);
    let address = to.host().map_or_else(|| "the server".to_owned(), |host| format!("{host}:{port}"));
    if proxy.is_some() {
        if cause.contains("authorization required") {
            let what = format!("cannot connect{through}; give user and password in the proxy's URL");
            return failed(ErrorKind::Unauthenticated, &what);
        }
        let what = "is it up and its address right, and does it serve this server?";
        return failed(ErrorKind::Unavailable, &format!("cannot connect to {address}{through}; {what}"));
    }
    failed(
        ErrorKind::Unavailable,
        &match chain(error).contains("dns error") {
            true => format!("{address} has no address; check the name"),
            false => format!("cannot connect to {address}; is the server up and the address right?"),
        },
    )
}

/// The error for a response that breaks off.
pub(super) fn body_error(place: &str, error: &hyper::Error) -> Error {
    let failed = |kind, what: &str| Error::new(kind, format!("{place}: {what} ({})", root(error)));
    match find(error).map(io::Error::kind) {
        Some(io::ErrorKind::TimedOut) => failed(ErrorKind::TimedOut, &format!("no answer in time; {LATE}")),
        Some(io::ErrorKind::UnexpectedEof) | None => {
            failed(ErrorKind::Truncated, "the body ended early; try again later")
        }
        Some(_) => broken(place, error),
    }
}

fn broken(place: &str, error: &(dyn StdError + 'static)) -> Error {
    let what = "the connection broke; check the network and proxies in between, or raise --retries";
    Error::new(ErrorKind::Unavailable, format!("{place}: {what} ({})", root(error)))
}

/// The first error of a type among the causes of another.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(known) = error.downcast_ref() {
            return Some(known);
        }
        cause = error.source();
    }
    None
}

/// All causes of an error, outermost first, on one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many libraries repeat the cause in their own text.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    one_line(&text)
}

/// The innermost cause.
fn root(error: &dyn StdError) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    one_line(&error.to_string())
}

pub(super) fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The error for an error of the object-store library.
#[cfg(feature = "s3")]
pub(super) fn store_error(place: &str, error: &StoreError) -> Error {
    let (kind, what) = match error {
        StoreError::NotFound { .. } => (ErrorKind::NotFound, "no such object or bucket"),
        StoreError::Precondition { .. } | StoreError::NotModified { .. } => {
            return crate::path::changed(place);
        }
        StoreError::PermissionDenied { .. } => {
            (ErrorKind::PermissionDenied, "the credentials do not suffice")
        }
        StoreError::Unauthenticated { .. } => (ErrorKind::Unauthenticated, "the credentials are wrong"),
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "cannot be done")
        }
        StoreError::InvalidPath { .. } => (ErrorKind::Protocol, "a key cannot be a path"),
        _ => return transport_error(place, error),
    };
    Error::new(kind, format!("{place}: {what} ({})", brief(error)))
}

/// The server's message: the text of its `<Message>`, or all.
#[cfg(feature = "s3")]
fn brief(error: &StoreError) -> String {
    let text = chain(error);
    let message = text.split_once("<Message>").and_then(|(_, rest)| Some(rest.split_once("</Message>")?.0));
    message.map_or_else(|| text.clone(), str::to_owned)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    // Other values, such as a negative number, request no pause.
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => rfc1123(value)?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

/// The advice for a peer that is silent for too long.
const LATE: &str = "check the server, or raise --timeout";
/// Most bytes of a server's message: servers put whole pages into their errors.
const MESSAGE_BYTES_MAX: usize = 300;
/// Longest pause that is honoured; a server that requests more is as good as down.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_is_seconds_or_a_date_and_anything_else_is_none() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().expect("a header"));
            retry_after(&headers)
        };
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("1000000000"), Some(RETRY_AFTER_MAX));
        assert_eq!(of("Fri, 31 Dec 9999 23:59:59 GMT"), Some(RETRY_AFTER_MAX));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!((of("-5"), of("soon"), of("")), (None, None, None));
    }
}
