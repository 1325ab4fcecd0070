//! `bowwave ls` with servers that users run, and with misbehaving stores.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::wire::Wire;
use crate::common::place::Place;
use crate::common::{bowwave, failure, gateway, output_with_input, run, with_keys};
use bowwave_testkit::hostile::{Dialect, HostileServer};
use bowwave_testkit::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET};
use serde_json::Value;

/// `bowwave ls` at an S3 endpoint.
fn ls(endpoint: &str) -> Command {
    let mut signed = with_keys((VERSITYGW_KEY, VERSITYGW_SECRET));
    signed.args(["ls", "--endpoint", endpoint, "--allow-http", "--region", "us-east-1"]);
    signed
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn a_bucket_of_versitygw_is_listed_with_sizes_and_times() {
    let place = Place::new("ls-bucket");
    let Some(server) = gateway(&place) else { return };
    let bucket = place.store().join("bucket");
    fs::create_dir_all(bucket.join("data/sub")).expect("the directory is ours");
    fs::write(bucket.join("data/one"), b"1").expect("written");
    fs::write(bucket.join("data/two words"), vec![0; 1_500_000]).expect("written");
    fs::write(bucket.join("data/sub/three"), b"123").expect("written");
    let url = server.url();
    assert_eq!(lines(&run(ls(&url).arg("s3://bucket"))), ["data/"]);
    assert_eq!(lines(&run(ls(&url).arg("s3://bucket/data"))), ["one", "sub/", "two words"]);
    let recursive = run(ls(&url).args(["-R", "s3://bucket"]));
    for name in ["data/one", "data/sub/three", "data/two words"] {
        assert!(lines(&recursive).contains(&name), "{recursive}");
    }
    let long = run(ls(&url).args(["-l", "s3://bucket/data/"]));
    let words: Vec<Vec<&str>> = long.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((words[0][0], words[0][2]), ("1", "one"), "{long}");
    assert!(words[0][1].ends_with('Z') && words[0][1].starts_with("20"), "{long}");
    assert_eq!(words[1], ["-", "-", "sub/"], "{long}");
    assert!(long.contains("      1500000 "), "{long}");
    let human = run(ls(&url).args(["-l", "--human", "s3://bucket/data/"]));
    assert!(human.contains(" 1.4 MiB "), "{human}");
    let rows: Vec<Value> =
        serde_json::from_str(&run(ls(&url).args(["--json", "s3://bucket/data"]))).expect("an array");
    assert_eq!(
        (&rows[0]["path"], &rows[0]["kind"], &rows[0]["size"]),
        (&"one".into(), &"file".into(), &1.into())
    );
    assert_eq!((&rows[1]["path"], &rows[1]["kind"]), (&"sub".into(), &"directory".into()));
    assert!(rows[0]["modified"].as_str().is_some_and(|time| time.ends_with('Z')), "{rows:?}");
    // A single object lists itself.
    assert_eq!(run(ls(&url).arg("s3://bucket/data/one")), "one\n");
    let (code, line) = failure(ls(&url).arg("s3://bucket/nothing"));
    assert!(code == 1 && line.contains("s3://bucket/nothing: no such file"), "{line}");
    let (code, line) = failure(ls(&url).arg("s3://elsewhere/x"));
    assert!(code == 1 && line.contains("elsewhere"), "{line}");
}

#[test]
fn a_local_directory_is_listed_as_it_is() {
    let place = Place::new("ls-local");
    let at = place.at();
    fs::create_dir_all(at.join("b/inner")).expect("created");
    fs::write(at.join("a\nb"), b"12").expect("written");
    fs::write(at.join("b/inner/file"), b"").expect("written");
    symlink("a", at.join("c")).expect("created");
    assert_eq!(lines(&run(bowwave().arg("ls").arg(&at))), ["a\\nb", "b/", "c"], "a name is one line");
    assert_eq!(
        lines(&run(bowwave().args(["ls", "-R"]).arg(&at))),
        ["a\\nb", "b/", "b/inner/", "b/inner/file", "c"]
    );
    let rows: Vec<Value> =
        serde_json::from_str(&run(bowwave().args(["ls", "--json"]).arg(&at))).expect("an array");
    assert_eq!((&rows[0]["path"], &rows[2]["kind"]), (&"a\nb".into(), &"link".into()));
    assert_eq!(run(bowwave().args(["ls", "--json"]).arg(at.join("b/inner/file"))).lines().count(), 1);
    fs::create_dir(at.join("empty")).expect("created");
    assert_eq!(run(bowwave().args(["ls", "--json"]).arg(at.join("empty"))), "[]\n");
    assert_eq!(run(bowwave().arg("ls").arg(at.join("empty"))), "");
}

/// Over a slow wire, so that the whole listing takes seconds.
#[test]
fn the_first_entries_of_a_large_listing_do_not_wait_for_the_last() {
    let place = Place::new("ls-large");
    let Some(server) = gateway(&place) else { return };
    let directory = place.store().join("bucket/many");
    fs::create_dir_all(&directory).expect("created");
    for index in 0..ENTRIES {
        fs::File::create(directory.join(format!("file-{index:06}"))).expect("created");
    }
    let wire = Wire::to(&server.url());
    wire.limit(4_000_000);
    let mut child = ls(&wire.url())
        .arg("s3://bucket/many")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bowwave starts");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    reader.read_line(&mut first).expect("UTF-8");
    assert_eq!(first, "file-000000\n");
    let early = wire.received();
    // Peak memory does not grow with the listing.
    let peak = |child: &std::process::Child| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map(str::trim);
        peak.and_then(|peak| peak.split(' ').next()).and_then(|peak| peak.parse::<u64>().ok())
    };
    let early_peak = peak(&child).expect("it runs");
    wire.limit(0);
    let mut count = 1;
    let mut last_peak = early_peak;
    for line in reader.by_ref().lines() {
        line.expect("UTF-8");
        count += 1;
        if count % 1000 == 0 {
            last_peak = peak(&child).unwrap_or(last_peak);
        }
    }
    assert_eq!(count, ENTRIES);
    assert!(child.wait().expect("it ends").success());
    let all = wire.received();
    assert!(early * 4 < all, "{early} of {all} bytes came before the first line");
    assert!(last_peak < early_peak + (32 << 10), "{last_peak} KiB, {early_peak} KiB at first");
}

