//! Directories of a bucket as listings have them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_core::Instant as CoreInstant;
use bowwave_core::network::{ListingLimits, Retry, RetryLimits, Validators};

use super::cloud::{Cloud, Kind, Pages};
use super::limits::{LIST_DEADLINES, LIST_ENTRY_BYTES_MAX, LIST_IDLE_PAGES_MAX, now};
use super::listing::{self, Listed, is_path};
use super::meta::Stored;
use super::name_cache::{self, Asked, Known};
use super::names::with_stored;
use super::object::{ObjectBackend, Standing};
use super::plain::Kept;
use super::runtime;
use super::validator::identity;
use crate::{Entry, EntryKind, Result, Validity, path};

impl ObjectBackend {
    /// The attributes of a directory with a marker, and until when they are valid.
    pub(super) fn attributes_of_directory(
        &self,
        path: &Path,
        validity: Validity,
    ) -> Result<(Stored, Validity)> {
        let (names, prefix) = (&self.cloud.names, self.prefix_of(path)?);
        if let Some((stored, until)) = names.attributes(&prefix) {
            return Ok((stored, Validity(Some(validity.0.map_or(until, |other| until.min(other))))));
        }
        let asked = names.asked();
        let stored = Stored::of(&self.headers_of_marker(path)?, EntryKind::Directory);
        names.learn_directory(&prefix, stored, asked);
        Ok((stored, validity))
    }

    /// The prefix of the keys in a directory.
    pub(super) fn prefix_of(&self, path: &Path) -> Result<String> {
        let (key, _) = self.key(path)?;
        Ok(if key.as_ref().is_empty() { String::new() } else { format!("{key}/") })
    }

    /// Whether a name may have stored attributes that its listing lacks.
    pub(super) fn lacks_attributes(&self) -> bool {
        self.cloud.attributes && !self.cloud.names.plain.is_plain()
    }

    /// The entry of a listed name.
    pub(super) fn known_entry(&self, name: &str, known: &Known, until: Instant) -> Option<Entry> {
        let validity = Validity(Some(until));
        match known {
            Known::Object(listed) => {
                let etag = Some(listed.etag.to_string());
                let version = Validators { etag, modified: None, size: Some(listed.size) };
                let entry = Entry {
                    size: listed.size,
                    modified: listed.modified,
                    identity: Some(identity(&version, listed.modified)),
                    partial: self.lacks_attributes() && listed.kept == Kept::Unknown,
                    validity,
                    ..Entry::new(name, EntryKind::File)
                };
                Some(with_stored(entry, listed.kept.stored().unwrap_or_default()))
            }
            Known::Directory => {
                let partial = self.lacks_attributes();
                Some(Entry { validity, partial, ..Entry::directory(OsStr::new(name)) })
            }
            Known::Absent | Known::Unknown => None,
        }
    }

    /// Lists a directory.
    pub(super) fn read_directory(&self, path: &Path) -> Result<DirectoryRead> {
        let prefix = self.prefix_of(path)?;
        let (read, is_directory) =
            self.read_pages(Pages::below(&prefix, true, 0), u32::MAX, self.cloud.wire.client.limits.retry)?;
        if !is_directory {
            match self.standing(path)? {
                Standing::Object(_) => return Err(path::not_a_directory(&self.url, path)),
                Standing::Nothing if !(self.new_prefix && path.as_os_str().is_empty()) => {
                    return Err(path::not_found(&self.url, path));
                }
                Standing::Directory { .. } | Standing::Nothing => {}
            }
        }
        self.note_listed(&prefix, || read.names.values().map(|(entry, _)| entry));
        Ok(read)
    }

    /// A program lists a directory with these entries.
    pub(super) fn note_listed<'a, I: Iterator<Item = &'a Entry>>(
        &self,
        prefix: &str,
        entries: impl Fn() -> I,
    ) {
        let keys = |kind| {
            let names = entries().filter(move |entry| entry.kind == kind);
            names.filter_map(|entry| Some(format!("{prefix}{}", entry.name.to_str()?)))
        };
        // Only stored attributes need lookups ahead.
        let files = if self.cloud.attributes { keys(EntryKind::File).collect() } else { Vec::new() };
        self.cloud.ahead.listed(files, keys(EntryKind::Directory));
    }

    /// Lists the directories that a program probably lists next.
    pub(super) fn list_ahead(&self) {
        for prefix in self.cloud.names.take_ahead() {
            let cloud = Arc::clone(&self.cloud);
            let listing = AheadListing { asked: cloud.names.asked(), cloud, prefix, found: None };
            runtime::spawn(async move {
                let cloud = Arc::clone(&listing.cloud);
                let mut retry = Retry::new(cloud.once(), now());
                let pages = Pages::below(&listing.prefix, true, 0);
                let page = cloud.page(&pages, Some(&mut retry)).await.and_then(|page| cloud.parse(&page));
                // A directory of several pages is listed when a program lists it.
                let Some(page) = page.ok().filter(|page| is_last(&cloud, page)) else { return };
                let mut read = DirectoryRead { is_complete: true, pages: 1, ..DirectoryRead::default() };
                let is_there = !(page.objects.is_empty() && page.prefixes.is_empty());
                for found in Found::all(page) {
                    read.add(&listing.prefix, found, false, listing.asked.at());
                }
                if is_there {
                    listing.end(read.found());
                }
            });
        }
    }

