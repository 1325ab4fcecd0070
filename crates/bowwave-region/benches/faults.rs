//! Cost of a page fault: of each mechanism with nothing behind it, the lower bound for every
//! region; in a region, on a cached page; and of all faults of a long sequential reader without the
//! store.
//!
//! `cargo bench -p bowwave-region --bench faults [-- floor|region|share]...` prints medians of
//! interleaved rounds, with minimum and maximum.
#![allow(unsafe_code, reason = "maps memory, catches signals")]
#![allow(clippy::print_stdout, reason = "prints a table")]

use std::hint::black_box;
use std::io;
use std::os::fd::AsFd as _;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Instant;

use bowwave_engine::{Engine, Options, Policy};
use bowwave_region::uffd::{Delivery, Modes, Partial, SYSTEM_PAGE, Scope, Uffd};
use bowwave_region::{MapOptions, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

const PAGES: usize = 8192;
const LEN: usize = PAGES * SYSTEM_PAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Copy,
    Map,
}

/// A region of `PAGES` missing pages, and the source that fills it.
struct Lab {
    uffd: Uffd,
    how: How,
    target: usize,
    source: *mut u8,
}

// SAFETY: addresses of mappings that live as long as it does.
unsafe impl Send for Lab {}
// SAFETY: as above; only the kernel writes, on our request.
unsafe impl Sync for Lab {}

impl Lab {
    fn new(how: How, delivery: Delivery) -> io::Result<Self> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let uffd =
            Uffd::open(if delivery == Delivery::Signal { Scope::Program } else { Scope::All }, delivery)?;
        // SAFETY: new mappings at addresses chosen by the kernel.
        let (source, target) = unsafe {
            if how == How::Map {
                let file = memfd_create("floor", MemfdFlags::CLOEXEC)?;
                ftruncate(&file, LEN as u64)?;
                let source = mmap(ptr::null_mut(), LEN, both, MapFlags::SHARED, &file, 0)?;
                (source, mmap(ptr::null_mut(), LEN, ProtFlags::READ, MapFlags::SHARED, &file, 0)?)
            } else {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
                (
                    mmap_anonymous(ptr::null_mut(), LEN, both, flags)?,
                    mmap_anonymous(ptr::null_mut(), LEN, both, flags)?,
                )
            }
        };
        // SAFETY: our mapping, registered until it is unmapped.
        unsafe {
            madvise(source, LEN, Advice::LinuxNoHugepage)?;
            if how != How::Map {
                madvise(target, LEN, Advice::LinuxNoHugepage)?;
            }
            ptr::write_bytes(source.cast::<u8>(), 7, LEN);
            let modes = Modes { missing: true, minor: how == How::Map, protected: false };
            uffd.register(target as usize..target as usize + LEN, modes)?;
        }
        Ok(Self { uffd, how, target: target as usize, source: source.cast() })
    }

    /// Maps `len` bytes at `address`.
    fn serve(&self, address: usize, len: usize) -> Result<(), Partial> {
        let source = self.source.wrapping_add(address - self.target);
        // SAFETY: both are our mappings.
        unsafe {
            match self.how {
                How::Copy => self.uffd.copy(address, source, len, false),
                How::Map => self.uffd.map(address..address + len, false),
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // SAFETY: our mappings, no longer accessed.
        unsafe {
            munmap(self.target as *mut _, LEN).expect("our mapping");
            munmap(self.source.cast(), LEN).expect("our mapping");
        }
    }
}

/// Accesses every page once, in scattered order, and returns the sorted times in ns.
fn touch_all(target: usize) -> Vec<u64> {
    let mut times: Vec<u64> = (0..PAGES)
        .map(|turn| {
            let page = turn * 4801 % PAGES;
            let begin = Instant::now();
            // SAFETY: in our mapping; the fault is served.
            let byte = unsafe { ptr::read_volatile((target + page * SYSTEM_PAGE) as *const u8) };
            let time = begin.elapsed().as_nanos() as u64;
            assert_eq!(byte, 7);
            time
        })
        .collect();
    times.sort_unstable();
    times
}

/// The handler of messages.
#[derive(Clone, Copy, Debug)]
struct Serving {
    handlers: usize,
    /// Whether it polls without sleeping.
    busy: bool,
}

fn by_message(how: How, serving: Serving) -> io::Result<Vec<u64>> {
    let lab = Arc::new(Lab::new(how, Delivery::Message)?);
    let stop = Arc::new(AtomicBool::new(false));
    let handlers: Vec<_> = (0..serving.handlers)
        .map(|_| {
            let (lab, stop) = (Arc::clone(&lab), Arc::clone(&stop));
            std::thread::spawn(move || serve_messages(&lab, serving, &stop))
        })
        .collect();
    let times = touch_all(lab.target);
    stop.store(true, Ordering::Relaxed);
    for handler in handlers {
        handler.join().expect("no panic");
    }
    Ok(times)
}

fn serve_messages(lab: &Lab, serving: Serving, stop: &AtomicBool) {
    let mut touches = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if !serving.busy {
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            poll(&mut [PollFd::from_borrowed_fd(lab.uffd.as_fd(), PollFlags::IN)], Some(&wait)).ok();
        }
        lab.uffd.receive(&mut touches).expect("readable");
        for touch in touches.drain(..) {
            lab.serve(touch.address, SYSTEM_PAGE).expect("served");
        }
    }
}

