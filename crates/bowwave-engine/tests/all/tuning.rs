//! Settings that change at run time.

use std::path::Path;
use std::time::Duration;

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
fn values_out_of_bounds_change_nothing() {
    let engine = engine();
    let before = engine.tuning();
    assert_eq!((before.ra_pages, before.dirty_bytes), (32, (64 << 20) / 5));
    for (tuning, what) in [
        (Tuning { ra_pages: 0, ..before }, "ra_pages"),
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
    let directory = std::env::temp_dir().join(format!("bowwave-tuning-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("writable");
    let store = engine.store(directory.to_str().expect("UTF-8")).expect("it exists");
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
    let written = std::fs::read(directory.join("a")).expect("it is there");
    assert!(written.len() == 32 << 20 && written.iter().all(|&byte| byte == 7));
    std::fs::remove_dir_all(&directory).expect("ours");
}
