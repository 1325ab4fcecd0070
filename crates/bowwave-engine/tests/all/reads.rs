//! Every byte that the engine returns is the store's.

use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use bowwave_backend::{MemoryBackend, pattern};
use bowwave_core::Random;
use bowwave_engine::{Advice, Engine, EntryKind, ErrorKind, File, Namespace as _, Options, Policy};

/// A policy of another crate.
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../../bowwave-core/examples/policy.rs"]
mod policy;

/// A store of another crate.
#[path = "../../../bowwave-backend/examples/backend.rs"]
mod backend;

fn engine(options: Options) -> Engine {
    Engine::new(options).expect("valid options")
}

fn small() -> Options {
    Options { cache_bytes: Some(2 << 20), ra_pages: 32, ..Options::default() }
}

/// The bytes of `pattern:/NAME` at `offset`.
fn expected(name: &str, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern::fill(pattern::seed(Path::new(name)), offset, &mut bytes);
    bytes
}

fn assert_reads(file: &File, name: &str, offset: u64, len: usize) {
    let mut bytes = vec![0xAA; len];
    let count = file.read_at(offset, &mut bytes).expect("the pattern never fails");
    let left = usize::try_from(file.size().saturating_sub(offset)).expect("small files");
    assert_eq!(count, len.min(left), "{name} at {offset} for {len}");
    assert!(bytes[..count] == expected(name, offset, count), "{name} at {offset} for {len} differs");
}

#[test]
fn every_size_and_offset_reads_right() {
    for page_bytes in [4096, 65536, 2 << 20] {
        let engine = engine(Options { cache_bytes: Some(256 << 20), page_bytes, ..Options::default() });
        let store = engine.store("pattern:/").expect("a scheme of ours");
        for size in [0u64, 1, 4095, 4096, 4097, 1_000_000] {
            let name = format!("{size}");
            let file = store.open(Path::new(&name)).expect("the pattern has every size");
            assert_eq!(file.size(), size);
            for (offset, len) in
                [(0, 1), (0, 5000), (4095, 2), (4096, 4096), (999_999, 10), (1_000_000, 1), (7, 1_000_000)]
            {
                assert_reads(&file, &name, offset, len);
            }
        }
    }
}

#[test]
fn sixteen_readers_with_a_cache_much_smaller_than_the_data() {
    for policy in bowwave_baselines::ALL.into_iter().chain([policy::DOUBLING]) {
        let engine = engine(Options { policy, ..small() });
        let store = engine.store("pattern:/").expect("a scheme of ours");
        thread::scope(|scope| {
            for reader in 0..16u64 {
                let store = store.clone();
                scope.spawn(move || {
                    let name = format!("{}", 3_000_000 + reader / 2);
                    let file = store.open(Path::new(&name)).expect("the pattern has every size");
                    let mut random = Random::new(reader);
                    for step in 0..300u64 {
                        let random = random.below(3_100_000);
                        let offset = if reader % 3 == 0 { random } else { step * 10_000 };
                        assert_reads(
                            &file,
                            &name,
                            offset,
                            10_000
                                + usize::try_from(random % 300_000).expect("small")
                                    * usize::from(step % 50 == 0),
                        );
                    }
                });
            }
        });
        let stats = engine.stats();
        assert!(stats.cache.pages_evicted > 0 && stats.frames_used <= stats.frames);
    }
}

#[test]
fn a_warm_read_sends_no_request() {
    let engine = engine(Options { cache_bytes: Some(16 << 20), ..Options::default() });
    let file = engine.open("pattern:/1MiB").expect("a scheme of ours");
    assert_reads(&file, "1MiB", 0, 1 << 20);
    let cold = engine.stats();
    assert_reads(&file, "1MiB", 0, 1 << 20);
    let warm = engine.stats();
    assert_eq!(warm.store.requests, cold.store.requests);
    assert_eq!(warm.cache.hits - cold.cache.hits, 256);
    assert_eq!(cold.store.bytes_fetched, 1 << 20);
}

