//! `bowwave replay`, run as a user runs it: from the log of a program to tables and pictures.

use std::fs;
use std::path::{Path, PathBuf};

use super::browser::Browser;
use crate::common::{bowwave, directory, failure, is_installed, output_with_input, run, run_with_input};
use bowwave_testkit::skipped;
use serde_json::{Value, json};

/// Keys of a row that programs may rely on.
const KEYS: [&str; 17] = [
    "policy",
    "device",
    "cache_bytes",
    "ra_pages",
    "seconds",
    "accesses",
    "hits",
    "late",
    "misses",
    "requests",
    "bytes_fetched",
    "bytes_wanted",
    "amplification",
    "pages_wasted",
    "pages_thrashed",
    "avg_io_bytes",
    "latency_ns",
];

fn sample(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-trace/tests/samples").join(file)
}

fn plan(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-sim/plans").join(file)
}

fn rows(json: &str) -> Vec<Value> {
    serde_json::from_str(json).expect("an array of rows")
}

#[test]
fn every_format_of_a_trace_replays_to_rows_with_the_keys_of_the_contract() {
    let mut seen = 0;
    for entry in fs::read_dir(sample("")).expect("the samples") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        seen += 1;
        let rows =
            rows(&run(bowwave().arg("replay").arg(&path).args(["--device", "nvme,instant", "--json"])));
        // Three policies and the bound, on two devices.
        assert_eq!(rows.len(), 8, "{path:?}");
        for row in &rows {
            for key in KEYS {
                assert!(row.get(key).is_some(), "{path:?}: no {key}");
            }
            for key in ["p50", "p90", "p99", "max"] {
                assert!(row["latency_ns"][key].is_u64(), "{path:?}: no latency_ns.{key}");
            }
            let of = |key: &str| row[key].as_u64().expect("a number");
            assert_eq!(of("hits") + of("late") + of("misses"), of("accesses"), "{path:?}");
            assert!(row["latency_ns"]["p99"].as_u64() <= row["latency_ns"]["max"].as_u64(), "{path:?}");
        }
    }
    assert!(seen > 15, "{seen} samples");
}

#[test]
fn all_policies_are_compared_with_the_oracle() {
    let command =
        ["--policy", "all", "--device", "hdd,nvme,s3,lustre", "--cache", "64KiB,unlimited", "--json"];
    let text = run(bowwave().arg("replay").arg(sample("grep.strace")).args(command));
    let rows = rows(&text);
    let policies = bowwave_baselines::ALL.len();
    assert_eq!(rows.len(), 4 * 2 * (policies + 1));
    for group in rows.chunks(policies + 1) {
        let (oracle, runs) = group.split_last().expect("not empty");
        assert_eq!((&oracle["policy"], &oracle["regret"]), (&json!("oracle"), &json!(1.0)));
        for row in runs {
            assert!(row["regret"].as_f64().is_some_and(|regret| regret >= 1.0), "{row}");
            assert!(row["bytes_fetched"].as_u64() >= oracle["bytes_fetched"].as_u64(), "{row}");
        }
    }
    assert_eq!(text, run(bowwave().arg("replay").arg(sample("grep.strace")).args(command)), "to the digit");
}

#[test]
fn advice_is_printed_on_standard_error() {
    let command = ["--device", "nvme,s3", "--cache", "64KiB,1MiB"];
    let output = output_with_input(bowwave().arg("replay").arg(sample("sqlite.strace")).args(command), b"");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    for device in ["nvme", "s3"] {
        let start = format!("bowwave: note: {device}: stream");
        assert!(
            said.lines().any(|line| line.starts_with(&start) && line.contains("A cache of 1 MiB")),
            "{said}"
        );
    }
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("device"), "the table is data");
}

/// The trace of the README: four interleaved streams.
fn interleaved(directory: &Path) -> PathBuf {
    let trace = directory.join("app.bwt");
    let spec = ["--rows", "20000", "--file-size", "256MiB", "-o"];
    run(bowwave().args(["generate", "interleaved"]).args(spec).arg(&trace));
    trace
}

/// The lines of advice of a replay.
fn advice(command: &mut std::process::Command) -> Vec<String> {
    let output = output_with_input(command, b"");
    assert!(output.status.success(), "{command:?}");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let notes = said.lines().filter_map(|line| line.strip_prefix("bowwave: note: "));
    notes.filter(|note| !note.starts_with("left out of the table: ")).map(str::to_owned).collect()
}