#[test]
fn a_reader_that_goes_away_ends_the_listing_quietly() {
    let place = Place::new("ls-head");
    for index in 0..20_000 {
        fs::File::create(place.at().join(format!("file-with-a-long-name-{index:06}"))).expect("created");
    }
    let mut child = bowwave()
        .args(["ls", "-l"])
        .arg(place.at())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bowwave starts");
    let mut first = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("10 bytes");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn listings_that_lie_are_errors_or_leave_names_out_with_a_note() {
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    for key in ["list/a", "list/b", "list/c/d"] {
        server.put(key, b"1".to_vec());
    }
    let hostile = |mode: &str, arguments: &[&str]| {
        server.set_mode(mode.parse().expect("a mode"));
        let mut command = ls(&server.endpoint());
        output_with_input(command.args(["--retries", "1", "--timeout", "2s"]).args(arguments), b"")
    };
    for recursive in [&[][..], &["-R"]] {
        let arguments = |url| [recursive, &[url]].concat();
        for mode in
            ["list-repeated-token", "list-empty-pages", "list-repeated-pages", "list-truncated-without-token"]
        {
            let output = hostile(mode, &arguments("s3://data/list"));
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{mode}: {stderr}");
            assert!(stderr.contains("the listing is given up"), "{mode}: {stderr}");
        }
        let output = hostile("list-hostile-keys", &arguments("s3://data/list"));
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stderr.contains("are not shown"), "{stderr}");
        assert!(stdout.lines().all(|line| !line.contains("..") && !line.starts_with('/')), "{stdout}");
        assert!(stdout.lines().any(|line| line == "a"), "{stdout}");
    }
}

/// Entries of a large listing: 40 pages.
const ENTRIES: usize = 40_000;

/// An index page has rounded sizes, or none.
#[test]
fn files_of_a_web_server_are_listed_with_their_exact_sizes() {
    let place = Place::new("ls-web");
    fs::create_dir(place.store().join("sub")).expect("created");
    fs::write(place.store().join("sub/large"), vec![7; 1_234_567]).expect("written");
    let server = InstalledServer::python(&place.store()).expect("Python is installed");
    let listed = run(bowwave().args(["ls", "-l", "-R", &server.url()]));
    assert!(listed.lines().any(|line| line.contains("1234567 ") && line.ends_with(" sub/large")), "{listed}");
    assert!(!listed.lines().any(|line| line.contains(" - sub/large")), "{listed}");
}

#[test]
fn long_json_is_the_same_as_json() {
    let place = Place::new("ls-long-json");
    fs::write(place.store().join("a"), b"abc").expect("writable");
    let list = |options: &[&str]| run(bowwave().arg("ls").args(options).arg(place.store()));
    assert_eq!(list(&["-l", "--json"]), list(&["--json"]));
}
