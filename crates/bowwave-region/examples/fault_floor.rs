//! What a touch of a page costs by each mechanism, with nothing behind it: the floor under every region.
//!
//! `cargo run --release -p bowwave-region --example fault_floor`
#![allow(unsafe_code, reason = "maps memory, catches signals")]
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::io;
use std::os::fd::AsFd as _;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Instant;

use bowwave_region::uffd::{Delivery, Modes, Partial, SYSTEM_PAGE, Scope, Uffd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

const PAGES: usize = 8192;
const LEN: usize = PAGES * SYSTEM_PAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Copy,
    Move,
    Map,
}

/// A region of `PAGES` pages, none mapped, and what fills it.
struct Lab {
    uffd: Uffd,
    how: How,
    target: usize,
    source: *mut u8,
}

// SAFETY: addresses of mappings that live as long as it does.
unsafe impl Send for Lab {}
// SAFETY: as above; only the kernel writes, on our order.
unsafe impl Sync for Lab {}

impl Lab {
    fn new(how: How, delivery: Delivery) -> io::Result<Self> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let uffd =
            Uffd::open(if delivery == Delivery::Signal { Scope::Program } else { Scope::All }, delivery)?;
        // SAFETY: fresh mappings at addresses of the kernel's choosing.
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
        // SAFETY: our mapping, registered until it goes.
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
        // SAFETY: both lie in our mappings, and what is moved is not used again.
        unsafe {
            match self.how {
                How::Copy => self.uffd.copy(address, source, len),
                How::Move => self.uffd.move_pages(address, source, len),
                How::Map => self.uffd.map(address..address + len),
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // SAFETY: our mappings; nobody touches them any more.
        unsafe {
            munmap(self.target as *mut _, LEN).expect("our mapping");
            munmap(self.source.cast(), LEN).expect("our mapping");
        }
    }
}

/// Touches every page once, in a scattered order, and returns the time of each in ns, sorted.
fn touch_all(target: usize) -> Vec<u64> {
    let mut times: Vec<u64> = (0..PAGES)
        .map(|turn| {
            let page = turn * 4801 % PAGES;
            let begin = Instant::now();
            // SAFETY: in our mapping; the touch is served.
            let byte = unsafe { ptr::read_volatile((target + page * SYSTEM_PAGE) as *const u8) };
            let time = begin.elapsed().as_nanos() as u64;
            assert_eq!(byte, 7);
            time
        })
        .collect();
    times.sort_unstable();
    times
}

fn by_message(how: How, busy: bool) -> io::Result<Vec<u64>> {
    let lab = Arc::new(Lab::new(how, Delivery::Message)?);
    let stop = Arc::new(AtomicBool::new(false));
    let handler = std::thread::spawn({
        let (lab, stop) = (Arc::clone(&lab), Arc::clone(&stop));
        move || {
            let mut touches = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if !busy {
                    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                    poll(&mut [PollFd::from_borrowed_fd(lab.uffd.as_fd(), PollFlags::IN)], Some(&wait)).ok();
                }
                lab.uffd.receive(&mut touches).expect("readable");
                for touch in touches.drain(..) {
                    lab.serve(touch.address, SYSTEM_PAGE).expect("served");
                }
            }
        }
    });
    let times = touch_all(lab.target);
    stop.store(true, Ordering::Relaxed);
    handler.join().expect("no panic");
    Ok(times)
}

static LAB: AtomicPtr<Lab> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_bus_error(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let lab = LAB.load(Ordering::Acquire);
    // SAFETY: the kernel hands a valid `info`; the lab outlives the touches.
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
    // SAFETY: a handler that makes one system call and touches nothing else.
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

/// ns a page when `batch` pages are mapped by one call.
fn batched(how: How, batch: usize) -> io::Result<f64> {
    let lab = Lab::new(how, Delivery::Message)?;
    let begin = Instant::now();
    for page in (0..PAGES).step_by(batch) {
        lab.serve(lab.target + page * SYSTEM_PAGE, batch * SYSTEM_PAGE).expect("served");
    }
    Ok(begin.elapsed().as_nanos() as f64 / PAGES as f64)
}

fn show(name: &str, times: io::Result<Vec<u64>>) {
    match times {
        Ok(times) => println!(
            "{name:<34} {:>7.1} {:>7.1}",
            times[PAGES / 2] as f64 / 1e3,
            times[PAGES * 99 / 100] as f64 / 1e3
        ),
        Err(error) => println!("{name:<34} {error}"),
    }
}

fn main() -> io::Result<()> {
    println!("{:<34} {:>7} {:>7}  (us a touch of one page)", "", "p50", "p99");
    for _round in 0..2 {
        show("message, COPY", by_message(How::Copy, false));
        show("message, CONTINUE", by_message(How::Map, false));
        show("message, busy polling, COPY", by_message(How::Copy, true));
        show("message, busy polling, CONTINUE", by_message(How::Map, true));
        for (name, how) in
            [("SIGBUS, COPY", How::Copy), ("SIGBUS, MOVE", How::Move), ("SIGBUS, CONTINUE", How::Map)]
        {
            show(name, by_signal(how));
        }
    }
    println!("\n{:<10} {:>16} {:>16} {:>16}  (ns a page, GB/s)", "batch", "COPY", "MOVE", "CONTINUE");
    for batch in [1, 16, 64, 256] {
        print!("{batch:<10}");
        for how in [How::Copy, How::Move, How::Map] {
            match batched(how, batch) {
                Ok(ns) => print!(" {ns:>8.0} {:>7.1}", SYSTEM_PAGE as f64 / ns),
                Err(error) => print!(" {error}"),
            }
        }
        println!();
    }
    Ok(())
}
