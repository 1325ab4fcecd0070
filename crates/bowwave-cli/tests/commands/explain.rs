//! `bowwave explain`, run as a user runs it: on the golden vectors, and on invalid traces.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::explained::{HEADER, lines, vectors};
use crate::common::{bowwave, failure, run, run_with_input};
use serde_json::Value;

#[test]
fn golden_vectors_are_met_decision_by_decision() {
    let index = fs::read_to_string(vectors().join("index.json")).expect("the index of the vectors");
    let index: Vec<Value> = serde_json::from_str(&index).expect("an array");
    assert!(!index.is_empty());
    for vector in &index {
        let name = vector["name"].as_str().expect("a name");
        for policy in vector["policies"].as_array().expect("policies") {
            let policy = policy.as_str().expect("a name");
            let trace = vectors().join(format!("{name}.csv"));
            let mut command = bowwave();
            command.args([
                "explain",
                "--json",
                "--policy",
                policy,
                "--ra-pages",
                &vector["ra_pages"].to_string(),
            ]);
            if let Some(pages) = vector["file_pages"].as_u64() {
                command.args(["--file-pages", &pages.to_string()]);
            }
            let found = lines(&run(command.arg(trace)));
            let expected =
                fs::read_to_string(vectors().join(format!("{name}.{policy}.jsonl"))).expect("decisions");
            for (number, (found, expected)) in found.iter().zip(lines(&expected)).enumerate() {
                assert_eq!(*found, expected, "{name}, {policy}, decision {number}");
            }
            assert_eq!(found.len(), expected.lines().count(), "{name}, {policy}: number of decisions");
        }
    }
}

/// Files of a directory in order, and one of another directory among them.
#[test]
fn readahead_across_files_is_explained() {
    let mut trace = HEADER.to_owned();
    for number in 0..10 {
        trace += &format!("{number},7,read,images/{number}.jpg,0,90000\n");
        trace +=
            &format!("{number},7,read,images/{number}.jpg,90000,10\n{number},7,read,labels,{number},1\n");
    }
    let mut command = bowwave();
    command.args(["explain", "-", "--across-files", "--json"]);
    let told: Vec<Value> = lines(&run_with_input(&mut command, trace.as_bytes()));
    assert_eq!(
        told[0],
        serde_json::json!({"access": 3, "pid": 7, "file": "images/1.jpg", "reason": "sequence",
            "files": ["images/2.jpg", "images/3.jpg"]}),
    );
    let files = told.iter().flat_map(|line| line["files"].as_array().expect("files"));
    assert!(files.eq(&(2..10).map(|number| format!("images/{number}.jpg").into()).collect::<Vec<Value>>()));
    let text = run_with_input(bowwave().args(["explain", "-", "--across-files"]), trace.as_bytes());
    let sequence = "      3      7 sequence     2 images/1.jpg         images/2.jpg images/3.jpg";
    assert_eq!(text.lines().nth(1), Some(sequence), "{text}");
    let (code, line) = failure(bowwave().args(["explain", "-", "--across-files", "--policy", "linux"]));
    assert!(code == 2 && line.contains("cannot be used with"), "{line}");
}

#[test]
fn planned_ranges_are_read_for_the_reason_plan_and_the_policy_decides_elsewhere() {
    let trace = format!(
        "{HEADER}0,7,plan,a,40960,8192\n1,7,plan,a,0,4096\n2,7,plan,a,9437184,18446744073700114431\n3,7,read,a,40960,8192\n\
         4,7,read,a,0,4096\n5,7,plan,a,0,0\n6,7,read,a,819200,4096\n7,8,read,a,1228800,4096\n"
    );
    let mut command = bowwave();
    command.args(["explain", "-", "--policy", "ondemand", "--file-pages", "2306", "--json"]);
    let found = lines(&run_with_input(&mut command, trace.as_bytes()));
    let told: Vec<Value> = found
        .iter()
        .map(|line| {
            serde_json::json!([
                line["access"],
                line["trigger"],
                line["reason"],
                line["submitted"],
                line["mark"]
            ])
        })
        .collect();
    let expected = serde_json::json!([
        [0, "advice", "plan", [[10, 12]], 10],
        [1, "advice", "plan", [[0, 1]], null],
        [2, "advice", "plan", [[2304, 2306]], null],
        [6, "miss", "random", [[200, 201]], null],
        [7, "miss", "random", [[300, 301]], null],
    ]);
    assert_eq!(Value::Array(told), expected);
}

