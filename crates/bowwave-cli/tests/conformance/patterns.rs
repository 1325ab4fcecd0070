//! The access patterns, by name.

use std::collections::BTreeSet;

use bowwave_core::{Advice, Pattern as Use};

use super::script::{Op, Script, Target};

/// An access pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) name: &'static str,
    target: Target,
    write: fn(&mut Script),
    /// Play it only with single-page folios: large ones lead to known differences.
    pub(super) single: bool,
}

impl Pattern {
    /// Its script for windows of `ra` pages.
    pub(super) fn script(&self, ra: u64) -> Script {
        let mut script = Script::new(ra, self.target);
        (self.write)(&mut script);
        script
    }
}

/// Every pattern, in the order of play. Lengths scale with the window (`ra`), so that each reaches
/// its steady state.
#[rustfmt::skip]
pub(super) const PATTERNS: &[Pattern] = &[
    on_large("sequential-1", |s| { s.sequential(0, 1, 6 * s.ra); }),
    on_large("sequential-4", |s| { s.sequential(0, 4, 6 * s.ra); }),
    on_large("sequential-16", |s| { s.sequential(0, 16, 8 * s.ra); }),
    on_large("sequential-100", |s| { s.sequential(0, 100, 8 * s.ra + 400); }),
    on_large("sequential-1000", |s| { s.sequential(0, 1000, 4 * s.ra + 5000); }),
    on_large("middle-1", |s| { s.sequential(1000, 1, 6 * s.ra); }),
    on_large("middle-4", |s| { s.sequential(777, 4, 6 * s.ra); }),
    on_large("middle-100", |s| { s.sequential(777, 100, 8 * s.ra + 400); }),
    on_large("one-large-read", |s| { s.read(777, s.ra * 9 / 2); }),
    on_large("random-1", |s| scattered(s, 1, 400)),
    on_large("random-4", |s| scattered(s, 4, 300)),
    on_large("random-64", |s| scattered(s, 64, 200)),
    on_large("random-dense", |s| {
        for _ in 0..400 { let (page, count) = (2000 + s.random(300), 1 + s.random(3)); s.read(page, count); }
    }),
    on_large("random-runs", |s| {
        for _ in 0..60 { let (page, count) = (s.random(60_000), 1 + s.random(40)); s.sequential(page, 1, count); }
    }),
    on_large("interleaved-2", |s| streams(s, 2, 1)),
    on_large("interleaved-2-from-start", |s| { s.interleaved(&[0, 10_000], 1, 4 * s.ra); }),
    on_large("interleaved-3", |s| streams(s, 3, 2)),
    on_large("interleaved-5", |s| streams(s, 5, 3)),
    on_large("interleaved-8", |s| streams(s, 8, 4)),
    // 2 streams 60 pages apart.
    on_large("interleaved-close", |s| { s.interleaved(&[3000, 3060], 1, 4 * s.ra); }),
    on_large("two-handles", |s| {
        let starts = s.starts(2);
        for round in 0..3 * s.ra { s.through(0).read(starts[0] + round, 1).through(1).read(starts[1] + round, 1); }
    }),
    // 2 handles read the same pages, one just behind the other.
    on_large("two-handles-in-step", |s| {
        for round in 0..3 * s.ra { s.through(0).read(500 + round, 1).through(1).read(500 + round, 1); }
    }),
    on_large("stride-2", |s| strides(s, 2, 1)),
    on_large("stride-8", |s| strides(s, 8, 1)),
    on_large("stride-5-of-2", |s| strides(s, 5, 2)),
    on_large("backward-1", |s| backward(s, 1)),
    on_large("backward-4", |s| backward(s, 4)),
    on_large("unaligned-10000", |s| unaligned(s, 0, 10_000)),
    on_large("unaligned-1000", |s| unaligned(s, 50 * 4096, 1000)),
    on_large("unaligned-middle", |s| unaligned(s, 12_345_678, 6000)),
    on_large("unaligned-skips", |s| {
        for read in 0..s.ra * 2 { s.read_bytes(9_000_000 + read * 13_000, 10_000); }
    }),
    // Each read starts again 10 pages into the last one.
    on_large("retried", |s| {
        for read in 0..s.ra { s.read(300 + read * 10, 40); }
    }),
    on_large("reread", |s| { let n = 3 * s.ra; s.sequential(100, 4, n).sequential(100, 4, n); }),
    on_large("reread-with-holes", |s| {
        s.sequential(0, 8, 4 * s.ra);
        for hole in 0..12 { let at = hole * s.ra / 3 + 5; s.drop_pages(at, 1 + hole * 3 % 11); }
        s.sequential(0, 4, 4 * s.ra);
    }),
    // The page after each read is dropped, its mark with it.
    on_large("reread-marks-dropped", |s| {
        for page in 0..3 * s.ra { s.read(page, 1).drop_pages(page + 1, 1); }
    }),
    // A stream runs into cached pages.
    on_large("islands", |s| {
        let (ra, other) = (s.ra, 1);
        for island in 0..6 { s.through(other).read(1500 + island * ra * 2 / 3, 1 + island * 5); }
        s.through(0).sequential(1400, 1, 5 * ra);
    }),
    // Reads after cached runs of growing length, through a fresh handle.
    on_large("history", |s| {
        for run in 1..24 {
            let at = 1000 + run * (s.ra + 50);
            s.through(1).advise(at, run * 2, Advice::WillNeed).through(0).read(at + run * 2, 1 + run % 4).read(50_000, 1);
        }
    }),
    // A fresh handle continues where another has read from the start.
    on_large("history-from-start", |s| {
        let ra = s.ra;
        s.through(0).read(0, 3).drop_pages(3, 4 * ra).through(1).read(3, 1).drop_pages(4, 4 * ra).through(2).read(4, 1);
        s.through(3).sequential(4, 3, 2 * ra);
    }),
    // A read after exactly one window of cached pages.
    on_large("history-of-a-window", |s| {
        let ra = s.ra;
        s.through(1).advise(0, ra, Advice::WillNeed).through(0).read(ra, 1);
        s.through(1).advise(9000, ra, Advice::WillNeed).through(2).read(9000 + ra, 1);
        s.through(1).advise(20_000, ra - 1, Advice::WillNeed).through(3).read(20_000 + ra - 1, 1);
    }),
    on_large("advice-sequential", |s| { let n = 10 * s.ra; s.advise_all(Advice::Sequential).sequential(0, 2, n); }),
    on_large("advice-sequential-normal", |s| {
        let n = 5 * s.ra;
        s.advise_all(Advice::Sequential).sequential(400, 4, n).advise_all(Advice::Normal).sequential(400 + n, 4, n);
    }),
    on_large("advice-random", |s| { s.advise_all(Advice::Random).sequential(0, 3, 300).read(5000, 1500); }),
    on_large("advice-random-later", |s| {
        let ra = s.ra;
        s.sequential(0, 2, 20).advise_all(Advice::Random).sequential(20, 2, ra + 40);
        s.advise_all(Advice::Normal).sequential(60 + ra, 2, 2 * ra);
    }),
    on_large("advice-willneed", |s| {
        s.advise(10, 5, Advice::WillNeed).advise(1000, 3000, Advice::WillNeed).advise(1010, 10, Advice::WillNeed);
        let n = 2 * s.ra;
        s.sequential(0, 3, 60).sequential(990, 4, n);
    }),
    on_large("advice-dontneed", |s| {
        for read in 0..3 * s.ra / 4 { s.read(read * 4, 4).drop_pages(read * 4, 4); }
    }),
    on_large("end-1", |s| { let from = s.pages - 2 * s.ra; s.sequential(from, 1, 2 * s.ra); }),
    on_large("end-16", |s| {
        let from = s.pages - s.ra - 100;
        s.sequential(from, 16, s.ra + 160).sequential(0, 4, 40);
    }),
    on("odd-file", Target::Odd, |s| { s.sequential(0, 5, 1010); }),
    on("odd-file-large-reads", Target::Odd, |s| { s.sequential(0, 300, 1200); }),
    on("odd-file-tail", Target::Odd, |s| {
        s.read_bytes(4_095_000, 10_000).drop_pages(995, 5).read_bytes(4_090_000, 10_000).read_bytes(4_096_000, 200).read(980, 100);
    }),
    on("tiny-file", Target::Tiny, |s| {
        s.read(0, 16).drop_pages(1, 1).read(1, 1).drop_pages(0, 3).read(2, 1).read(0, 1);
    }),
    on_large("mapped-sequential", |s| { s.touches(100, 1, 5 * s.ra.min(512)); }),
    on_large("mapped-from-start", |s| { s.touches(0, 1, 5 * s.ra.min(512)); }),
    on_large("mapped-backward", |s| {
        for touch in 0..3 * s.ra.min(512) { s.touch(9000 - touch); }
    }),
    on_large("mapped-stride-16", |s| { s.touches(50, 16, 200); }),
    // Until read-around ends.
    on_large("mapped-random", |s| {
        for _ in 0..160 { let page = s.random(s.pages); s.touch(page); }
    }),
    on_large("mapped-random-then-hits", |s| {
        for far in 0..140 { s.touch(300 * far + 299); }
        let around = 300 * 50 + 300 - s.ra.min(30) / 2;
        s.touches(around, 1, 12);
        for far in 0..40 { s.touch(300 * far + 150); }
        s.touches(around + 12, 1, s.ra.min(30) / 2 - 2);
        for far in 0..60 { s.touch(45_000 + 300 * far); }
    }),
    on_large("mapped-advised-sequential", |s| {
        let n = s.ra.min(512);
        s.map_advise(Use::Sequential).touches(0, 1, 4 * n).touches(20_000, 1, 2 * n);
    }),
    on_large("mapped-advised-random", |s| {
        let n = s.ra.min(512);
        s.touches(4000, 1, 4).map_advise(Use::Random).touches(4004, 1, n).map_advise(Use::Normal).touches(6000, 1, n);
    }),
    on_large("mapped-and-read", |s| {
        for turn in 0..2 * s.ra.min(512) { s.read(700 + turn, 1).touch(30_000 + turn); }
    }),
    on("mapped-odd-file", Target::Odd, |s| { s.touches(900, 1, 101); }),
    // Every operation at random, through 3 handles.
    mix("mix-1", |s| mixed(s, 1, 0, 4000)),
    mix("mix-2", |s| mixed(s, 2, 0, 4000)),
    mix("mix-3", |s| mixed(s, 3, 5000, 700)),
    mix("mix-4", |s| { let from = s.pages - 600; mixed(s, 4, from, 600); }),
    Pattern { target: Target::Odd, ..mix("mix-5", |s| mixed(s, 5, 0, 1000)) },
];

