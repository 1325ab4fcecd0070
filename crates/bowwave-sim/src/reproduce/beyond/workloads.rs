//! Twelve common workloads on an object store, on which current mounts were measured.
//!
//! Each is a list of readers, with the sizes of the measurement. Where it used programs (a parquet
//! reader, a tensor loader), the accesses are those that reach the file system: reads of at most
//! 128 KiB, or page touches.

use std::sync::Arc;

use bowwave_core::{FileId, Instant};
use bowwave_trace::generate::Random;

use crate::machine::{Access, AccessOp, Pace};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One of the twelve.
#[derive(Clone)]
pub(super) struct Workload {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    /// Maximum seconds, and maximum bytes fetched per byte requested.
    pub(super) seconds: f64,
    pub(super) amplification: f64,
    pub(super) device: &'static str,
    /// MB/s of the link, 0 for the store's own; and bytes of the cache.
    pub(super) link_mb_s: u64,
    pub(super) cache_bytes: u64,
    pub(super) file_bytes: u64,
    /// Readers, one file each.
    pub(super) readers: Vec<Reader>,
}

/// A reader: its accesses, as offset and bytes, in order.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) op: AccessOp,
    pub(super) pace: Pace,
    reads: Arc<Vec<(u64, u64)>>,
}

impl Reader {
    fn new(reads: Vec<(u64, u64)>) -> Self {
        Self { op: AccessOp::Read, pace: Pace::Closed { think_ns: 0 }, reads: Arc::new(reads) }
    }

    /// Reads by touching mapped pages.
    fn mapped(self) -> Self {
        Self { op: AccessOp::Load, ..self }
    }

    /// Offset and bytes of each access.
    pub(super) fn reads(&self) -> &[(u64, u64)] {
        &self.reads
    }

    /// Its accesses; if `planned`, all are announced first.
    pub(super) fn source(&self, file: FileId, planned: bool) -> Box<dyn Iterator<Item = Access> + Send> {
        let (op, reads) = (self.op, Arc::clone(&self.reads));
        let access = move |op, (offset, bytes)| Access { at: Instant(0), op, file, offset, bytes };
        let plan = if planned { Arc::clone(&reads) } else { Arc::default() };
        let plan = (0..plan.len()).map(move |at| access(AccessOp::Plan, plan[at]));
        Box::new(plan.chain((0..reads.len()).map(move |at| access(op, reads[at]))))
    }
}

/// The twelve, in the order of their letters.
pub(super) fn all() -> Vec<Workload> {
    vec![
        one("a", "1 GiB in order, 128 KiB reads", (1.5, 1.01), GIB, Reader::new(pieces(0, GIB))),
        Workload {
            readers: vec![Reader::new(pieces(0, 256 * MIB)); 8],
            ..one("b", "8 readers of 256 MiB each", (2.5, 1.01), 256 * MIB, Reader::new(Vec::new()))
        },
        one("c", "500 random 4 KiB in 1 GiB", (15.8, 1.05), GIB, random(500, GIB, 4 * KIB)),
        one("d", "300 random 128 KiB in 1 GiB", (9.8, 1.05), GIB, random(300, GIB, 128 * KIB)),
        one("e", "two streams by turns on one descriptor", (0.8, 1.5), 512 * MIB, by_turns()),
        one("f", "128 KiB of each MiB, 512 MiB", (0.8, 1.5), 512 * MIB, strided()),
        one("g", "100 clusters in no order, mapped", (4.2, 2.0), GIB, clusters()),
        one("h", "128 MiB backward, 64 KiB reads", (1.6, 1.5), 128 * MIB, backward()),
        one("i", "3 of 20 columns of 480 MB, parquet", (0.6, 2.0), 480_000_000, columns()),
        one("j", "500 MB of tensors, mapped", (1.2, 1.05), 500_000_000, tensors()),
        Workload {
            link_mb_s: 60,
            cache_bytes: 256 * MIB,
            readers: vec![player(); 64],
            ..one("k", "64 players of 256 KB/s, 60 MB/s, 256 MiB", (0.0, 1.5), 16 * MIB, player())
        },
        one("l", "100 random 4 KiB in 64 GiB", (3.2, 1.05), 64 * GIB, random(100, 64 * GIB, 4 * KIB)),
    ]
}

