//! A family of access patterns, drawn from a grammar by a seed.
//!
//! ```text
//!   trace      readers (1 to 64) of phases (1 to 3), some with think time, some with noise
//!   readers    through one descriptor: in turn, at random, or each at its own rate;
//!              or as processes with a descriptor each, in turn;
//!              each in its part of the file, in files of its own, or all in the same range
//!   phase      runs, skips, strides, clusters, samples, columns, passes, headers, files
//! ```
//!
//! A policy can be tuned to a list of workloads, but not to a family. Policies are developed on
//! seeds below [`DEVELOPMENT`] and judged on seeds from [`held_out`], which follow from a commit's
//! hash.
//!
//! The same seed gives the same trace on machines whose mathematical libraries round alike, as for
//! [`Pattern::Zipf`](super::Pattern::Zipf).
//!
//! ```
//! use bowwave_trace::generate::Family;
//!
//! let family = Family::new(7);
//! println!("{}", family.description());
//! assert_eq!(family, Family::new(7));
//! assert!(family.reads().len() >= 100);
//! ```

mod draw;
mod phase;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use bowwave_core::mix;

use super::Random;
use crate::binary::Trace;
use crate::{Op, Record};
use draw::{log_uniform, one_in, time};
use phase::Phase;

/// Seeds below this one are for development.
pub const DEVELOPMENT: u64 = 1_000_000;

/// Most readers of a trace.
const READERS_MAX: u64 = 64;
/// Minimum reads of a reader in a phase. Fewer: a policy cannot detect the pattern.
const READS_MIN: u64 = 12;

/// A trace of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    seed: u64,
    description: String,
    think_ns: u64,
    reads: Vec<Read>,
}

/// A read of a [`Family`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The process, from 1.
    pub pid: u64,
    /// The file: its name is [`Family::file_name`].
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub length: u64,
}

/// Where the reads of each reader lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// Each in a part of the file.
    Parts,
    /// All in the same range.
    Same,
    /// Each in files of its own.
    Files,
}

/// The order of the reads of several readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One read of each in turn, through one descriptor.
    Turns,
    /// A reader at random each time, through one descriptor.
    Random,
    /// Reader n reads n times as often as reader 1, at random, through one descriptor.
    Paced,
    /// Each a process of its own.
    Processes,
}

/// The `number`th seed that follows from `hash`, at least [`DEVELOPMENT`]. Take the hash of the
/// commit that is measured: the seeds do not exist before the commit.
///
/// ```
/// use bowwave_trace::generate::{DEVELOPMENT, held_out};
///
/// assert!(held_out("2abaf8d6a4c8", 0) >= DEVELOPMENT);
/// assert_ne!(held_out("2abaf8d6a4c8", 0), held_out("2abaf8d6a4c8", 1));
/// ```
pub fn held_out(hash: &str, number: u64) -> u64 {
    let start = hash.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)));
    // Six decimal digits more than the development seeds: easy to copy.
    DEVELOPMENT + mix(start ^ mix(number)) % (DEVELOPMENT * DEVELOPMENT - DEVELOPMENT)
}

