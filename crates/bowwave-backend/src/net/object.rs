//! Object stores: S3, Google Cloud Storage, Azure Blob Storage.
//!
//! Keys are paths; a directory is a common prefix. If a key is also a prefix of others, the object
//! is shown.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_core::Instant;
use bowwave_core::network::{Listing, ListingEnd, ListingLimits, Page, Retry, RetryLimits};
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::path::Path as Key;

use super::cloud::{Cloud, Kind, Pages};
use super::limits::{LIST_DEADLINES, LIST_ENTRY_BYTES_MAX, LIST_IDLE_PAGES_MAX, now};
use super::listing::{self, Listed, is_path};
use super::meta::{Meta, Stored};
use super::plan::Sizes;
use super::ranged::{Remote, Version};
use super::runtime::{self, Gate};
use super::stat_ahead::WINDOW_MAX;
use super::validator::identity;
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, FoundEntry, Namespace, NetworkStats, Object, OpenWrite,
    Options, Owner, Write,
};
use crate::{Profile, Rename, Result, SetAttributes, Upload, WriteObject, Writes, path};

/// All objects of a bucket at and below a prefix.
#[derive(Debug)]
pub struct ObjectBackend {
    pub(super) url: String,
    pub(super) prefix: Key,
    pub(super) cloud: Arc<Cloud>,
    pub(super) gate: Gate,
    slots: u32,
    require_version: bool,
    /// A prefix without objects is an empty directory.
    new_prefix: bool,
    list_entries_max: u64,
}

