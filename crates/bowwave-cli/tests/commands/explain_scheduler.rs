//! `bowwave explain --scheduler`, run as a user runs it: dispatches with their reasons, on traces
//! small enough to follow.

use crate::common::explained::{self, HEADER};
use crate::common::{bowwave, failure, output_with_input, run, run_with_input};
use serde_json::Value;

/// One request at a time, 10 ms each.
const DEVICE: &str = "lustre:rpc_us=10000,page_us_min=0,page_us_max=0,slow_share=0,queue_seeks=1";

fn explain(scheduler: &str, more: &[&str], rows: &str) -> String {
    let mut command = bowwave();
    command.args(["explain", "-", "--scheduler", scheduler, "--device", DEVICE, "--device-depth", "1"]);
    run_with_input(command.args(more), format!("{HEADER}{rows}").as_bytes())
}

fn lines(scheduler: &str, more: &[&str], rows: &str) -> Vec<Value> {
    let more = [more, &["--json"]].concat();
    explained::lines(&explain(scheduler, &more, rows))
}

/// Row, class and reason of each dispatch.
fn story(lines: &[Value]) -> Vec<(u64, &str, &str)> {
    let text = |line: &'_ Value, key: &str| line[key].as_str().map(str::to_owned).expect("a text");
    let told = lines.iter().map(|line| {
        let row = line["rows"][0].as_u64().expect("a number");
        (row, text(line, "class").leak() as &str, text(line, "reason").leak() as &str)
    });
    told.collect()
}

const MIXED: &str = "0,1,write,bulk,0,8192\n0,1,write,bulk,1048576,4096\n1000000,2,write,log,0,4096\n\
                     1000000,2,fsync,log,0,0\n2000000,3,read,data,40960,4096\n2000000,3,read,data,45056,100\n";

#[test]
fn json_lines_have_the_members_of_the_contract_in_order() {
    let found = explain("deadline", &["--json"], MIXED);
    assert_eq!(
        found,
        "{\"time_ns\":0,\"rows\":[0],\"file\":\"bulk\",\"offset\":0,\"length\":8192,\"direction\":\"write\",\
         \"class\":\"async\",\"priority\":\"best-effort\",\"reason\":\"oldest\",\"waited_ns\":0,\"expired\":false,\
         \"merged\":false,\"promoted\":false,\"waiting\":{\"sync\":0,\"async\":1},\"at_device\":1}\n\
         {\"time_ns\":10000000,\"rows\":[1],\"file\":\"bulk\",\"offset\":1048576,\"length\":4096,\"direction\":\"write\",\
         \"class\":\"async\",\"priority\":\"best-effort\",\"reason\":\"batch\",\"waited_ns\":10000000,\"expired\":false,\
         \"merged\":false,\"promoted\":false,\"waiting\":{\"sync\":3,\"async\":0},\"at_device\":1}\n\
         {\"time_ns\":20000000,\"rows\":[2],\"file\":\"log\",\"offset\":0,\"length\":4096,\"direction\":\"write\",\
         \"class\":\"sync\",\"priority\":\"best-effort\",\"reason\":\"batch\",\"waited_ns\":19000000,\"expired\":false,\
         \"merged\":false,\"promoted\":true,\"waiting\":{\"sync\":2,\"async\":0},\"at_device\":1}\n\
         {\"time_ns\":30000000,\"rows\":[4,5],\"file\":\"data\",\"offset\":40960,\"length\":8192,\"direction\":\"read\",\
         \"class\":\"sync\",\"priority\":\"best-effort\",\"reason\":\"oldest\",\"waited_ns\":28000000,\"expired\":false,\
         \"merged\":true,\"promoted\":false,\"waiting\":{\"sync\":0,\"async\":0},\"at_device\":1}\n"
    );
}

#[test]
fn without_json_each_dispatch_is_a_line_under_a_head_and_the_counts_are_said() {
    let mut command = bowwave();
    command.args(["explain", "-", "--scheduler", "deadline", "--device", DEVICE, "--device-depth", "1"]);
    let output = output_with_input(&mut command, format!("{HEADER}{MIXED}").as_bytes());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "ms dir class reason waited offset KiB sync async device flags rows file";
    assert_eq!(rows[0], head.split(' ').collect::<Vec<_>>());
    let last = "30.000 read sync oldest 28.000 40960 8 0 0 1 merged 4..5 data";
    assert_eq!(rows[4], last.split(' ').collect::<Vec<_>>());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "bowwave: note: 5 requests, 1 merged, 1 promoted, 0 dropped; 4 dispatches (2 batch, 2 oldest), 0 past \
         their deadline\n"
    );
}

#[test]
fn who_waits_comes_before_write_back_unless_the_scheduler_only_knows_reads_and_writes() {
    // Eight distant bulk writes, then an fsync of another file during endless reads.
    let bulk: String = (0..8).map(|n| format!("0,1,write,bulk,{},4096\n", n << 20)).collect();
    let rows = format!("{bulk}1,2,write,log,0,4096\n1,2,fsync,log,0,0\n");
    let place = |scheduler: &str| {
        let dispatches = lines(scheduler, &[], &rows);
        story(&dispatches).iter().position(|&(row, ..)| row == 8)
    };
    assert_eq!(place("deadline:batch=1"), Some(1), "only what was at the device came before it");
    assert_eq!(place("noop"), Some(8));
    assert_eq!(place("deadline-rw:batch=1"), Some(8), "it lies behind them, and a write is a write");
}

