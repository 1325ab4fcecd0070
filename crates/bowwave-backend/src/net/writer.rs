//! A cloud object open for writing.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::RwLock;

use super::cloud::Kind;
use super::meta::{Header, Stored};
use super::object_upload::{Location, ObjectUpload};
use super::ranged::Version;
use super::runtime::{self, AsyncWork, Gate};
use crate::sync::Mutex;
use crate::{EntryKind, Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result};
use crate::{SetAttributes, SetTime, Upload, WriteBuf, WriteObject, WriteSink};

/// Reads come from the published version. Writes go to an upload that becomes the next version.
#[derive(Debug)]
pub(super) struct CloudWriter {
    shared: Arc<Shared>,
    gate: Gate,
    /// As of `open_write`.
    identity: Identity,
}

#[derive(Debug)]
struct Shared {
    place: Location,
    /// Held shared by each write; held exclusively by operations that must wait for all writes.
    writes: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    published: Option<Arc<Version>>,
    /// Publish only if the name is free.
    exclusive: bool,
    object_upload: Option<Arc<ObjectUpload>>,
    /// Attributes for the next version.
    stored: Stored,
}

impl CloudWriter {
    /// A writer of an object with this `published` version, if there is one. A `fresh` object is
    /// published by `finish` even without a write.
    pub(super) fn new(
        place: Location,
        gate: Gate,
        published: Option<Arc<Version>>,
        fresh: bool,
        exclusive: bool,
        stored: Stored,
    ) -> Self {
        let identity = published.as_ref().map(|version| version.identity.clone()).unwrap_or_default();
        let object_upload = fresh.then(|| Arc::new(new_upload(&place, &stored, None, 0)));
        let state = Mutex::new(State { published, exclusive, object_upload, stored });
        Self { shared: Arc::new(Shared { place, writes: RwLock::new(()), state }), gate, identity }
    }
}

impl Object for CloudWriter {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let published = self.shared.state.lock().published.clone();
        match published {
            Some(version) => version.read(&self.gate, offset, buf, sink),
            None => sink.done(buf, Ok(0)),
        }
    }
}

impl WriteObject for CloudWriter {
    fn write(&self, offset: u64, buf: WriteBuf, sink: Box<dyn WriteSink>) {
        let part = self.shared.place.sizes.part;
        if buf.is_empty() {
            return sink.done(buf, Ok(0));
        }
        if !offset.is_multiple_of(part) || buf.len() as u64 > part {
            let message = format!(
                "{}: cannot write {} bytes at {offset}: write at multiples of {part}, at most {part} bytes",
                self.shared.place.name,
                buf.len()
            );
            return sink.done(buf, Err(Error::new(ErrorKind::Invalid, message)));
        }
        let work = PartWrite { shared: Arc::clone(&self.shared), offset, buf, sink };
        if let Err((work, error)) = self.gate.spawn(work) {
            work.sink.done(work.buf, Err(error));
        }
    }

