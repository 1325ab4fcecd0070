//! `bowwave demo` with small sizes: it reads and verifies; its figures then mean nothing.

use std::process::{Command, Stdio};

use crate::common::{bowwave, can_mount, run};
use serde_json::Value;

fn demo(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.args(["demo", "--quick"]).args(arguments);
    command
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&run(demo(arguments).arg("--json"))).expect("an array of rows")
}

fn check(rows: &[Value], through: &str, kinds: &[&str]) {
    assert_eq!(rows.len(), 3 * kinds.len(), "three jobs");
    let requests = |row: &Value| row["requests"].as_u64().expect("a count");
    for job in rows.chunks(kinds.len()) {
        for (row, kind) in job.iter().zip(kinds) {
            assert_eq!(row["readahead"], *kind, "{row}");
            assert_eq!(row["through"], through, "{row}");
            assert_eq!(row["bytes_checked"], row["bytes_wanted"], "{row}");
            assert_eq!(row["bytes_wanted"], job[0]["bytes_wanted"], "like is compared with like");
            assert!(row["seconds"].as_f64() > Some(0.0) && requests(row) > 0, "{row}");
            assert_eq!(row["speedup"].is_null(), *kind == "off", "{row}");
        }
    }
    assert!(
        requests(&rows[kinds.len() - 1]) < requests(&rows[0]),
        "readahead asks for more at once: {rows:?}"
    );
}

#[test]
fn in_this_process_every_byte_is_read_and_checked() {
    check(&rows(&["--in-process"]), "process", &["off", "on"]);
}

#[test]
fn through_a_mount_every_byte_is_read_and_checked_and_nothing_stays() {
    if !can_mount() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("bowwave-demo-test-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    let output = run(demo(&["--json"]).env("TMPDIR", &directory));
    let rows: Vec<Value> = serde_json::from_str(&output).expect("an array of rows");
    check(&rows, "mount", &["off", "kernel", "on"]);
    std::fs::remove_dir(&directory).expect("nothing is left in it");
}

#[test]
fn the_table_ends_with_a_summary_and_the_next_step() {
    let table = run(&mut demo(&["--in-process"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("what is read") && lines.len() == 10, "{table}");
    assert!(lines[..7].iter().all(|line| line.chars().count() <= 100), "{table}");
    assert!(
        table.contains("Every byte was checked.") && lines[9].starts_with("Next: bowwave mount"),
        "{table}"
    );
}

#[test]
fn ctrl_c_ends_the_demo_with_its_rows_so_far_and_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("bowwave-demo-stop-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    // Full size: the first job is still running when the signal comes, on any machine.
    let child = bowwave()
        .args(["demo", "--json"])
        .env("TMPDIR", &directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bowwave starts");
    // Its first output comes after it handles signals.
    let mut child = child;
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).expect("UTF-8");
    assert!(line.starts_with("bowwave: note: "), "{line}");
    let killed = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("UTF-8");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.ends_with("bowwave: error: interrupted\n"), "{said}");
    assert!(serde_json::from_slice::<Vec<Value>>(&output.stdout).is_ok());
    std::fs::remove_dir(&directory).expect("nothing is left in it");
}
