//! Sending a request with a body, for as long as the body moves.
//!
//! The client's own time-out runs from the first byte sent to the first byte heard, so that a part on a slow link would
//! never arrive. Here a request fails when nothing was taken from its body, and nothing was answered, for a while.

use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body as _, Frame, SizeHint};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
};

use tokio::time::{Instant, Sleep};

use super::client::transport_error;
use crate::{Error, ErrorKind};

/// Sends `request` and returns the answer; fails if neither body nor answer moves for `patience`.
pub(super) async fn send(
    client: &reqwest::Client,
    place: &str,
    request: HttpRequest,
    patience: Duration,
) -> Result<HttpResponse, HttpError> {
    let (parts, body) = request.into_parts();
    let failed = |error: Error| HttpError::new(HttpErrorKind::Unknown, error);
    let url = parts.uri.to_string().parse().map_err(|_| {
        failed(Error::new(
            ErrorKind::Protocol,
            format!("{place}: the key makes no URL that can be asked for"),
        ))
    })?;
    let mut request = reqwest::Request::new(parts.method, url);
    *request.headers_mut() = parts.headers;
    let moved = Arc::new(Moved::default());
    *request.body_mut() = Some(match body.content_length() {
        // Said as such: servers want a length.
        0 => Bytes::new().into(),
        _ => reqwest::Body::wrap_stream(Pieces { body, rest: Bytes::new(), moved: Arc::clone(&moved) }),
    });
    let begun = Instant::now();
    let mut answer = pin!(client.execute(request));
    let mut before = 0;
    loop {
        match tokio::time::timeout(patience, &mut answer).await {
            Ok(answer) => {
                let answer: http::Response<reqwest::Body> =
                    answer.map_err(|error| failed(transport_error(place, &error)))?.into();
                let (parts, body) = answer.into_parts();
                let silence = Box::pin(tokio::time::sleep(patience));
                let place = place.into();
                let body = HttpResponseBody::new(Answer { body: Box::pin(body), place, patience, silence });
                return Ok(HttpResponse::from_parts(parts, body));
            }
            Err(_) => {
                let now = moved.bytes.load(Ordering::Relaxed);
                // The last bytes are in the system's buffers: they may take as long as those before them did.
                let drains = moved.all.get().is_some_and(|all| all.elapsed() < patience + (*all - begun));
                if now == before && !drains {
                    let message =
                        format!("{place}: the server takes nothing and answers nothing for {patience:?}");
                    return Err(failed(Error::new(ErrorKind::TimedOut, message)));
                }
                before = now;
            }
        }
    }
}

/// How far a body has come.
#[derive(Debug, Default)]
struct Moved {
    bytes: AtomicU64,
    /// When the last of it was taken.
    all: OnceLock<Instant>,
}

/// A body in pieces small enough that taking one means that bytes move.
struct Pieces {
    body: HttpRequestBody,
    rest: Bytes,
    moved: Arc<Moved>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    self.moved.all.get_or_init(Instant::now);
                    return Poll::Ready(None);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.rest.len().min(PIECE_BYTES);
        self.moved.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(self.rest.split_to(count))))
    }
}

/// The body of an answer, its errors told as ours, silence among them.
struct Answer {
    body: Pin<Box<reqwest::Body>>,
    place: Box<str>,
    patience: Duration,
    /// Ends when nothing was heard for too long.
    silence: Pin<Box<Sleep>>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let failed = |error: Error| HttpError::new(HttpErrorKind::Unknown, error);
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            let heard = Instant::now() + self.patience;
            self.silence.as_mut().reset(heard);
            let told = |error| failed(transport_error(&self.place, &error));
            return Poll::Ready(frame.map(|frame| frame.map_err(told)));
        }
        self.silence.as_mut().poll(context).map(|()| {
            let message = format!("{}: the answer breaks off, silent for {:?}", self.place, self.patience);
            Some(Err(failed(Error::new(ErrorKind::TimedOut, message))))
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes handed to the connection at a time: at 10 kB/s on one of 64 connections still one in half a minute.
const PIECE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread;

    use super::*;
    use crate::net::{client, runtime};

    /// Sends 32 MiB, more than the system's buffers hold, to a server that does `deed` with them.
    fn put(deed: impl FnOnce(&mut TcpStream) + Send + 'static) -> crate::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/object", listener.local_addr().unwrap());
        thread::spawn(move || deed(&mut listener.accept().expect("a request comes").0));
        let client = client::Connector::new("s3://bucket", PATIENCE, 1).unwrap().upstream;
        runtime::wait(async move {
            let mut request = HttpRequest::new(HttpRequestBody::from(vec![7; BYTES]));
            *request.method_mut() = http::Method::PUT;
            *request.uri_mut() = url.parse().unwrap();
            let answer = send(&client, "s3://bucket", request, PATIENCE).await;
            answer
                .map(|answer| answer.status().as_u16())
                .map_err(|error| transport_error("s3://bucket", &error))
        })
    }

    #[test]
    fn a_body_on_a_slow_link_arrives_however_long_it_takes() {
        let status = put(|stream| {
            let (mut taken, mut bytes) = (0, vec![0; 1 << 20]);
            while taken < BYTES {
                // Longer than the patience in all; all the time some bytes move.
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
    fn a_body_that_nobody_takes_is_given_up() {
        let (done, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let error = put(move |_| wait.recv().unwrap_or_default()).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TimedOut, true), "{error}");
        drop(done);
    }

    const BYTES: usize = 32 << 20;
    const PATIENCE: Duration = Duration::from_millis(600);
}
