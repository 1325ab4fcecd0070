//! A writer in order beside writers at random, over more than the memory: what each gets done, and how long a touch takes.
//!
//! `swap_beside SPILL` has the memory of a swap with that spill; without SPILL it is the kernel's, which a cgroup may limit:
//! `tools/compare_swap.py` runs both. `--memory`, `--spill-bytes`, `--sequential`, `--random` in bytes, `--writers`, `--seconds`,
//! `--ahead` in pages, `--in-thread 1` for touches that are served by the threads that touch. One line of JSON on standard output.
#![allow(unsafe_code, reason = "maps memory, and threads write to it side by side")]
#![allow(clippy::print_stdout, reason = "a line of figures is what it is for")]

use std::collections::HashMap;
use std::error::Error;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_region::uffd::{Delivery, SYSTEM_PAGE};
use bowwave_region::{Spill, Swap, SwapOptions, SwapRegion};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Memory to write to; its address.
struct Array {
    base: usize,
    pages: u64,
    /// Kept for as long as it is used.
    _region: Option<SwapRegion>,
}

impl Array {
    fn new(swap: Option<&Swap>, bytes: u64) -> Result<Self, Box<dyn Error>> {
        let (len, pages) = (bytes as usize, bytes / SYSTEM_PAGE as u64);
        if pages == 0 {
            return Ok(Self { base: 0, pages, _region: None });
        }
        if let Some(swap) = swap {
            let region = swap.region(len)?;
            return Ok(Self { base: region.as_ptr() as usize, pages, _region: Some(region) });
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choosing, which stays.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        // SAFETY: advice on our own mapping.
        unsafe { madvise(base, len, Advice::LinuxNoHugepage) }?;
        Ok(Self { base: base as usize, pages, _region: None })
    }

    /// Writes to a page; how long that took, in nanoseconds.
    fn touch(&self, page: u64, value: u64) -> u64 {
        let begin = Instant::now();
        // SAFETY: inside the mapping; writers of one page write the same sort of thing.
        unsafe { ptr::write_volatile((self.base + page as usize * SYSTEM_PAGE) as *mut u64, value) };
        begin.elapsed().as_nanos() as u64
    }

    /// Fills all pages with what does not shrink.
    fn fill(&self) {
        let mut state = 1;
        for page in 0..self.pages {
            let words = (self.base + page as usize * SYSTEM_PAGE) as *mut u64;
            for word in 0..SYSTEM_PAGE / 8 {
                // SAFETY: as above.
                unsafe { ptr::write_volatile(words.add(word), next(&mut state)) };
            }
        }
    }
}

/// The next number of a generator that is good enough to jump about.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 16
}

/// Times of touches in nanoseconds, to 6 %: a table that does not grow, since it would take memory from the kernel's side.
struct Times {
    counts: Vec<u64>,
    sum: u64,
}

impl Times {
    fn new() -> Self {
        Self { counts: vec![0; 64 * 16], sum: 0 }
    }

