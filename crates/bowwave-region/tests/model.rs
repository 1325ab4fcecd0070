//! File mappings under thousands of thread schedules: a model checker (`shuttle`) runs the same
//! code with doubles of the standard library's locks, and chooses the next thread at each of them.
//!
//! `cargo test --package bowwave-region --features model --test model`, with `BOWWAVE_MODEL_RUNS=N`
//! for more runs. A failure prints a schedule for `shuttle::replay`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bowwave_engine::backend::{
    Backend, Error, ErrorKind, Identity, MemoryBackend, Namespace, Object, Profile, ReadBuf, ReadSink, Result,
};
use bowwave_engine::{Engine, Options, Policy, Store};
use bowwave_region::{MapOptions, Region, Touched};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use shuttle::{Config, Runner};

const PAGE: u64 = 4096;
const PAGES: u64 = 24;

/// A store whose requests complete in any order, in halves, and sometimes with errors.
#[derive(Clone, Debug)]
struct Whimsical {
    memory: MemoryBackend,
    shared: Arc<(Mutex<Held>, Condvar)>,
    trouble: Trouble,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// One request in four fails permanently.
    Failures,
    /// One request in six finds another object.
    Changes,
}

#[derive(Debug, Default)]
struct Held {
    requests: Vec<Request>,
    closed: bool,
}

struct Request {
    offset: u64,
    buf: ReadBuf,
    sink: Box<dyn ReadSink>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {}", self.buf.len(), self.offset)
    }
}

/// The byte of the file at an offset.
fn expected(offset: u64) -> u8 {
    (offset / PAGE * 7 + offset % PAGE + 1) as u8
}

impl Whimsical {
    fn new(trouble: Trouble) -> Self {
        let memory = MemoryBackend::new();
        memory.insert("file", (0..PAGES * PAGE).map(expected).collect::<Vec<u8>>());
        Self { memory, shared: Arc::default(), trouble }
    }

    /// Completes requests until the store is closed and none is left.
    fn serve(&self) {
        let (held, changed) = &*self.shared;
        loop {
            let mut state = held.lock().expect("no panic");
            while state.requests.is_empty() {
                if state.closed {
                    return;
                }
                state = changed.wait(state).expect("no panic");
            }
            let turn = thread_rng().gen_range(0..state.requests.len());
            let request = state.requests.swap_remove(turn);
            drop(state);
            self.end(request);
        }
    }

    fn end(&self, Request { offset, mut buf, mut sink }: Request) {
        let bytes: Vec<u8> = (offset..PAGES * PAGE).take(buf.len()).map(expected).collect();
        let (fails, changes) = match self.trouble {
            Trouble::None => (false, false),
            Trouble::Failures => (thread_rng().gen_ratio(1, 4), false),
            Trouble::Changes => (false, thread_rng().gen_ratio(1, 6)),
        };
        // The buffer of a failed request may have any content.
        if fails || changes {
            buf.copy_in(0, &vec![0; bytes.len()]);
            let kind = if changes { ErrorKind::Changed } else { ErrorKind::Io };
            return sink.done(buf, Err(Error::new(kind, "as the model has it").retryable(false)));
        }
        let half = bytes.len() / 2;
        buf.copy_in(0, &bytes[..half]);
        sink.progress(half);
        thread::yield_now();
        buf.copy_in(half, &bytes[half..]);
        sink.done(buf, Ok(bytes.len()));
    }

    fn close(&self) {
        self.shared.0.lock().expect("no panic").closed = true;
        self.shared.1.notify_all();
    }
}

impl Backend for Whimsical {
    fn url(&self) -> &str {
        "model:"
    }

    fn profile(&self) -> Profile {
        Profile { slots: 2, ..Profile::read_only("model") }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        Ok(Arc::new(Slow { identity: self.memory.open(path)?.identity().clone(), store: self.clone() }))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        self.memory.namespace()
    }
}

#[derive(Debug)]
struct Slow {
    identity: Identity,
    store: Whimsical,
}

impl Object for Slow {
    fn size(&self) -> u64 {
        PAGES * PAGE
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let (held, changed) = &*self.store.shared;
        held.lock().expect("no panic").requests.push(Request { offset, buf, sink });
        changed.notify_one();
    }
}

/// A mapped file of 24 pages, in a cache of 12.
struct Scene {
    store: Whimsical,
    servers: Vec<thread::JoinHandle<()>>,
    files: Store,
    engine: Engine,
}

impl Scene {
    fn new(trouble: Trouble, policy: Policy) -> Self {
        let store = Whimsical::new(trouble);
        let options = Options {
            cache_bytes: Some(12 * (PAGE + 320)),
            ra_pages: 4,
            policy,
            shards: Some(1),
            retries: 1,
            ..Options::default()
        };
        let engine = Engine::new(options).expect("a small cache");
        let files = engine.store_of(Arc::new(store.clone()));
        let servers = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || store.serve())
            })
            .collect();
        Self { store, servers, files, engine }
    }

    fn map(&self) -> Region {
        let options =
            MapOptions { handlers: 2.try_into().ok(), around_bytes: 4 * PAGE, ..MapOptions::default() };
        Region::map(&self.files, Path::new("file"), &options).expect("userfaultfd works on this machine")
    }

    fn end(self) {
        drop((self.files, self.engine));
        self.store.close();
        for server in self.servers {
            server.join().expect("no panic");
        }
    }
}

