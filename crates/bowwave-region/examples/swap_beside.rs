//! Sequential writers next to random writers, over more than the memory: throughput of each, the
//! time of an access, and the counters of readahead.
//!
//! `swap_beside SPILL` uses a swap with that spill, a path or a store's URL. Without SPILL it uses
//! the kernel's swap, which a cgroup may limit; `tools/compare_swap.py` runs both. Options:
//! `--memory`, `--spill-bytes`, `--sequential`, `--random` in bytes, `--readers` (sequential
//! writers), `--writers` (at random; each writer has its part in a region of its own), `--seconds`,
//! `--ahead` in pages, `--policy`, `--reclaim 1` for reclaim as in Linux: one pair of lists, and
//! slots in the order of eviction; `--in-thread 1` for faults served by the faulting threads.
//! Prints one line of JSON.
#![allow(unsafe_code, reason = "maps memory that threads write concurrently")]
#![allow(clippy::print_stdout, reason = "prints a line of figures")]

use std::collections::HashMap;
use std::error::Error;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_region::uffd::{Delivery, SYSTEM_PAGE};
use bowwave_region::{Lists, Placement, Spill, Swap, SwapOptions, SwapRegion};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The memory to write to.
struct Array {
    base: usize,
    pages: u64,
    /// `None` in the kernel's swap.
    region: Option<SwapRegion>,
}

impl Array {
    fn new(swap: Option<&Swap>, bytes: u64) -> Result<Self, Box<dyn Error>> {
        let (len, pages) = (bytes as usize, bytes / SYSTEM_PAGE as u64);
        if pages == 0 {
            return Ok(Self { base: 0, pages, region: None });
        }
        if let Some(swap) = swap {
            let region = swap.region(len)?;
            return Ok(Self { base: region.as_ptr() as usize, pages, region: Some(region) });
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address chosen by the kernel, never unmapped.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        // SAFETY: advice on our own mapping.
        unsafe { madvise(base, len, Advice::LinuxNoHugepage) }?;
        Ok(Self { base: base as usize, pages, region: None })
    }

    /// Writes to a page; returns the time in nanoseconds.
    fn touch(&self, page: u64, value: u64) -> u64 {
        let begin = Instant::now();
        // SAFETY: inside the mapping; concurrent writers write whole words.
        unsafe { ptr::write_volatile((self.base + page as usize * SYSTEM_PAGE) as *mut u64, value) };
        begin.elapsed().as_nanos() as u64
    }

    /// Fills all pages once with incompressible data, in order or at random.
    fn fill(&self, seed: u64, at_random: bool) {
        let mut state = seed;
        let mut pages: Vec<u64> = (0..self.pages).collect();
        if at_random {
            for last in (1..pages.len()).rev() {
                pages.swap(last, next(&mut state) as usize % (last + 1));
            }
        }
        for page in pages {
            let words = (self.base + page as usize * SYSTEM_PAGE) as *mut u64;
            for word in 0..SYSTEM_PAGE / 8 {
                // SAFETY: as above.
                unsafe { ptr::write_volatile(words.add(word), next(&mut state)) };
            }
        }
    }
}

/// A linear congruential generator, good enough for random offsets.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 16
}

/// Histogram of access times in nanoseconds, to 6 %. Its size is fixed, because a growing one would
/// take memory from the kernel's side.
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

    /// Percentile: the time within which this share of accesses completed.
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

/// Rate per second, mean and percentiles in microseconds.
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

/// Fills all arrays at the same time, as the writers later write them, so that their pages are
/// evicted together.
fn fill(ordered: &[Array], scattered: &[Array]) {
    thread::scope(|scope| {
        let arrays =
            ordered.iter().map(|array| (array, false)).chain(scattered.iter().map(|array| (array, true)));
        for (seed, (array, at_random)) in (1..).zip(arrays) {
            scope.spawn(move || array.fill(seed, at_random));
        }
    });
}

/// Counters of the regions of these arrays together: pages read ahead, their hits, pages mapped
/// ahead and wasted ones.
fn counters(arrays: &[Array]) -> [u64; 4] {
    arrays.iter().filter_map(|array| array.region.as_ref()).fold([0; 4], |sum, region| {
        let stats = region.report().stats;
        let here = [stats.swap_ra, stats.swap_ra_hit, stats.mapped_ahead, stats.wasted];
        std::array::from_fn(|index| sum[index] + here[index])
    })
}

