//! The `bowwave` command.
fn main() {}
