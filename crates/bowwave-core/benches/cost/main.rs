//! Instructions of a hit, a decision, a request and a fault. `cargo xtask cost` runs this in
//! callgrind and compares with `counts.txt`. By itself it prints the cases and their calls.
//!
//! Instructions do not depend on the load of the machine. Callgrind counts instructions inside of
//! [`counted`], and writes its counts when [`end_of_case`] is called. With an argument, only cases
//! whose name contains it run.
#![expect(clippy::print_stdout, reason = "`cargo xtask cost` reads the cases")]

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

/// Number of counted calls.
struct Calls(u64);

impl Calls {
    fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.0 += 1;
        counted(work)
    }
}

/// Runs a case, and prints its calls.
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

/// Instructions from entry to return are counted.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Its body is unique, so that the compiler does not merge it with another function.
#[inline(never)]
fn end_of_case() {
    black_box("a case has ended");
}

/// Random numbers, the same on each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
