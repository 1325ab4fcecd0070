//! The reads of table 5, over and over, on a cache whose device takes no time.

use bowwave_core::{
    Cache, Config, FileId, HandleId, Instant, PageAccess, PageCount, PageRange, PageSize, Policy,
    ReadOutcome, Request, Stats,
};

use crate::reproduce::ReproduceError;
use bowwave_core::Random;

/// A row of table 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A cached file in order, by 4 KB.
    Hot4K,
    /// A cached file in order, by 1 MB.
    Hot1M,
    /// Cached small files, each opened and read whole (`tar /lib`).
    SmallFiles,
    /// Single pages of a huge sparse file at random.
    SparseRandom,
    /// Single pages of a huge sparse file in order.
    SparseSequential,
}

/// Pages of the cached file.
const HOT_PAGES: u64 = 16_384;
/// Frames for the sparse file: 64 MiB, so that its pages come and go.
const SPARSE_FRAMES: u32 = 16_384;
/// Pages of the sparse file: so many that a page drawn is not there by chance.
const SPARSE_PAGES: u64 = 1 << 40;
/// Reads of a pass over the sparse file.
const SPARSE_READS: u64 = 65_536;
/// 1 MiB, the paper's.
const RA_PAGES: u32 = 256;
/// What tar reads at once.
const TAR_BYTES: u64 = 10_240;
/// How many small files there are of so many KiB: what a directory of libraries and kernel modules is like. The paper does
/// not tell.
const SMALL_FILES: [(u64, u64); 12] = [
    (1, 60),
    (2, 80),
    (4, 140),
    (8, 260),
    (16, 380),
    (32, 340),
    (64, 170),
    (128, 70),
    (256, 25),
    (512, 10),
    (1024, 6),
    (1600, 2),
];

/// Bytes of each small file.
pub(super) fn small_files() -> impl Iterator<Item = u64> {
    SMALL_FILES.into_iter().flat_map(|(kib, count)| (0..count).map(move |_| kib << 10))
}

impl Workload {
    /// All, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Hot4K, Self::Hot1M, Self::SmallFiles, Self::SparseRandom, Self::SparseSequential];

    /// The name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot4K => "sequential re-read in 4KB",
            Self::Hot1M => "sequential re-read in 1MB",
            Self::SmallFiles => "small files re-read (tar /lib)",
            Self::SparseRandom => "random reading sparse file",
            Self::SparseSequential => "sequential reading sparse file",
        }
    }
}

/// A cache that is ready for a workload.
#[derive(Debug)]
pub struct Drive {
    workload: Workload,
    cache: Cache,
    /// Pages of each file, by number.
    files: Vec<u64>,
    /// Where the next pass over the sparse file begins.
    next: u64,
    random: Random,
}

const NOW: Instant = Instant(0);
const HANDLE: HandleId = HandleId(0);

impl Drive {
    /// The cache with its files: the cached ones cached, by readers that have left.
    ///
    /// # Errors
    /// If the cache refuses its configuration.
    pub fn new(policy: Policy, workload: Workload) -> Result<Self, ReproduceError> {
        let sparse = matches!(workload, Workload::SparseRandom | Workload::SparseSequential);
        let frames = if sparse { SPARSE_FRAMES } else { Config::UNLIMITED };
        let mut cache = Cache::new(Config { policy, frames, ra_pages: RA_PAGES, ..Config::default() })?;
        let files: Vec<u64> = match workload {
            Workload::Hot4K | Workload::Hot1M => vec![HOT_PAGES],
            Workload::SmallFiles => small_files().map(|bytes| PageSize::KIB_4.count_for(bytes).0).collect(),
            Workload::SparseRandom | Workload::SparseSequential => vec![SPARSE_PAGES],
        };
        for (number, &pages) in (0..).zip(&files) {
            cache.open_file(FileId(number), PageCount(pages));
        }
        if sparse {
            cache.open_handle(HANDLE, FileId(0));
        }
        let mut drive = Self { workload, cache, files, next: 0, random: Random::new(1) };
        drive.pass();
        Ok(drive)
    }

    /// Does the reads of the row once; returns how many pages were asked for.
    pub fn pass(&mut self) -> u64 {
        match self.workload {
            Workload::Hot4K => self.whole_files(4 << 10),
            Workload::Hot1M => self.whole_files(1 << 20),
            Workload::SmallFiles => self.whole_files(TAR_BYTES),
            Workload::SparseRandom => {
                for _ in 0..SPARSE_READS {
                    let page = self.random.below(SPARSE_PAGES);
                    self.read(PageRange::new(page, page + 1).into());
                }
                SPARSE_READS
            }
            Workload::SparseSequential => {
                for page in self.next..self.next + SPARSE_READS {
                    self.read(PageRange::new(page, page + 1).into());
                }
                self.next += SPARSE_READS;
                SPARSE_READS
            }
        }
    }

    /// What the cache has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Opens, reads and closes each file; returns how many pages reads have asked for.
    fn whole_files(&mut self, bytes: u64) -> u64 {
        let before = self.cache.stats().accesses;
        let mut actions = Vec::new();
        for number in 0..self.files.len() {
            // Fewer than 2^32 files.
            self.cache.open_handle(HANDLE, FileId(number as u32));
            let end = PageSize::KIB_4.bytes() * self.files[number];
            for offset in (0..end).step_by(bytes as usize) {
                self.read(PageSize::KIB_4.request_of(offset, bytes));
            }
            self.cache.close_handle(NOW, HANDLE, &mut actions);
        }
        self.cache.stats().accesses - before
    }

    #[inline]
    fn read(&mut self, request: Request) {
        let outcome = self.cache.access_instant(NOW, PageAccess::read(HANDLE, request), &mut ());
        debug_assert!(matches!(outcome, Ok(ReadOutcome::Hit | ReadOutcome::Wait)), "{outcome:?}");
    }
}
