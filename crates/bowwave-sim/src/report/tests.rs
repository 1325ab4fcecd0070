//! Content and errors of a page, without a browser; the command's tests have the pictures.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Instant, Policy};

use super::*;
use crate::device::DeviceSpec;
use crate::faults::Faults;
use crate::machine::{Access, AccessOp, Host, Machine, Pace, Process, RecordOptions, Setup, Walk};
use crate::queue::Queue;
use crate::record::{ClassRow, Latency, Row};

/// A run of `reads` reads of a page each: one in ten misses, one in five is late.
fn run(policy: &str, seconds: f64, amplification: f64, reads: usize) -> Run {
    let row = Row {
        policy: policy.into(),
        device: "hdd".into(),
        cache_bytes: Some(1 << 20),
        ra_pages: 32,
        seconds,
        amplification,
        accesses: reads as u64,
        bytes_wanted: reads as u64 * 4096,
        bytes_fetched: (reads as f64 * 4096.0 * amplification) as u64,
        pages_used: if policy == "none" { 0 } else { 90 },
        late: 30,
        pages_wasted: if policy == "none" { 0 } else { 10 },
        utilisation: 0.93,
        avg_io_bytes: 65_536.0,
        latency_ns: Latency { p50: 1000, p90: 2_000_000, p99: 3_000_000, max: 9_000_000 },
        ..Row::default()
    };
    let mut run = Run { row, page_bytes: 4096, files: vec!["a".into(), "b".into()], ..Run::default() };
    for index in 0..reads {
        let outcome = if index % 10 == 0 { 2 } else { u8::from(index % 5 == 1) };
        run.reads.time_ns.push(index as u64 * 1_000_000);
        run.reads.latency_ns.push([500, 1_000_000, 20_000_000][usize::from(outcome)]);
        run.reads.file.push((index % 2) as u32);
        run.reads.start.push(index as u64);
        run.reads.pages.push(1);
        run.reads.outcome.push(outcome);
    }
    let decisions = &mut run.decisions;
    for index in 0..reads as u64 / 10 {
        decisions.time_ns.push(index * 10_000_000);
        decisions.file.push(0);
        decisions.page.push(index * 10);
        decisions.reason.push("lookahead".into());
        decisions.start.push(index * 10);
        decisions.size.push(if index < 5 { 8 } else { 32 });
        decisions.async_size.push(8);
        decisions.mark.push((index % 2 == 0).then_some(index * 10 + 4));
    }
    let (requests, samples) = (&mut run.requests, &mut run.samples);
    for index in 0..reads as u64 / 10 {
        requests.queued_ns.push(index * 10);
        requests.started_ns.push(index * 10 + 1);
        requests.ended_ns.push(index * 10 + 2);
        requests.file.push(0);
        requests.start.push(index);
        requests.pages.push(if index % 2 == 0 { 1 } else { 32 });
        requests.readahead.push(index % 2 == 1);
        samples.time_ns.push((index + 1) * 10_000_000);
        samples.busy.push(0.5);
        samples.queued.push(2);
        samples.bytes_fetched.push(40_960);
        samples.bytes_delivered.push(if policy == "none" { 10_000 } else { 30_000 });
        samples.requests.push(1);
        samples.thrashed.push(if policy == "none" { 0 } else { u64::from(index > 5) });
    }
    run
}

fn recording() -> Recording {
    let runs = vec![run("none", 4.0, 1.0, 100), run("ondemand", 1.25, 1.8, 100)];
    Recording { title: "t".into(), command: "c".into(), runs, ..Recording::new() }
}

fn page(recording: &Recording) -> String {
    let mut html = Vec::new();
    Report::of(recording).unwrap().write(&mut html).unwrap();
    String::from_utf8(html).unwrap().replace('\u{a0}', " ")
}

fn refusal(recording: &Recording) -> String {
    Report::of(recording).unwrap_err().to_string()
}

