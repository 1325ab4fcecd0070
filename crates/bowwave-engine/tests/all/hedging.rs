//! Hedged reads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::scripted::Scripted;
use bowwave_engine::backend::{
    Backend as _, Error, ErrorKind, MemoryBackend, Profile, ReadBuf, ReadSink, pattern,
};
use bowwave_engine::{Engine, File, OpenOptions, Options, Policy, Store};

const READ: usize = 4096;

fn engine(hedge_percent: u32) -> Engine {
    let options = Options {
        cache_bytes: Some(16 << 20),
        policy: Policy::None,
        hedge_percent,
        retries: 0,
        ..Options::default()
    };
    Engine::new(options).expect("valid options")
}

/// Sorted times of 600 reads by 12 threads, each of its own page; every byte is checked.
fn times(store: &Store) -> Vec<Duration> {
    let seed = pattern::seed("64MiB".as_ref());
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let readers: Vec<_> = (0..12u64)
            .map(|reader| {
                scope.spawn(move || {
                    let file = store.open(Path::new("64MiB")).expect("the pattern has every size");
                    let (mut bytes, mut wanted) = ([0; READ], [0; READ]);
                    let read = |n: u64| {
                        let offset = (reader * 50 + n) * 7 % 600 * 100_000 / 4096 * 4096;
                        let begun = Instant::now();
                        assert_eq!(file.read_at(offset, &mut bytes).expect("it reads"), READ);
                        let took = begun.elapsed();
                        pattern::fill(seed, offset, &mut wanted);
                        assert!(bytes == wanted, "at {offset}");
                        took
                    };
                    (0..50).map(read).collect::<Vec<_>>()
                })
            })
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("every byte is right")).collect()
    });
    times.sort_unstable();
    times
}

#[test]
fn hedging_hides_two_percent_of_slow_requests() {
    let url = "fault:stalled=0.02,stall=1s,seed=3:emulate:s3,latency=20ms,metadata=0:pattern:/";
    let late = Duration::from_secs(1);
    let plain = engine(0);
    let store = plain.store(url).expect("ours");
    let [alone, hedged] = [times(&store), {
        let hedging = engine(5);
        let store = hedging.store(url).expect("ours");
        let times = times(&store);
        let stats = store.stats();
        assert!(stats.hedges_won >= 5 && stats.hedges_won <= stats.hedges, "{stats:?}");
        assert!(stats.hedges * 100 <= 5 * 600, "{stats:?}");
        assert_eq!(stats.requests, 600 + stats.hedges);
        times
    }];
    assert_eq!(plain.stats().store.hedges, 0);
    // 600 reads: the sixth from the end is the 99th percentile.
    let p99 = |times: &[Duration]| times[times.len() - 1 - times.len() / 100];
    assert!(p99(&alone) >= late, "{:?}", p99(&alone));
    assert!(p99(&hedged) < late / 2, "{:?} where {:?} were waited for", p99(&hedged), p99(&alone));
}

/// A store that completes a read only on request.
#[derive(Clone, Debug)]
struct Slow {
    store: Scripted,
    held: Arc<(Mutex<Vec<Held>>, Condvar)>,
    reads: Arc<AtomicU64>,
}

struct Held {
    buf: ReadBuf,
    sink: Box<dyn ReadSink>,
    unwanted: Arc<AtomicBool>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Slow {
    fn new() -> Self {
        let memory = MemoryBackend::new();
        memory.insert("a", vec![7; 1 << 20]);
        let held: Arc<(Mutex<Vec<Held>>, Condvar)> = Arc::default();
        let reads = Arc::new(AtomicU64::new(0));
        let (holding, counted) = (Arc::clone(&held), Arc::clone(&reads));
        let profile = Profile { latency: Duration::from_millis(5), ..memory.profile() };
        let store = Scripted::new(memory, move |_, _, buf, sink| {
            counted.fetch_add(1, Ordering::Relaxed);
            let unwanted = sink.unwanted().unwrap_or_default();
            holding.0.lock().expect("no panic").push(Held { buf, sink, unwanted });
            holding.1.notify_all();
        });
        // Writes take much longer than the time at which a read is late.
        let store = Scripted { profile, write_delay: Duration::from_millis(60), ..store };
        Self { store, held, reads }
    }

    /// Waits for this many held reads, and takes them.
    fn take(&self, count: usize) -> Vec<Held> {
        let held = self.held.0.lock().expect("no panic");
        let patience = Duration::from_secs(30);
        let few = |held: &mut Vec<Held>| held.len() < count;
        let (mut held, timeout) = self.held.1.wait_timeout_while(held, patience, few).expect("no panic");
        assert!(!timeout.timed_out(), "{} reads came, not {count}", held.len());
        std::mem::take(&mut *held)
    }
}

impl Held {
    fn answer(mut self, byte: u8) {
        let len = self.buf.len();
        self.buf.copy_in(0, &vec![byte; len]);
        self.sink.done(self.buf, Ok(len));
    }

