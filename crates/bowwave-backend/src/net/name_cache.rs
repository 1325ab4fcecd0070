//! Names in a bucket, kept per directory for a time to live.
//!
//! A directory is listed once it is worth a request: when it is read, after two lookups, or when
//! an earlier listing was used. The listing then answers lookups, attributes and negative lookups.
//! Changes by this process are entered at once, and win over responses to requests that were sent
//! before them.

mod ahead;
mod attributes;
mod listed;
mod pass;
mod prior;
mod root;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bowwave_core::network::Validators;
use http::HeaderMap;
use object_store::path::Path as Key;

use self::attributes::keep_attributes;
pub(super) use self::listed::{Asked, Found, Listing};
pub(super) use self::pass::Page;
use self::pass::Walker;
use self::prior::{LOOKUPS_MAX, ListingPrior};
use self::root::Root;
use super::checksum::Checksum;
use super::listing;
use super::meta::{Meta, Stored};
use super::plain::{Kept, Plain};
use super::walk::Walks;
use crate::sync::{Condvar, Mutex};
use crate::{KeepNames, Validity};

/// The names of a bucket. Keeps nothing until [`keep`](Self::keep) is called.
#[derive(Debug)]
pub(super) struct NameCache {
    ttl_ns: AtomicU64,
    opens: AtomicBool,
    pub(super) plain: Plain,
    /// The store refuses listings: lookups use HEAD.
    refuses_listings: AtomicBool,
    /// The store cannot begin a listing at a name.
    lists_whole: AtomicBool,
    /// Directories are planned to be listed ahead.
    has_planned: AtomicBool,
    bytes_max: usize,
    /// A panic under the lock may leave a count that is too small, no wrong name.
    state: Mutex<State>,
    /// A listing has ended.
    listed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By key prefix: with a slash at the end, and empty for the bucket.
    directories: HashMap<String, Directory>,
    /// Estimated memory of all names.
    bytes: usize,
    /// Changes by this process so far.
    changes: u64,
    /// Number of changes at the last eviction: responses to earlier requests are not kept, because
    /// the evicted directory may have had a later change.
    evicted: u64,
    uses: u64,
    walks: Walks,
    /// The store's root, if it is a directory: it is no name in another one.
    root: Option<Root>,
    /// Directories to list ahead; each counts as being listed.
    ahead: Vec<String>,
    /// Whether listings pay, as directories have shown.
    prior: ListingPrior,
}

#[derive(Debug, Default)]
struct Directory {
    names: BTreeMap<Box<str>, Name>,
    /// Until when the last complete listing is valid.
    complete: Option<Instant>,
    is_marked: bool,
    /// The attributes of its marker, and until when they are valid.
    attributes: Option<(Stored, Instant)>,
    /// Whether it has keys that are no names of files.
    has_others: bool,
    /// Lookups since the last listing.
    lookups: u32,
    /// Lookups since the last listing that are worth another one.
    worth: u32,
    /// Pages of its last listing.
    pages: u32,
    /// Its first name was looked up, and the listing has not answered [`LOOKUPS_MAX`] lookups yet.
    is_entered: bool,
    /// A thread lists it.
    is_being_listed: bool,
    /// It was listed ahead, and not used yet.
    is_ahead: bool,
    /// Programs that look up its names in order, the last to do so first.
    walkers: Vec<Walker>,
    bytes: usize,
    used: u64,
}

#[derive(Debug)]
struct Name {
    standing: Known,
    until: Instant,
    /// Number of our last change of it; 0 for none.
    changed: u64,
    /// Our changes in progress: the standing is unknown.
    pending: u32,
}

impl Name {
    /// Whether a response that has shown its object is younger than `age`.
    fn was_shown_within(&self, age: Duration) -> bool {
        matches!(&self.standing, Known::Object(object) if object.shown.elapsed() < age)
    }
}

/// What is known to stand at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Object(Listed),
    Directory,
    Absent,
    /// Must be requested.
    Unknown,
}

impl Known {
    /// Estimated memory besides that of each name.
    fn bytes(&self) -> usize {
        match self {
            Self::Object(Listed { head: Some(_), .. }) => HEAD_BYTES,
            _ => 0,
        }
    }
}

/// An object with a strong entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) etag: Box<str>,
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) kept: Kept,
    /// If a HEAD has shown it.
    pub(super) head: Option<Box<Head>>,
    /// When a response has shown it last, to a HEAD or GET; of a listing, when it was requested.
    pub(super) shown: Instant,
}

/// What only the response to a HEAD has of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) coding: Option<String>,
    pub(super) checksum: Option<Checksum>,
    /// Time of the response.
    pub(super) at: Instant,
}

