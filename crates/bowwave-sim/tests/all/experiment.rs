//! Shipped experiments run, the same each time; errors name file, line and bound.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_sim::experiment::Experiment;
use bowwave_sim::machine::Machine;
use bowwave_sim::parallel;
use bowwave_sim::record::Row;
use bowwave_sim::sweep::Case;

fn rows(experiment: &Experiment) -> Vec<Row> {
    let progress = Arc::new(AtomicU64::new(0));
    let run = |case: &Case| {
        let load = |machine: &mut Machine, case: &Case| experiment.load(machine, case);
        case.run(&experiment.common, &load, &progress).map(|run| run.row)
    };
    parallel::try_map(&experiment.axes.cases(), parallel::workers(), run).expect("it runs")
}

fn shipped(name: &str) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans").join(name);
    Experiment::read(&path).expect("an experiment that comes with the program")
}

fn row<'a>(rows: &'a [Row], policy: &str, device: &str, ra_pages: u32) -> &'a Row {
    let is_it = |row: &&Row| row.policy == policy && row.device == device && row.ra_pages == ra_pages;
    rows.iter().find(is_it).expect("a run of the plan")
}

#[test]
fn eight_readers_of_one_disk_gain_by_readahead_and_by_larger_windows() {
    let experiment = shipped("eight-readers.toml");
    let rows = rows(&experiment);
    assert_eq!(rows.len(), 16);
    let seconds = |policy, ra_pages| row(&rows, policy, "hdd", ra_pages).seconds;
    assert!(seconds("ondemand", 256) < seconds("ondemand", 32), "{rows:?}");
    assert!(seconds("ondemand", 256) < seconds("none", 256), "{rows:?}");
    assert_eq!(rows, self::rows(&experiment), "an experiment gives the same digits each time");
}

/// Regression: 64 readers of 256 KiB at a time in 64 MiB. A quarter of the memory was requested
/// pages in flight, which readahead took for its own: each 15th page was evicted before its read.
#[test]
fn many_readers_of_long_requests_lose_little_readahead_in_little_memory() {
    let text = "[sweep]\npolicies = [\"stream\"]\ndevices = [\"s3\"]\nra_pages = [256]\n\
        cache_bytes = [67_108_864]\n[[readers]]\ncount = 64\npattern = \"sequential\"\n\
        file_bytes = 16_777_216\nread_bytes = 262_144\nreads = 64\n";
    let rows = rows(&Experiment::parse(text, "p.toml", Path::new("")).expect("valid"));
    let row = &rows[0];
    assert_eq!(row.bytes_wanted, 64 << 24);
    assert!(row.pages_thrashed < row.pages_used / 40, "{row:?}");
}

#[test]
fn until_ms_stops_an_experiment() {
    let rows = rows(&shipped("stream-and-database.toml"));
    assert_eq!(rows.len(), 16);
    assert!(rows.iter().all(|row| row.seconds <= 20.0 && row.accesses > 0), "{rows:?}");
}

#[test]
fn errors_are_one_line_with_file_line_and_bound() {
    let readers = "[[readers]]\nreads = 4\n";
    let cases: [(&str, &str); 30] = [
        ("", "p.toml:1: missing field `readers`"),
        ("readers = []", "p.toml:1: readers: there are none"),
        ("[sweep\n", "p.toml:1: "),
        ("[[readers]]\nreads = 4\nreads = 5\n", "p.toml:3: duplicate key"),
        ("[[readers]]\nraeds = 4\n", "p.toml:2: unknown field `raeds`"),
        ("\n[swep]\n", "p.toml:2: unknown field `swep`"),
        ("[[readers]]\nreads = \"4\"\n", "p.toml:2: invalid type: string"),
        ("[[readers]]\nreads = -4\n", "p.toml:2: invalid value: integer `-4`"),
        ("[[readers]]\nreads = 4\ncount = 0\n", "p.toml:3: count: 0 is not from 1 to 65536"),
        ("[[readers]]\ndepth = 5000\n", "p.toml:2: depth: 5000 is not from 1 to 4096"),
        (
            "[[readers]]\npattern = \"zigzag\"\n",
            "p.toml:2: pattern: there is no `zigzag`; there are sequential",
        ),
        ("[[readers]]\n\nread_bytes = 0\n", "p.toml:3: read_bytes is 0, but must be"),
        ("[[readers]]\nread_bytes = 8_589_934_592\n", "p.toml:2: read_bytes: 8589934592 is more than"),
        ("[[readers]]\nfile_bytes = 1\n", "p.toml:2: file_bytes is 1, but must be"),
        ("[[readers]]\nreads = 1\n[[readers]]\npace = \"slow\"\n", "p.toml:4: pace: there is no `slow` here"),
        ("[[readers]]\npace = \"every\"\n", "p.toml:1: period_ns: pace = \"every\" needs it"),
        ("[[readers]]\nperiod_ns = 5\n", "p.toml:2: period_ns: means nothing"),
        (
            "[[readers]]\nthink_ns = 9_000_000_000_000_000_000\n",
            "p.toml:2: think_ns: 9000000000000000000 ns in all",
        ),
        ("[[readers]]\ntrace = \"nowhere.bwt\"\n", "p.toml:2: trace: nowhere.bwt: No such file"),
        (
            "[[readers]]\nfile_bytes = 9_000_000_000_000_000_000\nread_bytes = 1_073_741_824\n",
            "p.toml:2: file_bytes: all files together",
        ),
        ("[sweep]\npolicies = []\n", "p.toml:2: policies: the list is empty"),
        ("[sweep]\npolicies = [\"lru\"]\n", "p.toml:2: policies: there is no `lru`; there are none"),
        ("[sweep]\nra_pages = [32, 1048577]\n", "p.toml:2: ra_pages: 1048577 is more than 1048576"),
        ("[sweep]\nseeds = []\n", "p.toml:2: seeds: the list is empty"),
        ("[sweep]\ncache_bytes = [100]\n", "p.toml:2: cache_bytes: 100 is less than a page"),
        ("[sweep]\ndevices = [\"hdd\", \"floppy\"]\n", "p.toml:2: devices: unknown device `floppy`"),
        (
            "[sweep]\ndevices = [\"hdd:rpm=0\"]\n",
            "p.toml:2: devices: device `hdd:rpm=0`: rpm = 0: must be a number from 60",
        ),
        ("[machine]\nfailing = 2.0\n", "p.toml:2: failing: 2 is not from 0 to 1"),
        ("[machine]\ncopy_ns_a_kib = nan\n", "p.toml:2: copy_ns_a_kib: NaN is not from 0"),
        (
            "[machine]\nuntil_ms = 9_000_000_000_000_000_000\n",
            "p.toml:2: until_ms: 9000000000000000000 is more than 31 years",
        ),
    ];
    for (text, start) in cases {
        let whole = if text.contains("reader") || text.is_empty() || text.contains("[swep") {
            text.to_owned()
        } else {
            format!("{text}{readers}")
        };
        let error = Experiment::parse(&whole, "p.toml", Path::new("")).expect_err(text).to_string();
        assert!(error.starts_with(start) && !error.contains('\n'), "{text:?}: {error}");
    }
}

