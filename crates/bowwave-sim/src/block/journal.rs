//! A journal like ext3's: commits, and the processes that wait for them.
//!
//! ```text
//! every 5 s, or when an fsync requests it:
//! open handles end, none starts ──► blocks written, their buffers frozen ──► record written
//! ```
//!
//! A commit without a waiter is async except for its record, as since Linux 2.6.30. It does not
//! order file data (`data=writeback`, ext3's default of 2.6.30).

use super::{Later, PAGE_BYTES, Process, Wait, World};

/// State of the journal that processes see.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalState {
    /// Whether a commit waits for handles to end; none may start.
    pub locked: bool,
    /// Whether blocks are being written to the journal and cannot be changed.
    pub shadow: bool,
    /// Whether a process waits for a commit.
    pub requested: bool,
    /// Processes with an open handle.
    pub handles: usize,
    /// Commits started.
    pub started: u64,
    /// Commits completed.
    pub done: u64,
}

impl JournalState {
    /// Whether a process that modifies metadata must wait.
    pub const fn is_held(&self) -> bool {
        self.locked || self.shadow
    }

    /// Requests a commit of all changes so far; returns how many commits must complete.
    pub fn request_commit(&mut self) -> u64 {
        self.requested = true;
        self.started + 1
    }
}

/// Commits every five seconds or on request: waits for handles to end, writes its blocks while they
/// are frozen, then its record.
#[derive(Clone, Debug)]
pub struct Journal {
    at: u64,
    phase: u32,
    sync: bool,
    /// Commits completed.
    pub commits: u64,
}

const COMMIT_NS: u64 = 5_000_000_000;
/// Bytes of a commit before its record: 32 inodes and block descriptors.
const BLOCKS_BYTES: u64 = 32 * PAGE_BYTES;

impl Journal {
    /// Creates a journal at an address of the disk.
    pub fn new(at: u64) -> Self {
        Self { at, phase: 0, sync: false, commits: 0 }
    }
}

impl Process for Journal {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        self.phase += 1;
        match self.phase {
            1 => Wait::CommitDue(world.now().later(COMMIT_NS)),
            2 => {
                world.journal.locked = true;
                Wait::Handles
            }
            3 => {
                self.sync = std::mem::take(&mut world.journal.requested);
                world.journal.started += 1;
                (world.journal.locked, world.journal.shadow) = (false, true);
                world.write_journal(me, self.at, BLOCKS_BYTES, self.sync);
                Wait::Requests
            }
            4 => {
                world.journal.shadow = false;
                world.write_journal(me, self.at + BLOCKS_BYTES, PAGE_BYTES, true);
                self.at += BLOCKS_BYTES + PAGE_BYTES;
                Wait::Requests
            }
            _ => {
                (self.phase, self.commits) = (1, self.commits + 1);
                world.journal.done += 1;
                Wait::CommitDue(world.now().later(COMMIT_NS))
            }
        }
    }
}
