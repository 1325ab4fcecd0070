//! How many requests a second the queue and each device model take on one core.
//!
//! `cargo bench -p bowwave-sim --bench devices`: closed loop, so many requests at once, with merging as the device has it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::time::Instant as Clock;

use bowwave_core::{Instant, Urgency};
use bowwave_sim::device::{DeviceSpec, Direction, Request, RequestId};
use bowwave_sim::queue::Queue;
use bowwave_sim::random::Random;

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
    Ok(())
}

/// Million requests a second of ours, and the device's MB/s in its own time.
fn run(name: &str, depth: u64, bytes: u64, random: bool) -> Result<(f64, f64), Box<dyn Error>> {
    const COUNT: u64 = 500_000;
    let spec = DeviceSpec::open(name)?;
    let mut queue = Queue::new(spec.build(1), spec.queue().clone())?;
    let mut numbers = Random::new(1);
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
