//! An S3 server with generated objects and a configured speed, to measure mounts of object stores.
//!
//! It serves the requests of readers (listings, heads, ranges), ignores signatures, and stores
//! nothing on disk, so an object of 64 GiB costs nothing. Bytes of an object repeat after
//! [`PERIOD`], which is prime to pages and parts, so that readers can check every byte.

mod alarm;
mod answer;

use std::fs::File;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowwave_core::fill_pattern;
use futures_util::Stream;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::Service;
use hyper::{Method, Request, Response, header};
use tokio::sync::Mutex;

use self::alarm::Alarm;
use self::answer::Answer;
use crate::serve::{self, Serving};

/// Period of an object's bytes: the largest prime below 2^20.
pub const PERIOD: usize = 1_048_573;
/// Bytes per write.
const PIECE: u64 = 128 << 10;

/// Speed of the server.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Time to first byte.
    pub first_byte: Duration,
    /// Bytes per second and connection; 0 for no limit.
    pub connection_rate: u64,
    /// Bytes per second of all connections; 0 for no limit.
    pub total_rate: u64,
}

/// What an object contains.
#[derive(Clone, Debug)]
pub enum Content {
    /// This many bytes of the pattern.
    Pattern(u64),
    /// These bytes.
    Bytes(Bytes),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Pattern(len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// The server. Its only bucket is `data`.
#[derive(Debug)]
pub struct ShapedS3 {
    serving: Serving,
}

/// State shared by requests.
#[derive(Debug)]
struct Shared {
    shape: Shape,
    objects: Vec<(String, u64)>,
    contents: Vec<Content>,
    /// Two periods, so that any piece is one slice.
    pattern: Bytes,
    alarm: Alarm,
    /// When the link is free again.
    link: Mutex<Instant>,
    requests: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    bytes: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    log: Option<File>,
    started: Instant,
}

/// A response in progress.
struct Sending {
    shared: Arc<Shared>,
    content: Content,
    _counted: Counted,
    begun: Instant,
    at: u64,
    end: u64,
    sent: u64,
}

type Body = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>>;

#[derive(Clone)]
struct Front(Arc<Shared>);

impl ShapedS3 {
    /// Serves these objects, each a key and its size in bytes, on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port or thread is available.
    pub fn start(shape: Shape, objects: Vec<(String, u64)>) -> io::Result<Self> {
        let objects = objects.into_iter().map(|(key, len)| (key, Content::Pattern(len)));
        Self::serve(shape, objects.collect())
    }

    /// As [`start`](Self::start), with contents.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn serve(shape: Shape, objects: Vec<(String, Content)>) -> io::Result<Self> {
        Self::serve_logged(shape, objects, None)
    }

    /// As [`serve`](Self::serve). Writes a line to `log` as each request arrives: milliseconds
    /// since the start, method, path with query, and range.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn serve_logged(
        shape: Shape,
        mut objects: Vec<(String, Content)>,
        log: Option<File>,
    ) -> io::Result<Self> {
        let mut period = vec![0; PERIOD];
        fill_pattern(1, 0, &mut period);
        objects.sort_by(|a, b| a.0.cmp(&b.0));
        let contents = objects.iter().map(|(_, content)| content.clone()).collect();
        let objects = objects.into_iter().map(|(key, content)| (key, content.len())).collect();
        let shared = Shared {
            shape,
            objects,
            contents,
            pattern: period.repeat(2).into(),
            alarm: Alarm::start()?,
            link: Mutex::new(Instant::now()),
            requests: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
            log,
            started: Instant::now(),
        };
        Ok(Self { serving: serve::start(Front(Arc::new(shared)))? })
    }

    /// Its URL. `/_pattern` there is the repeated pattern, and `/_counters` the requests
    /// by kind and body bytes so far, and the most requests in flight since it was last read.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address)
    }
}