/// Without `--policy`, only `none` and `ondemand` ran, and the advice was `ondemand` where `stream`
/// takes 1.5 s and it 366 s.
#[test]
fn replay_without_a_policy_runs_the_default_policy_and_the_oracle() {
    let trace = interleaved(&directory("replay-default"));
    let rows = rows(&run(bowwave().arg("replay").arg(&trace).arg("--json")));
    let policies: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    let default = bowwave_engine::Options::default().policy.name();
    assert_eq!(policies, [default, "none", "ondemand", "oracle"].repeat(3));
    assert!(rows.iter().all(|row| row["regret"].as_f64() >= Some(1.0)), "{rows:?}");
    let said = advice(bowwave().arg("replay").arg(&trace));
    assert_eq!(said.len(), 3, "{said:?}");
    for (line, device) in said.iter().zip(["hdd", "nvme", "s3"]) {
        assert!(line.starts_with(&format!("{device}: {default} is best, ")), "{line}");
        assert!(!line.contains("was not run"), "{line}");
    }
    // An experiment without policies runs the same ones, without an oracle.
    let plan = directory("replay-default-plan").join("plan.toml");
    fs::write(&plan, "[[readers]]\nreads = 64\n").expect("a plan");
    let planned: Vec<Value> =
        serde_json::from_str(&run(bowwave().arg("replay").arg(&plan).arg("--json"))).expect("rows");
    let policies: Vec<&str> = planned.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(policies, [default, "none", "ondemand"]);
}

#[test]
fn advice_names_the_default_policy_when_it_did_not_run() {
    let trace = interleaved(&directory("replay-left-out"));
    let said =
        advice(bowwave().arg("replay").arg(&trace).args(["--policy", "none,ondemand", "--device", "s3"]));
    let [line] = said.as_slice() else { panic!("{said:?}") };
    assert!(line.starts_with("s3: ondemand is best of those that ran, "), "{line}");
    assert!(
        line.ends_with("The default policy, stream, did not run: add --policy none,ondemand,stream"),
        "{line}"
    );
    // One run has nothing to compare with, and the default policy did not run.
    let said = advice(bowwave().arg("replay").arg(&trace).args(["--policy", "linux", "--device", "s3"]));
    assert_eq!(said, ["s3: the default policy, stream, did not run: add --policy linux,stream"]);
    let said = advice(bowwave().arg("replay").arg(&trace).args(["--policy", "stream", "--device", "s3"]));
    assert_eq!(said, [""; 0]);
}

/// "range-literal takes 133 s" blamed one policy for a time that two others had to the digit.
#[test]
fn advice_names_every_policy_of_a_tie() {
    let trace = interleaved(&directory("replay-ties"));
    let policies = "none,ondemand,ondemand-patch,range,range-literal,stream";
    let said = advice(bowwave().arg("replay").arg(&trace).args(["--policy", policies, "--device", "hdd"]));
    let [line] = said.as_slice() else { panic!("{said:?}") };
    assert!(line.contains("; none, range and range-literal tie at 133 s, 95.5 times as long"), "{line}");
    let said =
        advice(bowwave().arg("replay").arg(&trace).args(["--policy", "none,range,ondemand,ondemand-patch"]));
    assert!(
        said[0].starts_with("hdd: ondemand and ondemand-patch tie for best of those that ran, "),
        "{said:?}"
    );
}

/// The second replay of the README wrote 48 MB for a trace of 480 kB.
/// Requests that are cancelled before the device has them fetch nothing, and waste nothing.
#[test]
fn no_more_pages_are_used_or_wasted_than_were_fetched() {
    let trace = interleaved(&directory("replay-wasted"));
    let table =
        run(bowwave().arg("replay").arg(&trace).args(["--policy", "stream", "--device", "hdd", "--json"]));
    let row = &rows(&table)[0];
    let count = |name: &str| row[name].as_u64().expect("a count");
    assert!(count("cancelled") > 0, "{row}");
    let pages = count("pages_used") + count("pages_wasted") + count("pages_thrashed");
    assert!(pages * 4096 <= count("bytes_fetched"), "{row}");
}

