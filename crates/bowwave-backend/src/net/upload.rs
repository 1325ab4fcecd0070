//! Sends a request with a body, for as long as the body moves.
//!
//! The client's own time-out runs from the first byte sent to the first byte received, so a part on
//! a slow link would never arrive. Here a request fails when the peer accepts no byte of its body,
//! and sends no response, for a while.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Method, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use object_store::client::{HttpError, HttpRequest, HttpRequestBody};

use tokio::time::Instant;

use super::connect::{Http, RequestBody};
use super::errors::request_error;
use crate::{Error, ErrorKind, Result};

/// Sends `request` and returns the response; fails if neither body nor response moves for
/// `patience`.
pub(super) async fn send(
    client: &Http,
    place: &str,
    request: HttpRequest,
    patience: Duration,
) -> Result<Response<Incoming>> {
    let moved = Arc::new(Moved { start: Instant::now(), last_ns: AtomicU64::new(0), all: OnceLock::new() });
    let mut request = request.map(|body| match body.content_length() {
        0 => RequestBody::Nothing,
        left => RequestBody::Pieces(Pieces { body, left, rest: Bytes::new(), moved: Arc::clone(&moved) }),
    });
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        // Servers require a length, even of nothing.
        let bytes = request.body().size_hint().exact().unwrap_or(0);
        request.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(bytes));
    }
    let uri = request.uri().clone();
    let mut response = pin!(client.request(request));
    loop {
        if let Ok(response) = tokio::time::timeout_at(moved.due(patience), &mut response).await {
            return response.map_err(|error| request_error(place, &uri, &error));
        }
        if moved.due(patience) <= Instant::now() {
            let message = format!(
                "{place}: the server accepts nothing and sends no response for {patience:?}; is the server up?"
            );
            return Err(Error::new(ErrorKind::TimedOut, message));
        }
    }
}

/// Progress of a body.
#[derive(Debug)]
struct Moved {
    start: Instant,
    /// When bytes were last accepted, in nanoseconds since `start`.
    last_ns: AtomicU64,
    /// When the last byte was accepted.
    all: OnceLock<Instant>,
}

impl Moved {
    /// When the standstill is too long, if nothing moves until then.
    fn due(&self, patience: Duration) -> Instant {
        match self.all.get() {
            // The last bytes are in the system's buffers: they may take as long as all bytes before
            // them.
            Some(all) => *all + patience + (*all - self.start),
            None => self.start + Duration::from_nanos(self.last_ns.load(Ordering::Relaxed)) + patience,
        }
    }

    fn moves(&self) {
        let ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(ns, Ordering::Relaxed);
    }
}

/// A body in pieces so small that accepting one shows that bytes move.
#[derive(Debug)]
pub(super) struct Pieces {
    body: HttpRequestBody,
    /// Bytes of the body that were not passed on yet.
    left: usize,
    rest: Bytes,
    moved: Arc<Moved>,
}

impl Pieces {
    /// Bytes still to send.
    pub(super) fn left(&self) -> u64 {
        self.left as u64
    }

    /// The next piece; `None` after the last one.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Bytes, HttpError>>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.rest.len().min(PIECE_BYTES);
        self.moved.moves();
        self.left -= count;
        if self.left == 0 {
            // hyper does not poll after the last byte.
            self.moved.all.get_or_init(Instant::now);
        }
        Poll::Ready(Some(Ok(self.rest.split_to(count))))
    }
}

/// Bytes passed to the connection at a time: at 10 kB/s on one of 64 connections, still one in half
/// a minute.
const PIECE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread;

    use super::*;
    use crate::Options;
    use crate::net::{exchange, runtime};

    /// Sends 32 MiB, more than the system's buffers hold, to a server that handles them by `deed`.
    fn put(deed: impl FnOnce(&mut TcpStream) + Send + 'static) -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/object", listener.local_addr().unwrap());
        thread::spawn(move || deed(&mut listener.accept().expect("a request comes").0));
        let client = exchange::Client::new(&Options { timeout: PATIENCE, ..Options::default() }, 1);
        runtime::wait(async move {
            let mut request = HttpRequest::new(HttpRequestBody::from(vec![7; BYTES]));
            *request.method_mut() = Method::PUT;
            *request.uri_mut() = url.parse().unwrap();
            client.upload("s3://bucket", request, PATIENCE).await.map(|response| response.status().as_u16())
        })
    }

    #[test]
    fn a_body_on_a_slow_link_arrives_however_long_it_takes() {
        let status = put(|stream| {
            let (mut taken, mut bytes) = (0, vec![0; 1 << 20]);
            while taken < BYTES {
                // Longer than the patience in total, but some bytes move all the time.
                thread::sleep(PATIENCE / 6);
                let before = taken;
                while taken < BYTES && taken < before + (1 << 20) {
                    taken += stream.read(&mut bytes).unwrap();
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        assert_eq!(status.unwrap(), 200);
    }

    #[test]
    fn a_body_that_is_not_accepted_fails() {
        let (done, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let error = put(move |_| wait.recv().unwrap_or_default()).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TimedOut, true), "{error}");
        drop(done);
    }

    const BYTES: usize = 32 << 20;
    const PATIENCE: Duration = Duration::from_millis(600);
}
