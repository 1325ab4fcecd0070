//! An honest slow device in real time, over any store.
//!
//! The inner store is read at once, into the lent buffer; a schedule then decides when the reader hears of the bytes:
//!
//! ```text
//!   read --> inner store --bytes--> Transfer --min(arrived, released)--> sink
//!        `-> schedule (Link or Drive) --timer thread--^
//! ```
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
mod disk;
mod link;
mod station;
mod transfer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use device::{Device, Disk};

use self::station::Station;
use self::transfer::{Arrival, Transfer};
use crate::{
    Backend, Entry, Error, ErrorKind, Identity, Object, Profile, ReadBuf, ReadSink, Result, Writes, generate,
};

/// A store that answers no faster than a [`Device`] would.
#[derive(Debug)]
pub struct Emulate {
    inner: Arc<dyn Backend>,
    device: Device,
    url: String,
    station: Arc<Station>,
    places: Mutex<Places>,
}

impl Emulate {
    /// Puts `device` before `inner`.
    ///
    /// # Errors
    /// `Io` if the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Backend>, device: Device) -> Result<Self> {
        let station = Station::start(&device).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start the emulation's timer: {error}"))
        })?;
        let url = format!("emulate:{}:{}", device.name, inner.url());
        Ok(Self { inner, device, url, station: Arc::new(station), places: Mutex::default() })
    }

    /// What is emulated.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn metadata(&self) {
        if !self.device.metadata.is_zero() {
            std::thread::sleep(self.device.metadata);
        }
    }
}

impl Backend for Emulate {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        let latency = self.device.first_byte();
        Profile {
            kind: format!("emulate:{}", self.device.name),
            request_bytes_best: request_bytes_best(latency, self.device.rate_of_one()),
            slots: self.device.slots,
            alignment: self.inner.profile().alignment,
            latency,
            seeks: self.device.disk.is_some(),
            writes: Writes::No,
            write_part_bytes: 0,
        }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        self.metadata();
        self.inner.stat(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.metadata();
        self.inner.list(path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.metadata();
        self.inner.read_link(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.metadata();
        let inner = self.inner.open(path)?;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let address = places.of(path, inner.size());
        drop(places);
        Ok(Arc::new(EmulatedObject { inner, address, station: Arc::clone(&self.station) }))
    }
}

#[derive(Debug)]
struct EmulatedObject {
    inner: Arc<dyn Object>,
    /// Where on the disk the object lies.
    address: u64,
    station: Arc<Station>,
}

/// Delays single reads of any object by a device's latency.
#[derive(Debug)]
pub(crate) struct Stall {
    station: Station,
}

impl Stall {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let station = Station::start(device)
            .map_err(|error| Error::new(ErrorKind::Io, format!("cannot start the timer: {error}")))?;
        Ok(Self { station })
    }

    /// Reads `len > 0` bytes of `inner` as late as the device says.
    pub(crate) fn read(
        &self,
        inner: &Arc<dyn Object>,
        offset: u64,
        buf: ReadBuf,
        len: usize,
        sink: Box<dyn ReadSink>,
    ) {
        let transfer = Transfer::new(sink);
        if self.station.add(0, len as u64, &transfer) {
            inner.read(offset, buf, Box::new(Arrival(transfer)));
        } else {
            transfer.refuse(buf, Error::new(ErrorKind::Throttled, "too many reads are stalled"));
        }
    }
}

impl Object for EmulatedObject {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.address
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = generate::within(self.inner.size(), offset, buf.len());
        if len == 0 {
            // Nothing for the device to do.
            return self.inner.read(offset, buf, sink);
        }
        let transfer = Transfer::new(sink);
        if self.station.add(self.address.wrapping_add(offset), len as u64, &transfer) {
            self.inner.read(offset, buf, Box::new(Arrival(transfer)));
        } else {
            transfer
                .refuse(buf, Error::new(ErrorKind::Throttled, "too many reads wait for the emulated device"));
        }
    }
}

/// Where objects lie on the disk: one behind the other in order of first opening, from 1 GiB boundaries.
#[derive(Debug, Default)]
struct Places {
    by_path: BTreeMap<PathBuf, u64>,
    end: u64,
}

impl Places {
    fn of(&mut self, path: &Path, size: u64) -> u64 {
        if let Some(&address) = self.by_path.get(path) {
            return address;
        }
        if self.by_path.len() >= PLACES_MAX {
            self.by_path.clear();
        }
        let address = self.end;
        self.end = address.saturating_add(size.max(1)).checked_next_multiple_of(PLACE_BYTES).unwrap_or(0);
        self.by_path.insert(path.to_owned(), address);
        address
    }
}

/// What the schedule lets through: the first `bytes` bytes of request `id`; `over` if those are all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Release {
    id: u64,
    bytes: u64,
    over: bool,
}

/// Ten times latency × bandwidth, to the nearest power of two, from 128 KiB to 32 MiB: the first byte is then a tenth.
fn request_bytes_best(latency: Duration, rate: u64) -> u64 {
    let bytes = 10.0 * latency.as_secs_f64() * rate as f64;
    let power = bytes.max(1.0).log2().round().clamp(17.0, 25.0);
    1 << power as u32
}

const PLACE_BYTES: u64 = 1 << 30;
/// Paths whose place is remembered; beyond, places are given anew.
const PLACES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
