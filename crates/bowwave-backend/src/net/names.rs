//! Names in a bucket: objects and directories are listed, created, removed and renamed.
//!
//! A directory is a common prefix. `mkdir` stores a marker, as the consoles of the clouds do: an
//! empty object whose key is that of the directory with a slash. Without a marker, a directory
//! exists while it contains an object. Removing the last object stores a marker, so that `rm` of a
//! file never removes its directory.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowwave_core::Instant;
use bowwave_core::network::ListingLimits;
use bytes::Bytes;
use http::HeaderMap;
use object_store::path::Path as Key;

use super::cloud::{Kind, Pages};
use super::limits::{LIST_DEADLINES, LIST_ENTRY_BYTES_MAX, LIST_IDLE_PAGES_MAX, now};
use super::listing::{self, Listed, is_path};
use super::meta::{self, COPY_WHOLE_BYTES_MAX, Header, Meta, Stored};
use super::object::{ObjectBackend, Standing};
use super::object_upload::{Location, ObjectUpload};
use super::plan::Sizes;
use super::ranged::Version;
use super::runtime;
use super::validator::identity;
use super::writer::CloudWriter;
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, FoundEntry, Namespace, OpenWrite, Owner, Rename, Result,
    SetAttributes, Upload, Write, WriteObject, path,
};