    /// Lists a directory from these pages on, at most `pages_max`, each within `retry`; also
    /// returns whether anything has its prefix.
    pub(super) fn read_pages(
        &self,
        pages: Pages,
        pages_max: u32,
        retry: RetryLimits,
    ) -> Result<(DirectoryRead, bool)> {
        let partial = self.lacks_attributes();
        let mut read = DirectoryRead { is_complete: true, ..DirectoryRead::default() };
        let prefix = pages.prefix.clone();
        let mut is_directory = prefix.is_empty();
        let deadlines = if pages_max == u32::MAX { LIST_DEADLINES } else { 1 };
        let time = retry.budget_ns.saturating_mul(deadlines);
        let limits = ListingLimits {
            idle_pages_max: LIST_IDLE_PAGES_MAX,
            entries_max: self.list_entries_max,
            bytes_max: self.list_entries_max.saturating_mul(LIST_ENTRY_BYTES_MAX),
            deadline: CoreInstant(now().0.saturating_add(time)),
        };
        let mut asked = Instant::now();
        self.list_pages(pages, limits, retry, |page| {
            read.pages += 1;
            let is_last = page.truncated == Some(false);
            let mut new_entries = 0;
            for found in Found::all(page) {
                is_directory = true;
                new_entries += u64::from(read.add(&prefix, found, partial, asked));
            }
            asked = Instant::now();
            if read.pages >= pages_max && !is_last {
                read.is_complete = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(new_entries)
        })?;
        Ok((read, is_directory))
    }
}

/// A listing ahead of a program. The cache of names gets its result when it is dropped.
struct AheadListing {
    cloud: Arc<Cloud>,
    prefix: String,
    asked: Asked,
    found: Option<name_cache::Found>,
}

impl AheadListing {
    fn end(mut self, found: name_cache::Found) {
        self.found = Some(found);
    }
}

impl Drop for AheadListing {
    fn drop(&mut self) {
        self.cloud.names.listed_ahead(&self.prefix, self.asked, self.found.take());
    }
}

/// Whether a page of a listing is the last one.
pub(super) fn is_last(cloud: &Cloud, page: &listing::Page) -> bool {
    match page.truncated {
        Some(truncated) => !truncated,
        None => cloud.kind == Kind::Azure && page.next.is_none(),
    }
}

/// A directory's entries.
#[derive(Debug, Default)]
pub(super) struct DirectoryRead {
    /// Each with the time when its page was requested.
    names: BTreeMap<OsString, (Entry, Instant)>,
    is_marked: bool,
    /// It has keys that are no file names.
    has_others: bool,
    is_complete: bool,
    pages: u32,
}

impl DirectoryRead {
    /// Adds an element of a page of `prefix` that was requested at `asked`; returns whether it is a
    /// new entry.
    fn add(&mut self, prefix: &str, found: Found, partial: bool, asked: Instant) -> bool {
        if found.key() == prefix {
            self.is_marked = true;
            return false;
        }
        // Keys that are no file names are not shown.
        let Some((name, entry)) = found.named(prefix) else {
            self.has_others = true;
            return false;
        };
        // A server without delimiter support also lists deeper keys.
        if name.components().nth(1).is_some() {
            self.has_others = true;
            return false;
        }
        // If a key is also a prefix of others, the object is shown.
        if entry.kind == EntryKind::Directory && self.names.contains_key(name.as_os_str()) {
            return false;
        }
        self.names.insert(name.into_os_string(), (Entry { partial, ..entry }, asked)).is_none()
    }

    /// The entries. Each is valid for `lifetime` from the request of its page on; without one, for
    /// no time.
    pub(super) fn into_entries(self, lifetime: Option<Duration>) -> Vec<Entry> {
        let validity = |asked| Validity(lifetime.map(|lifetime| asked + lifetime));
        let all = self.names.into_values();
        all.map(|(entry, asked)| Entry { validity: validity(asked), ..entry }).collect()
    }

    /// For the cache of names.
    pub(super) fn found(&self) -> name_cache::Found {
        let known = |entry: &Entry, asked| match (entry.kind, &entry.identity) {
            (EntryKind::Directory, _) => Known::Directory,
            (_, Some(identity)) => {
                let version =
                    Validators { etag: identity.etag.clone(), modified: None, size: Some(entry.size) };
                name_cache::Listed::new(&version, entry.size, entry.modified, asked)
                    .map_or(Known::Unknown, Known::Object)
            }
            (_, None) => Known::Unknown,
        };
        let named = |(name, (entry, asked)): (&OsString, &(Entry, Instant))| {
            Some((name.to_str()?.into(), known(entry, *asked), *asked))
        };
        name_cache::Found {
            names: self.names.iter().filter_map(named).collect(),
            is_marked: self.is_marked,
            has_others: self.has_others,
            is_complete: self.is_complete,
            pages: self.pages,
        }
    }
}

/// An element of a listing.
pub(super) enum Found {
    Object(Listed),
    /// A common prefix, with its slash.
    Directory(String),
}

impl Found {
    pub(super) fn all(page: listing::Page) -> impl Iterator<Item = Self> {
        page.prefixes.into_iter().map(Self::Directory).chain(page.objects.into_iter().map(Self::Object))
    }

    pub(super) fn key(&self) -> &str {
        match self {
            Self::Object(object) => &object.key,
            Self::Directory(key) => key,
        }
    }

    /// The entry and its path below `prefix`; `None` for keys outside, and for keys that are no
    /// file names. A key that ends in a slash marks a directory.
    pub(super) fn named(self, prefix: &str) -> Option<(PathBuf, Entry)> {
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

fn entry(name: OsString, object: &Listed) -> Entry {
    Entry {
        size: object.version.size.unwrap_or(0),
        modified: object.modified,
        // Listings without tags would give a different identity than responses with tags.
        identity: object.version.etag.is_some().then(|| identity(&object.version, object.modified)),
        ..Entry::new(name, EntryKind::File)
    }
}