/// Stack size of a model thread.
const STACK_BYTES: usize = 256 << 10;

/// Runs `scene` under many schedules: random ones, and ones with few, badly placed thread switches.
fn explore(runs: usize, scene: impl Fn() + Send + Sync + 'static) {
    let runs = std::env::var("BOWWAVE_MODEL_RUNS").map_or(runs, |runs| runs.parse().expect("a number"));
    let scene = Arc::new(scene);
    let again = Arc::clone(&scene);
    let config = || {
        let mut config = Config::new();
        // The default of 32 KiB is too small to create an engine in a debug build.
        config.stack_size = STACK_BYTES;
        config
    };
    Runner::new(RandomScheduler::new(runs), config()).run(move || scene());
    Runner::new(PctScheduler::new(3, runs), config()).run(move || again());
}

/// As `explore`, with a mapping of the scene's file, which `run` no longer uses when it returns.
fn explore_map(trouble: Trouble, policy: Policy, run: impl Fn(&Arc<Region>) + Send + Sync + 'static) {
    explore(100, move || {
        let scene = Scene::new(trouble, policy);
        let region = Arc::new(scene.map());
        run(&region);
        drop(region);
        scene.end();
    });
}

/// Threads access random bytes of a region and pass each result to `check`.
fn touch(region: &Arc<Region>, threads: u32, touches: usize, check: fn(&Region, u64, Touched)) {
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let region = Arc::clone(region);
            thread::spawn(move || {
                let mut at = thread_rng().gen_range(0..PAGES);
                for _ in 0..touches {
                    let offset = at * PAGE + thread_rng().gen_range(0..PAGE);
                    check(&region, offset, region.toucher().touch(number, offset));
                    // Mostly sequential.
                    at = if thread_rng().gen_ratio(1, 3) {
                        thread_rng().gen_range(0..PAGES)
                    } else {
                        (at + 1) % PAGES
                    };
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn every_access_finds_its_byte_despite_evictions() {
    for policy in [Policy::OnDemand, Policy::Range] {
        explore_map(Trouble::None, policy, |region| {
            touch(region, 3, 5, |_, offset, touched| assert_eq!(touched, Touched::Byte(expected(offset))));
            assert!(region.failures().is_empty());
        });
    }
}

#[test]
fn a_failed_page_is_poisoned_and_reported_and_has_no_other_bytes() {
    explore_map(Trouble::Failures, Policy::Range, |region| {
        touch(region, 3, 5, |region, offset, touched| match touched {
            Touched::Byte(byte) => assert_eq!(byte, expected(offset)),
            _ => {
                assert_eq!(touched, Touched::Poisoned);
                let page = offset / PAGE * PAGE;
                assert!(region.failures().iter().any(|failure| failure.0 == page), "page {page} is not told");
            }
        });
    });
}

#[test]
fn a_changed_object_shows_no_byte_of_the_new_version() {
    explore_map(Trouble::Changes, Policy::OnDemand, |region| {
        touch(region, 3, 5, |_, offset, touched| {
            assert!(
                matches!(touched, Touched::Byte(byte) if byte == expected(offset))
                    || touched == Touched::Poisoned
            );
        });
    });
}

#[test]
fn an_access_during_unmap_finds_the_byte_or_nothing_and_ends() {
    explore(100, || {
        let scene = Scene::new(Trouble::None, Policy::Range);
        let region = scene.map();
        let touchers: Vec<_> = (0..2u32)
            .map(|number| {
                let toucher = region.toucher();
                thread::spawn(move || {
                    for turn in 0..4 {
                        let offset = (turn * 5 + u64::from(number)) % PAGES * PAGE;
                        let touched = toucher.touch(number, offset);
                        assert!(
                            [Touched::Byte(expected(offset)), Touched::Gone].contains(&touched),
                            "{touched:?}"
                        );
                    }
                })
            })
            .collect();
        drop(region);
        for toucher in touchers {
            toucher.join().expect("no panic");
        }
        scene.end();
    });
}

#[test]
fn reads_and_faults_of_the_same_pages_agree() {
    explore_map(Trouble::None, Policy::OnDemand, |region| {
        let reader = {
            let region = Arc::clone(region);
            thread::spawn(move || {
                for _ in 0..6 {
                    let offset = thread_rng().gen_range(0..(PAGES - 1) * PAGE);
                    let mut bytes = [0; 300];
                    region.read(offset, &mut bytes).expect("nothing fails here");
                    assert!(bytes.iter().zip(offset..).all(|(&byte, at)| byte == expected(at)));
                }
            })
        };
        touch(region, 2, 4, |_, offset, touched| assert_eq!(touched, Touched::Byte(expected(offset))));
        reader.join().expect("no panic");
    });
}
