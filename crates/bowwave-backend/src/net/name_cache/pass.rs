//! A pass of lookups in the order of names over a directory that is too large to be listed again,
//! as `ls -l` does whose listing expires on the way. Each page of the store answers the lookups of
//! its names.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::{Asked, Directory, Found, Listing, NameCache};

/// The listing of one page for lookups in order: other lookups in the directory wait for its end.
#[derive(Debug)]
pub(in super::super) struct Page<'a> {
    listing: Listing<'a>,
    /// The name before those of the page.
    after: Box<str>,
    /// The name that is looked up.
    name: Box<str>,
}

impl NameCache {
    /// The page from `name` on, if the name before it in the directory is the last one that was
    /// requested.
    pub(super) fn page(
        &self,
        directory: &mut Directory,
        prefix: &str,
        name: &str,
        asked: Asked,
    ) -> Option<Page<'_>> {
        let before = directory.names.range::<str, _>((Bound::Unbounded, Bound::Excluded(name))).next_back();
        let is_in_order = |requested: &str| before.is_some_and(|(before, _)| **before == *requested);
        let is_large = directory.pages > 1;
        let can_list = is_large && self.lists() && !self.lists_whole.load(Ordering::Relaxed);
        let Some(after) = directory.requested.take().filter(|requested| can_list && is_in_order(requested))
        else {
            directory.requested = is_large.then(|| name.into());
            return None;
        };
        directory.is_being_listed = true;
        Some(Page { listing: self.listing(prefix, asked), after, name: name.into() })
    }

    /// The store cannot begin a listing at a name.
    pub(in super::super) fn set_lists_whole(&self) {
        self.lists_whole.store(true, Ordering::Relaxed);
    }
}

impl Page<'_> {
    pub(in super::super) fn directory(&self) -> &str {
        &self.listing.directory
    }

    /// The key before those of the page.
    pub(in super::super) fn after(&self) -> String {
        format!("{}{}", self.listing.directory, self.after)
    }

    /// Enters what was found. Waiting lookups continue.
    pub(in super::super) fn end(self, found: Found) {
        let Listing { cache, directory, begun } = &self.listing;
        // A directory before the page is listed with it: its slash is after its name.
        if found.names.first().is_some_and(|(first, ..)| *first < self.after) {
            cache.set_lists_whole();
        }
        let mut state = cache.lock();
        if begun.changes < state.evicted || !cache.is_on() {
            return;
        }
        let lifetime = cache.lifetime(begun.at);
        // A page that ends before the name does not have it, and a second one would not either.
        let last = found.names.last().map(|(last, ..)| last).filter(|last| **last >= self.name);
        state.directory(directory).requested = last.cloned();
        for (name, standing, asked) in found.names {
            state.put(directory, &name, standing, asked + lifetime, begun.changes);
        }
        state.shrink(cache.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::Lookup;
    use super::*;
    use crate::KeepNames;

    fn cache() -> NameCache {
        let cache = NameCache::new();
        cache.keep(KeepNames { ttl: Duration::from_secs(40), opens: true, assumes_plain: false });
        let mut found = page(0..4);
        (found.is_complete, found.pages) = (true, 2);
        cache.begin("d/").end(found);
        expire(&cache);
        cache
    }

    fn page(names: std::ops::Range<u32>) -> Found {
        let known = |name: u32| (name.to_string().into(), super::super::Known::Directory, Instant::now());
        Found { names: names.map(known).collect(), pages: 1, ..Found::default() }
    }

    fn expire(cache: &NameCache) {
        let mut state = cache.lock();
        let now = Instant::now();
        let directory = state.directory("d/");
        directory.complete = Some(now);
        directory.names.values_mut().for_each(|name| name.until = now);
    }

    fn asks_alone(cache: &NameCache, key: &str) -> bool {
        matches!(cache.look(key), Lookup::Request(_))
    }

    #[test]
    fn lookups_in_order_after_the_listing_has_expired_ask_for_one_page_each_time_names_run_out() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/0"));
        let Lookup::Page(asked) = cache.look("d/1") else { panic!("no page") };
        assert_eq!((asked.directory(), asked.after()), ("d/", "d/0".to_owned()));
        asked.end(page(1..3));
        assert!(matches!(cache.look("d/2"), Lookup::Known(..)));
        let Lookup::Page(asked) = cache.look("d/3") else { panic!("no second page") };
        assert_eq!(asked.after(), "d/2");
    }

    #[test]
    fn lookups_in_another_order_and_after_a_page_that_failed_ask_for_their_name_alone() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/3") && asks_alone(&cache, "d/1"));
        assert!(matches!(cache.look("d/2"), Lookup::Page(_)), "it fails, as it is dropped");
        assert!(asks_alone(&cache, "d/3"));
    }

    /// A directory is listed after its own name, because its key ends in a slash.
    #[test]
    fn a_page_that_ends_before_the_name_is_asked_for_once() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/2"));
        let Lookup::Page(asked) = cache.look("d/3") else { panic!("no page") };
        asked.end(page(2..3));
        assert!(asks_alone(&cache, "d/3"));
    }

    #[test]
    fn a_store_that_ignores_where_a_page_begins_is_asked_for_no_other() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/1"));
        let Lookup::Page(asked) = cache.look("d/2") else { panic!("no page") };
        asked.end(page(0..2));
        assert!(asks_alone(&cache, "d/2") && asks_alone(&cache, "d/3"));
    }
}