impl Namespace for ObjectBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default();
        let standing = match self.looked_ahead(path)? {
            Some(meta) => Standing::Object(Box::new(meta)),
            None => self.standing(path)?,
        };
        match standing {
            Standing::Object(meta) => {
                let entry = Entry {
                    size: meta.size,
                    modified: meta.modified,
                    identity: Some(meta.identity()),
                    ..Entry::new(name, EntryKind::File)
                };
                Ok(with_stored(entry, meta.stored()))
            }
            Standing::Directory { marked } if marked && self.cloud.attributes => Ok(with_stored(
                Entry::directory(name),
                Stored::of(&self.headers_of_marker(path)?, EntryKind::Directory),
            )),
            Standing::Directory { .. } => Ok(Entry::directory(name)),
            // The first object creates the prefix.
            Standing::Nothing if self.new_prefix && path.as_os_str().is_empty() => Ok(Entry::directory(name)),
            Standing::Nothing => Err(path::not_found(&self.url, path)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let (key, _) = self.key(path)?;
        let prefix = if key.as_ref().is_empty() { String::new() } else { format!("{key}/") };
        let (mut names, mut is_directory) = (BTreeMap::<OsString, Entry>::new(), key.as_ref().is_empty());
        let partial = self.cloud.attributes;
        let mut take = |found: Found| {
            is_directory = true;
            // Keys that are no file names are not shown.
            let Some((name, entry)) = found.named(&prefix) else { return false };
            // A server without delimiter support also lists deeper keys.
            if name.components().nth(1).is_some() {
                return false;
            }
            // If a key is also a prefix of others, the object is shown.
            if entry.kind == EntryKind::Directory && names.contains_key(name.as_os_str()) {
                return false;
            }
            names.insert(name.into_os_string(), Entry { partial, ..entry }).is_none()
        };
        let budget = self.cloud.wire.client.limits.retry.budget_ns;
        let limits = ListingLimits {
            idle_pages_max: LIST_IDLE_PAGES_MAX,
            entries_max: self.list_entries_max,
            bytes_max: self.list_entries_max.saturating_mul(LIST_ENTRY_BYTES_MAX),
            deadline: Instant(now().0.saturating_add(budget.saturating_mul(LIST_DEADLINES))),
        };
        self.list_pages(Pages::below(&prefix, true, 0), limits, |page| {
            ControlFlow::Continue(Found::all(page).map(|found| u64::from(take(found))).sum())
        })?;
        if !is_directory {
            match self.standing(path)? {
                Standing::Object(_) => return Err(path::not_a_directory(&self.url, path)),
                Standing::Nothing if !(self.new_prefix && path.as_os_str().is_empty()) => {
                    return Err(path::not_found(&self.url, path));
                }
                Standing::Directory { .. } | Standing::Nothing => {}
            }
        }
        let keys = |kind| {
            let names = names.values().filter(move |entry| entry.kind == kind);
            names.filter_map(|entry| Some(format!("{prefix}{}", entry.name.to_str()?)))
        };
        // Only stored attributes need lookups ahead.
        let files = if partial { keys(EntryKind::File).collect() } else { Vec::new() };
        self.cloud.ahead.listed(files, keys(EntryKind::Directory));
        Ok(names.into_values().collect())
    }

    fn walk(&self, path: &Path, recursive: bool, found: &mut FoundEntry<'_>) -> Result<u64> {
        let (key, _) = self.key(path)?;
        let prefix = if key.as_ref().is_empty() { String::new() } else { format!("{key}/") };
        let mut left_out = 0;
        // Entries are not kept, so only the caller bounds their number and the time.
        let limits = ListingLimits {
            idle_pages_max: LIST_IDLE_PAGES_MAX,
            entries_max: u64::MAX,
            bytes_max: u64::MAX,
            deadline: Instant(u64::MAX),
        };
        let (mut pages, mut is_directory) = (HashSet::new(), prefix.is_empty());
        self.list_pages(Pages::below(&prefix, !recursive, 0), limits, |page| {
            let mut all: Vec<_> = Found::all(page).collect();
            all.sort_by(|a, b| a.key().cmp(b.key()));
            is_directory |= !all.is_empty();
            // A hash of earlier pages is kept: detects a server that repeats one.
            let mut hash = DefaultHasher::new();
            all.iter().for_each(|found| found.key().hash(&mut hash));
            let new_entries = if pages.insert(hash.finish()) { all.len() as u64 } else { 0 };
            for one in all {
                // The directory's own marker has no name.
                if one.key() == prefix {
                    continue;
                }
                match one.named(&prefix) {
                    Some((name, entry)) => found(&name, Ok(entry))?,
                    None => left_out += 1,
                }
            }
            ControlFlow::Continue(new_entries)
        })?;
        if !is_directory && self.look(path)?.is_some() {
            return Err(path::not_a_directory(&self.url, path));
        }
        Ok(left_out)
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        let (key, place) = self.new_key(path)?;
        if !self.is_free(path)? {
            return Err(exists(&place));
        }
        let above = parent(path);
        if !above.as_os_str().is_empty() && self.look(above)?.is_some() {
            return Err(path::not_a_directory(&self.url, above));
        }
        self.mark(&key, self.headers(&Stored::new(mode, owner), EntryKind::Directory))
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        _: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        let (key, place) = self.new_key(path)?;
        if kind != EntryKind::File {
            let message = format!("{place}: an object store has files and directories, nothing else");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if !self.is_free(path)? {
            return Err(exists(&place));
        }
        let headers = self.headers(&Stored::new(mode, owner), kind);
        self.wait(
            |cloud| async move { cloud.put(&key, &place, Bytes::new(), true, &headers).await.map(drop) },
        )
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let (key, _) = self.key(path)?;
        if self.look(path)?.is_none() {
            return Err(path::is_a_directory(&self.url, path));
        }
        self.keep_directory_of(path)?;
        self.delete(key.to_string())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let (key, place) = self.key(path)?;
        self.require_empty_directory(path, &place)?;
        self.keep_directory_of(path)?;
        self.delete(format!("{key}/"))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        self.rename_entry(from, to, how, &SetAttributes::default())
    }

    fn rename_with(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        if !self.cloud.attributes {
            return Err(self.no_attributes(from));
        }
        self.rename_entry(from, to, how, attributes)
    }

    /// Stores attributes of a file or a directory. A directory without a marker gets one; the
    /// bucket itself has none.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        if !self.cloud.attributes {
            return Err(self.no_attributes(path));
        }
        let (key, place) = self.key(path)?;
        if let Some(meta) = self.look(path)? {
            let stored = meta.stored();
            if stored.with(attributes) == stored {
                return Ok(());
            }
            let headers = self.replaced(&meta, attributes, &place)?;
            let place = self.place(key, place);
            return runtime::wait(async move { meta::replace(&place, meta, headers).await });
        }
        let marked = self.headers_of_marker(path)?;
        let stored = Stored::of(&marked, EntryKind::Directory);
        let wanted = stored.with(attributes);
        if key.as_ref().is_empty() || wanted == stored {
            return Ok(());
        }
        self.mark(&key, self.resent(&marked, &wanted, EntryKind::Directory, &place)?)
    }
}

