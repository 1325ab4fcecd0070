//! Sending a request with a body, for as long as the body moves.
//!
//! The client's own time-out runs from the first byte sent to the first byte heard, so that a part on a slow link would
//! never arrive. Here a request fails when nothing was taken from its body, and nothing was answered, for a while.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body as _, Frame, SizeHint};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
};

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
    let moved = Arc::new(AtomicU64::new(0));
    let stream = Pieces { body, rest: Bytes::new(), moved: Arc::clone(&moved) };
    *request.body_mut() = Some(reqwest::Body::wrap_stream(stream));
    let mut answer = pin!(client.execute(request));
    let mut before = 0;
    loop {
        match tokio::time::timeout(patience, &mut answer).await {
            Ok(answer) => {
                let answer: http::Response<reqwest::Body> =
                    answer.map_err(|error| failed(transport_error(place, &error)))?.into();
                let (parts, body) = answer.into_parts();
                let body = HttpResponseBody::new(Answer { body: Box::pin(body), place: place.into() });
                return Ok(HttpResponse::from_parts(parts, body));
            }
            Err(_) => {
                let now = moved.load(Ordering::Relaxed);
                if now == before {
                    let message =
                        format!("{place}: the server takes nothing and answers nothing for {patience:?}");
                    return Err(failed(Error::new(ErrorKind::TimedOut, message)));
                }
                before = now;
            }
        }
    }
}

/// A body in pieces small enough that taking one means that bytes move.
struct Pieces {
    body: HttpRequestBody,
    rest: Bytes,
    moved: Arc<AtomicU64>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.rest.len().min(PIECE_BYTES);
        self.moved.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(self.rest.split_to(count))))
    }
}

/// The body of an answer, its errors told as ours.
struct Answer {
    body: Pin<Box<reqwest::Body>>,
    place: Box<str>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = self.body.as_mut().poll_frame(context);
        frame.map_err(|error| HttpError::new(HttpErrorKind::Unknown, transport_error(&self.place, &error)))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes handed to the connection at a time: at 10 kB/s on one of 64 connections still one in half a minute.
const PIECE_BYTES: usize = 256 << 10;
