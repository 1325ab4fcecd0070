//! fsync-tester: a mebibyte written and synced each second.

use bowwave_core::Instant;

use super::{Later, PAGE, Process, Wait, World};

/// Opens a file, then time and again writes 1 MiB at its start, syncs it, and sleeps a second (the program of Theodore
/// Ts'o's that the document names).
#[derive(Clone, Debug)]
pub struct FsyncTester {
    file: usize,
    /// Where the journal is on the disk.
    journal: u64,
    /// What an fsync waits for, one after the other: the file's pages; with 2, the blocks of the journal; with 3, the
    /// commit record, too.
    phases: u32,
    state: State,
    began: Instant,
    /// How long each fsync took, in nanoseconds.
    pub taken_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Write,
    Send,
    Phase(u32),
}

/// Bytes that it writes.
const BYTES: u64 = 1 << 20;
/// Bytes of the journal that a commit writes before its record: a descriptor and some blocks of metadata.
const JOURNAL_BYTES: u64 = 8 * PAGE;
const SECOND: u64 = 1_000_000_000;

impl FsyncTester {
    /// On a file, with a journal at an address, from a time on.
    #[must_use]
    pub fn new(file: usize, journal: u64, phases: u32, starts: Instant) -> Self {
        let (state, began) = (State::Start, starts);
        Self { file, journal, phases, state, began, taken_ns: Vec::new() }
    }
}

impl Process for FsyncTester {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        match self.state {
            State::Start => {
                self.state = State::Write;
                Wait::Until(self.began)
            }
            State::Write => {
                (0..BYTES / PAGE).for_each(|page| world.files.write(self.file, page));
                self.began = world.now();
                self.state = State::Send;
                self.step(me, world)
            }
            State::Send => {
                if let Some(wait) = world.fsync(me, self.file) {
                    return wait;
                }
                self.state = State::Phase(1);
                Wait::File(self.file)
            }
            State::Phase(done) if done < self.phases => {
                let (at, bytes) = if done == 1 { (0, JOURNAL_BYTES) } else { (JOURNAL_BYTES, PAGE) };
                world.write_journal(me, self.journal + at, bytes, true);
                self.journal += if done == 1 { 0 } else { JOURNAL_BYTES + PAGE };
                self.state = State::Phase(done + 1);
                Wait::Requests
            }
            State::Phase(_) => {
                self.taken_ns.push(world.now().0 - self.began.0);
                self.state = State::Write;
                Wait::Until(world.now().later(SECOND))
            }
        }
    }
}