#[test]
fn saved_runs_stay_small_and_full_ones_are_kept_on_demand() {
    let directory = directory("replay-small");
    let trace = interleaved(&directory);
    let (small, full, page) =
        (directory.join("run.json"), directory.join("full.json"), directory.join("run.html"));
    let command = ["--ra-pages", "32,256", "--cache", "16MiB,1GiB", "--policy", "none,ondemand"];
    let rows = run(bowwave().arg("replay").arg(&trace).args(command).arg("--save").arg(&small).arg("--json"));
    assert!(rows.len() < 40_000, "rows alone: {}", rows.len());
    let text = fs::read_to_string(&small).expect("the file");
    assert!(text.len() < 8_000_000, "{} bytes", text.len());
    let saved: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(saved["runs"].as_array().map(Vec::len), Some(24));
    assert!(
        saved["note"].as_str().is_some_and(|note| note.contains("at most 1250: one of every reads_every")),
        "{}",
        saved["note"]
    );
    for run in saved["runs"].as_array().expect("runs") {
        let (kept, every) = (run["reads"]["time_ns"].as_array().expect("times").len(), &run["reads_every"]);
        assert_eq!((kept, every), (1250, &json!(16)));
        assert_eq!(run["row"]["accesses"], 20_000);
    }
    let recording = run(bowwave().arg("replay").arg(&trace).args(command).arg("--json=full"));
    fs::write(&full, recording).expect("written");
    let (code, line) =
        failure(bowwave().arg("replay").arg(&trace).args(["--json=full", "--save"]).arg(&small));
    assert!(code == 2 && line.contains("--json=full > FILE"), "{line}");
    assert!(fs::metadata(&full).expect("the file").len() > 5 * text.len() as u64);
    for file in [&small, &full] {
        run(bowwave().arg("report").arg(file).arg("-o").arg(&page));
        let html = fs::read_to_string(&page).expect("the page");
        assert_eq!(html.contains("the recording itself holds one of 16 reads"), file == &small);
    }
}

#[test]
fn saved_runs_have_the_oracle_of_each_device() {
    let directory = directory("replay-bounds");
    let saved = directory.join("run.json");
    let rows = rows(&run(bowwave()
        .arg("replay")
        .arg(sample("grep.strace"))
        .arg("--json")
        .arg("--save")
        .arg(&saved)));
    let saved: Value = serde_json::from_slice(&fs::read(&saved).expect("the file")).expect("JSON");
    let oracles: Vec<&Value> = rows.iter().filter(|row| row["policy"] == "oracle").collect();
    let bounds: Vec<&Value> = saved["bounds"].as_array().expect("bounds").iter().collect();
    assert_eq!((bounds.len(), bounds), (3, oracles));
}

/// The table of a replay had 169 columns, that of `reproduce` 400.
#[test]
fn tables_fit_100_columns_however_wide_their_values_are() {
    let directory = directory("replay-wide");
    let trace = interleaved(&directory);
    let file = directory.join("data.bin");
    fs::write(&file, vec![7; 1 << 20]).expect("a file");
    let device = "hdd:rpm=5400,s3:slots=3,hdd";
    let scheduler = "deadline:starved=4,async_expire_ms=1000,sync_expire_ms=100,batch=8";
    let replay = |arguments: &[&str]| run(bowwave().arg("replay").arg(&trace).args(arguments));
    let all = ["--policy", "all", "--ra-pages", "32,1048576", "--cache", "1111111KiB,unlimited"];
    let wide = replay(
        &[&all[..], &["--device", device, "--scheduler", scheduler, "--eviction", "linux-2.6"]].concat(),
    );
    assert!(wide.contains("starved=4,") && wide.contains("1111111 KiB"), "{wide}");
    let default = replay(&[]);
    // A constant cache size and window size are omitted.
    assert!(default.starts_with("device  policy"), "{default}");
    let compared = run(bowwave().arg("read").arg(&file).args(["--compare", "none,ondemand,stream"]));
    let reproduced = run(bowwave().args(["reproduce", "patterns"]));
    let (reproduced, _) = reproduced.split_once(" copies of a run.").expect("the end of the table");
    for table in [&*wide, &*default, &*compared, reproduced] {
        let wide: Vec<&str> = table.lines().filter(|line| line.chars().count() > 100).collect();
        assert_eq!(wide, [""; 0]);
    }
}

