//! Object stores: S3, Google Cloud Storage, Azure Blob Storage.
//!
//! Keys are paths; a directory is a common prefix. If a key is also a prefix of others, the object
//! is shown.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowwave_core::network::{Listing, ListingEnd, ListingLimits, Page, Retry, RetryLimits};
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::path::Path as Key;

use super::cloud::{Cloud, Kind, Pages};
use super::directories::is_last;
use super::errors::PROXY;
use super::first::First;
use super::limits::now;
use super::listing;
use super::meta::{Meta, Stored};
use super::name_cache::{
    Asked, Known, Listed, Listing as NamesListing, Lookup, PAGES_MAX, Page as NamesPage,
};
use super::plan::Sizes;
use super::ranged::{Remote, Version};
use super::runtime::{self, Gate};
use super::stat_ahead::WINDOW_MAX;
use crate::{Backend, Error, ErrorKind, KeepNames, Namespace, NetworkStats, Object, Options, Profile};
use crate::{Result, SMALL_BYTES, Validity, WillRead, Write, Writes, path};

/// Most entries of the page that tells what stands at one name.
const KEYS_OF_NAME: u32 = 16;

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
    pub(super) new_prefix: bool,
    pub(super) list_entries_max: u64,
}

impl ObjectBackend {
    pub(super) fn new(bucket: &str, prefix: Key, cloud: Cloud, slots: u32, options: &Options) -> Self {
        let url = path::place(bucket, Path::new(prefix.as_ref()));
        let (require_version, list_entries_max) = (options.require_version, options.list_entries_max);
        let new_prefix = options.new_prefix;
        let (cloud, gate) = (Arc::new(cloud), Gate::new(slots));
        Self { url, prefix, cloud, gate, slots, require_version, new_prefix, list_entries_max }
    }

