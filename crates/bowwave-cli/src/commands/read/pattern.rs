//! Orders in which the bytes of a file are read.

use bowwave_trace::generate::Random;
use clap::ValueEnum;

/// The order of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Pattern {
    /// From the first byte to the last
    Seq,
    /// Blocks at random, with replacement
    Random,
    /// A block every --stride bytes
    Stride,
    /// From the last block to the first
    Backward,
    /// Several sequential streams in turn, on one handle
    Interleaved,
    /// Clusters of 256 to 1024 KiB in random order, each read from front to back
    Clustered,
}

/// A pattern with its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) pattern: Pattern,
    /// Bytes of a read, not 0.
    pub(super) block: u64,
    /// Bytes from the start of a block to that of the next, not 0.
    pub(super) stride: u64,
    /// Streams, not 0.
    pub(super) streams: u64,
}

/// Bytes `start..end` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Offset and length of a read.
pub(super) type Access = (u64, u64);

impl Pattern {
    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Random => "random",
            Self::Stride => "stride",
            Self::Backward => "backward",
            Self::Interleaved => "interleaved",
            Self::Clustered => "clustered",
        }
    }

    /// Whether it ends only by the number of bytes to read.
    pub(super) fn is_sampling(self) -> bool {
        matches!(self, Self::Random | Self::Clustered)
    }
}

impl Span {
    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Splits into `count` parts of whole blocks, except for the last; may return fewer.
    pub(super) fn parts(self, count: u64, block: u64) -> impl Iterator<Item = Self> {
        let part = self.len().div_ceil(count.max(1)).max(1).next_multiple_of(block);
        (0..count).map_while(move |index| {
            let start = self.start.checked_add(index.checked_mul(part)?)?;
            (start < self.end).then(|| Self { start, end: start.saturating_add(part).min(self.end) })
        })
    }

    fn block(self, start: u64, block: u64) -> Access {
        (start, block.min(self.end - start))
    }
}

impl Shape {
    /// The reads of a span, in order. Sampling patterns read `budget` bytes, others the span up to
    /// it.
    pub(super) fn accesses(
        self,
        span: Span,
        budget: u64,
        seed: u64,
    ) -> Box<dyn Iterator<Item = Access> + Send> {
        let accesses: Box<dyn Iterator<Item = Access> + Send> = match self.pattern {
            _ if span.len() == 0 => Box::new(std::iter::empty()),
            Pattern::Seq => Box::new(every(span, self.block, self.block)),
            Pattern::Stride => Box::new(every(span, self.stride, self.block)),
            Pattern::Backward => {
                let (block, count) = (self.block, span.len().div_ceil(self.block));
                Box::new((1..=count).map(move |index| {
                    // The first block, read last, is the remainder.
                    let end = span.end - (index - 1) * block;
                    let start = end.saturating_sub(block).max(span.start);
                    (start, end - start)
                }))
            }
            Pattern::Random => {
                let (block, count) = (self.block, span.len().div_ceil(self.block));
                let mut chance = Random::from_state(seed);
                Box::new(std::iter::repeat_with(move || {
                    span.block(span.start + chance.below(count) * block, block)
                }))
            }
            Pattern::Interleaved => Box::new(interleaved(span, self.streams, self.block)),
            Pattern::Clustered => Box::new(clustered(span, self.block, seed)),
        };
        let mut left = budget;
        Box::new(accesses.map_while(move |(offset, len)| {
            let len = len.min(left);
            left -= len;
            (len > 0).then_some((offset, len))
        }))
    }
}

fn every(span: Span, step: u64, block: u64) -> impl Iterator<Item = Access> {
    let count = span.len().div_ceil(step);
    (0..count).map(move |index| span.block(span.start + index * step, block))
}

fn interleaved(span: Span, streams: u64, block: u64) -> impl Iterator<Item = Access> {
    let mut streams: Vec<_> = span.parts(streams, block).map(|part| every(part, block, block)).collect();
    let mut turn = 0;
    std::iter::from_fn(move || {
        while !streams.is_empty() {
            turn %= streams.len();
            if let Some(access) = streams[turn].next() {
                turn += 1;
                return Some(access);
            }
            drop(streams.remove(turn));
        }
        None
    })
}

