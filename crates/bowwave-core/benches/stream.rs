//! What a decision of `stream` costs, pattern by pattern: only misses and marks, as readers come to them.
//!
//! `cargo bench -p bowwave-core --bench stream` prints medians of processor time over rounds with the lowest and the highest.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod patterns;

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant as Clock;

use bowwave_core::{Config, FileMemory, Plans, Policy, View};

const ROUNDS: usize = 31;
const CALLS: u64 = 200_000;

fn main() {
    for streams in [1, 8, 32, 64, 1000] {
        report(&format!("marks of {streams} streams read upward"), |decide| {
            patterns::upward(streams, CALLS, decide);
        });
    }
    report("marks of a stream read backward", |decide| patterns::backward(CALLS, decide));
    for readers in [1, 8] {
        report(&format!("marks of {readers} readers at an even distance"), |decide| {
            patterns::strided(readers, CALLS, decide);
        });
    }
    report("misses in no order", |decide| patterns::random(1, CALLS, decide));
    report("misses in no order, in small clusters", |decide| patterns::random(3, CALLS, decide));
}

fn report(what: &str, run: impl Fn(&mut patterns::Decide<'_>)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut policy = Policy::Stream.build(&Config::default(), &mut FileMemory::default());
            let mut plans = Plans::default();
            let start = nanoseconds_run();
            run(&mut |access| {
                plans.clear();
                policy.on_access(black_box(access), View::of_nothing(patterns::WINDOW), &mut plans);
                black_box(&plans).iter().next().and_then(|plan| plan.mark)
            });
            (nanoseconds_run() - start) / CALLS as f64
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
