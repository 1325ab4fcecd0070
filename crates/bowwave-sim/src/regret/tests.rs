//! Logs, bars and points.

use std::fs;

use super::*;

fn settings() -> Settings {
    Settings {
        devices: vec!["s3".to_owned(), "hdd".to_owned()],
        windows: vec![32, 256],
        ..Settings::default()
    }
}

fn outcome(seed: u64, stream: (f64, u64), other: (f64, u64), none: f64) -> Outcome {
    let cost =
        |policy: &str, (seconds, bytes)| Cost { policy: policy.to_owned(), ra_pages: 32, seconds, bytes };
    Outcome {
        point: Point { seed, device: "s3".to_owned(), memory: Memory::Quarter },
        pattern: format!("pattern <{seed}>"),
        bytes_wanted: 100,
        oracle_seconds: Some(0.5),
        stream: cost("stream", stream),
        others: vec![cost("linux", other), cost("none", (none, 100))],
    }
}

#[test]
fn an_outcome_has_every_other_policy_at_its_fastest_window() {
    let settings = settings();
    let point = &settings.points(&[3])[0];
    let outcome = measure(point, &settings, None).expect("a point");
    let names: Vec<&str> = outcome.others.iter().map(|cost| cost.policy.as_str()).collect();
    assert_eq!(names.len(), bowwave_baselines::ALL.len() - 1, "{names:?}");
    assert!(!names.contains(&"stream"));
    assert!(outcome.oracle_seconds.expect("s3 has limits") <= outcome.best_other().seconds);
    let subject = Subject::new(3).expect("a trace");
    for cost in &outcome.others {
        let policy = bowwave_baselines::policy(&cost.policy).expect("a policy");
        for &window in &settings.windows {
            let (other, _) = subject.cost(point, policy, window).expect("a run");
            assert!(cost.seconds <= other.seconds, "{} {window}", cost.policy);
        }
    }
    // Known runs of the others are taken as they are.
    let known = measure(point, &settings, Some(&outcome.others[..1])).expect("a point");
    assert_eq!((&known.others[..], &known.stream), (&outcome.others[..1], &outcome.stream));
}

#[test]
fn a_log_continues_after_a_torn_line_and_refuses_other_settings() {
    let path = std::env::temp_dir().join(format!("bowwave-regret-{}.jsonl", std::process::id()));
    let _absent = fs::remove_file(&path);
    let settings = settings();
    let mut log = Log::open(&path, "test 1", &settings).expect("a new log");
    let (first, second) = (outcome(1, (1.0, 1), (2.0, 2), 3.0), outcome(2, (1.0, 1), (0.5, 2), 3.0));
    log.append(first.clone()).expect("written");
    log.append(second.clone()).expect("written");
    drop(log);
    let text = fs::read_to_string(&path).expect("written");
    fs::write(&path, &text[..text.len() - 9]).expect("ours");
    let mut log = Log::open(&path, "test 1", &settings).expect("continued");
    assert_eq!((log.outcome(&first.point), log.outcome(&second.point)), (Some(&first), None));
    log.append(second.clone()).expect("written");
    assert_eq!(fs::read_to_string(&path).expect("written"), text);
    assert!(matches!(Log::open(&path, "test 2", &settings), Err(LogError::Other(..))));
    let others = Settings { windows: vec![64], ..settings.clone() };
    assert!(matches!(Log::open(&path, "test 1", &others), Err(LogError::Other(..))));
    assert!(matches!(Log::others(&path, &others), Err(LogError::Other(..))));
    assert_eq!(Log::others(&path, &settings).expect("a log")[&second.point], second.others);
    fs::write(&path, "not a log\n").expect("ours");
    assert!(matches!(Log::open(&path, "test 1", &settings), Err(LogError::Line(_, 1, _))));
    fs::remove_file(&path).expect("ours");
}

#[test]
fn points_run_in_order_and_stop() {
    let settings = settings();
    let points = settings.points(&[5, 6]);
    assert_eq!(points.len(), 2 * 2 * 2);
    let known: BTreeMap<_, _> =
        points.iter().map(|point| (point.clone(), outcome(0, (1.0, 1), (1.0, 1), 1.0).others)).collect();
    let two = NonZeroUsize::new(2).expect("two");
    let mut seen = Vec::new();
    let sink = |outcome: Outcome| {
        seen.push(outcome.point);
        Ok(())
    };
    measure_all(&points, &settings, &known, two, &|| false, sink).expect("all points");
    assert_eq!(seen, points);
    let stopped = measure_all(&points, &settings, &known, two, &|| true, |_| Ok(()));
    assert!(matches!(stopped, Err(RegretError::Stopped)));
}

#[test]
fn bars_count_ratios() {
    let outcomes = [
        outcome(1, (1.0, 100), (1.0, 100), 1.0),
        outcome(2, (1.2, 140), (1.0, 100), 1.19),
        outcome(3, (2.0, 160), (1.0, 150), 1.9),
        outcome(4, (0.5, 400), (1.0, 400), 2.0),
    ];
    let summaries = Summary::of(&outcomes);
    assert_eq!(summaries.len(), 1, "one device needs no row of its own");
    let Summary { to_best, to_oracle, shares, points, .. } = &summaries[0];
    assert_eq!((*points, to_best.p50, to_best.max, to_oracle.max), (4, 1.0, 2.0, 4.0));
    let found = [shares.within_5_percent, shares.within_25_percent, shares.no_worse_than_none, shares.bytes];
    assert_eq!(found.map(|share| share.share), [0.5, 0.75, 0.75, 0.75]);
    assert!(found.iter().all(|share| share.share < share.bar));
    let worst: Vec<u64> = Summary::worst(&outcomes, 2).iter().map(|outcome| outcome.point.seed).collect();
    assert_eq!(worst, [3, 2]);
    assert_eq!(
        Spread::of((1..=100).map(f64::from).collect()),
        Spread { p50: 50.0, p90: 90.0, p99: 99.0, max: 100.0 }
    );
    let html = page("a <title>", "command", &outcomes, &[(&outcomes[2], "random 3".to_owned())]);
    assert!(
        html.contains("pattern &lt;3&gt;") && html.contains("a &lt;title&gt;") && html.contains("polyline")
    );
}

#[test]
fn reasons_are_counted_most_frequent_first() {
    let settings = settings();
    let counts = reasons(&settings.points(&[3])[0], &settings).expect("a run");
    assert!(!counts.is_empty() && counts.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{counts:?}");
}