#[test]
fn a_read_makes_the_readahead_that_it_wants_sync_and_the_rest_stays_async() {
    let rows = "0,1,read,other,0,4096\n0,1,willneed,data,0,1048576\n0,2,write,data,4194304,4096\n1,1,read,data,524288,4096\n";
    let dispatches = lines("deadline:batch=1", &[], rows);
    let told = story(&dispatches);
    assert_eq!(told[0], (0, "sync", "oldest"));
    assert_eq!((told[1].0, told[1].1, &dispatches[1]["promoted"]), (1, "sync", &Value::Bool(true)));
    assert_eq!(dispatches[1]["offset"], 524_288);
    assert!(told[2..].iter().all(|&(_, class, _)| class == "async"), "{told:?}");
}

#[test]
fn with_a_policy_readahead_goes_to_the_device_as_well() {
    let rows = "0,1,read,data,0,4096\n50000000,1,read,data,4096,4096\n50000000,1,read,data,4096,4096\n";
    let bytes = |policy: &str| -> u64 {
        let dispatches = lines("deadline", &["--policy", policy, "--file-pages", "1000"], rows);
        dispatches.iter().filter_map(|line| line["length"].as_u64()).sum()
    };
    assert_eq!((bytes("none"), bytes("ondemand")), (8192, 12 * 4096));
}

#[test]
fn priorities_are_strict_but_for_those_that_waited_too_long() {
    let rows =
        "0,1,read,a,0,4096\n0,2,read,a,1048576,4096\n0,3,read,a,2097152,4096\n0,3,read,a,3145728,4096\n";
    let all = ["--priority", "1=idle", "--priority", "3=real-time"];
    let order = |scheduler: &str| -> Vec<u64> {
        story(&lines(scheduler, &all, rows)).iter().map(|told| told.0).collect()
    };
    assert_eq!(order("deadline"), [2, 3, 1, 0]);
    assert_eq!(order("deadline:aging_ms=5"), [2, 1, 0, 3], "10 ms later two have waited too long");
    assert_eq!(order("deadline-rw"), [0, 1, 2, 3], "Linux's had none");
}

#[test]
fn every_format_is_read_and_unused_rows_are_counted() {
    let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-trace/tests/samples");
    for log in ["sqlite.strace", "job3.iolog", "packed.lis.zst"] {
        let command =
            |trace| run(bowwave().args(["explain", "--scheduler", "deadline", "--json"]).arg(trace));
        let found = command(samples.join(log));
        assert!(!found.is_empty(), "{log}");
        assert_eq!(found, command(samples.join("expected").join(format!("{log}.csv"))), "{log}");
    }
    let rows = format!("{HEADER}0,1,dontneed,a,0,4096\n0,1,read,a,0,4096\n");
    let output =
        output_with_input(bowwave().args(["explain", "-", "--scheduler", "noop", "--json"]), rows.as_bytes());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1 rows say that pages are not needed and were left out"), "{said}");
}

#[test]
fn bad_usage_and_bad_traces_are_one_line_with_the_choices() {
    let usage: [(&[&str], &str); 9] = [
        (&["--scheduler", "cfq"], "there are noop, deadline-rw, deadline, deadline-literal"),
        (&["--scheduler", "deadline:batch=0"], "batch = 0: must be a whole number from 1"),
        (&["--scheduler", "deadline:fifo=1"], "there is no knob `fifo`; there are sync_expire_ms"),
        (&["--scheduler", "deadline", "--device", "floppy"], "unknown device `floppy`"),
        (
            &["--scheduler", "deadline", "--device-depth", "2000"],
            "depth = 2000: must be a number from 1 to 1024",
        ),
        (&["--scheduler", "deadline", "--device-depth", "0"], "0 is not in 1..=65536"),
        (&["--scheduler", "deadline", "--priority", "7=urgent"], "there are real-time, best-effort, idle"),
        (&["--policy", "none", "--device-depth", "2"], "--scheduler"),
        (&["--policy", "none", "--priority", "1=idle"], "--scheduler"),
    ];
    for (arguments, part) in usage {
        let (code, line) = failure(bowwave().args(["explain", "t.csv"]).args(arguments));
        assert!(code == 2 && line.contains(part), "{arguments:?}: {code}: {line}");
    }
    for (rows, part) in [
        ("0,1,read,a,12x,1\n", "standard input:2: offset: '12x'"),
        ("0,1,write,a,0,18446744073709551615\n", "standard input: row 0: 4503599627370496 pages at once"),
        ("0,1,read,a,9223372036854775807,1\n0,1,read,b,1,1\n", "take more than 2^62 bytes"),
    ] {
        let mut command = bowwave();
        command.args(["explain", "-", "--scheduler", "deadline"]);
        let output = output_with_input(&mut command, format!("{HEADER}{rows}").as_bytes());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains(part) && said.lines().count() == 1,
            "{said}"
        );
    }
}
