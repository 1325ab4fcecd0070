//! Access methods: read calls, a region, or a kernel mapping.

use std::collections::HashMap;
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use std::{fs, io};

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::{File, Store};
use bowwave_region::uffd::Delivery;
use bowwave_region::{Error, MapOptions, Region, RegionStats};
use hdrhistogram::Histogram;
use memmap2::Mmap;

use super::kernel::{self, faults_of_thread};
use super::pattern::Access;
use crate::Failure;

/// What maps the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mapper {
    /// This process: any store
    Region,
    /// This process, each touch served by the thread that touches: any store
    Thread,
    /// The kernel: a file, such as one of a mount, past the cache of this process
    Kernel,
}

/// Where jobs read from. Mappings last as long as it does, so a second pass finds them.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    store: &'a Store,
    pub(super) mapper: Option<Mapper>,
    /// Path of the store's root in the file system, for the kernel.
    root: PathBuf,
    /// Whether files are read through the kernel, without a mapping.
    mounted: bool,
    maps: Mutex<HashMap<PathBuf, Arc<Map>>>,
}

#[derive(Debug)]
pub(super) enum Map {
    Region(Box<Region>),
    Kernel(Mmap),
}

/// How a thread reads a file.
#[derive(Debug)]
pub(super) enum Reader {
    Calls { file: File, buffer: Vec<u8> },
    System { file: fs::File, path: PathBuf, buffer: Vec<u8> },
    Map(Arc<Map>),
}

/// Latencies of reads.
#[derive(Debug)]
pub(super) struct Meter {
    /// Read calls or page touches, in nanoseconds.
    pub(super) waits: Histogram<u64>,
    /// Touches that were faults.
    pub(super) faults: Histogram<u64>,
}

/// Counters of regions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mapped {
    pub(super) pages_mapped: u64,
    pub(super) pages_unmapped: u64,
}

impl<'a> Source<'a> {
    /// `url` is the store's URL as given.
    pub(crate) fn new(store: &'a Store, mapper: Option<Mapper>, url: &str) -> Result<Self, Failure> {
        let root = PathBuf::from(url.strip_prefix("file://").unwrap_or(url));
        if mapper == Some(Mapper::Kernel) && !root.exists() {
            let url = bowwave_backend::redacted(url);
            return Err(usage!("{url}: the kernel can map only files that it has")
                .try_this("a path, or --mmap without =kernel"));
        }
        Ok(Self { store, mapper, root, mounted: false, maps: Mutex::default() })
    }

    /// Files of a mount of `store` at `root`, read by system calls.
    pub(crate) fn mounted(store: &'a Store, root: &Path) -> Self {
        Self { store, mapper: None, root: root.to_owned(), mounted: true, maps: Mutex::default() }
    }

    /// Warns once if the store cannot guarantee one version of its files.
    fn caution(&self, path: &Path, file: &File) {
        if let Some(why) = file.identity().weakness().filter(|_| self.store.backend().network().is_some()) {
            let place =
                if path.as_os_str().is_empty() { self.store.url() } else { path.to_str().unwrap_or("") };
            // Once per command: each policy of `--compare` has its own source.
            static CAUTIONED: Once = Once::new();
            CAUTIONED.call_once(|| {
                note!("{place}: the store gives {why} (--require-version refuses such files)");
            });
        }
    }

    /// Opens a file for a thread.
    pub(super) fn open(&self, path: &Path) -> Result<Reader, Failure> {
        if self.mounted {
            let path = self.root.join(path);
            let file = fs::File::open(&path).map_err(|error| of_system(&path, &error))?;
            return Ok(Reader::System { file, path, buffer: Vec::new() });
        }
        let Some(mapper) = self.mapper else {
            let file = self.store.open(path)?;
            self.caution(path, &file);
            return Ok(Reader::Calls { file, buffer: Vec::new() });
        };
        let mut maps = self.maps.lock();
        if let Some(map) = maps.get(path) {
            return Ok(Reader::Map(Arc::clone(map)));
        }
        let map = Arc::new(match mapper {
            Mapper::Region => self.region(path, Delivery::Message)?,
            Mapper::Thread => self.region(path, Delivery::Signal)?,
            Mapper::Kernel => Map::Kernel(self.kernel_map(path)?),
        });
        maps.insert(path.to_owned(), Arc::clone(&map));
        Ok(Reader::Map(map))
    }