#[test]
fn the_largest_valid_values_run() {
    // Whatever passes the checks runs: the largest of everything at once, for a read or two.
    let text = "[sweep]\ndevices = [\"instant\", \"hdd\"]\ncache_bytes = [4096]\nra_pages = [1048576]\n\
        [machine]\nuntil_ms = 1_000_000_000_000\ncopy_ns_a_kib = 1e9\ncall_ns = 1_000_000_000\n\
        [[readers]]\nreads = 2\nfile_bytes = 1_152_921_504_606_846_976\nread_bytes = 1_048_576\nthink_ns = 1_000_000_000_000_000_000\n\
        [[readers]]\nreads = 2\npace = \"every\"\nperiod_ns = 1_000_000_000_000_000_000\nmapped = true\nread_bytes = 65_536\n";
    let rows = rows(&Experiment::parse(text, "p.toml", Path::new("")).expect("within bounds"));
    assert!(rows.iter().all(|row| row.accesses > 0), "{rows:?}");
}

#[test]
fn each_workload_is_a_run_of_its_own_with_the_readers_of_all() {
    let text = r#"
[sweep]
policies = ["none", "ondemand"]
devices = ["nvme"]

[[readers]]
reads = 10

[[readers]]
workload = "scan"
reads = 20

[[readers]]
workload = "random, hot"
pattern = "random"
reads = 30
"#;
    let experiment = Experiment::parse(text, "plan.toml", Path::new("")).expect("valid");
    let reads: Vec<u64> = experiment.axes.cases().iter().map(|case| experiment.reads(case)).collect();
    assert_eq!(reads, [30, 30, 40, 40]);
    let rows = rows(&experiment);
    let seen: Vec<_> = rows.iter().map(|row| (row.workload.as_str(), row.accesses)).collect();
    let (scan, hot) = (("scan", 30 * 32), ("random, hot", 40 * 32));
    assert_eq!(seen, [scan, scan, hot, hot]);
    assert_eq!(rows[0].place(), "nvme, scan");
}

#[test]
fn file_bytes_sets_the_length_of_the_files_of_a_trace() {
    let directory = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let trace = "time_ns,pid,op,file,offset,length\n0,1,read,a,0,4096\n0,1,read,a,4096,4096\n";
    std::fs::write(directory.join("a.csv"), trace).expect("written");
    let fetched = |more: &str| {
        let text = format!("[sweep]\npolicies = [\"ondemand\"]\n[[readers]]\ntrace = \"a.csv\"\n{more}");
        rows(&Experiment::parse(&text, "p.toml", &directory).expect("valid"))[0].bytes_fetched
    };
    assert_eq!(fetched(""), 2 * 4096);
    assert!(fetched("file_bytes = 1_048_576") > 2 * 4096, "there is something to be read ahead");
}

#[test]
fn readers_of_a_trace_think_between_their_reads() {
    let directory = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let trace = "time_ns,pid,op,file,offset,length\n0,1,read,a,0,4096\n0,1,read,a,4096,4096\n";
    std::fs::write(directory.join("thinking.csv"), trace).expect("written");
    let run = |more: &str| {
        let text = format!("[sweep]\ndevices = [\"nvme\"]\n[[readers]]\ntrace = \"thinking.csv\"\n{more}");
        Experiment::parse(&text, "p.toml", &directory).map(|experiment| rows(&experiment)[0].seconds)
    };
    let (without, with) = (run("").expect("valid"), run("think_ns = 1_000_000_000").expect("valid"));
    assert!((1.0..2.1).contains(&(with - without)), "{without} s, then {with} s");
    let error = run("think_ns = 1\npace = \"open\"").expect_err("other paces").to_string();
    assert!(error.contains("think_ns: means nothing with pace = \"open\""), "{error}");
}
