//! Stores over stores: each wrapper changes one aspect of the store below.

mod disk_cache;
mod fault;
mod limit;
mod throttle;
mod url;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

#[cfg(any(test, feature = "fuzzing"))]
pub use disk_cache::fuzz_disk_segment;
pub use disk_cache::{DiskCache, DiskStats};
pub use fault::{Fault, Faults, WriteFaults};
pub use limit::Limit;
pub use throttle::Throttle;
pub(crate) use url::open;

use crate::{
    Allocate, Attributes, Backend, Identity, Namespace, Object, OpenWrite, Profile, ReadBuf, ReadSink,
    Result, Seek, Upload, WillRead, Write, WriteBuf, WriteObject, WriteSink,
};

/// Changes of a wrapper to requests and to the profile; by default none.
pub trait Layer: Debug + Send + Sync + 'static {
    /// The wrapped store's profile; `profile` is the inner store's.
    fn profile(&self, profile: Profile) -> Profile {
        profile
    }

    /// Called before each request that is no read or write of bytes.
    fn before_metadata(&self) {}

    /// [`Object::place`] of an object.
    fn place(&self, path: &Path, inner: &dyn Object) -> u64 {
        let _ = path;
        inner.place()
    }

    /// [`Object::read`].
    fn read(&self, object: &WrappedObject<Self>, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>)
    where
        Self: Sized,
    {
        object.inner.read(offset, buf, sink);
    }

    /// [`WriteObject::write`].
    fn write(&self, object: &WrappedWriteObject<Self>, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>)
    where
        Self: Sized,
    {
        object.inner.write(offset, buf, sink);
    }

    /// [`WriteObject::sync`].
    fn sync(&self, inner: &dyn WriteObject, data_only: bool) -> Result<()> {
        inner.sync(data_only)
    }

    /// [`WriteObject::finish`].
    fn finish(&self, inner: &dyn WriteObject) -> Result<Identity> {
        inner.finish()
    }
}

/// A store whose requests go through a layer.
#[derive(Debug)]
pub struct Wrapped<L> {
    pub(crate) inner: Arc<dyn Backend>,
    /// The layer.
    pub layer: Arc<L>,
    url: String,
}

impl<L: Layer> Wrapped<L> {
    /// Wraps `inner`. The URL is `name:` and the inner URL.
    pub fn new(name: &str, inner: Arc<dyn Backend>, layer: L) -> Self {
        let url = format!("{name}:{}", inner.url());
        Self { inner, layer: Arc::new(layer), url }
    }

    /// Wraps `inner`. `grows`: its size changes while it is open.
    pub(crate) fn object(&self, path: &Path, inner: Arc<dyn Object>, grows: bool) -> WrappedObject<L> {
        let place = self.layer.place(path, &*inner);
        WrappedObject { inner, path: path.into(), layer: Arc::clone(&self.layer), place, grows }
    }

    /// Wraps `inner`, which is open for writing.
    pub(crate) fn write_object(&self, path: &Path, inner: Arc<dyn WriteObject>) -> WrappedWriteObject<L> {
        let read = self.object(path, Arc::clone(&inner) as _, true);
        WrappedWriteObject { read, inner }
    }
}

impl<L: Layer> Backend for Wrapped<L> {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        self.layer.profile(self.inner.profile())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        self.open_to_read(path, WillRead::Any)
    }

    fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<Arc<dyn Object>> {
        self.layer.before_metadata();
        let inner = self.inner.open_to_read(path, will_read)?;
        Ok(Arc::new(self.object(path, inner, false)))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        self.inner.writer().map(|_| self as _)
    }

    fn probe(&self) -> Result<Option<String>> {
        self.layer.before_metadata();
        self.inner.probe()
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}

impl<L: Layer> Namespace for Wrapped<L> {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn names_below(&self) -> Option<&dyn Namespace> {
        self.layer.before_metadata();
        self.inner.namespace()
    }
}

impl<L: Layer> Write for Wrapped<L> {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        self.layer.before_metadata();
        let inner = self.inner.open_write(path, how)?;
        Ok(Arc::new(self.write_object(path, inner)))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.layer.before_metadata();
        self.inner.stray_uploads()
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        self.layer.before_metadata();
        self.inner.abort_upload(upload)
    }
}

/// Implements `Backend` for a public wrapper by its field `store`.
macro_rules! backend_by_field {
    ($name:ident) => {
        impl crate::Backend for $name {
            fn url(&self) -> &str {
                self.store.url()
            }

            fn open(&self, path: &std::path::Path) -> crate::Result<std::sync::Arc<dyn crate::Object>> {
                self.store.open(path)
            }

            fn open_to_read(
                &self,
                path: &std::path::Path,
                will_read: crate::WillRead,
            ) -> crate::Result<std::sync::Arc<dyn crate::Object>> {
                self.store.open_to_read(path, will_read)
            }

            fn below(&self) -> Option<&dyn crate::Backend> {
                Some(&self.store)
            }
        }
    };
}
use backend_by_field;

/// An object behind a layer.
#[derive(Debug)]
pub struct WrappedObject<L> {
    /// The object below.
    pub inner: Arc<dyn Object>,
    /// Its path in the store below.
    pub path: Arc<Path>,
    layer: Arc<L>,
    pub(crate) place: u64,
    pub(crate) grows: bool,
}

impl<L: Layer> Object for WrappedObject<L> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.place
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.layer.read(self, offset, buf, sink);
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let anew = |inner| {
            let (path, layer) = (Arc::clone(&self.path), Arc::clone(&self.layer));
            Arc::new(Self { inner, path, layer, place: self.place, grows: false }) as _
        };
        Some(self.inner.opened_anew()?.map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
    }
}

/// The same, open for writing.
#[derive(Debug)]
pub struct WrappedWriteObject<L> {
    /// The same object for reads.
    pub read: WrappedObject<L>,
    /// The object below.
    pub inner: Arc<dyn WriteObject>,
}

impl<L: Layer> Object for WrappedWriteObject<L> {
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

impl<L: Layer> WriteObject for WrappedWriteObject<L> {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.read.layer.write(self, offset, buf, sink);
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.read.layer.sync(&*self.inner, data_only)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.inner.allocate(offset, len, how)
    }

    fn finish(&self) -> Result<Identity> {
        self.read.layer.finish(&*self.inner)
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

/// A sink that forwards to `sink`, and calls `end` with it when the request ends.
pub(crate) struct Ending<S: ?Sized, F> {
    pub(crate) sink: Box<S>,
    pub(crate) end: F,
}

impl<F> ReadSink for Ending<dyn ReadSink, F>
where
    F: FnOnce(Box<dyn ReadSink>, ReadBuf, Result<usize>) + Send,
{
    fn progress(&mut self, bytes: usize) {
        self.sink.progress(bytes);
    }

    fn done(self: Box<Self>, buf: ReadBuf, result: Result<usize>) {
        (self.end)(self.sink, buf, result);
    }

    fn deadline(&self) -> Option<Instant> {
        self.sink.deadline()
    }

    fn unwanted(&self) -> Option<Arc<AtomicBool>> {
        self.sink.unwanted()
    }
}

impl<F> WriteSink for Ending<dyn WriteSink, F>
where
    F: FnOnce(Box<dyn WriteSink>, WriteBuf, Result<usize>) + Send,
{
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        (self.end)(self.sink, buf, result);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
