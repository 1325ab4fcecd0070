//! Access patterns.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::FILE_BYTES;

/// One access pattern.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    /// Bytes per operation.
    pub(crate) bytes: u64,
    /// Reads, and returns the number of operations.
    pub(crate) run: Box<dyn Fn(&File) -> u64>,
}

/// For memory: throughput and the cost of a small read.
pub(crate) fn fast(direct: bool) -> Vec<Pattern> {
    // Small direct reads are slow, so read part of the file.
    let small = if direct { SIZE / 8 } else { SIZE };
    vec![
        sequential("sequential 1 MiB", MIB, SIZE),
        sequential("sequential 128 KiB", 128 * KIB, SIZE),
        sequential("sequential 4 KiB", 4 * KIB, small),
        random("random 4 KiB", 4 * KIB, 20_000, 4 * KIB),
        random("random 128 KiB", 128 * KIB, 1000, 4 * KIB),
        random("random 1 MiB", MIB, 200, 4 * KIB),
    ]
}

/// For a slow store: the kernel's round trips and bytes per requested byte.
pub(crate) fn slow() -> Vec<Pattern> {
    vec![
        random("random 4 KiB", 4 * KIB, 30, 4 * KIB),
        random("random 128 KiB aligned", 128 * KIB, 30, 4 * KIB),
        random("random 128 KiB unaligned", 128 * KIB, 30, 1),
        random("random 1 MiB unaligned", MIB, 12, 1),
        random("random 4 MiB unaligned", 4 * MIB, 6, 1),
        at_offsets("128 KiB each MiB", 128 * KIB, || Box::new((1..31).map(|at| at * MIB))),
        at_offsets("backward 64 KiB", 64 * KIB, || Box::new((100..140).rev().map(|at| at * 64 * KIB))),
        at_offsets("two streams 64 KiB", 64 * KIB, || {
            Box::new((0..32).flat_map(|at| [at * 64 * KIB, SIZE / 2 + at * 64 * KIB]))
        }),
        sequential("sequential 4 KiB", 4 * KIB, 4 * MIB),
        sequential("sequential 128 KiB", 128 * KIB, 16 * MIB),
        map("map, random pages", || {
            let mut random = Random::new();
            Box::new((0..20).map(move |_| random.below(SIZE / (4 * KIB)) * 4 * KIB))
        }),
        map("map, 256 to 1024 KiB", || {
            let mut random = Random::new();
            Box::new((0..10).flat_map(move |_| {
                let pages = (random.below(4) + 1) * 64;
                let start = random.below(SIZE / (2 * MIB)) * 2 * MIB + 512 * KIB;
                (0..pages).map(move |page| start + page * 4 * KIB)
            }))
        }),
        map("map, 8 MiB backward", || Box::new((0..2048).rev().map(|page| 64 * MIB + page * 4 * KIB))),
    ]
}

type Offsets = Box<dyn Iterator<Item = u64>>;

fn at_offsets(name: &'static str, bytes: u64, offsets: impl Fn() -> Offsets + 'static) -> Pattern {
    let run = move |file: &File| {
        let mut buffer = vec![0; usize::try_from(bytes).expect("small")];
        let mut count = 0;
        for offset in offsets() {
            file.read_exact_at(&mut buffer, offset).expect("within the file");
            count += 1;
        }
        count
    };
    Pattern { name, bytes, run: Box::new(run) }
}

fn sequential(name: &'static str, bytes: u64, limit: u64) -> Pattern {
    at_offsets(name, bytes, move || Box::new((0..limit / bytes).map(move |at| at * bytes)))
}

fn random(name: &'static str, bytes: u64, count: u64, align: u64) -> Pattern {
    at_offsets(name, bytes, move || {
        let mut random = Random::new();
        Box::new((0..count).map(move |_| random.below((SIZE - bytes) / align) * align))
    })
}

fn map(name: &'static str, offsets: impl Fn() -> Offsets + 'static) -> Pattern {
    Pattern { name, bytes: 4 * KIB, run: Box::new(move |file| touch(file, offsets())) }
}

/// Reads a byte at each offset of a memory map of the file.
#[expect(unsafe_code, reason = "a memory map has no safe interface")]
fn touch(file: &File, offsets: Offsets) -> u64 {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    // SAFETY: a new mapping at an address chosen by the kernel, of a file that does not change,
    // read within its length and unmapped once.
    unsafe {
        let base = mmap(std::ptr::null_mut(), FILE_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0);
        let base = base.expect("mappable");
        let bytes = base.cast::<u8>();
        let mut count = 0;
        for offset in offsets {
            bytes.add(usize::try_from(offset).expect("within the file")).read_volatile();
            count += 1;
        }
        munmap(base, FILE_BYTES).expect("mapped above");
        count
    }
}

/// Marsaglia's xorshift with a constant seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const SIZE: u64 = FILE_BYTES as u64;
