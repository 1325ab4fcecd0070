//! A store that is as slow as a device, and does what it does otherwise.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Device;
use super::objects::{EmulatedObject, EmulatedWriteObject};
use super::places::Places;
use super::station::Station;
use crate::{
    Backend, Error, ErrorKind, Namespace, Object, OpenWrite, Profile, Result, Upload, Write, WriteObject,
    Writes,
};

/// A store that answers no faster than a [`Device`] would.
#[derive(Debug)]
pub(super) struct Slow {
    inner: Arc<dyn Backend>,
    device: Device,
    url: String,
    station: Arc<Station>,
    places: Mutex<Places>,
}

impl Slow {
    pub(super) fn new(inner: Arc<dyn Backend>, device: Device) -> Result<Self> {
        let station = Station::start(&device).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start the emulation's timer: {error}"))
        })?;
        let url = format!("emulate:{}:{}", device.name, inner.url());
        Ok(Self { inner, device, url, station: Arc::new(station), places: Mutex::default() })
    }

    /// The store below, at once.
    pub(super) fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// `inner`, open for writing, as slow as the device.
    pub(super) fn write_object(&self, path: &Path, inner: Arc<dyn WriteObject>) -> EmulatedWriteObject {
        let read = self.object(path, Arc::clone(&inner) as _, true);
        EmulatedWriteObject { read, inner }
    }

    /// `inner`, open for reading, as slow as the device; its end moves if it `grows`.
    pub(super) fn object(&self, path: &Path, inner: Arc<dyn Object>, grows: bool) -> EmulatedObject {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let address = places.of(path, inner.identity());
        drop(places);
        EmulatedObject { inner, address, station: Arc::clone(&self.station), grows }
    }

    #[cfg(test)]
    pub(super) fn log(&self) -> super::driver::Log {
        self.station.log()
    }

    /// Takes the time of a request for metadata.
    pub(super) fn metadata(&self) {
        if !self.device.metadata.is_zero() {
            std::thread::sleep(self.device.metadata);
        }
    }
}

impl Backend for Slow {
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
            deadline: None,
            seeks: self.device.disk.is_some(),
            lists_sizes: inner.lists_sizes,
            writes: inner.writes,
            attributes: inner.attributes,
            write_part_bytes: match inner.writes {
                Writes::No => 0,
                Writes::Whole => inner.write_part_bytes,
                Writes::Anywhere => request_bytes_best(latency, self.device.rate_of_one()),
            },
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.metadata();
        let inner = self.inner.open(path)?;
        Ok(Arc::new(self.object(path, inner, false)))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        self.inner.writer().map(|_| self as _)
    }

    fn probe(&self) -> Result<Option<String>> {
        self.metadata();
        self.inner.probe()
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}

impl Namespace for Slow {
    fn backend(&self) -> &dyn Backend {
        self
    }

    /// The names below, after the time that a request for metadata takes.
    fn names_below(&self) -> Option<&dyn Namespace> {
        self.metadata();
        self.inner.namespace()
    }
}

impl Write for Slow {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.metadata();
        let inner = self.inner.open_write(path, how)?;
        Ok(Arc::new(self.write_object(path, inner)))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.metadata();
        self.inner.stray_uploads()
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        self.metadata();
        self.inner.abort_upload(upload)
    }
}

/// Ten times latency × bandwidth, to the nearest power of two, from 128 KiB to 32 MiB: the first byte is then a tenth.
fn request_bytes_best(latency: Duration, rate: u64) -> u64 {
    let bytes = 10.0 * latency.as_secs_f64() * rate as f64;
    let power = bytes.max(1.0).log2().round().clamp(17.0, 25.0);
    1 << power as u32
}