#[test]
fn stream_prints_the_scores_of_its_detectors_after_the_members_of_the_contract() {
    let rows: String = (0..40).map(|n| format!("0,7,read,a,{},4096\n", (1000 - n * 10) * 4096)).collect();
    let trace = format!("{HEADER}{rows}");
    let text =
        run_with_input(bowwave().args(["explain", "-", "--policy", "stream", "--json"]), trace.as_bytes());
    let found = lines(&text);
    let strides: Vec<&Value> = found.iter().filter(|line| line["reason"] == "stride").collect();
    assert!(strides.len() > 3, "40 pages, 10 apart, backward: {text}");
    let (first, last) = (&found[0]["detectors"]["stride"], &found[found.len() - 1]["detectors"]["stride"]);
    assert!(first.as_u64() < last.as_u64(), "{first} {last}");
    assert!(
        text.lines().all(|line| line.contains("\"mark\":") && line.contains("\"detectors\":{\"backward\":"))
    );
    let members: Vec<&str> = text.lines().next().expect("a line").split("\":").collect();
    assert!(members[0].ends_with("access"), "{members:?}");
}

/// The candidates of a decision with this verdict.
fn candidates<'a>(line: &'a Value, verdict: &str) -> Vec<&'a str> {
    let all = line["candidates"].as_array().into_iter().flatten();
    all.filter(|one| one["verdict"] == verdict).filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn nothing_is_read_ahead_at_a_miss_unless_a_candidate_is_chosen() {
    for seed in 0..30 {
        let family = ["generate", "family", "--seed", &seed.to_string()];
        let trace = bowwave().args(family).output().expect("bowwave runs").stdout;
        for device in [&[][..], &["--device", "s3"], &["--device", "hdd"]] {
            let explain = ["explain", "-", "--policy", "stream", "--ra-pages", "256", "--json"];
            let found = lines(&run_with_input(bowwave().args(explain).args(device), &trace));
            for line in found.iter().filter(|line| line["trigger"] == "miss" && line["candidates"].is_array())
            {
                let chosen = candidates(line, "chosen");
                let number = |name: &str| line[name].as_u64().expect("a number");
                let (first, end) = (number("page"), number("page") + number("req_pages"));
                let mut submitted = line["submitted"].as_array().into_iter().flatten();
                let is_ahead =
                    |range: &Value| range[0].as_u64() < Some(first) || range[1].as_u64() > Some(end);
                assert!(!chosen.is_empty() || !submitted.any(is_ahead), "seed {seed}, {device:?}: {line}");
                // The windows of these follow as decisions of their own.
                let others = chosen.iter().all(|name| ["jump", "rest"].contains(name));
                assert!(line["reason"] != "random" || others, "seed {seed}, {device:?}: {line}");
            }
        }
    }
}

/// Regression: files that were read ahead had the name of the file that was read.
#[test]
fn with_a_device_each_decision_has_its_file_and_its_row() {
    let files = 12u64;
    let rows: String = (0..files)
        .flat_map(|file| (0..4u64).map(move |read| (file, read)))
        .map(|(file, read)| format!("0,{},read,d/{file:02},{},16384\n", 7 + file % 2, read * 16384))
        .collect();
    let trace = format!("{HEADER}{rows}");
    let command = ["explain", "-", "--ra-pages", "256", "--device", "s3", "--json"];
    let found = lines(&run_with_input(bowwave().args(command), trace.as_bytes()));
    let number = |line: &Value, name: &str| line[name].as_u64().expect("a number");
    let mut ahead = 0;
    for line in &found {
        let (row, page) = (number(line, "access"), number(line, "page"));
        let of_row = format!("d/{:02}", row / 4);
        assert_eq!(number(line, "pid"), 7 + row / 4 % 2, "{line}");
        if line["file"] == of_row.as_str() {
            let read = row % 4 * 4..row % 4 * 4 + 4;
            assert!(read.contains(&page) || line["reason"] == "forced", "{line}");
        } else {
            ahead += 1;
            assert_eq!(line["reason"], "forced", "{line}");
        }
    }
    assert!(ahead > 0, "files are read ahead in order of their names: {found:?}");
}

#[test]
fn with_a_device_candidates_have_the_gain_that_is_expected_there() {
    // Eight clusters of 64 pages, which are read in no order.
    let rows: String = (0..8u64)
        .flat_map(|cluster| (0..32u64).map(move |read| (cluster * 7919 % 64) * 1024 + read * 37 % 64))
        .map(|page| format!("0,1,read,a,{},4096\n", page * 4096))
        .collect();
    let trace = format!("{HEADER}{rows}");
    let explain = |device: &[&str]| {
        let command = ["explain", "-", "--ra-pages", "256", "--json"];
        lines(&run_with_input(bowwave().args(command).args(device), trace.as_bytes()))
    };
    let timeless = explain(&[]);
    assert!(timeless.iter().all(|line| candidates(line, "chosen") != ["place"]), "no costs are known");
    let simulated = explain(&["--device", "s3"]);
    let places: Vec<&Value> =
        simulated.iter().filter(|line| candidates(line, "chosen") == ["place"]).collect();
    assert!(places.len() >= 4 && simulated.len() < timeless.len() / 2, "{simulated:?}");
    let gain = |line: &Value| {
        let all = line["candidates"].as_array().into_iter().flatten();
        all.filter(|one| one["name"] == "place").find_map(|one| one["gain_us"].as_i64())
    };
    assert!(places.iter().all(|line| gain(line) > Some(0)), "{places:?}");
    let rows: Vec<u64> = simulated.iter().filter_map(|line| line["access"].as_u64()).collect();
    assert!(rows.is_sorted() && rows.last() >= Some(&224), "rows are numbered as in the trace: {rows:?}");
    let text = run_with_input(
        bowwave().args(["explain", "-", "--ra-pages", "256", "--device", "s3"]),
        trace.as_bytes(),
    );
    assert!(text.contains("  place 64 pages +"), "{text}");
}