/// One cluster at a random place in each of equal slots, repeatedly.
fn clustered(span: Span, block: u64, seed: u64) -> impl Iterator<Item = Access> {
    let slots: Vec<Span> = {
        let count = (span.len() / SLOT_BYTES).clamp(1, SLOTS_MAX);
        let size = (span.len() / count).max(1);
        (0..count)
            .map(|slot| Span { start: span.start + slot * size, end: span.start + (slot + 1) * size })
            .collect()
    };
    let mut chance = Random::from_state(seed);
    let mut order: Vec<Span> = Vec::new();
    let mut cluster = Span { start: 0, end: 0 };
    std::iter::repeat_with(move || {
        if cluster.len() == 0 {
            if order.is_empty() {
                order.clone_from(&slots);
                for last in (1..order.len()).rev() {
                    order.swap(last, chance.below(last as u64 + 1) as usize);
                }
            }
            let slot = order.pop().expect("there is at least one slot");
            let len = (CLUSTER_MIN + chance.below(CLUSTER_MAX - CLUSTER_MIN + 1)).min(slot.len());
            let start = slot.start + chance.below(slot.len() - len + 1) / PAGE * PAGE;
            cluster = Span { start, end: start + len };
        }
        let access = cluster.block(cluster.start, block);
        cluster.start += access.1;
        access
    })
}

const CLUSTER_MIN: u64 = 256 << 10;
const CLUSTER_MAX: u64 = 1024 << 10;
/// Mean distance between clusters, in bytes.
const SLOT_BYTES: u64 = 2 << 20;
/// Limits the list of slots.
const SLOTS_MAX: u64 = 1 << 16;
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: [Pattern; 6] = [
        Pattern::Seq,
        Pattern::Random,
        Pattern::Stride,
        Pattern::Backward,
        Pattern::Interleaved,
        Pattern::Clustered,
    ];

    fn reads(pattern: Pattern, span: Span, budget: u64) -> Vec<Access> {
        let shape = Shape { pattern, block: 10, stride: 25, streams: 2 };
        shape.accesses(span, budget, 1).collect()
    }

    #[test]
    fn every_pattern_stays_within_its_span_and_budget() {
        for pattern in PATTERNS {
            for (start, len) in [(0, 0), (0, 1), (7, 95), (1000, 10)] {
                let span = Span { start, end: start + len };
                let reads = reads(pattern, span, 300);
                assert!(reads.iter().map(|read| read.1).sum::<u64>() <= 300, "{pattern:?}");
                assert_eq!(reads.is_empty(), len == 0, "{pattern:?}");
                for (offset, bytes) in reads {
                    assert!(
                        bytes > 0 && offset >= start && offset + bytes <= span.end,
                        "{pattern:?} {span:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn orders_are_what_their_names_say() {
        let span = Span { start: 0, end: 45 };
        assert_eq!(reads(Pattern::Seq, span, 99), [(0, 10), (10, 10), (20, 10), (30, 10), (40, 5)]);
        assert_eq!(reads(Pattern::Seq, span, 12), [(0, 10), (10, 2)]);
        assert_eq!(reads(Pattern::Stride, span, 99), [(0, 10), (25, 10)]);
        assert_eq!(reads(Pattern::Backward, span, 99), [(35, 10), (25, 10), (15, 10), (5, 10), (0, 5)]);
        assert_eq!(reads(Pattern::Interleaved, span, 99), [(0, 10), (30, 10), (10, 10), (40, 5), (20, 10)]);
        assert_eq!(reads(Pattern::Random, span, 95).iter().map(|read| read.1).sum::<u64>(), 95);
    }

    #[test]
    fn clusters_are_read_from_front_to_back() {
        let span = Span { start: 0, end: 64 << 20 };
        let shape = Shape { pattern: Pattern::Clustered, block: 64 << 10, stride: 1, streams: 1 };
        let reads: Vec<Access> = shape.accesses(span, 16 << 20, 7).collect();
        let jumps = reads.windows(2).filter(|pair| pair[0].0 + pair[0].1 != pair[1].0).count();
        assert!((15..64).contains(&jumps), "{jumps}");
    }

    #[test]
    fn parts_cover_the_span_in_whole_blocks() {
        let parts: Vec<Span> = Span { start: 5, end: 50 }.parts(4, 10).collect();
        let ends: Vec<(u64, u64)> = parts.iter().map(|part| (part.start, part.end)).collect();
        assert_eq!(ends, [(5, 25), (25, 45), (45, 50)]);
    }
}