#[test]
fn a_sequential_reader_needs_few_requests() {
    // 1024 pages: windows of 4, 8, 16, then 32; with `stream`, after its first wait, at least a
    // quarter of a window at a time.
    for (policy, most) in [(Policy::OnDemand, 40), (Policy::Stream, 140)] {
        let engine = engine(Options { cache_bytes: Some(16 << 20), policy, ..Options::default() });
        let file = engine.open("pattern:/4MiB").expect("a scheme of ours");
        for offset in (0..4 << 20).step_by(4096) {
            assert_reads(&file, "4MiB", offset, 4096);
        }
        let stats = engine.stats();
        assert!(stats.store.requests <= most, "{policy:?}: {} requests", stats.store.requests);
        assert_eq!(stats.store.bytes_fetched, 4 << 20);
    }
}

#[test]
fn pages_stay_between_opens_until_the_object_changes() {
    let memory = Arc::new(MemoryBackend::new());
    memory.insert("a", vec![1u8; 10_000]);
    let engine = engine(small());
    let store = engine.store_of(memory.clone());
    let read = |file: &File| {
        let mut bytes = vec![0; 10_000];
        file.read_at(0, &mut bytes).map(|count| bytes[..count].to_vec())
    };
    assert_eq!(read(&store.open(Path::new("a")).expect("it is there")).expect("it reads"), vec![1; 10_000]);
    let requests = store.stats().requests;
    let file = store.open(Path::new("a")).expect("it is there");
    assert_eq!(read(&file).expect("cached"), vec![1; 10_000]);
    assert_eq!(store.stats().requests, requests, "the second open reads from the cache");

    memory.insert("a", vec![2u8; 5_000]);
    let fresh = store.open(Path::new("a")).expect("it is there");
    assert_eq!(read(&fresh).expect("it reads"), vec![2; 5_000]);
    assert_eq!(read(&file).expect("all of the old version is cached"), vec![1; 10_000]);
}

#[test]
fn a_changed_object_fails_with_changed_and_never_mixes() {
    let memory = Arc::new(MemoryBackend::new());
    memory.insert("a", vec![1u8; 1 << 20]);
    let engine = engine(Options { policy: Policy::None, ..small() });
    let store = engine.store_of(memory.clone());
    let file = store.open(Path::new("a")).expect("it is there");
    let mut bytes = [0; 4096];
    file.read_at(0, &mut bytes).expect("it reads");
    memory.insert("a", vec![2u8; 1 << 20]);
    let error = file.read_at(8192, &mut bytes).expect_err("the object is another one");
    assert_eq!(error.kind(), Some(ErrorKind::Changed));
    let error = file.read_at(0, &mut bytes).expect_err("also what was cached");
    assert_eq!(error.kind(), Some(ErrorKind::Changed));
    let fresh = store.open(Path::new("a")).expect("it is there");
    fresh.read_at(0, &mut bytes).expect("it reads");
    assert_eq!(bytes, [2; 4096]);
}

#[test]
fn advice_is_applied() {
    let engine = engine(Options { cache_bytes: Some(16 << 20), ..Options::default() });
    let file = engine.open("pattern:/2MiB").expect("a scheme of ours");
    file.advise(0, 0, Advice::WillNeed);
    assert_eq!(file.stats().pages_readahead, 512);
    assert_reads(&file, "2MiB", 0, 2 << 20);
    assert_eq!(file.stats().misses, 0);
    file.advise(0, 0, Advice::DontNeed);
    file.advise(0, 0, Advice::Random);
    assert_reads(&file, "2MiB", 0, 8192);
    assert_eq!(file.stats().misses, 2);
    assert_eq!(file.stats().pages_readahead, 512, "random reads read nothing ahead");
}

