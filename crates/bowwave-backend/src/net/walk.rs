//! Programs that list the directories of a tree one after another: `find`, `ls -R`, `du`,
//! `git status`.
//!
//! Each listing is a round trip. The listed directories name those that the program lists next: in
//! the order of names, each directory before those in it. After a few of them, the next ones are
//! listed ahead: at first [`AHEAD_MIN`] at once, later the number that the program has just used in
//! a row, up to [`AHEAD_MAX`]. Unused listings are limited to the program's own listings plus two.
//! So directories that a program skips, as `git status` skips `.git/objects`, do not end listing
//! ahead. If a listed directory contains one directory, that one is listed at once: it is a step
//! towards the files that the program reads, such as the chunks of a Zarr array.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The programs that walk trees.
#[derive(Debug, Default)]
pub(super) struct Walks(
    /// Last used last.
    Vec<Walk>,
);

#[derive(Debug, Default)]
struct Walk {
    /// Known directories of the tree, by [`order`].
    directories: BTreeMap<String, Progress>,
    /// Directories that the program had to wait for.
    waited: u32,
    /// Directories that were listed ahead and then used.
    used: u32,
    /// The same, since the program waited for one.
    in_a_row: u32,
    /// The directory that the program listed last.
    last: String,
    /// Directories that it has listed in order up to that one.
    in_order: u32,
    /// Directories that were listed ahead and are not used yet.
    unused: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Found in the listing of the directory above.
    Found,
    /// Listed ahead.
    Ahead,
    /// Listed, and used by the program.
    Used,
}

impl Walks {
    /// A program has listed a directory in which there are these directories. Returns directories
    /// to list ahead.
    pub(super) fn listed<'a>(
        &mut self,
        prefix: &str,
        below: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<String> {
        let key = order(prefix);
        let at = self.0.iter().rposition(|walk| walk.directories.contains_key(&key));
        let mut walk = at.map_or_else(Walk::default, |at| self.0.remove(at));
        (walk.waited, walk.in_a_row) = (walk.waited + 1, 0);
        let before = walk.directories.insert(key.clone(), Progress::Used);
        walk.come_to(&key, before == Some(Progress::Used));
        match before {
            // It came too late, or was not valid.
            Some(Progress::Ahead) => walk.unused = walk.unused.saturating_sub(1),
            // The tree is walked again, as by `git status`, which lists no directory above.
            Some(Progress::Used) => walk.forget_behind(&key),
            Some(Progress::Found) | None => {}
        }
        let is_step = below.clone().take(2).count() == 1;
        walk.add(prefix, below);
        let ahead = walk.plan(&key, is_step);
        if self.0.len() >= WALKS_MAX {
            self.0.remove(0);
        }
        self.0.push(walk);
        ahead
    }

    /// A directory was listed ahead, with these directories in it.
    pub(super) fn arrived<'a>(&mut self, prefix: &str, below: impl Iterator<Item = &'a str>) {
        let key = order(prefix);
        if let Some(walk) = self.0.iter_mut().rev().find(|walk| walk.directories.contains_key(&key)) {
            walk.add(prefix, below);
        }
    }

    /// A directory need not be listed ahead.
    pub(super) fn dropped(&mut self, prefix: &str) {
        let key = order(prefix);
        let is_it = |walk: &&mut Walk| walk.directories.get(&key) == Some(&Progress::Ahead);
        if let Some(walk) = self.0.iter_mut().rev().find(is_it) {
            walk.directories.insert(key.clone(), Progress::Used);
            walk.unused = walk.unused.saturating_sub(1);
        }
    }

    /// A program uses a directory that was listed ahead. Returns directories to list ahead.
    pub(super) fn used(&mut self, prefix: &str) -> Vec<String> {
        let key = order(prefix);
        let is_it = |walk: &&mut Walk| walk.directories.get(&key) == Some(&Progress::Ahead);
        let Some(walk) = self.0.iter_mut().rev().find(is_it) else { return Vec::new() };
        walk.directories.insert(key.clone(), Progress::Used);
        (walk.used, walk.in_a_row) = (walk.used + 1, walk.in_a_row + 1);
        walk.come_to(&key, false);
        walk.unused = walk.unused.saturating_sub(1);
        walk.plan(&key, false)
    }
}

