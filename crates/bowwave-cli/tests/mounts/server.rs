//! A server that lists keys no file can have, or invalid text, and returns errors for everything
//! else.

use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// Keys that escape a mount or are no valid names; two are valid.
fn keys() -> Vec<String> {
    let mut keys: Vec<String> = [
        "../out",
        "a/../../out",
        "/etc/passwd",
        "",
        "x//y",
        ".",
        "..",
        "fine",
        "sub/file",
        "alert&#7;",
        "new&#10;line",
    ]
    .map(str::to_owned)
    .to_vec();
    keys.push("n".repeat(300));
    keys
}

fn listing() -> String {
    let contents: String = keys()
        .iter()
        .filter(|key| !key.starts_with("sub/"))
        .map(|key| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;tag&quot;</ETag><Size>3</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
        })
        .collect();
    let prefixes = ["sub/", "../", "..", "/", ".//"]
        .map(|prefix| format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>bucket</Name><Prefix></Prefix><KeyCount>9</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter>\
         <IsTruncated>false</IsTruncated>{contents}{}</ListBucketResult>",
        prefixes.concat()
    )
}

/// Buckets: a listing with a key that is not UTF-8; one with NUL in a key; a truncated listing.
pub(crate) const BYTES: &str = "bytes";
pub(crate) const ZERO: &str = "zero";
pub(crate) const CUT: &str = "cut";

/// The response to a request that starts with `first`.
fn broken(first: &str) -> Option<Vec<u8>> {
    let bucket = [BYTES, ZERO, CUT].into_iter().find(|bucket| first.contains(&format!("/{bucket}")))?;
    let fine = listing();
    let (before, after) = fine.split_once("fine").expect("a key of it");
    Some(match bucket {
        BYTES => [before.as_bytes(), b"\xff\xfe\x80", after.as_bytes()].concat(),
        ZERO => format!("{before}a&#0;b{after}").into_bytes(),
        _ => before.as_bytes().to_vec(),
    })
}

/// Starts it and returns its URL. It ends with the test's process.
pub(crate) fn start() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(&stream));
        }
    });
    format!("http://{address}")
}

/// Serves the requests of one connection.
fn answer(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        io::copy(&mut io::Read::take(&mut reader, length), &mut io::sink())?;
        let (status, body) = match first.contains("list-type=2") {
            true => ("200 OK", broken(&first).unwrap_or_else(|| listing().into_bytes())),
            false => ("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>".to_vec()),
        };
        let body = if first.starts_with("HEAD") { Vec::new() } else { body };
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        stream.write_all(&body)?;
    }
}