#[test]
fn a_device_is_for_policies_of_files() {
    let trace = format!("{HEADER}0,1,load,a,0,4096\n");
    let refused = |arguments: &[&str]| {
        let command = bowwave().args(["explain", "-"]).args(arguments).output().expect("bowwave runs");
        assert_eq!(command.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(command.stderr).expect("text")
    };
    let swap = refused(&["--policy", "vma", "--device", "s3"]);
    assert!(swap.contains("--device is for policies of files"), "{swap}");
    assert!(refused(&["--device", "floppy"]).contains("floppy"));
    assert!(refused(&["--across-files", "--device", "s3"]).contains("--device"));
    let missing = bowwave().args(["explain", "no/trace", "--device", "s3"]).output().expect("bowwave runs");
    let missing = String::from_utf8(missing.stderr).expect("text");
    assert!(missing.contains("no/trace") && missing.contains("the path of a trace"), "{missing}");
    let found =
        run_with_input(bowwave().args(["explain", "-", "--device", "s3", "--json"]), trace.as_bytes());
    assert_eq!(lines(&found).len(), 1, "a load is read: {found}");
}

#[test]
fn json_lines_have_the_members_of_the_contract_in_order() {
    let trace = format!("{HEADER}0,7,read,a,0,4096\n1,7,read,a,4096,1\n");
    let found =
        run_with_input(bowwave().args(["explain", "-", "--policy", "ondemand", "--json"]), trace.as_bytes());
    assert_eq!(
        found,
        "{\"access\":0,\"pid\":7,\"file\":\"a\",\"page\":0,\"req_pages\":1,\"trigger\":\"miss\",\"reason\":\"initial\",\
         \"start\":0,\"size\":4,\"async_size\":3,\"submitted\":[[0,4]],\"mark\":1}\n\
         {\"access\":1,\"pid\":7,\"file\":\"a\",\"page\":1,\"req_pages\":1,\"trigger\":\"mark\",\"reason\":\"lookahead\",\
         \"start\":4,\"size\":8,\"async_size\":8,\"submitted\":[[4,12]],\"mark\":4}\n"
    );
}

#[test]
fn without_json_each_decision_is_a_line_under_a_head() {
    let trace = format!("{HEADER}0,1,read,\"b\na\",0,4096\n1,1,read,\"b\na\",4096,4096\n");
    let found = run_with_input(bowwave().args(["explain", "-", "--policy", "ondemand"]), trace.as_bytes());
    let rows: Vec<Vec<&str>> = found.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "access pid page req trigger reason start size async submitted mark file";
    assert_eq!(rows[0], head.split(' ').collect::<Vec<_>>());
    assert_eq!(rows[1], ["0", "1", "0", "1", "miss", "initial", "0", "4", "3", "0..4", "1", "b\\na"]);
    assert_eq!(rows[2], ["1", "1", "1", "1", "mark", "lookahead", "4", "8", "8", "4..12", "4", "b\\na"]);
    assert_eq!(rows.len(), 3);
}

#[test]
fn no_readahead_reads_requested_pages_and_advice_takes_effect() {
    let trace = format!("{HEADER}0,1,read,a,0,8192\n1,1,willneed,a,40960,8192\n2,1,read,a,40960,8192\n");
    let explain = |policy| {
        let found =
            run_with_input(bowwave().args(["explain", "-", "--json", "--policy", policy]), trace.as_bytes());
        lines(&found)
            .iter()
            .map(|line| (line["reason"].clone(), line["submitted"].to_string()))
            .collect::<Vec<_>>()
    };
    let expected = [("demand".into(), "[[0,2]]".to_owned()), ("forced".into(), "[[10,12]]".to_owned())];
    assert_eq!(explain("none"), expected);

    // With `random` advice, each read gets exactly its request, even from page 0.
    let trace = format!("{HEADER}0,1,random,a,0,0\n1,1,read,a,0,4096\n");
    let found =
        run_with_input(bowwave().args(["explain", "-", "--json", "--policy", "ondemand"]), trace.as_bytes());
    assert_eq!(lines(&found)[0]["submitted"].to_string(), "[[0,1]]");
}

#[test]
fn rows_that_decide_nothing_count_as_accesses_and_are_reported() {
    let trace = format!("{HEADER}0,1,write,a,0,4096\n0,1,fsync,a,0,0\n0,1,read,a,0,0\n0,1,read,a,0,1\n");
    let mut command = bowwave();
    command.args(["explain", "-", "--json", "--policy", "ondemand"]);
    let output = crate::common::output_with_input(&mut command, trace.as_bytes());
    assert_eq!(lines(&String::from_utf8_lossy(&output.stdout))[0]["access"], 3);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("bowwave: note: 2 rows"), "{stderr}");
    assert!(output.status.success());
}

