//! `bowwave read`: measurements, verification and output.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{bowwave, failure, run};
use serde_json::Value;
use tempfile::TempDir;

fn read(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.arg("read").args(arguments);
    command
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let text = run(read(arguments).arg("--json"));
    serde_json::from_str(&text).expect("an array of rows")
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {row}"))
}

fn file(directory: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = directory.path().join(name);
    fs::create_dir_all(path.parent().expect("within the directory")).expect("writable");
    fs::write(&path, bytes).expect("writable");
    path.display().to_string()
}

#[test]
fn a_row_has_every_field_of_the_contract_and_they_agree() {
    let rows = rows(&["pattern:/1MiB", "--bs", "16k", "--cache", "16MiB"]);
    let [row] = rows.as_slice() else { panic!("one row, not {rows:?}") };
    for (field, value) in [("policy", "stream"), ("device", "pattern"), ("pattern", "seq")]
        .map(|(field, value)| (field, Value::from(value)))
    {
        assert_eq!(row[field], value);
    }
    for (field, value) in [
        ("cache_bytes", 16 << 20),
        ("ra_pages", 32),
        ("reads", 64),
        ("accesses", 256),
        ("bytes_fetched", 1 << 20),
        ("bytes_wanted", 1 << 20),
        ("amplification", 1),
        ("pages_wasted", 0),
        ("pages_thrashed", 0),
        ("threads", 1),
        ("bs", 16 << 10),
    ] {
        assert_eq!(number(row, field), f64::from(value), "{field}");
    }
    assert_eq!(number(row, "hits") + number(row, "late") + number(row, "misses"), 256.0);
    let requests = number(row, "requests");
    assert!(requests > 0.0 && number(row, "avg_io_bytes") == (f64::from(1 << 20) / requests).floor());
    let latency = ["p50", "p90", "p99", "max"].map(|point| number(&row["latency_ns"], point));
    assert!(latency.is_sorted() && latency[0] > 0.0, "{latency:?}");
    // The rate is bytes divided by seconds.
    let rate = number(row, "throughput") * number(row, "seconds");
    assert!((rate - f64::from(1 << 20)).abs() < 1.0, "{rate}");
}

#[test]
fn readahead_needs_fewer_waits_than_none_on_a_slow_store() {
    let rows =
        rows(&["emulate:s3,latency=5ms/1MiB", "--compare", "none,ondemand", "--bs", "64k", "--verify"]);
    let [none, ondemand] = rows.as_slice() else { panic!("two rows, not {rows:?}") };
    assert_eq!((&none["policy"], &ondemand["policy"]), (&"none".into(), &"ondemand".into()));
    assert_eq!(number(none, "misses"), 256.0);
    assert!(number(ondemand, "misses") < 64.0 && number(ondemand, "requests") < number(none, "requests"));
    // 16 consecutive reads wait 5 ms each, on any machine.
    assert!(number(none, "seconds") >= 0.08);
    assert!(rows.iter().all(|row| row["verified"] == true));
}

#[test]
fn a_second_pass_hits_and_asks_the_store_nothing() {
    let rows = rows(&["pattern:/1MiB", "--warm", "--cache", "16MiB"]);
    let [cold, warm] = rows.as_slice() else { panic!("two rows, not {rows:?}") };
    assert!(number(cold, "requests") > 0.0);
    assert_eq!((number(warm, "requests"), number(warm, "hits"), number(warm, "pass")), (0.0, 256.0, 2.0));
}

#[test]
fn every_pattern_reads_right_bytes() {
    for pattern in ["seq", "random", "stride", "backward", "interleaved", "clustered"] {
        let arguments = [
            "pattern:/3000001",
            "--pattern",
            pattern,
            "--bs",
            "20000",
            "--verify",
            "--threads",
            "3",
            "--cache",
            "2MiB",
        ];
        let rows = rows(&arguments);
        assert!(rows[0]["verified"] == true && number(&rows[0], "bytes_wanted") > 0.0, "{pattern}: {rows:?}");
    }
}

