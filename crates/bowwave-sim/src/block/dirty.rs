//! Files and their dirty pages.

use std::collections::BTreeSet;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A file: contiguous on the disk, for a file system just made.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Its first byte on the disk.
    pub address: u64,
    /// Pages that memory has newer than the disk.
    dirty: BTreeSet<u64>,
    /// Where write-back goes on.
    cursor: u64,
    /// Pages on their way to the disk.
    pub writeback: u64,
}

/// All files, and where write-back of them stands.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<File>,
    /// The file that write-back is at, and how many pages of it before it is the next one's turn.
    turn: (usize, u64),
    /// Dirty pages of all.
    pub dirty: u64,
}

/// Pages in succession.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of which file.
    pub file: usize,
    /// The first page.
    pub page: u64,
    /// How many; at least 1.
    pub pages: u64,
}

/// Pages of a file that write-back takes before it goes to the next (Linux's `MAX_WRITEBACK_PAGES`: 4 MiB).
const TURN_PAGES: u64 = 1024;

impl Files {
    /// A new file at an address on the disk; its number.
    pub fn add(&mut self, address: u64) -> usize {
        self.files.push(File { address, ..File::default() });
        self.files.len() - 1
    }

    /// A file.
    #[must_use]
    pub fn file(&self, file: usize) -> &File {
        &self.files[file]
    }

    /// A page now differs from the disk.
    pub fn write(&mut self, file: usize, page: u64) {
        self.dirty += u64::from(self.files[file].dirty.insert(page));
    }

    /// The file is gone, and so is what was to be written of it.
    pub fn forget(&mut self, file: usize) {
        let file = &mut self.files[file];
        self.dirty -= file.dirty.len() as u64;
        file.dirty.clear();
        file.cursor = 0;
    }

    /// Takes dirty pages in succession, at most so many, in the order of write-back: some of a file from where it last was,
    /// then the next file.
    pub fn take(&mut self, pages_max: u64) -> Option<Run> {
        for _ in 0..=self.files.len() {
            let (file, left) = self.turn;
            if left > 0
                && let Some(run) = self.take_of(file, pages_max.min(left))
            {
                self.turn.1 = left - run.pages;
                return Some(run);
            }
            self.turn = ((file + 1) % self.files.len().max(1), TURN_PAGES);
        }
        None
    }

    /// Takes dirty pages in succession of one file.
    pub fn take_of(&mut self, index: usize, pages_max: u64) -> Option<Run> {
        let file = self.files.get_mut(index)?;
        let first = file.dirty.range(file.cursor..).next().or_else(|| file.dirty.first()).copied()?;
        let mut pages = 1;
        while pages < pages_max && file.dirty.contains(&(first + pages)) {
            pages += 1;
        }
        for page in first..first + pages {
            file.dirty.remove(&page);
        }
        file.cursor = first + pages;
        file.writeback += pages;
        self.dirty -= pages;
        Some(Run { file: index, page: first, pages })
    }

    /// Pages have reached the disk.
    pub fn written(&mut self, file: usize, pages: u64) {
        self.files[file].writeback -= pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_back_takes_runs_upwards_and_each_file_in_turn() {
        let mut files = Files::default();
        let (a, b) = (files.add(0), files.add(1 << 30));
        (0..2000).for_each(|page| files.write(a, page));
        [5, 6, 9].into_iter().for_each(|page| files.write(b, page));
        files.write(b, 6);
        assert_eq!(files.dirty, 2003);
        let runs: Vec<_> = std::iter::from_fn(|| files.take(700)).collect();
        let run = |file, page, pages| Run { file, page, pages };
        // The first turn has no pages left, so that it begins with the second file.
        let expected = [
            run(b, 5, 2),
            run(b, 9, 1),
            run(a, 0, 700),
            run(a, 700, 324),
            run(a, 1024, 700),
            run(a, 1724, 276),
        ];
        assert_eq!(runs, expected);
        assert_eq!((files.dirty, files.file(a).writeback, files.file(b).writeback), (0, 2000, 3));
        files.write(a, 3);
        files.written(a, 2000);
        files.forget(a);
        assert_eq!((files.dirty, files.take(1)), (0, None));
    }
}
