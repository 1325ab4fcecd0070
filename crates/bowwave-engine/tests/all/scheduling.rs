//! Order of requests: a store that holds requests until they are released shows each decision.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use bowwave_engine::backend::{Device, MemoryBackend, Profile, emulate};
use bowwave_engine::{Advice, Algorithm, Engine, File, Options, Policy, Priority, Store, Work};

use crate::common::gate::{Bench, Gate, KIB, MIB};
use crate::common::scripted::Scripted;

/// A store with `slots` slots, with or without a head.
fn profile(slots: u32, seeks: bool) -> Profile {
    Profile { slots, seeks, ..Profile::read_only("gate") }
}

#[test]
fn demand_overtakes_queued_readahead_except_with_noop() {
    for scheduler in [Algorithm::Deadline, Algorithm::Noop] {
        let mut bench = Bench::new(scheduler, profile(1, false));
        let file = bench.open("a");
        file.advise(0, 8 * MIB, Advice::WillNeed);
        bench.read("b", 20_000);
        let order = bench.end(1);
        let place = order.iter().position(|request| request.0 == 'b').expect("it was asked for");
        match scheduler {
            Algorithm::Noop => assert_eq!(place, order.len() - 1, "{order:?}"),
            _ => assert_eq!(place, 0, "{order:?}"),
        }
    }
}

#[test]
fn promoted_readahead_is_sent_first_and_alone() {
    let mut bench = Bench::new(Algorithm::Deadline, profile(1, false));
    let file = bench.open("a");
    file.advise(0, 8 * MIB, Advice::WillNeed);
    let before = bench.added();
    let store = bench.store.clone();
    bench.workers.push(thread::spawn(move || {
        let mut bytes = [0; 4096];
        store.open(Path::new("a")).expect("opens").read_at(5000 * KIB, &mut bytes).expect("it reads");
    }));
    bench.until(|bench| bench.store.stats().scheduler.promoted == 1);
    assert_eq!(bench.added(), before, "nothing is asked for twice");
    bench.gate.release();
    bench.gate.came(2);
    assert_eq!(bench.gate.held().log[1], ('a', 5000 / 256 * 256), "the fill with its page");
    let engine = bench.engine.clone();
    let order = bench.end(0);
    assert!(order[2].1 < 5000, "then the others go on: {order:?}");
    let latencies = engine.latencies();
    assert_eq!(latencies.device(Work::DemandRead).count, 1);
    assert_eq!(latencies.device(Work::Readahead).count, 31);
}

#[test]
fn readahead_gets_every_third_turn_under_any_demand() {
    let mut bench = Bench::new(Algorithm::Deadline, profile(1, false));
    bench.read("c", 0);
    // Gaps, so that nothing merges.
    let file = bench.open("a");
    for at in 0..3 {
        file.advise(at * 2 * MIB, 4 * KIB, Advice::WillNeed);
    }
    for at in 0..9 {
        bench.read("b", at * 1000);
    }
    let order: String = bench.end(1).into_iter().map(|request| request.0).collect();
    assert_eq!(order, "bbabbabbabbb");
}

#[test]
fn a_device_with_a_head_gets_requests_in_device_order_across_files() {
    let mut bench = Bench::new(Algorithm::Deadline, profile(1, true));
    bench.read("a", 0);
    for (name, kib) in [("b", 300), ("c", 100), ("a", 9000), ("b", 100), ("a", 400)] {
        bench.read(name, kib);
    }
    let order = bench.end(1);
    assert_eq!(
        order,
        [('b', 300), ('c', 100), ('a', 9000), ('b', 100), ('a', 400)],
        "from the oldest upwards"
    );
    let mut bench = Bench::new(Algorithm::Deadline, profile(1, false));
    bench.read("a", 0);
    for (name, kib) in [("c", 100), ("a", 9000), ("b", 300)] {
        bench.read(name, kib);
    }
    assert_eq!(
        bench.end(1),
        [('c', 100), ('a', 9000), ('b', 300)],
        "where places mean nothing, as they came"
    );
}

