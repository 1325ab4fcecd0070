//! One request and its response: with a deadline, a least throughput, and a size limit for each
//! kind.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use bowwave_core::Instant;
use bowwave_core::network::{Pace, TooSlow};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http::StatusCode;
use http::header::HeaderMap;
use tokio::time::Sleep;

use super::call::Traffic;
use super::errors::{chain, transport_error};
use super::limits::{ERROR_BYTES_MAX, ERROR_TEXT_WAIT, Limits, at, now};
#[cfg(feature = "s3")]
use super::upload;
use crate::{Error, ErrorKind, Options, Result};

/// Sends requests to one store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) limits: Limits,
    pub(super) traffic: Arc<Traffic>,
}

impl Client {
    /// A client with up to `connections` connections.
    pub(crate) fn new(options: &Options, connections: u32) -> Result<Self> {
        let limits = Limits::new(options);
        Ok(Self { http: build(limits.timeout, connections)?, limits, traffic: Arc::default() })
    }

    /// Sends a request without a body and returns the response as soon as its head arrives. `place`
    /// names the object in errors.
    pub(crate) async fn send(&self, place: &str, request: reqwest::Request) -> Result<Incoming> {
        self.traffic.count(|stats| stats.requests += 1);
        let sent = now();
        match tokio::time::timeout(self.limits.timeout, self.http.execute(request)).await {
            Ok(Ok(response)) => Ok(self.incoming(place, response, sent)),
            Ok(Err(error)) => Err(transport_error(place, &error)),
            Err(_) => Err(silent(place, self.limits.timeout)),
        }
    }

    /// With a body, for as long as the body moves; `patience` is the longest standstill.
    #[cfg(feature = "s3")]
    pub(crate) async fn upload(
        &self,
        place: &str,
        request: http::Request<object_store::client::HttpRequestBody>,
        patience: Duration,
    ) -> Result<Incoming> {
        self.traffic.count(|stats| stats.requests += 1);
        let response = upload::send(&self.http, place, request, patience).await?;
        Ok(self.incoming(place, response, now()))
    }

    fn incoming(&self, place: &str, response: reqwest::Response, sent: Instant) -> Incoming {
        self.traffic.responded.store(true, Ordering::Relaxed);
        let mut pace = Pace::new(self.limits.pace, sent);
        pace.head(now());
        let timer = Box::pin(tokio::time::sleep_until(at(pace.due())));
        let is_timed = false;
        Incoming { place: place.into(), response, pace, timer, is_timed, timeout: self.limits.timeout }
    }
}

/// A response whose body is still to arrive.
#[derive(Debug)]
pub(crate) struct Incoming {
    place: Box<str>,
    response: reqwest::Response,
    pace: Pace,
    /// Ends when the pace must be checked.
    timer: Pin<Box<Sleep>>,
    /// Whether the timer is set for that.
    is_timed: bool,
    timeout: Duration,
}

/// The next event of a body.
#[derive(Debug)]
pub(crate) enum Next {
    /// These bytes.
    Bytes(Bytes),
    /// The end.
    End,
    /// No bytes; the deadline must be checked again.
    Due,
}

impl Incoming {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Another reader receives the rest: its pace counts from now on.
    pub(crate) fn resume(&mut self) {
        self.pace.head(now());
        self.is_timed = false;
    }

