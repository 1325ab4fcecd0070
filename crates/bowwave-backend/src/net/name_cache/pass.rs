//! Lookups in the order of names in a directory of several pages, after its listing has expired:
//! `ls -l` sends them, if it takes longer than names are valid. One page of the store answers the
//! lookups of its names.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::{Asked, Directory, Found, Known, Listing, NameCache};

/// The listing of one page for lookups in order: other lookups in the directory wait for its end.
#[derive(Debug)]
pub(in super::super) struct Page<'a> {
    listing: Listing<'a>,
    /// The name before those of the page.
    after: String,
}

/// A program that looks up the names of a directory of several pages in order.
#[derive(Debug)]
pub(super) struct Walker {
    /// The last name.
    name: String,
    /// Names in order until a page is worth its request.
    left: u32,
}

impl Directory {
    /// A name is looked up. If that is in order and worth a page, returns the name before it.
    pub(super) fn follow(&mut self, name: &str) -> Option<&str> {
        if self.pages <= 1 {
            return None;
        }
        let before = self.names.range::<str, _>((Bound::Unbounded, Bound::Excluded(name))).next_back();
        let before = before.map(|(before, _)| &**before);
        // A program may look a name up several times.
        let is_at = |walker: &Walker| *walker.name == *name || Some(&*walker.name) == before;
        let place = self.walkers.iter().position(is_at).unwrap_or_else(|| {
            self.walkers.truncate(WALKERS - 1);
            self.walkers.push(Walker { name: name.to_owned(), left: 1 });
            self.walkers.len() - 1
        });
        self.walkers[..=place].rotate_right(1);
        let walker = &mut self.walkers[0];
        if *walker.name != *name {
            walker.left = walker.left.saturating_sub(1);
            name.clone_into(&mut walker.name);
        }
        before.filter(|_| walker.left == 0)
    }
}

impl NameCache {
    /// The page that begins at `name`, if lookups are in order. `None` if no listing has shown
    /// `name` and its version, because a page may lack it, too.
    pub(super) fn page(
        &self,
        directory: &mut Directory,
        prefix: &str,
        name: &str,
        asked: Asked,
    ) -> Option<Page<'_>> {
        let is_listed = directory.names.get(name).is_some_and(|found| {
            found.pending == 0 && matches!(found.standing, Known::Object(_) | Known::Directory)
        });
        let can_list = is_listed && self.lists() && !self.lists_whole.load(Ordering::Relaxed);
        let after = directory.follow(name).filter(|_| can_list)?.to_owned();
        // If the page does not answer this lookup, a second one would not either.
        directory.walkers[0].left = USED_MIN;
        directory.is_being_listed = true;
        Some(Page { listing: self.listing(prefix, asked), after })
    }

    /// The store cannot begin a listing at a name.
    pub(in super::super) fn set_lists_whole(&self) {
        self.lists_whole.store(true, Ordering::Relaxed);
    }
}

impl Page<'_> {
    /// The store sent no valid page. Names are requested alone until the directory is listed again.
    pub(in super::super) fn failed(&self) {
        if let Some(found) = self.listing.cache.state.lock().directories.get_mut(&self.listing.directory) {
            found.pages = 0;
        }
    }

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
        let is_before = |name: &str, known: &Known| match known {
            // Its key ends in a slash, so it sorts after names such as `name.txt`.
            Known::Directory => *format!("{name}/") <= *self.after,
            _ => *name <= *self.after,
        };
        if found.names.iter().any(|(name, known, _)| is_before(name, known)) {
            cache.set_lists_whole();
        }
        let mut state = cache.state.lock();
        if begun.changes < state.evicted || !cache.is_on() {
            return;
        }
        let lifetime = cache.lifetime(begun.at);
        for (name, standing, asked) in found.names {
            // An object of that name hides the directory, and is not on this page.
            if standing == Known::Directory && *name <= *self.after {
                continue;
            }
            state.put(directory, &name, standing, asked + lifetime, begun.changes);
        }
        state.shrink(cache.bytes_max);
    }
}

