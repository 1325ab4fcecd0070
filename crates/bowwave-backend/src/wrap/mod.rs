//! Stores over stores: each wrapper changes one aspect of the store below.

mod disk_cache;
mod fault;
mod limit;
mod throttle;
mod trace;
mod url;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

#[cfg(any(test, feature = "fuzzing"))]
pub use disk_cache::fuzz_disk_segment;
pub use disk_cache::{DiskCache, DiskStats};
pub use fault::{Fault, Faults, WriteFaults};
pub use limit::Limit;
pub use throttle::Throttle;
pub use trace::{Operation, Record, Trace, TraceLog};
pub(crate) use url::open;

use crate::{
    Allocate, Attributes, Backend, Identity, Object, OpenWrite, Profile, ReadBuf, ReadSink, Result, Seek,
    Upload, Write, WriteBuf, WriteObject, WriteSink,
};

/// Changes of a wrapper to requests and to the profile; by default none.
trait Layer: Debug + Send + Sync + 'static {
    fn profile(&self, profile: Profile) -> Profile {
        profile
    }

    fn read(
        self: &Arc<Self>,
        inner: &Arc<dyn Object>,
        path: &Arc<Path>,
        offset: u64,
        buf: ReadBuf,
        sink: Box<dyn ReadSink>,
    );

    fn write(
        self: &Arc<Self>,
        inner: &Arc<dyn WriteObject>,
        path: &Arc<Path>,
        offset: u64,
        buf: WriteBuf,
        sink: Box<dyn WriteSink>,
    );

    fn sync(&self, inner: &dyn WriteObject, path: &Path, data_only: bool) -> Result<()> {
        let _ = path;
        inner.sync(data_only)
    }

    fn finish(&self, inner: &dyn WriteObject, path: &Path) -> Result<Identity> {
        let _ = path;
        inner.finish()
    }
}

/// A store whose requests go through a layer.
#[derive(Debug)]
struct Wrapped<L> {
    inner: Arc<dyn Backend>,
    layer: Arc<L>,
    url: String,
}

impl<L: Layer> Wrapped<L> {
    fn new(name: &str, inner: Arc<dyn Backend>, layer: L) -> Self {
        let url = format!("{name}:{}", inner.url());
        Self { inner, layer: Arc::new(layer), url }
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
        let inner = self.inner.open(path)?;
        Ok(Arc::new(WrappedObject { inner, path: path.into(), layer: Arc::clone(&self.layer) }))
    }

    fn writer(&self) -> Option<&dyn Write> {
        self.inner.writer().map(|_| self as _)
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&*self.inner)
    }
}

impl<L: Layer> Write for Wrapped<L> {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let writes = self.inner.open_write(path, how)?;
        let inner: Arc<dyn Object> = Arc::clone(&writes) as _;
        Ok(Arc::new(WrappedWriteObject {
            read: WrappedObject { inner, path: path.into(), layer: Arc::clone(&self.layer) },
            inner: writes,
        }))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.inner.stray_uploads()
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
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

            fn below(&self) -> Option<&dyn crate::Backend> {
                Some(&self.store)
            }
        }
    };
}
use backend_by_field;

#[derive(Debug)]
struct WrappedObject<L> {
    inner: Arc<dyn Object>,
    path: Arc<Path>,
    layer: Arc<L>,
}

impl<L: Layer> Object for WrappedObject<L> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn place(&self) -> u64 {
        self.inner.place()
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.layer.read(&self.inner, &self.path, offset, buf, sink);
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(offset, what)
    }

    fn opened_anew(&self) -> Option<Result<Arc<dyn Object>>> {
        let anew = |inner| {
            Arc::new(Self { inner, path: Arc::clone(&self.path), layer: Arc::clone(&self.layer) }) as _
        };
        Some(self.inner.opened_anew()?.map(anew))
    }

    fn attributes(&self) -> Option<&dyn Attributes> {
        self.inner.attributes()
    }
}

/// The same, open for writing.
#[derive(Debug)]
struct WrappedWriteObject<L> {
    read: WrappedObject<L>,
    inner: Arc<dyn WriteObject>,
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
        self.read.layer.write(&self.inner, &self.read.path, offset, buf, sink);
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.read.layer.sync(&*self.inner, &self.read.path, data_only)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.inner.allocate(offset, len, how)
    }

    fn finish(&self) -> Result<Identity> {
        self.read.layer.finish(&*self.inner, &self.read.path)
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