impl Listed {
    /// The object of this version, as a response to a request at `shown` has it; `None` without a
    /// strong tag.
    pub(super) fn new(
        version: &Validators,
        size: u64,
        modified: Option<SystemTime>,
        shown: Instant,
    ) -> Option<Self> {
        let etag = version.strong()?.into();
        Some(Self { etag, size, modified, kept: Kept::Unknown, head: None, shown })
    }

    /// An object of a listing.
    pub(super) fn of(object: &listing::Listed, asked: Asked) -> Option<Self> {
        Self::new(&object.version, object.version.size?, object.modified, asked.at())
    }

    /// The object's metadata, as far as a listing has it.
    pub(super) fn meta(self, key: Key) -> Meta {
        let head = self.head.as_ref().map(|head| head.at);
        let (coding, checksum) = self.head.map_or((None, None), |head| (head.coding, head.checksum));
        Meta {
            key,
            size: self.size,
            version: Validators { etag: Some(self.etag.into()), modified: None, size: Some(self.size) },
            modified: self.modified,
            coding,
            checksum,
            headers: HeaderMap::new(),
            head,
            known: self.kept.stored(),
        }
    }
}

/// How to look up a name.
#[derive(Debug)]
pub(super) enum Lookup<'a> {
    Known(Known, Instant),
    /// List the directory.
    List(Listing<'a>),
    /// List one page of the directory, from the name on.
    Page(Page<'a>),
    /// Request this name alone, and [`enter`](NameCache::enter) the response.
    Request(Asked),
}

/// Our change of a key, until its end.
#[derive(Debug)]
pub(super) struct Change<'a> {
    cache: &'a NameCache,
    key: String,
    result: Known,
}

impl NameCache {
    pub(super) fn new() -> Self {
        Self {
            ttl_ns: AtomicU64::new(0),
            opens: AtomicBool::new(false),
            plain: Plain::default(),
            refuses_listings: AtomicBool::new(false),
            lists_whole: AtomicBool::new(false),
            has_planned: AtomicBool::new(false),
            bytes_max: BYTES_MAX,
            state: Mutex::default(),
            listed: Condvar::new(),
        }
    }

    /// Keeps names from now on, or no longer.
    pub(super) fn keep(&self, how: KeepNames) {
        let ttl = u64::try_from(how.ttl.as_nanos()).unwrap_or(u64::MAX);
        self.ttl_ns.store(ttl, Ordering::Relaxed);
        self.opens.store(how.opens && ttl > 0, Ordering::Relaxed);
        self.plain.assume(how.assumes_plain && ttl > 0);
    }

    pub(super) fn is_on(&self) -> bool {
        self.ttl_ns.load(Ordering::Relaxed) > 0
    }

    /// Whether objects may be opened by their known version.
    pub(super) fn answers_opens(&self) -> bool {
        self.opens.load(Ordering::Relaxed)
    }

    /// Whether the store lists single names.
    pub(super) fn lists(&self) -> bool {
        !self.refuses_listings.load(Ordering::Relaxed)
    }

    /// The store refuses a listing.
    pub(super) fn set_refuses_listings(&self) {
        self.refuses_listings.store(true, Ordering::Relaxed);
    }