    fn add(&mut self, ns: u64) {
        let order = ns.max(16).ilog2();
        self.counts[(order * 16 + ((ns.max(16) >> (order - 4)) & 15) as u32) as usize] += 1;
        self.sum += ns;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time that this share of touches took at most.
    fn at(&self, share: f64) -> f64 {
        let (mut left, counts) = ((self.count() as f64 * share) as u64, self.counts.iter().enumerate());
        for (index, &count) in counts {
            if left < count {
                return ((16 + index % 16) << (index / 16)) as f64 / 16.0;
            }
            left -= count;
        }
        0.0
    }
}

/// Figures of touches: a second's, the mean and percentiles in microseconds.
fn show(name: &str, times: &Times, seconds: f64) -> String {
    let mean = times.sum as f64 / times.count().max(1) as f64 / 1e3;
    let rate = times.count() as f64 / seconds;
    let percentiles =
        [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99].map(|share| format!("{:.1}", times.at(share) / 1e3));
    format!(
        "\"{name}\":{{\"touches_per_second\":{rate:.0},\"mb_per_second\":{:.1},\"mean_us\":{mean:.2},\"p50_60_70_80_90_95_99_us\":[{}]}}",
        rate * SYSTEM_PAGE as f64 / 1e6,
        percentiles.join(",")
    )
}

/// Has one thread write in order and others at random for a while; how long their touches took.
fn write_side_by_side(ordered: &Array, scattered: &Array, writers: u64, time: Duration) -> (Times, Times) {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let (mut turn, mut times) = (0, Times::new());
            while !over.load(Ordering::Relaxed) && ordered.pages > 0 {
                times.add(ordered.touch(turn % ordered.pages, turn));
                turn += 1;
            }
            times
        });
        let writers: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let (mut state, mut times) = (writer + 7, Times::new());
                    while !over.load(Ordering::Relaxed) && scattered.pages > 0 {
                        let place = next(&mut state);
                        times.add(scattered.touch(place % scattered.pages, place));
                    }
                    times
                })
            })
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let times = |thread: thread::ScopedJoinHandle<'_, Times>| thread.join().expect("no panic");
        let in_order = times(writer);
        let at_random = writers.into_iter().map(times).fold(Times::new(), |mut all, one| {
            all.counts.iter_mut().zip(&one.counts).for_each(|(all, one)| *all += one);
            all.sum += one.sum;
            all
        });
        (in_order, at_random)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut numbers, mut spill) = (HashMap::<String, u64>::new(), None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some(name) => {
                let value = args.next().ok_or_else(|| format!("{arg} takes a number"))?;
                numbers.insert(name.to_owned(), value.parse()?);
            }
            None => spill = Some(arg),
        }
    }
    let number = |name: &str, default: u64| numbers.get(name).copied().unwrap_or(default);
    let memory = number("memory", 256 << 20);
    let (sequential, random) = (number("sequential", 2 * memory), number("random", 2 * memory));
    let swap = spill.map(|path| {
        let bytes = number("spill-bytes", sequential + random + (64 << 20));
        let options = SwapOptions {
            memory_bytes: Some(memory),
            ahead_pages_max: number("ahead", SwapOptions::default().ahead_pages_max),
            delivery: if number("in-thread", 0) == 0 { Delivery::Message } else { Delivery::Signal },
            ..SwapOptions::default()
        };
        Swap::new(&Spill::file(path, bytes), &options)
    });
    let swap = swap.transpose()?;
    let (ordered, scattered) = (Array::new(swap.as_ref(), sequential)?, Array::new(swap.as_ref(), random)?);
    ordered.fill();
    scattered.fill();
    let before = swap.as_ref().map(Swap::report);
    println!("{{\"filled\":true}}");
    let begin = Instant::now();
    let (in_order, at_random) = write_side_by_side(
        &ordered,
        &scattered,
        number("writers", 1),
        Duration::from_secs(number("seconds", 10)),
    );
    let seconds = begin.elapsed().as_secs_f64();
    let mut line =
        format!("{{{},{}", show("sequential", &in_order, seconds), show("random", &at_random, seconds));
    if let (Some(swap), Some(before)) = (&swap, before) {
        let (after, stats) = (swap.report(), swap.report().stats);
        line += &format!(
            ",\"swap_ra\":{},\"swap_ra_hit\":{},\"mapped_ahead\":{},\"wasted\":{},\"major_faults\":{},\"minor_faults\":{},\"swap_in\":{},\"swap_out\":{},\"requests\":{},\"bytes\":{}",
            stats.swap_ra - before.stats.swap_ra,
            stats.swap_ra_hit - before.stats.swap_ra_hit,
            stats.mapped_ahead - before.stats.mapped_ahead,
            stats.wasted - before.stats.wasted,
            stats.major_faults - before.stats.major_faults,
            stats.minor_faults - before.stats.minor_faults,
            stats.swap_in - before.stats.swap_in,
            stats.swap_out - before.stats.swap_out,
            after.requests - before.requests,
            after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written,
        );
    }
    println!("{line}}}");
    Ok(())
}
