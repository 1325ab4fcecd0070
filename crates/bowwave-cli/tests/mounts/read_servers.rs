//! `bowwave read` and `bowwave mount` with third-party servers on loopback, configured by
//! command-line options.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::place::Place;
use crate::common::{bowwave, can_mount, failure, one_at_a_time, run, with_keys};
use bowwave_testkit::{HttpServer, S3Server};
use serde_json::Value;

/// SHA-256 of a million letters `a`.
const DIGEST: &str = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

/// A place with `bucket/data/million` in its store.
fn place(name: &str) -> Place {
    let place = Place::new(&format!("servers-{name}"));
    fs::create_dir_all(place.store().join("bucket/data")).expect("the temporary directory is writable");
    fs::write(place.store().join("bucket/data/million"), vec![b'a'; 1_000_000]).expect("writable");
    place
}

/// A command with the server's keys and without the machine's own settings.
fn signed(command: &str, server: &S3Server) -> Command {
    let mut signed = with_keys((S3Server::ACCESS_KEY_ID, S3Server::SECRET_ACCESS_KEY));
    signed.arg(command).args(["--endpoint", &server.endpoint(), "--region", "eu-west-1", "--allow-http"]);
    signed
}

fn digest(command: &mut Command) -> Value {
    let rows: Vec<Value> =
        serde_json::from_str(&run(command.args(["--verify", "--json"]))).expect("an array");
    rows[0]["sha256"].clone()
}

/// Mounts, compares the file at `path` in the mount, and unmounts.
fn compare(mount: &mut Command, at: &Path, path: &str) {
    mount.arg(at).arg("--daemon").stderr(Stdio::null());
    assert_eq!(run(mount), "");
    let read = fs::read(at.join(path)).expect("a file of the mount");
    assert!(read == vec![b'a'; 1_000_000], "{} bytes of {path}", read.len());
    run(bowwave().arg("umount").arg(at));
}

#[test]
fn a_web_server_is_read_and_mounted() {
    let (_alone, place) = (one_at_a_time(), place("http"));
    let server = HttpServer::start(&place.store().join("bucket")).expect("loopback has free ports");
    let url = format!("{}data/million", server.url());
    assert_eq!(digest(bowwave().args(["read", &url])), DIGEST);
    if can_mount() {
        compare(bowwave().args(["mount", &url]), &place.at(), "million");
    }
    let (code, line) = failure(bowwave().args(["read", &format!("{}data/billion", server.url())]));
    assert!(code == 1 && line.contains("data/billion"), "{line}");
}

#[test]
fn an_s3_server_is_read_and_mounted_with_the_options_of_the_command_line() {
    let (_alone, place) = (one_at_a_time(), place("s3"));
    let server = S3Server::start(&place.store(), &["bucket"]).expect("loopback has free ports");
    assert_eq!(digest(signed("read", &server).arg("s3://bucket/data/million")), DIGEST);
    if can_mount() {
        compare(signed("mount", &server).arg("s3://bucket"), &place.at(), "data/million");
    }
    let (code, line) = failure(signed("read", &server).arg("s3://bucket/nothing"));
    assert!(code == 1 && line.contains("s3://bucket/nothing"), "{line}");
    let mut wrong = signed("read", &server);
    wrong.env("AWS_SECRET_ACCESS_KEY", "wrong").arg("s3://bucket/data/million");
    let (code, line) = failure(&mut wrong);
    assert!(code == 1 && line.contains("(try "), "{line}");
}
