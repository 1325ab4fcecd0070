//! Tests with plain requests: correct in each dialect, and hostile in each mode.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;

/// Head and body of a response, truncated after `limit` or 2 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Response {
    head: String,
    body: Vec<u8>,
    /// Whether the connection was reset.
    was_reset: bool,
    /// Whether the connection was still open at the limit.
    is_open: bool,
}

impl Response {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends `method target` with `headers` and `body` on a connection of its own.
fn request(
    endpoint: &str,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
    limit: Duration,
) -> Response {
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(limit)).unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: data\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // The server may have closed the connection already.
    let _sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let (mut bytes, mut response, begun) = (Vec::new(), Response::default(), Instant::now());
    let mut block = vec![0; 64 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&block[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                response.is_open = true;
                break;
            }
            Err(_) => {
                response.was_reset = true;
                break;
            }
        }
        if begun.elapsed() > limit || bytes.len() > 4 << 20 {
            response.is_open = true;
            break;
        }
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    response.body = bytes.split_off(end);
    response.head = String::from_utf8_lossy(&bytes).into_owned();
    response
}

fn ask(server: &HostileServer, method: &str, target: &str, headers: &str) -> Response {
    request(&server.endpoint(), method, target, headers, b"", PATIENCE)
}

fn send(server: &HostileServer, method: &str, target: &str, headers: &str, body: &[u8]) -> Response {
    request(&server.endpoint(), method, target, headers, body, PATIENCE)
}

fn start(dialect: Dialect, mode: &str) -> HostileServer {
    let server = HostileServer::start(dialect).unwrap();
    server.set_mode(mode.parse().unwrap());
    server
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0)).collect()
}

/// The target that lists `prefix`, which ends with a slash.
fn listing(dialect: Dialect, prefix: &str, more: &str) -> String {
    match dialect {
        Dialect::Azure => format!("/data?restype=container&comp=list&prefix={prefix}&delimiter=%2F{more}"),
        _ => format!("/data?list-type=2&prefix={prefix}&delimiter=%2F{more}"),
    }
}

#[test]
fn a_put_with_a_wrong_checksum_or_condition_is_rejected() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    for (headers, status) in [
        ("x-amz-checksum-crc32: AAAAAA==\r\n", 400),
        ("Content-MD5: AAAA\r\n", 400),
        ("If-Match: \"x\"\r\n", 412),
    ] {
        let put = send(&server, "PUT", "/data/new", headers, b"bytes");
        assert_eq!((put.status(), server.object("new")), (status, None), "{headers}");
    }
    let put = send(&server, "PUT", "/data/new", "Content-MD5: SzpiGLs+OnMD6KFxpg/Pkg==\r\n", b"bytes");
    assert_eq!((put.status(), server.object("new").as_deref()), (200, Some(&b"bytes"[..])));
    let again = send(&server, "PUT", "/data/new", "If-None-Match: *\r\n", b"other");
    assert_eq!((again.status(), server.object("new").as_deref()), (412, Some(&b"bytes"[..])));
}

#[test]
fn an_upload_completes_once() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    let begun = send(&server, "POST", "/data/parts?uploads", "", b"").text();
    let id = between(&begun, "<UploadId>", "</UploadId>")[0].to_owned();
    let part = send(&server, "PUT", &format!("/data/parts?partNumber=1&uploadId={id}"), "", b"part");
    let etag = part.header("ETag").expect("a tag").to_owned();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    for status in [200, 404] {
        let done = send(&server, "POST", &format!("/data/parts?uploadId={id}"), "", list.as_bytes());
        assert_eq!(done.status(), status);
    }
    assert_eq!(server.object("parts").as_deref(), Some(&b"part"[..]));
}

