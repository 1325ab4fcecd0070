//! One request and its response: with a deadline, a least throughput, and a size limit for each
//! kind.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowwave_core::Instant;
use bowwave_core::network::{Pace, TooSlow};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Sleep;

use super::call::Traffic;
use super::connect::{Http, RequestBody};
use super::errors::{body_error, request_error};
use super::limits::{ERROR_BYTES_MAX, ERROR_TEXT_WAIT, Limits, at, now};
#[cfg(feature = "s3")]
use super::upload;
use crate::{Error, ErrorKind, Options, Result};

/// Sends requests to one store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: Http,
    pub(crate) limits: Limits,
    pub(super) traffic: Arc<Traffic>,
}

impl Client {
    /// A client with up to `connections` connections.
    pub(crate) fn new(options: &Options, connections: u32) -> Self {
        let limits = Limits::new(options);
        Self { http: Http::new(limits.timeout, connections), limits, traffic: Arc::default() }
    }

    /// Sends a request without a body and returns the response as soon as its head arrives. `place`
    /// names the object in errors.
    pub(super) async fn send(&self, place: &str, request: Request<RequestBody>) -> Result<Incoming> {
        self.traffic.count(|stats| stats.requests += 1);
        let (sent, uri) = (now(), request.uri().clone());
        match tokio::time::timeout(self.limits.timeout, self.http.request(request)).await {
            Ok(Ok(response)) => Ok(self.incoming(place, response, sent)),
            Ok(Err(error)) => Err(request_error(place, &uri, &error)),
            Err(_) => Err(silent(place, self.limits.timeout)),
        }
    }

    /// With a body, for as long as the body moves; `patience` is the longest standstill.
    #[cfg(feature = "s3")]
    pub(super) async fn upload(
        &self,
        place: &str,
        request: Request<object_store::client::HttpRequestBody>,
        patience: Duration,
    ) -> Result<Incoming> {
        self.traffic.count(|stats| stats.requests += 1);
        let response = upload::send(&self.http, place, request, patience).await?;
        Ok(self.incoming(place, response, now()))
    }

    fn incoming(&self, place: &str, response: Response<hyper::body::Incoming>, sent: Instant) -> Incoming {
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
    response: Response<hyper::body::Incoming>,
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
        let body = self.response.body_mut();
        let frame = pin!(poll_fn(|context| Pin::new(&mut *body).poll_frame(context)));
        match select(frame, self.timer.as_mut()).await {
            Either::Left((Some(Ok(frame)), _)) => {
                // Trailers have no bytes.
                let bytes = frame.into_data().unwrap_or_default();
                let checked = self.pace.bytes(now(), bytes.len() as u64);
                checked.map_err(|slow| too_slow(&self.place, slow, self.timeout))?;
                Ok(Next::Bytes(bytes))
            }
            Either::Left((None, _)) => Ok(Next::End),
            Either::Left((Some(Err(error)), _)) => Err(body_error(&self.place, &error)),
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
        let announced = self.response.body().size_hint().exact().unwrap_or(0);
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
    let message = format!(
        "{place}: the response is larger than {bytes_max} bytes, the limit for its kind; check the URL"
    );
    Error::new(ErrorKind::Protocol, message)
}
