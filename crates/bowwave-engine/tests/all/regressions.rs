//! Regression tests, each with the cause of its bug.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::common::scripted::Scripted;
use crate::common::until;
use bowwave_core::Random;
use bowwave_engine::backend::{MemoryBackend, ReadBuf, ReadSink, Result};
use bowwave_engine::{Advice, Engine, Options, Policy};

fn engine(cache_bytes: u64, shards: usize) -> Engine {
    let options = Options { cache_bytes: Some(cache_bytes), shards: Some(shards), ..Options::default() };
    Engine::new(options).expect("valid options")
}

/// Rejoins the whole buffer after a read of its head.
struct Rejoin(Box<dyn ReadSink>, ReadBuf);

impl ReadSink for Rejoin {
    fn progress(&mut self, bytes: usize) {
        self.0.progress(bytes);
    }
    fn done(self: Box<Self>, mut buf: ReadBuf, result: Result<usize>) {
        let Self(sink, tail) = *self;
        buf.unsplit(tail);
        sink.done(buf, result);
    }
}

/// A short read was requested again from its beginning, so a store that never returns a whole fill
/// at once failed after a few attempts. The contract allows short reads every time.
#[test]
fn a_store_that_always_stops_early_gets_requests_for_the_rest() {
    let memory = MemoryBackend::new();
    let bytes: Vec<u8> = (0..1_000_003u32).map(|at| ((at * 7) >> 3) as u8).collect();
    memory.insert("a", bytes.clone());
    let engine = engine(8 << 20, 1);
    let store = engine.store_of(Arc::new(Scripted::new(memory, |object, offset, mut buf, sink| {
        let tail = buf.split_off(buf.len().min(20_000));
        object.read(offset, buf, Box::new(Rejoin(sink, tail)));
    })));
    let file = store.open(Path::new("a")).expect("it is there");
    let mut read = vec![0; 1_100_000];
    assert_eq!(file.read_at(0, &mut read).expect("each answer brings something"), bytes.len());
    assert!(read[..bytes.len()] == bytes);
    assert_eq!(store.stats().bytes_fetched, bytes.len() as u64, "nothing is fetched twice");
}

/// Memory went to a busy shard until the idle one had less than a large read needs, and that read
/// failed.
#[test]
fn a_large_read_succeeds_on_a_shard_whose_memory_was_lent_to_another() {
    let engine = engine(64 << 20, 2);
    let store = engine.store("pattern:/").expect("a scheme of ours");
    // Files are assigned to the shards in turn.
    let idle = store.open(Path::new("16MiB")).expect("the pattern has every size");
    let busy = store.open(Path::new("100MiB")).expect("the pattern has every size");
    let mut bytes = vec![0; 8 << 20];
    idle.read_at(0, &mut bytes).expect("the pattern never fails");
    let mut small = vec![0; 64 << 10];
    for _ in 0..4 {
        for offset in (0..busy.size()).step_by(small.len()) {
            busy.read_at(offset, &mut small).expect("the pattern never fails");
        }
    }
    assert_eq!(idle.read_at(0, &mut bytes).expect("frames are elsewhere, but not all"), bytes.len());
}

/// Files of a dropped store with requests in flight kept their pages forever.
#[test]
fn pages_of_a_store_dropped_with_reads_in_flight_are_freed() {
    let engine = engine(8 << 20, 1);
    let store = engine.store("emulate:s3,latency=20ms,metadata=0ms:pattern:/").expect("a scheme of ours");
    let file = store.open(Path::new("2MiB")).expect("the pattern has every size");
    file.advise(0, 0, Advice::WillNeed);
    drop((file, store));
    until("no frame is in use", || engine.stats().frames_used == 0);
    assert!(engine.stats().store.requests > 0, "the counters of a store outlive it");
}

/// Each close of a file was recorded, and after 16384 of them the file itself was forgotten, though
/// it was in use.
#[test]
fn a_file_in_repeated_use_stays_cached() {
    let engine = engine(8 << 20, 1);
    let store = engine.store("pattern:/").expect("a scheme of ours");
    let mut byte = [0];
    for _ in 0..40_000 {
        let file = store.open(Path::new("4096")).expect("the pattern has every size");
        file.read_at(0, &mut byte).expect("the pattern never fails");
    }
    assert_eq!(store.stats().requests, 1);
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that is dropped when it is woken, as by an executor that was shut down.
struct DropOnWake(Mutex<Option<Task>>, mpsc::SyncSender<()>);

impl Wake for DropOnWake {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("no panic").take());
        self.1.send(()).expect("the test listens");
    }
}

