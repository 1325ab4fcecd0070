//! tiotest's writing threads, and the journal that they wait for.

use bowwave_core::Instant;

use super::{Later, PAGE, Process, Wait, World};
use crate::random::Random;

/// A thread: writes of a page each to its file, each timed, then an fsync that is not.
#[derive(Clone, Debug)]
pub struct Tio {
    file: usize,
    pages: u64,
    writes: u64,
    written: u64,
    random: Option<Random>,
    duty: u64,
    state: State,
    began: Instant,
    /// How long each write took, in nanoseconds.
    pub taken_ns: Vec<u64>,
    /// When its last write ended.
    pub wrote_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Write,
    Change,
    Throttle,
    Done,
    Sync,
}

/// A system call that copies a page, with 32 threads on a machine of two processors, in nanoseconds.
const WRITE_NS: u64 = 10_000;

impl Tio {
    /// Writes all pages of a file in order, or `writes` of them at places from a seed.
    #[must_use]
    pub fn new(file: usize, pages: u64, random: Option<(u64, u64)>) -> Self {
        let writes = random.map_or(pages, |(_, writes)| writes);
        Self {
            file,
            pages,
            writes,
            written: 0,
            random: random.map(|(seed, _)| Random::new(seed)),
            duty: 0,
            state: State::Write,
            began: Instant(0),
            taken_ns: Vec::new(),
            wrote_until: Instant(0),
        }
    }
}

impl Process for Tio {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        loop {
            match self.state {
                State::Write if self.written == self.writes => {
                    world.fsync(me, self.file);
                    self.wrote_until = world.now();
                    self.state = State::Sync;
                    return Wait::File(self.file);
                }
                State::Write => {
                    self.began = world.now();
                    self.state = State::Change;
                    // The inode is part of what the journal is writing.
                    if world.journal_locked {
                        return Wait::Journal;
                    }
                }
                State::Change => {
                    let page = match &mut self.random {
                        Some(random) => random.below(self.pages),
                        None => self.written,
                    };
                    world.files.write(self.file, page);
                    self.written += 1;
                    (self.duty, self.state) = (world.duty_for_page(), State::Throttle);
                }
                State::Throttle => {
                    if let Some(wait) = world.throttle(me, &mut self.duty) {
                        return wait;
                    }
                    self.state = State::Done;
                    return Wait::Until(world.now().later(WRITE_NS));
                }
                State::Done => {
                    self.taken_ns.push(world.now().0 - self.began.0);
                    self.state = State::Write;
                }
                State::Sync => return Wait::End,
            }
        }
    }
}

/// Commits each five seconds: its blocks, during which nobody changes what is in them, then its record.
#[derive(Clone, Debug)]
pub struct Journal {
    at: u64,
    phase: u32,
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
        Self { at, phase: 0, commits: 0 }
    }
}

impl Process for Journal {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        self.phase += 1;
        match self.phase {
            1 => {
                world.journal_locked = false;
                Wait::Until(world.now().later(COMMIT_NS))
            }
            2 => {
                world.journal_locked = true;
                world.write_journal(me, self.at, BLOCKS_BYTES);
                Wait::Requests
            }
            3 => {
                world.journal_locked = false;
                world.write_journal(me, self.at + BLOCKS_BYTES, PAGE);
                self.at += BLOCKS_BYTES + PAGE;
                Wait::Requests
            }
            _ => {
                (self.phase, self.commits) = (1, self.commits + 1);
                Wait::Until(world.now().later(COMMIT_NS))
            }
        }
    }
}
