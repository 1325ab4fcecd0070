//! Which pages of a file were used, after their shadows are gone: a bit for each.
//!
//! Shadows remember as many evicted pages as there are frames. In a larger file, they cannot tell
//! whether pages are read once or again: that takes a record of all pages.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Cache, File};
use crate::id::FileId;
use crate::page::PageIndex;

/// Frames per word: all histories together have at most one word of 64 bits for this many frames.
/// With 2, histories take a thousandth of the memory of the pages, and cover a file of 32 times
/// that memory. Smaller: histories take more memory. Larger: they cover fewer and smaller files.
const FRAMES_PER_WORD: u32 = 2;
/// Words that histories may have even in a small cache: 32 KiB, for a file of 1 GiB in pages of 4
/// KiB. A mount has few frames where the kernel caches the pages that were read.
const WORDS_MIN: usize = 4096;

/// Pages of a file that were used and evicted, and whose shadow expired. Their bits stay when they
/// return.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(super) words: Vec<u64>,
    /// Pages of it that were requested again.
    pub(crate) returned: u64,
    /// Used pages were forgotten, or their bytes changed. This stays until the file is closed.
    pub(crate) is_lost: bool,
}

/// Limits the histories of all files.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// Files whose history has words, oldest first.
    files: VecDeque<FileId>,
    pub(super) words: usize,
}

impl History {
    /// Whether a page was used.
    pub(crate) fn has(&self, page: PageIndex) -> bool {
        self.words.get(word(page)).is_some_and(|word| word & bit(page) != 0)
    }
}

impl Histories {
    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }
}

impl Cache {
    /// Remembers that a page was used, now that its shadow is gone.
    pub(super) fn remember(&mut self, file: FileId, page: PageIndex) {
        if let Some(Some(File { history: Some(history), .. })) = self.files.get_mut(file.0 as usize)
            && let Some(word) = history.words.get_mut(word(page))
        {
            *word |= bit(page);
        } else {
            self.lengthen(file, page);
        }
    }

    /// Extends a file's history to a page, and drops the oldest histories if the total is too
    /// large.
    fn lengthen(&mut self, file: FileId, page: PageIndex) {
        let most = self.words_max();
        let Some(Some(entry)) = self.files.get_mut(file.0 as usize) else { return };
        let history = entry.history.get_or_insert_default();
        if history.is_lost {
            return;
        }
        let pages = entry.pages.0.max(page.0 + 1);
        if pages.div_ceil(64) > most as u64 {
            self.lose_history(file);
            return;
        }
        let old = history.words.len();
        let len = word(PageIndex(pages - 1)) + 1;
        history.words.reserve_exact(len - old);
        history.words.resize(len, 0);
        history.words[word(page)] |= bit(page);
        self.histories.words += len - old;
        if old == 0 {
            self.histories.files.push_back(file);
        }
        self.trim_histories();
    }

    /// Drops the oldest histories until the others fit.
    pub(super) fn trim_histories(&mut self) {
        while self.histories.words > self.words_max() {
            let Some(&oldest) = self.histories.files.front() else { return };
            self.lose_history(oldest);
        }
    }

    fn words_max(&self) -> usize {
        ((self.limit / FRAMES_PER_WORD) as usize).max(WORDS_MIN)
    }

    /// Forgets which pages of a file were used, and how often, until it is closed.
    pub(super) fn lose_history(&mut self, file: FileId) {
        if self.file(file).history.as_ref().is_some_and(|history| history.is_lost) {
            return;
        }
        self.drop_history(file);
        let lost = History { is_lost: true, ..History::default() };
        self.file_mut(file).history = Some(Box::new(lost));
    }

    /// Drops the history of a file.
    pub(super) fn drop_history(&mut self, file: FileId) {
        let words = self.file_mut(file).history.take().map_or(0, |history| history.words.len());
        if words > 0 {
            self.histories.words -= words;
            self.histories.files.retain(|&other| other != file);
        }
    }
}

const fn word(page: PageIndex) -> usize {
    (page.0 / 64) as usize
}

const fn bit(page: PageIndex) -> u64 {
    1 << (page.0 % 64)
}

#[cfg(test)]
mod tests {
    use crate::{Advice, Cache, Config, FileId, HandleId};
    use crate::{PageAccess, PageCount, PageIndex, PageRange, Policy};
    use alloc::vec::Vec;

    /// Pages of each file.
    const PAGES: u64 = 1 << 16;

    /// A cache with memory for the histories of four files.
    fn small() -> Cache {
        Cache::new(Config { policy: Policy::None, frames: 64, ..Config::default() }).expect("valid")
    }

    /// Opens a file, and reads pages of it one after the other.
    fn read(cache: &mut Cache, number: u32, pages: core::ops::Range<u64>) {
        let (file, handle) = (FileId(number), HandleId(number));
        cache.open_file(file, PageCount(PAGES));
        cache.open_handle(handle, file);
        for page in pages {
            let access = PageAccess::read(handle, PageRange::new(page, page + 1));
            cache.access_instant(cache.now, access, &mut ()).expect("the cache has frames");
        }
        cache.check().expect("valid");
    }

    /// How many pages of a file its history has; none if it is lost.
    fn known(cache: &Cache, number: u32) -> Option<usize> {
        let history = cache.file(FileId(number)).history.as_ref().expect("pages were evicted");
        let known = (0..PAGES).filter(|&page| history.has(PageIndex(page))).count();
        (!history.is_lost).then_some(known)
    }

    #[test]
    fn pages_without_a_shadow_are_remembered_until_histories_take_too_much_memory() {
        let mut cache = small();
        read(&mut cache, 0, 0..1024);
        // The others are in memory or have a shadow.
        assert_eq!(known(&cache, 0), Some(1024 - 2 * 64));
        read(&mut cache, 1, 0..1024);
        read(&mut cache, 2, 0..1024);
        read(&mut cache, 3, 0..1024);
        assert_eq!((known(&cache, 2), known(&cache, 3)), (Some(1024), Some(1024 - 2 * 64)));
        read(&mut cache, 4, 0..1024);
        read(&mut cache, 5, 0..1024);
        assert_eq!((known(&cache, 0), known(&cache, 2)), (None, Some(1024)));
        let mut out = Vec::new();
        cache.close_handle(cache.now, HandleId(2), &mut out);
        cache.close_file(FileId(2));
        cache.check().expect("valid");
    }

    #[test]
    fn used_pages_that_advice_drops_are_remembered() {
        let mut cache = small();
        read(&mut cache, 0, 0..32);
        let mut out = Vec::new();
        cache.advise(cache.now, HandleId(0), PageRange::new(0, 16), Advice::DontNeed, &mut out);
        assert_eq!(known(&cache, 0), Some(16));
    }

    /// Counters of uses are those of the old bytes, too.
    #[test]
    fn a_file_whose_bytes_changed_is_lost() {
        let mut cache = small();
        read(&mut cache, 0, 0..1024);
        cache.invalidate(FileId(0), PageRange::new(100, 200));
        assert_eq!(known(&cache, 0), None);
        cache.check().expect("valid");
    }

    #[test]
    fn a_file_too_large_for_a_history_has_none() {
        let mut cache = small();
        cache.open_file(FileId(1), PageCount(1 << 52));
        cache.remember(FileId(1), PageIndex((1 << 52) - 1));
        assert_eq!(known(&cache, 1), None);
        cache.check().expect("valid");
    }
}