fn one(
    id: &'static str,
    what: &'static str,
    (seconds, amplification): (f64, f64),
    file_bytes: u64,
    reader: Reader,
) -> Workload {
    let (device, link_mb_s, cache_bytes) = (super::STORE, 0, 4 * GIB);
    Workload {
        id,
        what,
        seconds,
        amplification,
        device,
        link_mb_s,
        cache_bytes,
        file_bytes,
        readers: vec![reader],
    }
}

/// Records in a known random order, as a loader of training data reads.
pub(super) fn drawn() -> Workload {
    let records = random(1000, 16 * GIB, 64 * KIB);
    one("records", "1000 random 64 KiB in 16 GiB", (f64::INFINITY, 1.05), 16 * GIB, records)
}

/// A range split into reads of 128 KiB.
fn pieces(start: u64, bytes: u64) -> Vec<(u64, u64)> {
    (0..bytes.div_ceil(128 * KIB))
        .map(|n| (start + n * 128 * KIB, (bytes - n * 128 * KIB).min(128 * KIB)))
        .collect()
}

fn random(count: u64, file: u64, bytes: u64) -> Reader {
    let mut random = Random::new(1);
    Reader::new((0..count).map(|_| (random.below(file / bytes) * bytes, bytes)).collect())
}

fn by_turns() -> Reader {
    let read = |n: u64| [(n * 64 * KIB, 64 * KIB), (300 * MIB + n * 64 * KIB, 64 * KIB)];
    Reader::new((0..1024).flat_map(read).collect())
}

fn strided() -> Reader {
    Reader::new((0..512).map(|n| (n * MIB, 128 * KIB)).collect())
}

/// Clusters of 256 to 1024 KiB, one in each tenth of 100 MiB, so that none overlap.
fn clusters() -> Reader {
    let mut random = Random::new(2);
    let mut order: Vec<u64> = (0..100).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let touches = order.into_iter().flat_map(|cluster| {
        let bytes = (256 + random.below(769)) * KIB / (4 * KIB) * (4 * KIB);
        let start = cluster * 10 * MIB + random.below(8 * MIB / (4 * KIB)) * (4 * KIB);
        (0..bytes / (4 * KIB)).map(move |page| (start + page * 4 * KIB, 4 * KIB)).collect::<Vec<_>>()
    });
    Reader::new(touches.collect()).mapped()
}

fn backward() -> Reader {
    Reader::new((0..2048).rev().map(|n| (n * 64 * KIB, 64 * KIB)).collect())
}

/// The footer, then columns 1, 8 and 15 of twenty in each of ten row groups.
fn columns() -> Reader {
    let (file, group, column) = (480_000_000, 48_000_000, 2_400_000);
    let mut reads = vec![(file - 8, 8), (file - 40_000, 39_992)];
    for at in 0..10 {
        for one in [0, 7, 14] {
            reads.extend(pieces(at * group + one * column, column));
        }
    }
    Reader::new(reads)
}

/// A header of 64 KiB, then every page in order.
fn tensors() -> Reader {
    let header = [(0, 8), (8, 65_528)];
    let pages = (16..500_000_000 / (4 * KIB)).map(|page| (page * 4 * KIB, 4 * KIB));
    Reader::new(header.into_iter().chain(pages).collect()).mapped()
}

/// 64 KiB four times a second, for 30 seconds.
fn player() -> Reader {
    let reads = (0..120).map(|n| (n * 64_000, 64_000)).collect();
    Reader { pace: Pace::Every { period_ns: PERIOD_NS }, ..Reader::new(reads) }
}

/// Nanoseconds between two reads of a player: a slower read misses its deadline.
pub(super) const PERIOD_NS: u64 = 250_000_000;
