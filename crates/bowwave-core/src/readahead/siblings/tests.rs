//! Which files are read ahead, by opens.

use super::*;
use crate::random::Random;
use alloc::format;
use alloc::string::String;

/// Opens files in order; returns what is read ahead after each.
fn run(siblings: &mut Siblings, opens: &[u32]) -> Vec<Vec<u32>> {
    run_after(siblings, &mut SamplePrior::default(), opens)
}

fn run_after(siblings: &mut Siblings, prior: &mut SamplePrior, opens: &[u32]) -> Vec<Vec<u32>> {
    opens
        .iter()
        .map(|&index| {
            let mut out = Vec::new();
            siblings.opened(index, u32::MAX, prior, &mut out);
            out.iter().map(|sibling| sibling.index).collect()
        })
        .collect()
}

#[test]
fn neighbours_are_read_ahead_in_both_directions() {
    let mut forwards = Siblings::new(1000);
    assert_eq!(run(&mut forwards, &[0, 1, 2, 3]), [vec![], vec![2, 3], vec![4, 5], vec![6, 7]]);
    let mut backwards = Siblings::new(1000);
    assert_eq!(run(&mut backwards, &[9, 8, 7]), [vec![], vec![7, 6], vec![5, 4]]);
}

#[test]
fn two_neighbours_are_a_run_only_at_first_and_in_a_directory_of_some_files() {
    assert_eq!(run(&mut Siblings::new(7), &[2, 3]).concat(), [0; 0]);
    assert_eq!(run(&mut Siblings::new(8), &[2, 4]).concat(), [0; 0]);
    assert_eq!(run(&mut Siblings::new(100), &[50, 2, 3]).concat(), [0; 0]);
    // Of what was read ahead at once, nothing was opened.
    assert_eq!(run(&mut Siblings::new(100), &[2, 3, 90, 50]).concat(), [4, 5]);
}

#[test]
fn each_rank_of_a_stride_is_followed() {
    let mut siblings = Siblings::new(1000);
    let opens: Vec<u32> = (0..10).flat_map(|step| [step * 8, 500 + step * 8]).collect();
    let ahead: Vec<u32> = run(&mut siblings, &opens).concat();
    assert!(ahead.contains(&80) && ahead.contains(&580), "{ahead:?}");
    assert!(ahead.iter().all(|index| index % 8 == 0 || (index - 500) % 8 == 0), "{ahead:?}");
}

#[test]
fn a_shuffled_epoch_is_read_ahead_and_each_file_once() {
    let mut random = Random::new(5);
    let mut order: Vec<u32> = (0..2000).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut siblings = Siblings::new(2000);
    let (mut seen, mut hits, mut prior) = (vec![0; 2000], 0, SamplePrior::default());
    for (done, &index) in order.iter().enumerate() {
        hits += seen[index as usize];
        let mut out = Vec::new();
        siblings.opened(index, u32::MAX, &mut prior, &mut out);
        assert!(siblings.ahead() as usize <= done + 1, "waste");
        out.iter().for_each(|sibling| seen[sibling.index as usize] += 1);
    }
    assert!(seen.iter().all(|&times| times <= 1));
    assert!(hits > 900, "{hits} of 2000 were read ahead");
    assert_eq!(siblings.ahead(), 0);
}

#[test]
fn a_second_epoch_in_order_is_read_ahead_again() {
    let mut siblings = Siblings::new(50);
    let order: Vec<u32> = (0..50).collect();
    assert_eq!(run(&mut siblings, &order).concat().len(), 48);
    assert_eq!(run(&mut siblings, &order).concat().len(), 47);
}

#[test]
fn files_that_are_opened_again_and_again_end_samples() {
    let mut siblings = Siblings::new(10_000);
    let mut random = Random::new(9);
    let opens: Vec<u32> = (0..400).map(|_| random.below(40) as u32 * 211).collect();
    let ahead = run(&mut siblings, &opens);
    assert!(ahead[80..].iter().all(Vec::is_empty), "{ahead:?}");
}