    fn region(&self, path: &Path, delivery: Delivery) -> Result<Map, Failure> {
        let options = MapOptions { delivery, ..MapOptions::default() };
        let region = Region::map(self.store, path, &options)?;
        Ok(Map::Region(Box::new(region)))
    }

    fn kernel_map(&self, path: &Path) -> Result<Mmap, Failure> {
        // Joining an empty path would add a slash.
        let path = if path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(path) };
        kernel::map(&path).map_err(|error| failed!("cannot map {}: {error}", path.display()))
    }

    /// Counters of regions; `None` for read calls, zeros for kernel mappings.
    pub(super) fn mapped(&self) -> Option<Mapped> {
        self.mapper?;
        let maps = self.maps.lock();
        let stats = |map: &Arc<Map>| match &**map {
            Map::Region(region) => region.stats(),
            Map::Kernel(_) => RegionStats::default(),
        };
        Some(maps.values().map(stats).fold(Mapped::default(), |sum, stats| Mapped {
            pages_mapped: sum.pages_mapped + stats.pages_mapped,
            pages_unmapped: sum.pages_unmapped + stats.pages_unmapped,
        }))
    }
}

impl Reader {
    /// Announces reads, as offsets and lengths in order. Mapped files have no read plans.
    pub(super) fn plan(&self, accesses: impl Iterator<Item = Access>) -> Result<(), Failure> {
        let Self::Calls { file, .. } = self else { return Ok(()) };
        // Contiguous reads are one range.
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (offset, len) in accesses {
            match ranges.last_mut() {
                Some(last) if last.end == offset => last.end += len,
                _ => ranges.push(offset..offset + len),
            }
        }
        file.plan(ranges).map_err(Failure::from)
    }

    /// Returns up to `len` bytes from `offset`, once they are available.
    pub(super) fn read(&mut self, offset: u64, len: u64, meter: &mut Meter) -> Result<&[u8], Failure> {
        match self {
            Self::Calls { file, buffer } => {
                buffer.resize(usize::try_from(len).expect("the block was bounded"), 0);
                let asked = Instant::now();
                let got = file.read_at(offset, buffer)?;
                meter.record(asked.elapsed(), false);
                Ok(&buffer[..got])
            }
            Self::System { file, path, buffer } => {
                buffer.resize(usize::try_from(len).expect("the block was bounded"), 0);
                let asked = Instant::now();
                file.read_exact_at(buffer, offset).map_err(|error| of_system(path, &error))?;
                meter.record(asked.elapsed(), false);
                Ok(buffer)
            }
            Self::Map(map) => Ok(map.touch(offset, len, meter)),
        }
    }
}

fn of_system(path: &Path, error: &io::Error) -> Failure {
    failed!("{}: {error}", path.display())
}

impl Map {
    /// Touches each page once, as a sequential reader does.
    fn touch(&self, offset: u64, len: u64, meter: &mut Meter) -> &[u8] {
        let bytes = self.bytes();
        let end = offset.saturating_add(len).min(bytes.len() as u64);
        let bytes = &bytes[offset.min(end) as usize..end as usize];
        let mut at = 0;
        while at < bytes.len() {
            let before = faults_of_thread();
            let touched = Instant::now();
            black_box(bytes[at]);
            let waited = touched.elapsed();
            meter.record(waited, faults_of_thread() > before);
            at += PAGE - (offset as usize + at) % PAGE;
        }
        bytes
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Region(region) => region.as_slice(),
            Self::Kernel(map) => map,
        }
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        // From a nanosecond to an hour, to three digits.
        let histogram = || {
            Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constants that fit")
        };
        Self { waits: histogram(), faults: histogram() }
    }

    fn record(&mut self, waited: Duration, fault: bool) {
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.waits.saturating_record(waited);
        if fault {
            self.faults.saturating_record(waited);
        }
    }

    /// Adds the times of another.
    pub(super) fn add(&mut self, other: &Self) {
        self.waits.add(&other.waits).expect("all have the same bounds");
        self.faults.add(&other.faults).expect("all have the same bounds");
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(error) => error.into(),
            error => Self::failed(error),
        }
    }
}

/// Bytes of a page of the machine.
const PAGE: usize = bowwave_region::uffd::SYSTEM_PAGE;
