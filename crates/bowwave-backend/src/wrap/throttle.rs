//! A limit of throughput.

use std::sync::Arc;

use super::{Layer, Wrapped, WrappedObject, WrappedWriteObject, backend_by_field};
use crate::emulate::{Device, Station};
use crate::{Backend, ReadBuf, ReadSink, Result, WriteBuf, WriteSink};

/// A store with a throughput limit for reads, shared evenly among the reads in flight, and a
/// separate limit of the same rate for writes.
#[derive(Debug)]
pub struct Throttle {
    store: Wrapped<Link>,
}

impl Throttle {
    /// Limits `inner` to `rate` bytes a second in each direction; 0 counts as 1.
    ///
    /// # Errors
    /// `Io` if the timer thread cannot be started.
    pub fn new(inner: Arc<dyn Backend>, rate: u64) -> Result<Self> {
        let mut device = Device::free("throttle")?.with_rate(Some(rate.max(1)))?;
        // The link does not limit requests in flight.
        device.slots = u32::MAX;
        let link = Link { station: Station::start(&device)? };
        Ok(Self { store: Wrapped::new(&format!("throttle:{rate}"), inner, link) })
    }
}

backend_by_field!(Throttle);

#[derive(Debug)]
struct Link {
    station: Station,
}

impl Layer for Link {
    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.station.read(object, offset, buf, sink);
    }

    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.station.write(object, offset, buf, sink);
    }
}