const fn on_large(name: &'static str, write: fn(&mut Script)) -> Pattern {
    on(name, Target::Large, write)
}

const fn on(name: &'static str, target: Target, write: fn(&mut Script)) -> Pattern {
    Pattern { name, target, write, single: false }
}

const fn mix(name: &'static str, write: fn(&mut Script)) -> Pattern {
    Pattern { single: true, ..on_large(name, write) }
}

/// Every operation, in random order, within `span` pages from `from`.
fn mixed(s: &mut Script, seed: u64, from: u64, span: u64) {
    const HANDLES: usize = 3;
    let mut cursors = [from * 4096; HANDLES];
    for _ in 0..seed * 1000 {
        s.random(2);
    }
    for _ in 0..1500 {
        let handle = s.random(HANDLES as u64) as usize;
        s.through(handle);
        let any = from + s.random(span);
        let few = 1 + s.random(12);
        let cursor = cursors[handle];
        let next = match s.random(100) {
            0..30 => cursor.next_multiple_of(4096) + few * 4096,
            30..42 => cursor + few * 1700,
            42..50 => (any + few) * 4096,
            50..53 => (any + 30 * few) * 4096,
            kind => {
                mixed_other(s, kind, any, few, from + span);
                continue;
            }
        };
        // Past the end they start over.
        let start = if next <= cursor || next - cursor > 12 * 4096 { any * 4096 } else { cursor };
        cursors[handle] = if next > (from + span) * 4096 { any * 4096 } else { next };
        s.read_bytes(start, next.max(start + 1) - start);
    }
}