    /// Looks up `key`. Waits while another thread lists its directory.
    pub(super) fn look(&self, key: &str) -> Lookup<'_> {
        let (prefix, name) = split(key);
        let begun = Instant::now();
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let changes = state.changes;
            let directory = state.directory(prefix);
            let complete = directory.complete.filter(|&until| until > now);
            let known = match (directory.names.get(name), complete) {
                (Some(found), _) if found.is_known(now) => Some((found.standing.clone(), found.until)),
                (None, Some(until)) => Some((Known::Absent, until)),
                _ => None,
            };
            if let Some((known, until)) = known {
                directory.lookups = directory.lookups.saturating_add(1);
                directory.follow(name);
                let pays = complete.is_some() && directory.lookups >= LOOKUPS_MAX;
                let has_paid = pays && std::mem::take(&mut directory.is_entered);
                if std::mem::take(&mut directory.is_ahead) {
                    self.used_ahead(&mut state, prefix);
                }
                if has_paid {
                    state.prior.paid();
                }
                self.renew(&mut state, prefix, now);
                return Lookup::Known(known, until);
            }
            // A complete listing would not tell more.
            if complete.is_some() {
                return Lookup::Request(Asked { changes, at: now });
            }
            if !directory.is_being_listed {
                if let Some(page) = self.page(directory, prefix, name, Asked { changes, at: now }) {
                    return Lookup::Page(page);
                }
                let (lookups, worth) = (directory.lookups, directory.worth);
                directory.lookups = lookups.saturating_add(1);
                if lookups == 0 && worth == 0 {
                    directory.is_entered = true;
                    state.prior.entered();
                }
                if lookups < worth.max(state.prior.lookups_min()) || !self.lists() {
                    return Lookup::Request(Asked { changes, at: now });
                }
                state.directory(prefix).is_being_listed = true;
                return Lookup::List(self.listing(prefix, Asked { changes, at: now }));
            }
            let Some(left) = WAIT_MAX.checked_sub(begun.elapsed()) else {
                return Lookup::Request(Asked { changes, at: now });
            };
            state = self.listed.wait_timeout(state, left);
        }
    }

    /// The names in a directory that was listed completely, with their remaining validity.
    pub(super) fn names(&self, directory: &str) -> Option<(Vec<(String, Known)>, Instant)> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let found = state.touch(directory)?;
        let until = found.complete.filter(|&until| until > now)?;
        let all = &found.names;
        if all.values().any(|name| name.pending > 0 || name.standing == Known::Unknown) {
            return None;
        }
        let names = all.iter().map(|(name, found)| (name.to_string(), found.standing.clone()));
        let names = names.filter(|(_, known)| *known != Known::Absent).collect();
        if std::mem::take(&mut found.is_ahead) {
            self.used_ahead(&mut state, directory);
        }
        Some((names, until))
    }

    /// Whether a directory has names besides `name`, or a marker; without `name`, whether it has
    /// any. `None` if that is not known.
    pub(super) fn has_others(&self, directory: &str, name: Option<&str>) -> Option<bool> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let found = state.touch(directory)?;
        found.complete.filter(|&until| until > now)?;
        let mut others =
            found.names.iter().filter(|(other, _)| Some(&***other) != name).map(|(_, name)| name);
        if others.clone().any(|other| matches!(other.standing, Known::Object(_) | Known::Directory)) {
            return Some(true);
        }
        // An object in an upload may appear.
        if others.any(|other| other.standing == Known::Unknown) {
            return None;
        }
        Some(found.has_others || found.is_marked && name.is_some())
    }

    /// Our new directory has a marker and no names.
    pub(super) fn created(&self, directory: &str) {
        if !self.is_on() {
            return;
        }
        let until = Instant::now() + self.ttl();
        let mut state = self.state.lock();
        let found = state.directory(directory);
        if found.names.is_empty() && !found.is_being_listed {
            (found.complete, found.is_marked, found.has_others) = (Some(until), true, false);
        }
    }

    /// Whether a directory was listed completely, although that may be out of date.
    pub(super) fn is_listed(&self, directory: &str) -> bool {
        let mut state = self.state.lock();
        self.lists() && state.touch(directory).is_some_and(|found| found.complete.is_some())
    }

    /// Enters the response to a request for one name, sent at `asked`.
    pub(super) fn enter(&self, key: &str, standing: Known, asked: Asked) {
        if !self.is_on() {
            return;
        }
        if let Known::Object(found) = &standing {
            self.plain.note(&found.kept);
        }
        let until = asked.at + self.ttl();
        let (prefix, name) = split(key);
        let mut state = self.state.lock();
        if asked.changes >= state.evicted {
            state.put(prefix, name, standing, until, asked.changes);
            state.shrink(self.bytes_max);
        }
    }

    /// Before a request is sent: for [`enter`](Self::enter).
    pub(super) fn asked(&self) -> Asked {
        Asked { changes: self.state.lock().changes, at: Instant::now() }
    }

    /// Until when the response to a request may be used.
    pub(super) fn validity(&self, asked: Asked) -> Validity {
        Validity(self.is_on().then(|| asked.at + self.ttl()))
    }

    /// A response has bytes of this version of `key`, and the attributes that are `stored` with it,
    /// if the store keeps some.
    pub(super) fn learn(&self, key: &str, etag: &str, modified: Option<SystemTime>, stored: Option<Stored>) {
        if !self.is_on() {
            return;
        }
        let kept = stored.map(Kept::new);
        kept.iter().for_each(|kept| self.plain.note(kept));
        let (prefix, name) = split(key);
        let mut state = self.state.lock();
        let found = state.directories.get_mut(prefix).and_then(|found| found.names.get_mut(name));
        if let Some(Name { standing: Known::Object(found), pending: 0, .. }) = found
            && *found.etag == *etag
        {
            found.shown = Instant::now();
            if let Some(kept) = kept.filter(|_| found.modified == modified) {
                found.kept = kept;
            }
        }
    }

    /// The attributes of a directory's marker, if they are known, and until when they are valid.
    pub(super) fn attributes(&self, directory: &str) -> Option<(Stored, Instant)> {
        let now = Instant::now();
        self.state.lock().touch(directory)?.attributes.filter(|(_, until)| *until > now)
    }

    /// A response has the attributes of a directory's marker. It was requested at
    /// `asked`.
    pub(super) fn learn_directory(&self, directory: &str, stored: Stored, asked: Asked) {
        if stored != Stored::default() {
            self.plain.note_described();
        }
        let until = asked.at + self.ttl();
        let mut state = self.state.lock();
        if self.is_on() && asked.changes == state.changes {
            state.directory(directory).attributes = Some((stored, until));
        }
    }

    /// Forgets what is known of `key`, unless a response that has shown it is younger than `age`.
    pub(super) fn forget(&self, key: &str, age: Duration) {
        if !self.is_on() {
            return;
        }
        let (prefix, name) = split(key);
        let mut state = self.state.lock();
        let found = state.directories.get(prefix).and_then(|found| found.names.get(name));
        if found.is_some_and(|name| name.was_shown_within(age)) {
            return;
        }
        state.changes += 1;
        // A listing that was requested before must not enter the old version again.
        let unknown = (Known::Unknown, state.changes);
        let Some(found) = state.directories.get_mut(prefix) else { return };
        match found.names.get_mut(name) {
            Some(name) => (name.standing, name.changed) = unknown,
            None => found.complete = None,
        }
    }

    /// We change `key`, which ends in a slash for a directory's marker.
    pub(super) fn change(&self, key: &str) -> Change<'_> {
        if self.is_on() {
            self.changing(key, 1, Known::Unknown);
        }
        Change { cache: self, key: key.to_owned(), result: Known::Unknown }
    }

    fn changing(&self, key: &str, more: i32, standing: Known) {
        let until = Instant::now() + self.ttl();
        let (prefix, name) = split(key.strip_suffix('/').unwrap_or(key));
        let mut state = self.state.lock();
        state.changes += 1;
        let changes = state.changes;
        state.put(prefix, name, Known::Unknown, until, changes);
        if let Some(found) = state.directories.get_mut(prefix).and_then(|found| found.names.get_mut(name)) {
            (found.changed, found.until) = (changes, until);
            found.pending = found.pending.saturating_add_signed(more);
            if found.pending == 0 {
                found.standing = standing.clone();
            }
        }
        // All directories above exist now.
        if matches!(standing, Known::Object(_) | Known::Directory) {
            let mut above = prefix;
            while !above.is_empty() {
                let (prefix, name) = split(above.strip_suffix('/').unwrap_or(above));
                let found = state.directories.get_mut(prefix).and_then(|found| found.names.get_mut(name));
                if let Some(found) = found.filter(|found| found.standing == Known::Absent) {
                    (found.standing, found.changed) = (Known::Unknown, changes);
                }
                above = prefix;
            }
        }
        if key.ends_with('/') {
            state.root = None;
        }
        if key.ends_with('/') && more < 0 {
            let is_there = standing == Known::Directory;
            if let Some(directory) = state.directories.get_mut(key) {
                (directory.attributes, directory.is_marked) = (None, is_there);
                // Without its marker, only a listing tells.
                directory.complete = directory.complete.filter(|_| is_there);
            }
        }
        state.shrink(self.bytes_max);
    }
}

