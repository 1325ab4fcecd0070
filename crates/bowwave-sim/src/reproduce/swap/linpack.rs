//! Linpack with more memory than the machine has.
//!
//! Two matrices, as in a program that solves and then checks: `A`, kept for the check, and the copy
//! that is factorised in place. Threads generate `A`, copy it, factorise the copy panel by panel,
//! and read `A` again for the residual. The document says that the score did not change and that
//! startup and teardown gained. So the factorised copy fits in memory, and `A` does not.

use std::ops::Range;

use bowwave_core::Instant;
use bowwave_core::swap::pager::Touch;

use super::{Algorithm, GB, PAGE_BYTES, SCALE};
use crate::parallel;
use crate::reproduce::{Bar, Figure, Options, Outcome, Pair, ReproduceError};
use crate::swap::{self, Machine};

/// Pages of a matrix: three quarters of memory, so one fits and two do not. 24 GB are 56,755
/// unknowns.
const MATRIX: u64 = 24 * GB / PAGE_BYTES / SCALE;
/// 2/3 n^3 operations at 800 GFlop/s, the speed of two such processors: 152 s, independent of
/// swapping.
const SOLVE_NS: u64 = 152_000_000_000 / SCALE;
/// Panels of the factorisation; each touches everything to its right.
const PANELS: u64 = 16;
/// Pages of a block of columns.
const BLOCK: u64 = 108;
/// Time to generate a page of random numbers, and to copy or multiply one.
const GENERATE_NS: u64 = 2_000;
const COPY_NS: u64 = 400;

/// Threads. Not in the document; with this number the old algorithm takes as long as published.
const THREADS: u64 = 8;
/// Alternatives for the notes.
const OTHERS: [u64; 3] = [1, 16, 36];
const TABLE: (&str, &str) = ("001", "linpack");
const OWN: (&str, &str) = ("001", "linpack, bowwave's own");

/// Results.
#[derive(Clone, Debug)]
struct Linpack {
    /// At the documents' scale.
    elapsed_s: f64,
    hits: f64,
    gflops: f64,
}

/// The rows of the document's second table, and what it says below it.
pub(super) fn add(options: &Options, outcome: &mut Outcome) -> Result<(), ReproduceError> {
    let mut cases: Vec<(Algorithm, u64)> = Vec::new();
    let others = if options.notes { &OTHERS[..] } else { &[] };
    for &threads in [THREADS].iter().chain(others) {
        cases.extend(Algorithm::ALL.map(|algorithm| (algorithm, threads)));
    }
    let runs =
        parallel::try_map(&cases, parallel::workers(), |&(algorithm, threads)| linpack(algorithm, threads))?;
    figures(TABLE, [&runs[0], &runs[1]], &mut outcome.figures);
    figures(OWN, [&runs[0], &runs[2]], &mut outcome.figures);
    outcome.notes.push(
        "linpack: the document gives neither size, threads nor layout: two matrices of 24 GB, generated, copied, factorised and \
         read again, by threads that take blocks of columns in turn; the arithmetic is 152 s in all of them"
            .to_owned(),
    );
    for (runs, threads) in runs.chunks(Algorithm::ALL.len()).zip([THREADS].into_iter().chain(OTHERS)) {
        let [slots, addresses, own] = runs else { continue };
        outcome.notes.push(format!(
            "  {threads} threads: {:.0} s by slots, {:.0} s by addresses, {:.0} s bowwave's own; hits {:.1}, {:.1}, {:.1} %",
            slots.elapsed_s, addresses.elapsed_s, own.elapsed_s, slots.hits, addresses.hits, own.hits
        ));
    }
    Ok(())
}

