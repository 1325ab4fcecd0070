//! Stores that misbehave: regressions, and the class of each. `hostile_stores` of the command line
//! tests every mode against every call of a mount.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_testkit::S3Server;
use bowwave_testkit::hostile::{Checksum, Dialect, Host, HostileServer};

use super::PATIENCE;
use crate::write_exact;
use crate::{
    Backend, Error, ErrorKind, Namespace as _, OpenWrite, Options, Write as _, open_url, read_exact,
    read_once,
};

/// Short, so that tests are quick; long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_millis(800);

fn server(mode: &str) -> HostileServer {
    let server = HostileServer::start(Dialect::S3).unwrap();
    set(&server, mode);
    server
}

fn set(server: &HostileServer, mode: &str) {
    server.set_mode(mode.parse().unwrap_or_else(|error| panic!("{mode}: {error:?}")));
}

fn options(server: &HostileServer) -> Options {
    Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(super::keys_with(S3Server::SECRET_ACCESS_KEY, Some("the-session-token"))),
        timeout: TIMEOUT,
        ..Options::default()
    }
}

fn store(server: &HostileServer) -> Arc<dyn Backend> {
    open_url("s3://data", &options(server)).unwrap()
}

fn list(server: &HostileServer) -> crate::Result<Vec<String>> {
    let entries = store(server).list("list".as_ref())?;
    Ok(entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect())
}

fn refused(server: &HostileServer) -> Error {
    list(server).expect_err("no listing")
}