#[test]
fn listings_have_all_entries_once_also_in_pages() {
    for dialect in [Dialect::S3, Dialect::Azure, Dialect::Google] {
        let server = HostileServer::start(dialect).unwrap();
        let (keys, limit) = match dialect {
            Dialect::Azure => (("<Name>", "</Name>"), "&maxresults=2"),
            _ => (("<Key>", "</Key>"), "&max-keys=2"),
        };
        let whole = ask(&server, "GET", &listing(dialect, "list/", ""), "").text();
        let mut found: Vec<_> = between(&whole, keys.0, keys.1).iter().map(|key| (*key).to_owned()).collect();
        found.retain(|key| !key.ends_with('/'));
        assert_eq!(found, ["list/a", "list/b", "list/c", "list/d", "list/e", "list/f"], "{dialect:?}");
        assert!(whole.contains("<Prefix>list/sub/</Prefix>") || whole.contains("<Name>list/sub/</Name>"));
        let (mut pages, mut token) = (0, String::new());
        loop {
            let more = match (token.as_str(), dialect) {
                ("", _) => limit.to_owned(),
                (token, Dialect::Azure) => format!("{limit}&marker={token}"),
                (token, _) => format!("{limit}&continuation-token={token}"),
            };
            let page = ask(&server, "GET", &listing(dialect, "list/", &more), "").text();
            pages += 1;
            let mut next =
                between(&page, "Token>", "</").into_iter().chain(between(&page, "<NextMarker>", "</"));
            token = next.rfind(|token| !token.is_empty()).unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(pages, 4, "{dialect:?}: seven entries, two a page");
        assert_eq!(server.names("list").len(), 7);
    }
}

#[test]
fn checksums_are_of_the_true_content_of_objects_and_parts() {
    let server = HostileServer::start(Dialect::S3).unwrap();
    let bytes = content("parts", 1, 25_000);
    server.put_in_parts("parts", &bytes, 10_000);
    server.set_mode("flip".parse().unwrap());
    let enabled = "x-amz-checksum-mode: ENABLED\r\n";
    for checksum in Checksum::ALL {
        server.set_checksum(Some(checksum));
        let name = format!("x-amz-checksum-{}", checksum.name());
        assert_eq!(ask(&server, "HEAD", "/data/medium", "").header(&name), None, "only on request");
        let whole = ask(&server, "GET", "/data/medium", enabled);
        let right = content("medium", 1, 100_000);
        assert_eq!(whole.header(&name), Some(checksum.of(&right).as_str()));
        assert_eq!(whole.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
        assert_ne!(checksum.of(&whole.body), checksum.of(&right), "the body is flipped");
        let part = ask(&server, "GET", "/data/parts?partNumber=2", enabled);
        assert_eq!((part.status(), part.header("content-range")), (206, Some("bytes 10000-19999/25000")));
        assert_eq!(part.header(&name), Some(checksum.of(&bytes[10_000..20_000]).as_str()));
        assert_eq!(part.header("x-amz-mp-parts-count"), Some("3"));
        let range = ask(&server, "GET", "/data/parts", &format!("{enabled}Range: bytes=1-9\r\n"));
        assert_eq!(range.header(&name), None, "S3 has no checksums of other ranges");
        let kind = ask(&server, "HEAD", "/data/parts", enabled);
        let composite = checksum != Checksum::Crc64Nvme;
        assert_eq!(kind.header("x-amz-checksum-type") == Some("COMPOSITE"), composite);
        let attributes = ask(&server, "GET", "/data/parts?attributes", "").text();
        let tag = format!("Checksum{}", checksum.name().to_uppercase());
        let sums = between(&attributes, &format!("<{tag}>"), "</");
        assert_eq!(
            sums[1..],
            [0, 10_000, 20_000].map(|at| checksum.of(&bytes[at..(at + 10_000).min(25_000)]))
        );
    }
}

#[test]
fn redirects_lead_to_the_second_host_and_its_requests_are_recorded() {
    let server = start(Dialect::S3, "redirect-307-other-host");
    let moved = ask(&server, "GET", "/data/small?x=1", "Authorization: secret\r\n");
    let location = moved.header("location").unwrap();
    assert_eq!(
        (moved.status(), location),
        (307, format!("{}/data/small?x=1", server.other_endpoint()).as_str())
    );
    let answer =
        request(&server.other_endpoint(), "GET", "/data/small?x=1", "Referer: secret\r\n", b"", PATIENCE);
    assert_eq!(answer.body, content("small", 1, 1000));
    let recorded = server.recorded();
    assert_eq!(recorded.iter().map(|request| request.host).collect::<Vec<_>>(), [Host::Own, Host::Other]);
    let has = |index: usize, name: &str| recorded[index].headers.iter().any(|(known, _)| known == name);
    assert!(has(0, "authorization") && has(1, "referer") && !has(1, "authorization"));
    assert_eq!((server.requests().get, server.requests().other_host), (1, 1));
    server.set_mode("redirect-302-same-host".parse().unwrap());
    let location = ask(&server, "GET", "/data/small", "").header("location").unwrap().to_owned();
    let target = location.strip_prefix(&server.endpoint()).unwrap();
    assert_eq!(ask(&server, "GET", target, "").body.len(), 1000);
    server.set_mode("redirect-nowhere".parse().unwrap());
    assert_eq!(ask(&server, "GET", "/data/small", "").header("location"), None);
}

#[test]
fn every_fourth_metadata_request_is_refused() {
    let server = start(Dialect::S3, "retry-after-1,calls=metadata,every=4");
    let statuses: Vec<_> = (0..8).map(|_| ask(&server, "HEAD", "/data/small", "").status()).collect();
    assert_eq!(statuses, [200, 200, 200, 503, 200, 200, 200, 503]);
    assert_eq!(ask(&server, "GET", "/data/small", "").status(), 200);
    server.set_mode("status-500,first=1".parse().unwrap());
    assert_eq!([500, 200], [0, 1].map(|_| ask(&server, "GET", "/data/small", "").status()));
}

#[test]
fn a_refused_port_is_closed_until_the_mode_ends() {
    let server = start(Dialect::S3, "refused");
    let address = server.endpoint().trim_start_matches("http://").to_owned();
    let error = TcpStream::connect(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    server.set_mode(Mode::HONEST);
    assert_eq!(ask(&server, "HEAD", "/data/small", "").status(), 200);
}

#[test]
fn versions_are_replaced_as_their_modes_say() {
    for (mode, second, tag, versions) in [
        ("replaced-after-get", 412, true, 2),
        ("replaced-unconditional", 206, true, 2),
        ("replaced-tag-dropped-in-gets", 206, false, 2),
        ("replaced-same-weak-tag", 206, true, 2),
        ("replaced-same-tag-other-size", 206, true, 2),
        ("replaced-modified-alone", 412, false, 2),
        ("no-validators", 206, false, 1),
    ] {
        let server = start(Dialect::S3, mode);
        let head = ask(&server, "HEAD", "/data/medium", "");
        let condition = match (head.header("etag"), head.header("last-modified")) {
            (Some(tag), _) => format!("If-Match: {tag}\r\n"),
            (None, Some(time)) => format!("If-Unmodified-Since: {time}\r\n"),
            (None, None) => String::new(),
        };
        let headers = format!("Range: bytes=0-99\r\n{condition}");
        let first = ask(&server, "GET", "/data/medium", &headers);
        assert_eq!(first.body, content("medium", 1, 100_000)[..100], "{mode}");
        let again = ask(&server, "GET", "/data/medium", &headers);
        assert_eq!((again.status(), first.header("etag").is_some()), (second, tag), "{mode}");
        assert_eq!(server.versions("medium").len(), versions, "{mode}");
        if second == 206 && versions == 2 {
            let size = server.object("medium").unwrap().len();
            assert_eq!(again.body, content("medium", 2, size)[..100], "{mode}");
            assert_ne!(again.header("last-modified"), first.header("last-modified"), "{mode}");
        }
    }
    let server = start(Dialect::S3, "replaced-in-body");
    let broken = ask(&server, "GET", "/data/small", "");
    assert_eq!((broken.body.len(), server.versions("small").len()), (500, 2));
    let server = start(Dialect::S3, "replaced-after-head");
    ask(&server, "HEAD", "/data/small", "");
    assert_eq!(ask(&server, "GET", "/data/small", "").body, content("small", 2, 1000));
}

#[test]
fn a_flipped_body_differs_in_one_bit() {
    let server = start(Dialect::Http, "flip,after=7");
    let body = ask(&server, "GET", "/data/small", "").body;
    let right = content("small", 1, 1000);
    let differing: Vec<_> = (0..1000).filter(|&at| body[at] != right[at]).collect();
    assert_eq!((differing.as_slice(), body[7] ^ right[7]), ([7].as_slice(), 1));
}

#[test]
fn bodies_break_off_stall_and_drip_where_the_mode_says() {
    let get = |mode: &str| ask(&start(Dialect::S3, mode), "GET", "/data/small", "");
    let reset = get("reset-in-body,after=300");
    assert!(reset.was_reset && reset.body.len() <= 300, "{reset:?}");
    assert!(get("reset-before-head").was_reset);
    let short = get("body-short,after=300");
    assert_eq!(
        (short.body.len(), short.was_reset, short.header("content-length")),
        (300, false, Some("1000"))
    );
    assert_eq!(get("body-long").body.len(), 2000);
    let silent = get("silent");
    assert!(silent.head.is_empty() && silent.is_open);
    let stalled = get("silent-in-body,after=300");
    assert_eq!((stalled.body.len(), stalled.is_open), (300, true));
    let drip = get("drip-body");
    assert!((1..=3).contains(&drip.body.len()) && drip.is_open, "{}", drip.body.len());
    let trickle = get("trickle");
    assert!(drip.body.len() < trickle.body.len() && trickle.body.len() < 300, "{}", trickle.body.len());
    assert!(get("endless-headers").head.len() > 1 << 20);
    assert!(get("error-body-chunked").body.len() > 1 << 20);
    assert!(get("huge-length").header("content-length").unwrap().len() > 18);
}

#[test]
fn uploads_that_are_not_read_get_no_response() {
    for (mode, count) in [("upload-unread", 0), ("upload-half-read", 0)] {
        let server = start(Dialect::S3, mode);
        let response = request(&server.endpoint(), "PUT", "/data/new", "", &[7; 100_000], PATIENCE);
        assert!(response.is_open && response.head.len() == count, "{mode}");
        assert!(server.object("new").is_none() && server.requests().put == 1, "{mode}");
    }
    let server = start(Dialect::S3, "upload-done-but-412");
    assert_eq!(send(&server, "PUT", "/data/new", "", b"bytes").status(), 412);
    assert!(server.object("new").is_some());
    let server = start(Dialect::S3, "upload-discarded");
    assert_eq!(send(&server, "PUT", "/data/new", "", b"bytes").status(), 200);
    assert!(server.object("new").is_none());
}

/// The responses to one request of each kind, the reads twice.
fn round(server: &HostileServer, dialect: Dialect) -> Vec<Response> {
    let list = listing(dialect, "list/", "");
    let complete = "/data/x?uploadId=upload-1";
    let requests = [
        ("HEAD", "/data/page", ""),
        ("GET", list.as_str(), ""),
        ("GET", "/data/page", "Range: bytes=1-9\r\n"),
        ("GET", "/data/page", "Range: bytes=1-9\r\n"),
        ("GET", "/data/page", ""),
        ("PUT", "/data/x", "body"),
        ("POST", "/data/x?uploads=", ""),
        ("POST", complete, ""),
        ("HEAD", "/data/x", ""),
    ];
    let answer = |(method, target, what): (&str, &str, &str)| {
        let (headers, body) = if what == "body" { ("", vec![1; 1000]) } else { (what, Vec::new()) };
        request(&server.endpoint(), method, target, headers, &body, Duration::from_millis(60))
    };
    requests.into_iter().map(answer).collect()
}

#[test]
fn every_fault_changes_a_response_and_ends_with_its_mode() {
    for dialect in [Dialect::S3, Dialect::Azure] {
        let honest = &round(&HostileServer::start(dialect).unwrap(), dialect);
        let listings = |fault| dialect == Dialect::S3 || matches!(fault, Fault::List(_));
        let faults: Vec<_> =
            Fault::all().filter(|(_, fault)| *fault != Fault::Honest && listings(*fault)).collect();
        // Most of the time it waits for responses that never come.
        thread::scope(|scope| {
            for faults in faults.chunks(faults.len().div_ceil(8)) {
                scope.spawn(move || {
                    for (name, fault) in faults {
                        let server = HostileServer::start(dialect).unwrap();
                        server.set_mode(Mode::of(*fault));
                        if *fault != Fault::Refused {
                            assert!(
                                round(&server, dialect) != *honest,
                                "{dialect:?}: {name} changes nothing"
                            );
                        }
                        server.set_mode(Mode::HONEST);
                        let again = ask(&server, "GET", "/data/small", "");
                        assert_eq!(again.body, content("small", 1, 1000), "{dialect:?}: {name}");
                    }
                });
            }
        });
    }
}

/// Longest wait for a response; long enough for two bytes of a dripping one.
const PATIENCE: Duration = Duration::from_millis(1000);
