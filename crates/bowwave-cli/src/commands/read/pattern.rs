//! Orders in which the bytes of a file are read.

use std::path::{Path, PathBuf};

use bowwave_engine::{EntryKind, Namespace as _, Store};
use bowwave_trace::generate::Random;
use clap::ValueEnum;

use crate::Failure;

/// The order of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
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
pub(crate) struct Shape {
    pub(crate) pattern: Pattern,
    /// Bytes of a read, not 0.
    pub(crate) block: u64,
    /// Bytes from the start of a block to that of the next, not 0.
    pub(crate) stride: u64,
    /// Streams, not 0.
    pub(crate) streams: u64,
}

/// Bytes `start..end` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Offset and length of a read.
pub(crate) type Access = (u64, u64);

impl Pattern {
    /// Whether it ends only by the number of bytes to read.
    pub(super) fn is_sampling(self) -> bool {
        matches!(self, Self::Random | Self::Clustered)
    }
}

impl Span {
    pub(crate) fn len(self) -> u64 {
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
    pub(crate) fn accesses(
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

/// A part of a file for one thread to read through a handle of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Path in the store; empty if the store is one file.
    pub(crate) path: PathBuf,
    pub(crate) span: Span,
    /// Maximum bytes to read.
    pub(crate) budget: u64,
    pub(crate) seed: u64,
}

/// How much to read, and how to split it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) shape: Shape,
    pub(super) threads: u64,
    /// Total bytes to read; `None` for everything, or a sample.
    pub(super) size: Option<u64>,
    pub(super) seed: u64,
}

/// The jobs of a store: parts of its file, or its files in turn.
pub(super) fn jobs(store: &Store, share: Share) -> Result<Vec<Job>, Failure> {
    let root = store.stat(Path::new(""))?;
    let files = match root.kind {
        EntryKind::Directory => files(store)?,
        _ => vec![(PathBuf::new(), root.size)],
    };
    if files.is_empty() {
        return Err(failed!("{}: there is no file to read", store.url())
            .try_this("the URL of a file, or of a directory with files"));
    }
    let jobs = share.out(files);
    if jobs.is_empty() {
        crate::output::note("there are no bytes to read: the files are empty");
    }
    Ok(jobs)
}

impl Share {
    fn out(self, files: Vec<(PathBuf, u64)>) -> Vec<Job> {
        let block = self.shape.block;
        let sampling = self.shape.pattern.is_sampling();
        let sample = match self.shape.pattern {
            Pattern::Clustered => SAMPLE_CLUSTERED_BYTES,
            _ => block.saturating_mul(SAMPLE_READS),
        };
        let total: u64 = files.iter().map(|file| file.1).fold(0, u64::saturating_add);
        let mut left = self.size.unwrap_or_else(|| if sampling { sample.min(total) } else { u64::MAX });
        // Files of a directory go to one thread each; a single file is split.
        let parts = if files.len() == 1 { self.threads } else { 1 };
        let count = files.len() as u64;
        let mut jobs = Vec::new();
        for (number, (path, size)) in (0..).zip(files) {
            let spans: Vec<Span> = if sampling {
                vec![Span { start: 0, end: size }; if size > 0 { parts as usize } else { 0 }]
            } else {
                self.clip(size, left).parts(parts, self.unit()).collect()
            };
            let budget = if sampling { (left / (count - number)).div_ceil(parts) } else { left };
            for (part, span) in (0u64..).zip(spans) {
                let seed = self.seed.wrapping_mul(1 << 20).wrapping_add(number << 10).wrapping_add(part);
                let job = Job { path: path.clone(), span, budget: budget.min(left), seed };
                if sampling {
                    left -= job.budget;
                } else if self.shape.pattern != Pattern::Stride {
                    left = left.saturating_sub(span.len());
                } else {
                    left = left.saturating_sub(span.len().div_ceil(self.shape.stride).saturating_mul(block));
                }
                if job.budget > 0 {
                    jobs.push(job);
                }
            }
        }
        jobs
    }