static LAB: AtomicPtr<Lab> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_bus_error(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let lab = LAB.load(Ordering::Acquire);
    // SAFETY: the kernel passes a valid `info`; the lab outlives the accesses.
    let served = unsafe {
        lab.as_ref().map(|lab| lab.serve((*info).si_addr() as usize & !(SYSTEM_PAGE - 1), SYSTEM_PAGE))
    };
    if !matches!(served, Some(Ok(()))) {
        std::process::abort();
    }
}

fn by_signal(how: How) -> io::Result<Vec<u64>> {
    let lab = Lab::new(how, Delivery::Signal)?;
    LAB.store((&raw const lab).cast_mut(), Ordering::Release);
    // SAFETY: a handler that makes one system call and accesses nothing else.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
    let times = touch_all(lab.target);
    LAB.store(ptr::null_mut(), Ordering::Release);
    Ok(times)
}

/// ns per page when `batch` pages are mapped by one call.
fn batched(how: How, batch: usize) -> io::Result<f64> {
    let lab = Lab::new(how, Delivery::Message)?;
    let begin = Instant::now();
    for page in (0..PAGES).step_by(batch) {
        lab.serve(lab.target + page * SYSTEM_PAGE, batch * SYSTEM_PAGE).expect("served");
    }
    Ok(begin.elapsed().as_nanos() as f64 / PAGES as f64)
}

/// Sorted times of accesses to cached, unmapped pages, each a separate fault.
fn in_a_region(policy: Policy, delivery: Delivery) -> io::Result<Vec<u64>> {
    let engine = Engine::new(Options { cache_bytes: Some(4 * LEN as u64), policy, ..Options::default() })
        .map_err(io::Error::other)?;
    let store = engine.store(&format!("pattern:/{LEN}")).map_err(io::Error::other)?;
    let options = MapOptions { around_bytes: 0, delivery, ..MapOptions::default() };
    let region = Region::map(&store, "".as_ref(), &options).map_err(io::Error::other)?;
    // Into the cache, without mapping.
    region.read(0, &mut vec![0; LEN]).map_err(io::Error::other)?;
    let mut times: Vec<u64> = (0..PAGES)
        .map(|turn| {
            let page = turn * 4801 % PAGES;
            let begin = Instant::now();
            black_box(region.as_slice()[page * SYSTEM_PAGE]);
            begin.elapsed().as_nanos() as u64
        })
        .collect();
    assert!(region.stats().faults >= PAGES as u64, "each was a fault");
    times.sort_unstable();
    Ok(times)
}

/// A pass over 1 GiB.
#[derive(Clone, Copy, Debug)]
struct Pass {
    seconds: f64,
    faults: u64,
}

/// Accesses each page of 1 GiB in order: from an emulated NVMe drive, and cached but not mapped.
fn sequential(policy: Policy, delivery: Delivery) -> io::Result<(Pass, Pass)> {
    let pass = |cached: bool| {
        // Separate engines, so that the passes do not evict each other's pages.
        let engine = Engine::new(Options { cache_bytes: Some(2 << 30), policy, ..Options::default() })
            .map_err(io::Error::other)?;
        let store = engine.store("emulate:nvme/1GiB").map_err(io::Error::other)?;
        let options = MapOptions { delivery, ..MapOptions::default() };
        let region = Region::map(&store, "".as_ref(), &options).map_err(io::Error::other)?;
        if cached {
            let mut buffer = vec![0; 1 << 20];
            for at in (0..1 << 30).step_by(1 << 20) {
                region.read(at, &mut buffer).map_err(io::Error::other)?;
            }
        }
        let requests = engine.stats().store.requests;
        let begin = Instant::now();
        for page in region.as_slice().chunks(SYSTEM_PAGE) {
            black_box(page[0]);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let asked = engine.stats().store.requests - requests;
        assert_eq!(
            asked == 0,
            cached,
            "{policy:?}: the store is asked when it is cold: {:?}",
            engine.stats()
        );
        Ok::<Pass, io::Error>(Pass { seconds, faults: region.stats().faults })
    };
    Ok((pass(false)?, pass(true)?))
}

const ROUNDS: usize = 5;

/// Prints a table row: median of the rounds' medians and of their 99th percentiles, and the range
/// of the medians.
fn show(name: &str, times: impl Fn() -> io::Result<Vec<u64>>) {
    let rounds: io::Result<Vec<[f64; 2]>> = (0..ROUNDS)
        .map(|_| {
            times().map(|times| [times.len() / 2, times.len() * 99 / 100].map(|at| times[at] as f64 / 1e3))
        })
        .collect();
    match rounds {
        Ok(rounds) => {
            let [(p50, low, high), (p99, ..)] =
                [0, 1].map(|column| spread(rounds.iter().map(|round| round[column])));
            println!("{name:<36} {p50:>7.1} {p99:>7.1}   ({low:.1}..{high:.1})");
        }
        Err(error) => println!("{name:<36} {error}"),
    }
}

/// Median, minimum and maximum.
fn spread(samples: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut samples: Vec<f64> = samples.collect();
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[0], samples[samples.len() - 1])
}

