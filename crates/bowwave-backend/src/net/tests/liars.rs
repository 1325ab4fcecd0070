//! Servers that send wrong responses, close the connection, or stop sending.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::{
    Backend, Error, ErrorKind, Heard, Namespace as _, Object, OpenWrite, Options, ReadBuf, ReadSink,
    WillRead, Write as _, WriteObject,
};
use crate::{open_url, read_once, start_read};

/// Responds to a request (its head); HEAD gets a valid response.
type Deed = dyn Fn(&mut TcpStream, &str) + Send + Sync;

/// A server whose one object has 1000 bytes and the tag "v1", and that responds to GET by `deed`.
fn liar(deed: impl Fn(&mut TcpStream, &str) + Send + Sync + 'static) -> String {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: \"v1\"\r\n\r\n";
    server(Arc::new(move |stream, request| match request.starts_with("HEAD") {
        true => stream.write_all(head.as_bytes()).unwrap(),
        false => deed(stream, request),
    }))
}

/// Responds by `deed` until the test's process ends.
fn server(deed: Arc<Deed>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let deed = Arc::clone(&deed);
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let mut request = String::new();
                // One request at a time, until the client closes the connection.
                while lines.read_line(&mut request).is_ok_and(|count| count > 0) {
                    if request.ends_with("\r\n\r\n") {
                        deed(&mut stream, &request);
                        request.clear();
                    }
                }
            });
        }
    });
    format!("http://127.0.0.1:{port}/object")
}

fn open(url: &str) -> Arc<dyn Object> {
    store(url).open("".as_ref()).expect("HEAD gets a valid response")
}

fn store(url: &str) -> Arc<dyn Backend> {
    let options = Options { timeout: TIMEOUT, ..Options::default() };
    open_url(url, &options).unwrap()
}

/// A bucket of a server at `url`.
fn bucket(url: &str) -> Arc<dyn Backend> {
    let options = Options {
        endpoint: url.strip_suffix("/object").map(str::to_owned),
        allow_http: true,
        credentials: Some(super::keys()),
        timeout: TIMEOUT,
        ..Options::default()
    };
    open_url("s3://bucket", &options).unwrap()
}

/// The error of a read of bytes 100..200 if the server responds `answer` and closes the connection.
fn error_of(answer: impl Into<Vec<u8>>) -> Error {
    let answer = answer.into();
    let url = liar(move |stream, _| {
        stream.write_all(&answer).unwrap();
        stream.shutdown(Shutdown::Both).ok();
    });
    let error = read_once(&*open(&url), 100, 100, PATIENCE).expect_err("the response is invalid");
    assert!(!error.to_string().contains('\n') && error.to_string().contains("127.0.0.1"), "{error}");
    error
}

/// A response for bytes 100..200 with the given headers and body length.
fn partial(headers: &str, body: usize) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 206 Partial Content\r\n{headers}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + body, b'x');
    answer
}

/// Short, so that tests are quick; long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_millis(600);
const RANGE: &str = "Content-Range: bytes 100-199/1000";
const TAG: &str = "ETag: \"v1\"";

#[test]
fn a_valid_response_is_accepted() {
    let url = liar(|stream, request| {
        assert!(
            request.contains("range: bytes=100-199\r\n") && request.contains("if-match: \"v1\"\r\n"),
            "{request}"
        );
        stream.write_all(&partial(&format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 100)).unwrap();
    });
    let object = open(&url);
    assert_eq!(read_once(&*object, 100, 100, PATIENCE).unwrap(), [b'x'; 100]);
}

#[test]
fn a_wrong_range_length_or_version_is_rejected() {
    for (headers, body, kind) in [
        (format!("{TAG}\r\nContent-Length: 100"), 100, ErrorKind::Protocol),
        (format!("Content-Range: bytes 0-99/1000\r\n{TAG}\r\nContent-Length: 100"), 100, ErrorKind::Protocol),
        (
            format!("Content-Range: bytes 100-149/1000\r\n{TAG}\r\nContent-Length: 50"),
            50,
            ErrorKind::Protocol,
        ),
        (format!("Content-Range: rubbish\r\n{TAG}\r\nContent-Length: 100"), 100, ErrorKind::Protocol),
        (format!("{RANGE}\r\n{TAG}\r\nContent-Length: 150"), 150, ErrorKind::Protocol),
        (format!("{RANGE}\r\nContent-Length: 100"), 100, ErrorKind::Protocol),
        (
            format!("Content-Range: bytes 100-199/999\r\n{TAG}\r\nContent-Length: 100"),
            100,
            ErrorKind::Changed,
        ),
        (format!("{RANGE}\r\nETag: \"v2\"\r\nContent-Length: 100"), 100, ErrorKind::Changed),
        (format!("{RANGE}\r\n{TAG}\r\nContent-Length: 60"), 60, ErrorKind::Truncated),
        (format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 60, ErrorKind::Truncated),
        (format!("{RANGE}\r\n{TAG}"), 60, ErrorKind::Truncated),
    ] {
        let error = error_of(partial(&headers, body));
        assert_eq!(error.kind(), kind, "{headers:?} and {body} bytes: {error}");
        assert_eq!(error.is_retryable(), kind == ErrorKind::Truncated);
    }
}