impl Write for ObjectBackend {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        let (key, place) = self.new_key(path)?;
        let found = match self.look(path) {
            Ok(Some(found)) => Some(found),
            Ok(None) => return Err(path::is_a_directory(&self.url, path)),
            Err(error) if error.kind() == ErrorKind::NotFound && how.create => None,
            Err(error) => return Err(error),
        };
        if found.is_some() && how.create && how.exclusive {
            return Err(exists(&place));
        }
        let fresh = found.is_none() || how.truncate;
        let place = self.place(key, place);
        // A rewritten file keeps mode and owner, but not the time.
        let stored = match &found {
            Some(found) => Stored { modified: None, ..found.stored() },
            None => Stored::new(how.mode, how.owner),
        };
        let published = found
            .filter(|_| !how.truncate)
            .map(|meta| Arc::new(Version::of_object(&self.cloud, &place.name, meta)));
        let exclusive = how.create && how.exclusive;
        Ok(Arc::new(CloudWriter::new(place, self.gate.clone(), published, fresh, exclusive, stored)))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        let prefix = self.prefix.to_string();
        let listed = self.wait(|cloud| async move { cloud.uploads(&prefix).await })?;
        let below = |key: &str| {
            let rest = key.strip_prefix(self.prefix.as_ref())?;
            // `directory` is no prefix of `directory.old/x`.
            let inside = self.prefix.as_ref().is_empty() || rest.is_empty();
            if inside { Some(PathBuf::from(rest)) } else { rest.strip_prefix('/').map(PathBuf::from) }
        };
        let uploads = listed.into_iter().filter_map(|upload| {
            Some(Upload { path: below(&upload.key)?, id: upload.id, begun: upload.begun })
        });
        Ok(uploads.collect())
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        // Not through a key: any program may have begun it, for any name.
        let key = match (self.prefix.as_ref(), upload.path.to_string_lossy().as_ref()) {
            (prefix, "") => prefix.to_owned(),
            ("", below) => below.to_owned(),
            (prefix, below) => format!("{prefix}/{below}"),
        };
        let id = upload.id.clone();
        self.wait(|cloud| async move { cloud.abort(&key, &id).await })
    }
}