    /// The range of a file of `size` bytes that patterns with an end cover within `left` bytes.
    fn clip(self, size: u64, left: u64) -> Span {
        match self.shape.pattern {
            Pattern::Backward => Span { start: size.saturating_sub(left), end: size },
            Pattern::Stride => {
                let blocks = (left / self.shape.block).max(u64::from(left > 0));
                Span { start: 0, end: blocks.saturating_mul(self.shape.stride).min(size) }
            }
            _ => Span { start: 0, end: left.min(size) },
        }
    }

    /// Alignment of parts.
    fn unit(self) -> u64 {
        if self.shape.pattern == Pattern::Stride { self.shape.stride } else { self.shape.block }
    }
}

/// The files in a directory and below it, with their sizes, in the order of their names.
fn files(store: &Store) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    let lists_sizes = store.profile().lists_sizes;
    while let Some(directory) = directories.pop() {
        let mut below = Vec::new();
        for entry in store.list(&directory)? {
            let path = directory.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => below.push(path),
                EntryKind::File if lists_sizes => found.push((path, entry.size)),
                EntryKind::File => {
                    let size = store.stat(&path)?.size;
                    found.push((path, size));
                }
                // A link's target is read at its own path, if at all.
                EntryKind::Link => {}
                EntryKind::Fifo | EntryKind::Socket | EntryKind::CharDevice | EntryKind::BlockDevice => {}
            }
            if found.len() + directories.len() > FILES_MAX {
                return Err(failed!("{}: more than {FILES_MAX} files", store.url())
                    .try_this("a directory further down"));
            }
        }
        directories.extend(below.into_iter().rev());
    }
    Ok(found)
}

/// Default reads of a random pattern: 30 s on a store with 30 ms latency.
const SAMPLE_READS: u64 = 1000;
/// Default bytes of a clustered pattern: about 100 clusters.
const SAMPLE_CLUSTERED_BYTES: u64 = 64 << 20;
const FILES_MAX: usize = 1 << 20;

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
    fn patterns_have_the_order_of_their_names() {
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

    fn share(pattern: Pattern, threads: u64, size: Option<u64>) -> Share {
        let shape = Shape { pattern, block: 10, stride: 40, streams: 2 };
        Share { shape, threads, size, seed: 1 }
    }

    fn bytes(share: Share, files: &[u64]) -> (usize, u64) {
        let files = files.iter().map(|&size| (PathBuf::from(size.to_string()), size)).collect();
        let jobs = share.out(files);
        let read = jobs
            .iter()
            .flat_map(|job| share.shape.accesses(job.span, job.budget, job.seed))
            .map(|access| access.1)
            .sum();
        (jobs.len(), read)
    }

    #[test]
    fn a_file_is_cut_into_parts_and_files_go_round() {
        assert_eq!(bytes(share(Pattern::Seq, 4, None), &[1000]), (4, 1000));
        assert_eq!(bytes(share(Pattern::Seq, 4, None), &[100, 0, 55]), (2, 155));
        assert_eq!(bytes(share(Pattern::Stride, 4, None), &[1000]), (4, 250));
        assert_eq!(bytes(share(Pattern::Random, 4, None), &[1_000_000]), (4, 10_000));
    }

    #[test]
    fn the_size_limits_the_total_bytes_read() {
        for pattern in
            [Pattern::Seq, Pattern::Backward, Pattern::Interleaved, Pattern::Random, Pattern::Clustered]
        {
            assert_eq!(bytes(share(pattern, 3, Some(120)), &[1000]).1, 120, "{pattern:?}");
            assert_eq!(bytes(share(pattern, 3, Some(120)), &[100, 100]).1, 120, "{pattern:?}");
        }
        assert_eq!(bytes(share(Pattern::Stride, 2, Some(125)), &[1000]).1, 120);
        assert_eq!(bytes(share(Pattern::Stride, 2, Some(4)), &[1000]).1, 4);
    }
}
