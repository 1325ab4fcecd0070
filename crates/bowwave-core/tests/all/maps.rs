//! Readahead of mapped files, by the pages, requests and waits that touches cost.
#![expect(clippy::print_stdout, reason = "the figures are what one wants to know")]

use crate::map_model::{Far, touch};
use crate::rng::Rng;
use bowwave_core::{Clusters, Config, Policy, RangeConfig};

const FAR: Far = Far { request_ns: 20_000_000, page_ns: 16_000 };
const NEAR: Far = Far { request_ns: 80_000, page_ns: 1300 };

fn config(policy: Policy, ra_pages: u32) -> Config {
    Config { policy, ra_pages, fill_pages_max: 64, frames: 1 << 20, ..Config::default() }
}

/// `each` clusters of 64 to 256 pages for each thread, one in each 2 MiB of a GiB or more, in
/// random order, each read upward.
fn clusters(threads: u64, each: u64, seed: u64) -> (u64, Vec<Vec<u64>>) {
    let slots = (threads * each).max(512);
    let mut rng = Rng(seed);
    let mut order: Vec<u64> = (0..slots).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let threads = order.chunks(each as usize).take(threads as usize).map(|mine| {
        mine.iter()
            .flat_map(|slot| {
                let pages = 64 + rng.below(193);
                let start = slot * 512 + rng.below(512 - pages);
                start..start + pages
            })
            .collect()
    });
    (slots * 512, threads.collect())
}

/// Waits for each cluster, and pages read for each page touched.
fn cost(policy: Policy, threads: u64, each: u64) -> (f64, f64) {
    cost_by(config(policy, 256), threads, each)
}

fn cost_by(config: Config, threads: u64, each: u64) -> (f64, f64) {
    let policy = config.policy;
    let (file, of) = clusters(threads, each, 1);
    let total = touch(config, FAR, file, of);
    let cost = (total.waits as f64 / (threads * each) as f64, total.pages as f64 / total.touches as f64);
    println!("{policy}, {threads} threads, {each} clusters each: {cost:.2?}, {total:?}");
    cost
}

#[test]
fn cluster_lengths_learned_by_one_thread_apply_to_all() {
    // Alone, a thread waits three or four times for its first cluster, and a few times for each
    // wider one.
    for (threads, each, most) in [(1, 1000, 1.05), (32, 100, 1.05), (1, 13, 1.2), (32, 13, 1.2)] {
        let (waits, pages) = cost(Policy::Range, threads, each);
        assert!(waits <= most && pages <= 1.6, "{threads} threads: {waits:.2} waits, {pages:.2} pages");
    }
}

#[test]
fn ranges_of_document_003_are_available() {
    let range = RangeConfig { clusters: Clusters::Fixed, ..RangeConfig::default() };
    let (waits, pages) = cost_by(Config { range, ..config(Policy::Range, 256) }, 32, 13);
    assert!((6.0..7.0).contains(&waits) && pages <= 1.65, "{waits:.2} waits, {pages:.2} pages");
}

#[test]
fn streams_of_many_threads_count_as_clusters_and_keep_their_readahead() {
    for (threads, each) in [(1, 13), (1, 1000), (4, 100), (32, 13), (32, 100), (64, 8)] {
        let (waits, pages) = cost(Policy::Stream, threads, each);
        assert!(waits <= 1.55 && pages <= 1.8, "{threads} threads: {waits:.2} waits, {pages:.2} pages");
    }
}

#[test]
fn clusters_that_become_narrow_are_adapted_to() {
    const WIDE: u64 = 20;
    const NARROW: u64 = 280;
    for policy in [Policy::Range, Policy::Stream] {
        for (width, most) in [(1, 9), (8, 25), (16, 28), (32, 48)] {
            let mut rng = Rng(3);
            let pages = (0..WIDE + NARROW).flat_map(|n| {
                let width = if n < WIDE { 200 + rng.below(57) } else { width };
                let start = n * 48_271 % 4096 * 512 + rng.below(512 - width);
                start..start + width
            });
            let cost = touch(config(policy, 256), FAR, 4096 * 512, vec![pages.collect()]);
            let narrow = (cost.pages - WIDE * 228) / NARROW;
            println!("{policy}, clusters of {width}: {narrow} pages each, {cost:?}");
            assert!(narrow <= most, "{policy}: {narrow} pages for each of {width}");
            assert!(cost.waits <= 2 * (WIDE + NARROW), "{policy}: {cost:?}");
        }
    }
}

#[test]
fn random_touches_beside_clusters_are_distinguished() {
    for policy in [Policy::Range, Policy::Stream] {
        let (file, mut of) = clusters(32, 13, 1);
        let mut rng = Rng(5);
        of[7] = (0..300).map(|_| rng.below(file)).collect();
        let beside = touch(config(policy, 256), FAR, file, of.clone());
        of[7].clear();
        let without = touch(config(policy, 256), FAR, file, of);
        let more = beside.pages.saturating_sub(without.pages);
        println!("{policy}: {more} pages more for 300 touches");
        assert!(more < 300 * 8, "{policy}: {beside:?}, and without {without:?}");
    }
}

#[test]
fn a_mapped_file_touched_sequentially_is_read_far_ahead_with_few_faults() {
    const PAGES: u64 = 1 << 16;
    for (ra_pages, store, waits, faults) in [(32, NEAR, 20, PAGES / 40), (256, FAR, 40, PAGES / 60)] {
        let cost = touch(config(Policy::Stream, ra_pages), store, PAGES, vec![(0..PAGES).collect()]);
        println!("{ra_pages}: {cost:?}");
        assert!(cost.waits <= waits && cost.faults <= faults, "{cost:?}");
        assert_eq!((cost.pages, cost.touches), (PAGES, PAGES));
    }
}
