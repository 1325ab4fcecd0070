//! Readahead in flight: limits of one engine, and of several that share a budget.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowwave_engine::backend::{Profile, pattern};
use bowwave_engine::{Advice, AheadBudget, Engine, Options, Policy};

use crate::common::gate::{Bench, KIB, MIB};
use crate::common::until;

#[test]
fn readahead_stays_within_its_budget_and_resumes_as_fills_end() {
    let budget = AheadBudget::new(2 * MIB);
    let options = Options { ahead_max: Some(budget.clone()), ..Bench::options() };
    let mut bench = Bench::with(options, Profile { slots: 64, ..Profile::read_only("gate") });
    let file = bench.open("a");
    file.advise(0, 8 * MIB, Advice::WillNeed);
    bench.gate.came(1);
    assert_eq!(budget.in_use(), 2 * MIB);
    assert_eq!(bench.engine.stats().cache.pages_readahead, 512);
    // Demand reads are not limited.
    bench.read("b", 4);
    bench.until(|bench| bench.gate.held().log.iter().any(|request| request.0 == 'b'));
    file.advise(16 * MIB, MIB, Advice::WillNeed);
    assert_eq!(bench.engine.stats().cache.pages_readahead, 512, "nothing is left");
    bench.gate.drain(0);
    bench.until(|_| budget.in_use() == 0);
    file.advise(16 * MIB, MIB, Advice::WillNeed);
    assert_eq!(budget.in_use(), MIB);
    bench.end(0);
    assert_eq!(budget.in_use(), 0);
}

#[test]
fn engines_that_share_a_budget_stay_within_it_and_every_byte_is_right() {
    let all = AheadBudget::new(4 * MIB);
    let engines: Vec<(Engine, AheadBudget)> = (0..3)
        .map(|_| {
            let part = all.part(2 * MIB);
            let options = Options {
                cache_bytes: Some(16 << 20),
                ra_pages: 128,
                shards: Some(2),
                policy: Policy::Stream,
                ahead_max: Some(part.clone()),
                ..Options::default()
            };
            (Engine::new(options).expect("valid options"), part)
        })
        .collect();
    let done = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                assert!(engines.iter().all(|(_, part)| part.in_use() <= 2 * MIB));
                most = most.max(all.in_use());
                thread::yield_now();
            }
            most
        });
        let readers: Vec<_> = (0..12)
            .map(|reader| {
                let engine = &engines[reader % 3].0;
                scope.spawn(move || {
                    let store = engine.store("emulate:s3,latency=3ms,metadata=0:pattern:/").expect("ours");
                    let name = format!("{}", 4_000_000 + reader);
                    let file = store.open(Path::new(&name)).expect("every size");
                    if reader % 4 == 3 {
                        file.plan((0..50).map(|n| n * 80_000..n * 80_000 + 9_000)).expect("few ranges");
                    }
                    let seed = pattern::seed(name.as_ref());
                    let (mut bytes, mut wanted) = (vec![0; 9_000], vec![0; 9_000]);
                    for n in 0..400u64 {
                        let offset = if reader % 4 == 3 { n % 50 * 80_000 } else { n * 9_000 };
                        assert_eq!(file.read_at(offset, &mut bytes).expect("it reads"), 9_000);
                        pattern::fill(seed, offset, &mut wanted);
                        assert!(bytes == wanted, "{name} at {offset}");
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().expect("every byte is right"));
        done.store(true, Ordering::Relaxed);
        watch.join().expect("no budget is overdrawn")
    });
    assert!(most > MIB && most <= 4 * MIB, "{most} bytes at most in flight");
    // Readahead in flight ends, and dropped engines return their budget.
    drop(engines);
    until("the budget is returned", || all.in_use() == 0);
}

#[test]
fn without_a_budget_nothing_is_read_ahead_and_the_journal_shows_it() {
    let options = Options {
        ahead_max: Some(AheadBudget::new(0)),
        journal_events: 1 << 16,
        policy: Policy::Stream,
        ..Bench::options()
    };
    let engine = Engine::new(options.clone()).expect("valid options");
    let file = engine.open("pattern:/4MiB").expect("ours");
    let mut bytes = [0; 4096];
    for offset in (0..MIB).step_by(4096) {
        assert_eq!(file.read_at(offset, &mut bytes).expect("it reads"), 4096);
    }
    assert_eq!((engine.stats().cache.pages_readahead, engine.stats().cache.misses), (0, 256));
    let some = Options { ahead_max: Some(AheadBudget::new(256 * KIB)), ..options };
    let engine = Engine::new(some).expect("valid options");
    let file = engine.open("pattern:/4MiB").expect("ours");
    for offset in (0..MIB).step_by(4096) {
        assert_eq!(file.read_at(offset, &mut bytes).expect("it reads"), 4096);
    }
    assert!(engine.stats().cache.misses < 64);
    assert!(engine.journals().iter().all(|journal| journal.replays()), "a journal leads to other actions");
}
