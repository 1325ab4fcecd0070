//! What a decision of `stream` costs, pattern by pattern: only misses and marks, as readers come to them.
//!
//! `cargo bench -p bowwave-core --bench stream` prints medians of processor time over rounds with the lowest and the highest.
//! The policy is by itself, without a cache: the accesses are those that its own plans lead to.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant as Clock;

use bowwave_core::{Access, Config, PageIndex, PageRange, Plan, Policy, Readahead, Trigger, View};

const ROUNDS: usize = 31;
const CALLS: u64 = 200_000;
const WINDOW: u64 = 32;

fn main() {
    for streams in [1, 8, 32, 64] {
        report(&format!("marks of {streams} streams read upward"), |policy| upward(policy, streams));
    }
    report("marks of a stream read backward", backward);
    for readers in [1, 8] {
        report(&format!("marks of {readers} readers at an even distance"), |policy| strided(policy, readers));
    }
    report("misses in no order", |policy| random(policy, 1));
    report("misses in no order, in small clusters", |policy| random(policy, 3));
}

/// Streams that take turns; each comes to the mark of its last plan.
fn upward(policy: &mut dyn Readahead, streams: u64) -> u64 {
    let mut marks: Vec<u64> = (0..streams).map(|n| (1 + n) * 1_000_003_000 + n * n * 77_777).collect();
    for mark in &mut marks {
        decide(policy, *mark, None, Trigger::Miss);
        *mark = marked(decide(policy, *mark + 1, Some(*mark), Trigger::Miss), *mark + 2);
    }
    for call in 0..CALLS {
        let mark = &mut marks[(call % streams) as usize];
        *mark = marked(decide(policy, *mark, Some(*mark - 1), Trigger::Mark), *mark + WINDOW);
    }
    CALLS
}

/// One stream downward.
fn backward(policy: &mut dyn Readahead) -> u64 {
    let mut page = 1 << 40;
    for _ in 0..3 {
        page -= 1;
        decide(policy, page, Some(page + 1), Trigger::Miss);
    }
    for _ in 0..CALLS {
        page = marked(decide(policy, page - 1, Some(page), Trigger::Mark), page - WINDOW);
    }
    CALLS
}

/// Readers of 4 pages each 1000, by turns.
fn strided(policy: &mut dyn Readahead, readers: u64) -> u64 {
    let mut at: Vec<u64> = (0..readers).map(|n| (1 + n) * 3_000_000_000 + n * n * 12_345).collect();
    for call in 0..CALLS {
        let page = &mut at[(call % readers) as usize];
        let plan = black_box(policy.on_access(
            Access::read(PageRange::new(*page, *page + 4), Some(PageIndex(*page - 900)), Trigger::Miss),
            View::of_nothing(WINDOW),
        ));
        *page = plan.mark.map_or(*page + 1000, |mark| mark.0 + 1000);
    }
    CALLS
}

/// Reads in no order, each followed by so many a little further on.
fn random(policy: &mut dyn Readahead, cluster: u64) -> u64 {
    let mut state = 1u64;
    for _ in 0..CALLS / cluster {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = state >> 24;
        for n in 0..cluster {
            decide(policy, page + n * 3, Some(page / 2), Trigger::Miss);
        }
    }
    CALLS / cluster * cluster
}

fn decide(policy: &mut dyn Readahead, page: u64, prev: Option<u64>, trigger: Trigger) -> Plan {
    let access = Access::read(PageRange::new(page, page + 1), prev.map(PageIndex), trigger);
    black_box(policy.on_access(black_box(access), View::of_nothing(WINDOW)))
}

fn marked(plan: Plan, otherwise: u64) -> u64 {
    plan.mark.map_or(otherwise, |mark| mark.0)
}

fn report(what: &str, mut run: impl FnMut(&mut dyn Readahead) -> u64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut policy = Policy::Stream.build(&Config::default());
            let start = nanoseconds_run();
            let calls = run(&mut *policy);
            (nanoseconds_run() - start) / calls as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:<48} {:>6.1} ns ({:.1}..{:.1})", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
}

/// Processor time of this thread, so that other load counts only as far as it takes caches away; time of day where the
/// system does not tell.
fn nanoseconds_run() -> f64 {
    static START: LazyLock<Clock> = LazyLock::new(Clock::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    run.unwrap_or_else(|| START.elapsed().as_nanos() as f64)
}
