//! Directories that are listed ahead: of a program that walks a tree, and before a listing that
//! lookups use expires.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::meta::CONFIRMED_MAX;
use super::{Asked, Found, Known, NameCache, State};

impl NameCache {
    /// Whether a directory was listed ahead, and not used yet.
    pub(in super::super) fn is_ahead(&self, directory: &str) -> bool {
        self.lock().directories.get(directory).is_some_and(|found| found.is_ahead)
    }

    /// A program uses a directory that was listed ahead.
    pub(super) fn used_ahead(&self, state: &mut State, directory: &str) {
        let ahead = state.walks.used(directory);
        self.plan(state, ahead);
    }

    /// Directories that a program probably lists next.
    pub(super) fn plan(&self, state: &mut State, directories: Vec<String>) {
        let now = Instant::now();
        for prefix in directories {
            let found = state.directory(&prefix);
            let is_known = found.is_being_listed || found.complete.is_some_and(|until| until > now);
            if is_known {
                state.walks.dropped(&prefix);
            } else {
                found.is_being_listed = true;
                state.ahead.push(prefix);
                self.has_planned.store(true, Ordering::Release);
            }
        }
    }

    /// Plans to list a directory again while its listing is still valid: a lookup uses it in the
    /// last quarter of its time. Directories of several pages are not: a second listing may cost
    /// more than the lookups to come.
    pub(super) fn renew(&self, state: &mut State, prefix: &str, now: Instant) {
        let margin = self.margin();
        let directory = state.directory(prefix);
        let is_due = directory.complete.is_some_and(|until| until < now + margin && until > now);
        if is_due && directory.pages == 1 && !directory.is_being_listed && self.lists() {
            directory.is_being_listed = true;
            state.ahead.push(prefix.to_owned());
            self.has_planned.store(true, Ordering::Release);
        }
    }

    /// Until when the kernel may keep a name that is valid until then: a lookup comes early enough
    /// to [`renew`](Self::renew) the listing, so that no program waits for that.
    pub(in super::super) fn kept_until(&self, until: Instant) -> Instant {
        let early = until.checked_sub(self.margin());
        early.filter(|&early| early > Instant::now()).unwrap_or(until)
    }

    fn margin(&self) -> Duration {
        (self.ttl() / 4).min(MARGIN_MAX)
    }

    /// The root of the store, which is no name of a directory: until when its listing is valid.
    pub(in super::super) fn root_until(&self, directory: &str) -> Option<Instant> {
        let until = self.complete_until(directory)?;
        self.renew(&mut self.lock(), directory, Instant::now());
        Some(until)
    }

    /// The directories to list ahead now. The caller ends each with
    /// [`listed_ahead`](Self::listed_ahead).
    pub(in super::super) fn take_ahead(&self) -> Vec<String> {
        // Lookups of known names ask, too, and take no second lock.
        if !self.has_planned.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().ahead)
    }

    /// A directory was listed ahead by a request that was sent at `asked`; `None` if it could not
    /// be, or not with one page.
    pub(in super::super) fn listed_ahead(&self, directory: &str, asked: Asked, found: Option<Found>) {
        let until = self.until(asked.at);
        let mut state = self.lock();
        let known = state.directory(directory);
        known.is_being_listed = false;
        let is_renewed = known.complete.is_some() && !known.is_ahead;
        if let Some(found) = found.filter(|_| asked.changes >= state.evicted && self.is_on()) {
            state.walks.arrived(directory, found.directories());
            state.replace(directory, found, until, asked.changes);
            state.directory(directory).is_ahead = !is_renewed;
            state.shrink(self.bytes_max);
        }
        drop(state);
        self.listed.notify_all();
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns.load(Ordering::Relaxed))
    }

    /// Until when a listing is valid that was begun then. A directory that takes longer to list
    /// than names live would never be answered.
    pub(super) fn until(&self, begun: Instant) -> Instant {
        let now = Instant::now();
        (begun + self.ttl()).max(now + now.saturating_duration_since(begun))
    }

    /// Whether what is valid until then was requested in the last second, or is of a directory that
    /// takes longer to list than names live.
    pub(in super::super) fn is_fresh(&self, until: Instant) -> bool {
        until + CONFIRMED_MAX >= Instant::now() + self.ttl()
    }
}

impl State {
    /// A program lists a directory itself that is planned and not requested yet.
    pub(super) fn drop_planned(&mut self, directory: &str) {
        if let Some(at) = self.ahead.iter().position(|planned| planned == directory) {
            self.ahead.swap_remove(at);
            self.directory(directory).is_being_listed = false;
        }
    }
}

impl Found {
    /// The names of directories.
    pub(super) fn directories(&self) -> impl Iterator<Item = &str> + Clone {
        let is_directory = |(_, known): &&(_, Known)| *known == Known::Directory;
        self.names.iter().filter(is_directory).map(|(name, _)| &**name)
    }
}

/// Longest time before its end at which a listing is renewed. Longer: more listings. Shorter than a
/// listing takes: programs wait for it.
const MARGIN_MAX: Duration = Duration::from_secs(10);
