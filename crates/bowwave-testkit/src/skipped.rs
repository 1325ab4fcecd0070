//! Tests that cannot run on this machine.

use std::fmt::Display;

/// Prints why a test, or a part of it, does not run here.
///
/// # Panics
/// If the environment has `CI=true`: continuous integration must have all that tests need.
#[expect(clippy::print_stdout, reason = "a test that was skipped should say so")]
pub fn skipped(reason: &(impl Display + ?Sized)) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test must run in CI: {reason}");
    println!("skipped: {reason}");
}

/// Whether this process is root, as tests must be that act for other users or mount; see
/// [`skipped`].
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped("only root acts for other users and mounts file systems");
    }
    is_root
}