/// How faults are reported to a region.
const DELIVERIES: [Delivery; 2] = [Delivery::Message, Delivery::Signal];

fn name(policy: Policy, delivery: Delivery) -> String {
    match delivery {
        Delivery::Message => policy.name().to_owned(),
        Delivery::Signal => format!("{}, in the thread", policy.name()),
    }
}

fn floor() {
    println!("{:<36} {:>7} {:>7}   us a touch of one page (lowest..highest median)", "", "p50", "p99");
    for (name, how) in [("COPY", How::Copy), ("CONTINUE", How::Map)] {
        for (of, handlers) in [("a handler", 1), ("two handlers", 2), ("four handlers", 4)] {
            let serving = Serving { handlers, busy: false };
            show(&format!("{of}, {name}"), || by_message(how, serving));
        }
        let serving = Serving { handlers: 1, busy: true };
        show(&format!("a handler that never sleeps, {name}"), || by_message(how, serving));
        show(&format!("SIGBUS in the thread, {name}"), || by_signal(how));
    }
    println!("\n{:<10} {:>16} {:>16}   ns a page, GB/s (median)", "pages", "COPY", "CONTINUE");
    for batch in [1, 4, 16, 64, 256, 1024] {
        print!("{batch:<10}");
        for how in [How::Copy, How::Map] {
            match (0..ROUNDS).map(|_| batched(how, batch)).collect::<io::Result<Vec<f64>>>() {
                Ok(rounds) => {
                    let (ns, ..) = spread(rounds.into_iter());
                    print!(" {ns:>8.0} {:>7.1}", SYSTEM_PAGE as f64 / ns);
                }
                Err(error) => print!(" {error}"),
            }
        }
        println!();
    }
}

fn region() {
    println!("\n{:<36} {:>7} {:>7}   us a touch of one cached page", "region", "p50", "p99");
    for policy in [Policy::None, Policy::OnDemand, bowwave_baselines::LINUX, Policy::Range, Policy::Stream] {
        for delivery in DELIVERIES {
            show(&name(policy, delivery), || in_a_region(policy, delivery));
        }
    }
}

fn share() {
    println!(
        "\n1 GiB in order, emulate:nvme: seconds cold, of which faults (the same touches, all cached), faults of each"
    );
    let policies = [Policy::OnDemand, bowwave_baselines::LINUX, Policy::Range, Policy::Stream];
    for (policy, delivery) in
        policies.into_iter().flat_map(|policy| DELIVERIES.map(|delivery| (policy, delivery)))
    {
        match (0..ROUNDS).map(|_| sequential(policy, delivery)).collect::<io::Result<Vec<_>>>() {
            Ok(rounds) => {
                let of = |pass: fn(&(Pass, Pass)) -> f64| spread(rounds.iter().map(pass));
                let (cold, ..) = of(|round| round.0.seconds);
                let (warm, ..) = of(|round| round.1.seconds);
                let (share, low, high) = of(|round| 100.0 * round.1.seconds / round.0.seconds);
                let (faults_cold, ..) = of(|round| round.0.faults as f64);
                let (faults_warm, ..) = of(|round| round.1.faults as f64);
                println!(
                    "{:<22} {cold:>6.3} {warm:>6.3} {share:>6.1} % ({low:.1}..{high:.1}) {faults_cold:>8.0} {faults_warm:>8.0}",
                    name(policy, delivery)
                );
            }
            Err(error) => println!("{:<22} {error}", name(policy, delivery)),
        }
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, part) in [("floor", floor as fn()), ("region", region), ("share", share)] {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            part();
        }
    }
}
