//! The machine of the readahead documents, which are the patch (000) and the OLS 2007 paper (002):
//! one disk, one processor, Linux 2.6.20.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, Eviction, Policy};

use super::ReproduceError;
use super::testbed::Testbed;
use crate::device::DeviceSpec;
use crate::machine::{Host, Machine, RecordOptions, Setup, Walk};
use crate::queue::{Elevator, Queue, QueueConfig};
use crate::record::{Recording, Run};

/// Configuration of a machine.
#[derive(Clone, Debug)]
pub(super) struct Lab {
    pub(super) policy: Policy,
    pub(super) ra_pages: u32,
    pub(super) cache_bytes: u64,
    pub(super) host: Host,
    /// `None` for the queue of the disk's description.
    pub(super) queue: Option<QueueConfig>,
    pub(super) record: Option<RecordOptions>,
}

/// The documents' algorithms: the old one and its replacement.
pub(super) const OLD_AND_NEW: [Policy; 2] = [bowwave_baselines::LEGACY, Policy::OnDemand];

impl Lab {
    /// The documents' disk and host, with their window of 1 MiB. Set `cache_bytes`: 0 is rejected.
    pub(super) fn disk() -> Self {
        Self {
            policy: Policy::OnDemand,
            ra_pages: 256,
            cache_bytes: 0,
            host: Host { call_ns: 0, wait_ns: 85_000, copy_ns_a_kib: 1024.0 / 1.2 },
            queue: None,
            record: None,
        }
    }

    /// The same with another elevator.
    pub(super) fn with_elevator(&self, elevator: Elevator) -> Result<Self, ReproduceError> {
        let device = DeviceSpec::open(&Testbed::of_2007()?.disk(), &ALGORITHMS)?;
        let queue = QueueConfig { elevator, ..self.queue.clone().unwrap_or_else(|| device.queue().clone()) };
        Ok(Self { queue: Some(queue), ..self.clone() })
    }

    /// The machine.
    pub(super) fn machine(&self) -> Result<Machine, ReproduceError> {
        let frames = self.cache_bytes / 4096;
        let config = Config {
            frames: u32::try_from(frames).unwrap_or(Config::UNLIMITED),
            ra_pages: self.ra_pages,
            policy: self.policy,
            eviction: Eviction::Scan,
            ..Config::default()
        };
        let device = DeviceSpec::open(&Testbed::of_2007()?.disk(), &ALGORITHMS)?;
        let queue = self.queue.clone().unwrap_or_else(|| device.queue().clone());
        let queue = Queue::new(device.build(0), queue)?;
        let (host, walk, record) = (self.host, Walk::PageByPage, self.record);
        Ok(Machine::new(Setup { host, walk, record, ..Setup::new(config, queue) })?)
    }

    /// Labels a run with the configuration.
    pub(super) fn name(&self, mut run: Run) -> Run {
        run.row.policy = self.policy.name().to_owned();
        run.row.device = "hdd".to_owned();
        run.row.cache_bytes = Some(self.cache_bytes);
        run.row.ra_pages = self.ra_pages;
        run
    }
}

/// Runs `run` with both algorithms in parallel.
pub(super) fn both<T: Send>(
    run: impl Fn(Policy) -> Result<T, ReproduceError> + Sync,
) -> Result<[T; 2], ReproduceError> {
    let [old, new] = OLD_AND_NEW;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(old));
        let new = run(new);
        let old = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([old?, new?])
    })
}

/// An empty recording with its head.
pub(super) fn recording(title: &str, id: &str) -> Recording {
    Recording { title: title.to_owned(), command: format!("bowwave reproduce {id}"), ..Recording::new() }
}