fn read(json: &str) -> String {
    Report::read(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn requests_are_told_apart_by_class_and_those_past_their_deadlines_are_marked() {
    let mut recording = recording();
    let latency = |ms: u64| Latency { p50: ms, p90: 2 * ms, p99: 3 * ms, max: 4 * ms };
    let class = |class: &str, op: &str, expired| ClassRow {
        class: class.into(),
        op: op.into(),
        requests: 1234,
        expired,
        latency_ns: latency(5_000_000),
        waited_ns: latency(1_000_000),
        depth: 2.5,
        depth_max: 17,
    };
    let run = &mut recording.runs[1];
    run.row.classes = vec![class("sync", "read", 3), class("async", "read", 0), class("<b>", "write", 0)];
    run.samples.expired = vec![0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    run.samples.queued_async = vec![1; 10];
    let html = page(&recording);
    for part in [
        "<th scope=\"row\">reads waited for</th><td data-label=\"requests\">1,234</td><td data-label=\"past deadline\">3</td>",
        "<td data-label=\"queued\">2.5</td><td data-label=\"at most\">17</td><td data-label=\"p50\">5 ms</td>",
        "<td data-label=\"max\">20 ms</td><td data-label=\"waited p99\">3 ms</td></tr><tr><th scope=\"row\">readahead</th>",
        "<th scope=\"row\">&lt;b&gt; write</th>",
        "3 requests went there past their deadlines.",
        "\"expired\":[0,0,3,0,0,0,0,0,0,0]",
    ] {
        assert!(html.contains(part), "{part}");
    }
    recording.runs[1].samples.expired.pop();
    assert!(refusal(&recording).contains("samples.expired has 9 values"), "{}", refusal(&recording));
    recording.runs[1].samples.expired.push(0);
    recording.runs[1].row.classes[0].depth = f64::NAN;
    assert!(refusal(&recording).contains("row.classes[0].depth is NaN"), "{}", refusal(&recording));
}

#[test]
fn sentences_follow_from_the_figures() {
    let html = page(&recording());
    for sentence in [
        "On hdd with 1 MiB of cache, ondemand is the best of 2 runs: 1.25 s at 328 kB/s, 3.2 times as fast as none; it \
         reads 1.8 bytes for each byte wanted, in requests of 64 KiB on average (none: 1 byte, 64 KiB).",
        "the choice is between ondemand (1.25 s at 328 kB/s, 1.8 bytes a byte), none (4 s at 102 kB/s, 1 byte a byte).",
        "of 100 pages that ondemand read ahead, 60 % were there in time, 30 % late, 10 % wasted, 0 % thrashed; no run wastes more.",
        "Of 100 reads, 70 % found every page at hand, 20 % waited for readahead in flight, 10 % missed. 91 % of the \
         time that readers waited went into misses: the policy does not predict these reads.",
        "10 windows of 20 pages on average, the largest of 32 with ra_pages 32. 50 % of them are as large as allowed: \
         ra_pages is the limit, so try a larger one. The most frequent reason is &#39;lookahead&#39; (100 %).",
        "50 % fetch a single page: each pays the device&#39;s whole latency for 4 KiB.",
        "The device is busy for 93 % of the time, has 2 requests there on average and gives 590 kB/s: the device is the \
         limit, and a good part of what it reads is not wanted.",
        "readers get at most 3 MB/s with ondemand and 1 MB/s with none: 3 times as much.",
        "thrashed are 4 pages from 70 ms on with ondemand and none with none.",
        "Shows every recorded read (100) and decision (10).",
    ] {
        assert!(
            html.contains(sentence),
            "{sentence}\nin\n{}",
            html.split("<script").next().unwrap_or_default()
        );
    }
}

#[test]
fn the_oracle_stands_beside_the_runs_of_its_device_and_cache() {
    let mut recording = recording();
    let bound = Row {
        policy: "oracle".into(),
        device: "hdd".into(),
        cache_bytes: Some(1 << 20),
        seconds: 0.5,
        regret: Some(1.0),
        ..Row::default()
    };
    recording.bounds = vec![Row { cache_bytes: None, ..bound.clone() }];
    assert!(!page(&recording).contains("<bdi>oracle</bdi>"), "of another cache");
    recording.bounds.push(bound.clone());
    let html = page(&recording);
    assert!(html.contains("3.2 times as fast as none and 2.5 times the oracle&#39;s 500 ms;"));
    let bars: Vec<&str> = html
        .split("<section class=\"block\"")
        .nth(1)
        .expect("a block")
        .split("<li ")
        .skip(1)
        .take(3)
        .collect();
    let of = |bar: &str, class: &str, width: &str| {
        bar.starts_with(&format!("class=\"{class}\"")) && bar.contains(&format!("width:{width}%"))
    };
    assert!(
        of(bars[0], "bound", "12.50") && of(bars[1], "best", "31.25") && of(bars[2], "", "100.00"),
        "{bars:?}"
    );
    assert!(
        html.contains("<tr class=\"bound\"><td></td><th scope=\"row\" class=\"word\"><bdi>oracle</bdi></th>")
    );
    // A bound without a time, as of the device `instant`, has no bar.
    recording.bounds = vec![Row { regret: None, ..bound.clone() }];
    assert!(!page(&recording).contains("<li class=\"bound\">"));
    recording.bounds = vec![Row { seconds: f64::NAN, ..bound }];
    assert!(
        refusal(&recording).starts_with("bounds[0] (oracle on hdd): row.seconds is NaN"),
        "{}",
        refusal(&recording)
    );
}

#[test]
fn the_headline_is_of_all_runs() {
    let headline = |recording: &Recording| -> String {
        let html = page(recording);
        html.split("id=\"verdict\">")
            .nth(1)
            .and_then(|rest| rest.split('<').next())
            .expect("a headline")
            .to_owned()
    };
    let mut recording = recording();
    assert_eq!(headline(&recording), "ondemand is the fastest of 2 runs: 1.25 s, 3.2 times as fast as none.");
    // Runs that were stopped at one time.
    recording.runs[0].row.seconds = 1.25;
    recording.runs[1].row.bytes_wanted *= 2;
    assert_eq!(
        headline(&recording),
        "ondemand is the fastest of 2 runs: 1638 s for a GiB, 2 times as fast as none."
    );
    recording.runs[0].row.seconds = 4.0;
    recording.runs[1].row.bytes_wanted /= 2;
    recording.runs.push(run("linux", 1.255, 1.9, 100));
    assert_eq!(headline(&recording), "ondemand is as fast as linux: 1.25 s, 3.2 times as fast as none.");
    recording.runs[0].row.seconds = 1.25;
    assert_eq!(headline(&recording), "All 3 runs take the same time: 1.25 s.");
    recording.runs[0].row.seconds = 4.0;
    recording.runs.pop();
    let mut other: Vec<Run> = recording.runs.clone();
    other.iter_mut().for_each(|run| run.row.device = "s3".into());
    other[1].row.seconds = 0.5;
    recording.runs.extend(other);
    assert_eq!(
        headline(&recording),
        "ondemand is the best policy on both devices, 3.2 to 8 times as fast as none."
    );
    recording.runs[3].row.seconds = 9.0;
    assert_eq!(
        headline(&recording),
        "The best policy depends on device and cache: ondemand on hdd with 1 MiB of cache, none on s3 with 1 MiB of cache."
    );
    recording.runs.truncate(1);
    assert_eq!(headline(&recording), "none on hdd takes 4 s.");
}

#[test]
fn a_policy_that_passes_ra_pages_is_not_told_to_raise_it() {
    let mut recording = recording();
    recording.runs.iter_mut().for_each(|run| run.decisions.size.fill(50));
    let html = page(&recording);
    assert!(html.contains("100 % of them are larger than ra_pages, which does not limit this policy."));
    assert!(!html.contains("try a larger one"));
}

#[test]
fn other_figures_make_other_sentences() {
    let mut recording = recording();
    recording.runs[1].row.seconds = 8.0;
    recording.runs[1].reads.latency_ns.fill(50_000_000);
    recording.runs[1].row.utilisation = 0.2;
    recording.runs[1].decisions.size.fill(4);
    recording.runs[0].reads.latency_ns.fill(500);
    recording.runs[0].row.utilisation = 0.2;
    let html = page(&recording);
    for sentence in [
        "readers hardly wait, so storage does not hold them up.",
        "and readers hardly wait: ra_pages is large enough.",
        "none is the best of 2 runs: 4 s at 102 kB/s; it reads 1 byte",
        "none (4 s at 102 kB/s, 1 byte a byte) is both fastest and leanest: there is nothing to weigh.",
        "<p class=\"verdict\" id=\"verdict\">none is the fastest of 2 runs: 4 s.</p>",
        "the device mostly waits for requests, so more readahead could gain.",
        "None reaches ra_pages: a larger one would change nothing.",
    ] {
        assert!(html.contains(sentence), "{sentence}");
    }
}

#[test]
fn names_stay_in_their_places() {
    let mut recording = recording();
    let hostile = "</script><img src=x onerror=alert(1)>\"'&\u{202e}{{script}}<!--";
    recording.title = hostile.into();
    recording.command = hostile.into();
    for run in &mut recording.runs {
        run.files = vec![hostile.into(), "שלום".into()];
        run.row.policy = hostile.into();
        run.row.device = hostile.into();
        run.decisions.reason.fill(hostile.into());
    }
    let html = page(&recording);
    assert!(!html.contains("<img") && !html.contains('\u{202e}'));
    assert_eq!(html.matches("</script>").count(), page(&self::recording()).matches("</script>").count());
    assert!(html.contains("\"שלום\""), "a name lost its letters");
}

#[test]
fn reads_that_overlap_may_stand_in_the_order_in_which_they_ended() {
    let mut swapped = recording();
    let reads = &mut swapped.runs[0].reads;
    reads.time_ns.swap(3, 7);
    reads.latency_ns.swap(3, 7);
    reads.file.swap(3, 7);
    reads.start.swap(3, 7);
    reads.pages.swap(3, 7);
    reads.outcome.swap(3, 7);
    assert_eq!(page(&swapped), page(&recording()));
}

#[test]
fn runs_of_one_policy_are_told_apart_by_what_they_differ_in() {
    let mut recording = recording();
    recording.runs.push(run("ondemand", 2.0, 1.1, 100));
    recording.runs[2].row.ra_pages = 64;
    assert!(page(&recording).contains("ondemand (32 pages) is the best of 3 runs"));
    recording.runs[2].row.ra_pages = 32;
    recording.runs[2].row.seed = 7;
    assert!(page(&recording).contains("ondemand (seed 0) is the best"));
    recording.runs[2].row.seed = 0;
    recording.runs[1].row.eviction = "arc".into();
    let html = page(&recording);
    assert!(html.contains("ondemand (arc) is the best") && html.contains("ondemand (default eviction) (2 s"));
    assert!(html.contains("<td class=\"word\" data-label=\"eviction\"><bdi>arc</bdi></td>"));
}

#[test]
fn a_machine_s_own_recording_makes_a_page() {
    let runs = [Policy::None, Policy::OnDemand].map(machine_run).to_vec();
    let html = page(&Recording { runs, ..Recording::new() });
    assert!(
        html.contains("ondemand is the best of 2 runs"),
        "{}",
        html.split("<script").next().unwrap_or_default()
    );
    // Four readers of 64 reads each in either run.
    assert!(html.contains("Shows every recorded read (256)"));
}

/// Four readers in a row through the real cache and disk.
fn machine_run(policy: Policy) -> Run {
    let device = DeviceSpec::open("hdd", &ALGORITHMS).expect("a preset");
    let queue = Queue::new(device.build(7), device.queue().clone()).expect("valid");
    let record = Some(RecordOptions::default());
    let host = Host { call_ns: 1000, wait_ns: 5000, copy_ns_a_kib: 100.0 };
    let config = Config { policy, ..Config::default() };
    let setup = Setup { config, host, queue, walk: Walk::AtOnce, faults: Faults::NONE, check: true, record };
    let mut machine = Machine::new(setup).expect("valid");
    for reader in 0..4_u64 {
        let file = machine.add_file("a", 1 << 20, reader << 30);
        let source = Box::new((0..64_u64).map(move |index| Access {
            at: Instant(0),
            op: AccessOp::Read,
            file,
            offset: index * 16_384,
            bytes: 16_384,
        }));
        machine.add_process(Process {
            start: Instant(0),
            source,
            pace: Pace::Closed { think_ns: 0 },
            depth: 1,
        });
    }
    machine.run(None).expect("no invariant is broken");
    let mut run = machine.summary();
    (run.row.policy, run.row.device) = (policy.name().to_owned(), "hdd".to_owned());
    run
}

#[test]
fn a_page_is_the_same_from_memory_and_from_json_and_every_time() {
    let recording = recording();
    let json = serde_json::to_vec(&recording).unwrap();
    let mut html = Vec::new();
    Report::read(&json[..]).unwrap().write(&mut html).unwrap();
    assert_eq!(String::from_utf8(html).unwrap().replace('\u{a0}', " "), page(&recording));
    assert_eq!(page(&recording), page(&recording));
}

#[test]
fn what_contradicts_itself_is_named_by_run_and_place() {
    type Spoil = fn(&mut Run);
    let cases: [(Spoil, &str); 20] = [
        (|run| run.row.accesses = 0, "row.accesses is 0"),
        (|run| run.row.seconds = f64::NAN, "row.seconds is NaN"),
        (|run| run.row.amplification = f64::INFINITY, "row.amplification is inf"),
        (|run| run.row.avg_io_bytes = -1.0, "row.avg_io_bytes is -1"),
        (|run| run.row.utilisation = 1.5, "row.utilisation is 1.5"),
        (|run| run.page_bytes = 0, "page_bytes is 0"),
        (|run| run.row.bytes_fetched = u64::MAX, "row holds 18446744073709551615"),
        (|run| run.reads.pages.truncate(99), "reads.pages has 99 values and reads.time_ns has 100"),
        (|run| run.decisions.mark.clear(), "decisions.mark has 0 values and decisions.time_ns has 10"),
        (|run| run.requests.readahead.push(true), "requests.readahead has 11 values"),
        (|run| run.samples.busy.clear(), "samples.busy has 0 values"),
        (|run| run.reads.outcome[3] = 3, "reads.outcome[3] is 3"),
        (|run| run.reads.file[7] = 2, "reads.file[7] is 2, and there are 2 files"),
        (|run| run.decisions.time_ns[5] = 0, "decisions.time_ns[5] is before the one it follows"),
        (|run| run.reads.start[1] = u64::MAX, "reads.start[1] is 18446744073709551615"),
        (|run| run.decisions.mark[2] = Some(u64::MAX), "decisions.mark[2] is too large"),
        (|run| run.decisions.file[1] = 9, "decisions.file[1] is 9"),
        (|run| run.requests.started_ns[4] = 0, "requests[4] was asked for at 40, begun at 0, done at 42 ns"),
        (|run| run.samples.busy[6] = f64::NAN, "samples.busy[6] is NaN"),
        (|run| run.reads_every = u64::MAX, "reads_every is 18446744073709551615"),
    ];
    for (spoil, message) in cases {
        let mut recording = recording();
        spoil(&mut recording.runs[1]);
        let refused = refusal(&recording);
        assert!(refused.starts_with("runs[1] (ondemand on hdd): ") && refused.contains(message), "{refused}");
    }
    assert_eq!(refusal(&Recording::new()), "the recording holds no runs");
    assert!(refusal(&Recording { version: 2, ..Recording::new() }).contains("version 2"));
}

#[test]
fn a_recording_cut_off_anywhere_is_refused() {
    let json = serde_json::to_string(&recording()).unwrap();
    for end in (0..json.len()).step_by(37) {
        let refused = read(&json[..end]);
        assert!(refused.contains("cut off") && refused.contains("line 1 column"), "{end}: {refused}");
    }
    assert!(read(&(json + " 1")).contains("trailing characters"));
}

#[test]
fn json_that_is_no_recording_is_refused_with_its_place() {
    for (json, message) in [
        ("{}", "missing field `version`"),
        (r#"{"version":1}"#, "missing field `runs`"),
        (r#"{"version":-1,"runs":[]}"#, "invalid value"),
        (r#"{"runs":[],"version":1}"#, "'version' must stand before 'runs'"),
        (r#"{"version":1,"runs":[],"runs":[]}"#, "duplicate field `runs`"),
        (r#"{"version":1,"runs":[{}]}"#, "missing field `row`"),
        (r#"{"version":1,"runs":7}"#, "expected a list of runs"),
        ("7", "a recording, as `bowwave replay --save` writes it"),
    ] {
        let refused = read(json);
        assert!(refused.contains(message) && refused.contains("line 1 column"), "{json}: {refused}");
    }
    let json = serde_json::to_string(&recording()).unwrap();
    assert!(read(&json.replace("\"seconds\":4.0", "\"seconds\":1e999")).contains("number out of range"));
    assert!(read(&json.replace("\"seconds\":4.0", "\"seconds\":null")).contains("expected f64"));
}

#[test]
fn extreme_but_sound_figures_make_a_page() {
    let mut recording = recording();
    let run = &mut recording.runs[0];
    run.row.seconds = 0.0;
    run.row.ra_pages = u32::MAX;
    run.page_bytes = 1 << 40;
    run.requests.pages.fill(u32::MAX);
    run.reads.pages.fill(u32::MAX);
    run.reads.latency_ns.fill(0);
    run.decisions.size.fill(1 << 52);
    run.decisions.start.fill(1 << 52);
    run.samples.bytes_fetched.fill(1 << 52);
    run.samples.time_ns.fill(0);
    run.reads.time_ns.fill(1 << 52);
    assert!(page(&recording).ends_with("</html>\n"));
}

#[test]
fn many_and_long_runs_share_a_bounded_page() {
    let runs = vec![run("none", 1.0, 1.0, 30_000); 24];
    let html = page(&Recording { runs, ..Recording::new() });
    assert!(html.len() < 6_000_000, "{}", html.len());
    assert!(html.contains("hits, ") && html.contains(" of 21,000 hits, "), "the sampling is stated");
}