/// An operation other than a sequential read.
fn mixed_other(s: &mut Script, kind: u64, any: u64, few: u64, end: u64) {
    let advice = [Advice::Normal, Advice::Sequential, Advice::Random, Advice::Normal];
    let uses = [Use::Normal, Use::Sequential, Use::Random, Use::Normal];
    match kind {
        50..65 => s.read(any, few),
        65..75 => s.touches(any, 1, few.min(end.min(s.pages) - any)),
        75..78 => s.touch(any),
        78..88 => s.drop_pages(any, few * few),
        88..93 => s.advise(any, few * 4, Advice::WillNeed),
        93..97 => {
            let pick = s.random(4) as usize;
            s.advise_all(advice[pick])
        }
        _ => {
            let pick = s.random(4) as usize;
            s.map_advise(uses[pick])
        }
    };
}

fn scattered(s: &mut Script, each: u64, reads: u64) {
    for _ in 0..reads {
        let page = s.random(s.pages - each);
        s.read(page, each);
    }
}

fn streams(s: &mut Script, count: u64, each: u64) {
    let starts = s.starts(count);
    let rounds = (4 * s.ra / each).min(6000 / each);
    s.interleaved(&starts, each, rounds);
}

fn strides(s: &mut Script, step: u64, each: u64) {
    for read in 0..200 {
        s.read(read * step, each);
    }
    for read in 0..200 {
        s.read(10_000 + read * step, each);
    }
}

fn backward(s: &mut Script, each: u64) {
    let from = 4000;
    for read in 0..300 {
        s.read(from - read * each, each);
    }
    for read in (0..60).rev() {
        s.read(read * each, each);
    }
}

fn unaligned(s: &mut Script, from: u64, each: u64) {
    for read in 0..5 * s.ra * 4096 / each {
        s.read_bytes(from + read * each, each);
    }
}

#[test]
fn patterns_have_distinct_names_and_stay_in_the_file() {
    let names: BTreeSet<&str> = PATTERNS.iter().map(|pattern| pattern.name).collect();
    assert_eq!(names.len(), PATTERNS.len());
    for (pattern, ra) in PATTERNS.iter().flat_map(|pattern| [32, 128, 512, 2048].map(|ra| (pattern, ra))) {
        let script = pattern.script(ra);
        assert!(!script.ops.is_empty(), "{}", pattern.name);
        for op in &script.ops {
            let inside = match *op {
                // Reads may start a little past the end: one of the patterns.
                Op::Read { offset, length, .. } => offset < pattern.target.bytes() + 500 * 4096 && length > 0,
                Op::Touch { page, .. } => page < script.pages,
                Op::Advise { pages, .. } => pages.start.0 <= script.pages,
                Op::MapAdvise { .. } => true,
            };
            assert!(inside, "{} at {ra}: {op:?}", pattern.name);
        }
    }
}