#[test]
fn statuses_map_to_error_kinds() {
    for (status, kind, retryable) in [
        // The client then requests the whole file, and less is announced.
        ("200 OK\r\nETag: \"v1\"", ErrorKind::Truncated, true),
        ("200 OK\r\nETag: \"v2\"", ErrorKind::Changed, false),
        ("204 No Content", ErrorKind::Protocol, false),
        ("400 Bad Request", ErrorKind::Protocol, false),
        ("401 Unauthorized", ErrorKind::Unauthenticated, false),
        ("403 Forbidden", ErrorKind::PermissionDenied, false),
        ("404 Not Found", ErrorKind::Changed, false),
        ("412 Precondition Failed", ErrorKind::Changed, false),
        ("416 Range Not Satisfiable\r\nContent-Range: bytes */50", ErrorKind::Changed, false),
        ("416 Range Not Satisfiable\r\nContent-Range: bytes */1000", ErrorKind::Protocol, false),
        ("429 Too Many Requests", ErrorKind::Throttled, true),
        ("500 Internal Server Error", ErrorKind::Unavailable, true),
        ("503 Slow Down", ErrorKind::Throttled, true),
        ("504 Gateway Timeout", ErrorKind::Unavailable, true),
    ] {
        let error = error_of(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{status}: {error}");
        assert_eq!(error.retry_after(), None);
    }
    let error = error_of("HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(error_of("rubbish\r\n\r\n").kind(), ErrorKind::Unavailable);
    assert_eq!(error_of("").kind(), ErrorKind::Unavailable);
}

#[test]
fn a_failed_condition_of_an_open_means_that_the_object_has_changed() {
    let url = server(Arc::new(|stream, _| {
        stream.write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n").unwrap();
    }));
    let store = bucket(&url);
    for will_read in [WillRead::Any, WillRead::START, WillRead::Last { bytes: 8 }] {
        let error = store.open_to_read("object".as_ref(), will_read).expect_err("no response has bytes");
        assert_eq!(error.kind(), ErrorKind::Changed, "{will_read:?}: {error}");
    }
}

#[test]
fn bytes_before_a_truncation_are_reported() {
    let url = liar(|stream, _| {
        let headers = format!("Content-Range: bytes 0-999/1000\r\n{TAG}\r\nContent-Length: 1000");
        stream.write_all(&partial(&headers, 600)).unwrap();
        stream.shutdown(Shutdown::Both).ok();
    });
    let object = open(&url);
    let heard: Vec<_> = start_read(&*object, 0, ReadBuf::zeroed(1000)).iter().collect();
    let reported = heard.iter().filter_map(|heard| match heard {
        Heard::Progress(bytes) => Some(*bytes),
        _ => None,
    });
    assert_eq!(reported.max(), Some(600), "{heard:?}");
    assert!(heard.iter().any(|heard| matches!(heard, Heard::Done(buf, Err(error))
        if error.kind() == ErrorKind::Truncated && buf.to_vec()[..600] == [b'x'; 600])));
}

#[test]
fn silence_ends_at_the_timeout_before_and_within_a_body() {
    let silent = liar(|stream, _| drop(stream.read(&mut [0])));
    let half = liar(|stream, _| {
        stream.write_all(&partial(&format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 50)).unwrap();
        drop(stream.read(&mut [0]));
    });
    for url in [silent, half] {
        let object = open(&url);
        let begun = Instant::now();
        let error = read_once(&*object, 100, 100, PATIENCE).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TimedOut, true), "{error}");
        assert!(begun.elapsed() >= TIMEOUT && begun.elapsed() < PATIENCE / 2);
    }
    let mute = server(Arc::new(|stream, _| drop(stream.read(&mut [0]))));
    let error = store(&mute).open("".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
fn a_slow_drip_is_no_silence() {
    let url = liar(|stream, _| {
        stream.write_all(&partial(&format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 0)).unwrap();
        for _ in 0..10 {
            // Longer than the time-out in total, shorter between two bytes.
            thread::sleep(TIMEOUT / 5);
            stream.write_all(&[b'x'; 10]).unwrap();
        }
    });
    let options = Options { timeout: TIMEOUT, least_rate: 10, ..Options::default() };
    let object = open_url(&url, &options).unwrap().open("".as_ref()).unwrap();
    assert_eq!(read_once(&*object, 100, 100, PATIENCE).unwrap().len(), 100);
}

/// Regression: one byte at a time, always within the time-out, and the read never ended.
#[test]
fn a_response_below_the_least_throughput_fails_after_one_period() {
    let url = liar(|stream, _| {
        stream.write_all(&partial(&format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 0)).unwrap();
        while stream.write_all(b"x").is_ok() {
            thread::sleep(TIMEOUT / 5);
        }
    });
    let object = open(&url);
    let begun = Instant::now();
    let error = read_once(&*object, 100, 100, PATIENCE).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TimedOut, true), "{error}");
    assert!(begun.elapsed() < 3 * TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn a_closed_port_is_reported_as_such() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let error = store(&format!("http://127.0.0.1:{port}/object")).open("".as_ref()).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

#[test]
fn a_server_without_head_gets_a_request_for_one_byte() {
    for (answer, size) in [
        ("206 Partial Content\r\nContent-Range: bytes 0-0/1000\r\nContent-Length: 1\r\n\r\nx", 1000),
        ("416 Range Not Satisfiable\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n", 0),
        ("200 OK\r\nContent-Length: 4\r\n\r\nbody", 4),
    ] {
        let url = server(Arc::new(move |stream, request| {
            let answer = match request.starts_with("HEAD") {
                true => "405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n",
                false => answer,
            };
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
        }));
        assert_eq!(open(&url).size(), size, "{answer}");
    }
}

#[test]
fn redirections_are_followed_anew_for_each_read() {
    let target = liar(|stream, _| {
        stream.write_all(&partial(&format!("{RANGE}\r\n{TAG}\r\nContent-Length: 100"), 100)).unwrap();
    });
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let url = server(Arc::new(move |stream, _| {
        let signed = counter.fetch_add(1, Ordering::SeqCst);
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: {target}?signed={signed}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
    }));
    let object = open(&url);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(read_once(&*object, 100, 100, PATIENCE).unwrap(), [b'x'; 100]);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "a signed URL may have expired since");
}

#[test]
fn a_throttling_object_store_sets_the_pause() {
    let url = server(Arc::new(|stream, _| {
        let answer = "HTTP/1.1 503 Slow Down\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
    }));
    let error = bucket(&url).open("x".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled, "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
}

#[test]
fn keys_that_are_no_paths_are_omitted_from_listings() {
    let url = server(Arc::new(|stream, _| {
        let time = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag>";
        let keys = ["a", "b//c", "../d", "e"]
            .map(|key| format!("<Contents><Key>{key}</Key>{time}<Size>1</Size></Contents>"));
        let body = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{}\
             <CommonPrefixes><Prefix>/</Prefix></CommonPrefixes></ListBucketResult>",
            keys.concat()
        );
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
            .unwrap();
    }));
    let entries = bucket(&url).list("".as_ref()).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.name.to_str().unwrap()).collect::<Vec<_>>(), ["a", "e"]);
}

