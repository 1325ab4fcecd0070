//! The machine of the readahead documents, from one parameter file.

use std::sync::{Arc, Mutex, PoisonError};

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, FileId, Instant, PageSize, Policy, WriteBackConfig};
use serde::Deserialize;

use super::ReproduceError;
use crate::device::{DeviceSpec, Service};
use crate::machine::{Access, AccessOp, Host, Machine, Pace, Process, RecordOptions, Setup, Walk};
use crate::queue::{Queue, QueueStats};
use crate::record::Row;

/// Parameters of the machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Testbed {
    /// The disk and its queue.
    pub(super) device: String,
    /// Commands that the disk orders itself.
    pub(super) depth: u32,
    /// Maximum pages of a readahead window.
    pub(super) ra_pages: u32,
    /// Memory of the page cache.
    pub(super) cache_mib: u32,
    /// Eviction policy.
    pub(super) eviction: String,
    /// Share of the page cache that may be dirty, in percent.
    pub(super) dirty_percent: u32,
    /// Share from which write-back starts, in percent.
    pub(super) background_percent: u32,
    /// Address of test files, as a share of the disk's capacity.
    pub(super) file_at_share: f64,
    /// Address of the ISO image of aio-stress.
    pub(super) image_at_share: f64,
    /// Costs of the host.
    pub(super) host: Host,
    /// What to record.
    #[serde(skip)]
    pub(super) record: Option<RecordOptions>,
}

/// The documents' algorithms: the old one and its replacement.
pub(super) const OLD_AND_NEW: [Policy; 2] = [bowwave_baselines::LEGACY, Policy::OnDemand];

/// Results of a benchmark phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phase {
    /// From the end of the previous phase to the end of its last read.
    pub(super) ns: u64,
    /// Bytes that readers got or writers wrote.
    pub(super) bytes: u64,
    /// Pages requested.
    pub(super) accesses: u64,
    /// Cached pages among them.
    pub(super) hits: u64,
    /// Service time of the disk by part.
    pub(super) service: Service,
    /// Busy time of the disk.
    pub(super) busy_ns: u64,
}

/// A machine and its counters at the end of the last phase.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) machine: Machine,
    row: Row,
    written: u64,
    service: Service,
    queue: QueueStats,
    /// Start of the next phase, if not at the end of the last one.
    starts: Instant,
}

impl Testbed {
    /// The one of 2007.
    pub(super) fn of_2007() -> Result<Self, ReproduceError> {
        let parsed = toml::from_str(include_str!("testbed.toml"));
        parsed.map_err(|error: toml::de::Error| format!("testbed.toml: {}", error.message()).into())
    }

    /// The disk with its depth.
    pub(super) fn disk(&self) -> String {
        format!("{},depth={}", self.device, self.depth)
    }

    /// Address on the disk where a test's files start.
    pub(super) fn address(&self, bench: &Bench) -> u64 {
        bench.address_at(self.file_at_share)
    }

    /// The machine with a readahead policy.
    pub(super) fn bench(&self, policy: Policy) -> Result<Bench, ReproduceError> {
        let device = DeviceSpec::open(&self.disk(), &ALGORITHMS)?;
        let queue = Queue::new(device.build(0), device.queue().clone())?;
        let eviction = self.eviction.parse()?;
        let frames = self.cache_mib << 8;
        let write_back = WriteBackConfig {
            dirty_max: frames / 100 * self.dirty_percent,
            background: frames / 100 * self.background_percent,
            out_pages_max: REQUEST_PAGES,
            in_flight_max: REQUESTS * REQUEST_PAGES,
            ..WriteBackConfig::default()
        };
        let config =
            Config { frames, write_back, ra_pages: self.ra_pages, policy, eviction, ..Config::default() };
        let (host, walk, record) = (self.host, Walk::PageByPage, self.record);
        let machine = Machine::new(Setup { host, walk, record, ..Setup::new(config, queue) })?;
        Ok(Bench {
            machine,
            row: Row::default(),
            written: 0,
            service: Service::default(),
            queue: QueueStats::default(),
            starts: Instant(0),
        })
    }
}

impl Bench {
    /// Address at a share of the disk's capacity, page-aligned.
    pub(super) fn address_at(&self, share: f64) -> u64 {
        let capacity = self.machine.queue().device().capacity_bytes().unwrap_or(0);
        let page = PageSize::KIB_4.bytes();
        (capacity as f64 * share) as u64 / page * page
    }

    /// Runs a phase with several threads of one process, starting at the end of the previous phase.
    pub(super) fn phase(
        &mut self,
        source: impl Iterator<Item = Access> + Send + 'static,
        threads: u32,
    ) -> Result<Phase, ReproduceError> {
        let start = self.starts.max(Instant(nanoseconds(&self.row)));
        let work = Arc::new(Mutex::new(source));
        self.machine.add_threads((0..threads).map(|_| {
            let work = Arc::clone(&work);
            let next = move || work.lock().unwrap_or_else(PoisonError::into_inner).next();
            let source = Box::new(std::iter::from_fn(next));
            Process { start, source, pace: Pace::Closed { think_ns: 0 }, depth: 1 }
        }));
        self.machine.run(None)?;
        let row = self.machine.summary().row;
        let (service, queue) = (self.machine.queue().device().service(), *self.machine.queue().stats());
        let written = self.machine.bytes_written();
        let phase = Phase {
            // Eviction takes no time.
            ns: nanoseconds(&row).saturating_sub(start.0),
            bytes: row.bytes_wanted - self.row.bytes_wanted + written - self.written,
            accesses: row.accesses - self.row.accesses,
            hits: row.hits - self.row.hits,
            service: service.since(&self.service),
            busy_ns: queue.busy_ns - self.queue.busy_ns,
        };
        (self.row, self.written, self.service, self.queue) = (row, written, service, queue);
        Ok(phase)
    }

    /// `sync; sleep`: writes a file's dirty pages to the disk, then idles.
    pub(super) fn settle(&mut self, file: FileId, sleep_ns: u64) -> Result<(), ReproduceError> {
        let sync = Access { at: Instant(0), op: AccessOp::Sync, file, offset: 0, bytes: 0 };
        self.phase(std::iter::once(sync), 1)?;
        self.starts = Instant(nanoseconds(&self.row) + sleep_ns);
        Ok(())
    }
}

impl Phase {
    /// KiB per second, which benchmarks print as KB/s.
    pub(super) fn kib_a_second(&self) -> f64 {
        self.bytes as f64 / 1024.0 / self.seconds()
    }

    /// Duration in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// Cache hit ratio by pages.
    pub(super) fn hit_share(&self) -> f64 {
        self.hits as f64 / self.accesses.max(1) as f64
    }
}

/// The kernel's maximum requests to the disk, and pages per request.
const REQUESTS: u32 = 128;
const REQUEST_PAGES: u32 = 128;

/// End of the last read of a run.
fn nanoseconds(row: &Row) -> u64 {
    (row.seconds * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_the_parameters_of_the_file() {
        let testbed = Testbed::of_2007().unwrap();
        let bench = testbed.bench(Policy::OnDemand).unwrap();
        let share = testbed.address(&bench) as f64 / bench.address_at(1.0) as f64;
        assert!((share - testbed.file_at_share).abs() < 1e-6);
        assert_eq!(testbed.ra_pages, 256, "1 MiB, as published");
        let broken = Testbed { device: "hdd:rpm=0".to_owned(), ..testbed };
        assert!(broken.bench(Policy::OnDemand).unwrap_err().to_string().contains("rpm = 0"));
    }
}
