//! Time of decisions: a policy's plan, a plain hit, a miss with its fill, and `stream` pattern by
//! pattern.
//!
//! `cargo bench -p bowwave-core --bench decide` prints the median, lowest and highest processor
//! time.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod patterns;

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant as Clock;

use bowwave_core::{
    Access, Action, Cache, Config, FileId, FileMemory, HandleId, Instant, PageAccess, PageCount, PageIndex,
    PageRange, Pins, Plans, Policy, Trigger, View, Waiter,
};

const ROUNDS: usize = 31;
const CALLS: u64 = 100_000;

fn main() {
    for policy in bowwave_baselines::ALL {
        plan(policy);
    }
    hits();
    walked_hits();
    for policy in bowwave_baselines::ALL {
        misses(policy);
    }
    stream();
}

/// The policy alone.
fn plan(policy: Policy) {
    let mut state = policy.build(&Config::default(), &mut FileMemory::default());
    let mut plans = Plans::default();
    report(&format!("plan {policy}"), |round| {
        for call in 0..CALLS {
            let page = PageIndex(round * CALLS + call * 3);
            let request = PageRange::new(page.0, page.0 + 1);
            let trigger = if call % 4 == 0 { Trigger::Mark } else { Trigger::Miss };
            let trigger = match policy.capabilities().every_access {
                true => Trigger::Lookup { missing: trigger == Trigger::Miss, fresh: false },
                false => trigger,
            };
            let access = Access::read(request, Some(PageIndex(page.0 - page.0 % 2)), trigger);
            plans.clear();
            state.on_access(black_box(access), View::of_nothing(32), &mut plans);
            black_box(&plans);
        }
    });
}

fn hits() {
    let mut cache = warm(Policy::OnDemand);
    let mut frames = Vec::new();
    let mut out = Vec::new();
    report("hit and unpin, 1 page", |round| {
        for call in 0..CALLS {
            let page = (round + call * 7) % 1024;
            assert!(cache.try_hit(
                PageAccess::read(HandleId(0), PageRange::new(page, page + 1)),
                Pins::Held,
                &mut frames
            ));
            cache.unpin(Instant(0), &frames, &mut out);
        }
    });
    report("hit and unpin, 32 pages, a page", |round| {
        for call in 0..CALLS / 32 {
            let page = (round + call * 7) % 992;
            assert!(cache.try_hit(
                PageAccess::read(HandleId(0), PageRange::new(page, page + 32)),
                Pins::Held,
                &mut frames
            ));
            cache.unpin(Instant(0), &frames, &mut out);
        }
    });
}

/// Reads of cached pages with a policy that runs on every access.
fn walked_hits() {
    for pages in [1, 32] {
        let mut cache = warm(bowwave_baselines::LEGACY);
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        report(&format!("cached read and unpin, {pages} pages, legacy, a page"), |round| {
            for call in 0..CALLS / pages {
                let page = (round + call * 7) % 992;
                let range = PageRange::new(page, page + pages);
                cache.access(
                    Instant(0),
                    Waiter(0),
                    PageAccess::read(HandleId(0), range),
                    &mut frames,
                    &mut out,
                );
                out.clear();
                cache.unpin(Instant(0), &frames, &mut out);
            }
        });
    }
}

/// Sequential reads of one page through a cache of 4096 frames whose fills complete at once.
fn misses(policy: Policy) {
    let config = Config { frames: 4096, reserve_frames: 256, policy, ..Config::default() };
    let mut cache = Cache::new(config).expect("valid");
    cache.open_file(FileId(0), PageCount(u64::MAX >> 12));
    cache.open_handle(HandleId(0), FileId(0));
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    report(&format!("sequential read of cold pages, {policy}, a page"), |round| {
        for call in 0..CALLS {
            let page = round * CALLS + call;
            cache.access(
                Instant(0),
                Waiter(0),
                PageAccess::read(HandleId(0), PageRange::new(page, page + 1)),
                &mut frames,
                &mut out,
            );
            let actions = std::mem::take(&mut out);
            for action in &actions {
                if let Action::Fill(fill) = action {
                    cache.filled(Instant(0), fill.id, Ok(()), &mut out);
                }
            }
            for action in actions.iter().chain(&std::mem::take(&mut out)) {
                if let Action::Wake { result: Ok(pinned), .. } = action {
                    frames.clone_from(pinned);
                }
            }
            cache.unpin(Instant(0), &frames, &mut out);
        }
    });
}

fn warm(policy: Policy) -> Cache {
    let mut cache = Cache::new(Config { policy, ..Config::default() }).expect("valid");
    cache.open_file(FileId(0), PageCount(1024));
    cache.open_handle(HandleId(0), FileId(0));
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    for page in 0..1024 {
        cache.access(
            Instant(0),
            Waiter(0),
            PageAccess::read(HandleId(0), PageRange::new(page, page + 1)),
            &mut frames,
            &mut out,
        );
        for action in std::mem::take(&mut out) {
            if let Action::Fill(fill) = action {
                cache.filled(Instant(0), fill.id, Ok(()), &mut out);
            }
        }
        out.clear();
    }
    cache
}

/// Decisions of `stream`: only misses and marks, as readers reach them.
fn stream() {
    for streams in [1, 8, 32, 64, 1000] {
        pattern(&format!("stream, marks of {streams} upward streams"), |decide| {
            patterns::upward(streams, CALLS, decide);
        });
    }
    pattern("stream, marks of a downward stream", |decide| patterns::backward(CALLS, decide));
    for readers in [1, 8] {
        pattern(&format!("stream, marks of {readers} strided readers"), |decide| {
            patterns::strided(readers, CALLS, decide);
        });
    }
    pattern("stream, random misses", |decide| patterns::random(1, CALLS, decide));
    pattern("stream, random misses in small clusters", |decide| patterns::random(3, CALLS, decide));
}

fn pattern(what: &str, run: impl Fn(&mut patterns::Decide<'_>)) {
    report(what, |_| {
        let mut policy = Policy::Stream.build(&Config::default(), &mut FileMemory::default());
        let mut plans = Plans::default();
        run(&mut |access| {
            plans.clear();
            policy.on_access(black_box(access), View::of_nothing(patterns::WINDOW), &mut plans);
            black_box(&plans).iter().next().and_then(|plan| plan.mark)
        });
    });
}

fn report(what: &str, mut run: impl FnMut(u64)) {
    let mut rounds: Vec<f64> = (0..ROUNDS as u64)
        .map(|round| {
            let start = processor_ns();
            run(round);
            (processor_ns() - start) / CALLS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:<56} {:>6.1} ns ({:.1}..{:.1})", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
}

/// Processor time of this thread, so that other load matters only through caches; wall-clock time
/// where the system does not report it.
fn processor_ns() -> f64 {
    static START: LazyLock<Clock> = LazyLock::new(Clock::now);
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = schedstat.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    run.unwrap_or_else(|| START.elapsed().as_nanos() as f64)
}
