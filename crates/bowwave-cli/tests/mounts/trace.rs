//! Reads of a running mount, written as a trace.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, mounting, run};
use serde_json::Value;

#[test]
fn a_trace_has_the_begin_and_the_end_of_each_read_and_replays_with_the_time_between() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("trace");
    fs::write(place.store().join("a"), vec![1; 1 << 20]).expect("room");
    let trace = place.root().join("reads.csv");
    let mut command = bowwave();
    command.env("XDG_RUNTIME_DIR", place.root()).arg("mount").arg(place.store()).arg(place.at());
    // The kernel then reads what programs read.
    command.args(["--set", "kernel_cache=off", "--trace"]).arg(&trace);
    let served = Served::of(&mut command, &place.at());
    let file = File::open(place.at().join("a")).expect("it is there");
    for (offset, length) in [(0, 4096), (512 << 10, 100), (900 << 10, 65_536)] {
        file.read_exact_at(&mut vec![0; length], offset).expect("within the file");
    }
    drop(file);
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
    let text = fs::read_to_string(&trace).expect("the mount created it");
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|row| row.split(',').collect()).collect();
    let of = |op: &str| -> Vec<[&str; 3]> {
        let rows = rows.iter().filter(|row| row[2] == op);
        rows.map(|row| [row[3].trim_matches('"'), row[4], row[5]]).collect()
    };
    let expected = [["a", "0", "4096"], ["a", "524288", "100"], ["a", "921600", "65536"]];
    assert_eq!((of("read"), of("done")), (expected.to_vec(), expected.to_vec()), "{text}");
    let time = |row: &Vec<&str>| row[0].parse::<u64>().expect("a time");
    assert!(rows.is_sorted_by_key(time), "{text}");
    let replay = run(bowwave().arg("replay").arg(&trace).args([
        "--pace",
        "think",
        "--device",
        "s3-steady",
        "--policy",
        "none",
        "--json",
    ]));
    let replayed: Value = serde_json::from_str(&replay).expect("JSON");
    assert_eq!(replayed[0]["requests"], 3, "{replay}");
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_the_mount() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("trace-refused");
    let mut command = bowwave();
    command.arg("mount").arg(place.store()).arg(place.at()).args(["--trace", "/nowhere/reads.csv"]);
    let (code, line) = failure(&mut command);
    assert!(code == 1 && line.contains("--trace /nowhere/reads.csv: "), "{code}: {line}");
}
