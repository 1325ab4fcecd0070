//! The HTTP client, and what its failures mean.

use std::error::Error as StdError;
use std::io;
use std::sync::Once;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::listing::without_odd_keys;
use super::upstream;
use crate::{Error, ErrorKind, Result};

/// A client that gives up after `timeout` without a byte and keeps up to `connections` open.
pub(crate) fn new(timeout: Duration, connections: u32) -> Result<reqwest::Client> {
    build(timeout, Some(timeout), connections)
}

/// A client for requests with long bodies; who sends them watches whether they move.
fn upstream(timeout: Duration, connections: u32) -> Result<reqwest::Client> {
    build(timeout, None, connections)
}

fn build(timeout: Duration, read: Option<Duration>, connections: u32) -> Result<reqwest::Client> {
    static PROVIDER: Once = Once::new();
    // Fails only if the program has installed another one: then that one is used.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("bowwave/", env!("CARGO_PKG_VERSION")))
            // One request a connection: streams that share one also share its window and its losses.
            .http1_only()
            .pool_max_idle_per_host(connections as usize)
            .connect_timeout(timeout)
            .tcp_nodelay(true);
        match read {
            Some(read) => builder.read_timeout(read),
            // A server that takes nothing more would else keep a request's bytes, although nobody waits for it any longer.
            None => builder.tcp_user_timeout(timeout),
        }
    };
    let built = builder().build().or_else(|_| {
        // A machine without certificates can still speak plain http; https then fails, with a remedy.
        let none = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder().tls_backend_preconfigured(none).build()
    });
    built.map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot set up the HTTP client: {}", chain(&error)))
    })
}

/// The error for an answer that is no success, if it is none.
pub(crate) fn status_error(place: &str, status: StatusCode, headers: &HeaderMap) -> Option<Error> {
    let (kind, remedy) = match status.as_u16() {
        200..=299 => return None,
        401 => (ErrorKind::Unauthenticated, "; give credentials"),
        403 => (ErrorKind::PermissionDenied, "; the credentials, or their absence, do not suffice"),
        404 | 410 => (ErrorKind::NotFound, ""),
        408 => (ErrorKind::TimedOut, ""),
        412 => (ErrorKind::Changed, ": the object has changed since it was opened; open it again"),
        429 | 503 => (ErrorKind::Throttled, ": the server asks to slow down"),
        501 => (ErrorKind::Unsupported, ": the server does not know this kind of request"),
        500..=599 => (ErrorKind::Unavailable, ": the server has failed"),
        300..=399 => {
            (ErrorKind::Protocol, ": a redirection that leads nowhere; check the endpoint and region")
        }
        _ => (ErrorKind::Protocol, ": the server refuses the request"),
    };
    let error = Error::new(kind, format!("{place}: {status}{remedy}"));
    Some(match retry_after(headers) {
        Some(pause) => error.after(pause),
        None => error,
    })
}

/// The error for what the client or a library over it reports.
pub(crate) fn transport_error(place: &str, error: &(dyn StdError + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(known) = error.downcast_ref::<Error>() {
            return known.clone();
        }
        if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            return client_error(place, error);
        }
        cause = error.source();
    }
    Error::new(ErrorKind::Protocol, format!("{place}: {}", chain(error)))
}

fn client_error(place: &str, error: &reqwest::Error) -> Error {
    let (kind, what) = if error.is_timeout() {
        (ErrorKind::TimedOut, "no answer in time")
    } else if error.is_connect() && root(error).contains("certificate") {
        let what = "the server's certificate is not trusted; install ca-certificates or set SSL_CERT_FILE";
        let error = Error::new(ErrorKind::Unavailable, format!("{place}: {what} ({})", root(error)));
        return error.retryable(false);
    } else if error.is_connect() {
        (ErrorKind::Unavailable, "cannot connect; is the server up and the address right?")
    } else if (error.is_body() || error.is_decode()) && !broken_connection(error) {
        (ErrorKind::Truncated, "the body ended early")
    } else if error.is_builder() || error.is_redirect() {
        (ErrorKind::Protocol, "the request cannot be made")
    } else {
        (ErrorKind::Unavailable, "the connection broke")
    };
    Error::new(kind, format!("{place}: {what} ({})", root(error)))
}

fn broken_connection(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() != io::ErrorKind::UnexpectedEof;
        }
        cause = error.source();
    }
    false
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

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    // Seconds only; the date form is rare, and the caller's own backoff serves then.
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// Makes object stores use our client, so that its answers keep what the library drops: Retry-After.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) place: String,
    pub(crate) client: reqwest::Client,
    /// For requests with a body.
    pub(crate) upstream: reqwest::Client,
    /// How long a body may stand still.
    pub(crate) patience: Duration,
}

impl Connector {
    pub(crate) fn new(place: &str, timeout: Duration, connections: u32) -> Result<Self> {
        Ok(Self {
            place: place.to_owned(),
            client: new(timeout, connections)?,
            upstream: upstream(timeout, connections)?,
            patience: timeout,
        })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        // Requests for objects have no query; the library tells little of why others failed.
        let query = request.uri().query().map(str::to_owned);
        let odd = query.is_some();
        let listing = odd && *request.method() == http::Method::GET;
        let copies = COPY_HEADERS.iter().any(|name| request.headers().contains_key(*name));
        let response = match request.body().content_length() {
            _ if copies => upstream::send(&self.upstream, &self.place, request, COPY_PATIENCE).await?,
            0 => self.client.call(request).await?,
            _ => upstream::send(&self.upstream, &self.place, request, self.patience).await?,
        };
        match response.status().as_u16() {
            404 if odd => {
                let what = if listing { "no such bucket" } else { "the upload is gone: aborted, or too old" };
                let error = Error::new(ErrorKind::NotFound, format!("{}: {what}", self.place));
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
            401 | 403 | 429 | 500..=599 if odd || response.status().as_u16() >= 429 => {
                match status_error(&self.place, response.status(), response.headers()) {
                    Some(error) => Err(HttpError::new(HttpErrorKind::Unknown, error)),
                    None => Ok(response),
                }
            }
            200 if query.is_some_and(|q| q.contains("list-type=2") || q.contains("comp=list")) => {
                let (parts, body) = response.into_parts();
                let body = body.bytes().await?;
                let kept = std::str::from_utf8(&body).ok().and_then(without_odd_keys);
                let body = kept.map_or_else(|| body.into(), Into::into);
                Ok(HttpResponse::from_parts(parts, body))
            }
            // The library explains the others.
            _ => Ok(response),
        }
    }
}

/// Servers put whole pages into their errors.
const MESSAGE_BYTES_MAX: usize = 300;
/// A server that asks for more is as good as down.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// What tells a copy on the server: of S3, Google, Azure.
const COPY_HEADERS: [&str; 3] = ["x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"];
/// How long a server may be silent over a copy or a completion: gigabytes move within it.
pub(super) const COPY_PATIENCE: Duration = Duration::from_secs(600);