    /// Runs a call and waits for it.
    pub(super) fn wait<T, F>(&self, call: impl FnOnce(Arc<Cloud>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        runtime::wait(call(Arc::clone(&self.cloud)))
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

    /// The entry at `path`, by a request: an object, or `None` for a directory.
    pub(super) fn look(&self, path: &Path) -> Result<Option<Meta>> {
        self.object(path, self.standing(path)?)
    }

    /// As [`look`](Self::look), from the cache of names if it has the entry.
    pub(super) fn look_cached(&self, path: &Path) -> Result<Option<Meta>> {
        self.object(path, self.cached(path, WillRead::Any)?.0)
    }

    fn object(&self, path: &Path, standing: Standing) -> Result<Option<Meta>> {
        Ok(match standing {
            Standing::Object(meta) => Some(*meta),
            Standing::Directory { .. } => None,
            Standing::Nothing => return Err(path::not_found(&self.url, path)),
        })
    }

    /// The entry at `path`, from the cache of names if it has the entry, and until when it may be
    /// used. Otherwise a request also has the bytes that the caller `will_read`, for the next open.
    pub(super) fn cached(&self, path: &Path, will_read: WillRead) -> Result<(Standing, Validity)> {
        let (key, _) = self.key(path)?;
        let names = &self.cloud.names;
        if !names.is_on() {
            return Ok((self.standing(path)?, Validity::default()));
        }
        if path.as_os_str().is_empty() {
            // The root is no name of a directory in this store.
            let may_be_marked = self.cloud.attributes && !key.as_ref().is_empty();
            let listed = names.root_listed_until(&self.prefix_of(path)?).map(|until| (may_be_marked, until));
            if let Some((marked, until)) = listed.or_else(|| names.root()) {
                self.list_ahead();
                return Ok((Standing::Directory { marked }, Validity(Some(until))));
            }
            let standing = self.root()?;
            return Ok((standing, Validity(names.root().map(|(_, until)| until))));
        }
        loop {
            let (known, until) = match names.look(key.as_ref()) {
                Lookup::Known(known, until) => {
                    self.list_ahead();
                    (known, until)
                }
                Lookup::List(listing) => match self.list_for_lookups(path, listing) {
                    Ok(()) => continue,
                    // A HEAD of the name has the error, if it concerns it.
                    Err(_) => {
                        let asked = names.asked();
                        return Ok((self.standing(path)?, names.validity(asked)));
                    }
                },
                Lookup::Page(page) => match self.list_page(page) {
                    Ok(()) => continue,
                    Err(_) => {
                        let asked = names.asked();
                        return Ok((self.standing(path)?, names.validity(asked)));
                    }
                },
                Lookup::Request(asked) => {
                    let standing = self.lookup_alone(path, &key, will_read, asked)?;
                    return Ok((standing, names.validity(asked)));
                }
            };
            let standing = match known {
                Known::Object(listed) => Standing::Object(Box::new(listed.meta(key))),
                Known::Directory => Standing::Directory { marked: self.cloud.attributes },
                Known::Absent => Standing::Nothing,
                Known::Unknown => self.standing(path)?,
            };
            return Ok((standing, Validity(Some(until))));
        }
    }

    /// Lists the directory of `path`, for this lookup and the next ones.
    fn list_for_lookups(&self, path: &Path, listing: NamesListing<'_>) -> Result<()> {
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        let pages = Pages::below(&self.prefix_of(directory)?, true, 0);
        match self.read_pages(pages, PAGES_MAX, self.cloud.once()) {
            Ok((read, _)) => {
                listing.end(read.found());
                self.list_ahead();
            }
            Err(error) => {
                listing.failed();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lists one page, for this lookup and the next ones in the order of names.
    fn list_page(&self, page: NamesPage<'_>) -> Result<()> {
        let pages = Pages { after: Some(page.after()), ..Pages::below(page.directory(), true, 0) };
        match self.read_pages(pages, 1, self.cloud.once()) {
            Ok((read, _)) => page.end(read.found()),
            Err(error) => {
                page.failed();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Requests one name, and enters the response in the cache of names. One listing of the keys
    /// that begin with it tells an object, a directory and nothing apart.
    fn lookup_alone(&self, path: &Path, key: &Key, will_read: WillRead, asked: Asked) -> Result<Standing> {
        let names = &self.cloud.names;
        // A HEAD has the attributes that are stored with a file.
        if self.cloud.attributes || !names.lists() {
            let may_request = will_read != WillRead::Any && self.cloud.waiting.look_up();
            let will_read = if may_request { will_read } else { WillRead::Any };
            let (standing, first) = self.standing_to_read(path, will_read)?;
            if let Standing::Object(meta) = &standing {
                self.cloud.waiting.keep(key.as_ref(), &meta.version, first);
            }
            return Ok(standing);
        }
        let pages = Pages::below(key.as_ref(), true, KEYS_OF_NAME);
        let listed = self.wait(|cloud| async move {
            let mut retry = Retry::new(cloud.once(), now());
            cloud.page(&pages, Some(&mut retry)).await
        });
        let page = match listed.and_then(|page| self.cloud.parse(&page)) {
            Ok(page) => page,
            Err(error) => {
                // Some users may read objects, and not list them.
                if error.kind() == ErrorKind::PermissionDenied {
                    names.set_refuses_listings();
                }
                // A HEAD needs no body.
                return self.standing(path);
            }
        };
        let is_directory =
            || page.prefixes.iter().any(|prefix| prefix.strip_suffix('/') == Some(key.as_ref()));
        let is_complete = is_last(&self.cloud, &page);
        let known = match page.objects.iter().find(|object| object.key == key.as_ref()) {
            Some(object) => Listed::of(object, asked).map_or(Known::Unknown, Known::Object),
            None if is_directory() => Known::Directory,
            None if is_complete => Known::Absent,
            // Other names that begin with this one fill the page.
            None => Known::Unknown,
        };
        if known == Known::Unknown {
            return self.standing(path);
        }
        names.enter(key.as_ref(), known.clone(), asked);
        Ok(match known {
            Known::Object(listed) => Standing::Object(Box::new(listed.meta(key.clone()))),
            Known::Directory => Standing::Directory { marked: false },
            Known::Absent | Known::Unknown => Standing::Nothing,
        })
    }

    /// What is at the store's URL, by a request; the cache of names gets it.
    fn root(&self) -> Result<Standing> {
        let asked = self.cloud.names.asked();
        let standing = self.standing(Path::new(""))?;
        if let Standing::Directory { marked } = standing {
            self.cloud.names.learn_root(marked, asked);
        }
        Ok(standing)
    }

    /// The entry at `path`, by a request; the cache of names gets it.
    pub(super) fn standing(&self, path: &Path) -> Result<Standing> {
        self.standing_to_read(path, WillRead::Any).map(|(standing, _)| standing)
    }

    /// As [`standing`](Self::standing), together with the first bytes that are read of an object.
    fn standing_to_read(&self, path: &Path, will_read: WillRead) -> Result<(Standing, First)> {
        let asked = self.cloud.names.asked();
        let (standing, first) = self.requested_standing(path, will_read)?;
        let (key, _) = self.key(path)?;
        if !key.as_ref().is_empty() {
            if matches!(standing, Standing::Directory { marked: false }) {
                // No marker, no attributes: `stat` need not request them.
                self.cloud.names.learn_directory(&format!("{key}/"), Stored::default(), asked);
            }
            let known = match &standing {
                Standing::Object(meta) => meta.known(),
                Standing::Directory { .. } => Known::Directory,
                Standing::Nothing => Known::Absent,
            };
            self.cloud.names.enter(key.as_ref(), known, asked);
        }
        Ok((standing, first))
    }

    fn requested_standing(&self, path: &Path, will_read: WillRead) -> Result<(Standing, First)> {
        let (key, place) = self.key(path)?;
        let (is_bucket, key_text) = (key.as_ref().is_empty(), key.to_string());
        let prefix = if is_bucket { String::new() } else { format!("{key}/") };
        let marker = prefix.clone();
        let looked = self.wait(|cloud| async move {
            // One call: both requests share its attempts and its deadline.
            cloud
                .persist(|| async {
                    let found = match is_bucket {
                        true => None,
                        false => cloud.first_once(&key, &place, will_read).await?,
                    };
                    if let Some((found, first)) = found {
                        return Ok(Looked::Object(Box::new(found), first));
                    }
                    // No such object; it is a directory if there are keys below it.
                    cloud.page_once(&Pages::below(&prefix, false, 1)).await.map(Looked::Page)
                })
                .await
        })?;
        let page = match looked {
            Looked::Object(found, first) => return Ok((Standing::Object(found), first)),
            Looked::Page(page) => self.cloud.parse(&page)?,
        };
        let has_some = !page.objects.is_empty() || !page.prefixes.is_empty() || page.truncated == Some(true);
        // An empty bucket exists.
        if !(is_bucket || has_some) {
            // One request more for each name that does not exist: only for the user's own URL, and
            // for names that a listing has shown.
            let may_be_listed = path.as_os_str().is_empty() || self.cloud.ahead.has_directory(&key_text);
            let is_listed = may_be_listed && self.lists_prefix(&key_text)?;
            let standing = if is_listed { Standing::Directory { marked: false } } else { Standing::Nothing };
            return Ok((standing, First::default()));
        }
        // In byte order, a marker precedes all other keys of the directory. An empty page that says
        // that there are more keys tells nothing.
        let marked = page.objects.first().is_none_or(|first| first.key == marker);
        Ok((Standing::Directory { marked }, First::default()))
    }

    /// Whether objects are opened by the version in the cache of names. Google sends compressed
    /// objects decompressed, unless their label is known before.
    fn opens_by_name(&self) -> bool {
        self.cloud.names.answers_opens() && self.cloud.kind != Kind::Google
    }

    /// Whether the parent's listing has the directory `key`. Gateways to file systems list an empty
    /// directory only there, without a marker or any key in it.
    fn lists_prefix(&self, key: &str) -> Result<bool> {
        let pages = Pages::below(key, true, 0);
        let page = self.wait(|cloud| async move { cloud.page(&pages, None).await })?;
        let page = self.cloud.parse(&page)?;
        Ok(page.prefixes.iter().any(|prefix| prefix.strip_suffix('/') == Some(key)))
    }

    /// The object at `path`, looked up together with those that a listing names next; `None` where
    /// lookups ahead are off.
    pub(super) fn looked_ahead(&self, path: &Path) -> Result<Option<Meta>> {
        if !self.lacks_attributes() {
            return Ok(None);
        }
        let (key, _) = self.key(path)?;
        if let Some(meta) = self.cloud.ahead.take(key.as_ref()) {
            return Ok(Some(meta));
        }
        let asked = self.cloud.names.asked();
        let (mut keys, planned) = self.cloud.ahead.plan(key.as_ref());
        if keys.is_empty() {
            return Ok(None);
        }
        keys.push(key.to_string());
        self.wait(|cloud| async move {
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
            for meta in &found {
                cloud.names.enter(meta.key.as_ref(), meta.known(), asked);
            }
            let own = found.iter().position(|meta| meta.key == key).map(|at| found.swap_remove(at));
            cloud.ahead.keep(found, planned);
            Ok(own)
        })
    }

    /// The first keys that begin with `prefix`, at most `count`.
    pub(super) fn list_keys(&self, prefix: &str, count: u32) -> Result<Vec<String>> {
        let pages = Pages::below(prefix, false, count);
        let page = self.wait(|cloud| async move { cloud.page(&pages, None).await })?;
        let page = self.cloud.parse(&page)?;
        Ok(page.objects.into_iter().map(|object| object.key).collect())
    }

    /// Requests the pages of a listing in order, each within `retry_limits`, until `take` breaks.
    /// `take` returns the number of new entries of a page. Pages are parsed on the caller's thread.
    pub(super) fn list_pages(
        &self,
        mut pages: Pages,
        limits: ListingLimits,
        retry_limits: RetryLimits,
        mut take: impl FnMut(listing::Page) -> ControlFlow<(), u64>,
    ) -> Result<()> {
        // No page outlasts the listing.
        let retry_of_page = || {
            let left = limits.deadline.0.saturating_sub(now().0);
            Retry::new(RetryLimits { budget_ns: retry_limits.budget_ns.min(left), ..retry_limits }, now())
        };
        let mut listing = Listing::new(limits);
        let mut retry = retry_of_page();
        loop {
            let requested = pages.clone();
            let (page, after) = self.wait(|cloud| async move {
                let page = cloud.page(&requested, Some(&mut retry)).await?;
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

    /// The error for a listing that is stopped.
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
            ListingEnd::Time => {
                let message = "the listing takes too long (--deadline)";
                return Error::new(
                    ErrorKind::Protocol,
                    format!("{}/{prefix}: {message}", self.cloud.wire.place),
                );
            }
        };
        let message = format!("{}/{prefix}: the listing is given up: {what}; {PROXY}", self.cloud.wire.place);
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
    Object(Box<Meta>, First),
    /// No object; a page of the keys below.
    Page(Bytes),
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
        self.open_to_read(path, WillRead::Any)
    }

    fn open_to_read(&self, path: &Path, will_read: WillRead) -> Result<Arc<dyn Object>> {
        let (_, place) = self.key(path)?;
        // The object that is the store itself has no name that a listing shows.
        let is_named = !path.as_os_str().is_empty();
        let by_name = is_named && self.opens_by_name();
        let known = if by_name { Some(self.cached(path, WillRead::Any)?) } else { None };
        // A small object is requested whole, with its checksum, and the caller may read it at the
        // open. Of others, a HEAD shows the version, if no response has just shown it.
        let suffices = |meta: &Meta, validity: Validity| {
            meta.size <= SMALL_BYTES
                || will_read == WillRead::Nothing
                || validity.0.is_some_and(|until| self.cloud.names.is_fresh(until))
        };
        let known = match known {
            Some((standing, validity)) => {
                self.object(path, standing)?.filter(|meta| suffices(meta, validity))
            }
            None => None,
        };
        let (found, first) = match known {
            Some(meta) => (Some(meta), First::default()),
            None => {
                let (standing, first) = self.standing_to_read(path, will_read)?;
                (self.object(path, standing)?, first)
            }
        };
        let meta = found.ok_or_else(|| path::is_a_directory(&self.url, path))?;
        let looked_up = self.cloud.waiting.take(meta.key.as_ref(), &meta.version);
        let first = if first.is_there() { first } else { looked_up };
        let version = Version { first, ..Version::of_object(&self.cloud, &place.into(), meta) };
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
        match self.root()? {
            Standing::Nothing if self.new_prefix => Ok(Some(note())),
            Standing::Nothing => Err(path::not_found(&self.url, Path::new(""))),
            _ => Ok(None),
        }
    }

    fn keep_names(&self, how: KeepNames) -> Option<KeepNames> {
        self.cloud.names.keep(how);
        Some(KeepNames { opens: self.opens_by_name(), ..how })
    }

    fn forget_name(&self, path: &Path, age: Duration) {
        if let Ok((key, _)) = self.key(path) {
            self.cloud.names.forget(key.as_ref(), age);
        }
    }

    fn network(&self) -> Option<NetworkStats> {
        Some(self.cloud.wire.client.traffic.stats())
    }
}
