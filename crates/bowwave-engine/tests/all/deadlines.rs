//! How long a read waits for a store that is silent, slow, or ends every body early.

use std::time::{Duration, Instant};

use bowwave_engine::{Engine, ErrorKind, File, Options, Policy, backend};
use bowwave_testkit::hostile::{Dialect, HostileServer};

/// Short, for fast tests; long enough that a busy machine does not reach it by itself.
const TIMEOUT: Duration = Duration::from_millis(800);

fn open(server: &HostileServer, path: &str, policy: Policy, retries: u32) -> File {
    let store = backend::Options { timeout: TIMEOUT, retries, ..backend::Options::default() };
    let options = Options { cache_bytes: Some(64 << 20), policy, retries, store, ..Options::default() };
    let engine = Engine::new(options).expect("valid options");
    engine.open(&format!("{}{path}", server.url())).expect("opens")
}

fn server(mode: &str) -> HostileServer {
    let server = HostileServer::start(Dialect::Http).expect("a server");
    server.set_mode(mode.parse().expect("a mode"));
    server
}

/// Regression: the reader's pages were requested again with their own deadline, so the read took
/// twice as long.
#[test]
fn a_read_ends_by_its_deadline_whatever_is_requested_for_it() {
    for mode in ["silent", "silent-after-head", "silent-in-body", "drip-body", "trickle"] {
        for policy in [Policy::None, Policy::OnDemand, Policy::Stream] {
            let server = server(&format!("{mode},calls=reads"));
            let file = open(&server, "read/object", policy, 6);
            let begun = Instant::now();
            let error = file.read_at(1 << 20, &mut [0; 100_000]).expect_err("fails");
            assert_eq!(error.kind(), Some(ErrorKind::TimedOut), "{mode} {policy:?}: {error}");
            let took = begun.elapsed();
            assert!(took < TIMEOUT * 7 / 4, "{mode} {policy:?}: {took:?}");
        }
    }
}

/// Regression: each attempt returned some bytes, and so caused another attempt.
#[test]
fn progress_does_not_reset_the_attempts() {
    let server = server("reset-in-body,calls=reads");
    let file = open(&server, "read/object", Policy::None, 2);
    let before = server.requests();
    file.read_at(0, &mut [0; 128 << 10]).expect_err("every body breaks off");
    let requests = server.requests().since(&before).get;
    assert!((3..=6).contains(&requests), "{requests} requests");
}

#[test]
fn an_interrupted_response_continues_at_its_last_byte() {
    let server = server("reset-in-body,calls=reads,first=2");
    let file = open(&server, "read/object", Policy::None, 6);
    let mut bytes = vec![0; 128 << 10];
    assert_eq!(file.read_at(0, &mut bytes).expect("works after two failures"), bytes.len());
    assert_eq!(bytes, server.object("read/object").expect("is there")[..bytes.len()]);
}

/// Regression: the message began with an empty name.
#[test]
fn an_error_of_a_store_that_is_one_object_names_its_url() {
    let server = server("honest");
    let file = open(&server, "read/object", Policy::None, 0);
    file.read_at(0, &mut [0; 4096]).expect("works");
    server.put("read/object", vec![7; 2_000_003]);
    file.read_at(1 << 20, &mut [0; 4096]).expect_err("has changed");
    let error = file.read_at(0, &mut [0; 4096]).expect_err("stays so").to_string();
    assert!(error.starts_with(&server.url()) && error.contains("changed"), "{error}");
}
