//! `bowwave conformance kernel`: the policy `linux` matches the running kernel, and nothing is left
//! behind.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use common::{bowwave, one_at_a_time, output_with_input};
use serde_json::Value;

/// Patterns that reach every case of the policy.
const PATTERNS: &str = "sequential-1,middle-100,random-4,interleaved-3,unaligned-10000,reread-with-holes,history,\
    advice-sequential-normal,advice-random-later,advice-willneed,odd-file,mapped-sequential,mapped-random,mix-1,mix-5";

#[test]
fn the_policy_decides_as_the_running_kernel_does() {
    let _alone = one_at_a_time();
    let place = Place::new("decides");
    let mut command = place.command();
    command.args(["--ra-pages", "32", "--folios", "single", "--json", "--pattern", PATTERNS]);
    let Some(rows) = compared(&place, &mut command) else { return };
    assert_eq!(rows.len(), PATTERNS.split(',').count());
    for row in rows {
        assert_eq!(row["differences"], 0, "{row}");
        assert_eq!(row["first"], Value::Null, "{row}");
        assert_eq!(row["cached"], row["cached_ours"], "{row}");
        assert!(row["decisions"].as_u64().is_some_and(|count| count >= 6), "{row}");
    }
    place.is_clean();
}

#[test]
fn with_large_folios_it_decides_alike_or_the_reason_is_named() {
    let _alone = one_at_a_time();
    let place = Place::new("large");
    let mut command = place.command();
    command.args(["--ra-pages", "128", "--folios", "large", "--json"]);
    command.args(["--pattern", "sequential-1,middle-4,interleaved-2,random-1,end-16,mapped-from-start"]);
    let Some(rows) = compared(&place, &mut command) else { return };
    for row in rows {
        let named = row["pattern"] == "interleaved-2";
        assert_eq!(row["differences"] == 0, !named, "{row}");
        assert_eq!(row["reason"].is_string(), named, "{row}");
    }
    place.is_clean();
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing_behind() {
    let _alone = one_at_a_time();
    let place = Place::new("interrupted");
    let mut command = place.command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bowwave starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    // The mount's directory exists as soon as there is something to clean up.
    while place.entries().is_empty() && Instant::now() < deadline {
        if child.try_wait().expect("it is ours").is_some() {
            break;
        }
        thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    let _it_may_have_ended = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !skipped(&stderr) {
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(1), "bowwave: error: interrupted\n"));
    }
    place.is_clean();
}

#[test]
fn unknown_patterns_and_sizes_are_wrong_commands() {
    for (option, value) in [("--pattern", "sideways"), ("--ra-pages", "0"), ("--folios", "huge")] {
        let output = output_with_input(bowwave().args(["conformance", "kernel", option, value]), b"");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(option) && stderr.lines().count() == 1, "{stderr}");
    }
}

/// A directory for the image of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bowwave-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory of our own");
        Self(path)
    }

    fn command(&self) -> std::process::Command {
        let mut command = bowwave();
        command.args(["conformance", "kernel", "--dir"]).arg(&self.0);
        command
    }

    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).expect("it is there").map(|entry| entry.expect("readable").path()).collect()
    }

    fn is_clean(&self) {
        assert_eq!(self.entries(), Vec::<PathBuf>::new(), "left behind");
        // The image is unlinked while in use; its device must be detached as well.
        let mine = self.0.to_string_lossy().into_owned();
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        for device in devices {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            assert!(!file.contains(&mine), "{} is left behind", device.path().display());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _is_clean_says_more = fs::remove_dir(&self.0);
    }
}

/// The rows of a comparison that must succeed; `None` if this machine cannot run it.
fn compared(place: &Place, command: &mut std::process::Command) -> Option<Vec<Value>> {
    let output = output_with_input(command, b"");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}{}", String::from_utf8_lossy(&output.stdout));
    if skipped(&stderr) {
        assert_eq!(output.stdout, b"[]\n");
        place.is_clean();
        return None;
    }
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Some(rows.as_array().expect("an array").clone())
}

#[expect(clippy::print_stdout, reason = "a test that was skipped should say so")]
fn skipped(stderr: &str) -> bool {
    let reason = stderr.strip_prefix("bowwave: note: skipped: ");
    if let Some(reason) = reason {
        println!("skipped: {reason}");
    }
    reason.is_some()
}