impl Walk {
    fn add<'a>(&mut self, prefix: &str, below: impl Iterator<Item = &'a str>) {
        for name in below {
            if self.directories.len() >= DIRECTORIES_MAX {
                break;
            }
            let progress = self.directories.entry(order(&format!("{prefix}{name}/")));
            let progress = progress.or_insert(Progress::Found);
            // The tree is walked again.
            if *progress == Progress::Used {
                *progress = Progress::Found;
            }
        }
    }

    /// The program lists `key`: in order, unless it has left out directories that were found. A
    /// second walk goes on as the first one was.
    fn come_to(&mut self, key: &str, is_again: bool) {
        let between = (Bound::Excluded(self.last.as_str()), Bound::Excluded(key));
        let is_next = self.last.as_str() < key
            && self.directories.range::<str, _>(between).all(|(_, progress)| *progress != Progress::Found);
        self.in_order = match (is_next, is_again) {
            (true, _) => self.in_order + 1,
            (false, true) => self.in_order,
            (false, false) => 1,
        };
        key.clone_into(&mut self.last);
    }

    /// The directories behind `key` are to be listed again.
    fn forget_behind(&mut self, key: &str) {
        let behind = self.directories.range_mut::<str, _>((Bound::Excluded(key), Bound::Unbounded));
        for (_, progress) in behind.filter(|(_, progress)| **progress == Progress::Used) {
            *progress = Progress::Found;
        }
    }

    /// The directories to list ahead of a program that has used `key`. `is_step`: there is one
    /// directory in it.
    fn plan(&mut self, key: &str, is_step: bool) -> Vec<String> {
        let is_walked = self.in_order >= IN_ORDER_MIN;
        if !is_walked && !is_step {
            return Vec::new();
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            // The program has passed those before.
            self.directories = self.directories.split_off(key);
        }
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let in_front = self.directories.range::<str, _>(behind).map(|(_, progress)| *progress);
        let in_front = in_front.take_while(|progress| *progress != Progress::Found);
        let in_front = in_front.filter(|progress| *progress == Progress::Ahead).count();
        let window = if is_walked { self.in_a_row.clamp(AHEAD_MIN, AHEAD_MAX) } else { 1 };
        let left = (self.used + self.waited + AHEAD_MIN).saturating_sub(self.unused);
        let most = left.min(window.saturating_sub(u32::try_from(in_front).unwrap_or(u32::MAX))) as usize;
        let behind = self.directories.range_mut::<str, _>(behind);
        let next: Vec<_> = behind.filter(|(_, progress)| **progress == Progress::Found).take(most).collect();
        let mut ahead = Vec::with_capacity(next.len());
        for (key, progress) in next {
            *progress = Progress::Ahead;
            ahead.push(key.replace('\0', "/"));
        }
        self.unused += u32::try_from(ahead.len()).unwrap_or(u32::MAX);
        ahead
    }
}

/// A prefix that sorts as its names do: no name has the character that stands for the slash.
fn order(prefix: &str) -> String {
    prefix.replace('/', "\0")
}

