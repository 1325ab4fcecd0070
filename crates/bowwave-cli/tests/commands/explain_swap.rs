//! `bowwave explain --policy cluster|vma|adaptive`, run as a user runs it.

use std::fs;
use std::process::Command;

use crate::common::explained::{HEADER, lines, vectors};
use crate::common::{bowwave, output_with_input, run, run_with_input};
use serde_json::Value;

#[test]
fn golden_vectors_of_swap_are_met_decision_by_decision() {
    let index = fs::read_to_string(vectors().join("swap.json")).expect("the index of the vectors");
    let index: Vec<Value> = serde_json::from_str(&index).expect("an array");
    assert!(!index.is_empty());
    for vector in &index {
        let name = vector["name"].as_str().expect("a name");
        for policy in ["cluster", "vma"] {
            let mut command = bowwave();
            command.args(["explain", "--json", "--policy", policy]);
            command.args(["--page-cluster", &vector["page_cluster"].to_string()]);
            if let Some(pages) = vector["file_pages"].as_u64() {
                command.args(["--file-pages", &pages.to_string()]);
            }
            let found = lines(&run(command.arg(vectors().join(format!("swap-{name}.csv")))));
            let expected = vectors().join(format!("swap-{name}.{policy}.jsonl"));
            let expected = lines(&fs::read_to_string(expected).expect("decisions"));
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{name}, {policy}, decision {number}");
            }
            assert_eq!(found.len(), expected.len(), "{name}, {policy}: number of decisions");
        }
    }
}

/// Exit status and message of a failing command.
fn failure(command: &mut Command, input: &str) -> (Option<i32>, String) {
    let output = output_with_input(command, input.as_bytes());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Pages created and evicted, then touched with a stride.
fn strided() -> String {
    let mut trace = format!("{HEADER}0,1,store,a,0,4096000\n1,1,evict,a,0,4096000\n");
    for step in 0..40_u64 {
        trace += &format!("{},1,load,a,{},1\n", 1000 + step * 1000, step * 5 * 4096);
    }
    trace
}

#[test]
fn streams_follow_a_stride_that_addresses_do_not() {
    let pages = |policy| {
        let mut command = bowwave();
        let found = run_with_input(
            command.args(["explain", "-", "--policy", policy, "--json"]),
            strided().as_bytes(),
        );
        lines(&found)
    };
    let adaptive = pages("adaptive");
    assert!(adaptive.iter().any(|line| line["reason"] == "strided" && line["stride"] == 5), "{adaptive:?}");
    assert!(adaptive.len() * 2 < pages("vma").len(), "{adaptive:?}");
}

#[test]
fn people_get_columns_with_slots() {
    let found = run_with_input(bowwave().args(["explain", "-", "--policy", "vma"]), strided().as_bytes());
    let mut rows = found.lines();
    let head: Vec<&str> = rows.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["access", "pid", "page", "slot", "reason", "start", "count", "size", "slots", "file"]);
    let first: Vec<&str> = rows.next().expect("a decision").split_whitespace().collect();
    // The window is clipped at the first page.
    assert_eq!(first, ["2", "1", "0", "1", "centred", "0", "5", "8", "1..6", "a"]);
}

#[test]
fn unexplainable_input_is_refused_with_a_remedy() {
    let far = format!("{HEADER}0,1,load,a,{},1\n", 1_u64 << 50);
    let (status, message) = failure(bowwave().args(["explain", "-", "--policy", "vma"]), &far);
    assert_eq!(status, Some(1));
    assert!(message.contains("row 0") && message.contains("16 TiB"), "{message}");
    let full = format!("{HEADER}0,1,store,a,0,409600\n1,1,evict,a,0,409600\n");
    let mut command = bowwave();
    command.args(["explain", "-", "--policy", "cluster", "--slots", "50"]);
    let (status, message) = failure(&mut command, &full);
    assert_eq!(status, Some(1));
    assert!(message.contains("--slots"), "{message}");
    let mut command = bowwave();
    command.args(["explain", "-", "--policy", "vma", "--scheduler", "deadline"]);
    let (status, message) = failure(&mut command, HEADER);
    assert!(status == Some(2) && message.contains("--scheduler serves files"), "{status:?} {message}");
}
