//! fsync-tester: writes and syncs a mebibyte every second.

use bowwave_core::Instant;

use super::{Later, PAGE_BYTES, Process, Wait, World};

/// Opens a file, then repeatedly writes 1 MiB at its start, syncs, and sleeps a second (Theodore
/// Ts'o's program, named in the document).
#[derive(Clone, Debug)]
pub struct FsyncTester {
    file: usize,
    /// Address of the journal on the disk.
    journal: u64,
    /// Phases of an fsync, in sequence: the file's pages; with 2, the journal blocks; with 3, also
    /// the commit record.
    phases: u32,
    state: State,
    start: Instant,
    /// Latency of each fsync, in nanoseconds.
    pub latencies_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Write,
    Send,
    Phase(u32),
}

/// Bytes per write.
const BYTES: u64 = 1 << 20;
/// Journal bytes of a commit before its record: a descriptor and some metadata blocks.
const JOURNAL_BYTES: u64 = 8 * PAGE_BYTES;
const SECOND: u64 = 1_000_000_000;

impl FsyncTester {
    /// Creates it for a file, with a journal at an address, starting at a time.
    pub fn new(file: usize, journal: u64, phases: u32, starts: Instant) -> Self {
        let (state, start) = (State::Start, starts);
        Self { file, journal, phases, state, start, latencies_ns: Vec::new() }
    }
}

impl Process for FsyncTester {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        match self.state {
            State::Start => {
                self.state = State::Write;
                Wait::Until(self.start)
            }
            State::Write => {
                (0..BYTES / PAGE_BYTES).for_each(|page| world.files.write(self.file, page));
                self.start = world.now();
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
                let (at, bytes) = if done == 1 { (0, JOURNAL_BYTES) } else { (JOURNAL_BYTES, PAGE_BYTES) };
                world.write_journal(me, self.journal + at, bytes, true);
                self.journal += if done == 1 { 0 } else { JOURNAL_BYTES + PAGE_BYTES };
                self.state = State::Phase(done + 1);
                Wait::Requests
            }
            State::Phase(_) => {
                self.latencies_ns.push(world.now().0 - self.start.0);
                self.state = State::Write;
                Wait::Until(world.now().later(SECOND))
            }
        }
    }
}
