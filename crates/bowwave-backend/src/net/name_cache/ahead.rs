//! Listings in the background: ahead of a program that walks a tree, and before a listing that
//! lookups use expires.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::meta::CONFIRMED_MAX;
use super::{Asked, Found, Known, Name, NameCache, State, split};

impl NameCache {
    /// Whether a directory was listed ahead, and not used yet.
    pub(in super::super) fn is_ahead(&self, directory: &str) -> bool {
        self.state.lock().directories.get(directory).is_some_and(|found| found.is_ahead)
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

    /// A program may open many files of a directory. Returns whether a listing is planned now: not
    /// if it is current or under way.
    pub(in super::super) fn plan_soon(&self, directory: String) -> bool {
        if !self.is_on() || !self.lists() {
            return false;
        }
        let (mut state, now) = (self.state.lock(), Instant::now());
        let found = state.directory(&directory);
        if found.is_being_listed || found.complete.is_some_and(|until| until > now) {
            return false;
        }
        self.plan(&mut state, vec![directory]);
        true
    }

    /// The size of the object `key`, if a current listing of its directory has it.
    pub(in super::super) fn size(&self, key: &str) -> Option<u64> {
        let (prefix, name) = split(key);
        let now = Instant::now();
        let mut state = self.state.lock();
        let found = state.touch(prefix)?;
        found.complete.filter(|&until| until > now)?;
        match found.names.get(name)? {
            Name { standing: Known::Object(object), until, pending: 0, .. } if *until > now => {
                Some(object.size)
            }
            _ => None,
        }
    }

    /// Plans a new listing if a lookup uses this one in the last quarter of its time to live.
    /// Directories of several pages are left out: the listing may cost more than the lookups to
    /// come.
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

    /// Until when the kernel may keep a name that is valid until `until`: shorter by the margin, so
    /// that a lookup arrives and [renews](Self::renew) the listing.
    pub(in super::super) fn kept_until(&self, until: Instant) -> Instant {
        let early = until.checked_sub(self.margin());
        early.filter(|&early| early > Instant::now()).unwrap_or(until)
    }

    fn margin(&self) -> Duration {
        (self.ttl() / 4).min(MARGIN_MAX)
    }

    /// Until when a complete listing of a directory is valid.
    pub(in super::super) fn complete_until(&self, directory: &str) -> Option<Instant> {
        let now = Instant::now();
        self.state.lock().touch(directory)?.complete.filter(|&until| until > now)
    }

    /// The directories to list ahead now. The caller ends each with
    /// [`listed_ahead`](Self::listed_ahead).
    pub(in super::super) fn take_ahead(&self) -> Vec<String> {
        // Lookups of known names also call this: without plans, they take no second lock.
        if !self.has_planned.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.state.lock().ahead)
    }

    /// A directory was listed ahead by a request that was sent at `asked`. `found` is `None` if the
    /// listing failed or has more than one page.
    pub(in super::super) fn listed_ahead(&self, directory: &str, asked: Asked, found: Option<Found>) {
        let mut state = self.state.lock();
        let known = state.directory(directory);
        known.is_being_listed = false;
        let is_renewed = !known.is_ahead && known.complete.is_some_and(|until| until > asked.at);
        // No program waited for a renewal, so its names live no longer than others.
        let lifetime = if is_renewed { self.ttl() } else { self.lifetime(asked.at) };
        let is_usable =
            asked.changes >= state.evicted && asked.at + lifetime > Instant::now() && self.is_on();
        match found.filter(|_| is_usable) {
            Some(found) => {
                state.walks.arrived(directory, found.directories());
                state.replace(directory, found, lifetime, asked);
                state.directory(directory).is_ahead = !is_renewed;
                state.shrink(self.bytes_max);
            }
            // Not renewed again before a program has listed it.
            None => state.directory(directory).pages = 0,
        }
        drop(state);
        self.listed.notify_all();
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns.load(Ordering::Relaxed))
    }

    /// How long each page of a listing is valid, from the page's request on, if the listing began
    /// at `begun` and ends now: at least twice the time that the listing took. Otherwise names of a
    /// directory that takes longer to list than they live would never be used.
    pub(super) fn lifetime(&self, begun: Instant) -> Duration {
        self.ttl().max(begun.elapsed() * 2)
    }

    /// Whether a name that is valid until `until` was requested in the last second, or is in a
    /// directory that takes longer to list than names live.
    pub(in super::super) fn is_fresh(&self, until: Instant) -> bool {
        until + CONFIRMED_MAX >= Instant::now() + self.ttl()
    }
}

impl State {
    /// Removes a planned listing that is not requested yet: a program lists the directory itself.
    pub(super) fn drop_planned(&mut self, directory: &str) {
        if let Some(at) = self.ahead.iter().position(|planned| planned == directory) {
            self.ahead.swap_remove(at);
            self.directory(directory).is_being_listed = false;
        }
    }
}

/// Longest time before the expiry of a listing in which a lookup renews it. Longer: more listings.
/// Shorter than a listing takes: lookups wait for it.
const MARGIN_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::super::Known;
    use super::*;
    use crate::KeepNames;

    fn cache(ttl: Duration) -> NameCache {
        let cache = NameCache::new();
        cache.keep(KeepNames { ttl, opens: true, assumes_plain: false });
        cache
    }

    fn found() -> Found {
        let names = vec![("name".into(), Known::Absent, Instant::now())];
        Found { names, is_complete: true, pages: 1, ..Found::default() }
    }

    /// Uses a name of the directory; returns what is to be listed ahead.
    fn looked(cache: &NameCache) -> Vec<String> {
        drop(cache.look("d/name"));
        cache.take_ahead()
    }

    /// Regression: each lookup planned a renewal again after one that failed.
    #[test]
    fn a_renewal_that_fails_is_not_repeated() {
        let cache = cache(Duration::from_secs(40));
        cache.begin("d/").end(found());
        // The last quarter of the time to live begins at once.
        cache.state.lock().directory("d/").complete = Some(Instant::now() + Duration::from_secs(5));
        assert_eq!(looked(&cache), ["d/"]);
        assert!(looked(&cache).is_empty(), "it is under way");
        cache.listed_ahead("d/", cache.asked(), None);
        assert!(looked(&cache).is_empty());
    }

    /// Regression: a directory that was listed ahead of a program counted as renewed, if an earlier
    /// listing of it had expired.
    #[test]
    fn a_directory_listed_ahead_again_after_its_time_to_live_is_ahead_and_a_renewed_one_is_not() {
        let cache = cache(Duration::from_secs(40));
        cache.begin("d/").end(found());
        cache.listed_ahead("d/", cache.asked(), Some(found()));
        assert!(!cache.is_ahead("d/"), "renewed");
        cache.state.lock().directory("d/").complete = Instant::now().checked_sub(Duration::from_secs(1));
        cache.listed_ahead("d/", cache.asked(), Some(found()));
        assert!(cache.is_ahead("d/"));
    }

    /// Regression: a renewal that was under way entered the version again that a read had found
    /// replaced.
    #[test]
    fn a_renewal_in_flight_does_not_undo_what_a_read_has_shown() {
        let cache = cache(Duration::from_secs(40));
        cache.begin("d/").end(found());
        let asked = cache.asked();
        cache.forget("d/name", Duration::ZERO);
        cache.listed_ahead("d/", asked, Some(found()));
        assert!(matches!(cache.look("d/name"), super::super::Lookup::Request(_)));
    }
}
