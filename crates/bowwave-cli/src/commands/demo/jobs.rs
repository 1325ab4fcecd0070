//! The demo's jobs: reads as programs do them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_backend::{parse_size, pattern};
use bowwave_trace::generate::{Random, Scatter};

use super::place::{Place, Reading};
use crate::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// A job: concurrent readers, one file each.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Name in the table and in JSON.
    pub(super) name: &'static str,
    /// The emulated store.
    pub(super) store: &'static str,
    readers: usize,
    file_bytes: &'static str,
    order: Order,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    /// Sequentially, in reads of 128 KiB, as `cat` and `md5sum` do.
    Sequential,
    /// This many random reads of 4 KiB.
    Random(u64),
}

/// The jobs, in full size or small ones for tests.
pub(super) fn jobs(quick: bool) -> Vec<Job> {
    let pick = |small, full| if quick { small } else { full };
    let reads = if quick { 10 } else { 100 };
    vec![
        Job {
            name: "one file, in order",
            store: "s3",
            readers: 1,
            file_bytes: pick("2MiB", "64MiB"),
            order: Order::Sequential,
        },
        Job {
            name: "8 files at once",
            store: "hdd",
            readers: 8,
            file_bytes: pick("256KiB", "12MiB"),
            order: Order::Sequential,
        },
        Job {
            name: "random 4 KiB reads",
            store: "s3",
            readers: 1,
            file_bytes: "1GiB",
            order: Order::Random(reads),
        },
    ]
}

impl Job {
    /// Bytes that all readers request.
    pub(super) fn bytes(&self) -> u64 {
        match self.order {
            Order::Sequential => self.file_size() * self.readers as u64,
            Order::Random(reads) => reads * RANDOM_BYTES * self.readers as u64,
        }
    }

    /// Reads everything at `place`, checks every byte, and returns the time it took.
    pub(super) fn run(&self, place: &Place, interrupt: &Interrupt) -> Result<Duration, Failure> {
        let done = AtomicU64::new(0);
        let mut progress = Progress::bytes(self.name, Some(self.bytes()));
        let started = Instant::now();
        thread::scope(|scope| {
            let readers: Vec<_> = (0..self.readers)
                .map(|reader| {
                    let done = &done;
                    thread::Builder::new()
                        .name(format!("reader-{reader}"))
                        .spawn_scoped(scope, move || self.read(reader, place, interrupt, done))
                        .map_err(|error| failed!("cannot start a thread: {error}"))
                })
                .collect();
            while readers.iter().any(|reader| reader.as_ref().is_ok_and(|reader| !reader.is_finished())) {
                thread::sleep(GLANCE);
                progress.at(done.load(Ordering::Relaxed));
            }
            readers.into_iter().try_for_each(|reader| {
                reader?.join().unwrap_or_else(|_| Err(Failure::failed("a reader broke down")))
            })
        })?;
        Ok(started.elapsed())
    }

    /// One reader's part.
    fn read(
        &self,
        reader: usize,
        place: &Place,
        interrupt: &Interrupt,
        done: &AtomicU64,
    ) -> Result<(), Failure> {
        let name = PathBuf::from(format!("{}-{reader}", self.file_bytes));
        let seed = pattern::seed(&name);
        let file = place.open(&name)?;
        let mut buffer = vec![0; BLOCK];
        let mut expected = vec![0; BLOCK];
        for (offset, len) in self.accesses() {
            if interrupt.is_set() {
                return Err(Failure::failed("interrupted"));
            }
            let (bytes, right) = (&mut buffer[..len], &mut expected[..len]);
            read_exactly(&file, offset, bytes)?;
            pattern::fill(seed, offset, right);
            if bytes != right {
                return Err(failed!(
                    "{}: wrong bytes at {offset}: this is a defect of bowwave or of this machine's memory",
                    name.display()
                ));
            }
            done.fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn accesses(&self) -> Box<dyn Iterator<Item = (u64, usize)>> {
        let size = self.file_size();
        match self.order {
            Order::Sequential => Box::new(
                (0..size.div_ceil(BLOCK as u64))
                    .map(move |block| block * BLOCK as u64)
                    .map(move |offset| (offset, BLOCK.min((size - offset) as usize))),
            ),
            // Reads each page at most once. A constant stride around the file would be a pattern
            // that readahead detects.
            Order::Random(reads) => {
                let pages = size / RANDOM_BYTES;
                let order = Scatter::new(pages, &mut Random::new(1));
                Box::new(
                    (0..reads)
                        .map(move |read| (order.of(read % pages) * RANDOM_BYTES, RANDOM_BYTES as usize)),
                )
            }
        }
    }

    fn file_size(&self) -> u64 {
        parse_size(self.file_bytes).expect("the table's sizes are well-formed")
    }
}

fn read_exactly(file: &Reading<'_>, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(offset + got as u64, &mut buffer[got..])? {
            0 => return Err(failed!("a file ends at {}", offset + got as u64)),
            bytes => got += bytes,
        }
    }
    Ok(())
}

/// Read size of `cat` and `cp`.
const BLOCK: usize = 128 << 10;
const RANDOM_BYTES: u64 = 4096;
/// Interval of progress checks; also bounds the error of the times.
const GLANCE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_what_they_say_within_their_files() {
        for job in jobs(false).into_iter().chain(jobs(true)) {
            let reads: Vec<(u64, usize)> = job.accesses().collect();
            let bytes: u64 = reads.iter().map(|read| read.1 as u64).sum();
            assert_eq!(bytes * job.readers as u64, job.bytes(), "{job:?}");
            assert!(reads.iter().all(|&(offset, len)| offset + len as u64 <= job.file_size()), "{job:?}");
            let mut offsets: Vec<u64> = reads.iter().map(|read| read.0).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), reads.len(), "no read comes twice: {job:?}");
        }
    }
}