#[test]
fn a_terminal_of_200_columns_shows_all_of_a_table() {
    if !is_installed("script") {
        return;
    }
    let trace = interleaved(&directory("replay-terminal"));
    let shown = |columns: u32| {
        let replay = format!("{} replay {} --device hdd", env!("CARGO_BIN_EXE_bowwave"), trace.display());
        let command = format!("stty cols {columns}; {replay} 2>/dev/null");
        run(std::process::Command::new("script").args(["-qec", &command, "/dev/null"]))
    };
    let head =
        |text: &str| text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let all = "device cache ra_pages policy seconds regret hits late misses miss ratio requests avg KiB fetched/wanted \
               wasted thrashed busy p50 p99 max";
    assert_eq!(head(&shown(200)), all);
    assert_eq!(head(&shown(60)), "device policy seconds regret misses fetched/wanted");
}

/// Device time was accounted to the step in which a request ended, and clipped to it: a disk that
/// was always busy appeared busy for a fifth of the time.
#[test]
fn samples_of_a_busy_device_are_busy_while_it_works_on_one_request() {
    let directory = directory("replay-busy");
    let (trace, saved) = (interleaved(&directory), directory.join("run.json"));
    let command = ["--policy", "stream", "--device", "hdd", "--save"];
    run(bowwave().arg("replay").arg(&trace).args(command).arg(&saved));
    let saved: Value = serde_json::from_slice(&fs::read(&saved).expect("the file")).expect("JSON");
    let run = &saved["runs"][0];
    let busy: Vec<f64> =
        run["samples"]["busy"].as_array().expect("samples").iter().filter_map(Value::as_f64).collect();
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    let all = run["row"]["utilisation"].as_f64().expect("a share");
    assert!((mean - all).abs() < 0.02, "{mean} in samples, {all} in the row");
}

