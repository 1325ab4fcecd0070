//! Settings that change at run time.

use std::path::Path;
use std::time::Duration;

use crate::common::Directory;
use bowwave_core::Policy;
use bowwave_engine::{Engine, File, Options, Tuning};

fn engine() -> Engine {
    // A policy whose windows do not depend on how long reads wait.
    let policy = Policy::OnDemand;
    let options = Options { cache_bytes: Some(64 << 20), ra_pages: 32, policy, ..Options::default() };
    Engine::new(options).expect("valid")
}

/// Reads 4 MiB sequentially from a store with unlimited request sizes; returns the requests sent.
fn requests_of_a_sequential_read(engine: &Engine) -> u64 {
    let before = engine.stats().store.requests;
    let store = engine.store("emulate:nvme:pattern:/").expect("it exists");
    let file = store.open(Path::new("4194304")).expect("it exists");
    let mut buffer = vec![0; 16 << 10];
    let mut offset = 0;
    while offset < 4 << 20 {
        offset += file.read_at(offset, &mut buffer).expect("it is readable") as u64;
    }
    engine.stats().store.requests - before
}

fn write(file: &File, mut offset: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = file.write_at(offset, bytes).expect("it waits for space");
        (offset, bytes) = (offset + count as u64, &bytes[count..]);
    }
}

#[test]
fn a_larger_window_applies_from_the_next_read() {
    let engine = engine();
    let small = requests_of_a_sequential_read(&engine);
    engine.tune(Tuning { ra_pages: 1024, ..engine.tuning() }).expect("within bounds");
    let large = requests_of_a_sequential_read(&engine);
    assert!(large * 2 <= small, "{small} requests with 32 pages, {large} with 1024");
    assert_eq!(engine.tuning().ra_pages, 1024);
}

#[test]
fn windows_of_0_read_nothing_ahead() {
    let engine = engine();
    let sequential = requests_of_a_sequential_read(&engine);
    engine.set("read_ahead_kb", "0").expect("within bounds");
    let single = requests_of_a_sequential_read(&engine);
    // Page by page, as Linux: the store merges what waits at once.
    assert!(single >= 4 * sequential, "{sequential} requests with 32 pages, {single} with 0");
    let ahead = engine.stats().cache.pages_readahead;
    for policy in ["stream", "range", "legacy", "linux", "ondemand-patch"] {
        engine.set("policy", policy).expect("a policy");
        requests_of_a_sequential_read(&engine);
        assert_eq!(engine.stats().cache.pages_readahead, ahead, "{policy}");
    }
}

#[test]
fn a_lookahead_size_of_0_requests_each_window_at_the_end_of_the_last() {
    let engine = engine();
    let read = |engine: &Engine| {
        let before = engine.stats().cache;
        requests_of_a_sequential_read(engine);
        let after = engine.stats().cache;
        (after.misses - before.misses, after.pages_readahead - before.pages_readahead)
    };
    assert_eq!(engine.setting("la_size").expect("a setting"), "auto");
    let (misses, _) = read(&engine);
    assert_eq!(misses, 4, "only the first read: marks request the others");
    engine.set("la_size", "0").expect("within bounds");
    let (misses, ahead) = read(&engine);
    // At least the first read of each window of 32 pages.
    assert!((4 * 32..200).contains(&misses), "{misses} misses");
    assert_eq!(misses + ahead, 1024, "every page is read once");
    engine.set("la_size", "auto").expect("within bounds");
    assert_eq!(read(&engine).0, 4);
    assert!(engine.set("la_size", "-1").is_err() && engine.set("persist", "maybe").is_err());
}

#[test]
fn values_out_of_bounds_change_nothing() {
    let engine = engine();
    let before = engine.tuning();
    assert_eq!((before.ra_pages, before.dirty_bytes), (32, (64 << 20) / 5));
    for (tuning, what) in [
        (Tuning { ra_pages: (1 << 20) + 1, ..before }, "ra_pages"),
        (Tuning { ra_pages: 1 << 20, ..before }, "smaller than one readahead window"),
        (Tuning { dirty_bytes: 0, ..before }, "dirty_bytes"),
        (Tuning { dirty_background_bytes: before.dirty_bytes, ..before }, "dirty_background_bytes"),
    ] {
        let refusal = engine.tune(tuning).expect_err("out of bounds").to_string();
        assert!(refusal.contains(what), "{refusal}");
        assert_eq!(engine.tuning(), before);
    }
}

#[test]
fn a_lower_limit_of_dirty_bytes_applies_to_the_next_writers_and_loses_nothing() {
    let engine = engine();
    let directory = Directory::new();
    let store = engine.store(&directory.url()).expect("it exists");
    let file = store.create(Path::new("a"), 0o600).expect("writable");
    let piece = vec![7; 1 << 20];
    for number in 0..8u64 {
        write(&file, number << 20, &piece);
    }
    let limit = 1 << 20;
    let tuning = Tuning { dirty_bytes: limit, dirty_background_bytes: 0, ..engine.tuning() };
    engine.tune(Tuning { dirty_expire: Duration::from_millis(20), ..tuning }).expect("within bounds");
    for number in 8..32u64 {
        write(&file, number << 20, &piece);
    }
    let dirty = engine.stats().pages_unwritten * 4096;
    assert!(dirty <= limit, "{dirty} bytes are dirty, the limit is {limit}");
    file.sync(false).expect("a disk takes it");
    let written = directory.bytes("a");
    assert!(written.len() == 32 << 20 && written.iter().all(|&byte| byte == 7));
}