impl Name {
    fn is_known(&self, now: Instant) -> bool {
        self.pending == 0 && self.until > now && self.standing != Known::Unknown
    }
}

impl Change<'_> {
    /// The change has succeeded.
    pub(super) fn done(&mut self, result: Known) {
        self.result = result;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.cache.is_on() {
            if let Known::Object(Listed { kept: kept @ Kept::Some(_), .. }) = &self.result {
                self.cache.plain.note(kept);
            }
            self.cache.changing(&self.key, -1, std::mem::replace(&mut self.result, Known::Unknown));
        }
    }
}

impl State {
    fn touch(&mut self, prefix: &str) -> Option<&mut Directory> {
        self.uses += 1;
        let uses = self.uses;
        let directory = self.directories.get_mut(prefix)?;
        directory.used = uses;
        Some(directory)
    }

    fn directory(&mut self, prefix: &str) -> &mut Directory {
        if !self.directories.contains_key(prefix) {
            let bytes = DIRECTORY_BYTES + prefix.len();
            self.bytes += bytes;
            self.directories.insert(prefix.to_owned(), Directory { bytes, ..Directory::default() });
        }
        self.touch(prefix).expect("it is there")
    }

    /// Enters a name, unless we changed it after `since`.
    fn put(&mut self, prefix: &str, name: &str, standing: Known, until: Instant, since: u64) {
        let directory = self.directory(prefix);
        let before = directory.bytes;
        match directory.names.get_mut(name) {
            Some(found) if found.changed > since || found.pending > 0 => return,
            Some(found) => {
                let mut standing = standing;
                keep_attributes(&found.standing, &mut standing);
                directory.bytes += standing.bytes();
                directory.bytes -= found.standing.bytes().min(directory.bytes);
                (found.standing, found.until) = (standing, until);
            }
            None => {
                directory.bytes += NAME_BYTES + name.len() + standing.bytes();
                directory.names.insert(name.into(), Name { standing, until, changed: 0, pending: 0 });
            }
        }
        let after = directory.bytes;
        self.bytes = (self.bytes + after).saturating_sub(before);
    }

