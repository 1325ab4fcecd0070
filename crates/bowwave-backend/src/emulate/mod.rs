//! A device model of `bowwave-device` in real time, over any store.
//!
//! The inner store reads and writes at once. The device decides when the caller hears of it:
//!
//! ```text
//!   read, write --> inner store --bytes--> Transfer --min(arrived, released)--> sink
//!               `-> Driver and its model --timer thread--^
//! ```
//!
//! So written bytes are in the store below, for example a directory, when the write has ended.
//!
//! The driver gives the model exact times, so a late wake-up delays one report and never the rate.
//! Bytes are never early. They are late by up to 1/64 of the latency, at most 250 µs, so that many
//! streams cost few wake-ups. The emulation is exact as long as the inner store is faster than the
//! device. `cargo bench -p bowwave-backend` compares rates and latencies with their bounds.

mod addresses;
mod device;
mod driver;
mod station;
mod transfer;
mod whole;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use device::Device;
pub(crate) use station::Station;

use self::addresses::Addresses;
use self::whole::Whole;
use crate::sync::Mutex;
use crate::wrap::{Layer, Wrapped, WrappedObject, WrappedWriteObject};
use crate::{Backend, Object, Profile, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink, Writes};

/// A store that responds no faster than `device`, over `inner`.
///
/// Behind a device with [`Device::part`], a store that is written anywhere becomes one of whole
/// objects. Unfinished uploads are in the store's hidden directory `.bowwave-uploads`.
///
/// # Errors
/// `Io` if the timer thread cannot be started.
pub fn emulate(inner: Arc<dyn Backend>, device: Device) -> Result<Arc<dyn Backend>> {
    let part = device.part.filter(|_| inner.profile().writes == Writes::Anywhere);
    let slow = slow(inner, device)?;
    Ok(match part {
        Some(part) => Arc::new(Whole::new(slow, part)),
        None => Arc::new(slow),
    })
}

fn slow(inner: Arc<dyn Backend>, device: Device) -> Result<Slow> {
    let station = Station::start(&device)?;
    let name = format!("emulate:{}", device.name);
    Ok(Wrapped::new(&name, inner, Emulation { device, station, addresses: Mutex::default() }))
}

/// A store behind a device.
type Slow = Wrapped<Emulation>;

#[derive(Debug)]
struct Emulation {
    device: Device,
    station: Station,
    addresses: Mutex<Addresses>,
}

impl Layer for Emulation {
    fn profile(&self, inner: Profile) -> Profile {
        let latency = self.device.first_byte();
        let request_bytes_best = request_bytes_best(latency, self.device.rate_of_one());
        Profile {
            kind: format!("emulate:{}", self.device.name),
            request_bytes_best,
            slots: self.device.slots,
            latency,
            deadline: None,
            seeks: self.device.seeks(),
            write_part_bytes: match inner.writes {
                Writes::No => 0,
                Writes::Whole => inner.write_part_bytes,
                Writes::Anywhere => request_bytes_best,
            },
            ..inner
        }
    }

    fn before_metadata(&self) {
        if !self.device.metadata.is_zero() {
            std::thread::sleep(self.device.metadata);
        }
    }

    fn place(&self, path: &Path, inner: &dyn Object) -> u64 {
        self.addresses.lock().of(path, inner.identity())
    }

    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.station.read(object, offset, buf, sink);
    }

    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.station.write(object, offset, buf, sink);
    }

    fn sync(&self, inner: &dyn WriteObject, data_only: bool) -> Result<()> {
        self.station.flush(|| inner.sync(data_only))
    }
}

/// Ten times latency × bandwidth, to the nearest power of two, from 128 KiB to 32 MiB: the time to
/// first byte is then a tenth.
fn request_bytes_best(latency: Duration, rate: u64) -> u64 {
    let bytes = 10.0 * latency.as_secs_f64() * rate as f64;
    let power = bytes.max(1.0).log2().round().clamp(17.0, 25.0);
    1 << power as u32
}

#[cfg(test)]
mod tests;