/// What the counters of these arrays have counted since, as a member of an object.
fn of_parts(name: &str, arrays: &[Array], before: [u64; 4]) -> String {
    let after = counters(arrays);
    let [ra, hit, mapped, wasted]: [u64; 4] = std::array::from_fn(|index| after[index] - before[index]);
    format!(
        ",\"{name}\":{{\"swap_ra\":{ra},\"swap_ra_hit\":{hit},\"mapped_ahead\":{mapped},\"wasted\":{wasted}}}"
    )
}

/// Runs a writer for each array for a while, in order or at random; returns their access times.
fn write_side_by_side(ordered: &[Array], scattered: &[Array], time: Duration) -> (Times, Times) {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let in_order = ordered.iter().map(|ordered| {
            scope.spawn(move || {
                let (mut turn, mut times) = (0, Times::new());
                while !over.load(Ordering::Relaxed) && ordered.pages > 0 {
                    times.add(ordered.touch(turn % ordered.pages, turn));
                    turn += 1;
                }
                times
            })
        });
        let in_order: Vec<_> = in_order.collect();
        let writers: Vec<_> = (7..)
            .zip(scattered)
            .map(|(seed, scattered)| {
                scope.spawn(move || {
                    let (mut state, mut times) = (seed, Times::new());
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
        (sum(in_order), sum(writers))
    })
}

/// The access times of all threads.
fn sum(threads: Vec<thread::ScopedJoinHandle<'_, Times>>) -> Times {
    let times = threads.into_iter().map(|thread| thread.join().expect("no panic"));
    times.fold(Times::new(), |mut all, one| {
        all.counts.iter_mut().zip(&one.counts).for_each(|(all, one)| *all += one);
        all.sum += one.sum;
        all
    })
}

/// The numbers by their names, and the policy and the spill.
type Arguments = (HashMap<String, u64>, Option<String>, Option<String>);

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut numbers, mut spill, mut policy) = (HashMap::<String, u64>::new(), None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some("policy") => policy = args.next(),
            Some(name) => {
                let value = args.next().ok_or_else(|| format!("{arg} takes a number"))?;
                numbers.insert(name.to_owned(), value.parse()?);
            }
            None => spill = Some(arg),
        }
    }
    Ok((numbers, policy, spill))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (numbers, policy, spill) = arguments()?;
    let number = |name: &str, default: u64| numbers.get(name).copied().unwrap_or(default);
    let memory = number("memory", 256 << 20);
    let (sequential, random) = (number("sequential", 2 * memory), number("random", 2 * memory));
    let swap = spill.map(|path| {
        let bytes = number("spill-bytes", sequential + random + (64 << 20));
        let as_linux = number("reclaim", 0) != 0;
        let options = SwapOptions {
            memory_bytes: Some(memory),
            ahead_pages_max: number("ahead", SwapOptions::default().ahead_pages_max),
            delivery: if number("in-thread", 0) == 0 { Delivery::Message } else { Delivery::Signal },
            placement: if as_linux { Placement::Reclaim } else { Placement::Address },
            lists: if as_linux { Lists::Global } else { Lists::PerRegion },
            ..SwapOptions::default()
        };
        let spill = if path.contains(':') {
            Spill::store(bowwave_backend::open_url(&path, &Default::default())?, "spill", bytes)
        } else {
            Spill::file(path, bytes)
        };
        let swap = Swap::new(&spill, &options)?;
        if let Some(policy) = policy {
            swap.set("swap.policy", &policy)?;
        }
        Ok::<_, Box<dyn Error>>(swap)
    });
    let swap = swap.transpose()?;
    let readers = number("readers", 1).max(1);
    let ordered = (0..readers).map(|_| Array::new(swap.as_ref(), sequential / readers));
    let ordered = ordered.collect::<Result<Vec<_>, _>>()?;
    let writers = number("writers", 1).max(1);
    let scattered = (0..writers).map(|_| Array::new(swap.as_ref(), random / writers));
    let scattered = scattered.collect::<Result<Vec<_>, _>>()?;
    fill(&ordered, &scattered);
    let before = swap.as_ref().map(Swap::report);
    let parts = [&ordered, &scattered];
    let parts_before = parts.map(|arrays| counters(arrays));
    println!("{{\"filled\":true}}");
    let begin = Instant::now();
    let time = Duration::from_secs(number("seconds", 10));
    let (in_order, at_random) = write_side_by_side(&ordered, &scattered, time);
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
        line += &of_parts("sequential_regions", &ordered, parts_before[0]);
        line += &of_parts("random_regions", &scattered, parts_before[1]);
    }
    println!("{line}}}");
    Ok(())
}