impl ObjectBackend {
    fn rename_entry(&self, from: &Path, to: &Path, how: Rename, attributes: &SetAttributes) -> Result<()> {
        let (from_key, from_place) = self.key(from)?;
        let (to_key, to_place) = self.new_key(to)?;
        if how == Rename::Exchange {
            let message = format!("{from_place}: an object store cannot exchange names");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let source = self.look(from)?;
        if from == to {
            return if how == Rename::NoReplace { Err(exists(&to_place)) } else { Ok(()) };
        }
        let target = match self.look(to) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if target.is_some() && how == Rename::NoReplace {
            return Err(exists(&to_place));
        }
        match (source, target) {
            (Some(_), Some(None)) => Err(path::is_a_directory(&self.url, to)),
            (None, Some(Some(_))) => Err(path::not_a_directory(&self.url, to)),
            (Some(meta), _) => {
                let headers = self.replaced(&meta, attributes, &from_place)?;
                self.copy(meta, to_key, to_place, how == Rename::NoReplace, headers)?;
                self.keep_directory_of(from)?;
                self.delete(from_key.to_string())
            }
            (None, target) => {
                if to.starts_with(from) {
                    let message = format!("{from_place}: a directory cannot be moved into itself");
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
                if target.is_some() {
                    self.require_empty_directory(to, &to_place)?;
                }
                if self.has_others(&from_key, &from_key)? {
                    let message = format!(
                        "{from_place}: a directory that is not empty cannot be renamed in an object store; copy it and \
                         remove it"
                    );
                    return Err(Error::new(ErrorKind::CrossDevice, message));
                }
                let marked = self.headers_of_marker(from)?;
                let wanted = Stored::of(&marked, EntryKind::Directory).with(attributes);
                self.mark(&to_key, self.resent(&marked, &wanted, EntryKind::Directory, &from_place)?)?;
                self.keep_directory_of(from)?;
                self.delete(format!("{from_key}/"))
            }
        }
    }

    /// The key of a new name.
    fn new_key(&self, path: &Path) -> Result<(Key, String)> {
        let invalid = |why: &str| {
            let message = format!("{}: {why}", path::place(&self.url, path));
            Err(Error::new(ErrorKind::Invalid, message))
        };
        path::check(path)?;
        if path.to_str().is_none() {
            return invalid("names in an object store are UTF-8");
        }
        let Ok((key, place)) = self.key(path) else {
            return invalid("a name with control characters cannot be a key");
        };
        if key.as_ref().is_empty() {
            return Err(path::is_a_directory(&self.url, path));
        }
        if key.as_ref().len() >= KEY_BYTES_MAX {
            let message = format!("{place}: a key has {KEY_BYTES_MAX} bytes at most");
            return Err(Error::new(ErrorKind::NameTooLong, message));
        }
        Ok((key, place))
    }

    fn place(&self, key: Key, name: String) -> Location {
        Location { cloud: Arc::clone(&self.cloud), key, name: name.into(), sizes: Sizes::default() }
    }

    fn is_free(&self, path: &Path) -> Result<bool> {
        Ok(matches!(self.standing(path)?, Standing::Nothing))
    }

    fn require_empty_directory(&self, path: &Path, place: &str) -> Result<()> {
        if path.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::Busy, format!("{place}: the store's root cannot be removed")));
        }
        if self.look(path)?.is_some() {
            return Err(path::not_a_directory(&self.url, path));
        }
        let (directory, _) = self.key(path)?;
        if !self.has_others(&directory, &directory)? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotEmpty, format!("{place}: the directory is not empty")))
    }

    /// Stores a marker for the directory of `path`, if `path` is the last object in it.
    fn keep_directory_of(&self, path: &Path) -> Result<()> {
        let (key, _) = self.key(path)?;
        let (directory, _) = self.key(parent(path))?;
        // A bucket exists without objects. The directory of a single-object store is not part of
        // the store.
        if directory.as_ref().is_empty() || path.as_os_str().is_empty() {
            return Ok(());
        }
        if self.has_others(&directory, &key)? { Ok(()) } else { self.mark(&directory, Vec::new()) }
    }

    /// Whether a directory has objects besides `key`. A marker counts as the key of its directory,
    /// without the slash.
    fn has_others(&self, directory: &Key, key: &Key) -> Result<bool> {
        // The marker, `key` and one more.
        let found = self.list_keys(&format!("{directory}/"), 3)?;
        Ok(found.iter().any(|found| found.strip_suffix('/').unwrap_or(found) != key.as_ref()))
    }

    fn mark(&self, directory: &Key, headers: Vec<Header>) -> Result<()> {
        let key = format!("{directory}/");
        self.wait(|cloud| async move { cloud.mark(&key, &headers).await })
    }

    fn no_attributes(&self, path: &Path) -> Error {
        let place = path::place(&self.url, path);
        let message = format!(
            "{place}: mode, owner and times cannot be changed: this mount of an object store does not store them \
             (--metadata store or --metadata ignore)"
        );
        Error::new(ErrorKind::Unsupported, message)
    }

    /// The headers of a directory's marker; none without one, and where none are stored.
    fn headers_of_marker(&self, path: &Path) -> Result<HeaderMap> {
        let (key, place) = self.key(path)?;
        if !self.cloud.attributes || key.as_ref().is_empty() {
            return Ok(HeaderMap::new());
        }
        let key = format!("{key}/");
        let headers = self.wait(|cloud| async move { cloud.head_marker(&key, &place).await })?;
        Ok(headers.unwrap_or_default())
    }

    /// The headers of a new object with these attributes.
    fn headers(&self, stored: &Stored, kind: EntryKind) -> Vec<Header> {
        if self.cloud.attributes { stored.headers(kind) } else { Vec::new() }
    }

    /// The headers of a copy of `meta` with changed attributes. The time is kept; otherwise it
    /// would be that of the copy.
    fn replaced(&self, meta: &Meta, attributes: &SetAttributes, place: &str) -> Result<Vec<Header>> {
        let stored = meta.stored();
        let modified = stored.modified.or(meta.modified);
        let wanted = Stored { modified, ..stored }.with(attributes);
        self.resent(&meta.headers, &wanted, EntryKind::File, place)
    }

    fn resent(
        &self,
        headers: &HeaderMap,
        wanted: &Stored,
        kind: EntryKind,
        place: &str,
    ) -> Result<Vec<Header>> {
        if !self.cloud.attributes {
            return Ok(Vec::new());
        }
        meta::resent(headers, wanted, kind, place)
    }

    fn delete(&self, key: String) -> Result<()> {
        self.wait(|cloud| async move { cloud.delete(&key).await })
    }

    /// Copies an object on the server; the copy is complete on return.
    fn copy(&self, from: Meta, to: Key, place: String, exclusive: bool, headers: Vec<Header>) -> Result<()> {
        let to = self.place(to, place);
        // S3 copies up to 5 GiB with one request, and supports conditions only for uploads.
        let by_parts = to.cloud.kind == Kind::Amazon && (exclusive || from.size > COPY_WHOLE_BYTES_MAX);
        runtime::wait(async move {
            let size = from.size;
            if by_parts {
                let source = Version::of_object(&to.cloud, &to.name, from);
                let object_upload = ObjectUpload::new(&to, Some(Arc::new(source)), size);
                object_upload.set_headers(headers);
                let published = object_upload.publish(exclusive).await;
                if published.is_err() {
                    object_upload.abort().await;
                }
                return published.map(drop);
            }
            to.cloud.copy(&from, &to.key, exclusive, &headers).await?;
            // A server may respond before it has copied.
            let copied = to.cloud.head(&to.key, &to.name).await?;
            match copied {
                Some(copied) if copied.size == size => Ok(()),
                _ => {
                    let message =
                        format!("{}: the server has not copied all; both are left as they are", to.name);
                    Err(Error::new(ErrorKind::Io, message))
                }
            }
        })
    }
}

