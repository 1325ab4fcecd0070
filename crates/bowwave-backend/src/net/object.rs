//! Object stores: S3, Google Cloud Storage, Azure Blob Storage.
//!
//! Keys are paths; a folder is a common prefix. Where a key is also a prefix of others, the object is shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::ObjectMeta;
use object_store::path::Path as Key;

use super::cloud::{Cloud, Kind, persist};
use super::plan::Sizes;
use super::runtime::{self, Gate};
use super::version::{CloudObject, Version, identity, store_error};
use crate::{Backend, Entry, EntryKind, Object, OpenWrite, Owner, Profile, Rename, Result, Upload};
use crate::{WriteObject, Writes, path};

/// All objects of a bucket at and below a prefix.
#[derive(Debug)]
pub struct ObjectBackend {
    pub(super) url: String,
    pub(super) prefix: Key,
    pub(super) cloud: Arc<Cloud>,
    pub(super) gate: Gate,
    slots: u32,
}

impl ObjectBackend {
    pub(super) fn new(bucket: &str, prefix: Key, cloud: Cloud, slots: u32) -> Self {
        let url = path::place(bucket, Path::new(prefix.as_ref()));
        Self { url, prefix, cloud: Arc::new(cloud), gate: Gate::new(slots), slots }
    }

    /// The key of `path` and its name for messages.
    pub(super) fn key(&self, path: &Path) -> Result<(Key, String)> {
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

    /// What stands at `path`: an object, or `None` for a folder. Asks once: who reads tries again by itself.
    pub(super) fn look(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        let (key, place) = self.key(path)?;
        let cloud = Arc::clone(&self.cloud);
        runtime::wait(async move { look_once(&cloud, &key, &place).await })
    }

    /// As [`Self::look`], but asks until there is an answer.
    pub(super) fn look_surely(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        let (key, place) = self.key(path)?;
        let cloud = Arc::clone(&self.cloud);
        runtime::wait(async move { persist(|| look_once(&cloud, &key, &place)).await })
    }
}

async fn look_once(cloud: &Cloud, key: &Key, place: &str) -> Result<Option<ObjectMeta>> {
    if !key.as_ref().is_empty()
        && let Some(found) = cloud.head_once(key, place).await?
    {
        return Ok(Some(found));
    }
    // No such object; a folder is there if something is below it. An empty bucket is one all the same.
    let bucket = key.as_ref().is_empty();
    let prefix = (!bucket).then_some(key);
    match cloud.store.list(prefix).next().await {
        Some(Ok(_)) => Ok(None),
        None if bucket => Ok(None),
        Some(Err(error)) if !matches!(error, object_store::Error::NotFound { .. }) => {
            Err(store_error(place, &error))
        }
        _ => Err(path::not_found(place, Path::new(""))),
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
            writes: Writes::Whole,
            write_part_bytes: Sizes::default().part,
            ..Profile::read_only(match self.cloud.kind {
                Kind::Amazon => "s3",
                Kind::Google => "gs",
                Kind::Azure => "az",
            })
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
        let (store, prefix) =
            (Arc::clone(&self.cloud.store), (!key.as_ref().is_empty()).then(|| key.clone()));
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
        let meta = self.look(path)?.ok_or_else(|| path::is_a_directory(&self.url, path))?;
        let version = Arc::new(Version::new(&self.cloud.store, &key, &place.into(), meta));
        Ok(Arc::new(CloudObject { version, gate: self.gate.clone() }))
    }

    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        Ok(Arc::new(self.writer(path, how)?))
    }

    fn make_directory(&self, path: &Path, _: u32, _: Option<Owner>) -> Result<()> {
        self.make_folder(path)
    }

    fn make_node(&self, path: &Path, kind: EntryKind, _: u32, _: u64, _: Option<Owner>) -> Result<()> {
        self.make_empty(path, kind)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.remove_object(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.remove_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.rename_entry(from, to, how)
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.uploads()
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        self.abort_listed(upload)
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