#[test]
fn the_last_slots_are_left_for_demand_and_long_runs_are_split_over_the_others() {
    let mut bench = Bench::new(Algorithm::Deadline, profile(64, false));
    let file = bench.open("a");
    file.advise(0, 32 * MIB, Advice::WillNeed);
    assert_eq!(bench.gate.held().log.len(), 62, "two of 64 are kept");
    bench.read("b", 0);
    bench.gate.came(63);
    assert_eq!(bench.gate.held().log[62], ('b', 0), "a slot is free for it");
    let merged = bench.store.stats().scheduler.merged;
    assert!(merged > 60, "{merged} of 128 fills were merged");
    bench.end(0);
}

#[test]
fn queued_requests_of_a_closed_file_are_not_sent() {
    let bench = Bench::new(Algorithm::Deadline, profile(1, false));
    let file = bench.open("a");
    file.advise(0, 8 * MIB, Advice::WillNeed);
    drop(file);
    assert_eq!(bench.store.stats().scheduler.cancelled, 28, "four were in flight as one request");
    assert_eq!(bench.end(0).len(), 1);
}

#[test]
fn the_requested_depth_is_kept() {
    for (depth, expected) in [(None, 4), (Some(1), 1), (Some(16), 16)] {
        let gated = Gate::store(profile(4, false));
        let gate = Arc::clone(&gated.layer);
        let options = Options { cache_bytes: Some(64 << 20), device_depth: depth, ..Options::default() };
        let store = Engine::new(options).expect("valid options").store_of(Arc::new(gated));
        let file = store.open(Path::new("a")).expect("opens");
        for at in 0..20 {
            file.advise(at * MIB, 4 * KIB, Advice::WillNeed);
        }
        assert_eq!(gate.held().log.len(), expected, "{depth:?}");
        gate.drain(0);
    }
}

#[test]
fn an_idle_handle_waits_for_others_and_a_waiter_of_higher_priority_raises_its_request() {
    let mut bench = Bench::new(Algorithm::Deadline, profile(1, false));
    bench.read("a", 0);
    let read = |bench: &mut Bench, name: &str, kib: u64, priority: Priority| {
        let file = bench.open(name);
        file.set_priority(priority);
        assert_eq!(file.priority(), priority);
        bench.start(move || {
            assert_eq!(file.read_at(kib * KIB, &mut [0; 4096]).expect("it reads"), 4096);
        });
    };
    for (name, priority) in [("a", Priority::Idle), ("b", Priority::BestEffort), ("c", Priority::RealTime)] {
        read(&mut bench, name, 1000, priority);
        read(&mut bench, name, 2000, priority);
    }
    // It waits for the idle handle's second request, which is raised for it.
    let file = bench.open("a");
    let waiter = thread::spawn(move || {
        file.read_at(2000 * KIB, &mut [0; 4096]).expect("it reads");
    });
    bench.workers.push(waiter);
    bench.until(|bench| bench.engine.stats().cache.late > 0);
    // `late` is counted just before the request is raised.
    thread::sleep(std::time::Duration::from_millis(500));
    let order = bench.end(1);
    // It is as old as it was.
    let expected = ['c', 'c', 'a', 'b', 'b', 'a'].into_iter().zip([1000, 2000, 2000, 1000, 2000, 1000]);
    assert_eq!(order, expected.collect::<Vec<_>>());
}