impl Family {
    /// The trace of `seed`.
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let readers = if one_in(random, 2) { 1 } else { log_uniform(random, 2, READERS_MAX) };
        let phases = [1, 1, 1, 1, 1, 2, 2, 3][random.below(8) as usize];
        let reads = log_uniform(random, 200, 2000) / phases / readers;
        let share = [Share::Parts, Share::Parts, Share::Same, Share::Files][random.below(4) as usize];
        let order = [Order::Turns, Order::Random, Order::Paced, Order::Processes][random.below(4) as usize];
        let think_ns = if one_in(random, 3) { log_uniform(random, 10_000, 20_000_000) } else { 0 };
        let noise = if one_in(random, 5) { 1 + random.below(15) } else { 0 };
        let mut description = String::new();
        let mut all = Vec::new();
        for number in 0..phases {
            let phase = Phase::draw(random);
            if number > 0 {
                description += "; then ";
            }
            description += &phase.to_string();
            let each = (0..readers)
                .map(|reader| phase.of_reader(reader, readers, share, reads.max(READS_MIN), random))
                .collect();
            all.extend(interleave(each, order, random));
        }
        add_noise(&mut all, noise, random);
        for text in [readers_in_words(readers, share, order), noise_in_words(noise)] {
            description += &text;
        }
        if think_ns > 0 {
            let _never_fails = write!(description, "; {} of think time", time(think_ns));
        }
        Self { seed, description, think_ns, reads: all }
    }

    /// The pattern in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Nanoseconds from the end of a read to the next read of the same process.
    pub fn think_ns(&self) -> u64 {
        self.think_ns
    }

    /// The reads, in order.
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// Name of a file. Names sort as their numbers.
    pub fn file_name(file: u32) -> String {
        format!("data-{file:04}")
    }

    /// The rows of the trace. Row n has the time n × [`think_ns`](Self::think_ns), whatever its
    /// process: a trace has no durations of reads.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..).zip(&self.reads).map(|(number, read)| Record {
            time_ns: self.think_ns.saturating_mul(number),
            pid: read.pid,
            op: Op::Read,
            file: Self::file_name(read.file),
            offset: read.offset,
            length: read.length,
        })
    }

    /// The trace in binary form, in memory.
    ///
    /// # Errors
    ///
    /// None is known: memory takes every row.
    pub fn trace(&self) -> io::Result<Trace> {
        Trace::of(self.records(), format!("family {}", self.seed))
    }
}

/// Merges the reads of several readers.
fn interleave(each: Vec<Vec<Read>>, order: Order, random: &mut Random) -> Vec<Read> {
    let mut left: Vec<_> = (1u64..).zip(each).map(|(pid, reads)| (pid, reads.into_iter())).collect();
    let mut all = Vec::new();
    let mut turn = 0;
    while !left.is_empty() {
        let at = match order {
            Order::Turns | Order::Processes => turn % left.len(),
            Order::Random => random.below(left.len() as u64) as usize,
            Order::Paced => {
                let weights = left.iter().map(|(pid, _)| pid).sum();
                let mut drawn = random.below(weights);
                let chosen = left.iter().position(|&(pid, _)| {
                    let is_chosen = drawn < pid;
                    drawn = drawn.saturating_sub(pid);
                    is_chosen
                });
                chosen.unwrap_or(0)
            }
        };
        let (pid, reads) = &mut left[at];
        match reads.next() {
            Some(read) => {
                all.push(Read { pid: if order == Order::Processes { *pid } else { 1 }, ..read });
                turn = at + 1;
            }
            None => {
                left.remove(at);
                turn = at;
            }
        }
    }
    all
}

/// Moves `percent` % of the reads to random offsets of their files.
fn add_noise(reads: &mut [Read], percent: u64, random: &mut Random) {
    if percent == 0 {
        return;
    }
    let mut ends: HashMap<u32, u64> = HashMap::new();
    for read in reads.iter() {
        let end = ends.entry(read.file).or_default();
        *end = (*end).max(read.offset + read.length);
    }
    for read in reads {
        if random.below(100) < percent {
            let end = ends.get(&read.file).copied().unwrap_or(read.length);
            read.offset = random.below(end.saturating_sub(read.length) + 1);
        }
    }
}

fn readers_in_words(readers: u64, share: Share, order: Order) -> String {
    if readers == 1 {
        return String::new();
    }
    let order = match order {
        Order::Turns => "in turn through one descriptor",
        Order::Random => "in random order through one descriptor",
        Order::Paced => "at different paces through one descriptor",
        Order::Processes => "at the same time",
    };
    let share = match share {
        Share::Parts => "each in a part of the file",
        Share::Same => "all in the same range",
        Share::Files => "each in a file of its own",
    };
    format!("; {readers} readers {order}, {share}")
}

fn noise_in_words(percent: u64) -> String {
    if percent == 0 { String::new() } else { format!("; {percent} % of reads anywhere") }
}