#[test]
fn help_states_the_policies_that_run_by_default() {
    let help = run(bowwave().args(["replay", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("without it, stream (the default of a mount), none, ondemand and the oracle"),
        "{help}"
    );
}

#[test]
fn an_eviction_alone_is_judged_by_its_misses() {
    let directory = directory("replay-lru");
    let trace = directory.join("zipf.bwt");
    let spec = ["--rows", "20000", "--bs", "4KiB", "--file-size", "64MiB", "--seed", "1", "-o"];
    run(bowwave().args(["generate", "zipf"]).args(spec).arg(&trace));
    let command =
        ["--policy", "none,oracle", "--eviction", "lru", "--device", "instant", "--cache", "4MiB", "--json"];
    let rows = rows(&run(bowwave().arg("replay").arg(&trace).args(command)));
    // The machine gives the same for the same trace, one checked event at a time.
    let checked = run(bowwave().arg("replay").arg(&trace).args(command).arg("--check"));
    let checked: Vec<Value> = serde_json::from_str(&checked).expect("rows");
    assert_eq!(rows[0]["misses"], checked[0]["misses"]);
    assert_eq!(rows[1]["policy"], "belady");
    assert!(rows[1]["misses"].as_u64() < rows[0]["misses"].as_u64() && rows[1]["misses"] != json!(0));
}

#[test]
fn a_binary_trace_replays_from_standard_input_as_from_its_file() {
    let file = directory("replay-binary-stdin").join("trace.bwt");
    run(bowwave().args(["generate", "interleaved", "--rows", "500", "-o"]).arg(&file));
    let options = ["--policy", "none,ondemand", "--device", "hdd", "--json"];
    let from_file = run(bowwave().arg("replay").arg(&file).args(options));
    assert_eq!(rows(&from_file).len(), 2, "{from_file}");
    let bytes = fs::read(&file).expect("just written");
    assert_eq!(run_with_input(bowwave().args(["replay", "-"]).args(options), &bytes), from_file);
}

#[test]
fn standard_input_csv_and_a_saved_run_serve_too() {
    let directory = directory("replay-forms");
    let log = fs::read(sample("job2.iolog")).expect("the sample");
    let csv =
        run_with_input(bowwave().args(["replay", "-", "--csv", "--device", "hdd:rpm=5400,depth=1"]), &log);
    assert!(csv.starts_with("policy,eviction,device,") && csv.contains("\"hdd:rpm=5400,depth=1\""), "{csv}");
    assert!(
        csv.lines().all(|line| line.split("\",").last().unwrap_or(line).split(',').count() >= 22),
        "{csv}"
    );
    let (saved, page) = (directory.join("run.json"), directory.join("run.html"));
    run(bowwave()
        .arg("replay")
        .arg(plan("eight-readers.toml"))
        .args(["--device", "nvme", "--save"])
        .arg(&saved));
    run(bowwave().arg("report").arg(&saved).arg("-o").arg(&page));
    assert!(fs::read_to_string(&page).expect("the page").contains("Eight sequential readers"));
}

/// The guide's claim about the shipped experiments: the default policy has no object-store workload
/// where it is clearly worse.
#[test]
fn the_object_store_plans_meet_their_bars() {
    let rows = |name: &str| -> Vec<Value> {
        let json = run(bowwave().arg("replay").arg(plan(name)).args(["--policy", "stream", "--json"]));
        serde_json::from_str(&json).expect("rows")
    };
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    // Maximum seconds, and maximum bytes fetched per byte requested.
    let bars = [
        ("a", 1.5, 1.01),
        ("b", 2.5, 1.01),
        ("c", 15.8, 1.05),
        ("d", 9.8, 1.05),
        ("e", 0.8, 1.5),
        ("f", 0.8, 1.5),
        // Anywhere in the file; `reproduce beyond` has one in each hundredth of it.
        ("g", 4.5, 2.0),
        ("h", 1.6, 1.5),
        ("i", 0.6, 2.0),
        ("j", 1.2, 1.05),
        ("l", 3.2, 1.05),
    ];
    let workloads = rows("object-store.toml");
    assert_eq!(workloads.len(), bars.len());
    for (row, (name, seconds, times)) in workloads.iter().zip(bars) {
        assert_eq!(row["workload"], name);
        assert!(number(row, "seconds") <= seconds && number(row, "amplification") <= times, "{row}");
    }
    let players = &rows("players.toml")[0];
    assert!(
        number(&players["latency_ns"], "max") < 250e6 && number(players, "amplification") <= 1.5,
        "{players}"
    );
}

#[test]
fn the_log_of_a_program_becomes_pictures_with_axes_units_and_a_sentence_each() {
    let directory = directory("replay-path");
    for log in ["grep.strace", "sqlite.strace", "python.strace", "job3.iolog"] {
        let page = directory.join(log).with_extension("html");
        let table = run(bowwave()
            .arg("replay")
            .arg(sample(log))
            .args(["--policy", "all", "--device", "hdd,nvme,s3"])
            .arg("--html")
            .arg(&page));
        assert_eq!(table.lines().count(), 1 + 3 * (bowwave_baselines::ALL.len() + 1), "{table}");
        let mut browser = match Browser::start(&directory.join("profile")) {
            Ok(browser) => browser,
            Err(reason) => return skipped(&reason),
        };
        browser.open(&page, 1280, "light");
        let seen = browser.value(
            "(() => {
                const plots = [...document.querySelectorAll('.plot')];
                return {
                    plots: plots.length,
                    drawn: plots.filter(plot => plot.dataset.drawn).length,
                    charts: plots.filter(plot => plot.dataset.drawn === 'chart').length,
                    bars: document.querySelectorAll('.block .bars li').length,
                    oracles: document.querySelectorAll('.block .bars li.bound').length,
                    named: plots.filter(plot => plot.dataset.drawn === 'chart' && (plot.getAttribute('aria-label') || '').length > 30).length,
                    says: [...document.querySelectorAll('.says li')].length,
                    rows: document.querySelectorAll('#table tr[data-run]').length,
                };
            })()",
        );
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{log}");
        assert_eq!(browser.requests().len(), 1, "{log}: the page loads something");
        assert_eq!((&seen["plots"], &seen["drawn"]), (&json!(9), &json!(9)), "{log}: {seen}");
        // Charts of fewer than three samples or ten reads are left out.
        assert!(seen["charts"].as_u64() >= Some(3) && seen["charts"] == seen["named"], "{log}: {seen}");
        assert!(seen["says"].as_u64() >= Some(20), "{log}: {seen}");
        // The oracle of each device.
        assert_eq!(
            (&seen["bars"], &seen["oracles"]),
            (&json!(3 * (bowwave_baselines::ALL.len() + 1)), &json!(3)),
            "{log}: {seen}"
        );
        assert_eq!(seen["rows"], json!(3 * bowwave_baselines::ALL.len()), "{log}: {seen}");
    }
}