/// Tasks were woken under the lock that dropping them takes.
#[test]
fn a_task_may_be_dropped_by_its_own_wake_up() {
    let engine = engine(2 << 20, 1);
    let file = engine.open("emulate:s3,latency=20ms,metadata=0ms:pattern:/1MiB").expect("a scheme of ours");
    let (sender, receiver) = mpsc::sync_channel(1);
    let task = Arc::new(DropOnWake(Mutex::new(None), sender));
    let mut future: Task = Box::pin(async move {
        let mut bytes = [0; 4096];
        file.read_at_async(0, &mut bytes).await.expect("never gets here");
    });
    let waker = Waker::from(Arc::clone(&task));
    {
        let mut place = task.0.lock().expect("no panic");
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *place = Some(future);
    }
    receiver.recv_timeout(Duration::from_secs(20)).expect("the wake returns");
}

/// The reserve for bookkeeping did not cover scattered single pages: each has its own leaf of the
/// page table, and so has the shadow of each page evicted before it.
#[test]
fn bookkeeping_of_scattered_pages_stays_within_the_cache() {
    let cache_bytes = 16 << 20;
    let engine = engine(cache_bytes, 1);
    let file = engine.open("pattern:/1TiB").expect("a scheme of ours");
    let mut random = Random::new(1);
    let mut byte = [0];
    for _ in 0..20_000 {
        file.read_at(random.below(1 << 40), &mut byte).expect("the pattern never fails");
    }
    let stats = engine.stats();
    assert!(stats.cache.pages_evicted > stats.frames, "the shadows are as many as the frames");
    assert!(stats.frames * stats.page_bytes + stats.metadata_bytes <= cache_bytes, "{stats:?}");
}

/// A thread's buffers were destroyed before it read a file at its end, and the read panicked, which
/// ends the process there. The file is first read here, so that the engine's thread state is
/// destroyed first.
#[test]
fn a_thread_can_read_at_its_end() {
    struct ReadsAtEnd(Mutex<Option<bowwave_engine::File>>, mpsc::SyncSender<usize>);

    impl Drop for ReadsAtEnd {
        fn drop(&mut self) {
            let file = self.0.lock().expect("no panic").take().expect("it was put here");
            let count = file.read_at(1 << 20, &mut [0; 9000]).expect("memory does not fail");
            drop(file);
            self.1.send(count).expect("the test waits");
        }
    }

    thread_local! {
        static LAST: std::cell::RefCell<Option<ReadsAtEnd>> = const { std::cell::RefCell::new(None) };
    }

    let (told, count) = mpsc::sync_channel(1);
    let thread = std::thread::spawn(move || {
        let engine = engine(16 << 20, 1);
        let file = engine.open("pattern:/4MiB").expect("a file");
        LAST.with_borrow_mut(|last| *last = Some(ReadsAtEnd(Mutex::new(None), told)));
        file.read_at(0, &mut [0; 4096]).expect("memory does not fail");
        LAST.with_borrow(|last| {
            *last.as_ref().expect("put above").0.lock().expect("no panic") = Some(file);
        });
    });
    assert_eq!(count.recv_timeout(Duration::from_secs(20)), Ok(9000));
    thread.join().expect("no panic");
}

/// A shard got more memory in small lots and only at its limit, and another shard's unused memory
/// stayed there. So cached pages were evicted while much memory was unused.
#[test]
fn nothing_is_evicted_while_memory_is_unused() {
    for (policy, ra_pages) in [(Policy::OnDemand, 32), (Policy::OnDemand, 4096), (Policy::Range, 512)] {
        let options =
            Options { cache_bytes: Some(128 << 20), shards: Some(2), ra_pages, policy, ..Options::default() };
        let engine = Engine::new(options).expect("valid options");
        let file = engine.open("pattern:/88MiB").expect("a scheme of ours");
        let mut buffer = vec![0; 1 << 20];
        for at in (0..88u64 << 20).step_by(buffer.len()) {
            file.read_at(at, &mut buffer).expect("readable");
        }
        let stats = engine.stats();
        assert_eq!((stats.cache.pages_evicted, stats.frames_used), (0, 22_528), "{policy:?}: {stats:?}");
    }
}
