//! Open objects behind an emulated device: the inner store does the work, the schedule says when it is told.

use std::sync::Arc;
use std::sync::mpsc;

use super::station::{Kind, Station};
use super::transfer::{Arrival, Listener, Transfer};
use crate::{
    Allocate, Attributes, Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result, Seek, WriteBuf,
    WriteObject, WriteSink, generate,
};

/// An object open for reading.
#[derive(Debug)]
pub(super) struct EmulatedObject {
    pub(super) inner: Arc<dyn Object>,
    /// Where on the disk the object lies.
    pub(super) address: u64,
    pub(super) station: Arc<Station>,
    /// It is being written, so that only the inner store knows where it ends.
    pub(super) grows: bool,
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
        let len = if self.grows { buf.len() } else { generate::within(self.inner.size(), offset, buf.len()) };
        if len == 0 {
            // Nothing for the device to do.
            return self.inner.read(offset, buf, sink);
        }
        self.station.read(&self.inner, self.address, offset, buf, len, sink);
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let (address, station) = (self.address, Arc::clone(&self.station));
        let anew = |inner| Arc::new(Self { inner, address, station, grows: false }) as _;
        Some(self.inner.opened_anew()?.map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
    }
}

/// The same, open for writing.
#[derive(Debug)]
pub(super) struct EmulatedWriteObject {
    pub(super) read: EmulatedObject,
    pub(super) inner: Arc<dyn WriteObject>,
}

impl Object for EmulatedWriteObject {
    fn size(&self) -> u64 {
        self.read.size()
    }

    fn identity(&self) -> &Identity {
        self.read.identity()
    }

    fn place(&self) -> u64 {
        self.read.place()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.read.read(offset, buf, sink);
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.read.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        self.read.opened_anew()
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.read.attributes()
    }
}

impl WriteObject for EmulatedWriteObject {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        if buf.is_empty() {
            return self.inner.write(offset, buf, sink);
        }
        self.read.station.write(&self.inner, self.read.address, offset, buf, sink);
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.read.station.flush(|| self.inner.sync(data_only))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.inner.allocate(offset, len, how)
    }

    fn finish(&self) -> Result<Identity> {
        self.inner.finish()
    }

    fn next_attributes(&self) -> crate::SetAttributes {
        self.inner.next_attributes()
    }

    fn set_next_attributes(&self, attributes: &crate::SetAttributes) -> Result<()> {
        self.inner.set_next_attributes(attributes)
    }

    fn abort(&self) {
        self.inner.abort();
    }
}

impl Station {
    /// Reads `len > 0` bytes of `inner` as late as the device says.
    pub(super) fn read(
        &self,
        inner: &Arc<dyn Object>,
        address: u64,
        offset: u64,
        buf: ReadBuf,
        len: usize,
        sink: Box<dyn ReadSink>,
    ) {
        let transfer = Transfer::new(Listener::Read(sink));
        if self.add(Kind::Read, address.wrapping_add(offset), len as u64, &transfer) {
            inner.read(offset, buf, Box::new(Arrival(transfer)));
        } else {
            transfer.refuse_read(buf, too_many());
        }
    }

    /// Writes bytes, at least one, to `inner` and tells of it as late as the device says.
    pub(super) fn write(
        &self,
        inner: &Arc<dyn WriteObject>,
        address: u64,
        offset: u64,
        buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    ) {
        let transfer = Transfer::new(Listener::Write(sink));
        if self.add(Kind::Write, address.wrapping_add(offset), buf.len() as u64, &transfer) {
            inner.write(offset, buf, Box::new(Arrival(transfer)));
        } else {
            transfer.refuse_write(buf, too_many());
        }
    }

    /// Does `flush` and returns as late as the device's own flush ends.
    pub(super) fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let transfer = Transfer::new(Listener::Flush(sender));
        if self.add(Kind::Flush, 0, 0, &transfer) {
            // The device is at it meanwhile.
            transfer.flushed(flush());
        } else {
            transfer.refuse_flush(too_many());
        }
        drop(transfer);
        receiver
            .recv()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "the emulated device has lost a flush")))
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::Throttled, "too many requests wait for the emulated device")
}
