//! Positions, marks and checks of a plan.

use super::*;

fn read_plan(ranges: &[(u64, u64)]) -> ReadPlan {
    let mut read_plan = ReadPlan::new(64);
    ranges.iter().for_each(|&(start, end)| read_plan.append(PageRange::new(start, end)));
    read_plan
}

fn find(read_plan: &mut ReadPlan, page: u64) -> Option<u64> {
    read_plan.find(PageIndex(page))
}

#[test]
fn positions_count_pages_in_plan_order() {
    let mut plan = read_plan(&[(900, 904), (10, 50), (50, 60), (300, 300), (300, 310)]);
    assert_eq!((plan.legs.len(), plan.end()), (3, 64), "adjacent ranges are one, and an empty one is none");
    for (page, position) in [(900, 0), (903, 3), (10, 4), (59, 53), (300, 54), (309, 63)] {
        assert_eq!(find(&mut plan, page), Some(position), "page {page}");
    }
    assert_eq!([9, 60, 310, 899, 904].map(|page| find(&mut plan, page)), [None; 5]);
    assert_eq!(plan.pages_from(5), Some(PageRange::new(11, 60)));
    assert_eq!(plan.pages_from(64), None);
}

#[test]
fn ranges_that_share_a_page_are_one() {
    let plan = read_plan(&[(0, 3), (2, 5), (4, 5), (5, 7)]);
    assert_eq!((plan.legs.len(), plan.end()), (1, 7));
}

#[test]
fn a_repeated_page_is_found_at_the_next_position_from_the_reader() {
    // Three rounds over the same ranges.
    let round = [(0, 8), (100, 108), (4, 6)];
    let mut plan = read_plan(&[round, round, round].concat());
    plan.go_to(9);
    assert_eq!(find(&mut plan, 4), Some(16));
    assert_eq!(find(&mut plan, 7), Some(18 + 7));
    plan.go_to(plan.end());
    assert_eq!(find(&mut plan, 7), Some(36 + 7), "before the reader, the last one");
}

#[test]
fn a_page_is_found_among_many_overlapping_ranges() {
    let mut plan = read_plan(&[(0, 1 << 20)]);
    (0..10_000).for_each(|n| plan.append(PageRange::new(n * 100, n * 100 + 10)));
    plan.go_to((1 << 20) + 5);
    assert_eq!(find(&mut plan, 5_003), Some((1 << 20) + 503));
    assert_eq!(find(&mut plan, 5_050), Some(5_050), "only the long range has it");
}

#[test]
fn used_ranges_are_removed_and_positions_stay() {
    let mut plan = ReadPlan::new(64);
    (0..1000).for_each(|n| plan.append(PageRange::new(n * 10, n * 10 + 2)));
    plan.go_to(1600);
    plan.forget_used();
    assert_eq!((plan.legs.len(), plan.end()), (200, 2000));
    assert_eq!((find(&mut plan, 8000), find(&mut plan, 7990)), (Some(1600), None));
    plan.go_to(plan.end());
    plan.forget_used();
    plan.append(PageRange::new(5, 6));
    assert_eq!((plan.legs.len(), find(&mut plan, 5)), (2, Some(2000)));
}

#[test]
fn each_passed_page_is_checked_once() {
    let mut plan = read_plan(&[(0, 10), (50, 60), (20, 30)]);
    plan.issue(2, 6);
    plan.issue(8, 10);
    plan.issue(25, 5);
    assert_eq!(plan.take_behind(12), [PageRange::new(2, 10), PageRange::new(50, 52)]);
    assert_eq!(plan.take_behind(30), [PageRange::new(52, 58), PageRange::new(25, 30)]);
    assert!(plan.take_behind(30).is_empty());
}