/// Names of a page that a program must look up before the next page for it. Smaller: a program that
/// takes longer for each file than names live requests a page for each; larger: where names live
/// shorter than that many lookups take, each is a request.
const USED_MIN: u32 = 4;
/// Programs that are followed in a directory. Fewer: they disturb each other; more: each lookup
/// looks at more of them.
const WALKERS: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bowwave_core::network::Validators;

    use super::super::{Listed, Lookup};
    use super::*;
    use crate::KeepNames;

    fn cache() -> NameCache {
        cache_of(4)
    }

    /// A directory of that many names, whose listing has expired.
    fn cache_of(names: u32) -> NameCache {
        let cache = NameCache::new();
        cache.keep(KeepNames { ttl: Duration::from_secs(40), opens: true, assumes_plain: false });
        let mut found = page(0..names);
        (found.is_complete, found.pages) = (true, 2);
        cache.begin("d/").end(found);
        expire(&cache);
        cache
    }

    fn page(names: std::ops::Range<u32>) -> Found {
        of(names.map(|name| (name.to_string(), object())))
    }

    fn of(names: impl IntoIterator<Item = (String, Known)>) -> Found {
        let named = |(name, known): (String, _)| (name.into(), known, Instant::now());
        Found { names: names.into_iter().map(named).collect(), pages: 1, ..Found::default() }
    }

    fn object() -> Known {
        let version = Validators { etag: Some("\"a\"".to_owned()), modified: None, size: Some(1) };
        Known::Object(Listed::new(&version, 1, None, Instant::now()).expect("a strong tag"))
    }

    fn expire(cache: &NameCache) {
        let mut state = cache.state.lock();
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
        let cache = cache_of(10);
        assert!(asks_alone(&cache, "d/0"));
        list_from(&cache, 1, 6);
        assert!((1..6).all(|name| is_known(&cache, name)));
        list_from(&cache, 6, 10);
    }

    fn is_known(cache: &NameCache, name: u32) -> bool {
        matches!(cache.look(&format!("d/{name}")), Lookup::Known(..))
    }

    /// Looks `name` up, and ends the page that this begins.
    fn list_from(cache: &NameCache, name: u32, end: u32) {
        let Lookup::Page(asked) = cache.look(&format!("d/{name}")) else { panic!("no page at {name}") };
        assert_eq!(asked.after(), format!("d/{}", name - 1));
        asked.end(page(name..end));
    }

    /// Regression: a page that expired before its last name was looked up was followed by a request
    /// for one name.
    #[test]
    fn a_page_that_expires_before_its_end_is_followed_by_one_that_begins_there() {
        let cache = cache_of(10);
        assert!(asks_alone(&cache, "d/0"));
        list_from(&cache, 1, 9);
        // `ls -l` looks each name up twice.
        assert!([1, 1, 2, 2, 3, 3, 4].into_iter().all(|name| is_known(&cache, name)));
        expire(&cache);
        // A name that was known when it was looked up first.
        assert!(!matches!(cache.look("d/4"), Lookup::Page(_)));
        list_from(&cache, 5, 9);
        assert!((5..9).all(|name| is_known(&cache, name)));
        expire(&cache);
        list_from(&cache, 9, 10);
    }

    /// Regression: a program that takes longer for each file than names live requested a page for
    /// each.
    #[test]
    fn a_page_of_which_few_names_are_used_is_followed_by_requests_for_one_name() {
        let cache = cache_of(10);
        assert!(asks_alone(&cache, "d/0"));
        let mut pages = 0;
        for name in 1..10 {
            if let Lookup::Page(asked) = cache.look(&format!("d/{name}")) {
                asked.end(page(name..10));
                pages += 1;
            }
            cache.look(&format!("d/{name}"));
            expire(&cache);
        }
        assert_eq!(pages, 3, "at 1, 5 and 9");
    }

    /// Regression: lookups of names that are known, by another program, ended the order.
    #[test]
    fn two_programs_in_one_directory_do_not_disturb_each_other() {
        let cache = cache_of(10);
        let look = |name: u32| {
            if let Lookup::Page(asked) = cache.look(&format!("d/{name}")) {
                asked.end(page(name..10));
                return 1;
            }
            0
        };
        let pages: u32 = (0..5).map(|name| look(5 + name) + look(name)).sum();
        assert_eq!(pages, 2);
    }

    /// It may be looked up again and again.
    #[test]
    fn one_name_is_no_order() {
        let cache = cache();
        for _ in 0..10 {
            assert!(!matches!(cache.look("d/3"), Lookup::Page(_)));
            expire(&cache);
        }
    }

    #[test]
    fn lookups_in_another_order_ask_for_their_name_alone() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/3") && asks_alone(&cache, "d/1") && asks_alone(&cache, "d/3"));
    }

    /// A directory is listed after its own name, because its key ends in a slash. The object of the
    /// same name is not, and hides it.
    #[test]
    fn a_page_that_ends_before_the_name_is_asked_for_once_and_hides_no_object() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/2"));
        cache.enter("d/2", object(), cache.asked());
        let Lookup::Page(asked) = cache.look("d/3") else { panic!("no page") };
        asked.end(of([("2".to_owned(), Known::Directory)]));
        assert!(asks_alone(&cache, "d/3"));
        assert!(matches!(cache.look("d/2"), Lookup::Known(Known::Object(_), _)));
    }

    #[test]
    fn new_names_and_names_without_a_version_are_asked_for_alone() {
        let cache = cache();
        for name in ["4", "5", "6"] {
            assert!(asks_alone(&cache, &format!("d/{name}")));
            cache.enter(&format!("d/{name}"), Known::Absent, cache.asked());
        }
        let cache = self::cache();
        assert!(asks_alone(&cache, "d/0"));
        let Lookup::Page(asked) = cache.look("d/1") else { panic!("no page") };
        asked.end(of((1..4).map(|name| (name.to_string(), Known::Unknown))));
        assert!((1..4).all(|name| asks_alone(&cache, &format!("d/{name}"))));
    }

    #[test]
    fn a_page_that_fails_is_the_last_one_until_the_directory_is_listed_again() {
        let cache = cache();
        assert!(asks_alone(&cache, "d/0"));
        let Lookup::Page(asked) = cache.look("d/1") else { panic!("no page") };
        asked.failed();
        drop(asked);
        assert!((1..4).all(|name| asks_alone(&cache, &format!("d/{name}"))));
    }

    /// Regression: its slash made a directory look as if it stood before the page.
    #[test]
    fn a_page_with_a_directory_whose_name_is_before_it_is_followed_by_others() {
        let cache = cache();
        let names = |names: &[&str]| {
            let known =
                |&name: &&str| (name.to_owned(), if name == "b" { Known::Directory } else { object() });
            of(names.iter().map(known).collect::<Vec<_>>())
        };
        let mut all = names(&["b", "b.x", "b0", "b1", "b2", "b3", "b4"]);
        (all.is_complete, all.pages) = (true, 2);
        cache.begin("d/").end(all);
        expire(&cache);
        assert!(asks_alone(&cache, "d/b.x"));
        let Lookup::Page(asked) = cache.look("d/b0") else { panic!("no page") };
        asked.end(names(&["b", "b0", "b1", "b2", "b3"]));
        let used = ["d/b0", "d/b1", "d/b2", "d/b3"];
        assert!(used.iter().all(|key| matches!(cache.look(key), Lookup::Known(..))));
        assert!(matches!(cache.look("d/b4"), Lookup::Page(_)));
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