    fn fail(self) {
        self.sink.done(self.buf, Err(Error::new(ErrorKind::Unavailable, "told to fail")));
    }
}

fn read(file: &File) -> bowwave_engine::Result<u8> {
    let mut bytes = [0; READ];
    let outcome = file.read_at(0, &mut bytes);
    outcome.map(|_| {
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "bytes of both tries");
        bytes[0]
    })
}

/// Reads once, with both requests held; returns the reader's result, and that of `then` for the
/// requests.
fn raced(then: impl FnOnce(Held, Held) + Send) -> (bowwave_engine::Result<u8>, Engine) {
    let (engine, slow) = (engine(100), Slow::new());
    let store = engine.store_of(Arc::new(slow.store.clone()));
    let file = store.open(Path::new("a")).expect("opens");
    let got = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file));
        let mut tries = slow.take(2).into_iter();
        let (Some(first), Some(second)) = (tries.next(), tries.next()) else { panic!("two tries") };
        then(first, second);
        reader.join().expect("it ends")
    });
    (got, engine)
}

#[test]
fn the_first_response_counts_and_the_other_one_is_harmless() {
    let (got, engine) = raced(|first, second| {
        second.answer(2);
        assert!(first.unwanted.load(Ordering::Relaxed), "it is no longer needed");
        // It completes later all the same.
        first.answer(1);
    });
    assert_eq!(got.expect("it reads"), 2);
    let stats = engine.stats();
    assert_eq!((stats.store.requests, stats.store.hedges, stats.store.hedges_won), (2, 1, 1));
    assert_eq!(stats.store.bytes_fetched, READ as u64);

    let (got, engine) = raced(|first, second| {
        first.answer(1);
        assert!(second.unwanted.load(Ordering::Relaxed));
        // A store that can cancel drops it.
        drop(second);
    });
    assert_eq!(got.expect("it reads"), 1);
    assert_eq!((engine.stats().store.hedges, engine.stats().store.hedges_won), (1, 0));
}

#[test]
fn a_failed_request_leaves_the_read_to_the_other_one_and_two_failures_are_an_error() {
    let (got, engine) = raced(|first, second| {
        first.fail();
        second.answer(2);
    });
    assert_eq!(got.expect("it reads"), 2);
    assert_eq!(engine.stats().store.requests_failed, 0);
    let (got, engine) = raced(|first, second| {
        drop(second);
        first.fail();
    });
    assert!(got.expect_err("both have failed").to_string().contains("told to fail"));
    assert_eq!(engine.stats().store.requests_failed, 1);
}

#[test]
fn hedges_stay_within_their_share_if_all_reads_are_late() {
    let engine = engine(10);
    let url = "fault:stalled=1,stall=150ms,seed=1:emulate:s3,latency=2ms,metadata=0:pattern:/";
    let store = engine.store(url).expect("ours");
    let file = Arc::new(store.open(Path::new("64MiB")).expect("every size"));
    thread::scope(|scope| {
        for reader in 0..20u64 {
            let file = Arc::clone(&file);
            scope.spawn(move || {
                for n in 0..5 {
                    file.read_at((reader * 5 + n) * 65_536, &mut [0; READ]).expect("it reads");
                }
            });
        }
    });
    let stats = store.stats();
    // After some reads that latency is normal, and they are no longer late.
    assert!(stats.hedges >= 1 && stats.hedges <= 10, "{stats:?}");
    assert_eq!(stats.requests, 100 + stats.hedges);
}

#[test]
fn late_writes_are_not_hedged() {
    let (engine, slow) = (engine(100), Slow::new());
    let store = engine.store_of(Arc::new(slow.store.clone()));
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let file = store.open_with(Path::new("a"), &options).expect("opens");
    for n in 0..4 {
        file.write_at(n * 4096, &[9; 4096]).expect("it is taken");
        file.sync(true).expect("it is written");
    }
    assert_eq!(slow.store.writes.load(Ordering::Relaxed), 4);
    assert_eq!((engine.stats().store.hedges, slow.reads.load(Ordering::Relaxed)), (0, 0));
}
