//! Repeats the reads of the OLS 2007 paper's table 5, with a device that takes no time.

use bowwave_core::{
    Cache, Config, FileId, HandleId, Instant, PageAccess, PageCount, PageRange, PageSize, Policy,
    ReadOutcome, Request, Stats,
};

use crate::reproduce::ReproduceError;
use bowwave_core::Random;

bowwave_core::named_enum! {
    /// A row of table 5, by its name there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Workload {
        /// Sequential 4 KB reads of a cached file.
        Hot4K = "sequential re-read in 4KB",
        /// Sequential 1 MB reads of a cached file.
        Hot1M = "sequential re-read in 1MB",
        /// Cached small files, each opened and read completely (`tar /lib`).
        SmallFiles = "small files re-read (tar /lib)",
        /// Random single pages of a huge sparse file.
        SparseRandom = "random reading sparse file",
        /// Sequential single pages of a huge sparse file.
        SparseSequential = "sequential reading sparse file",
    }
}

/// Pages of the cached file.
const HOT_PAGES: u64 = 16_384;
/// Frames for the sparse file: 64 MiB, so that its pages are evicted.
const SPARSE_FRAMES: u32 = 16_384;
/// Pages of the sparse file: enough that a random page is never cached.
const SPARSE_PAGES: u64 = 1 << 40;
/// Reads per pass over the sparse file.
const SPARSE_READS: u64 = 65_536;
/// Maximum window in pages: 1 MiB, as in the paper.
const RA_PAGES: u32 = 256;
/// Read size of tar.
const TAR_BYTES: u64 = 10_240;
/// Number of small files by size in KiB: typical of a directory of libraries and kernel modules.
/// Not in the paper.
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

/// A cache prepared for a workload.
#[derive(Debug)]
pub struct Drive {
    workload: Workload,
    cache: Cache,
    /// Pages of each file, by number.
    files: Vec<u64>,
    /// First page of the next sequential pass over the sparse file.
    next: u64,
    random: Random,
}

const NOW: Instant = Instant(0);
const HANDLE: HandleId = HandleId(0);

impl Drive {
    /// Creates the cache with its files; cached files were read by closed handles.
    ///
    /// # Errors
    ///
    /// If the cache rejects its configuration.
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

    /// Performs the row's reads once; returns the number of requested pages.
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

    /// Counters of the cache.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Opens, reads and closes each file; returns the number of requested pages.
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
