//! What every trace of the family holds to.

use std::collections::HashSet;

use super::*;

const SEEDS: std::ops::Range<u64> = 0..400;

#[test]
fn same_seed_gives_same_trace_and_others_differ() {
    let mut seen = HashSet::new();
    for seed in SEEDS {
        let family = Family::new(seed);
        assert_eq!(family, Family::new(seed));
        assert!(seen.insert(format!("{:?}", family.reads())), "seed {seed} repeats another");
    }
}

#[test]
fn traces_are_short_enough_to_replay_and_long_enough_to_learn_from() {
    for seed in SEEDS {
        let family = Family::new(seed);
        let reads = family.reads();
        assert!((50..=6000).contains(&reads.len()), "seed {seed}: {} reads", reads.len());
        let bytes: u64 = reads.iter().map(|read| read.length).sum();
        assert!(bytes <= 1 << 30, "seed {seed}: {bytes} bytes, {}", family.description());
        let end = reads.iter().map(|read| read.offset + read.length).max().unwrap_or_default();
        assert!(end <= 1 << 44, "seed {seed} ends at {end}: {}", family.description());
        assert!(reads.iter().all(|read| read.length > 0), "seed {seed}");
    }
}

#[test]
fn every_production_of_the_grammar_occurs() {
    let all: Vec<Family> = SEEDS.map(Family::new).collect();
    let words = [
        "upward",
        "downward",
        "up and down in turn",
        "upward or downward",
        "anywhere",
        "from the last",
        "power law",
        "with gaps",
        "deltas that repeat",
        "single requests",
        "one of eight",
        "% of blocks",
        "late",
        "% of each cluster",
        "shuffled",
        "sorted",
        "with replacement",
        "without replacement",
        "columns of",
        "again and again",
        "headers of",
        "files of",
        "in order of names",
        "reverse order",
        "in turn through",
        "random order through",
        "different paces",
        "at the same time",
        "part of the file",
        "the same range",
        "file of its own",
        "think time",
        "reads anywhere",
        "; then ",
    ];
    for word in words {
        assert!(all.iter().any(|family| family.description().contains(word)), "no trace has: {word}");
    }
    let readers = |family: &Family| family.reads().iter().map(|read| read.pid).max().unwrap_or_default();
    assert!(all.iter().any(|family| readers(family) > 32));
    assert!(all.iter().filter(|family| readers(family) == 1).count() > 200, "one process is usual");
}

#[test]
fn rows_and_records_hold_the_reads() {
    for seed in [1, 2, 3, 50] {
        let family = Family::new(seed);
        let trace = family.trace().expect("memory takes all");
        let rows: Vec<Record> = trace.records().collect::<Result<_, _>>().expect("good rows");
        assert_eq!(rows, family.records().collect::<Vec<_>>());
        assert_eq!(rows.len(), family.reads().len());
    }
}

#[test]
fn held_out_seeds_follow_from_the_hash_alone() {
    let seeds = |hash| (0..1000).map(|number| held_out(hash, number)).collect::<HashSet<_>>();
    assert_eq!(seeds("2abaf8d6a4c8"), seeds("2abaf8d6a4c8"));
    assert_eq!(seeds("2abaf8d6a4c8").len(), 1000);
    assert!(seeds("2abaf8d6a4c8").is_disjoint(&seeds("2abaf8d6a4c9")));
    assert!(seeds("").iter().all(|&seed| seed >= DEVELOPMENT));
}
