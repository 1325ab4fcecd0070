//! The directories of a driver, as one state machine: so that its events can be recorded.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{SamplePrior, Sibling, Siblings};
use crate::journal::Replay;
use crate::time::Instant;

/// The opens of several directories, each with a number that the driver chooses.
#[derive(Debug, Default)]
pub struct SiblingDirectories {
    directories: BTreeMap<u64, Siblings>,
    /// What samples in all of them have shown.
    prior: SamplePrior,
}

/// Everything that can happen to [`SiblingDirectories`]. Unknown directories are ignored.
#[derive(Clone, Debug)]
pub enum SiblingEvent {
    /// A directory was listed.
    Listed {
        /// The directory.
        directory: u64,
        /// Its files, none of which was opened.
        siblings: Box<Siblings>,
    },
    /// A program opens a file. See [`Siblings::opened`].
    Opened {
        /// The directory.
        directory: u64,
        /// The file.
        index: u32,
        /// Files that may be read ahead.
        room: u32,
    },
    /// A program goes to a directory. See [`Siblings::go_on_from`].
    WentOn {
        /// The directory before.
        from: u64,
        /// The directory.
        to: u64,
        /// Files that may be read ahead.
        room: u32,
    },
    /// See [`Siblings::dropped`].
    Dropped {
        /// The directory.
        directory: u64,
        /// The file.
        index: u32,
    },
    /// See [`Siblings::resident`].
    Resident {
        /// The directory.
        directory: u64,
        /// The file.
        index: u32,
    },
    /// A directory is no longer remembered.
    Forgotten {
        /// The directory.
        directory: u64,
    },
}

/// A file to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSibling {
    /// Its directory.
    pub directory: u64,
    /// The file, and why.
    pub sibling: Sibling,
}

impl SiblingDirectories {
    /// A directory, if it is remembered.
    pub fn get(&self, directory: u64) -> Option<&Siblings> {
        self.directories.get(&directory)
    }

    /// Handles an event. Appends the files to read ahead, in this order.
    pub fn step(&mut self, event: SiblingEvent, out: &mut Vec<PlannedSibling>) {
        let mut plan = Vec::new();
        let directory = match event {
            SiblingEvent::Listed { directory, siblings } => {
                self.directories.insert(directory, *siblings);
                return;
            }
            SiblingEvent::Forgotten { directory } => {
                self.directories.remove(&directory);
                return;
            }
            SiblingEvent::Opened { directory, index, room } => {
                if let Some(siblings) = self.directories.get_mut(&directory) {
                    siblings.opened(index, room, &mut self.prior, &mut plan);
                }
                directory
            }
            SiblingEvent::WentOn { from, to, room } => {
                if from != to
                    && let Some(mut before) = self.directories.remove(&from)
                {
                    if let Some(siblings) = self.directories.get_mut(&to) {
                        siblings.go_on_from(&mut before, room, &mut plan);
                    }
                    self.directories.insert(from, before);
                }
                to
            }
            SiblingEvent::Dropped { directory, index } => {
                if let Some(siblings) = self.directories.get_mut(&directory) {
                    siblings.dropped(index);
                }
                return;
            }
            SiblingEvent::Resident { directory, index } => {
                if let Some(siblings) = self.directories.get_mut(&directory) {
                    siblings.resident(index);
                }
                return;
            }
        };
        out.extend(plan.into_iter().map(|sibling| PlannedSibling { directory, sibling }));
    }
}

impl Replay for SiblingEvent {
    type Machine = SiblingDirectories;
    type Config = ();
    type Action = PlannedSibling;
    type Decision = PlannedSibling;

    fn machine((): &()) -> Option<SiblingDirectories> {
        Some(SiblingDirectories::default())
    }

    fn apply(self, directories: &mut SiblingDirectories, _now: Instant, out: &mut Vec<PlannedSibling>) {
        directories.step(self, out);
    }

    fn decision(planned: &PlannedSibling) -> Option<PlannedSibling> {
        Some(*planned)
    }
}