#[test]
fn credentials_never_reach_the_target_of_a_redirection() {
    for status in [301, 302, 303, 307, 308] {
        let server = server(&format!("redirect-{status}-other-host"));
        let error = store(&server).open("one".as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(
            error.to_string().contains("127.0.0.2") && error.to_string().contains("--endpoint"),
            "{error}"
        );
        assert!(list(&server).is_err());
        let elsewhere = server.recorded().into_iter().filter(|request| request.host == Host::Other).count();
        assert_eq!(elsewhere, 0, "{status}");
    }
}

#[test]
fn a_web_server_redirects_without_referer_and_password() {
    let server = HostileServer::start(Dialect::Http).unwrap();
    set(&server, "redirect-302-other-host");
    let url = server.url().replacen("http://", "http://user:password@", 1);
    let signed = format!("{url}small?signature=secret");
    let options = Options { timeout: TIMEOUT, ..Options::default() };
    let object = open_url(&signed, &options).unwrap().open("".as_ref()).unwrap();
    assert_eq!(read_exact(&*object, 0, 1000, PATIENCE).unwrap(), *server.object("small").unwrap());
    let recorded = server.recorded();
    let elsewhere: Vec<_> = recorded.iter().filter(|request| request.host == Host::Other).collect();
    assert!(!elsewhere.is_empty(), "redirections are followed");
    for request in elsewhere {
        let text = format!("{request:?}").to_lowercase();
        let secrets = ["referer", "authorization", "password"];
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
    let own = recorded.iter().filter(|request| request.host == Host::Own);
    assert!(own.into_iter().all(|request| format!("{request:?}").to_lowercase().contains("authorization")));
}

#[test]
fn failures_of_every_fourth_lookup_and_listing_are_retried() {
    let server = server("status-503,calls=metadata,every=4");
    let store = store(&server);
    for round in 0..15 {
        store.stat("stat/object".as_ref()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        store.open("open/object".as_ref()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(store.list("list".as_ref()).unwrap().len(), 7, "round {round}");
    }
    let stats = store.network().expect("a network");
    assert!(stats.retries >= 10 && stats.throttled == stats.retries && stats.gave_up == 0, "{stats:?}");
}

#[test]
fn a_failing_store_gets_seven_attempts_and_a_permanent_error_one() {
    let failing = server("status-503");
    let error = store(&failing).stat("stat/object".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled);
    assert!(error.to_string().contains("attempts"), "{error}");
    assert!((2..=7).contains(&failing.requests().total()), "{:?}", failing.requests());
    let refusing = server("error-body-drip");
    store(&refusing).stat("stat/object".as_ref()).unwrap_err();
    // The HEAD, and one GET for the body with the reason.
    assert_eq!(refusing.requests().total(), 2);
}

#[test]
fn a_retry_after_beyond_the_deadline_is_an_error_at_once() {
    for mode in ["retry-after-billion", "retry-after-date"] {
        let server = server(mode);
        let begun = Instant::now();
        let error = store(&server).stat("stat/object".as_ref()).unwrap_err();
        assert_eq!((error.kind(), server.requests().total()), (ErrorKind::Throttled, 1), "{error}");
        assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    }
}

#[test]
fn calls_of_a_silent_or_dripping_store_end_by_the_deadline() {
    for mode in ["silent", "drip-head", "informational-flood", "silent-after-head"] {
        let server = server(mode);
        let begun = Instant::now();
        let error = refused(&server);
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{mode}: {error}");
        assert!(begun.elapsed() < 2 * TIMEOUT, "{mode}: {:?}", begun.elapsed());
    }
}

#[test]
fn error_bodies_without_end_are_read_for_a_moment_only() {
    for mode in ["error-body-huge", "error-body-chunked", "error-body-unannounced", "error-body-drip"] {
        let server = server(mode);
        let begun = Instant::now();
        for error in [refused(&server), store(&server).open("one".as_ref()).unwrap_err()] {
            assert!(error.to_string().len() < 1000, "{mode}: {error}");
        }
        assert!(begun.elapsed() < PATIENCE / 2, "{mode}: {:?}", begun.elapsed());
    }
}

#[test]
fn listings_without_end_or_progress_are_errors() {
    for (mode, requests) in [
        ("list-repeated-token", 3),
        ("list-repeated-pages", 103),
        ("list-empty-pages", 103),
        ("list-truncated-without-token", 1),
    ] {
        let server = server(mode);
        // A busy machine answers a hundred requests later than one.
        let patient = Options { timeout: PATIENCE, ..options(&server) };
        let error = open_url("s3://data", &patient).unwrap().list("list".as_ref()).expect_err("no listing");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{mode}: {error}");
        assert!(error.to_string().contains("listing is given up"), "{mode}: {error}");
        assert!(server.requests().list <= requests, "{mode}: {:?}", server.requests());
    }
    let ended = server("list-token-at-the-end");
    assert_eq!(list(&ended).unwrap().len(), 7, "`IsTruncated` decides");
}

#[test]
fn a_directory_of_more_entries_than_allowed_is_an_error_that_names_the_option() {
    let server = server("list-10000");
    let few = Options { list_entries_max: 9999, ..options(&server) };
    let error = open_url("s3://data", &few).unwrap().list("list".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("--list-max"), "{error}");
    assert!(list(&server).unwrap().len() >= 10_000);
}

#[test]
fn an_invalid_listing_is_an_error_and_never_an_empty_directory() {
    for mode in [
        "portal",
        "empty-200",
        "list-cut-off",
        "list-wrong-root",
        "list-wrong-type",
        "list-nested",
        "list-attributes",
        "list-laughs",
        "list-external-entity",
        "list-not-utf8",
        "list-negative-size",
        "list-overflowing-size",
    ] {
        let server = server(mode);
        match list(&server) {
            // A million attributes are strange but valid.
            Ok(names) => assert!(mode == "list-attributes" && names.len() == 7, "{mode}: {names:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Protocol, "{mode}: {error}");
                assert!(
                    !error.to_string().contains('\n') && error.to_string().len() < 600,
                    "{mode}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_login_page_in_place_of_an_object_is_an_error() {
    for mode in ["portal", "empty-200"] {
        let server = server(mode);
        let error = store(&server).stat("stat/object".as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{mode}: {error}");
    }
}

#[test]
fn one_handle_never_returns_bytes_of_two_versions() {
    for dialect in [Dialect::S3, Dialect::Http] {
        for mode in [
            "replaced-after-head",
            "replaced-after-get",
            "replaced-same-weak-tag",
            "replaced-tag-dropped-in-gets",
            "replaced-modified-alone",
            "replaced-modified-alone-unconditional",
            "replaced-unconditional",
            "replaced-same-tag-other-size",
        ] {
            let server = HostileServer::start(dialect).unwrap();
            set(&server, mode);
            let options = options(&server);
            let object = open_url(&server.url(), &options).unwrap().open("read/object".as_ref()).unwrap();
            let read = |at: u64| read_once(&*object, at, 4096, PATIENCE);
            let (first, second) = (read(0), read(1 << 20));
            let is_of = |version: &[u8]| {
                let same = |read: &crate::Result<Vec<u8>>, at: usize| {
                    read.as_ref().map_or(true, |bytes| version.get(at..at + 4096) == Some(bytes))
                };
                same(&first, 0) && same(&second, 1 << 20)
            };
            assert!(
                server.versions("read/object").iter().any(|version| is_of(version)),
                "{dialect:?} {mode}"
            );
        }
    }
}

#[test]
fn a_weak_tag_is_no_version_where_one_is_required() {
    for (mode, is_strong) in [
        ("honest", true),
        ("replaced-same-weak-tag", false),
        ("replaced-modified-alone", false),
        ("no-validators", false),
    ] {
        let server = HostileServer::start(Dialect::Http).unwrap();
        set(&server, mode);
        let options = Options { require_version: true, timeout: TIMEOUT, ..Options::default() };
        let opened = open_url(&server.url(), &options).unwrap().open("small".as_ref());
        assert_eq!(opened.is_ok(), is_strong, "{mode}");
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("--require-version"), "{error}");
        }
    }
}

#[test]
fn an_encoded_body_is_rejected() {
    for (mode, what) in [("range-gzip", "Content-Encoding"), ("range-multipart", "encoded")] {
        let server = server(mode);
        let object = store(&server).open("read/object".as_ref()).unwrap();
        let error = read_once(&*object, 100, 4096, PATIENCE).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{mode}: {error}");
        assert!(error.to_string().contains(what), "{mode}: {error}");
    }
}

#[test]
fn a_flipped_byte_of_a_whole_object_is_detected_and_read_again() {
    for checksum in Checksum::ALL {
        let once = server("flip,first=1");
        once.set_checksum(Some(checksum));
        let object = store(&once).open("read/small".as_ref()).unwrap();
        let error = read_once(&*object, 0, 9000, PATIENCE).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Corrupt, true), "{error}");
        let error = read_once(&*object, 10, 20, PATIENCE).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "unverified bytes are not passed on meanwhile: {error}");
        assert_eq!(read_once(&*object, 0, 9000, PATIENCE).unwrap(), *once.object("read/small").unwrap());
        assert_eq!(
            read_once(&*object, 10, 20, PATIENCE).unwrap(),
            once.object("read/small").unwrap()[10..30]
        );
    }
}

/// No single window covers the object; the sums of all of them together do.
#[test]
fn a_flipped_byte_of_one_of_many_windows_fails_the_last_of_them() {
    for checksum in [Checksum::Crc32, Checksum::Crc32c, Checksum::Crc64Nvme] {
        let server = server("honest");
        server.set_checksum(Some(checksum));
        let size = server.object("read/object").unwrap().len() as u64;
        // The last window is read third.
        let windows = [(1u64 << 20, 1 << 20), (0, 1 << 19), (1 << 21, 0), (1 << 19, 1 << 19)];
        let windows = windows.map(|(at, len)| (at, if len == 0 { 0 } else { len.min((size - at) as usize) }));
        for damaged in [false, true] {
            set(&server, if damaged { "flip,first=1" } else { "honest" });
            let store = store(&server);
            let object = store.open("read/object".as_ref()).unwrap();
            let results: Vec<_> = windows
                .iter()
                .filter(|(_, len)| *len > 0)
                .map(|(at, len)| read_once(&*object, *at, *len, PATIENCE))
                .collect();
            let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
            assert_eq!(failed, [false, false, damaged], "{checksum:?}");
            if let Some(Err(error)) = results.last() {
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Corrupt, false), "{error}");
                assert_eq!(store.network().expect("a network").corrupt, 1);
            }
        }
    }
}

#[test]
fn parts_of_a_composite_object_are_compared_one_by_one() {
    let part = 100_000;
    let server = server("honest");
    let bytes = bowwave_testkit::hostile::content("parts", 1, 5 * part + 17);
    server.put_in_parts("parts", &bytes, part);
    // A CRC-64 checksum covers the object's bytes, not those of parts.
    for checksum in [Checksum::Crc32, Checksum::Crc32c, Checksum::Sha256] {
        server.set_checksum(Some(checksum));
        set(&server, "honest");
        let object = store(&server).open("parts".as_ref()).unwrap();
        // The second and the third part, and a few bytes around them.
        let (at, len) = (part as u64 - 5, 2 * part + 10);
        assert_eq!(read_once(&*object, at, len, PATIENCE).unwrap(), bytes[part - 5..3 * part + 5]);
        set(&server, "flip,calls=reads,first=1");
        let object = store(&server).open("parts".as_ref()).unwrap();
        let error = read_once(&*object, at, len, PATIENCE).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Corrupt, true), "{checksum:?}: {error}");
    }
}

