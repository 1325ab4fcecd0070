//! Files and their dirty pages.

use std::collections::BTreeSet;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// A file, contiguous on the disk, as on a new file system.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Address of its first byte on the disk.
    pub address: u64,
    /// Pages newer than the disk.
    dirty: BTreeSet<u64>,
    /// Where write-back continues.
    cursor: u64,
    /// Pages in flight to the disk.
    pub writeback: u64,
}

/// All files, and the progress of write-back.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<File>,
    /// The file under write-back, and the pages it may still write before the next file.
    turn: (usize, u64),
    /// Dirty pages of all files.
    pub dirty: u64,
}

/// Adjacent pages of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The file.
    pub file: usize,
    /// The first page.
    pub page: u64,
    /// Number of pages; at least 1.
    pub pages: u64,
}

/// Pages that write-back takes from a file before the next one (Linux's `MAX_WRITEBACK_PAGES`: 4
/// MiB).
const TURN_PAGES: u64 = 1024;

impl Files {
    /// Adds a file at an address of the disk; returns its number.
    pub fn add(&mut self, address: u64) -> usize {
        self.files.push(File { address, ..File::default() });
        self.files.len() - 1
    }

    /// Borrows a file.
    pub fn file(&self, file: usize) -> &File {
        &self.files[file]
    }

    /// Marks a page dirty.
    pub fn write(&mut self, file: usize, page: u64) {
        self.dirty += u64::from(self.files[file].dirty.insert(page));
    }

    /// Discards the dirty pages of an unlinked file.
    pub fn discard(&mut self, file: usize) {
        let file = &mut self.files[file];
        self.dirty -= file.dirty.len() as u64;
        file.dirty.clear();
        file.cursor = 0;
    }

    /// Takes at most `pages_max` adjacent dirty pages in write-back order: from where write-back of
    /// the file stopped, then from the next file.
    pub fn take(&mut self, pages_max: u64) -> Option<Run> {
        for _ in 0..=self.files.len() {
            let (file, left) = self.turn;
            if left > 0
                && let Some(run) = self.take_from(file, pages_max.min(left))
            {
                self.turn.1 = left - run.pages;
                return Some(run);
            }
            self.turn = ((file + 1) % self.files.len().max(1), TURN_PAGES);
        }
        None
    }

    /// Takes adjacent dirty pages of one file.
    pub fn take_from(&mut self, index: usize, pages_max: u64) -> Option<Run> {
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

    /// Pages reached the disk.
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
        // The first turn has no pages left, so it begins with the second file.
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
        files.discard(a);
        assert_eq!((files.dirty, files.take(1)), (0, None));
    }
}
