//! A bulk writer: `while :; do dd if=/dev/zero of=bigfile bs=8M count=256; sync; rm bigfile; done`.

use super::{Later, PAGE_BYTES, Process, Wait, World};

/// Writes a file sequentially at full speed, syncs, removes it, and repeats.
#[derive(Clone, Debug)]
pub struct Stream {
    file: usize,
    pages: u64,
    page: u64,
    duty: u64,
    state: State,
    /// Completed rounds.
    pub rounds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Copy,
    Throttle,
    Sync,
}

/// Pages between two checks of the limits.
const STEP_PAGES: u64 = 8;
/// Time to copy a page, including the system call's share, in nanoseconds: 1 GB/s.
const PAGE_NS: u64 = 4096;
/// Time to start the loop's programs and remove the file, in nanoseconds.
const BETWEEN_NS: u64 = 50_000_000;

impl Stream {
    /// Creates a stream of `bytes` into a file.
    pub fn new(file: usize, bytes: u64) -> Self {
        Self { file, pages: bytes / PAGE_BYTES, page: 0, duty: 0, state: State::Copy, rounds: 0 }
    }
}

impl Process for Stream {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        loop {
            match self.state {
                State::Copy if self.page >= self.pages => {
                    world.sync();
                    self.state = State::Sync;
                    return Wait::Clean;
                }
                State::Copy => {
                    (self.page..self.page + STEP_PAGES).for_each(|page| world.files.write(self.file, page));
                    self.page += STEP_PAGES;
                    self.duty = World::duty();
                    self.state = State::Throttle;
                    return Wait::Until(world.now().later(STEP_PAGES * PAGE_NS));
                }
                State::Throttle => {
                    if let Some(wait) = world.throttle(me, &mut self.duty) {
                        return wait;
                    }
                    self.state = State::Copy;
                }
                State::Sync => {
                    world.files.discard(self.file);
                    (self.page, self.state) = (0, State::Copy);
                    self.rounds += 1;
                    return Wait::Until(world.now().later(BETWEEN_NS));
                }
            }
        }
    }
}
