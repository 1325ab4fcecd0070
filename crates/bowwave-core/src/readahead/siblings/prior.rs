//! What samples in the directories of a mount have shown: whether the next directory is sampled
//! after fewer opens.

/// Counts of one mount, over its directories.
///
/// **Waste is bounded** over all of them: files that were read ahead before their directory had
/// enough opens of its own, and not opened, are at most sixteen, and eight more for each 256 later
/// opens. While half of the sampled files are opened, they are at most as many as the opened files.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplePrior {
    /// Opens in no order.
    opens: u32,
    /// Files that samples read ahead.
    planned: u32,
    /// Those that were opened afterwards.
    hits: u32,
}

impl SamplePrior {
    /// A file is opened in no order.
    pub(super) fn opened(&mut self) {
        self.opens += 1;
        // Later programs count more.
        if self.opens >= OPENS_MAX {
            *self = Self { opens: self.opens / 2, planned: self.planned / 2, hits: self.hits / 2 };
        }
    }

    /// A file is opened that a sample has read ahead.
    pub(super) fn hit(&mut self) {
        self.hits = (self.hits + 1).min(self.planned);
    }

    /// A sample reads a file ahead.
    pub(super) fn planned(&mut self) {
        self.planned = self.planned.saturating_add(1);
    }

    fn unopened(self) -> u32 {
        self.planned - self.hits
    }

    /// Whether half of the sampled files were opened.
    pub(super) fn pays(self) -> bool {
        self.hits >= HITS_MIN && self.hits >= self.unopened()
    }

    /// Opens in a directory before it is sampled.
    pub(super) fn opens_min(self) -> u32 {
        match self.pays() {
            true => OPENS_TRUSTED,
            false if self.opens >= super::SAMPLE_MIN && self.planned < TRIAL => OPENS_TRIAL,
            false => super::SAMPLE_MIN,
        }
    }

    /// Files that may be read ahead now.
    pub(super) fn left(self) -> u32 {
        let unopened = self.unopened();
        match self.pays() {
            true => self.opens.saturating_sub(unopened),
            false => (self.opens / 2).saturating_sub(unopened).min(TRIAL.saturating_sub(self.planned)),
        }
    }
}

/// Opens in a directory before it is sampled, once samples of other directories paid, and while
/// that is not known. Fewer: more files of directories of which a program needs one or two.
const OPENS_TRUSTED: u32 = 1;
const OPENS_TRIAL: u32 = 3;
/// Sampled files that were opened before samples are trusted.
const HITS_MIN: u32 = 8;
/// Files that are sampled early before half of them must have been opened.
const TRIAL: u32 = 16;
/// Opens that are counted; then all counts are halved, so that each 256 opens allow half a trial
/// more: another program may run. Fewer: more files that are read ahead in vain.
const OPENS_MAX: u32 = 512;