#[test]
fn a_cycle_of_few_files_is_read_ahead_again_and_again() {
    let mut siblings = Siblings::new(10_000);
    let opens: Vec<u32> = (0..400).map(|step| (step * 7919 % 40) * 211).collect();
    let found = hits(&mut siblings, &opens);
    assert!(found > 340, "{found} of 400");
    assert!(siblings.ahead() <= 40 + 40, "{}", siblings.ahead());
}

#[test]
fn waste_ends_readahead() {
    let mut siblings = Siblings::new(100_000);
    let (mut out, mut total, mut prior) = (Vec::new(), 0, SamplePrior::default());
    for step in 0..1000_u32 {
        out.clear();
        // No order, and nothing that was read ahead is ever opened.
        siblings.opened(step * step * 97 % 99_991, u32::MAX, &mut prior, &mut out);
        total += out.len();
        out.iter().for_each(|sibling| siblings.dropped(sibling.index));
    }
    assert!(total <= 1000, "{total}");
}

#[test]
fn memory_bounds_what_is_read_ahead() {
    let mut siblings = Siblings::new(100);
    let mut out = Vec::new();
    let mut prior = SamplePrior::default();
    (0..10).for_each(|index| siblings.opened(index, 1, &mut prior, &mut out));
    assert!(out.len() <= 10, "{out:?}");
    siblings.opened(10, 0, &mut prior, &mut out);
    siblings.opened(1_000_000, 9, &mut prior, &mut out);
    assert!(out.len() <= 10, "{out:?}");
}