/// Directories of a tree that a program lists in order before others are listed ahead. More: each
/// costs a round trip. Fewer: listings for programs that list two directories of a tree.
const IN_ORDER_MIN: u32 = 3;
/// Most directories that are listed ahead of a program and not used yet: at first, and later. More:
/// more unused listings, and fewer connections for reads. At 30 ms a listing, 32 allow a program a
/// thousand directories a second.
const AHEAD_MIN: u32 = 2;
const AHEAD_MAX: u32 = 32;
/// Directories of a tree that are remembered, and trees.
const DIRECTORIES_MAX: usize = 1 << 14;
const WALKS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories below each of a tree of three levels.
    fn below(prefix: &str) -> Vec<String> {
        match prefix.matches('/').count() {
            1 | 2 => (0..10).map(|number| number.to_string()).collect(),
            _ => Vec::new(),
        }
    }

    /// All directories of the tree, each before those in it.
    fn depth_first(prefix: &str, all: &mut Vec<String>) {
        all.push(prefix.to_owned());
        below(prefix).iter().for_each(|name| depth_first(&format!("{prefix}{name}/"), all));
    }

    /// Walks the directories in order; returns how many a program waits for, and how many were
    /// listed in all.
    fn walk(walks: &mut Walks, order: &[String]) -> (usize, usize) {
        let (mut waited, mut ahead) = (0, Vec::new());
        for prefix in order {
            let names = below(prefix);
            let names = || names.iter().map(String::as_str);
            let mut next = match ahead.contains(prefix) {
                true => walks.used(prefix),
                false => {
                    waited += 1;
                    walks.listed(prefix, names())
                }
            };
            for prefix in &next {
                walks.arrived(prefix, below(prefix).iter().map(String::as_str));
            }
            ahead.append(&mut next);
        }
        (waited, waited + ahead.len())
    }

    #[test]
    fn a_program_that_walks_a_tree_waits_for_its_first_directories() {
        let mut walks = Walks::default();
        let mut all = Vec::new();
        depth_first("r/", &mut all);
        assert_eq!(all.len(), 111);
        let (waited, listed) = walk(&mut walks, &all);
        assert!(waited <= 4 && listed == 111, "{waited} of {listed}");
        // The next time, it waits for the root alone.
        assert_eq!(walk(&mut walks, &all), (1, 111));
    }

    /// As `git status` does after a while: it asks for files, and lists no directory above them.
    #[test]
    fn a_second_walk_that_does_not_list_the_root_waits_for_few() {
        let (mut walks, mut all) = (Walks::default(), Vec::new());
        depth_first("r/", &mut all);
        walk(&mut walks, &all);
        let leaves: Vec<_> = all.iter().filter(|prefix| below(prefix).is_empty()).cloned().collect();
        assert_eq!(leaves.len(), 100);
        for _ in 0..3 {
            let (waited, listed) = walk(&mut walks, &leaves);
            assert!(waited <= 4 && listed <= 112, "{waited} of {listed}");
        }
    }

    /// `git status` passes the directories of `.git/objects` by.
    #[test]
    fn directories_that_a_program_passes_by_do_not_end_listing_ahead() {
        let (mut walks, mut all) = (Walks::default(), Vec::new());
        depth_first("r/", &mut all);
        let is_passed = |prefix: &String| prefix.starts_with("r/5/") && prefix.len() > 4;
        let order: Vec<_> = all.into_iter().filter(|prefix| !is_passed(prefix)).collect();
        assert_eq!(order.len(), 101);
        let (waited, listed) = walk(&mut walks, &order);
        assert!(waited <= 8 && listed <= 111, "{waited} of {listed}");
    }

    #[test]
    fn a_program_that_lists_each_level_after_the_one_above_waits_for_few() {
        let mut all = Vec::new();
        depth_first("r/", &mut all);
        all.sort_by_key(|prefix| prefix.matches('/').count());
        let (waited, listed) = walk(&mut Walks::default(), &all);
        assert!(waited <= 30 && listed == 111, "{waited} of {listed}");
    }

    #[test]
    fn the_only_directory_in_another_one_is_listed_with_it() {
        let mut walks = Walks::default();
        assert_eq!(walks.listed("a/", ["c"].into_iter()), ["a/c/"]);
        assert_eq!(walks.listed("b/", ["c", "d"].into_iter()), [""; 0]);
        // At most one that is not used yet.
        assert_eq!(walks.listed("a/c/d/", ["e"].into_iter()), ["a/c/d/e/"]);
        assert!(walks.used("a/c/").is_empty());
    }

    #[test]
    fn what_is_listed_in_vain_is_at_most_what_the_program_listed_and_two() {
        for step in [3, 7, 37, 64, 110] {
            let mut all = Vec::new();
            depth_first("r/", &mut all);
            let order: Vec<_> = (0..30).map(|number| all[number * step % 111].clone()).collect();
            let mut walks = Walks::default();
            let (_, listed) = walk(&mut walks, &order);
            let used: u32 = walks.0.iter().map(|walk| walk.used).sum();
            let waited: u32 = walks.0.iter().map(|walk| walk.waited).sum();
            let wasted: u32 = walks.0.iter().map(|walk| walk.unused).sum();
            let most = used + waited + AHEAD_MIN * walks.0.len() as u32;
            assert!(wasted <= most, "{step}: {wasted} of {listed}");
        }
    }

    #[test]
    fn two_directories_of_a_tree_cause_no_listing() {
        let mut walks = Walks::default();
        assert!(walks.listed("r/", ["a", "b", "c"].into_iter()).is_empty());
        assert!(walks.listed("r/a/", std::iter::empty()).is_empty());
        assert!(walks.listed("s/", ["a", "b", "c"].into_iter()).is_empty());
        assert_eq!(walks.listed("r/b/", std::iter::empty()), ["r/c/"]);
    }

    #[test]
    fn directories_are_listed_in_the_order_of_their_names() {
        let mut walks = Walks::default();
        walks.listed("", ["a", "a-b", "a.b"].into_iter());
        walks.listed("a/", ["x"].into_iter());
        assert_eq!(walks.listed("a/x/", std::iter::empty()), ["a-b/", "a.b/"]);
    }
}
