//! Generated traces match their patterns.

use bowwave_trace::generate::{Pattern, Spec};

/// The blocks of a trace over `blocks` blocks.
fn blocks(pattern: Pattern, blocks: u64, rows: u64) -> Vec<u64> {
    let spec = Spec { pattern, rows, file_bytes: blocks * 4096 + 17, seed: 3, ..Spec::default() };
    let rows: Vec<_> = spec.generate().expect("in bounds").collect();
    assert!(rows.iter().zip(0..).all(|(row, index)| row.time_ns == index * 100_000 && row.length == 4096));
    assert!(rows.iter().all(|row| row.offset + row.length <= spec.file_bytes));
    rows.iter().map(|row| row.offset / 4096).collect()
}

#[test]
fn fixed_patterns_visit_the_blocks_in_their_order() {
    assert_eq!(blocks(Pattern::Sequential, 3, 5), [0, 1, 2, 0, 1]);
    assert_eq!(blocks(Pattern::Backward, 3, 5), [2, 1, 0, 2, 1]);
    assert_eq!(blocks(Pattern::Interleaved { streams: 2 }, 5, 6), [0, 2, 1, 3, 0, 2]);
    assert_eq!(blocks(Pattern::Strided { stride_bytes: 8192 }, 5, 7), [0, 2, 4, 1, 3, 0, 2]);
    assert_eq!(blocks(Pattern::Strided { stride_bytes: u64::MAX }, 2, 4), [0, 1, 0, 1]);
    let phases = Pattern::Phases(vec![Pattern::Sequential, Pattern::Backward]);
    assert_eq!(blocks(phases, 4, 5), [0, 1, 2, 3, 2]);
}

#[test]
fn random_reads_are_spread_evenly() {
    let mut counts = [0u32; 8];
    for block in blocks(Pattern::Random, 8, 80_000) {
        counts[block as usize] += 1;
    }
    assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
}

#[test]
fn clusters_are_runs_of_a_quarter_to_the_whole_length() {
    let trace = blocks(Pattern::Clustered { cluster_bytes: 16 * 4096 }, 1 << 20, 20_000);
    let runs: Vec<usize> = trace.chunk_by(|a, b| a + 1 == *b).map(<[u64]>::len).collect();
    let whole = &runs[..runs.len() - 1];
    assert!(whole.iter().all(|run| (4..=16).contains(run)), "{whole:?}");
    let mean = whole.iter().sum::<usize>() as f64 / whole.len() as f64;
    assert!((mean - 10.0).abs() < 0.5, "{mean}");
}

#[test]
fn a_database_has_hot_regions_and_some_adjacent_reads() {
    let trace = blocks(Pattern::Oltp { exponent: 1.0 }, 64_000, 200_000);
    let mut regions = vec![0u32; 64];
    for block in &trace {
        regions[(block / 1000) as usize] += 1;
    }
    regions.sort_unstable();
    // Of 64 ranks, the first has 1 of 4.74 (their harmonic number), the last 1 of 304.
    assert!((40_000..45_000).contains(&regions[63]) && (550..780).contains(&regions[0]), "{regions:?}");
    let pairs = trace.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() as f64 / trace.len() as f64;
    assert!((pairs - 1.0 / 9.0).abs() < 0.01, "{pairs}");
}

#[test]
fn zipf_reads_few_blocks_most_of_the_time_and_scatters_them() {
    let trace = blocks(Pattern::Zipf { exponent: 1.0 }, 100_000, 100_000);
    let mut counts = vec![0u32; 100_000];
    for &block in &trace {
        counts[block as usize] += 1;
    }
    let neighbours = trace.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
    assert!(neighbours < 100, "{neighbours}");
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // The harmonic number of 100,000 is 12.09.
    assert!(counts[0].abs_diff(8271) < 500 && counts[1].abs_diff(4135) < 350, "{:?}", &counts[..4]);
}

#[test]
fn a_seed_determines_the_trace() {
    let draw = |seed| {
        Spec { pattern: Pattern::Random, seed, rows: 50, ..Spec::default() }.generate().expect("in bounds")
    };
    assert!(draw(1).eq(draw(1)));
    assert!(!draw(1).eq(draw(2)));
}

#[test]
fn out_of_bounds_fields_are_named() {
    let field = |spec: Spec| spec.generate().expect_err("out of bounds").field;
    let pattern = |pattern| Spec { pattern, ..Spec::default() };
    assert_eq!(field(Spec { block_bytes: 0, ..Spec::default() }), "block_bytes");
    assert_eq!(field(Spec { file_bytes: 4095, ..Spec::default() }), "file_bytes");
    assert_eq!(field(Spec { file_bytes: u64::MAX, block_bytes: 1, ..Spec::default() }), "file_bytes");
    assert_eq!(field(pattern(Pattern::Interleaved { streams: 0 })), "streams");
    assert_eq!(field(pattern(Pattern::Strided { stride_bytes: 0 })), "stride_bytes");
    assert_eq!(field(pattern(Pattern::Clustered { cluster_bytes: 0 })), "cluster_bytes");
    for exponent in [-0.1, 10.1, f64::NAN] {
        assert_eq!(field(pattern(Pattern::Zipf { exponent })), "exponent");
        assert_eq!(field(pattern(Pattern::Oltp { exponent })), "exponent");
    }
    assert_eq!(field(pattern(Pattern::Phases(Vec::new()))), "phases");
    assert_eq!(field(pattern(Pattern::Phases(vec![Pattern::Phases(vec![Pattern::Random])]))), "phases");
}