fn shuffled(files: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut order: Vec<u32> = (0..files).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// Opens that find their file read ahead.
fn hits(siblings: &mut Siblings, opens: &[u32]) -> usize {
    let (mut out, mut prior) = (Vec::new(), SamplePrior::default());
    let hit = |&&index: &&u32| {
        let was_ahead = siblings.is_ahead(index);
        siblings.opened(index, u32::MAX, &mut prior, &mut out);
        was_ahead
    };
    opens.iter().filter(hit).count()
}

#[test]
fn readers_of_one_list_overtake_each_other() {
    let mut random = Random::new(7);
    // Eight readers: each takes the next name, and opens it a little later.
    let mut waiting: Vec<u32> = (0..8).collect();
    let mut opens = Vec::new();
    for name in 8..500 {
        let at = random.below(8) as usize;
        opens.push(core::mem::replace(&mut waiting[at], name));
    }
    let mut siblings = Siblings::new(500);
    let found = hits(&mut siblings, &opens);
    assert!(found > 440, "{found} of 492");
    assert!(siblings.ahead() <= SIBLING_WINDOW_MAX + OVERTAKEN_MAX, "{}", siblings.ahead());
}

#[test]
fn numbers_in_names_are_an_order() {
    // 1, 10, 100, 101, ... in the listing.
    let mut names: Vec<String> = (1..=300).map(|number| format!("img{number}.jpg")).collect();
    names.sort();
    let place = |number: u32| names.iter().position(|name| *name == format!("img{number}.jpg"));
    let order: Vec<u32> = (1..=300).map(|number| place(number).unwrap() as u32).collect();
    let mut siblings = Siblings::of(&names);
    assert_eq!(siblings.numeric.as_ref().map(|numeric| &numeric.files), Some(&order));
    assert_eq!(hits(&mut siblings, &order), 298);
    assert!(hits(&mut Siblings::new(300), &order) < 298);
    let padded: Vec<String> = (0..300).map(|number| format!("{number:04}")).collect();
    assert!(Siblings::of(&padded).numeric.is_none());
}

/// In the listing, files 1, 2 and 3 of 64 are eleven apart, and 7 is not.
#[test]
fn neighbours_by_number_are_no_stride_of_the_listing() {
    let mut names: Vec<String> = (0..64).map(|number| format!("{number}")).collect();
    names.sort();
    let mut siblings = Siblings::of(&names);
    let place = |number: u32| names.iter().position(|name| *name == format!("{number}")).unwrap() as u32;
    let ahead = run(&mut siblings, &[1, 2, 3, 4, 5].map(place));
    let wanted = [vec![], vec![3, 4], vec![5, 6], vec![7, 8], vec![9, 10]];
    assert_eq!(ahead, wanted.map(|numbers| numbers.into_iter().map(place).collect::<Vec<_>>()));
}

#[test]
fn names_are_compared_by_the_numbers_in_them() {
    let mut names = ["a10b", "a2b", "a2", "a02", "b1", "a", "", "a2b10", "a2b9", "7", "10"];
    names.sort_by(|a, b| orders::by_numbers(a.as_bytes(), b.as_bytes()));
    assert_eq!(names, ["", "7", "10", "a", "a02", "a2", "a2b", "a2b9", "a2b10", "a10b", "b1"]);
}

#[test]
fn the_order_of_the_last_pass_is_followed() {
    for files in [40, 100, 2000] {
        let order = shuffled(files, 11);
        let mut siblings = Siblings::new(files);
        hits(&mut siblings, &order);
        let again = hits(&mut siblings, &order);
        assert!(again + 8 >= files as usize, "{again} of {files}");
    }
}

#[test]
fn a_pass_in_another_order_is_sampled_again() {
    let mut siblings = Siblings::new(2000);
    let first = hits(&mut siblings, &shuffled(2000, 11));
    let second = hits(&mut siblings, &shuffled(2000, 12));
    assert!(second > first + 300, "{first}, then {second}");
}

#[test]
fn repeated_distances_are_followed() {
    let opens: Vec<u32> = (0..60).flat_map(|step| [step * 150, step * 150 + 70, step * 150 + 71]).collect();
    let mut siblings = Siblings::new(10_000);
    let found = hits(&mut siblings, &opens);
    assert!(found > 165, "{found} of 180");
    assert!(siblings.ahead() < 40, "{}", siblings.ahead());
}

#[test]
fn each_file_opened_twice_is_still_a_sample() {
    let opens: Vec<u32> = shuffled(1000, 3).into_iter().flat_map(|index| [index; 2]).collect();
    assert!(hits(&mut Siblings::new(1000), &opens) > 500);
}

#[test]
fn a_program_that_samples_some_files_wastes_less_than_it_opens() {
    for opened in [10, 100, 500, 1500] {
        let mut siblings = Siblings::new(2000);
        hits(&mut siblings, &shuffled(2000, 5)[..opened]);
        assert!(siblings.ahead() as usize <= opened, "{} ahead after {opened}", siblings.ahead());
    }
}

#[test]
fn directories_of_large_files_are_not_read_ahead() {
    let room = |left, average| SiblingExtent::GUESS.room(left, average);
    assert_eq!(room(64 << 20, 100 << 10), 655);
    assert_eq!(room(64 << 20, 256 << 20), 0);
    assert_eq!(room(0, 4 << 20), 0);
    assert_eq!(room(1 << 20, 0), 1 << 20);
}

#[test]
fn a_run_goes_on_in_the_next_directory() {
    let mut directories: Vec<Siblings> = (0..5).map(|_| Siblings::new(10)).collect();
    let ten: Vec<u32> = (0..10).collect();
    run(&mut directories[0], &ten);
    let mut from_one = |one: usize| {
        let [before, next] = directories.get_disjoint_mut([one, one + 1]).expect("two directories");
        let mut out = Vec::new();
        next.go_on_from(before, u32::MAX, &mut out);
        let ahead: Vec<u32> = out.iter().map(|sibling| sibling.index).collect();
        (ahead, next.goes_on())
    };
    assert_eq!(from_one(0), (ten.clone(), true), "ten were opened, so ten may be read ahead");
    assert_eq!(from_one(1), (vec![], false), "nothing is left");
    assert!(run(&mut directories[1], &ten).concat().is_empty(), "all are ahead");
    let [before, next] = directories.get_disjoint_mut([1, 2]).expect("two directories");
    let mut out = Vec::new();
    next.go_on_from(before, 4, &mut out);
    assert_eq!((out.len(), next.goes_on()), (4, false), "memory has space for four");
    next.go_on_from(before, u32::MAX, &mut out);
    assert_eq!((out.len(), next.goes_on()), (10, true));
    // What was read ahead here counts; the rest is for the directory after it.
    let [before, next] = directories.get_disjoint_mut([2, 3]).expect("two directories");
    out.clear();
    next.go_on_from(before, u32::MAX, &mut out);
    assert_eq!(out.len(), 10, "{out:?}");
}

#[test]
fn a_run_that_ends_within_its_directory_does_not_go_on() {
    let (mut before, mut next) = (Siblings::new(100), Siblings::new(100));
    run(&mut before, &[0, 1, 2, 3, 4, 5]);
    let mut out = Vec::new();
    next.go_on_from(&mut before, u32::MAX, &mut out);
    assert!(out.is_empty() && !next.goes_on());
    // Nor does one that only this directory has shown.
    run(&mut before, &(6..100).collect::<Vec<_>>());
    assert!(!before.goes_on());
}

#[test]
fn waste_in_the_next_directories_ends_readahead() {
    let mut before = Siblings::new(20);
    run(&mut before, &(0..20).collect::<Vec<_>>());
    let mut unopened = 0;
    for _ in 0..10 {
        let mut next = Siblings::new(20);
        let mut out = Vec::new();
        next.go_on_from(&mut before, u32::MAX, &mut out);
        unopened += out.len();
    }
    assert_eq!(unopened, 20, "at most as many as were opened");
}

/// The names of a directory of a Python package.
fn package(modules: u32) -> Vec<String> {
    (0..modules).flat_map(|n| [format!("module{n:02}.py"), format!("module{n:02}.pyi")]).collect()
}

/// Opens modules of a package in an order without a pattern; returns how many opens found their
/// file read ahead by a sample, and how many files were.
fn import(prior: &mut SamplePrior, seed: u64, modules: u32, opens: usize) -> (usize, usize) {
    let names = package(modules);
    let mut siblings = Siblings::of(&names);
    let mut order: Vec<u32> = (0..modules).map(|module| module * 2).collect();
    let mut random = Random::new(seed);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let (mut hits, mut sampled, mut out) = (0, Vec::new(), Vec::new());
    for &index in &order[..opens] {
        hits += usize::from(sampled.contains(&index));
        out.clear();
        siblings.opened(index, u32::MAX, prior, &mut out);
        for sibling in out.iter().filter(|sibling| sibling.reason == SiblingReason::Sample) {
            let name = &names[sibling.index as usize];
            assert!(name.ends_with(".py"), "{name}: an extension that was not opened");
            sampled.push(sibling.index);
        }
    }
    (hits, sampled.len())
}

#[test]
fn samples_that_paid_in_one_directory_begin_at_once_in_the_next() {
    let mut prior = SamplePrior::default();
    for seed in 0..2 {
        import(&mut prior, seed, 30, 28);
    }
    assert!(prior.pays());
    let (hits, _) = import(&mut prior, 9, 20, 18);
    let (alone, _) = import(&mut SamplePrior::default(), 9, 20, 18);
    assert!(hits >= 14 && hits >= alone + 6, "{hits}, and {alone} without the others");
}

#[test]
fn one_file_in_each_of_many_directories_causes_no_readahead() {
    let mut prior = SamplePrior::default();
    let planned: usize = (0..500).map(|seed| import(&mut prior, seed, 500, 1).1).sum();
    assert_eq!(planned, 0);
}

#[test]
fn few_files_in_each_of_many_directories_cause_a_trial_of_sixteen_and_one_in_32_opens() {
    let mut prior = SamplePrior::default();
    let planned: usize = (0..500).map(|seed| import(&mut prior, seed, 500, 4).1).sum();
    assert!(planned <= 16 + 500 * 4 / 32, "{planned}");
}

#[test]
fn after_directories_that_paid_unopened_files_are_at_most_as_many_as_opened_ones() {
    let mut prior = SamplePrior::default();
    let (mut hits, mut planned) = (0, 0);
    let mut add = |(more_hits, more_planned)| {
        hits += more_hits;
        planned += more_planned;
    };
    (0..4).for_each(|seed| add(import(&mut prior, seed, 30, 28)));
    (0..500).for_each(|seed| add(import(&mut prior, seed, 500, 1)));
    assert!(planned - hits <= 4 * 28 + 1, "{planned} read ahead, {hits} opened");
}