impl ObjectBackend {
    pub(super) fn new(bucket: &str, prefix: Key, cloud: Cloud, slots: u32, options: &Options) -> Self {
        let url = path::place(bucket, Path::new(prefix.as_ref()));
        let (require_version, list_entries_max) = (options.require_version, options.list_entries_max);
        let new_prefix = options.new_prefix;
        let (cloud, gate) = (Arc::new(cloud), Gate::new(slots));
        Self { url, prefix, cloud, gate, slots, require_version, new_prefix, list_entries_max }
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

    /// The entry at `path`: an object, or `None` for a directory.
    pub(super) fn look(&self, path: &Path) -> Result<Option<Meta>> {
        Ok(match self.standing(path)? {
            Standing::Object(meta) => Some(*meta),
            Standing::Directory { .. } => None,
            Standing::Nothing => return Err(path::not_found(&self.url, path)),
        })
    }

    /// The entry at `path`.
    pub(super) fn standing(&self, path: &Path) -> Result<Standing> {
        let (key, place) = self.key(path)?;
        let (cloud, is_bucket, key_text) =
            (Arc::clone(&self.cloud), key.as_ref().is_empty(), key.to_string());
        let prefix = if is_bucket { String::new() } else { format!("{key}/") };
        let marker = prefix.clone();
        let looked = runtime::wait(async move {
            // One call: both requests share its attempts and its deadline.
            cloud
                .persist(|| async {
                    if !is_bucket && let Some(found) = cloud.head_once(&key, &place).await? {
                        return Ok(Looked::Object(Box::new(found)));
                    }
                    // No such object; it is a directory if there are keys below it.
                    cloud.page_once(&Pages::below(&prefix, false, 1)).await.map(Looked::Page)
                })
                .await
        })?;
        let page = match looked {
            Looked::Object(found) => return Ok(Standing::Object(found)),
            Looked::Page(page) => self.cloud.parse(&page)?,
        };
        let has_some = !page.objects.is_empty() || !page.prefixes.is_empty() || page.truncated == Some(true);
        // An empty bucket exists.
        if !(is_bucket || has_some) {
            // One request more for each name that does not exist: only for the user's own URL, and
            // for names that a listing has shown.
            let may_be_listed = path.as_os_str().is_empty() || self.cloud.ahead.has_directory(&key_text);
            let is_listed = may_be_listed && self.lists_prefix(&key_text)?;
            return Ok(if is_listed { Standing::Directory { marked: false } } else { Standing::Nothing });
        }
        // In byte order, a marker precedes all other keys of the directory.
        let marked = page.objects.first().is_some_and(|first| first.key == marker);
        Ok(Standing::Directory { marked })
    }

    /// Whether the parent's listing has the directory `key`. Gateways to file systems list an empty
    /// directory only there, without a marker or any key in it.
    fn lists_prefix(&self, key: &str) -> Result<bool> {
        let (cloud, pages) = (Arc::clone(&self.cloud), Pages::below(key, true, 0));
        let page = runtime::wait(async move { cloud.page(&pages, None).await })?;
        let page = self.cloud.parse(&page)?;
        Ok(page.prefixes.iter().any(|prefix| prefix.strip_suffix('/') == Some(key)))
    }

    /// The object at `path`, looked up together with those that a listing names next; `None` where
    /// lookups ahead are off.
    fn looked_ahead(&self, path: &Path) -> Result<Option<Meta>> {
        if !self.cloud.attributes {
            return Ok(None);
        }
        let (key, _) = self.key(path)?;
        if let Some(meta) = self.cloud.ahead.take(key.as_ref()) {
            return Ok(Some(meta));
        }
        let (mut keys, planned) = self.cloud.ahead.plan(key.as_ref());
        if keys.is_empty() {
            return Ok(None);
        }
        keys.push(key.to_string());
        let cloud = Arc::clone(&self.cloud);
        runtime::wait(async move {
            let lookup = |key: String| {
                let cloud = &cloud;
                async move {
                    let key = Key::parse(key).ok()?;
                    // Errors are for the program that requests the file: it looks the file up
                    // again.
                    cloud.head_once(&key, key.as_ref()).await.ok()?
                }
            };
            let lookups = futures_util::stream::iter(keys).map(lookup).buffer_unordered(WINDOW_MAX + 1);
            let found: Vec<Option<Meta>> = lookups.collect().await;
            let mut found: Vec<Meta> = found.into_iter().flatten().collect();
            let own = found.iter().position(|meta| meta.key == key).map(|at| found.swap_remove(at));
            cloud.ahead.keep(found, planned);
            Ok(own)
        })
    }

    /// The first keys that begin with `prefix`, at most `count`.
    pub(super) fn list_keys(&self, prefix: &str, count: u32) -> Result<Vec<String>> {
        let (cloud, pages) = (Arc::clone(&self.cloud), Pages::below(prefix, false, count));
        let page = runtime::wait(async move { cloud.page(&pages, None).await })?;
        let page = self.cloud.parse(&page)?;
        Ok(page.objects.into_iter().map(|object| object.key).collect())
    }

    /// Requests the pages of a listing in order, until `take` breaks. `take` returns the number of
    /// new entries of a page. Pages are parsed on the caller's thread.
    fn list_pages(
        &self,
        mut pages: Pages,
        limits: ListingLimits,
        mut take: impl FnMut(listing::Page) -> ControlFlow<(), u64>,
    ) -> Result<()> {
        let retry_limits = self.cloud.wire.client.limits.retry;
        // No page outlasts the listing.
        let retry_of_page = || {
            let left = limits.deadline.0.saturating_sub(now().0);
            Retry::new(RetryLimits { budget_ns: retry_limits.budget_ns.min(left), ..retry_limits }, now())
        };
        let mut listing = Listing::new(limits);
        let mut retry = retry_of_page();
        loop {
            let (cloud, wanted) = (Arc::clone(&self.cloud), pages.clone());
            let (page, after) = runtime::wait(async move {
                let page = cloud.page(&wanted, Some(&mut retry)).await?;
                Ok((page, retry))
            })?;
            let bytes = page.len() as u64;
            let mut page = self.cloud.parse(&page)?;
            let (truncated, next) = (page.truncated, page.next.take());
            let ControlFlow::Continue(new_entries) = take(page) else { return Ok(()) };
            // Pages without new entries share one deadline.
            retry = if new_entries > 0 { retry_of_page() } else { after };
            let received = Page { new_entries, bytes, truncated, next: next.as_deref() };
            let goes_on = listing.page(now(), received).map_err(|end| self.endless(&pages.prefix, end))?;
            if !goes_on {
                return Ok(());
            }
            pages.token = next;
        }
    }

    /// The error for a listing that was given up.
    fn endless(&self, prefix: &str, end: ListingEnd) -> Error {
        let what = match end {
            ListingEnd::Repeated => "the store sends the same page again".to_owned(),
            ListingEnd::Idle { pages } => format!("{pages} pages in a row brought nothing new"),
            ListingEnd::NoToken => "more follows, but the store does not say how to get it".to_owned(),
            ListingEnd::Entries(most) => {
                let message = format!(
                    "{}/{prefix}: more than {most} entries in one directory (--list-max)",
                    self.cloud.wire.place
                );
                return Error::new(ErrorKind::TooLarge, message);
            }
            ListingEnd::Bytes(most) => format!("its pages have more than {most} bytes"),
            ListingEnd::Time => "it takes too long (--deadline)".to_owned(),
        };
        let message = format!("{}/{prefix}: the listing is given up: {what}", self.cloud.wire.place);
        Error::new(ErrorKind::Protocol, message)
    }
}

/// What stands at a path.
#[derive(Debug)]
pub(super) enum Standing {
    Object(Box<Meta>),
    /// Keys begin with the path and a slash.
    Directory {
        /// It has a marker.
        marked: bool,
    },
    Nothing,
}

/// Result of a lookup.
enum Looked {
    Object(Box<Meta>),
    /// No object; a page of the keys below.
    Page(Bytes),
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

impl Backend for ObjectBackend {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        Profile {
            request_bytes_best: 16 << 20,
            slots: self.slots,
            latency: Duration::from_millis(30),
            deadline: Some(self.cloud.wire.client.limits.deadline),
            writes: Writes::Whole,
            attributes: self.cloud.attributes,
            write_part_bytes: Sizes::default().part,
            ..Profile::read_only(match self.cloud.kind {
                Kind::Amazon => "s3",
                Kind::Google => "gs",
                Kind::Azure => "az",
            })
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let (_, place) = self.key(path)?;
        let meta = self.look(path)?.ok_or_else(|| path::is_a_directory(&self.url, path))?;
        let version = Version::of_object(&self.cloud, &place.into(), meta);
        version.require(self.require_version)?;
        Ok(Arc::new(Remote { version: Arc::new(version), gate: self.gate.clone() }))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Write> {
        Some(self)
    }

