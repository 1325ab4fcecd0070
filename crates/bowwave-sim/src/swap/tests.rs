//! Runs repeat exactly, and a workload tells the policies apart.

use super::*;
use crate::device::DeviceSpec;
use crate::queue::Elevator;
use bowwave_baselines::{ALGORITHMS, CLUSTER};
use bowwave_core::Random;
use bowwave_core::schedule::{Algorithm, SchedulerConfig};
use bowwave_core::swap::SwapPolicy;

fn machine(config: PagerConfig, device: &str) -> Machine {
    let spec = DeviceSpec::open(device, &ALGORITHMS).expect("a device");
    let queue = Queue::new(spec.build(1), spec.queue().clone()).expect("its queue");
    Machine::new(config, Costs::LINUX, queue).expect("bounds are kept")
}

/// One sequential and two random writers, with memory for a third.
fn combined(config: PagerConfig) -> Machine {
    let mut machine = machine(config, "nvme");
    let pages = [6000, 3000, 3000];
    for (index, pages) in pages.into_iter().enumerate() {
        let region = machine.add_region(pages).expect("room for it");
        match index {
            0 => machine.add_process(sequential(region, pages, 500, [0, 0])),
            _ => machine.add_process(random(region, pages, 500, 1, index as u64)),
        }
    }
    machine.run(Instant(500_000_000));
    machine.check().expect("invariants hold");
    machine
}

#[test]
fn runs_are_deterministic_and_pager_and_machine_count_alike() {
    for policy in [CLUSTER, SwapPolicy::Vma] {
        let config = PagerConfig::linux(4000, 20_000, policy);
        let [one, other] = [combined(config), combined(config)];
        assert_eq!(one.stats(), other.stats());
        let stats = one.stats();
        assert!(stats.swap_ra > 1000 && stats.swap_in > 5000 && stats.swap_out > 5000, "{stats:?}");
        assert_eq!(stats.swap_ra, one.ahead_pages);
        let hits: u64 = one.classes().iter().map(|class| class.ahead_hits).sum();
        // The pager counts a touch of a page in flight at once; the machine counts it on arrival.
        assert!(stats.swap_ra_hit.abs_diff(hits) <= 3, "{stats:?} {hits}");
    }
}

#[test]
fn readahead_by_addresses_is_right_where_slots_mislead() {
    let ratio = |policy| combined(PagerConfig::linux(4000, 20_000, policy)).hit_ratio().expect("readahead");
    let (cluster, vma) = (ratio(CLUSTER), ratio(SwapPolicy::Vma));
    assert!(vma > 0.95 && cluster < 0.8, "{cluster} {vma}");
}

#[test]
fn lookups_of_small_objects_do_not_read_the_pages_behind_them() {
    for things in [2, 3, 5, 16] {
        let (frames, pages) = (4000, 16_000 / things * things);
        let mut machine = machine(PagerConfig::own(frames, 40_000), "nvme");
        let region = machine.add_region(pages).expect("room for it");
        let fill = pass(region, 0..pages, Touch::Store, 500, 0);
        let count = 40_000 / things;
        // Reads of objects of a few adjacent pages, at random.
        let mut random = Random::new(things);
        let lookups = (0..count).flat_map(move |_| {
            let start = random.below(pages / things) * things;
            pass(region, start..start + things, Touch::Load, 500, 1)
        });
        // Finally all of it in order.
        machine.add_process(fill.chain(lookups).chain(pass(region, 0..pages, Touch::Load, 500, 2)));
        while machine.classes().get(2).is_none_or(|class| class.touches == 0) {
            let until = machine.now().0 + 1_000_000;
            machine.run(Instant(until));
        }
        let before = *machine.stats();
        machine.run(Instant(u64::MAX));
        // A quarter is resident, so three quarters of the touched pages must be read.
        let needed = count * things * 3 / 4;
        assert!(before.swap_in <= needed * 3 / 2, "{} of {needed}: {before:?}", before.swap_in);
        let scan = machine.stats().major_faults - before.major_faults;
        assert!(scan < 200, "{scan} faults of {pages} pages in order: {:?}", machine.stats());
    }
}

/// Touch rates of a random writer beside a sequential one, and of the sequential one, in touches
/// per second. Both use twice the memory, which was first filled in order; the device has 150 MB/s.
fn neighbours(config: PagerConfig, own: bool) -> (f64, f64) {
    let device = "nvme:link_mb_s=150,channel_mb_s=40,request_kb_max=256";
    let spec = DeviceSpec::open(device, &ALGORITHMS).expect("a device");
    let mut queue = spec.queue().clone();
    if own {
        queue.elevator = Elevator::Scheduler(Algorithm::Deadline);
        queue.scheduler = SchedulerConfig::for_spill(32, 100_000, false);
    }
    let queue = Queue::new(spec.build(1), queue).expect("its queue");
    let costs = Costs { readahead_by_other_thread: own, ..Costs::LINUX };
    let mut machine = Machine::new(config, costs, queue).expect("bounds are kept");
    let pages = 2 * config.frames;
    let regions = [(); 2].map(|()| machine.add_region(pages).expect("room for it"));
    let fill = regions.map(|region| pass(region, 0..pages, Touch::Store, 500, 0)).into_iter().flatten();
    machine.add_process(fill);
    let begin = machine.run(Instant(u64::MAX));
    machine.add_process(sequential(regions[0], pages, 500, [1, 1]));
    machine.add_process(random(regions[1], pages, 500, 2, 7));
    let seconds = 20;
    machine.run(Instant(begin.0 + seconds * 1_000_000_000));
    machine.check().expect("invariants hold");
    let [ordered, scattered] = [1, 2].map(|class| machine.classes()[class].touches as f64 / seconds as f64);
    (scattered, ordered)
}

#[test]
fn a_sequential_reader_does_not_slow_a_random_one_at_any_window() {
    let (frames, slots) = (8000, 50_000);
    let linux = PagerConfig::linux(frames, slots, SwapPolicy::Vma);
    let (kernel, kernel_ordered) = neighbours(linux, false);
    for window in [8, 32, 256] {
        let config = PagerConfig { ahead_max: window, ..PagerConfig::own(frames, slots) };
        let (ours, ordered) = neighbours(config, true);
        assert!(
            ours >= 0.8 * kernel,
            "window {window}: {ours} touches a second, by the kernel's way {kernel}"
        );
        assert!(ordered >= kernel_ordered, "window {window}: {ordered} touches a second, {kernel_ordered}");
    }
}
