//! Chores of this repository, run as `cargo xtask`.
fn main() {}
