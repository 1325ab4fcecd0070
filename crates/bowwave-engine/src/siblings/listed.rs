//! Which directories programs have listed.

use std::collections::HashSet;

/// Directories that programs have listed, by number. Of many, those that were not asked for any
/// more are forgotten.
#[derive(Debug, Default)]
pub(super) struct Listed {
    recent: HashSet<u64>,
    older: HashSet<u64>,
}

impl Listed {
    pub(super) fn insert(&mut self, directory: u64) {
        if self.recent.len() == LISTED_MAX {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(directory);
    }

    pub(super) fn contains(&mut self, directory: u64) -> bool {
        let is_older = self.older.contains(&directory) && !self.recent.contains(&directory);
        if is_older {
            self.insert(directory);
        }
        is_older || self.recent.contains(&directory)
    }
}

/// Directories remembered in each of the two sets.
const LISTED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_asked_for_is_not_forgotten_and_others_are() {
        let mut listed = Listed::default();
        listed.insert(0);
        listed.insert(1);
        for directory in 2..10 * LISTED_MAX as u64 {
            listed.insert(directory);
            assert!(listed.contains(directory) && listed.contains(0), "{directory}");
        }
        assert!(!listed.contains(1));
        assert!(listed.recent.len() + listed.older.len() <= 2 * LISTED_MAX);
    }
}
