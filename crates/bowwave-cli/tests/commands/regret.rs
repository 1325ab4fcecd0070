//! `bowwave regret`, as a user runs it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::common::{bowwave, directory, failure, run};

fn regret(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.arg("regret").args(arguments);
    command
}

/// Few points that are quick in a debug build.
const FEW: [&str; 6] = ["--seeds", "3..6", "--memory", "unlimited", "--windows", "32"];

#[test]
fn a_log_is_continued_and_gives_the_same_result() {
    let directory = directory("regret-log");
    let path = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
    let (log, html) = (path("log.jsonl"), path("regret.html"));
    let with = |more: &[&str]| {
        let arguments: Vec<&str> =
            FEW.iter().chain(["--device", "s3,hdd"].iter()).chain(more).copied().collect();
        run(&mut regret(&arguments))
    };
    let without_log = with(&[]);
    assert_eq!(with(&["--log", &log, "--html", &html]), without_log);
    let text = fs::read_to_string(&log).expect("written");
    assert_eq!(text.lines().count(), 1 + 3 * 2, "a head and a line for each point");
    // As after Ctrl-C in the third point.
    let cut: Vec<&str> = text.lines().take(3).collect();
    fs::write(&log, cut.join("\n") + "\n{\"seed\":4,").expect("ours");
    assert_eq!(with(&["--log", &log]), without_log);
    assert_eq!(fs::read_to_string(&log).expect("written"), text);
    assert_eq!(with(&["--others", &log]), without_log);

    let json: Value = serde_json::from_str(&with(&["--json", "--log", &log, "--worst", "2"])).expect("JSON");
    let devices: Vec<&str> = json["summaries"]
        .as_array()
        .expect("summaries")
        .iter()
        .map(|summary| summary["device"].as_str().expect("a name"))
        .collect();
    assert_eq!(devices, ["all", "s3", "hdd"]);
    assert_eq!(json["summaries"][0]["points"], 6);
    assert_eq!(json["worst"].as_array().map(Vec::len), Some(2));
    let page = fs::read_to_string(&html).expect("written");
    assert!(page.contains("polyline") && page.contains("seed"), "{page}");

    let other: Vec<&str> = FEW.iter().chain(["--device", "s3", "--log", &log].iter()).copied().collect();
    let (code, line) = failure(&mut regret(&other));
    assert!(code == 1 && line.contains("other settings"), "{line}");
    fs::remove_dir_all(&directory).expect("ours");
}

#[test]
fn held_out_seeds_follow_from_the_hash() {
    let few = ["--patterns", "1", "--device", "nvme", "--memory", "unlimited", "--windows", "32", "--json"];
    let with = |hash| {
        let text = run(regret(&few).args(["--held-out", hash]));
        let json: Value = serde_json::from_str(&text).expect("JSON");
        json["worst"][0]["seed"].as_u64().expect("a seed")
    };
    assert_eq!(with("2abaf8d6a4c8"), with("2ABAF8D6A4C8"));
    assert_ne!(with("2abaf8d6a4c8"), with("2abaf8d6a4c9"));
    assert!(with("2abaf8d6a4c8") >= 1_000_000, "development seeds are not held out");
    for arguments in [["--held-out", "main"], ["--seeds", "5..5"], ["--patterns", "3"]] {
        assert_eq!(failure(&mut regret(&arguments)).0, 2, "{arguments:?}");
    }
}