#[test]
fn random_reads_fetch_no_more_than_they_want() {
    let rows =
        rows(&["pattern:/64MiB", "--pattern", "random", "--bs", "4k", "--seed", "7", "--size", "400k"]);
    assert_eq!(number(&rows[0], "reads"), 100.0);
    assert!(number(&rows[0], "amplification") <= 1.0, "{}", rows[0]);
}

#[test]
fn the_digest_of_a_file_is_that_of_its_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = file(&directory, "abc", b"abc");
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(rows(&[&file, "--verify"])[0]["sha256"], digest);
    let table = run(&mut read(&[&file, "--verify"]));
    assert!(
        table.starts_with("policy ") && table.contains(&format!("\nsha256 {digest} of 3 bytes")),
        "{table}"
    );
}

#[test]
fn threads_take_the_files_of_a_directory_in_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, size) in [("a", 5000), ("b/c", 4096), ("b/d/e", 1), ("empty", 0)] {
        file(&directory, name, &vec![7; size]);
    }
    let path = directory.path().display().to_string();
    let rows = rows(&[&path, "--threads", "2"]);
    assert_eq!((number(&rows[0], "bytes_wanted"), number(&rows[0], "accesses")), (9097.0, 4.0));
}

#[test]
fn a_digest_of_bytes_out_of_order_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = file(&directory, "abc", b"abc");
    let (code, line) = failure(&mut read(&[&file, "--verify", "--threads", "2"]));
    assert!(code == 2 && line.contains("--threads 1"), "{line}");
}

#[test]
fn a_store_is_asked_as_the_options_say_and_the_row_tells_how_that_went() {
    let arguments = ["emulate:nvme:pattern:/4MiB", "--bs", "64k", "--threads", "4", "--cache", "16MiB"];
    let of = |more: &[&str]| rows(&[&arguments, more].concat()).swap_remove(0)["store"].clone();
    let store = of(&["--set", "scheduler=noop", "--set", "device_depth=2"]);
    assert_eq!(store["scheduler"], "noop");
    assert!(number(&store, "in_flight_max") <= 2.0, "{store}");
    assert!((1.0..=2.0).contains(&number(&store, "in_flight_mean")), "{store}");
    assert_eq!(store["reasons"].as_object().map(|reasons| reasons.len()), Some(1), "{store}");
    let store = of(&[]);
    assert_eq!(store["scheduler"], "deadline");
    let times = &store["latency_ns"]["demand_read"];
    assert!(number(&times["device"], "p50") >= 80_000.0, "80 us to the first byte: {store}");
    assert!(
        number(&times["queue"], "count") >= 1.0 && store["latency_ns"]["write_back"].is_null(),
        "{store}"
    );
    for (option, value, said) in [
        ("--set", "scheduler=cfq", "deadline-rw"),
        ("--set", "scheduler=noop:fifo=3", "there is no knob `fifo`"),
        ("--set", "device_depth=0", "'device_depth=0' for '--set <KEY=VALUE>': 0 is not in 1..=4096"),
        ("--set", "kernel_cache=off", "only 'bowwave mount' has it"),
    ] {
        let (code, line) = failure(&mut read(&["pattern:/1MiB", option, value]));
        assert!(code == 2 && line.contains(said), "{line}");
    }
}

#[test]
fn ctrl_c_ends_a_read_with_130_and_prints_what_was_measured() {
    let mut command = bowwave();
    command.args(["read", "emulate:s3/4GiB", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("bowwave starts");
    let catches_interrupts = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("on every Linux");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & (1 << (libc::SIGINT - 1)) != 0
    };
    while !catches_interrupts() {
        std::thread::yield_now();
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), stderr.lines().last()),
        (Some(130), Some("bowwave: error: interrupted"))
    );
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
    assert!(rows.iter().all(|row| row["interrupted"] == true), "{rows:?}");
}