impl Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Body>>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = Answer::to(&request, &shared.objects);
            let text = match answer.own {
                answer::Own::Pattern => Some(shared.pattern.slice(..PERIOD)),
                answer::Own::Counters => Some(shared.counters().into()),
                answer::Own::No => None,
            };
            if let Some(text) = text {
                return Ok(Response::new(body(stream::iter([Ok(Frame::data(text))]))));
            }
            shared.count(&request);
            let counted = Counted::new(&shared);
            let begun = Instant::now() + shared.shape.first_byte;
            shared.alarm.wait_until(begun).await;
            let head = answer.head.body(()).map_err(io::Error::other)?;
            let (parts, ()) = head.into_parts();
            let body = match answer.text {
                Some(text) => body(stream::iter([Ok(Frame::data(Bytes::from(text)))])),
                None => {
                    let (at, end) = answer.range;
                    let content = shared.contents[answer.number].clone();
                    let sending = Sending { shared, content, _counted: counted, begun, at, end, sent: 0 };
                    body(stream::unfold(sending, Sending::next))
                }
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

impl Shared {
    fn counters(&self) -> String {
        let [requests, heads, lists, bytes] = [&self.requests, &self.heads, &self.lists, &self.bytes]
            .map(|counter| counter.load(Ordering::Relaxed));
        let gets = requests.saturating_sub(heads + lists);
        let in_flight = self.in_flight_max.swap(0, Ordering::Relaxed);
        self.in_flight_max.fetch_max(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
        format!(
            "{{\"requests\": {requests}, \"heads\": {heads}, \"lists\": {lists}, \"gets\": {gets}, \
             \"bytes\": {bytes}, \"in_flight_max\": {in_flight}}}\n"
        )
    }

    /// Counts a request: those that are neither HEAD nor a listing are reads of objects.
    fn count<B>(&self, request: &Request<B>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(mut log) = self.log.as_ref() {
            let range = request.headers().get(header::RANGE).and_then(|range| range.to_str().ok());
            let line = format!(
                "{:.1} {} {} {}\n",
                self.started.elapsed().as_secs_f64() * 1e3,
                request.method(),
                request.uri(),
                range.unwrap_or("-")
            );
            // A full disk must not end a measurement.
            let _ = log.write_all(line.as_bytes());
        }
        let is_list = request.uri().path().trim_end_matches('/') == "/data";
        let counter = match *request.method() {
            Method::HEAD => &self.heads,
            _ if is_list => &self.lists,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the link has sent `bytes` more.
    async fn through_link(&self, bytes: u64) {
        if self.shape.total_rate == 0 {
            return;
        }
        let done = {
            let mut free = self.link.lock().await;
            *free = (*free).max(Instant::now()) + time_of(bytes, self.shape.total_rate);
            *free
        };
        self.alarm.wait_until(done).await;
    }
}

impl Sending {
    /// The next piece, when it is due.
    async fn next(mut self) -> Option<(io::Result<Frame<Bytes>>, Self)> {
        let bytes = (self.end - self.at).min(PIECE);
        if bytes == 0 {
            return None;
        }
        self.shared.through_link(bytes).await;
        self.sent += bytes;
        let rate = self.shared.shape.connection_rate;
        if rate > 0 {
            self.shared.alarm.wait_until(self.begun + time_of(self.sent, rate)).await;
        }
        let piece = match &self.content {
            Content::Pattern(_) => {
                let from = (self.at % PERIOD as u64) as usize;
                self.shared.pattern.slice(from..from + bytes as usize)
            }
            Content::Bytes(all) => all.slice(self.at as usize..(self.at + bytes) as usize),
        };
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.at += bytes;
        Some((Ok(Frame::data(piece)), self))
    }
}

/// A request in flight, until it is dropped.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        let now = shared.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        shared.in_flight_max.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn body(pieces: impl Stream<Item = io::Result<Frame<Bytes>>> + Send + 'static) -> Body {
    StreamBody::new(Box::pin(pieces))
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)).min(u64::MAX.into()) as u64)
}