#[test]
fn a_policy_switched_in_the_middle_of_a_copy_decides_from_then_on() {
    let options = Options {
        cache_bytes: Some(64 << 20),
        ra_pages: 32,
        policy: Policy::OnDemand,
        shards: Some(1),
        journal_events: 1 << 20,
        ..Options::default()
    };
    let engine = Engine::new(options).expect("valid");
    let store = engine.store("emulate:nvme:pattern:/").expect("it exists");
    let file = store.open(Path::new("8388608")).expect("it exists");
    let mut buffer = vec![0; 64 << 10];
    let mut read = |from: u64, to: u64| {
        let mut offset = from;
        while offset < to {
            offset += file.read_at(offset, &mut buffer).expect("it is readable") as u64;
        }
    };
    read(0, 4 << 20);
    engine.set("policy", "none").expect("a policy");
    assert_eq!(engine.setting("policy").expect("a key"), "none");
    read(4 << 20, 6 << 20);
    engine.set("policy", "stream").expect("a policy");
    read(6 << 20, 8 << 20);

    let journal = &engine.journals()[0];
    assert!(journal.replays());
    let switches: Vec<usize> = journal
        .events()
        .iter()
        .enumerate()
        .filter(|(_, (_, event))| matches!(event, bowwave_core::Event::PolicySet { .. }))
        .map(|(number, _)| number)
        .collect();
    let [to_none, to_stream] = switches[..] else { panic!("{switches:?}") };
    let decisions = journal.decisions();
    let largest = |from: usize, to: usize| {
        let within = decisions.iter().filter(|(number, _)| (from..to).contains(number));
        within.map(|(_, decision)| decision.plan.window.size.0).max().unwrap_or(0)
    };
    assert_eq!(largest(0, to_none), 32, "on-demand reads whole windows ahead");
    assert!(largest(to_none, to_stream) <= 16, "none reads requests alone: 64 KiB");
    assert!(largest(to_stream, usize::MAX) > 16, "stream reads ahead again");
}

#[test]
fn settings_have_the_names_of_linux_and_lustre_and_refuse_what_does_not_fit() {
    let engine = engine();
    for (key, value) in [
        ("read_ahead_kb", "512"),
        ("policy", "range"),
        ("read_ahead_range_kb", "2048"),
        ("max_read_ahead_whole_mb", "4"),
        ("max_read_ahead_per_file_mb", "32"),
        ("range_clusters", "learned"),
        ("dirty_background_bytes", "1048576"),
        ("dirty_bytes", "8388608"),
        ("dirty_expire_centisecs", "1500"),
        ("read_expire", "70"),
        ("write_expire", "3000"),
        ("writes_starved", "4"),
        ("fifo_batch", "8"),
        ("front_merges", "0"),
    ] {
        engine.set(key, value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
        assert_eq!(engine.setting(key).expect("a key"), value, "{key}");
    }
    assert_eq!(engine.setting("ra_pages").expect("a key"), "128");
    let published = ["sync_expire", "async_expire", "async_starved"];
    assert_eq!(published.map(|key| engine.setting(key).expect(key)), ["70", "3000", "4"]);
    engine.set("async_expire", "auto").expect("the scheduler's own");
    assert_eq!(engine.setting("write_expire").expect("a key"), "auto");
    let before = engine.tuning();
    assert_eq!(before.dirty_expire, Duration::from_secs(15));
    for (key, value, what) in [
        ("readahead_kb", "128", "read_ahead_kb"),
        ("read_ahead_kb", "130", "a multiple of a page"),
        ("read_ahead_kb", "lots", "not a whole number"),
        ("policy", "best", "ondemand"),
        ("range_clusters", "all", "learned"),
        ("read_ahead_range_kb", "16", "64"),
        ("dirty_bytes", "0", "dirty_bytes"),
        ("fifo_batch", "0", "from 1 to 65536; or auto"),
        ("read_expire", "half", "not milliseconds"),
        ("front_merges", "2", "0 or 1"),
    ] {
        let refusal = engine.set(key, value).expect_err(key).to_string();
        assert!(refusal.contains(what), "{key}={value}: {refusal}");
        assert_eq!(engine.tuning(), before);
    }
}

#[test]
fn a_deadline_set_at_run_time_holds_for_stores_of_before_and_after() {
    let engine = engine();
    let early = engine.store("emulate:nvme:pattern:/").expect("it exists");
    let read = |store: &bowwave_engine::Store, name: &str| {
        let file = store.open(Path::new(name)).expect("it exists");
        let late = engine.stats().store.scheduler.late;
        let mut buffer = vec![0; 64 << 10];
        for offset in 0..16 {
            file.read_at(offset << 16, &mut buffer).expect("readable");
        }
        engine.stats().store.scheduler.late - late
    };
    assert_eq!(read(&early, "1048576"), 0);
    engine.set("sync_expire", "0").expect("a number");
    assert!(read(&early, "1048577") > 0, "every demand read is past its deadline");
    let later = engine.store("emulate:nvme:pattern:/").expect("it exists");
    assert!(read(&later, "1048578") > 0);
    engine.set("sync_expire", "auto").expect("the scheduler's own");
    assert_eq!(read(&later, "1048579"), 0);
}
