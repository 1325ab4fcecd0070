//! Widths of recent clusters of touches, to predict the next one.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Clusters remembered for a file. The next cluster is hardly ever wider than the widest of these.
const OF_FILE: usize = 32;
/// Clusters remembered for a reader.
const OF_READER: usize = 8;
/// Clusters of a file in the mean: older ones may be of another kind.
const RECENT: usize = 8;
/// Clusters of its own after which a reader is predicted by them.
const KNOWN: usize = 4;

/// Widths of the clusters of a file, through any handle: they predict the first cluster of a new
/// reader. The file's handles share it, one thread at a time.
#[derive(Debug, Default)]
pub(super) struct FileWidths {
    pages: [AtomicU32; OF_FILE],
    count: AtomicUsize,
}

/// Widths of the last clusters of one reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnWidths(Widths<OF_READER>);

/// A ring of widths in pages; 0 for clusters that were not touched upward.
#[derive(Clone, Copy, Debug)]
struct Widths<const N: usize> {
    pages: [u32; N],
    count: usize,
}

impl FileWidths {
    /// A cluster ended.
    pub(super) fn add(&self, pages: u64) {
        let mut known = self.known();
        let at = known.count % OF_FILE;
        known.add(pages);
        self.pages[at].store(known.pages[at], Relaxed);
        self.count.store(known.count, Relaxed);
    }

    /// Whether no cluster has ended yet.
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
    /// A cluster of this reader ended.
    pub(super) fn add(&mut self, pages: u64) {
        self.0.add(pages);
    }

    /// Largest expected width of the next cluster: the widest of this reader's or of the file's, at
    /// most twice the mean. With `KNOWN` clusters of its own, the reader's mean counts, else the
    /// file's.
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

    /// Mean of at most the last `most` widths.
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
    fn a_new_reader_is_predicted_by_the_file() {
        assert_eq!(own(&[]).usual(&of_file([])), 0);
        assert_eq!(own(&[]).usual(&of_file([100, 180, 140])), 180);
        assert_eq!(own(&[150, 90]).usual(&of_file([100, 180, 140])), 180);
    }

    #[test]
    fn one_wide_cluster_among_narrow_ones_is_not_expected() {
        assert_eq!(own(&[]).usual(&of_file([10, 10, 10, 250])), 140);
        // Only the last eight count in the mean.
        let file = of_file([250; 20].into_iter().chain([20; 8]));
        assert_eq!(own(&[]).usual(&file), 40);
    }

    #[test]
    fn a_reader_with_four_clusters_is_predicted_by_them() {
        let file = of_file([200; 32]);
        assert_eq!(own(&[0, 0, 0]).usual(&file), 200, "three are too few to tell");
        assert_eq!(own(&[0, 0, 0, 0]).usual(&file), 0);
        assert_eq!(own(&[20, 24, 18, 18]).usual(&file), 40);
        // Narrow clusters of others do not limit a reader of wide ones.
        assert_eq!(own(&[200, 180, 240, 180]).usual(&of_file([0; 32])), 240);
    }

    #[test]
    fn the_ring_replaces_the_oldest_width() {
        let file = of_file((0..1000).map(|n| n % 100));
        assert_eq!((file.known().most(), file.known().mean(2)), (99, 98));
        file.add(u64::MAX);
        assert_eq!(file.known().most(), u64::from(u32::MAX));
        assert!(!file.are_unknown() && of_file([]).are_unknown());
    }
}
