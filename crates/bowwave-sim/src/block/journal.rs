//! A journal as ext3's is: commits, and what waits for them.
//!
//! ```text
//!   every 5 s, or when an fsync asks:
//!   changes that have begun end, none begins ──► blocks written, nobody changes them ──► record written
//! ```
//!
//! A commit that nobody waits for is async but for its record, as since Linux 2.6.30. Files' data are not its business
//! (`data=writeback`, ext3's default of 2.6.30).

use super::{Later, PAGE, Process, Wait, World};

/// What others see of the journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalState {
    /// Whether a commit waits for changes to end, and none may begin.
    pub locked: bool,
    /// Whether blocks are being written to the journal, which cannot be changed then.
    pub shadow: bool,
    /// Whether someone waits for a commit.
    pub asked: bool,
    /// Processes inside of a change.
    pub handles: usize,
    /// Commits begun.
    pub begun: u64,
    /// Commits done.
    pub done: u64,
}

impl JournalState {
    /// Whether who wants to change something must wait.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.locked || self.shadow
    }

    /// Someone waits for what was changed so far: how many commits must be done for that.
    pub fn ask(&mut self) -> u64 {
        self.asked = true;
        self.begun + 1
    }
}

/// Commits each five seconds, or when someone asks: waits for changes to end, writes its blocks, during which nobody changes
/// what is in them, then its record.
#[derive(Clone, Debug)]
pub struct Journal {
    at: u64,
    phase: u32,
    waited_for: bool,
    /// Commits done.
    pub commits: u64,
}

const COMMIT_NS: u64 = 5_000_000_000;
/// Bytes of a commit before its record: 32 inodes and what describes their blocks.
const BLOCKS_BYTES: u64 = 32 * PAGE;

impl Journal {
    /// At an address of the disk.
    #[must_use]
    pub fn new(at: u64) -> Self {
        Self { at, phase: 0, waited_for: false, commits: 0 }
    }
}

impl Process for Journal {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        self.phase += 1;
        match self.phase {
            1 => Wait::Asked(world.now().later(COMMIT_NS)),
            2 => {
                world.journal.locked = true;
                Wait::Handles
            }
            3 => {
                self.waited_for = std::mem::take(&mut world.journal.asked);
                world.journal.begun += 1;
                (world.journal.locked, world.journal.shadow) = (false, true);
                world.write_journal(me, self.at, BLOCKS_BYTES, self.waited_for);
                Wait::Requests
            }
            4 => {
                world.journal.shadow = false;
                world.write_journal(me, self.at + BLOCKS_BYTES, PAGE, true);
                self.at += BLOCKS_BYTES + PAGE;
                Wait::Requests
            }
            _ => {
                (self.phase, self.commits) = (1, self.commits + 1);
                world.journal.done += 1;
                Wait::Asked(world.now().later(COMMIT_NS))
            }
        }
    }
}
