//! Web servers: weak entity tags, and URLs with secrets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::{Options, open_url};

const LEN: usize = 8192;

/// A web server whose objects are [`LEN`] bytes that depend on the query, with these headers. It
/// ends with the test.
fn serve(headers: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _the_client_may_be_gone = stream.and_then(|stream| answer(&stream, headers));
        }
    });
    port
}

fn content(target: &str) -> Vec<u8> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    bytes(LEN as u64, query.bytes().map(u64::from).sum::<u64>() % 1000)
}

/// Responds to one request for the whole object or a range.
fn answer(mut stream: &TcpStream, headers: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut range = None;
    for line in lines.map_while(std::io::Result::ok).take_while(|line| !line.is_empty()) {
        let line = line.to_ascii_lowercase();
        let bounds = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'));
        if let Some((first, last)) = bounds {
            range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        }
    }
    let body = content(first.split(' ').nth(1).unwrap_or_default());
    let (status, part) = match range {
        Some((first, last)) => (
            format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{LEN}"),
            body.get(first..=last).unwrap_or_default(),
        ),
        None => ("200 OK".to_owned(), &body[..]),
    };
    let length = part.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n")?;
    if first.starts_with("GET") { stream.write_all(part) } else { Ok(()) }
}

/// Reads a URL twice through a disk cache; returns its counters.
fn read_twice(directory: &Path, url: &str) -> DiskStats {
    let url = format!("disk:directory={},size=64MiB:{url}", directory.display());
    let store = open_url(&url, &Options::default()).expect("it can be opened");
    let mut stats = store.disk().expect("a disk cache");
    for _ in 0..2 {
        let object = store.open(Path::new("")).expect("there");
        assert!(read_exact(&*object, 0, LEN, PATIENCE).expect("readable") == content(&url), "{url}");
        let begun = Instant::now();
        loop {
            stats = store.disk().expect("a disk cache");
            // Reads of objects that are not cached do not count.
            if stats.misses == 0 || stats.bytes_written > 0 || stats.hits > 0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is written");
            thread::sleep(Duration::from_millis(1));
        }
    }
    stats
}

#[test]
fn an_object_with_a_weak_entity_tag_is_not_cached() {
    let directory = temporary();
    for (headers, is_cached) in [
        ("ETag: \"1\"\r\n", true),
        ("ETag: W/\"1\"\r\n", false),
        ("ETag: 1\r\n", false),
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", true),
    ] {
        let port = serve(headers);
        let stats = read_twice(directory.path(), &format!("http://127.0.0.1:{port}/x"));
        assert_eq!((stats.hits, stats.misses), if is_cached { (1, 1) } else { (0, 0) }, "{headers}");
    }
}

/// Regression: the store's URL hides the query, so two objects with equal tags had one key.
#[test]
fn objects_that_differ_only_in_the_query_have_different_keys() {
    let directory = temporary();
    let port = serve("ETag: \"1\"\r\n");
    for query in ["file=a", "file=b", "file=a"] {
        read_twice(directory.path(), &format!("http://127.0.0.1:{port}/get?{query}"));
    }
}

#[test]
fn no_file_of_the_cache_contains_a_password_a_query_or_a_signature() {
    let directory = temporary();
    let port = serve("ETag: \"1\"\r\n");
    let url = format!(
        "http://someone:pass-word@127.0.0.1:{port}/x?X-Amz-Credential=AKIA0&X-Amz-Signature=0f1e2d3c"
    );
    assert_eq!(read_twice(directory.path(), &url).hits, 1);
    let paths = segments(directory.path());
    assert_eq!(paths.len(), 1);
    let file = fs::read(&paths[0]).expect("readable");
    let text = String::from_utf8_lossy(&file[..4096]);
    assert!(text.contains(&format!("http://127.0.0.1:{port}/x")), "{text}");
    for secret in ["someone", "pass-word", "Credential", "AKIA0", "Signature", "0f1e2d3c"] {
        let is_there = file.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there && !paths[0].to_string_lossy().contains(secret), "{secret}: {text}");
    }
}
