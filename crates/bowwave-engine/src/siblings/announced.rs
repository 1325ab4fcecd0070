//! Files that a program has announced: they are read ahead in that order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bowwave_core::readahead::SIBLING_WINDOW_MAX;

use super::Ahead;

/// The announced files that no program has opened.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Not read ahead yet, in order.
    paths: VecDeque<PathBuf>,
    /// Opened by a thread at the moment.
    opening: HashSet<PathBuf>,
    ahead: HashMap<PathBuf, Ahead>,
    /// Last announcement or open.
    used: Option<Instant>,
}

impl Announced {
    /// Appends files to the list. `false` if it would be too long.
    pub(super) fn add(&mut self, paths: Vec<PathBuf>) -> bool {
        if self.paths.len() + paths.len() > ANNOUNCED_MAX {
            return false;
        }
        self.paths.extend(paths);
        self.used = Some(Instant::now());
        true
    }

    /// Ends the list; returns the files that were read ahead.
    pub(super) fn end(&mut self) -> Vec<Ahead> {
        std::mem::take(self).ahead.into_values().collect()
    }

    /// Ends a list that no program uses.
    pub(super) fn expire(&mut self) -> Vec<Ahead> {
        let is_left = self.used.is_some_and(|used| used.elapsed() > UNUSED_MAX);
        if is_left { self.end() } else { Vec::new() }
    }

    /// The next file to read ahead, if there is room for one more. The caller opens it and calls
    /// [`read`](Self::read).
    pub(super) fn next(&mut self) -> Option<PathBuf> {
        if self.ahead.len() + self.opening.len() >= SIBLING_WINDOW_MAX as usize {
            return None;
        }
        let path = self.paths.pop_front()?;
        self.opening.insert(path.clone());
        Some(path)
    }

    /// Whether a file that [`next`](Self::next) has returned is still to be read ahead.
    pub(super) fn is_opening(&self, path: &Path) -> bool {
        self.opening.contains(path)
    }

    /// A file was opened and requested; `None` if it needs no readahead or cannot be opened.
    /// Returns it if no program will need it any more.
    pub(super) fn read(&mut self, path: PathBuf, ahead: Option<Ahead>) -> Option<Ahead> {
        if !self.opening.remove(&path) {
            return ahead;
        }
        self.ahead.insert(path, ahead?)
    }

    /// A program opens a file. `None` if it was not announced, otherwise what was read ahead.
    pub(super) fn opened(&mut self, path: &Path) -> Option<Option<Ahead>> {
        let found = self.ahead.remove(path).map(Some);
        let found = found.or_else(|| self.opening.remove(path).then_some(None));
        let found = found.or_else(|| {
            // Programs that share a list overtake it.
            let mut next = self.paths.iter().take(SIBLING_WINDOW_MAX as usize);
            let at = next.position(|next| next == path)?;
            self.paths.remove(at);
            Some(None)
        })?;
        self.used = Some(Instant::now());
        Some(found)
    }
}

/// Most announced files: about 100 MB of names.
pub(super) const ANNOUNCED_MAX: usize = 1_000_000;
/// A list of which no file is opened for this long is left.
const UNUSED_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(count: usize) -> Announced {
        let mut announced = Announced::default();
        assert!(announced.add((0..count).map(|number| PathBuf::from(number.to_string())).collect()));
        announced
    }

    #[test]
    fn a_window_of_files_is_read_ahead_in_order() {
        let mut announced = announced(1000);
        let next: Vec<PathBuf> = std::iter::from_fn(|| announced.next()).collect();
        assert_eq!(next.len(), SIBLING_WINDOW_MAX as usize);
        assert_eq!(next[..3], ["0", "1", "2"].map(PathBuf::from));
        // One that a program opens meanwhile makes room for one more.
        assert!(matches!(announced.opened(Path::new("7")), Some(None)));
        assert_eq!(announced.next(), Some(PathBuf::from("128")));
        assert_eq!(announced.next(), None);
    }

    #[test]
    fn a_file_that_a_program_overtook_is_not_read_ahead() {
        let mut announced = announced(10);
        assert!(announced.opened(Path::new("1")).is_some());
        assert!(announced.opened(Path::new("other")).is_none());
        assert_eq!(announced.next(), Some(PathBuf::from("0")));
        assert_eq!(announced.next(), Some(PathBuf::from("2")));
    }

    #[test]
    fn files_that_cannot_be_opened_take_no_room() {
        let mut announced = announced(1000);
        for _ in 0..1000 {
            let path = announced.next().expect("room");
            assert!(announced.read(path, None).is_none());
        }
        assert_eq!(announced.next(), None);
    }

    #[test]
    fn a_list_has_a_longest_length() {
        let mut announced = announced(ANNOUNCED_MAX);
        assert!(!announced.add(vec![PathBuf::from("one more")]));
    }
}