    /// The next event of the body. At [`Next::Due`], and at first, `deadline` may differ from the
    /// earlier one: the time at which the read must have ended.
    ///
    /// # Errors
    /// `TimedOut` for silence, for less than the least throughput and at the deadline;
    /// `Unavailable` and `Truncated` for a broken connection.
    pub(crate) async fn next(&mut self, deadline: Option<std::time::Instant>) -> Result<Next> {
        if !self.is_timed {
            let deadline = deadline.map(tokio::time::Instant::from_std);
            if deadline.is_some_and(|deadline| deadline <= tokio::time::Instant::now()) {
                let message = format!("{}: not all bytes came by the deadline (--deadline)", self.place);
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
            let due = at(self.pace.due());
            self.timer.as_mut().reset(deadline.map_or(due, |deadline| due.min(deadline)));
            self.is_timed = true;
        }
        let chunk = pin!(self.response.chunk());
        match select(chunk, self.timer.as_mut()).await {
            Either::Left((Ok(Some(bytes)), _)) => {
                let checked = self.pace.bytes(now(), bytes.len() as u64);
                checked.map_err(|slow| too_slow(&self.place, slow, self.timeout))?;
                Ok(Next::Bytes(bytes))
            }
            Either::Left((Ok(None), _)) => Ok(Next::End),
            Either::Left((Err(error), _)) => Err(transport_error(&self.place, &error)),
            Either::Right(_) => {
                self.is_timed = false;
                self.pace.check(now()).map_err(|slow| too_slow(&self.place, slow, self.timeout))?;
                Ok(Next::Due)
            }
        }
    }

    /// The next bytes; `None` at the end.
    async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.next(None).await? {
                Next::Bytes(bytes) => return Ok(Some(bytes)),
                Next::End => return Ok(None),
                Next::Due => {}
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// `Protocol` for one of more than `bytes_max` bytes; as [`next`](Self::next).
    pub(crate) async fn collect(mut self, bytes_max: usize) -> Result<Bytes> {
        let announced = self.response.content_length().unwrap_or(0);
        if announced > bytes_max as u64 {
            return Err(too_large(&self.place, bytes_max));
        }
        let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or(0));
        while let Some(bytes) = self.bytes().await? {
            if bytes.len() > bytes_max - body.len() {
                return Err(too_large(&self.place, bytes_max));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body.into())
    }

    /// The beginning of the text that explains a failure: the bytes that arrive within a moment.
    pub(crate) async fn explanation(mut self) -> String {
        let mut text = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = self.bytes().await {
                let room = ERROR_BYTES_MAX - text.len();
                text.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if text.len() == ERROR_BYTES_MAX {
                    break;
                }
            }
        };
        // The bytes so far suffice: the status is known.
        tokio::time::timeout(ERROR_TEXT_WAIT, read).await.ok();
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn build(timeout: Duration, connections: u32) -> Result<reqwest::Client> {
    static PROVIDER: Once = Once::new();
    // Fails only if the program has installed another provider, which is then used.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("bowwave/", env!("CARGO_PKG_VERSION")))
            // One request a connection: multiplexed streams share a window and its losses.
            .http1_only()
            .pool_max_idle_per_host(connections as usize)
            .connect_timeout(timeout)
            // A server that stops accepting would otherwise hold a request's bytes after the
            // request ended.
            .tcp_user_timeout(timeout)
            .tcp_nodelay(true)
            // A redirection could send credentials, tokens and signed queries to another host: see
            // `redirect`.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
    };
    let built = builder().build().or_else(|_| {
        // A machine without certificates can still use plain http; https then fails, with a remedy.
        let none = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder().tls_backend_preconfigured(none).build()
    });
    built.map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot set up the HTTP client: {}", chain(&error)))
    })
}

fn silent(place: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, format!("{place}: no response within {timeout:?} (--timeout)"))
}

fn too_slow(place: &str, slow: TooSlow, timeout: Duration) -> Error {
    let message = match slow {
        TooSlow::Silent => {
            format!("{place}: the response breaks off: nothing came for {timeout:?} (--timeout)")
        }
        TooSlow::Dripping { bytes } => {
            format!("{place}: only {bytes} bytes came in {timeout:?}, fewer than --min-rate allows")
        }
    };
    Error::new(ErrorKind::TimedOut, message)
}

fn too_large(place: &str, bytes_max: usize) -> Error {
    let message = format!("{place}: the response is larger than {bytes_max} bytes, the most of its kind");
    Error::new(ErrorKind::Protocol, message)
}