/// An object of an empty bucket whose server begins any upload, and responds to parts by `deed`.
fn upload(deed: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Arc<dyn WriteObject> {
    let url = server(Arc::new(move |stream, request| {
        let (status, body) = match request.split(' ').next() {
            Some("GET") => ("200 OK", "<ListBucketResult></ListBucketResult>"),
            Some("POST") => ("200 OK", "<Result><UploadId>1</UploadId></Result>"),
            Some("PUT") => return deed(stream),
            _ => ("404 Not Found", ""),
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
    }));
    let how = OpenWrite { create: true, ..OpenWrite::default() };
    bucket(&url).open_write("object".as_ref(), &how).unwrap()
}

/// The buffer is returned as well.
#[test]
fn a_part_without_a_response_ends_at_the_timeout() {
    let object = upload(|_| thread::sleep(PATIENCE));
    let error = super::writes::write(&*object, 0, &vec![7; 8 << 20]).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TimedOut, true), "{error}");
}

/// A sink that only reports its drop.
struct Fickle {
    unwanted: Arc<AtomicBool>,
    dropped: SyncSender<()>,
}

impl ReadSink for Fickle {
    fn progress(&mut self, _bytes: usize) {}

    fn done(self: Box<Self>, _buf: ReadBuf, result: crate::Result<usize>) {
        panic!("the server sends no response: {result:?}");
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.unwanted))
    }
}

impl Drop for Fickle {
    fn drop(&mut self) {
        // Without a receiver if the test has failed.
        self.dropped.try_send(()).ok();
    }
}

#[test]
fn a_cancelled_read_closes_its_connection() {
    let (tell_asked, asked) = sync_channel(1);
    let (tell_closed, closed) = sync_channel(1);
    let url = liar(move |stream, _| {
        tell_asked.send(()).unwrap();
        tell_closed.send(stream.read(&mut [0]).ok()).unwrap();
    });
    // The client's own time-out is longer than the test.
    let options = Options { timeout: 10 * PATIENCE, ..Options::default() };
    let object = open_url(&url, &options).unwrap().open("".as_ref()).expect("HEAD gets a valid response");
    let (dropped, is_dropped) = sync_channel(1);
    let unwanted = Arc::new(AtomicBool::new(false));
    let sink = Fickle { unwanted: Arc::clone(&unwanted), dropped };
    object.read(100, ReadBuf::zeroed(100), Box::new(sink));
    asked.recv_timeout(PATIENCE).expect("the server gets the request");
    unwanted.store(true, Ordering::Relaxed);
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(Some(0)), "the connection is closed");
    is_dropped.recv_timeout(PATIENCE).expect("the sink is dropped");
}
