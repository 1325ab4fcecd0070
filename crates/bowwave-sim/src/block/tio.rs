//! tiotest's writing threads.

use bowwave_core::Instant;

use super::{Later, Process, Wait, World};
use bowwave_core::Random;

/// A thread that writes single pages to its file, each timed. It ends with an untimed fsync: its
/// pages, then a commit of the journal.
#[derive(Clone, Debug)]
pub struct Tio {
    file: usize,
    pages: u64,
    writes: u64,
    written: u64,
    random: Option<Random>,
    duty: u64,
    state: State,
    start: Instant,
    /// How long each write took, in nanoseconds.
    pub latencies_ns: Vec<u64>,
    /// When its last write ended.
    pub wrote_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Write,
    Change,
    Throttle,
    Done,
    Send,
    Sync,
    Commit,
}

/// Time of a system call that copies a page, with 32 threads on two processors, in nanoseconds.
const WRITE_NS: u64 = 10_000;

impl Tio {
    /// Writes all pages of a file in order, or `writes` of them at places from a seed.
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
            start: Instant(0),
            latencies_ns: Vec::new(),
            wrote_until: Instant(0),
        }
    }
}

impl Process for Tio {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        loop {
            match self.state {
                State::Write if self.written == self.writes => {
                    self.wrote_until = world.now();
                    self.state = State::Send;
                }
                State::Write => {
                    self.start = world.now();
                    self.state = State::Change;
                    // The inode is part of what the journal is writing.
                    if world.journal.is_held() {
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
                    self.latencies_ns.push(world.now().0 - self.start.0);
                    self.state = State::Write;
                }
                State::Send => {
                    if let Some(wait) = world.fsync(me, self.file) {
                        return wait;
                    }
                    self.state = State::Sync;
                    return Wait::File(self.file);
                }
                State::Sync => {
                    self.state = State::Commit;
                    return Wait::Commits(world.journal.request_commit());
                }
                State::Commit => return Wait::End,
            }
        }
    }
}