/// An element of a listing.
enum Found {
    Object(Listed),
    /// A common prefix, with its slash.
    Directory(String),
}

impl Found {
    fn all(page: listing::Page) -> impl Iterator<Item = Self> {
        page.prefixes.into_iter().map(Self::Directory).chain(page.objects.into_iter().map(Self::Object))
    }

    fn key(&self) -> &str {
        match self {
            Self::Object(object) => &object.key,
            Self::Directory(key) => key,
        }
    }

    /// The entry and its path below `prefix`; `None` for keys outside, and for keys that are no
    /// file names. A key that ends in a slash marks a directory.
    fn named(self, prefix: &str) -> Option<(PathBuf, Entry)> {
        let key = self.key();
        let below = key.strip_prefix(prefix).filter(|below| !below.is_empty() && is_path(key))?;
        let (bare, is_marker) = below.strip_suffix('/').map_or((below, false), |bare| (bare, true));
        let name = OsString::from(bare.rsplit('/').next().unwrap_or(bare));
        let path = PathBuf::from(bare);
        let entry = match self {
            Self::Object(object) if !is_marker => entry(name, &object),
            Self::Object(_) | Self::Directory(_) => Entry::directory(&name),
        };
        Some((path, entry))
    }
}

/// An entry with the attributes that programs have set.
fn with_stored(entry: Entry, stored: Stored) -> Entry {
    let uploaded = stored.modified.and(entry.modified);
    let modified = stored.modified.or(entry.modified);
    Entry { mode: stored.mode, uid: stored.uid, gid: stored.gid, modified, uploaded, ..entry }
}

fn entry(name: OsString, object: &Listed) -> Entry {
    Entry {
        size: object.version.size.unwrap_or(0),
        modified: object.modified,
        // Listings without tags would give a different identity than responses with tags.
        identity: object.version.etag.is_some().then(|| identity(&object.version, object.modified)),
        ..Entry::new(name, EntryKind::File)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

fn exists(place: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("{place}: is there already"))
}

/// Longest key of S3, Google and Azure; a directory's key needs one more byte for its slash.
const KEY_BYTES_MAX: usize = 1024;
