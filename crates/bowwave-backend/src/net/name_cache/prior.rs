//! Whether a directory is worth listing at its first lookup, as other directories have shown.

/// Counts directories in which programs looked up names, and those whose listing paid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListingPrior {
    entered: u32,
    paid: u32,
}

impl ListingPrior {
    /// A program looks up the first name of a directory.
    pub(super) fn entered(&mut self) {
        self.entered += 1;
        // Later programs count more.
        if self.entered >= ENTERED_MAX {
            (self.entered, self.paid) = (self.entered / 2, self.paid / 2);
        }
    }

    /// The listing of such a directory has answered [`LOOKUPS_MAX`] lookups.
    pub(super) fn paid(&mut self) {
        self.paid = (self.paid + 1).min(self.entered);
    }

    /// Lookups in a directory that are requested alone before it is listed: none once listings
    /// paid in half of the directories.
    pub(super) fn lookups_min(self) -> u32 {
        let pays = self.paid >= PAID_MIN && self.paid * 2 >= self.entered;
        if pays { 0 } else { LOOKUPS_MAX }
    }
}

/// Lookups in a directory that are requested one by one before it is listed. More: programs that
/// look up many names of it wait longer. Fewer: up to [`PAGES_MAX`](super::PAGES_MAX) pages are
/// listed for a program that uses one or two files.
pub(super) const LOOKUPS_MAX: u32 = 2;
/// Listings that must have paid before directories are listed at their first lookup. Fewer: two
/// lookups in one directory decide for all others.
const PAID_MIN: u32 = 2;
/// Directories that are counted. More: a program that looks up one file in each of many directories
/// causes more listings after one that looks up many.
const ENTERED_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_listed_at_the_first_lookup_once_half_of_them_paid() {
        let mut prior = ListingPrior::default();
        assert_eq!(prior.lookups_min(), LOOKUPS_MAX);
        for _ in 0..2 {
            prior.entered();
            prior.paid();
        }
        assert_eq!(prior.lookups_min(), 0);
    }

    #[test]
    fn one_lookup_in_each_of_many_directories_ends_listing_at_the_first_lookup() {
        let mut prior = ListingPrior::default();
        for _ in 0..1000 {
            prior.entered();
            prior.paid();
        }
        let listed = (0..500).filter(|_| {
            prior.entered();
            prior.lookups_min() == 0
        });
        assert!(listed.count() <= ENTERED_MAX as usize);
        assert_eq!(prior.lookups_min(), LOOKUPS_MAX);
    }
}
