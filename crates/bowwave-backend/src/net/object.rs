//! Object stores: S3, Google Cloud Storage, Azure Blob Storage.
//!
//! Keys are paths; a folder is a common prefix. Where a key is also a prefix of others, the object is shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _};

use super::client::{chain, transport_error};
use super::intake::Intake;
use super::runtime::{self, AsyncWork, Gate};
use crate::{Backend, Entry, EntryKind, Error, ErrorKind, Identity, Object, Profile};
use crate::{ReadBuf, ReadSink, Result, generate, path};

/// All objects of a bucket at and below a prefix.
#[derive(Debug)]
pub struct ObjectBackend {
    url: String,
    kind: String,
    prefix: Key,
    store: Arc<dyn ObjectStore>,
    gate: Gate,
    slots: u32,
}

impl ObjectBackend {
    pub(super) fn new(
        kind: &str,
        bucket: String,
        prefix: Key,
        store: Arc<dyn ObjectStore>,
        slots: u32,
    ) -> Self {
        let url = path::place(&bucket, Path::new(prefix.as_ref()));
        Self { url, kind: kind.to_owned(), prefix, store, gate: Gate::new(slots), slots }
    }

    /// The key of `path` and its name for messages.
    fn key(&self, path: &Path) -> Result<(Key, String)> {
        path::check(path)?;
        let place = path::place(&self.url, path);
        let below = path.to_str().ok_or_else(|| path::not_found(&self.url, path))?;
        let full = match (self.prefix.as_ref(), below) {
            (prefix, "") => prefix.to_owned(),
            ("", below) => below.to_owned(),
            (prefix, below) => format!("{prefix}/{below}"),
        };
        let key = Key::parse(full).map_err(|_| path::not_found(&self.url, path))?;
        Ok((key, place))
    }

    fn look(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        let (key, place) = self.key(path)?;
        let store = Arc::clone(&self.store);
        runtime::wait(async move {
            if !key.as_ref().is_empty() {
                match store.head(&key).await {
                    Ok(found) => return Ok(Some(found)),
                    Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(store_error(&place, &error)),
                }
            }
            // No such object; a folder is there if something is below it. An empty bucket is one all the same.
            let bucket = key.as_ref().is_empty();
            let prefix = (!bucket).then_some(&key);
            match store.list(prefix).next().await {
                Some(Ok(_)) => Ok(None),
                None if bucket => Ok(None),
                Some(Err(error)) if !matches!(error, object_store::Error::NotFound { .. }) => {
                    Err(store_error(&place, &error))
                }
                _ => Err(path::not_found(&place, Path::new(""))),
            }
        })
    }
}

impl Backend for ObjectBackend {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        Profile {
            request_bytes_best: 16 << 20,
            slots: self.slots,
            latency: Duration::from_millis(30),
            ..Profile::read_only(self.kind.clone())
        }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default();
        Ok(match self.look(path)? {
            Some(object) => entry(name.to_owned(), &object),
            None => Entry::directory(name),
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let (key, place) = self.key(path)?;
        let (store, prefix) = (Arc::clone(&self.store), (!key.as_ref().is_empty()).then(|| key.clone()));
        let found = runtime::wait(async move {
            store.list_with_delimiter(prefix.as_ref()).await.map_err(|error| store_error(&place, &error))
        })?;
        let mut names = BTreeMap::<OsString, Entry>::new();
        for folder in &found.common_prefixes {
            if let Some(name) = name_below(&key, folder) {
                names.insert(name.clone(), Entry::directory(&name));
            }
        }
        for object in &found.objects {
            if let Some(name) = name_below(&key, &object.location) {
                names.insert(name.clone(), entry(name, object));
            }
        }
        if names.is_empty() && found.objects.is_empty() && self.look(path)?.is_some() {
            return Err(path::not_a_directory(&self.url, path));
        }
        Ok(names.into_values().collect())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let (key, place) = self.key(path)?;
        let object = self.look(path)?.ok_or_else(|| path::is_a_directory(&self.url, path))?;
        let identity = identity(&object);
        let store = Arc::clone(&self.store);
        let target = Target { store, key, place: place.into(), identity, version: object };
        Ok(Arc::new(CloudObject { target: Arc::new(target), gate: self.gate.clone() }))
    }
}

#[derive(Debug)]
struct CloudObject {
    target: Arc<Target>,
    gate: Gate,
}

impl Object for CloudObject {
    fn size(&self) -> u64 {
        self.target.identity.size
    }

    fn identity(&self) -> &Identity {
        &self.target.identity
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = generate::within(self.size(), offset, buf.len());
        let intake = Intake::new(buf, len, sink);
        if len == 0 {
            return intake.end(Ok(()));
        }
        let fetch = Fetch { target: Arc::clone(&self.target), offset, intake };
        if let Err((fetch, error)) = self.gate.spawn(fetch) {
            fetch.intake.end(Err(error));
        }
    }
}

/// The version of an object that reads must be of.
#[derive(Debug)]
struct Target {
    store: Arc<dyn ObjectStore>,
    key: Key,
    place: Arc<str>,
    identity: Identity,
    version: ObjectMeta,
}

struct Fetch {
    target: Arc<Target>,
    offset: u64,
    intake: Intake,
}

impl AsyncWork for Fetch {
    async fn run(mut self) {
        let result = self.fetch().await;
        self.intake.end(result);
    }
}

impl Fetch {
    async fn fetch(&mut self) -> Result<()> {
        let Target { store, key, place, identity: then, version } = &*self.target;
        let range = GetRange::Bounded(self.offset..self.offset + self.intake.len() as u64);
        let mut options = GetOptions { range: Some(range), ..GetOptions::default() };
        match &version.e_tag {
            // A weak tag never matches: it does not promise equal bytes.
            Some(etag) if !etag.starts_with("W/") => options.if_match = Some(etag.clone()),
            _ => options.if_unmodified_since = Some(version.last_modified),
        }
        let answer = store.get_opts(key, options).await.map_err(|error| match error {
            object_store::Error::NotFound { .. } => path::changed(place),
            error => store_error(place, &error),
        })?;
        // Stores may ignore the condition.
        let now = identity(&answer.meta);
        if now != *then {
            return Err(path::changed(place));
        }
        let place = Arc::clone(place);
        self.intake.take(&place, answer.into_stream(), |error| store_error(&place, &error)).await
    }
}

/// The name of `key` in the folder `folder`, if a file can be called so.
fn name_below(folder: &Key, key: &Key) -> Option<OsString> {
    let mut parts = key.prefix_match(folder)?;
    let name = parts.next()?;
    let name = name.as_ref();
    // The marker object of the folder itself has no part left; what no file can be called is not shown.
    (parts.next().is_none() && !matches!(name, "" | "." | "..") && !name.contains('\0')).then(|| name.into())
}

fn entry(name: OsString, object: &ObjectMeta) -> Entry {
    Entry {
        size: object.size,
        modified: Some(object.last_modified.into()),
        // Listings without tags would give another identity than answers with them.
        identity: object.e_tag.is_some().then(|| identity(object)),
        ..Entry::new(name, EntryKind::File)
    }
}

fn identity(object: &ObjectMeta) -> Identity {
    // The time only where there is no tag: listings give it more exactly than answers do.
    let modified_ns = match object.e_tag {
        Some(_) => None,
        None => object.last_modified.timestamp_nanos_opt().map(i128::from),
    };
    Identity { etag: object.e_tag.clone(), modified_ns, size: object.size, ..Identity::default() }
}

fn store_error(place: &str, error: &object_store::Error) -> Error {
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