    /// Enters a listing whose pages are each valid for `lifetime`.
    fn replace(&mut self, prefix: &str, found: Found, lifetime: Duration, begun: Asked) {
        let (since, until) = (begun.changes, begun.at + lifetime);
        let mut earlier = BTreeMap::new();
        if found.is_complete {
            let is_unchanged = since == self.changes;
            let directory = self.directory(prefix);
            let (before, kept) = (directory.bytes, std::mem::take(&mut directory.names));
            let (ours, old): (BTreeMap<_, _>, BTreeMap<_, _>) =
                kept.into_iter().partition(|(_, name)| name.changed > since || name.pending > 0);
            directory.names = ours;
            let names: usize = directory
                .names
                .iter()
                .map(|(name, found)| NAME_BYTES + name.len() + found.standing.bytes())
                .sum();
            directory.bytes = DIRECTORY_BYTES + prefix.len() + names;
            // The lookups of the time to come decide whether it is listed again.
            (directory.complete, directory.lookups) = (Some(until), 0);
            directory.worth = found.pages.saturating_mul(2);
            directory.pages = found.pages;
            (directory.is_marked, directory.has_others) = (found.is_marked, found.has_others);
            // Without a marker, nothing is stored.
            let is_plain = !found.is_marked && is_unchanged;
            directory.attributes = is_plain.then(|| (Stored::default(), until)).or(directory.attributes);
            let after = directory.bytes;
            self.bytes = self.bytes + after - before;
            earlier = old;
        }
        for (name, mut standing, asked) in found.names {
            if let Some(old) = earlier.get(&name) {
                keep_attributes(&old.standing, &mut standing);
            }
            self.put(prefix, &name, standing, asked + lifetime, since);
        }
        if !found.is_complete {
            let directory = self.directory(prefix);
            // Too large to be listed for lookups: names beyond the listed ones are requested alone.
            directory.worth = directory.worth.max(found.pages).saturating_mul(16);
            (directory.lookups, directory.pages) = (0, directory.pages.max(found.pages));
        }
    }

    /// Evicts the directories used longest ago.
    fn shrink(&mut self, bytes_max: usize) {
        if self.bytes <= bytes_max {
            return;
        }
        let mut by_use: Vec<_> =
            self.directories.iter().map(|(prefix, found)| (found.used, prefix.clone())).collect();
        by_use.sort_unstable();
        for (_, prefix) in by_use {
            // Not at once again.
            if self.bytes <= bytes_max / 8 * 7 {
                break;
            }
            let is_busy = |found: &Directory| {
                found.is_being_listed || found.names.values().any(|name| name.pending > 0)
            };
            if self.directories.get(&prefix).is_some_and(is_busy) {
                continue;
            }
            self.evicted = self.changes;
            self.bytes -= self.directories.remove(&prefix).map_or(0, |found| found.bytes);
        }
    }
}

/// The directory of a key, with its slash, and the name in it.
fn split(key: &str) -> (&str, &str) {
    key.rfind('/').map_or(("", key), |at| key.split_at(at + 1))
}

/// Pages that lookups may list: a program that looks up some files of a larger directory does not
/// wait for all of it.
pub(super) const PAGES_MAX: u32 = 8;
/// Estimated memory of a name besides its letters: its entry, its tag, and what the allocator adds.
const NAME_BYTES: usize = 240;
const DIRECTORY_BYTES: usize = 300;
/// Estimated memory of what a HEAD has shown of a name.
const HEAD_BYTES: usize = 120;
/// Memory of all names: about a million of them.
const BYTES_MAX: usize = 270 << 20;
/// How long a lookup waits for a listing by another thread. Longer: a program waits for the listing
/// of a huge directory. Shorter: it sends a request that the listing makes unnecessary.
const WAIT_MAX: Duration = Duration::from_millis(500);
