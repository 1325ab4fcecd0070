//! A version of an object of a cloud: reading it, and nothing else in its place.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};

use super::client::{chain, transport_error};
use super::cloud::persist;
use super::intake::Intake;
use super::runtime::{AsyncWork, Gate};
use crate::{Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result, generate, path};

/// One version of an object; reads of it never give bytes of another.
#[derive(Debug)]
pub(super) struct Version {
    store: Arc<dyn ObjectStore>,
    key: Key,
    place: Arc<str>,
    pub(super) identity: Identity,
    pub(super) meta: ObjectMeta,
}

impl Version {
    pub(super) fn new(store: &Arc<dyn ObjectStore>, key: &Key, place: &Arc<str>, meta: ObjectMeta) -> Self {
        let (store, key, place) = (Arc::clone(store), key.clone(), Arc::clone(place));
        Self { store, key, place, identity: identity(&meta), meta }
    }

    /// Reads through `gate`.
    pub(super) fn read(self: &Arc<Self>, gate: &Gate, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = generate::within(self.identity.size, offset, buf.len());
        let intake = Intake::new(buf, len, sink);
        if len == 0 {
            return intake.end(Ok(()));
        }
        let fetch = Fetch { version: Arc::clone(self), offset, intake };
        if let Err((fetch, error)) = gate.spawn(fetch) {
            fetch.intake.end(Err(error));
        }
    }

    /// The bytes of a range within the object.
    pub(super) async fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        persist(|| async {
            let answer = self.get(range.clone()).await?;
            let bytes = answer.bytes().await.map_err(|error| store_error(&self.place, &error))?;
            if bytes.len() as u64 == range.end - range.start {
                return Ok(bytes);
            }
            Err(Error::new(ErrorKind::Truncated, format!("{}: the body ended early", self.place)))
        })
        .await
    }

    async fn get(&self, range: Range<u64>) -> Result<GetResult> {
        let mut options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        match &self.meta.e_tag {
            // A weak tag never matches: it does not promise equal bytes.
            Some(etag) if !etag.starts_with("W/") => options.if_match = Some(etag.clone()),
            _ => options.if_unmodified_since = Some(self.meta.last_modified),
        }
        let answer = self.store.get_opts(&self.key, options).await.map_err(|error| match error {
            object_store::Error::NotFound { .. } => path::changed(&self.place),
            error => store_error(&self.place, &error),
        })?;
        // Stores may ignore the condition.
        if identity(&answer.meta) == self.identity { Ok(answer) } else { Err(path::changed(&self.place)) }
    }
}

/// An object open for reading.
#[derive(Debug)]
pub(super) struct CloudObject {
    pub(super) version: Arc<Version>,
    pub(super) gate: Gate,
}

impl Object for CloudObject {
    fn size(&self) -> u64 {
        self.version.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.version.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.version.read(&self.gate, offset, buf, sink);
    }
}

struct Fetch {
    version: Arc<Version>,
    offset: u64,
    intake: Intake,
}

impl AsyncWork for Fetch {
    async fn run(mut self) {
        let unwanted = self.intake.unwanted();
        // Dropped half-way, it closes its connection, and its sink hears no more of it.
        if let Some(result) = super::runtime::unless(unwanted, self.fetch()).await {
            self.intake.end(result);
        }
    }
}

impl Fetch {
    async fn fetch(&mut self) -> Result<()> {
        let answer = self.version.get(self.offset..self.offset + self.intake.len() as u64).await?;
        let place = Arc::clone(&self.version.place);
        self.intake.take(&place, answer.into_stream(), |error| store_error(&place, &error)).await
    }
}

pub(super) fn identity(object: &ObjectMeta) -> Identity {
    // The time only where there is no tag: listings give it more exactly than answers do.
    let modified_ns = match object.e_tag {
        Some(_) => None,
        None => object.last_modified.timestamp_nanos_opt().map(i128::from),
    };
    Identity { etag: object.e_tag.clone(), modified_ns, size: object.size, ..Identity::default() }
}

pub(super) fn store_error(place: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let (kind, what) = match error {
        Store::NotFound { .. } => (ErrorKind::NotFound, "no such object or bucket"),
        Store::Precondition { .. } | Store::NotModified { .. } => return path::changed(place),
        Store::PermissionDenied { .. } => (ErrorKind::PermissionDenied, "the credentials do not suffice"),
        Store::Unauthenticated { .. } => (ErrorKind::Unauthenticated, "the credentials are wrong"),
        Store::NotSupported { .. } | Store::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "cannot be done")
        }
        Store::InvalidPath { .. } => (ErrorKind::Protocol, "a key cannot be a path"),
        _ => return transport_error(place, error),
    };
    Error::new(kind, format!("{place}: {what} ({})", brief(error)))
}

/// What the server says: the text of its `<Message>`, or all.
fn brief(error: &object_store::Error) -> String {
    let text = chain(error);
    let message = text.split_once("<Message>").and_then(|(_, rest)| Some(rest.split_once("</Message>")?.0));
    message.map_or_else(|| text.clone(), str::to_owned)
}