    fn sync(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let size = self.shared.size();
        if len == size {
            return Ok(());
        }
        if len > 0 {
            let message = format!(
                "{}: cannot change the size from {size} to {len} bytes: an object can only be truncated to 0",
                self.shared.place.name
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let shared = Arc::clone(&self.shared);
        runtime::wait(async move {
            let stored = shared.state.lock().stored;
            shared.abort(|place| Some(new_upload(place, &stored, None, 0))).await;
            Ok(())
        })
    }

    fn finish(&self) -> Result<Identity> {
        let shared = Arc::clone(&self.shared);
        runtime::wait(async move { shared.finish().await })
    }

    fn abort(&self) {
        let shared = Arc::clone(&self.shared);
        let abandoned = runtime::wait(async move {
            shared.abort(|_| None).await;
            Ok(())
        });
        // Without network threads there is no upload.
        drop(abandoned);
    }

    fn continue_upload(
        &self,
        upload: &Upload,
        fits: &mut dyn FnMut(Range<u64>, [u8; 16]) -> bool,
    ) -> Result<Vec<Range<u64>>> {
        let object_upload = self.shared.state.lock().object_upload.clone();
        // Resume only for a version that begins empty: parts copied from an old version have no MD5
        // to compare.
        let empty = object_upload.filter(|started| !started.is_started() && started.size() == 0);
        let Some(object_upload) = empty else { return Ok(Vec::new()) };
        let (place, id) = (self.shared.place.clone(), upload.id.clone());
        let parts = runtime::wait(async move { place.cloud.uploaded_parts(place.key.as_ref(), &id).await })?;
        Ok(object_upload.adopt(&upload.id, parts, fits))
    }

    fn leave_upload(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        let left = runtime::wait(async move {
            // Writes in flight end first.
            let writes = shared.writes.write().await;
            let object_upload = shared.state.lock().object_upload.take();
            drop(writes);
            let is_started = object_upload.is_some_and(|upload| upload.is_started());
            Ok(is_started && shared.place.cloud.kind != Kind::Azure)
        });
        left.unwrap_or(false)
    }

    fn next_attributes(&self) -> SetAttributes {
        if !self.shared.place.cloud.attributes {
            return SetAttributes::default();
        }
        let Stored { mode, uid, gid, modified } = self.shared.state.lock().stored;
        SetAttributes { mode, uid, gid, accessed: None, modified: modified.map(SetTime::At) }
    }

    fn set_next_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        if !self.shared.place.cloud.attributes {
            return Err(self.cannot("store attributes"));
        }
        self.shared.state.lock().stored = Stored::default().with(attributes);
        Ok(())
    }

    fn cannot(&self, what: &str) -> Error {
        let message = format!("{}: cannot {what}: this is an object store", self.shared.place.name);
        Error::new(ErrorKind::Unsupported, message)
    }
}

impl Drop for CloudWriter {
    fn drop(&mut self) {
        if self.shared.state.lock().object_upload.as_ref().is_some_and(|upload| upload.is_started()) {
            let shared = Arc::clone(&self.shared);
            runtime::spawn(async move { shared.abort(|_| None).await });
        }
    }
}

impl Shared {
    fn size(&self) -> u64 {
        let state = self.state.lock();
        let published = || state.published.as_ref().map_or(0, |version| version.identity.size);
        state.object_upload.as_ref().map_or_else(published, |object_upload| object_upload.size())
    }

    /// The upload for a write at `offset`: a new one continues the published version.
    fn object_upload(&self, offset: u64) -> Arc<ObjectUpload> {
        let mut state = self.state.lock();
        let base = state.published.clone();
        let stored = state.stored;
        let new = || Arc::new(new_upload(&self.place, &stored, base, offset));
        Arc::clone(state.object_upload.get_or_insert_with(new))
    }

    async fn finish(&self) -> Result<Identity> {
        let writes = self.writes.write().await;
        let (object_upload, exclusive) = {
            let state = self.state.lock();
            (state.object_upload.clone(), state.exclusive)
        };
        if let Some(object_upload) = object_upload {
            object_upload.set_headers(headers(&self.place, &self.state.lock().stored));
            let meta = object_upload.publish(exclusive).await?;
            let version = Version::of_object(&self.place.cloud, &self.place.name, meta);
            let mut state = self.state.lock();
            state.published = Some(Arc::new(version));
            state.exclusive = false;
            state.object_upload = None;
        }
        drop(writes);
        let published = self.state.lock().published.clone();
        Ok(published.map(|version| version.identity.clone()).unwrap_or_default())
    }

    /// Aborts the upload, and begins the `next` one.
    async fn abort(&self, next: impl FnOnce(&Location) -> Option<ObjectUpload>) {
        let _writes = self.writes.write().await;
        let object_upload = {
            let mut state = self.state.lock();
            std::mem::replace(&mut state.object_upload, next(&self.place).map(Arc::new))
        };
        if let Some(object_upload) = object_upload {
            object_upload.abort().await;
        }
    }
}

/// A new upload of a version with these attributes; nothing is sent yet.
fn new_upload(place: &Location, stored: &Stored, base: Option<Arc<Version>>, offset: u64) -> ObjectUpload {
    let object_upload = ObjectUpload::new(place, base, offset);
    object_upload.set_headers(headers(place, stored));
    object_upload
}

fn headers(place: &Location, stored: &Stored) -> Vec<Header> {
    if place.cloud.attributes { stored.headers(EntryKind::File) } else { Vec::new() }
}

/// A write in flight.
struct PartWrite {
    shared: Arc<Shared>,
    offset: u64,
    buf: WriteBuf,
    sink: Box<dyn WriteSink>,
}

impl AsyncWork for PartWrite {
    async fn run(self) {
        let Self { shared, offset, buf, sink } = self;
        let _writes = shared.writes.read().await;
        let object_upload = shared.object_upload(offset);
        let len = buf.len();
        match object_upload.admit(offset, len as u64, || Bytes::from(buf.to_vec())) {
            Ok(true) => sink.done(buf, Ok(len)),
            Ok(false) => object_upload.write(offset, buf, sink).await,
            Err(error) => sink.done(buf, Err(error)),
        }
    }
}
