//! A store in memory whose reads the test defines.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowwave_engine::backend::{
    Backend, Identity, MemoryBackend, Namespace, Object, OpenWrite, Profile, ReadBuf, ReadSink, Result,
    Write, WriteBuf, WriteObject, WriteSink,
};

/// Serves a read of the object.
pub(crate) type Read = dyn Fn(&dyn Object, u64, ReadBuf, Box<dyn ReadSink>) + Send + Sync;

#[derive(Clone)]
pub(crate) struct Scripted {
    pub(crate) memory: MemoryBackend,
    pub(crate) profile: Profile,
    /// What all objects claim to be.
    pub(crate) identity: Option<Identity>,
    /// Time before each write.
    pub(crate) write_delay: Duration,
    pub(crate) writes: Arc<AtomicU64>,
    pub(crate) read: Arc<Read>,
}

impl Scripted {
    /// The objects of `memory`, served by `read`.
    pub(crate) fn new(
        memory: MemoryBackend,
        read: impl Fn(&dyn Object, u64, ReadBuf, Box<dyn ReadSink>) + Send + Sync + 'static,
    ) -> Self {
        let (profile, writes, read) = (memory.profile(), Arc::default(), Arc::new(read));
        Self { memory, profile, identity: None, write_delay: Duration::ZERO, writes, read }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Backend for Scripted {
    fn url(&self) -> &str {
        "scripted:"
    }
    fn profile(&self) -> Profile {
        self.profile.clone()
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        Ok(self.open_write(path, &OpenWrite::default())?)
    }
    fn namespace(&self) -> Option<&dyn Namespace> {
        self.memory.namespace()
    }
    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }
}

impl Write for Scripted {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        Ok(Arc::new(ScriptedObject(self.memory.open_write(path, how)?, self.clone())))
    }
}

#[derive(Debug)]
struct ScriptedObject(Arc<dyn WriteObject>, Scripted);

impl Object for ScriptedObject {
    fn size(&self) -> u64 {
        self.1.identity.as_ref().map_or_else(|| self.0.size(), |identity| identity.size)
    }
    fn identity(&self) -> &Identity {
        self.1.identity.as_ref().unwrap_or_else(|| self.0.identity())
    }
    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        (self.1.read)(&*self.0, offset, buf, sink);
    }
}

impl WriteObject for ScriptedObject {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        self.1.writes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.1.write_delay);
        self.0.write(offset, buf, sink);
    }
    fn sync(&self, data_only: bool) -> Result<()> {
        self.0.sync(data_only)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn finish(&self) -> Result<Identity> {
        self.0.finish()
    }
}
