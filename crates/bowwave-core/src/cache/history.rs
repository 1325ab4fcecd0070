//! Which pages of a file were used, after their shadows are gone: a bit for each.
//!
//! Shadows remember as many evicted pages as there are frames. Whether the pages of a larger file
//! are read once or again shows only over all of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Cache, File};
use crate::id::FileId;
use crate::page::{PageCount, PageIndex, PageRange};

/// Frames for each word of bits that all histories together may have. Smaller: more memory for
/// them; with 2, a thousandth of that of the pages. Larger: fewer and smaller files are remembered;
/// with 2, a file of 32 times the memory.
const FRAMES_PER_WORD: u32 = 2;

/// Pages of a file that were used and evicted, and may have no shadow.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(super) words: Vec<u64>,
    /// Pages of it that were requested again.
    pub(crate) returned: u64,
    /// Its words were dropped, because histories together had too many.
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

    /// Makes room for a page in a file's history, and drops the oldest ones if it does not fit.
    fn lengthen(&mut self, file: FileId, page: PageIndex) {
        let most = (self.limit / FRAMES_PER_WORD) as usize;
        let Some(Some(entry)) = self.files.get_mut(file.0 as usize) else { return };
        let PageCount(pages) = entry.pages;
        let history = entry.history.get_or_insert_default();
        let old = history.words.len();
        let len = word(PageIndex(pages.saturating_sub(1).max(page.0))) + 1;
        history.is_lost |= len > most;
        if history.is_lost {
            return;
        }
        if old == 0 {
            self.histories.files.push_back(file);
        }
        history.words.resize(len, 0);
        history.words[word(page)] |= bit(page);
        self.histories.words += len - old;
        while self.histories.words > most {
            let oldest = self.histories.files.pop_front().expect("each file fits alone");
            let history = self.file_mut(oldest).history.get_or_insert_default();
            history.is_lost = true;
            let dropped = core::mem::take(&mut history.words);
            self.histories.words -= dropped.len();
        }
    }

    /// Forgets which pages of a range were used: their bytes are new.
    pub(super) fn forget(&mut self, file: FileId, range: PageRange) {
        let entry = self.file_mut(file);
        let Some(history) = &mut entry.history else { return };
        if range.start.0 == 0 && range.end.0 >= entry.pages.0 {
            let dropped = history.words.len();
            entry.history = None;
            self.histories.words -= dropped;
            self.histories.files.retain(|&other| other != file);
        } else {
            let end = range.end.0.min(64 * history.words.len() as u64);
            for page in (range.start.0..end).map(PageIndex) {
                history.words[word(page)] &= !bit(page);
            }
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
    use crate::{Action, Cache, Config, Event, FileId, HandleId, Instant};
    use crate::{PageAccess, PageCount, PageIndex, PageRange, Policy, Waiter};
    use alloc::vec::Vec;

    const PAGES: u64 = 1024;

    /// A cache with memory for the histories of two files of 1,024 pages.
    fn small() -> Cache {
        Cache::new(Config { policy: Policy::None, frames: 64, ..Config::default() }).expect("valid")
    }

    /// Reads all pages of a file, one after the other.
    fn read_all(cache: &mut Cache, number: u32) {
        let (file, handle) = (FileId(number), HandleId(number));
        let mut out = Vec::new();
        cache.open_file(file, PageCount(PAGES));
        cache.open_handle(handle, file);
        for page in 0..PAGES {
            let access = PageAccess::read(handle, PageRange::new(page, page + 1));
            cache.step(
                Instant(u64::from(number) * PAGES + page),
                Event::Access { waiter: Waiter(0), access },
                &mut out,
            );
            while let Some(action) = out.pop() {
                let event = match action {
                    Action::Fill(fill) => Event::Filled { fill: fill.id, result: Ok(()) },
                    Action::Wake { result, .. } => Event::Unpin { frames: result.expect("no fill fails") },
                    _ => continue,
                };
                cache.step(Instant(u64::from(number) * PAGES + page), event, &mut out);
            }
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
        read_all(&mut cache, 0);
        // The others are in memory or have a shadow.
        assert_eq!(known(&cache, 0), Some(1024 - 2 * 64));
        read_all(&mut cache, 1);
        assert_eq!((known(&cache, 0), known(&cache, 1)), (Some(1024), Some(1024 - 2 * 64)));
        read_all(&mut cache, 2);
        assert_eq!((known(&cache, 0), known(&cache, 1)), (None, Some(1024)));
        let mut out = Vec::new();
        cache.close_handle(Instant(3 * PAGES), HandleId(1), &mut out);
        cache.close_file(FileId(1));
        read_all(&mut cache, 3);
        assert_eq!((known(&cache, 2), known(&cache, 3)), (Some(1024), Some(1024 - 2 * 64)));
    }

    #[test]
    fn changed_pages_are_forgotten() {
        let mut cache = small();
        read_all(&mut cache, 0);
        cache.invalidate(FileId(0), PageRange::new(100, 200));
        assert_eq!(known(&cache, 0), Some(1024 - 2 * 64 - 100));
        cache.check().expect("valid");
        cache.invalidate(FileId(0), PageRange::new(0, PAGES));
        assert!(cache.file(FileId(0)).history.is_none());
        cache.check().expect("valid");
    }

    #[test]
    fn a_file_too_large_for_a_history_has_none() {
        let mut cache = small();
        cache.open_file(FileId(1), PageCount(1 << 60));
        cache.remember(FileId(1), PageIndex(7));
        assert_eq!(known(&cache, 1), None);
        cache.check().expect("valid");
    }
}