    fn probe(&self) -> Result<Option<String>> {
        let note = || format!("{}: nothing has this prefix yet, so the directory is empty", self.url);
        match self.standing(Path::new(""))? {
            Standing::Nothing if self.new_prefix => Ok(Some(note())),
            Standing::Nothing => Err(path::not_found(&self.url, Path::new(""))),
            _ => Ok(None),
        }
    }

    fn network(&self) -> Option<NetworkStats> {
        Some(self.cloud.wire.client.traffic.stats())
    }
}

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
            Standing::Directory { marked } if marked && self.cloud.attributes => {
                Ok(with_stored(Entry::directory(name), self.stored_of_marker(path)?))
            }
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
        self.create_marker(path, &Stored::new(mode, owner))
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        _: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        self.make_empty(path, kind, &Stored::new(mode, owner))
    }

    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        self.set_stored(path, attributes)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.remove_object(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.remove_marker(path)
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
}

impl Write for ObjectBackend {
    fn open_write(&self, path: &Path, how: &OpenWrite) -> Result<Arc<dyn WriteObject>> {
        Ok(Arc::new(self.writer(path, how)?))
    }

    fn stray_uploads(&self) -> Result<Vec<Upload>> {
        self.uploads()
    }

    fn abort_upload(&self, upload: &Upload) -> Result<()> {
        self.abort_listed(upload)
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