#[test]
fn a_full_queue_drops_readahead_and_its_reader_requests_the_page_again() {
    // 128 requests are 32 MiB.
    let disk = Profile { request_bytes_best: 256 * KIB, ..profile(1, true) };
    for fills in [1, 2] {
        let options = Options { policy: Policy::OnDemand, ra_pages: 256, ..Bench::options() };
        let bench = Bench::with(options, disk.clone());
        let announced: Vec<File> = ["a", "b"].map(|name| bench.open(name)).into_iter().take(fills).collect();
        for file in &announced {
            file.advise(0, 31 * MIB, Advice::WillNeed);
        }
        let queued = bench.added();
        assert_eq!(queued, fills as u64 * 31 * 4, "what a reader announces is not dropped");
        let (gate, file) = (bench.gate.clone(), bench.open("c"));
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 2 << 20];
            // The window has twice the pages of the first read.
            for (place, part) in bytes.chunks_mut(256 << 10).enumerate() {
                file.read_at(place as u64 * 256 * KIB, part).expect("it reads");
            }
            assert!(bytes.iter().all(|&byte| byte == 7));
        });
        bench.until(|bench| bench.added() > queued);
        let dropped = fills > 1;
        bench.until(|bench| bench.store.stats().readahead_dropped == u64::from(dropped));
        while !reader.is_finished() {
            gate.drain(0);
            thread::yield_now();
        }
        reader.join().expect("it goes right");
        assert_eq!(
            bench.engine.stats().cache.fills_failed,
            0,
            "neither a dropped fill is an error, nor one that the close cancelled"
        );
        bench.end(0);
    }
}

/// A disk in real time with one request at a time; counts requests, not seconds.
struct Disk {
    store: Store,
    /// The size of the file and the offset of each request, in order of arrival.
    log: Arc<Mutex<Vec<(u64, u64)>>>,
    bulk: File,
}

const BULK: u64 = 64 * MIB;
const WANTED: u64 = 32 * MIB;

impl Disk {
    fn new(scheduler: Algorithm) -> Self {
        let memory = MemoryBackend::new();
        memory.insert("bulk", vec![0; BULK as usize]);
        memory.insert("wanted", vec![0; WANTED as usize]);
        let log = Arc::<Mutex<Vec<_>>>::default();
        let arrivals = Arc::clone(&log);
        let logged = Scripted::new(memory, move |object, offset, buf, sink| {
            arrivals.lock().expect("no panic").push((object.size(), offset));
            object.read(offset, buf, sink);
        });
        let disk = emulate(Arc::new(logged), Device::named("hdd").expect("known")).expect("starts");
        let options = Options {
            cache_bytes: Some(160 << 20),
            policy: Policy::None,
            scheduler,
            device_depth: Some(1),
            ..Options::default()
        };
        let store = Engine::new(options).expect("valid options").store_of(disk);
        let bulk = store.open(Path::new("bulk")).expect("opens");
        bulk.advise(0, BULK, Advice::WillNeed);
        Self { store, log, bulk }
    }

    /// Reads 4 KiB at `offset` of the demand file; returns how many requests the disk got between
    /// its arrival and its dispatch.
    fn passed(&self, offset: u64) -> u64 {
        let file = self.store.open(Path::new("wanted")).expect("opens");
        let before = self.store.stats().requests;
        file.read_at(offset, &mut [0; 4096]).expect("it reads");
        let own = self.log.lock().expect("no panic").iter().position(|read| *read == (WANTED, offset));
        (own.expect("it was asked for") as u64).saturating_sub(before)
    }
}

#[test]
fn on_a_disk_demand_waits_for_one_batch_of_readahead() {
    let disk = Disk::new(Algorithm::Deadline);
    let mut passed: Vec<u64> = (0..5).map(|number| disk.passed(number * 5 * MIB)).collect();
    passed.sort_unstable();
    // The median: if this thread is descheduled between the count and the request, one or two
    // samples may be off.
    assert!(passed[2] <= 4, "{passed:?} requests went before");
    assert!(disk.store.stats().scheduler.dispatches() < 32, "readahead continues meanwhile");

    let disk = Disk::new(Algorithm::Noop);
    let passed = disk.passed(0);
    assert!(passed >= 16, "{passed} of about 32 went before it in order of arrival");
    drop(disk.bulk);
}
