//! `bowwave import`, run as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{bowwave, directory, failure, output_with_input, run, run_with_input};

fn sample(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-trace/tests/samples").join(file)
}

fn expected(file: &str) -> String {
    fs::read_to_string(sample("expected").join(format!("{file}.csv"))).expect("what the sample gives")
}

#[test]
fn a_log_is_detected_by_its_content_and_converted_to_standard_output() {
    for file in ["python.strace", "job3.iolog", "packed.lis.zst", "vm.vscsi2"] {
        assert_eq!(run(bowwave().arg("import").arg(sample(file))), expected(file), "{file}");
    }
    let log = fs::read(sample("sqlite.strace")).expect("the sample");
    assert_eq!(run_with_input(bowwave().args(["import", "-"]), &log), expected("sqlite.strace"));
}

#[test]
fn repairs_are_counted_on_standard_error() {
    let output = output_with_input(bowwave().arg("import").arg(sample("grep.strace")), b"");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success());
    assert!(
        said.contains("bowwave: note: mappings of files, whose accesses are not in such a log: 4\n"),
        "{said}"
    );
}

#[test]
fn the_result_is_explained_as_any_trace_is() {
    let trace = directory("import-explained").join("job.csv");
    let import = run(bowwave().arg("import").arg(sample("job2.iolog")).arg("-o").arg(&trace));
    assert_eq!(import, "");
    assert_eq!(fs::read_to_string(&trace).expect("the trace"), expected("job2.iolog"));
    let lines = run(bowwave().args(["explain", "--policy", "ondemand"]).arg(&trace));
    assert!(lines.lines().count() > 1 && lines.contains("data.bin"), "{lines}");
}

#[test]
fn the_binary_form_holds_the_same_rows() {
    let directory = directory("import-binary");
    let compact = directory.join("a.bwt");
    run(bowwave().arg("import").arg(sample("sqlite.strace")).arg("-o").arg(&compact));
    assert!(fs::read(&compact).expect("the trace").starts_with(b"\x89BWTRACE"));
    assert_eq!(run(bowwave().arg("import").arg(&compact)), expected("sqlite.strace"));
}

#[test]
fn options_choose_where_a_format_leaves_a_choice() {
    let blocks = run(bowwave().args(["import", "--block-size", "512"]).arg(sample("p6.lis")));
    assert!(blocks.contains("read,blocks,56711680,32768\n"), "{blocks}");
    let steps = run(bowwave().args(["import", "--block-action", "completed"]).arg(sample("sda.blkparse")));
    assert_eq!(steps.lines().count(), 3, "{steps}");
    let fills = run(bowwave().args(["import", "--tracefs-events", "fills"]).arg(sample("cache.tracefs")));
    assert!(fills.contains("evict") && !fills.contains("load"), "{fills}");
    let times = run(bowwave().args(["import", "--keep-times"]).arg(sample("tencent.csv")));
    assert!(times.contains("\n1538323200000000000,0,read,"), "{times}");
    let files = run(bowwave().args(["import", "--objects", "files"]).arg(sample("w.oracleGeneral")));
    assert!(files.contains("read,64,0,512"), "{files}");
}

#[test]
fn failures_name_the_place_and_leave_no_half_result() {
    let directory = directory("import-failures");
    let bad = directory.join("bad.csv");
    fs::write(&bad, "1,R,0,4096,5\n1,R,-4096,4096,6\n").expect("a file");
    let result = directory.join("result.csv");
    let (code, line) =
        failure(bowwave().args(["import", "--format", "alibaba", "-o"]).arg(&result).arg(&bad));
    assert_eq!(code, 1);
    assert!(line.contains("bad.csv:2: offset: '-4096' has a sign"), "{line}");
    let left: Vec<_> = fs::read_dir(&directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["bad.csv"]);

    let (code, line) = failure(bowwave().args(["import", "nowhere.strace"]));
    assert!(code == 1 && line.contains("nowhere.strace: No such file"), "{line}");
    let (code, line) = failure(bowwave().arg("import").arg(sample("p6.lis")).args(["-o", "p6.txt"]));
    assert!(code == 2 && line.contains("try FILE.csv or FILE.bwt"), "{line}");
    let (code, line) = failure(bowwave().args(["import", "--format", "frob", "x"]));
    assert!(code == 2 && line.contains("frob"), "{line}");
    let text = directory.join("text.txt");
    fs::write(&text, "once upon a time\n").expect("a file");
    let (code, line) = failure(bowwave().arg("import").arg(&text));
    assert!(
        code == 1 && line.contains("the format of this trace is not known (say which of csv, bwt, fio"),
        "{line}"
    );
}
