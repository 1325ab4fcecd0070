//! `bowwave read --mmap`: page touches instead of reads, in this process and by the kernel.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::common::{bowwave, can_mount, failure, run};
use bowwave_region::uffd::{Delivery, Scope, Uffd};
use bowwave_testkit::skipped;
use serde_json::Value;

fn read(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.args(["read", "--mmap"]).args(arguments);
    command
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&run(read(arguments).arg("--json"))).expect("an array of rows")
}

fn number(row: &Value, pointer: &str) -> f64 {
    row.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {pointer} in {row}"))
}

/// Whether regions work here; prints why not.
fn can_map() -> bool {
    match Uffd::open(Scope::Program, Delivery::Message) {
        Ok(_) => true,
        Err(error) => {
            skipped(&format_args!("no userfaultfd: {error}"));
            false
        }
    }
}

#[test]
fn every_page_of_every_pattern_is_touched_and_right() {
    if !can_map() {
        return;
    }
    for pattern in ["seq", "random", "stride", "backward", "interleaved", "clustered"] {
        let arguments = ["--pattern", pattern, "--bs", "20000", "--threads", "3", "--cache", "2MiB"];
        let rows = rows(&[&["pattern:/3000001", "--verify"], &arguments[..]].concat());
        let threads = run(bowwave()
            .args(["read", "pattern:/3000001", "--verify", "--mmap=thread", "--json"])
            .args(arguments));
        let threads: Vec<Value> = serde_json::from_str(&threads).expect("rows");
        assert!(
            threads[0]["verified"] == true && threads[0]["map"]["by"] == "thread",
            "{pattern}: {threads:?}"
        );
        assert!(number(&threads[0], "/map/faults") > 0.0, "{pattern}: {threads:?}");
        let row = &rows[0];
        assert!(row["verified"] == true && number(row, "/bytes_wanted") > 0.0, "{pattern}: {rows:?}");
        let (touches, faults) = (number(row, "/map/touches"), number(row, "/map/faults"));
        assert!(touches * 4096.0 >= number(row, "/bytes_wanted"), "{pattern}: {row}");
        assert!(faults > 0.0 && faults <= touches, "{pattern}: {row}");
        assert_eq!(row["map"]["by"], "region");
    }
}

#[test]
fn a_second_pass_finds_the_map_as_it_was_left() {
    if !can_map() {
        return;
    }
    let rows = rows(&["pattern:/1MiB", "--warm", "--cache", "16MiB"]);
    let [cold, warm] = rows.as_slice() else { panic!("two rows, not {rows:?}") };
    assert!(number(cold, "/map/faults") > 0.0 && number(cold, "/requests") > 0.0);
    assert_eq!(number(cold, "/map/pages_mapped"), 256.0);
    assert_eq!(
        (number(warm, "/map/faults"), number(warm, "/requests"), number(warm, "/map/touches")),
        (0.0, 0.0, 256.0)
    );
}

#[test]
fn clusters_cost_many_threads_few_waits_and_not_many_bytes() {
    if !can_map() {
        return;
    }
    let arguments = ["--pattern", "clustered", "--threads", "32", "--size", "64MiB", "--bs", "16KiB"];
    let rows = rows(&[&["pattern:/1GiB", "--compare", "none,range"], &arguments[..]].concat());
    let [none, range] = rows.as_slice() else { panic!("two rows, not {rows:?}") };
    assert!(number(none, "/misses") > 9.75 * number(range, "/misses"), "{none}, {range}");
    assert!(number(range, "/lustre/mmap range read") > 0.0 && none.get("lustre").is_none());
    assert!(number(range, "/bytes_fetched") < 2.0 * number(range, "/bytes_wanted"), "{range}");
}

#[test]
fn the_kernel_maps_files_and_only_those() {
    let path = std::env::temp_dir().join(format!("bowwave-read-maps-{}", std::process::id()));
    fs::write(&path, b"abc").expect("writable");
    let file = path.display().to_string();
    let text = run(bowwave().args(["read", &file, "--mmap=kernel", "--verify", "--json"]));
    let rows: Vec<Value> = serde_json::from_str(&text).expect("rows");
    fs::remove_file(&path).expect("it was ours");
    assert_eq!((&rows[0]["policy"], &rows[0]["map"]["by"]), (&"kernel".into(), &"kernel".into()));
    assert_eq!(rows[0]["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let (code, message) = failure(bowwave().args(["read", "pattern:/1MiB", "--mmap=kernel"]));
    assert!(code == 2 && message.contains("the kernel can map only files that it has"), "{message}");
    let (code, message) = failure(bowwave().args(["read", "/", "--mmap=kernel", "--compare", "none,range"]));
    assert!(code == 2 && message.contains("one run for each"), "{message}");
}

#[test]
fn an_empty_file_cannot_be_mapped_and_has_nothing_to_touch() {
    let rows = rows(&["pattern:/0"]);
    assert!(rows.is_empty() || number(&rows[0], "/map/touches") == 0.0, "{rows:?}");
}

/// Touches clusters of a mounted file mapped by the kernel; returns the row and the mount's
/// counters.
fn touch_through_a_mount(options: &[&str]) -> (Value, Value) {
    let at = std::env::temp_dir().join(format!("bowwave-read-maps-mount-{}", std::process::id()));
    fs::create_dir_all(&at).expect("the temporary directory is writable");
    let mut mount = bowwave();
    mount.args(["mount", "pattern:/"]).arg(&at).args([
        "--stats-on-exit",
        "--json",
        "--set",
        "kernel_cache=on",
    ]);
    let mut mount =
        mount.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bowwave starts");
    let mut talk = BufReader::new(mount.stderr.take().expect("a pipe"));
    let mut line = String::new();
    talk.read_line(&mut line).expect("UTF-8");
    assert!(line.contains(" is mounted at "), "{line}");
    let file = at.join("1GiB").display().to_string();
    let touch = ["--mmap=kernel", "--pattern", "clustered", "--size", "32MiB", "--json"];
    let rows = run(bowwave().args(["read", &file]).args(touch));
    run(bowwave().arg("umount").arg(&at));
    let counters = std::io::read_to_string(mount.stdout.take().expect("a pipe")).expect("UTF-8");
    assert!(mount.wait().expect("it ends").success());
    fs::remove_dir(&at).expect("it was ours");
    let rows: Vec<Value> = serde_json::from_str(&rows).expect("rows");
    (rows[0].clone(), serde_json::from_str(&counters).expect("counters"))
}

#[test]
fn clusters_touched_through_a_mount_are_distinguished_from_streams() {
    if !can_mount() {
        return;
    }
    // Requests as large as an object store's: clusters taken for streams would cost eighty times
    // their bytes. The kernel itself requests twice the touched bytes.
    let range = ["--policy", "range", "--ra-pages", "8192", "--cache", "1GiB"];
    for clusters in ["range_clusters=fixed", "range_clusters=learned"] {
        let (row, counters) = touch_through_a_mount(&[&range[..], &["--set", clusters]].concat());
        assert!(number(&row, "/map/faults") > 0.0, "{row}");
        let fetched = number(&counters, "/bytes_fetched") / number(&row, "/bytes_wanted");
        assert!(fetched < 3.0, "{fetched} bytes for a byte touched ({clusters}): {counters}");
        assert!(number(&counters, "/lustre/mmap range read") > 0.0, "{counters}");
    }
}
