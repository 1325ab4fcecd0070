//! How many requests the readers of small files make, learned from all files of the cache.

/// Levels: level *k* means at least 2^*k* requests, so the last one means 2^15 or more. Larger:
/// only matters if windows exceed 2048 pages. Smaller: files with many requests are not told apart.
const LEVELS: usize = 16;
/// Files. The counts are halved when they reach this many, so older files matter less. Larger: a
/// change in how programs read is noticed later. Smaller: a few files decide.
const FILES_MAX: u16 = 64;

/// Counts of files by how many requests they got: at least 1, at least 2, at least 4, and so on. A
/// file that is still being read counts, too. If its requests have not doubled yet, it looks like a
/// file whose requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileRequests {
    reached: [u16; LEVELS],
}

impl FileRequests {
    /// One request, in the unit of [`further`](Self::further).
    pub(crate) const ONE: u64 = 1024;

    /// Counts of no files.
    pub(crate) const fn new() -> Self {
        Self { reached: [0; LEVELS] }
    }

    /// Number of levels that a file with `requests` requests has reached.
    pub(crate) fn levels(requests: u64) -> u8 {
        (u64::BITS - requests.leading_zeros()).min(LEVELS as u32) as u8
    }

    /// A file that had reached `before` levels has now reached `now`.
    pub(crate) fn count(&mut self, before: u8, now: u8) {
        for level in usize::from(before)..usize::from(now) {
            // A file may reach this level after its count at the one before was halved. No level
            // counts more files than the one before.
            let most = if level == 0 { u16::MAX } else { self.reached[level - 1] };
            self.reached[level] = (self.reached[level] + 1).min(most);
        }
        if self.reached[0] >= FILES_MAX {
            self.reached.iter_mut().for_each(|files| *files /= 2);
        }
    }

    /// Expected further requests, times [`ONE`](Self::ONE), of a file that got `requests` and can
    /// get at most `most`. The chance of each doubling is the share of the counted files that
    /// doubled. Two imaginary files are added: one doubled, one ended. So without counted files
    /// each chance is one half, and each doubling adds half of `requests`. With `may_end`, the
    /// first doubling has no imaginary file that doubled: without counted files its chance is 0.
    pub(crate) fn further(&self, requests: u64, most: u64, may_end: bool) -> u64 {
        const CERTAIN: u64 = 1 << 16;
        let (mut chance, mut length, mut expected) = (CERTAIN, requests.max(1), 0);
        let mut assumed = u64::from(!may_end);
        let known = &self.reached[length.ilog2().min(LEVELS as u32 - 1) as usize..];
        for (reached, doubled) in known.windows(2).map(|pair| (u64::from(pair[0]), u64::from(pair[1]))) {
            if length >= most {
                break;
            }
            chance = chance * (doubled + assumed) / (reached + assumed + 1);
            assumed = 1;
            expected += length.min(most - length) * chance;
            length *= 2;
        }
        expected / (CERTAIN / Self::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of `files` files that got `requests` requests each.
    fn files(files: u64, requests: u64) -> FileRequests {
        let mut known = FileRequests::new();
        (0..files).for_each(|_| known.count(0, FileRequests::levels(requests)));
        known
    }

    #[test]
    fn each_level_has_twice_the_requests() {
        let levels = [0, 1, 2, 3, 4, 7, 8, 1 << 14, 1 << 15, u64::MAX].map(FileRequests::levels);
        assert_eq!(levels, [0, 1, 2, 2, 3, 3, 4, 15, 16, 16]);
    }

    #[test]
    fn without_counted_files_doublings_have_even_odds() {
        let known = FileRequests::new();
        let half = FileRequests::ONE / 2;
        assert_eq!(known.further(1, 1, false), 0, "no request is left");
        assert_eq!(
            [2, 4, 8, 16].map(|most| known.further(1, most, false)),
            [half, 2 * half, 3 * half, 4 * half]
        );
        assert_eq!(known.further(4, 8, false), 4 * half, "half of four requests");
    }

    #[test]
    fn expected_requests_follow_the_counted_files() {
        assert_eq!(FileRequests::new().further(1, 256, true), 0);
        assert!(files(1, 256).further(1, 256, true) > FileRequests::ONE, "a file read in full is evidence");
        let heads = files(30, 1);
        let further = heads.further(1, 256, false);
        assert!(further < FileRequests::ONE / 3, "{further}: of 32 files, one continues");
        let all = files(30, 256);
        let expected = all.further(1, 256, false) / FileRequests::ONE;
        assert!((200..=255).contains(&expected), "{expected} of 255 requests");
        let two = files(30, 2);
        assert_eq!(two.further(1, 256, false) / FileRequests::ONE, 1);
        assert!(two.further(2, 256, false) < FileRequests::ONE / 2);
    }

    /// Regression: files that were counted before, and get more requests later, raised a level
    /// above the one before it, until the count overflowed.
    #[test]
    fn later_requests_never_exceed_the_files_counted() {
        let mut known = FileRequests::new();
        (0..70_000).for_each(|_| known.count(0, 1));
        (0..70_000).for_each(|_| known.count(1, 2));
        assert!(known.reached.is_sorted_by(|level, next| level >= next), "{known:?}");
        assert!(known.further(1, 256, false) / FileRequests::ONE <= 256);
    }

    #[test]
    fn newer_files_matter_more() {
        let mut known = files(1000, 1);
        (0..100).for_each(|_| known.count(0, FileRequests::levels(64)));
        assert!(known.further(1, 64, false) > 40 * FileRequests::ONE, "{known:?}");
    }
}