#[test]
fn the_journal_of_a_busy_engine_replays_to_the_same_actions() {
    let engine = engine(Options {
        journal_events: 1 << 20,
        shards: Some(2),
        cache_bytes: Some(8 << 20),
        ..Options::default()
    });
    let store = engine.store("emulate:nvme:pattern:/").expect("a scheme of ours");
    thread::scope(|scope| {
        for reader in 0..8u64 {
            let store = store.clone();
            scope.spawn(move || {
                let name = format!("{}", 2_000_000 + reader % 5);
                let file = store.open(Path::new(&name)).expect("the pattern has every size");
                for step in 0..200u64 {
                    assert_reads(&file, &name, step * 7919 % 2_000_000, 9_000);
                }
            });
        }
    });
    let journals = engine.journals();
    assert_eq!(journals.len(), 2);
    for journal in journals {
        assert!(!journal.is_truncated() && journal.events().len() > 500, "{} events", journal.events().len());
        assert!(journal.replays(), "the journal leads to other actions");
    }
}

struct Notify(mpsc::SyncSender<()>);

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        // If the channel is full, a wake-up is pending already.
        let _full = self.0.try_send(());
    }
}

fn notifying_waker() -> (Waker, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (Waker::from(Arc::new(Notify(sender))), receiver)
}

#[test]
fn async_reads_give_the_same_bytes_and_may_be_dropped() {
    let (waker, receiver) = notifying_waker();
    let mut context = Context::from_waker(&waker);

    let engine = engine(small());
    // 30 ms are more than a busy machine takes between the call and its poll.
    let file = engine.open("emulate:s3:pattern:/1MiB").expect("a scheme of ours");
    let mut bytes = vec![0; 300_000];
    {
        let mut dropped = pin!(file.read_at_async(500_000, &mut bytes));
        assert!(dropped.as_mut().poll(&mut context).is_pending());
    }
    let count = {
        let mut read = pin!(file.read_at_async(100_000, &mut bytes));
        loop {
            match read.as_mut().poll(&mut context) {
                Poll::Ready(result) => break result.expect("the pattern never fails"),
                Poll::Pending => receiver.recv().expect("the sender lives in the waker"),
            }
        }
    };
    assert_eq!(count, 300_000);
    assert!(bytes == expected("1MiB", 100_000, 300_000));
}

#[test]
fn memory_moves_to_the_shard_that_needs_it_and_never_grows() {
    let cache_bytes = 32 << 20;
    let engine = engine(Options { cache_bytes: Some(cache_bytes), shards: Some(4), ..Options::default() });
    let store = engine.store("emulate:nvme:pattern:/").expect("a scheme of ours");
    let read_all = |names: &[String]| {
        thread::scope(|scope| {
            for name in names {
                let store = &store;
                scope.spawn(move || {
                    let file = store.open(Path::new(name)).expect("the pattern has every size");
                    for offset in (0..file.size()).step_by(100_000) {
                        assert_reads(&file, name, offset, 100_000);
                    }
                });
            }
        });
    };
    // Files are assigned to the shards in turn: all shards are used, then one alone.
    read_all(&(0..32).map(|number| format!("{}", 3_000_000 + number)).collect::<Vec<_>>());
    let all = engine.stats();
    assert!(all.frames * all.page_bytes + all.metadata_bytes <= cache_bytes, "{all:?}");
    let hot = "20000000".to_string();
    for _ in 0..12 {
        read_all(std::slice::from_ref(&hot));
    }
    let before = engine.stats().cache.hits;
    read_all(std::slice::from_ref(&hot));
    let stats = engine.stats();
    assert!(stats.frames * stats.page_bytes + stats.metadata_bytes <= cache_bytes, "{stats:?}");
    let hits = stats.cache.hits - before;
    // 20 MB of the 32 MiB, although a quarter was the shard's share.
    assert!(hits > 4_800, "only {hits} hits; a file of 4883 pages should fit");
}

