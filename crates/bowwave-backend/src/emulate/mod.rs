//! An honest slow device in real time, over any store.
//!
//! The inner store is read and written at once; a schedule then decides when the caller hears of it:
//!
//! ```text
//!   read, write, sync --> inner store --bytes--> Transfer --min(arrived, released)--> sink
//!                     `-> schedule (Link or Driver) --timer thread--^
//! ```
//!
//! So what was written lies in the store below, a directory for one, as soon as the write has ended. A disk has one head for
//! reads and writes, and a cache for writes if it is given one, which a sync empties. Other devices take a write as they
//! give a read, with a latency and a rate of its own.
//!
//! The schedule is kept in exact time, so a late wake-up delays one step and never the rate. Bytes are never early; they
//! are late by up to 1/64 of the latency, at most 250 µs, so that many streams cost few wake-ups. It is honest as long
//! as the inner store is faster than the device.
//!
//! Measured (2 cores, `cargo bench -p bowwave-backend`, over `pattern:`; the bound counts each request's first byte):
//!
//! | device | requests | bound | reached | processor time |
//! |---|---|---|---|---|
//! | `s3,total=none` | 16 × 16 MiB | 1240 MB/s | 99.8 % | 0.42 s for 2 GiB |
//! | `s3,total=none` | 64 × 2 MiB | 2518 MB/s | 99.6 % | 0.46 s for 2 GiB |
//! | `s3,total=none` | 64 × 16 MiB | 4962 MB/s | 91.5 to 94.9 % | 0.90 s for 4 GiB |
//! | `s3,total=1GB/s` | 64 × 8 MiB | 1000 MB/s | 98.1 % | 0.48 s for 2 GiB |
//! | `nvme` | 32 × 1 MiB | 3200 MB/s | 100.0 % | 1.01 s for 4 GiB |
//! | `lustre` | 8 × 1 MiB | 1845 MB/s | 96.0 % | 0.24 s for 1 GiB |
//!
//! First bytes, p50 / p99: `nvme` 86 / 98 µs for 80, `lustre` 472 / 492 for 450, `s3` 30.3 / 30.3 ms for 30.

mod device;
mod driver;
mod link;
mod objects;
mod places;
mod slow;
mod stall;
mod station;
mod transfer;
mod whole;

use std::path::Path;
use std::sync::Arc;

pub use device::Device;
pub(crate) use stall::Stall;

use self::slow::Slow;
use self::whole::Whole;
use crate::{Backend, Object, Result, Writes};

/// A store that answers no faster than a [`Device`] would.
///
/// Behind a device with [`Device::part`], a store that is written anywhere becomes one that is written as a whole: what is
/// on its way to be published lies in the store's directory `.bowwave-uploads`, which is not shown.
#[derive(Debug)]
pub struct Emulate {
    device: Device,
    store: Box<dyn Backend>,
}

impl Emulate {
    /// Puts `device` before `inner`.
    ///
    /// # Errors
    /// `Io` if the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Backend>, device: Device) -> Result<Self> {
        let part = device.part.filter(|_| inner.profile().writes == Writes::Anywhere);
        let slow = Slow::new(inner, device.clone())?;
        let store: Box<dyn Backend> = match part {
            Some(part) => Box::new(Whole::new(slow, part)),
            None => Box::new(slow),
        };
        Ok(Self { device, store })
    }

    /// What is emulated.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Backend for Emulate {
    fn url(&self) -> &str {
        self.store.url()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.store.open(path)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.store)
    }
}

/// What the schedule lets through: the first `bytes` bytes of request `id`; `over` if those are all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Release {
    id: u64,
    bytes: u64,
    over: bool,
}

#[cfg(test)]
mod tests;
