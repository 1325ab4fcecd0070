//! How fast a trace replays: requests and pages a second through `Cache::access_instant`, with the
//! miss ratio. Processor time.
//!
//! `cargo bench -p bowwave-core --bench replay` replays a made-up trace of a skewed load over a
//! million pages. `cargo bench -p bowwave-core --bench replay -- FILE FRAMES…` replays a file of
//! lines `first_page pages …` (as ARC's `.lis`), each page a request of its own, with caches of so
//! many frames. `--only TEXT` runs only what has it in its name.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::LazyLock;
use std::time::Instant as Clock;

use bowwave_core::{
    Cache, Config, Eviction, FileId, HandleId, Instant, PageAccess, PageCount, PageRange, Policy, ReadOutcome,
};

const ROUNDS: usize = 9;

fn main() {
    let mut arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let only = arguments.iter().position(|argument| argument == "--only").map_or_else(String::new, |place| {
        arguments.drain(place..).nth(1).expect("a part of a name behind --only")
    });
    let replay = |what: &str, trace: &[PageRange], configure: &dyn Fn(&mut Config)| {
        if what.contains(&only) {
            replay(what, trace, configure);
        }
    };
    let (trace, frames) = match arguments.split_first() {
        Some((path, frames)) => {
            (trace_of(path), frames.iter().map(|text| text.parse().expect("a number of frames")).collect())
        }
        None => (skewed(), vec![10_000, 100_000]),
    };
    let pages: Vec<PageRange> =
        trace.iter().flat_map(|range| (range.start.0..range.end.0).map(single)).collect();
    for &frames in &frames {
        for eviction in Eviction::ALL {
            replay(&format!("{eviction}, {frames} frames, no readahead, page by page"), &pages, &|config| {
                (config.frames, config.eviction, config.policy) = (frames, eviction, Policy::None);
            });
        }
    }
    for policy in [Policy::OnDemand, bowwave_baselines::LEGACY] {
        replay(&format!("unlimited, {policy}"), &trace, &|config| config.policy = policy);
    }
    let sequential: Vec<PageRange> = (0..4_000_000).map(single).collect();
    for policy in [Policy::OnDemand, bowwave_baselines::LEGACY] {
        replay(&format!("sequential, 100000 frames, {policy}, page by page"), &sequential, &|config| {
            (config.frames, config.policy) = (100_000, policy);
        });
    }
}

fn single(page: u64) -> PageRange {
    PageRange::new(page, page + 1)
}

/// Prints the median of several rounds, each with a fresh cache.
fn replay(what: &str, trace: &[PageRange], configure: impl Fn(&mut Config)) {
    let mut seconds = Vec::new();
    let mut stats = bowwave_core::Stats::default();
    let mut hits = 0;
    for _ in 0..ROUNDS {
        let mut config = Config::default();
        configure(&mut config);
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FileId(0), PageCount(1 << 52));
        cache.open_handle(HandleId(0), FileId(0));
        hits = 0u64;
        let start = seconds_run();
        for &range in trace {
            let outcome = cache.access_instant(Instant(0), PageAccess::read(HandleId(0), range), &mut ());
            hits += u64::from(outcome == Ok(ReadOutcome::Hit));
        }
        seconds.push(seconds_run() - start);
        stats = cache.stats();
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[ROUNDS / 2];
    let (requests, accesses) = (trace.len() as f64, stats.accesses as f64);
    println!(
        "{what:<55} {:>6.1} M requests/s ({:.1}..{:.1}) {:>6.1} M pages/s, miss ratio {:.4}",
        requests / median / 1e6,
        requests / seconds[ROUNDS - 1] / 1e6,
        requests / seconds[0] / 1e6,
        accesses / median / 1e6,
        1.0 - hits as f64 / requests,
    );
}

/// Processor time of this thread, so that other load counts only as far as it takes caches away;
/// time of day where the system does not tell.
fn seconds_run() -> f64 {
    static START: LazyLock<Clock> = LazyLock::new(Clock::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    run.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn trace_of(path: &str) -> Vec<PageRange> {
    let text = std::fs::read_to_string(path).expect("a trace that can be read");
    let numbers = text.lines().map(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().expect("a whole number"));
        let start = fields.next().expect("a first page");
        PageRange::new(start, start + fields.next().expect("a number of pages"))
    });
    numbers.collect()
}

/// Two million requests: half for a hot tenth of a million pages, by steps, and the others anywhere
/// in short runs.
fn skewed() -> Vec<PageRange> {
    let mut state = 1u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut trace = Vec::new();
    while trace.len() < 2_000_000 {
        if random(2) == 0 {
            let reach = 100_000 >> random(8);
            let start = random(reach);
            trace.push(PageRange::new(start, start + 1 + random(4)));
        } else {
            let start = random(1_000_000);
            trace.extend((start..start + 1 + random(8)).map(single));
        }
    }
    trace
}