#[test]
fn sixty_four_readers_of_a_tiny_cache_all_finish() {
    let engine = engine(Options { cache_bytes: Some(1 << 20), shards: Some(1), ..Options::default() });
    let store = engine.store("pattern:/").expect("a scheme of ours");
    thread::scope(|scope| {
        for reader in 0..64u64 {
            let store = &store;
            scope.spawn(move || {
                let name = format!("{}", 1_000_000 + reader);
                let file = store.open(Path::new(&name)).expect("the pattern has every size");
                for step in 0..40u64 {
                    assert_reads(&file, &name, step * 37_123 % 1_000_000, 200_000);
                }
            });
        }
    });
    assert!(engine.stats().cache.reads_starved > 0, "the cache was not tiny enough");
}

/// Regression: a woken task that was never polled kept its frames pinned, and in a small cache
/// other reads got none.
#[test]
fn frames_of_a_woken_but_unpolled_task_are_reclaimed_and_it_reads_again() {
    let (waker, receiver) = notifying_waker();
    let mut context = Context::from_waker(&waker);
    let engine = engine(Options {
        cache_bytes: Some(512 << 10),
        ra_pages: 8,
        shards: Some(1),
        policy: Policy::None,
        ..Options::default()
    });
    let file = engine.open("emulate:nvme:pattern:/1MiB").expect("a scheme of ours");
    // As many tasks as needed to pin nearly every frame; each was woken.
    let mut bufs = vec![vec![0; 100_000]; 5];
    let mut tasks: Vec<_> = bufs
        .iter_mut()
        .zip(0u64..)
        .map(|(buf, number)| Box::pin(file.read_at_async(number * 100_000, buf)))
        .collect();
    tasks.retain_mut(|task| match task.as_mut().poll(&mut context) {
        Poll::Pending => {
            receiver.recv().expect("the sender lives in the waker");
            true
        }
        // This thread was so slow that all frames had arrived before its wait.
        Poll::Ready(result) => {
            assert_eq!(result.expect("the pattern never fails"), 100_000);
            false
        }
    });
    let fresh = engine.open("pattern:/2MiB").expect("a scheme of ours");
    for offset in (0..2 << 20).step_by(100_000) {
        assert_reads(&fresh, "2MiB", offset, 100_000);
    }
    for task in tasks {
        let mut task = pin!(task);
        while task.as_mut().poll(&mut context).is_pending() {
            receiver.recv().expect("the sender lives in the waker");
        }
    }
    for (buf, number) in bufs.iter().zip(0u64..) {
        assert!(*buf == expected("1MiB", number * 100_000, 100_000), "task {number} read wrong bytes");
    }
}

#[test]
fn a_backend_of_30_lines_is_read_through_the_cache() {
    let map = backend::Map::default();
    let mut bytes = expected("1000003", 0, 1_000_003);
    map.put("object", &bytes);
    let store = engine(small()).store_of(Arc::new(map.clone()));
    let file = store.open(Path::new("object")).expect("in the map");
    let mut read = vec![0; 2_000_000];
    assert_eq!(file.read_at(0, &mut read).expect("readable"), bytes.len());
    assert!(read[..bytes.len()] == bytes);
    // Without a namespace, names are what opens.
    let kind = |path: &str| store.stat(Path::new(path)).map(|entry| (entry.kind, entry.size));
    assert_eq!(kind("object").expect("in the map"), (EntryKind::File, 1_000_003));
    assert_eq!(kind("").expect("the root"), (EntryKind::Directory, 0));
    assert_eq!(kind("other").expect_err("not there").kind(), ErrorKind::NotFound);
    let list = store.list(Path::new("")).expect_err("names are not known");
    assert_eq!(list.kind(), ErrorKind::Unsupported);
    let create = store.create_directory(Path::new("new"), 0o755, None).expect_err("it is only read");
    assert_eq!(create.kind(), ErrorKind::ReadOnly);
    // Versions never mix.
    bytes.reverse();
    map.put("object", &bytes);
    let file = store.open(Path::new("object")).expect("in the map");
    assert_eq!(file.read_at(0, &mut read).expect("readable"), bytes.len());
    assert!(read[..bytes.len()] == bytes);
}
