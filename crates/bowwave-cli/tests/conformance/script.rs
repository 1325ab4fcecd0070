//! Scripts: the steps of a pattern, played to both the kernel and our policy.

use bowwave_core::{Advice, PageRange, Pattern};

/// The kernel's page size in bytes.
pub(super) const PAGE: u64 = 4096;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Reads bytes through a handle.
    Read { handle: usize, offset: u64, length: u64 },
    /// `posix_fadvise` through a handle, on whole pages.
    Advise { handle: usize, pages: PageRange, advice: Advice },
    /// Stores to a page of a handle's mapping.
    Touch { handle: usize, page: u64 },
    /// `madvise` on a handle's mapping.
    MapAdvise { handle: usize, pattern: Pattern },
}

/// The test files; all are filled with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// 65536 pages.
    Large,
    /// 1000 pages and 100 bytes.
    Odd,
    /// 3 pages.
    Tiny,
}

impl Target {
    pub(super) const ALL: [Self; 3] = [Self::Large, Self::Odd, Self::Tiny];

    /// Its length in bytes.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Large => 65536 * PAGE,
            Self::Odd => 1000 * PAGE + 100,
            Self::Tiny => 3 * PAGE,
        }
    }

    /// Its pages; the last may be partial.
    pub(super) const fn pages(self) -> u64 {
        self.bytes().div_ceil(PAGE)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Odd => "odd",
            Self::Tiny => "tiny",
        }
    }
}

/// Builds a script.
#[derive(Debug)]
pub(super) struct Script {
    /// Maximum pages of a readahead window, for patterns that scale with it.
    pub(super) ra: u64,
    pub(super) target: Target,
    /// Pages of the file.
    pub(super) pages: u64,
    pub(super) ops: Vec<Op>,
    handle: usize,
    random: u64,
}

impl Script {
    pub(super) fn new(ra: u64, target: Target) -> Self {
        Self { ra, target, pages: target.pages(), ops: Vec::new(), handle: 0, random: 0x2545_F491_4F6C_DD1D }
    }

    /// Later steps use this handle; each is an open file of its own.
    pub(super) fn through(&mut self, handle: usize) -> &mut Self {
        self.handle = handle;
        self
    }

    /// Reads `count` pages.
    pub(super) fn read(&mut self, page: u64, count: u64) -> &mut Self {
        self.read_bytes(page * PAGE, count * PAGE)
    }

    pub(super) fn read_bytes(&mut self, offset: u64, length: u64) -> &mut Self {
        self.ops.push(Op::Read { handle: self.handle, offset, length });
        self
    }

    /// Reads `total` pages in order, `each` at a time.
    pub(super) fn sequential(&mut self, from: u64, each: u64, total: u64) -> &mut Self {
        for read in 0..total.div_ceil(each) {
            self.read(from + read * each, each);
        }
        self
    }

    /// Reads sequentially from each of `starts` in turn, `each` pages at a time, `rounds` times.
    pub(super) fn interleaved(&mut self, starts: &[u64], each: u64, rounds: u64) -> &mut Self {
        for round in 0..rounds {
            for &start in starts {
                self.read(start + round * each, each);
            }
        }
        self
    }

    /// Start pages of `count` streams, far from each other and from the ends of the file.
    pub(super) fn starts(&self, count: u64) -> Vec<u64> {
        let apart = self.pages / (count + 1);
        (1..=count).map(|stream| stream * apart + 7 * stream).collect()
    }

    /// Touches `total` mapped pages in order, every `step`th.
    pub(super) fn touches(&mut self, from: u64, step: u64, total: u64) -> &mut Self {
        for touch in 0..total {
            self.touch(from + touch * step);
        }
        self
    }

    pub(super) fn touch(&mut self, page: u64) -> &mut Self {
        self.ops.push(Op::Touch { handle: self.handle, page });
        self
    }

    pub(super) fn advise(&mut self, page: u64, count: u64, advice: Advice) -> &mut Self {
        let pages = PageRange::new(page, page + count);
        self.ops.push(Op::Advise { handle: self.handle, pages, advice });
        self
    }

    /// Advice on the whole handle.
    pub(super) fn advise_all(&mut self, advice: Advice) -> &mut Self {
        self.advise(0, self.pages, advice)
    }

    /// Drops cached pages.
    pub(super) fn drop_pages(&mut self, page: u64, count: u64) -> &mut Self {
        self.advise(page, count, Advice::DontNeed)
    }

    pub(super) fn map_advise(&mut self, pattern: Pattern) -> &mut Self {
        self.ops.push(Op::MapAdvise { handle: self.handle, pattern });
        self
    }

    /// A number below `bound`, the same in every run (xorshift).
    pub(super) fn random(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % bound
    }
}
