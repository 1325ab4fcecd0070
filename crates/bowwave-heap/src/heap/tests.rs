//! Panics within memory calls, each in its own process.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};

use super::serve_from;

/// Where a panic is injected.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Place {
    Nowhere,
    /// Within a call, under the lock.
    Work,
    /// During setup of the swap.
    Start,
}

static PANICS: AtomicU8 = AtomicU8::new(Place::Nowhere as u8);

/// Panics if `place` is selected.
pub(super) fn panic_at(place: Place) {
    assert!(PANICS.load(Ordering::Relaxed) != place as u8, "injected");
}

/// Runs a test alone in a child, in which this returns `None`; returns the child's output.
fn child(test: &str) -> Option<Output> {
    const CHILD: &str = "BOWWAVE_HEAP_CHILD";
    if std::env::var_os(CHILD).is_some() {
        bowwave_interpose::say_panics();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("we run from a file"));
    let name = format!("heap::tests::{test}");
    child.args(["--exact", &name, "--test-threads=1", "--nocapture"]).env(CHILD, "1");
    Some(child.output().expect("it starts"))
}

/// Our lines on standard error.
fn said(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect()
}

#[test]
fn a_panic_in_a_memory_call_prints_one_line_and_aborts() {
    let Some(output) = child("a_panic_in_a_memory_call_prints_one_line_and_aborts") else {
        serve_from(1 << 20);
        PANICS.store(Place::Work as u8, Ordering::Relaxed);
        // SAFETY: any size.
        unsafe { libc::malloc(2 << 20) };
        unreachable!("the call returned");
    };
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    let said = said(&output);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("bowwave run: a defect of bowwave, please report it: injected ("),
        "{said:?}"
    );
}

#[test]
fn a_panic_during_setup_leaves_the_program_without_a_swap() {
    let name = "a_panic_during_setup_leaves_the_program_without_a_swap";
    let Some(output) = child(name) else {
        serve_from(1 << 20);
        PANICS.store(Place::Start as u8, Ordering::Relaxed);
        // SAFETY: any size; the allocation is freed.
        unsafe {
            let at = libc::malloc(2 << 20);
            assert!(!at.is_null(), "from the C library");
            libc::free(at);
        }
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let said = said(&output);
    assert!(said.len() == 2 && said[1].contains("continues without swapped memory"), "{said:?}");
}
