//! What an importer repaired or left out, counted.

use std::fmt;

use crate::words::texts;

texts! {
    /// Something in a foreign trace that an importer repairs or leaves out instead of failing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Repair,
    /// What was done, for people; a count follows.
    description {
        /// A time before the one of the row before it, raised to that.
        TimeRaised = "times that ran back, raised to the time of the row before",
        /// A last line or record that was cut off, left out.
        CutShort = "lines or records cut off at the end, left out",
        /// A line of something else in between, such as a traced program's own output, left out.
        ForeignLine = "lines that are not of this format, left out",
        /// A name that is not UTF-8; the bytes that are not were replaced.
        NameNotText = "names that are not UTF-8, mended",
        /// A request that neither reads nor writes nor flushes, left out.
        OtherRequest = "requests that neither read, write nor flush, left out",
        /// A call on a descriptor that was opened before the log began and has no path in it, left out.
        UnknownDescriptor =
            "calls on descriptors opened before the log began, left out (strace -y names their files)",
        /// A call at the position of a descriptor that was opened before the log began; it was taken to stand at 0.
        UnknownPosition =
            "calls on descriptors opened before the log began, taken to stand at byte 0",
        /// An appended write to a file whose size the log does not tell; it was taken to be what the log shows of it.
        UnknownSize = "writes appended to files of unknown size, taken to be what the log shows",
        /// A call that the log begins and does not end, left out.
        UnfinishedCall = "calls that do not end in the log, left out",
        /// A process that could be the child of several others; it was taken to be that of the one that forked first.
        UnknownParent = "processes that several others could have forked, taken for the first's",
        /// A file mapped into memory: what was touched through the mapping is not in such a log.
        MappedFile = "mappings of files, whose touches are not in such a log",
        /// A submission to io_uring or Linux AIO: what was read through it is not in such a log.
        UnseenSubmission =
            "submissions to io_uring or AIO, whose reads are not in such a log (blktrace and tracefs see them)",
        /// An event that is not an access, such as a decision of the kernel's, left out.
        OtherEvent = "events that are not accesses, left out",
        /// A place where the log itself says that events were lost.
        LostEvents =
            "places where the recorder lost events, so that accesses are missing (give it a larger buffer)",
    }
}

/// How often each [`Repair`] was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    counts: [u64; Repair::ALL.len()],
}

impl Repairs {
    /// How often `repair` was made.
    #[must_use]
    pub fn count(&self, repair: Repair) -> u64 {
        self.counts[repair as usize]
    }

    /// Those that were made, with how often, in the order of [`Repair::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Repair, u64)> + '_ {
        Repair::ALL.into_iter().map(|repair| (repair, self.count(repair))).filter(|&(_, count)| count > 0)
    }

    pub(super) fn add(&mut self, repair: Repair) {
        self.counts[repair as usize] += 1;
    }
}

impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (repair, count)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{}: {count}", repair.description())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repair_is_counted_under_its_own_name() {
        let mut repairs = Repairs::default();
        for (times, repair) in Repair::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| repairs.add(repair));
        }
        for (times, repair) in Repair::ALL.into_iter().enumerate() {
            assert_eq!(repairs.count(repair), times as u64, "{repair:?}");
        }
        assert_eq!(repairs.iter().count(), Repair::ALL.len() - 1);
        assert!(
            repairs.to_string().starts_with("lines or records cut off at the end, left out: 1; "),
            "{repairs}"
        );
    }
}
