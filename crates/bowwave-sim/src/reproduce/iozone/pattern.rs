//! Accesses of each iozone phase in throughput mode (`-t1`).

use bowwave_core::{FileId, Instant};

use crate::machine::{Access, AccessOp};

/// The phases, in iozone's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// A new file, from the first record to the last.
    Write,
    /// The same file again.
    Rewrite,
    /// From the first record to the last.
    Read,
    /// Again.
    Reread,
    /// From the last record to the first.
    Reverse,
    /// Every 17th record to the end, then every 17th from the second on, and so on.
    Stride,
    /// Random records with replacement, as many as the file has: `lrand48` from seed 0.
    Random,
    /// With one process the mixed workload is random reads from the same seed: the same records in
    /// the same order.
    Mixed,
    /// Random records with replacement, as many as the file has, from seed 0 again.
    RandomWrite,
    /// As `Rewrite`, by `pwrite`.
    Pwrite,
    /// As `Read`, by `pread`.
    Pread,
}

impl Pattern {
    pub(super) const ALL: [Self; 11] = [
        Self::Write,
        Self::Rewrite,
        Self::Read,
        Self::Reread,
        Self::Reverse,
        Self::Stride,
        Self::Random,
        Self::Mixed,
        Self::RandomWrite,
        Self::Pwrite,
        Self::Pread,
    ];

    /// Whether it writes.
    pub(super) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Rewrite | Self::RandomWrite | Self::Pwrite)
    }

    /// The accesses to a file of `records` records.
    pub(super) fn source(self, file: FileId, records: u64) -> impl Iterator<Item = Access> + Send + 'static {
        let (mut random, mut stride) = (Lrand48::seeded(0), Stride::default());
        (0..records).map(move |n| {
            let record = match self {
                Self::Write | Self::Rewrite | Self::Read | Self::Reread | Self::Pwrite | Self::Pread => n,
                Self::Reverse => records - 1 - n,
                Self::Stride => stride.next(records),
                Self::Random | Self::Mixed | Self::RandomWrite => random.next() % records,
            };
            let op = if self.writes() { AccessOp::Write } else { AccessOp::Read };
            let (at, bytes) = (Instant(0), RECORD_BYTES);
            Access { at, op, file, offset: record * bytes, bytes }
        })
    }
}

/// `lrand48` of POSIX.
#[derive(Debug)]
struct Lrand48(u64);

impl Lrand48 {
    fn seeded(seed: u32) -> Self {
        Self(u64::from(seed) << 16 | 0x330e)
    }

    fn next(&mut self) -> u64 {
        self.0 = (self.0.wrapping_mul(0x5_deec_e66d) + 0xb) & ((1 << 48) - 1);
        self.0 >> 17
    }
}

#[derive(Debug, Default)]
struct Stride {
    record: u64,
    sweep: u64,
}

impl Stride {
    fn next(&mut self, records: u64) -> u64 {
        let record = self.record;
        self.record += STRIDE;
        // iozone turns back before the last record.
        if self.record + 1 >= records - 1 {
            self.sweep += 1;
            self.record = self.sweep % records;
        }
        record
    }
}

/// `-r 64k`.
pub(super) const RECORD_BYTES: u64 = 64 << 10;
/// iozone's default.
const STRIDE: u64 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn records(pattern: Pattern, records: u64) -> Vec<u64> {
        pattern.source(FileId(0), records).map(|access| access.offset / RECORD_BYTES).collect()
    }

    #[test]
    fn lrand48_matches_posix() {
        let mut random = Lrand48::seeded(0);
        let numbers: Vec<_> = (0..4).map(|_| random.next()).collect();
        assert_eq!(numbers, [366_850_414, 1_610_402_240, 206_956_554, 1_869_309_841]);
    }

    #[test]
    fn each_strided_pass_starts_one_record_later_and_few_are_missed() {
        let read = records(Pattern::Stride, 1000);
        assert_eq!(read[..3], [0, 17, 34]);
        let turn = read.iter().position(|&record| record == 1).unwrap();
        assert!(read[turn - 1] < 998 && read[turn - 1] >= 998 - 17, "{}", read[turn - 1]);
        let mut once = read.clone();
        once.sort_unstable();
        once.dedup();
        assert!(once.len() > 980, "{} of 1000 records", once.len());
    }

    #[test]
    fn the_mixed_workload_repeats_the_random_one() {
        assert_eq!(records(Pattern::Random, 500), records(Pattern::Mixed, 500));
        assert_eq!(records(Pattern::Reverse, 3), [2, 1, 0]);
    }
}
