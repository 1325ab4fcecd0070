//! Delays for single requests.

use std::sync::Arc;

use super::Device;
use super::station::Station;
use crate::{Error, ErrorKind, Object, ReadBuf, ReadSink, Result, WriteBuf, WriteObject, WriteSink};

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
