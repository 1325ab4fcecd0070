//! `bowwave generate`, as a user runs it.

use std::fs;
use std::process::Command;

use crate::common::{bowwave, directory, failure, run};
use bowwave_trace::binary::Trace;
use bowwave_trace::{Reader, Record};

fn generate(arguments: &[&str]) -> Command {
    let mut command = bowwave();
    command.arg("generate").args(arguments);
    command
}

#[test]
fn both_forms_hold_the_same_rows_the_same_on_every_run() {
    let directory = directory("generate-forms");
    for pattern in
        ["sequential", "random", "interleaved", "strided", "backward", "clustered", "zipf", "oltp", "phases"]
    {
        let mut arguments = vec![pattern, "--rows", "3000", "--file-size", "64MiB", "--seed", "5"];
        if pattern == "phases" {
            arguments.extend(["--phases", "zipf,backward"]);
        }
        let text = run(&mut generate(&arguments));
        let rows: Vec<Record> =
            Reader::new(text.as_bytes(), "stdout").collect::<Result<_, _>>().expect("a trace");
        assert_eq!(rows.len(), 3000);
        assert!(rows.iter().all(|row| row.length == if pattern == "oltp" { 16384 } else { 4096 }));

        let binary = directory.join("trace.bwt");
        arguments.extend(["-o", binary.to_str().expect("UTF-8")]);
        assert_eq!(run(&mut generate(&arguments)), "");
        let trace = Trace::open(&binary).expect("a trace");
        trace.verify().expect("whole");
        assert_eq!(trace.records().collect::<Result<Vec<_>, _>>().expect("good rows"), rows, "{pattern}");
    }
    let csv = directory.join("trace.csv");
    run(&mut generate(&["random", "--rows", "9", "-o", csv.to_str().expect("UTF-8")]));
    assert_eq!(fs::read_to_string(&csv).expect("written"), run(&mut generate(&["random", "--rows", "9"])));
    let left: Vec<_> =
        fs::read_dir(&directory).expect("ours").map(|entry| entry.expect("ours").file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    fs::remove_dir_all(&directory).expect("ours");
}

#[test]
fn invalid_traces_are_refused_by_the_names_of_the_options() {
    let cases: [(&[&str], i32, &[&str]); 9] = [
        (&["zigzag"], 2, &["'zigzag'", "clustered"]),
        (&["random", "--file-size", "1k"], 2, &["--file-size is 1024", "one block of 4096"]),
        (&["random", "--bs", "0"], 2, &["--bs", "more than 0"]),
        (&["interleaved", "--streams", "0"], 2, &["--streams is 0", "from 1 to"]),
        (&["zipf", "--exponent", "11"], 2, &["--exponent is 11", "from 0 to 10"]),
        (&["phases"], 2, &["--phases need each other", "--phases sequential,random"]),
        (&["phases", "--phases", "random,phases"], 2, &["--phases", "other than phases"]),
        (&["random", "-o", "trace.txt"], 2, &["trace.txt", "FILE.bwt"]),
        (
            &["random", "-o", "/no/such/directory/t.bwt"],
            1,
            &["cannot write /no/such/directory/t.bwt", "No such file"],
        ),
    ];
    for (arguments, code, parts) in cases {
        let (found, line) = failure(&mut generate(arguments));
        assert_eq!(found, code, "{arguments:?}: {line}");
        for part in parts {
            assert!(line.contains(part), "{arguments:?} does not say {part:?}: {line}");
        }
    }
}

#[test]
fn family_traces_follow_from_the_seed_and_are_described() {
    let directory = directory("generate-family");
    let text = run(&mut generate(&["family", "--seed", "12"]));
    let rows: Vec<Record> =
        Reader::new(text.as_bytes(), "stdout").collect::<Result<_, _>>().expect("a trace");
    assert!(rows.len() >= 50, "{} rows", rows.len());
    assert_eq!(run(&mut generate(&["family", "--seed", "12"])), text);
    let binary = directory.join("trace.bwt");
    run(&mut generate(&["family", "--seed", "12", "-o", binary.to_str().expect("UTF-8")]));
    let trace = Trace::open(&binary).expect("a trace");
    assert_eq!(trace.records().collect::<Result<Vec<_>, _>>().expect("good rows"), rows);

    let words = |seed| run(&mut generate(&["family", "--describe", "--seed", seed]));
    assert_eq!(words("12").lines().count(), 1);
    assert_ne!(words("12"), words("13"));
    fs::remove_dir_all(&directory).expect("ours");

    let refused: [(&[&str], &[&str]); 2] = [
        (&["family", "--rows", "9"], &["--rows", "generate family --seed 17"]),
        (&["random", "--describe"], &["--describe", "family"]),
    ];
    for (arguments, words) in refused {
        let (code, text) = failure(&mut generate(arguments));
        assert_eq!(code, 2, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}
