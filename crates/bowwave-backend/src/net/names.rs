//! Names in a bucket: objects and directories are listed, created, removed and renamed.
//!
//! A directory is a common prefix. `mkdir` stores a marker, as the consoles of the clouds do: an
//! empty object whose key is that of the directory with a slash. Without a marker, a directory
//! exists while it contains an object. Removing the last object stores a marker, so that `rm` of a
//! file never removes its directory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowwave_core::Instant as CoreInstant;
use bowwave_core::network::ListingLimits;
use bytes::Bytes;
use http::HeaderMap;
use object_store::path::Path as Key;

use super::cloud::{Kind, Pages};
use super::directories::Found;
use super::limits::LIST_IDLE_PAGES_MAX;
use super::meta::{self, COPY_WHOLE_BYTES_MAX, Header, Meta, Stored};
use super::name_cache::PAGES_MAX;
use super::object::{ObjectBackend, Standing};
use super::object_upload::{Location, ObjectUpload};
use super::plan::Sizes;
use super::ranged::Version;
use super::runtime;
use super::writer::CloudWriter;
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, FoundEntry, Namespace, OpenWrite, Owner, Rename, Result,
    SetAttributes, Upload, Validity, WillRead, Write, WriteObject, path,
};

impl Namespace for ObjectBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn lookup(&self, path: &Path, will_read: WillRead) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default();
        let known = if self.cloud.names.is_on() { Some(self.cached_early(path, will_read)?) } else { None };
        match known {
            Some((Standing::Object(meta), validity)) => {
                let partial = self.lacks_attributes() && !meta.has_attributes();
                Ok(Entry { partial, ..described(name, &meta, validity) })
            }
            Some((Standing::Directory { .. }, validity)) if self.cloud.names.plain.is_plain() => {
                Ok(Entry { validity, ..Entry::directory(name) })
            }
            _ => self.stat(path),
        }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default();
        let lacks = |standing: &Standing| match standing {
            // A listing has no attributes.
            Standing::Object(meta) => self.cloud.attributes && !meta.has_attributes(),
            _ => false,
        };
        let is_on = self.cloud.names.is_on();
        let cached = if is_on { Some(self.cached_early(path, WillRead::Any)?) } else { None };
        let (standing, validity) = match cached.filter(|(standing, _)| !lacks(standing)) {
            Some(known) => known,
            None => {
                let asked = self.cloud.names.asked();
                let found = match self.looked_ahead(path)? {
                    Some(meta) => Standing::Object(Box::new(meta)),
                    None => self.standing(path)?,
                };
                (found, self.cloud.names.validity(asked))
            }
        };
        match standing {
            Standing::Object(meta) => Ok(described(name, &meta, validity)),
            Standing::Directory { marked } if marked && self.cloud.attributes => {
                let (stored, validity) = self.attributes_of_directory(path, validity)?;
                Ok(with_stored(Entry { validity, ..Entry::directory(name) }, stored))
            }
            Standing::Directory { .. } => Ok(Entry { validity, ..Entry::directory(name) }),
            // The first object creates the prefix.
            Standing::Nothing if self.new_prefix && path.as_os_str().is_empty() => Ok(Entry::directory(name)),
            Standing::Nothing => Err(path::not_found(&self.url, path)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let prefix = self.prefix_of(path)?;
        let names = &self.cloud.names;
        if !names.is_on() {
            return Ok(self.read_directory(path)?.into_entries(None));
        }
        let known = || {
            let is_ahead = names.is_ahead(&prefix);
            let entries = self.known(path)?;
            if is_ahead {
                self.note_listed(&prefix, || entries.iter());
            }
            self.list_ahead();
            Some(entries)
        };
        if let Some(entries) = known() {
            return Ok(entries);
        }
        let listing = names.begin(&prefix);
        // Another thread may have listed it.
        if let Some(entries) = known() {
            return Ok(entries);
        }
        let read = self.read_directory(path)?;
        let lifetime = listing.end(read.found());
        self.list_ahead();
        Ok(read.into_entries(Some(lifetime)))
    }

    fn known(&self, path: &Path) -> Option<Vec<Entry>> {
        let (names, until) = self.cloud.names.names(&self.prefix_of(path).ok()?)?;
        let entries = names.into_iter().filter_map(|(name, known)| self.known_entry(&name, &known, until));
        Some(entries.collect())
    }

    fn known_size(&self, path: &Path) -> Option<u64> {
        self.cloud.names.size(self.key(path).ok()?.0.as_ref())
    }

    fn list_soon(&self, path: &Path) -> bool {
        let is_planned = self.prefix_of(path).is_ok_and(|prefix| self.cloud.names.plan_soon(prefix));
        self.list_ahead();
        is_planned
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
            deadline: CoreInstant(u64::MAX),
        };
        let (mut pages, mut is_directory) = (HashSet::new(), prefix.is_empty());
        let retry = self.cloud.wire.client.limits.retry;
        self.list_pages(Pages::below(&prefix, !recursive, 0), limits, retry, |page| {
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
        if !above.as_os_str().is_empty() && self.look_cached(above)?.is_some() {
            return Err(path::not_a_directory(&self.url, above));
        }
        self.mark(&key, self.headers(&Stored::new(mode, owner), EntryKind::Directory))?;
        self.cloud.names.created(&format!("{key}/"));
        Ok(())
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
        if self.look_cached(path)?.is_none() {
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
        let found = match self.look_cached(path) {
            // The attributes of the next version are those of this one.
            Ok(Some(found)) if !found.has_attributes() && self.cloud.attributes => self.look(path)?,
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
    /// As [`cached`](Self::cached); it is looked up again before the listing of its directory
    /// expires.
    fn cached_early(&self, path: &Path, will_read: WillRead) -> Result<(Standing, Validity)> {
        let (standing, validity) = self.cached(path, will_read)?;
        Ok((standing, Validity(validity.0.map(|until| self.cloud.names.kept_until(until)))))
    }

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
        Ok(matches!(self.cached(path, WillRead::Any)?.0, Standing::Nothing))
    }

    fn require_empty_directory(&self, path: &Path, place: &str) -> Result<()> {
        if path.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::Busy, format!("{place}: the store's root cannot be removed")));
        }
        if self.look_cached(path)?.is_some() {
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
        let (names, prefix) = (&self.cloud.names, format!("{directory}/"));
        if names.is_on() {
            // The directory's own key is no name in it.
            let name = key.as_ref().strip_prefix(&prefix);
            let mut known = names.has_others(&prefix, name);
            if known.is_none() && names.is_listed(&prefix) {
                // A listing answers the next removals, too.
                let listing = names.begin(&prefix);
                let pages = Pages::below(&prefix, true, 0);
                if let Ok((read, _)) = self.read_pages(pages, PAGES_MAX, self.cloud.once()) {
                    listing.end(read.found());
                    self.list_ahead();
                    known = names.has_others(&prefix, name);
                }
            }
            if let Some(has_others) = known {
                return Ok(has_others);
            }
        }
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
    pub(super) fn headers_of_marker(&self, path: &Path) -> Result<HeaderMap> {
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

fn described(name: &OsStr, meta: &Meta, validity: Validity) -> Entry {
    let entry = Entry {
        size: meta.size,
        modified: meta.modified,
        identity: Some(meta.identity()),
        validity,
        ..Entry::new(name, EntryKind::File)
    };
    with_stored(entry, meta.stored())
}

/// An entry with the attributes that programs have set.
pub(super) fn with_stored(entry: Entry, stored: Stored) -> Entry {
    let uploaded = stored.modified.and(entry.modified);
    let modified = stored.modified.or(entry.modified);
    Entry { mode: stored.mode, uid: stored.uid, gid: stored.gid, modified, uploaded, ..entry }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

fn exists(place: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("{place}: is there already"))
}

/// Longest key of S3, Google and Azure; a directory's key needs one more byte for its slash.
const KEY_BYTES_MAX: usize = 1024;
