//! Requests per second of the queue and each device model on one core, and page accesses per second
//! of a whole machine.
//!
//! `cargo bench -p bowwave-sim --bench devices`: a closed loop at a fixed depth, merging as the
//! device does; then one reader through cache, policy, queue and device.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::time::Instant as Clock;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::Random;
use bowwave_core::{Config, Instant, Policy, Urgency};
use bowwave_sim::device::{DeviceSpec, Direction, Request, RequestId};
use bowwave_sim::faults::Faults;
use bowwave_sim::machine::{Access, AccessOp, Host, Machine, Pace, Process, Setup, Walk};
use bowwave_sim::queue::Queue;

const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<8} {:<28} {:>16} {:>12}", "device", "requests", "Mrequests/s", "MB/s inside");
    for name in DeviceSpec::names() {
        for (what, depth, bytes, random) in [
            ("4 KiB random, 1 at once", 1, 4096, true),
            ("4 KiB random, 32 at once", 32, 4096, true),
            ("128 KiB sequential, 8", 8, 131_072, false),
        ] {
            let mut best: (f64, f64) = (0.0, 0.0);
            for _ in 0..ROUNDS {
                let (rate, inside) = run(name, depth, bytes, random)?;
                best = (best.0.max(rate), inside);
            }
            println!("{name:<8.8} {what:<28} {:>16.2} {:>12.1}", best.0, best.1);
        }
    }
    println!("\n{:<8} {:<28} {:>16}", "device", "reads through the cache", "Mpages/s");
    for name in DeviceSpec::names() {
        for (what, bytes, random) in [
            ("4 KiB sequential", 4096, false),
            ("64 KiB sequential", 65_536, false),
            ("4 KiB random", 4096, true),
        ] {
            let mut best: f64 = 0.0;
            for _ in 0..ROUNDS {
                best = best.max(machine(name, bytes, random)?);
            }
            println!("{name:<8.8} {what:<28} {best:>16.2}");
        }
    }
    Ok(())
}

/// Million page accesses a second of a reader of 8 GiB with 1 GiB of cache and on-demand readahead of up to 1 MiB.
fn machine(name: &str, bytes: u64, random: bool) -> Result<f64, Box<dyn Error>> {
    const PAGES: u64 = 2_000_000;
    const FILE_BYTES: u64 = PAGES * 4096;
    let spec = DeviceSpec::open(name, &ALGORITHMS)?;
    let queue = Queue::new(spec.build(1), spec.queue().clone())?;
    let config = Config { frames: 1 << 18, ra_pages: 256, policy: Policy::OnDemand, ..Config::default() };
    let setup = Setup {
        config,
        host: Host::FREE,
        queue,
        walk: Walk::AtOnce,
        faults: Faults::NONE,
        check: false,
        record: None,
    };
    let mut machine = Machine::new(setup)?;
    let file = machine.add_file("file", FILE_BYTES, 0);
    let mut numbers = Random::from_state(2);
    let source = (0..FILE_BYTES / bytes).map(move |n| {
        let offset = if random { numbers.below(FILE_BYTES / bytes) } else { n } * bytes;
        Access { at: Instant(0), op: AccessOp::Read, file, offset, bytes }
    });
    let pace = Pace::Closed { think_ns: 0 };
    machine.add_process(Process { start: Instant(0), source: Box::new(source), pace, depth: 1 });
    let clock = Clock::now();
    machine.run(None).map_err(|violation| format!("{violation:?}"))?;
    let pages = machine.summary().row.accesses as f64;
    Ok(pages / clock.elapsed().as_secs_f64() / 1e6)
}

/// Million requests per second of real time, and the device's MB/s in virtual time.
fn run(name: &str, depth: u64, bytes: u64, random: bool) -> Result<(f64, f64), Box<dyn Error>> {
    const COUNT: u64 = 500_000;
    let spec = DeviceSpec::open(name, &ALGORITHMS)?;
    let mut queue = Queue::new(spec.build(1), spec.queue().clone())?;
    let mut numbers = Random::from_state(1);
    let (mut completed, mut now, mut next) = (Vec::new(), 0, 0);
    let clock = Clock::now();
    while next < COUNT {
        while (next + 1).saturating_sub(now_done(&completed)) <= depth && next < COUNT {
            let start = if random { numbers.below(100 << 18) * 4096 } else { next * bytes };
            let (id, urgency) = (RequestId(next), Urgency::Demand);
            let request =
                Request { id, direction: Direction::Read, start, bytes, urgency, owner: 0, object: 0 };
            queue.submit(Instant(now), request);
            next += 1;
        }
        now = queue.next_event().ok_or("a request is lost")?.0;
        queue.advance(Instant(now), &mut completed);
    }
    let rate = COUNT as f64 / clock.elapsed().as_secs_f64() / 1e6;
    Ok((rate, (COUNT * bytes) as f64 / now.max(1) as f64 * 1e3))
}

fn now_done<T>(completed: &[T]) -> u64 {
    completed.len() as u64
}
