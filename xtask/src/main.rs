//! Chores of this repository, run as `cargo xtask TASK`.
//!
//! `tidy` checks what compilers and linters do not: file sizes, the direction of dependencies
//! between crates, and the links, commands, files and tests that documents name. `cost` compares
//! the instruction counts of decisions with the record. Both use the standard library only, so they
//! build in a second.

mod cost;
mod tidy;

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy            checks that compilers do not make
       cargo xtask cost            instruction counts of decisions, compared with the record
       cargo xtask cost --accept   record them";

fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository");
    let mut arguments = env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None, None) => run_tidy(root),
        (Some("cost"), None, None) => run_cost(root, false),
        (Some("cost"), Some("--accept"), None) => run_cost(root, true),
        (Some("--help" | "-h"), None, None) => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => {
            say(USAGE);
            ExitCode::from(2)
        }
    }
}

fn run_tidy(root: &Path) -> ExitCode {
    let (files, findings) = match tidy::check_tree(root) {
        Ok(outcome) => outcome,
        Err(error) => {
            say(&format!("xtask: error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for finding in &findings {
        say(&finding.to_string());
    }
    if findings.is_empty() {
        say(&format!("tidy: {files} files, nothing to fix"));
        return ExitCode::SUCCESS;
    }
    say(&format!("tidy: {} to fix in {files} files", findings.len()));
    ExitCode::FAILURE
}

fn run_cost(root: &Path, accept: bool) -> ExitCode {
    match cost::run(root, accept) {
        Ok((lines, well)) => {
            lines.iter().for_each(|line| say(line));
            if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            say(&format!("xtask: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error; if that is closed, the exit code remains.
fn say(line: &str) {
    let _closed = writeln!(io::stderr(), "{line}");
}
