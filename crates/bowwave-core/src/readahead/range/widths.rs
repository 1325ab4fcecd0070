//! How wide clusters of touches were.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Clusters of a file that are remembered: of so many of even spread the widest is hardly ever surpassed by the next.
const OF_FILE: usize = 32;
/// Clusters of a reader that are remembered.
const OF_READER: usize = 8;
/// Of a file's clusters the mean counts of no more than these: those before may have been of another kind.
const RECENT: usize = 8;
/// Clusters after which a reader's own say what kind of reader it is.
const KNOWN: usize = 4;

/// Widths of the clusters in a file, whoever touched them: who comes to one for the first time knows what others had.
/// The file's handles share it, one thread at a time.
#[derive(Debug, Default)]
pub(super) struct FileWidths {
    pages: [AtomicU32; OF_FILE],
    count: AtomicUsize,
}

/// Widths of the last clusters of one reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnWidths(Widths<OF_READER>);

/// Widths of the last clusters in pages, 0 for those that were not touched from front to back; a ring.
#[derive(Clone, Copy, Debug)]
struct Widths<const N: usize> {
    pages: [u32; N],
    count: usize,
}

impl FileWidths {
    /// A cluster has ended, through any handle.
    pub(super) fn add(&self, pages: u64) {
        let mut known = self.known();
        let at = known.count % OF_FILE;
        known.add(pages);
        self.pages[at].store(known.pages[at], Relaxed);
        self.count.store(known.count, Relaxed);
    }

    /// Whether no cluster has ended so far.
    pub(super) fn are_unknown(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    fn known(&self) -> Widths<OF_FILE> {
        Widths {
            pages: self.pages.each_ref().map(|pages| pages.load(Relaxed)),
            count: self.count.load(Relaxed),
        }
    }
}

impl OwnWidths {
    /// A cluster of this reader has ended.
    pub(super) fn add(&mut self, pages: u64) {
        self.0.add(pages);
    }

    /// How wide the next one will be at the most: as the widest of this reader's or of the file's, but not twice the mean of
    /// either. A reader that touches in another way than
    /// others is held to what it has shown.
    pub(super) fn usual(&self, of_file: &FileWidths) -> u64 {
        let (own, file) = (&self.0, of_file.known());
        let of_file = file.most().min(2 * file.mean(RECENT));
        if own.count < KNOWN {
            return of_file.max(own.most().min(2 * own.mean(OF_READER)));
        }
        own.most().max(of_file).min(2 * own.mean(OF_READER))
    }
}

impl<const N: usize> Widths<N> {
    fn add(&mut self, pages: u64) {
        self.pages[self.count % N] = u32::try_from(pages).unwrap_or(u32::MAX);
        // Past the first round only the place matters.
        self.count = if self.count + 1 == 2 * N { N } else { self.count + 1 };
    }

    fn most(&self) -> u64 {
        self.pages.iter().copied().max().unwrap_or(0).into()
    }

    /// Of the last ones, no more than `most` of them.
    fn mean(&self, most: usize) -> u64 {
        let known = self.count.min(N).min(most);
        let sum: u64 = (1..=known).map(|back| u64::from(self.pages[(self.count - back) % N])).sum();
        sum / known.max(1) as u64
    }
}

impl<const N: usize> Default for Widths<N> {
    fn default() -> Self {
        Self { pages: [0; N], count: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(widths: impl IntoIterator<Item = u64>) -> FileWidths {
        let file = FileWidths::default();
        widths.into_iter().for_each(|pages| file.add(pages));
        file
    }

    fn own(widths: &[u64]) -> OwnWidths {
        let mut own = OwnWidths::default();
        widths.iter().for_each(|&pages| own.add(pages));
        own
    }

    #[test]
    fn who_knows_nothing_expects_what_others_had() {
        assert_eq!(own(&[]).usual(&of_file([])), 0);
        assert_eq!(own(&[]).usual(&of_file([100, 180, 140])), 180);
        assert_eq!(own(&[150, 90]).usual(&of_file([100, 180, 140])), 180);
    }

    #[test]
    fn one_wide_cluster_among_narrow_ones_is_not_what_to_expect() {
        assert_eq!(own(&[]).usual(&of_file([10, 10, 10, 250])), 140);
        // Nor what was long ago: eight count for the mean.
        let file = of_file([250; 20].into_iter().chain([20; 8]));
        assert_eq!(own(&[]).usual(&file), 40);
    }

    #[test]
    fn a_reader_of_another_kind_is_held_to_its_own() {
        let file = of_file([200; 32]);
        assert_eq!(own(&[0, 0, 0]).usual(&file), 200, "three are too few to tell");
        assert_eq!(own(&[0, 0, 0, 0]).usual(&file), 0);
        assert_eq!(own(&[20, 24, 18, 18]).usual(&file), 40);
        // And one whose clusters are wide does not lose them to others.
        assert_eq!(own(&[200, 180, 240, 180]).usual(&of_file([0; 32])), 240);
    }

    #[test]
    fn a_ring_goes_round() {
        let file = of_file((0..1000).map(|n| n % 100));
        assert_eq!((file.known().most(), file.known().mean(2)), (99, 98));
        file.add(u64::MAX);
        assert_eq!(file.known().most(), u64::from(u32::MAX));
        assert!(!file.are_unknown() && of_file([]).are_unknown());
    }
}
