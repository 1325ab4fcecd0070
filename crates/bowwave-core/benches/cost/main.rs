//! How many instructions a hit, a decision, a request and a fault take. `cargo xtask cost` runs this in callgrind and
//! compares with `counts.txt`; by itself it only names the cases, with the calls of each.
//!
//! Instructions are the same however busy a machine is. Callgrind finds by name what matters: it counts what runs inside
//! of [`counted`], and puts down what it has when [`end_of_case`] is called. With an argument only cases run that have it in
//! their name, to look at one of them closely.
#![expect(clippy::print_stdout, reason = "the cases are told to whoever counts")]

mod cached;
mod devices;
#[path = "../patterns/mod.rs"]
mod patterns;
mod stream;

use std::hint::black_box;

fn main() {
    case("nothing, for the call around each", |calls| {
        for _ in 0..8 {
            calls.count(|| black_box(0));
        }
    });
    cached::cases();
    stream::cases();
    devices::cases();
}

/// How often something was counted.
struct Calls(u64);

impl Calls {
    fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.0 += 1;
        counted(work)
    }
}

/// Runs a case: what it counts, and how often.
fn case(name: &str, run: impl FnOnce(&mut Calls)) {
    if std::env::args().skip(1).any(|part| part != "--bench" && !name.contains(&part)) {
        return;
    }
    let mut calls = Calls(0);
    run(&mut calls);
    assert!(calls.0 > 0, "nothing was counted: {name}");
    println!("{name}\t{}", calls.0);
    end_of_case();
}

/// Only instructions from entry to return are counted.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Not the same as any other function, or the two would become one.
#[inline(never)]
fn end_of_case() {
    black_box("a case has ended");
}

/// Numbers in no order, the same on each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
