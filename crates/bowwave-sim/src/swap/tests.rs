//! Runs that repeat to the digit, and policies on the workload that tells them apart.

use super::*;
use crate::device::DeviceSpec;
use bowwave_core::swap::SwapPolicy;

fn machine(config: PagerConfig, device: &str) -> Machine {
    let spec = DeviceSpec::open(device).expect("a device");
    let queue = Queue::new(spec.build(1), spec.queue().clone()).expect("its queue");
    Machine::new(config, Costs::LINUX, queue).expect("bounds are kept")
}

/// One writer in order and two at random, in memory for a third of it.
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
fn the_same_run_gives_the_same_digits_and_the_pager_counts_what_the_machine_sees() {
    for policy in [SwapPolicy::Cluster, SwapPolicy::Vma] {
        let config = PagerConfig::linux(4000, 20_000, policy);
        let [one, other] = [combined(config), combined(config)];
        assert_eq!(one.stats(), other.stats());
        let stats = one.stats();
        assert!(stats.swap_ra > 1000 && stats.swap_in > 5000 && stats.swap_out > 5000, "{stats:?}");
        assert_eq!(stats.swap_ra, one.ahead_pages);
        let hits: u64 = one.classes().iter().map(|class| class.ahead_hits).sum();
        // A page that is waited for on its way is seen by the pager at once, by the machine when it comes.
        assert!(stats.swap_ra_hit.abs_diff(hits) <= 3, "{stats:?} {hits}");
    }
}

#[test]
fn readahead_by_addresses_is_right_where_slots_mislead() {
    let ratio = |policy| combined(PagerConfig::linux(4000, 20_000, policy)).hit_ratio().expect("readahead");
    let (cluster, vma) = (ratio(SwapPolicy::Cluster), ratio(SwapPolicy::Vma));
    assert!(vma > 0.95 && cluster < 0.8, "{cluster} {vma}");
}