#[test]
fn bad_files_are_one_line_with_their_place_and_exit_code_1() {
    let directory = directory("replay-bad");
    let head = "time_ns,pid,op,file,offset,length\n";
    let cases: [(&str, Vec<u8>, &str); 17] = [
        ("empty.csv", Vec::new(), "empty.csv:1: the file is empty"),
        ("head.csv", head.into(), "head.csv has nothing to read"),
        ("cut.csv", format!("{head}0,1,read,a,0,4096\n1,1,read").into(), "cut.csv:3: "),
        ("mixed.csv", format!("{head}0,1,read,a,0,4096\n{{\"a\":1}}\n").into(), "mixed.csv:3: "),
        ("negative.csv", format!("{head}0,1,read,a,-1,4096\n").into(), "negative.csv:2: offset: "),
        ("float.csv", format!("{head}0,1,read,a,0.5,4096\n").into(), "float.csv:2: offset: "),
        ("past.csv", format!("{head}0,1,read,a,18446744073709551615,2\n").into(), "past.csv:2: "),
        ("op.csv", format!("{head}0,1,reed,a,0,4096\n").into(), "op.csv:2: op: "),
        ("utf8.csv", [head.as_bytes(), b"0,1,read,\xff\xfe,0,4096\n"].concat(), "utf8.csv:2: "),
        (
            "huge.csv",
            format!("{head}0,1,read,a,0,9000000000000000000\n").into(),
            "huge.csv: row 0: 9000000000000000000 bytes at once",
        ),
        (
            "far.csv",
            format!("{head}0,1,read,a,9000000000000000000,4096\n").into(),
            "far.csv: file 'a' ends at byte 9000000000000004096",
        ),
        (
            "two.csv",
            format!("{head}0,1,read,a,3000000000000000000,1\n0,1,read,b,3000000000000000000,1\n").into(),
            "two.csv: file 'b' ends at",
        ),
        ("cut.bwt", b"\x89BWTRACE".to_vec(), "cut.bwt: "),
        ("noise.bin", (0..255u8).cycle().take(5000).collect(), "noise.bin: "),
        ("bad.gz", b"\x1f\x8b\x08\x00nonsense".to_vec(), "bad.gz"),
        ("bad.toml", b"[[readers]]\nraeds = 1\n".to_vec(), "bad.toml:2: unknown field `raeds`"),
        ("bytes.toml", b"\xff\xfe[[readers]]".to_vec(), "bytes.toml: cannot read it: "),
    ];
    let mut wrong = Vec::new();
    for (name, bytes, part) in cases {
        let path = directory.join(name);
        fs::write(&path, bytes).expect("written");
        let (code, line) = failure(bowwave().arg("replay").arg(&path));
        if !(code == 1 && line.contains(part)) {
            wrong.push(format!("{name}: {code}: {line}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let path = directory.join("times.csv");
    fs::write(&path, format!("{head}0,1,read,a,0,4096\n18446744073709551615,1,read,a,4096,4096\n"))
        .expect("written");
    run(bowwave().arg("replay").arg(&path));
    let (code, line) = failure(bowwave().arg("replay").arg(&path).args(["--pace", "open"]));
    assert!(code == 1 && line.contains("times.csv: its times span 18446744073709551615 ns"), "{line}");
    let (code, line) = failure(bowwave().args(["replay", "/no/such.csv"]));
    assert!(code == 1 && line.contains("/no/such.csv: No such file"), "{line}");
    let (code, line) = failure(bowwave().arg("replay").arg(&directory));
    assert!(code == 1 && line.contains("replay-bad"), "{line}");
}

#[test]
fn bad_usage_is_one_line_with_the_choices_and_exit_code_2() {
    let trace = sample("p6.lis");
    let cases: [(&[&str], &str); 25] = [
        (&["--policy", "lru"], "there are all, none, legacy"),
        (&["--policy", ""], "there are all, none, legacy"),
        (&["--policy", "oracle", "--file-size", "1MiB"], "without --file-size"),
        (&["--device", "floppy"], "unknown device `floppy`; known: hdd"),
        (&["--device", "hdd:rpm=0"], "rpm = 0: must be a number from 60"),
        (&["--device", "hdd:rpm=nan"], "rpm"),
        (&["--device", "hdd:rpms=7200"], "unknown key `rpms`; known: "),
        (&["--device", "hdd:rpm"], "`rpm` is not of the form key=value"),
        (&["--device", "hdd,,s3"], "unknown device ``"),
        (&["--device", "/no/such.toml"], "/no/such.toml: cannot read it"),
        (&["--device", "s3:slots=0"], "slots = 0: must be"),
        (&["--device", "nvme:depth=1.5"], "depth = 1.5: must be a whole number"),
        (&["--scheduler", "cfq"], "unknown elevator `cfq`; known: noop, clook"),
        (&["--scheduler", "clook:batch=3"], "clook has no knobs"),
        (&["--scheduler", "deadline:batch=0"], "batch = 0: must be a whole number from 1"),
        (&["--scheduler", "deadline:fifo=3"], "there is no knob `fifo`; there are sync_expire_ms"),
        (&["--cache", "1"], "less than a page"),
        (&["--cache", "much"], "not a size"),
        (&["--ra-pages", "1048577"], "not in 0..=1048576 pages"),
        (&["--failing", "1.5"], "not a share from 0 to 1"),
        (&["--failing", "nan"], "not a share from 0 to 1"),
        (&["--depth", "0"], "0 is not in 1..=4096"),
        (&["--jobs", "0"], "--jobs"),
        (&["--eviction", "fifo"], "there are linux, linux-2.6, lru"),
        (&["--json", "--csv"], "cannot be used with"),
    ];
    let mut wrong = Vec::new();
    for (arguments, part) in cases {
        let (code, line) = failure(bowwave().arg("replay").arg(&trace).args(arguments));
        if !(code == 2 && line.contains(part)) {
            wrong.push(format!("{arguments:?}: {code}: {line}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let (code, line) =
        failure(bowwave().arg("replay").arg(plan("eight-readers.toml")).args(["--policy", "oracle"]));
    assert!(code == 2 && line.contains("only a trace has an oracle"), "{line}");
}

#[test]
fn the_commands_of_the_readme_and_the_guide_run() {
    let directory = directory("replay-guide");
    fs::copy(sample("grep.strace"), directory.join("app.strace")).expect("a log");
    for name in ["eight-readers.toml", "object-store.toml", "columns.csv"] {
        fs::copy(plan(name), directory.join(name)).expect("a plan");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for document in ["README.md", "docs/guide-replay.md"] {
        let text = fs::read_to_string(root.join(document)).expect("the document");
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            for line in block.lines() {
                let words = line.split('#').next().unwrap_or_default().split_whitespace();
                let words: Vec<&str> = words.collect();
                let Some((&"bowwave", arguments)) = words.split_first() else { continue };
                let known = ["generate", "replay", "report", "reproduce"];
                if arguments.first().is_some_and(|command| known.contains(command)) {
                    seen += 1;
                    run(bowwave().args(arguments).current_dir(&directory));
                }
            }
        }
    }
    assert!(seen >= 12, "{seen} commands");
}

#[test]
fn schedulers_and_their_knobs_are_varied_as_devices_are() {
    let plan = directory("replay-schedulers").join("plan.toml");
    let text = "[sweep]\npolicies = [\"ondemand\"]\nschedulers = [\"clook\", \"deadline\"]\n\
                [[readers]]\ncount = 8\nreads = 64\n\
                [[readers]]\ncount = 8\nreads = 64\nread_bytes = 4096\npattern = \"random\"\nshare_file = true\n";
    fs::write(&plan, text).expect("a plan");
    let replay = |options: &[&str]| -> Vec<(String, String)> {
        let rows = rows(&run(bowwave().arg("replay").arg(&plan).args(options).arg("--json")));
        rows.iter().map(|row| (row["scheduler"].to_string(), row["seconds"].to_string())).collect()
    };
    let planned = replay(&[]);
    assert_eq!([&*planned[0].0, &*planned[1].0], ["\"clook\"", "\"deadline\""]);
    assert_ne!(planned[0].1, planned[1].1, "another order, another time");
    let varied = replay(&[
        "--scheduler",
        "deadline,deadline:batch=1,starved=0,deadline:batch=1,starved=0,sync_expire_ms=0",
    ]);
    assert_eq!(varied[0], planned[1]);
    assert_eq!(varied[1].0, "\"deadline:batch=1,starved=0\"");
    assert!(varied[1].1 != varied[0].1 && varied[2].1 != varied[1].1, "knobs matter: {varied:?}");
    let past = |scheduler: &str| -> Vec<Value> {
        let command = ["--scheduler", scheduler, "--json"];
        let rows = rows(&run(bowwave().arg("replay").arg(&plan).args(command)));
        let classes = rows[0]["classes"].as_array().expect("classes").clone();
        let sum: u64 = classes.iter().filter_map(|class| class["requests"].as_u64()).sum();
        assert!(
            sum >= rows[0]["requests"].as_u64().expect("a count"),
            "before they were merged: {classes:?}"
        );
        classes
    };
    let (late, early) = (past("deadline:sync_expire_ms=0"), past("deadline"));
    assert_eq!([&late[0]["class"], &late[0]["op"], &late[1]["class"]], ["sync", "read", "async"]);
    assert!(late[0]["expired"].as_u64() > Some(100) && early[0]["expired"] == 0, "{late:?}\n{early:?}");
    assert!(late[0]["latency_ns"]["p99"].as_u64() > late[0]["waited_ns"]["p50"].as_u64());
    assert!(late[0]["depth"].as_f64() > Some(1.0) && late[0]["depth_max"].as_u64() <= Some(16), "{late:?}");
    let keys = replay(&["--device", "hdd:queue_batch=1,queue_starved=0", "--scheduler", "deadline"]);
    assert_eq!(keys[0].1, varied[1].1, "a device's keys are the same knobs");
    let bad = text.replace("clook", "cfq");
    fs::write(&plan, bad).expect("a plan");
    let (code, line) = failure(bowwave().arg("replay").arg(&plan));
    assert!(code == 1 && line.contains("plan.toml:3: schedulers: `cfq`: unknown elevator"), "{line}");
}

#[test]
fn the_command_line_overrides_a_plan() {
    let plan = directory("replay-overrides").join("plan.toml");
    let text = "[sweep]\npolicies = [\"none\"]\nseeds = [5]\n[machine]\neviction = \"lru\"\n\
                [[readers]]\nreads = 4\nfile_bytes = 65_536\nread_bytes = 8_192\n";
    fs::write(&plan, text).expect("a plan");
    let replay = |options: &[&str]| {
        let rows = rows(&run(bowwave().arg("replay").arg(&plan).args(options).arg("--json")));
        let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
        json!([row["eviction"], row["seed"], row["reads_failed"], row["policy"]])
    };
    assert_eq!(replay(&[]), json!(["lru", 5, 0, "none"]));
    let options = ["--eviction", "linux", "--seed", "0", "--failing", "1", "--policy", "linux"];
    assert_eq!(replay(&options), json!(["linux", 0, 4, "linux"]));
    let hits = |options: &[&str]| {
        let rows = rows(&run(bowwave().arg("replay").arg(&plan).args(options).arg("--json")));
        rows[0]["hits"].as_u64()
    };
    assert_eq!(
        (hits(&[]), hits(&["--page-by-page"])),
        (Some(0), Some(4)),
        "the second page came with the first"
    );
    for option in [["--pace", "open"], ["--depth", "2"], ["--file-size", "4096"], ["--writes", "as-reads"]] {
        let (code, said) = failure(bowwave().arg("replay").arg(&plan).args(option));
        assert!(code == 2 && said.contains(&format!("{} is for traces", option[0])), "{said}");
    }
}

#[test]
fn the_tasks_of_a_sweep_print_the_rows_of_a_replay() {
    let trace = interleaved(&directory("replay tasks"));
    let options =
        ["--policy", "stream,none,oracle", "--device", "hdd:rpm=5400,s3", "--cache", "1MiB,unlimited"];
    let windows = ["--ra-pages", "32,64", "--pace", "open", "--eviction", "lru", "--page-by-page"];
    let mut expected =
        rows(&run(bowwave().arg("replay").arg(&trace).args(options).args(windows).arg("--json")));
    let tasks = run(bowwave().arg("sweep").arg(&trace).args(options).args(windows).arg("--emit-tasks"));
    let program = bowwave().get_program().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for task in tasks.lines() {
        let arguments = task.strip_prefix("bowwave ").expect("a command");
        let mut shell = std::process::Command::new("sh");
        found.append(&mut rows(&run(shell.args(["-c", &format!("'{program}' {arguments}")]))));
    }
    // Two policies, windows, caches and devices; the oracle with the last of each cache.
    assert_eq!((tasks.lines().count(), found.len()), (16, 20));
    for row in expected.iter_mut().chain(&mut found) {
        row["regret"] = Value::Null;
    }
    assert_eq!(found, expected);
    // An experiment has no oracle.
    let tasks = run(bowwave().arg("sweep").arg(plan("eight-readers.toml")).arg("--emit-tasks"));
    assert!(!tasks.is_empty() && !tasks.contains("oracle"), "{tasks}");
    let (code, line) =
        failure(bowwave().arg("sweep").arg(&trace).args(["--policy", "oracle", "--emit-tasks", "--csv"]));
    assert!(code == 2 && line.contains("--csv"), "{line}");
}