#[test]
fn uploads_carry_a_checksum_of_each_part_and_each_object() {
    let server = server("honest");
    let store = store(&server);
    let how = OpenWrite { create: true, ..OpenWrite::default() };
    for (name, len) in [("up/small", 1000), ("up/large", (8 << 20) + 1000)] {
        let bytes = bowwave_testkit::hostile::content(name, 1, len);
        let object = store.open_write(name.as_ref(), &how).unwrap();
        for (index, part) in bytes.chunks(8 << 20).enumerate() {
            write_exact(&*object, (index as u64) << 23, part, PATIENCE).unwrap();
        }
        object.finish().unwrap();
        assert_eq!(*server.object(name).expect("is there"), *bytes);
    }
    let puts: Vec<_> = server.recorded().into_iter().filter(|request| request.method == "PUT").collect();
    assert_eq!(puts.len(), 3, "{puts:?}");
    for put in puts {
        let sums = put.headers.iter().filter(|(name, _)| name == "x-amz-checksum-crc64nvme").count();
        assert_eq!(sums, 1, "{put:?}");
    }
    // With `verify: false`, uploads have no checksum.
    let plain = Options { verify: false, ..options(&server) };
    let object = open_url("s3://data", &plain).unwrap().open_write("up/plain".as_ref(), &how).unwrap();
    write_exact(&*object, 0, b"bytes", PATIENCE).unwrap();
    object.finish().unwrap();
    let last = server.recorded().into_iter().rfind(|request| request.method == "PUT").expect("a PUT");
    assert!(last.headers.iter().all(|(name, _)| !name.starts_with("x-amz-checksum")), "{last:?}");
}