fn figures(table: (&'static str, &'static str), [old, new]: [&Linpack; 2], figures: &mut Vec<Figure>) {
    let own = table == OWN;
    let judge = |figure: Figure| if own { figure.own() } else { figure };
    let bar = |ours, near| if own { ours } else { Bar::Within(near) };
    let (published, elapsed) = (Pair::new(393.49, 329.88), Pair::new(old.elapsed_s, new.elapsed_s));
    let shorter = bar(Bar::GainFrom(0.0, 0.838), 0.1);
    let figure = judge(Figure::new(table, "elapsed_time", "s", published, elapsed, shorter));
    figures.push(if own {
        figure
    } else {
        figure.fitted("the number of threads was set by the baseline's seconds")
    });
    if !own {
        figures.push(Figure::gain(table, "elapsed_time, gain", published, elapsed, 0.05));
    }
    let (hits, more) = (Pair::new(old.hits, new.hits), bar(Bar::GainFrom(1.0, f64::INFINITY), 0.05));
    figures.push(
        judge(Figure::new(table, "ra_hit", "%", Pair::new(86.21, 98.82), hits, more))
            .note("the baseline depends on how many threads share a processor's lists: see the notes"),
    );
    let score = Pair::new(old.gflops, new.gflops);
    let same = if own { Bar::GainFrom(0.99, f64::INFINITY) } else { Bar::Within(0.05) };
    let published = if own { Pair::default() } else { Pair::new(1.0, 1.0) };
    let score = if own { score } else { score.ratio() };
    let unit = if own { "GFlop/s" } else { "ratio" };
    figures.push(judge(Figure::new(table, "score", unit, published, score, same)).note(
        "printed as \"hasn't visible changes\". Ours gains: part of the copy is still out when the solver begins",
    ));
}

/// One run with `threads` threads.
fn linpack(algorithm: Algorithm, threads: u64) -> Result<Linpack, ReproduceError> {
    let mut machine = algorithm.machine()?;
    // Both in one mapping: the kernel merges adjacent ones.
    let region = machine.add_region(2 * MATRIX)?;
    let slice = |thread: u64, pages: u64| thread * pages / threads..(thread + 1) * pages / threads;
    each(&mut machine, threads, |thread| {
        Box::new(swap::pass(region, slice(thread, MATRIX), Touch::Store, GENERATE_NS, 0))
    });
    each(&mut machine, threads, |thread| {
        let blocks = blocks(thread, threads, 0..MATRIX);
        Box::new(blocks.flat_map(move |pages| swap::copy(region, pages, MATRIX, COPY_NS, 0)))
    });
    let start = machine.now();
    let touches: u64 = (0..PANELS).map(|panel| MATRIX - panel * MATRIX / PANELS).sum();
    for panel in 0..PANELS {
        let from = MATRIX + panel * MATRIX / PANELS;
        each(&mut machine, threads, |thread| {
            let blocks = blocks(thread, threads, from..2 * MATRIX);
            let work_ns = SOLVE_NS * threads / touches;
            Box::new(blocks.flat_map(move |pages| swap::pass(region, pages, Touch::Store, work_ns, 0)))
        });
    }
    let solved = machine.now().0 - start.0;
    each(&mut machine, threads, |thread| {
        let blocks = blocks(thread, threads, 0..MATRIX);
        Box::new(blocks.flat_map(move |pages| swap::pass(region, pages, Touch::Load, COPY_NS, 0)))
    });
    let unknowns = ((24 * GB / 8) as f64).sqrt();
    Ok(Linpack {
        elapsed_s: machine.now().0 as f64 * SCALE as f64 / 1e9,
        hits: machine.hit_ratio().unwrap_or(0.0) * 100.0,
        gflops: 2.0 / 3.0 * unknowns.powi(3) / (solved as f64 * SCALE as f64),
    })
}

/// A thread's blocks of pages: one in `threads`.
fn blocks(thread: u64, threads: u64, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let starts = pages.clone().step_by(BLOCK as usize).skip(thread as usize).step_by(threads as usize);
    starts.map(move |start| start..pages.end.min(start + BLOCK))
}

/// All threads do their parts, then wait at a barrier.
fn each(
    machine: &mut Machine,
    threads: u64,
    part: impl Fn(u64) -> Box<dyn Iterator<Item = swap::Access> + Send>,
) {
    (0..threads).for_each(|thread| machine.add_process(part(thread)));
    machine.run(Instant(u64::MAX));
}