#[test]
fn a_broken_trace_fails_with_its_line_after_the_decisions_before_it() {
    let trace = format!("{HEADER}0,1,read,a,0,4096\n0,1,read,a,12x,1\n");
    let mut command = bowwave();
    command.args(["explain", "-", "--json", "--policy", "ondemand"]);
    let output = crate::common::output_with_input(&mut command, trace.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "bowwave: error: standard input:3: offset: '12x' is not a whole number of bytes\n"
    );
    assert_eq!(lines(&String::from_utf8_lossy(&output.stdout)).len(), 1);
}

#[test]
fn input_that_is_no_trace_prints_no_table() {
    let mut command = bowwave();
    command.args(["explain", "-", "--policy", "ondemand"]);
    let trace = format!("{HEADER}0,1,read,a,12x,1\n");
    let output = crate::common::output_with_input(&mut command, trace.as_bytes());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(1), ""));
}

#[test]
fn impossible_reads_are_refused_before_they_fill_the_memory() {
    let trace = format!("{HEADER}0,1,read,a,0,18446744073709551615\n");
    let mut command = bowwave();
    command.args(["explain", "-", "--policy", "ondemand"]);
    let output = crate::common::output_with_input(&mut command, trace.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("row 0") && stderr.contains("pages at once"), "{stderr}");
    // Clipped at the end of the file it is a valid read.
    run_with_input(command.args(["--file-pages", "9"]), trace.as_bytes());
}

#[test]
fn a_log_of_another_tool_is_explained_as_its_import_is() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-trace/tests/samples");
    for log in ["sqlite.strace", "job3.iolog", "packed.lis.zst"] {
        let imported = samples.join("expected").join(format!("{log}.csv"));
        let explain =
            |trace: &Path| run(bowwave().args(["explain", "--policy", "linux", "--json"]).arg(trace));
        let found = explain(&samples.join(log));
        assert!(!found.is_empty() && found == explain(&imported), "{log}");
    }
    let log = fs::read(samples.join("job2.iolog")).expect("the sample");
    let command = ["explain", "-", "--policy", "ondemand", "--format", "fio"];
    assert!(run_with_input(bowwave().args(command), &log).contains("data.bin"));
}

#[test]
fn usage_errors_end_with_2_and_other_failures_with_1() {
    let explain = |arguments: &[&str]| failure(bowwave().arg("explain").args(arguments));
    let trace = vectors().join("retried.csv");
    let trace = trace.to_str().expect("a path in UTF-8");
    for (arguments, part) in [
        (vec![trace, "--policy", "psychic"], "psychic"),
        (vec![trace, "--policy", "ondemand", "--ra-pages", "1048577"], "--ra-pages"),
        (vec![trace, "--policy", "ondemand", "--ra-pages", "-1"], "-1"),
        (vec![trace, "--policy", "ondemand", "--file-pages", "many"], "--file-pages"),
        (vec![trace, "--policy", "ondemand", "--quickly"], "--quickly"),
    ] {
        let (code, message) = explain(&arguments);
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(part), "{message}");
    }
    let (code, message) = explain(&["no/such/trace.csv", "--policy", "ondemand"]);
    assert_eq!(code, 1);
    assert!(message.contains("no/such/trace.csv: No such file or directory"), "{message}");
    let (code, message) = explain(&[vectors().to_str().expect("UTF-8"), "--policy", "ondemand"]);
    assert_eq!((code, message.contains("is a directory")), (1, true), "{message}");
}

#[test]
fn a_reader_that_goes_away_ends_us_quietly() {
    let rows: String =
        (0..200_000u64).map(|row| format!("{row},1,read,a,{},1\n", row % 1000 * 409_600)).collect();
    let mut child = bowwave()
        .args(["explain", "-", "--policy", "none"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bowwave starts");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may end before it reads everything: that is the test.
    let _it_may_be_gone = std::io::Write::write_all(&mut stdin, format!("{HEADER}{rows}").as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
