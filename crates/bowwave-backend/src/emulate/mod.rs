//! An honest slow device in real time, over any store.
//!
//! The inner store is read and written at once; a schedule then decides when the caller hears of it:
//!
//! ```text
//!   read, write, sync --> inner store --bytes--> Transfer --min(arrived, released)--> sink
//!                     `-> schedule (Link or Drive) --timer thread--^
//! ```
//!
//! So what was written lies in the store below, a folder for one, as soon as the write has ended. A disk has one head for
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
mod disk;
mod link;
mod objects;
mod station;
mod transfer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use device::{Device, Disk};

use self::objects::{EmulatedObject, EmulatedWriteObject};
use self::station::Station;
use crate::wrap::forward_tree;
use crate::{
    Backend, Entry, Error, ErrorKind, Identity, Object, OpenWrite, Profile, ReadBuf, ReadSink, Result,
    WriteBuf, WriteObject, WriteSink, Writes,
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

    /// The store below, after the time that a request for metadata takes.
    fn below(&self) -> &dyn Backend {
        self.metadata();
        &*self.inner
    }

    fn object(&self, path: &Path, inner: Arc<dyn Object>, grows: bool) -> EmulatedObject {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let address = places.of(path, inner.identity());
        drop(places);
        EmulatedObject { inner, address, station: Arc::clone(&self.station), grows }
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
        let (latency, inner) = (self.device.first_byte(), self.inner.profile());
        Profile {
            kind: format!("emulate:{}", self.device.name),
            request_bytes_best: request_bytes_best(latency, self.device.rate_of_one()),
            slots: self.device.slots,
            alignment: inner.alignment,
            latency,
            seeks: self.device.disk.is_some(),
            writes: inner.writes,
            write_part_bytes: match inner.writes {
                Writes::No => 0,
                Writes::Whole => inner.write_part_bytes,
                Writes::Anywhere => request_bytes_best(latency, self.device.rate_of_one()),
            },
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
        Ok(Arc::new(self.object(path, inner, false)))
    }

    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.metadata();
        let inner = self.inner.open_write(path, how)?;
        let read = self.object(path, Arc::clone(&inner) as _, true);
        Ok(Arc::new(EmulatedWriteObject { read, inner }))
    }

    forward_tree!();
}

/// Delays single reads and writes of any object by a device's latency.
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
        self.station.read(inner, 0, offset, buf, len, sink);
    }

    /// Writes bytes, at least one, and tells of it as late as the device says.
    pub(crate) fn write(
        &self,
        inner: &Arc<dyn WriteObject>,
        offset: u64,
        buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    ) {
        self.station.write(inner, 0, offset, buf, sink);
    }
}

/// Where objects lie on the disk: one behind the other in order of first opening, from 1 GiB boundaries. One that
/// grows past the next boundary lies over its neighbour, which costs no more than a shorter seek.
#[derive(Debug, Default)]
struct Places {
    by_name: BTreeMap<Name, u64>,
    end: u64,
}

/// What an object is remembered by: as a file it keeps its place when it gets another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    File(Option<u64>, u64),
    Path(PathBuf),
}

impl Places {
    fn of(&mut self, path: &Path, identity: &Identity) -> u64 {
        let name = match identity.inode {
            Some(inode) => Name::File(identity.device, inode),
            None => Name::Path(path.to_owned()),
        };
        if let Some(&address) = self.by_name.get(&name) {
            return address;
        }
        if self.by_name.len() >= PLACES_MAX {
            self.by_name.clear();
        }
        let address = self.end;
        let size = identity.size.max(1);
        self.end = address.saturating_add(size).checked_next_multiple_of(PLACE_BYTES).unwrap_or(0);
        self.by_name.insert(name, address);
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
/// Objects whose place is remembered; beyond, places are given anew.
const PLACES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
