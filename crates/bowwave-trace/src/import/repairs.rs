//! Counts repairs and omissions of an importer.

use std::fmt;

bowwave_core::named_enum! {
    /// A problem of a foreign trace that an importer repairs or skips instead of failing. Its name
    /// describes it for users; a count follows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Repair {
        /// A time earlier than the previous row's, raised to it.
        TimeRaised = "times that ran back, raised to the time of the row before",
        /// A truncated last line or record, skipped.
        CutShort = "lines or records cut off at the end, left out",
        /// A line of another kind, such as a traced program's output, skipped.
        ForeignLine = "lines that are not of this format, left out",
        /// A name that is not UTF-8; its invalid bytes were replaced.
        NameNotText = "names that are not UTF-8, repaired",
        /// A request that is neither a read, a write nor a flush, skipped.
        OtherRequest = "requests that neither read, write nor flush, left out",
        /// A call on a descriptor that was opened before the log began and has no path, skipped.
        UnknownDescriptor =
            "calls on descriptors opened before the log began, left out (strace -y names their files)",
        /// A call at the offset of a descriptor that was opened before the log began; offset 0 is
        /// assumed.
        UnknownPosition =
            "calls on descriptors opened before the log began, taken to stand at byte 0",
        /// An append to a file of unknown size; the size seen in the log is assumed.
        UnknownSize = "writes appended to files of unknown size, taken to be what the log shows",
        /// A call without an end in the log, skipped.
        UnfinishedCall = "calls that do not end in the log, left out",
        /// A process with several possible parents; the one that forked first is assumed.
        UnknownParent = "processes that several others could have forked, taken for the first's",
        /// A memory-mapped file, whose accesses are not in such a log.
        MappedFile = "mappings of files, whose accesses are not in such a log",
        /// A submission to io_uring or Linux AIO, whose reads are not in such a log.
        UnseenSubmission =
            "submissions to io_uring or AIO, whose reads are not in such a log (blktrace and tracefs see them)",
        /// An event that is not an access, such as a kernel decision, skipped.
        OtherEvent = "events that are not accesses, left out",
        /// A place where the log reports lost events.
        LostEvents =
            "places where the recorder lost events, so that accesses are missing (give it a larger buffer)",
    }
}

/// Counts of each [`Repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    counts: [u64; Repair::ALL.len()],
}

impl Repairs {
    /// Count of `repair`.
    pub fn count(&self, repair: Repair) -> u64 {
        self.counts[repair as usize]
    }

    /// The nonzero counts, in the order of [`Repair::ALL`].
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
            write!(f, "{comma}{}: {count}", repair.name())?;
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
