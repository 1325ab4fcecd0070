//! `cargo xtask cost`: compares the instruction counts of decisions with the record next to the
//! benchmark.
//!
//! Times depend on the machine and its load; instruction counts do not. The benchmark `cost` of the
//! core runs in callgrind, which writes a profile at the end of each case; the sums of these
//! profiles are compared.

mod counts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs, io};

use counts::Counts;

/// Where counts are recorded.
const RECORD: &str = "crates/bowwave-core/benches/cost/counts.txt";

/// glibc selects memcpy by processor; force the baseline version everywhere.
const SAME_COPIES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-SSSE3");

/// Counts, and compares with the record or writes it (`accept`). Returns the messages, and whether
/// everything is fine.
pub(crate) fn run(root: &Path, accept: bool) -> io::Result<(Vec<String>, bool)> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let missing =
            "cost: 'valgrind' is missing, so instructions are not counted (try: tools/setup.sh cost)";
        return Ok((vec![missing.to_owned()], !accept));
    }
    let record = root.join(RECORD);
    let counted = Counts { made_by: made_by()?, cases: count(&build(root)?)? };
    if accept {
        fs::write(&record, counted.to_string())?;
        return Ok((vec![format!("cost: {} cases recorded in {RECORD}", counted.cases.len())], true));
    }
    let recorded =
        fs::read_to_string(&record)?.parse().map_err(|line| failed(format!("{RECORD}: {line}")))?;
    let comparison = counts::compare(&recorded, &counted);
    let (differ, cases) = (comparison.differences.len(), counted.cases.len());
    let mut lines: Vec<String> = comparison
        .note
        .into_iter()
        .chain(comparison.differences)
        .map(|line| format!("cost: {line}"))
        .collect();
    lines.push(if differ == 0 {
        format!("cost: {cases} cases, as recorded")
    } else {
        format!("cost: {differ} of {cases} cases differ from {RECORD}; if that is meant: cargo xtask cost --accept")
    });
    Ok((lines, differ == 0))
}

/// What else affects the counts: the compiler, and the C library with its allocator.
fn made_by() -> io::Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let verbose = text(Command::new(rustc).arg("-vV"))?;
    let field = |name: &str| verbose.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    // Without it (another C library or system) the compiler's host suffices.
    let library = text(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    let made_by = format!("rustc {} {} {}", field("release:"), field("host:"), library.trim());
    Ok(made_by.trim_end().to_owned())
}

/// Builds the benchmark only; returns its path.
fn build(root: &Path) -> io::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--quiet", "--locked", "--profile", "cost"]);
    command.args([
        "--package",
        "bowwave-core",
        "--bench",
        "cost",
        "--message-format",
        "json-render-diagnostics",
    ]);
    let messages = text(command.stderr(Stdio::inherit()))?;
    let path = messages.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
    path.map(|(path, _)| PathBuf::from(path)).ok_or_else(|| failed("cargo names no program".to_owned()))
}

/// Runs the benchmark in callgrind: each case, with instructions per call.
fn count(program: &Path) -> io::Result<Vec<(String, f64)>> {
    let directory = program.with_extension("profiles");
    let _from_a_run_before = fs::remove_dir_all(&directory);
    fs::create_dir(&directory)?;
    let mut command = Command::new("valgrind");
    command.env(SAME_COPIES.0, SAME_COPIES.1).current_dir(&directory);
    command.args(["--quiet", "--tool=callgrind", "--callgrind-out-file=profile"]);
    command.args(["--toggle-collect=cost::counted*", "--dump-before=cost::end_of_case*"]).arg(program);
    let names = text(&mut command)?;
    let mut cases = Vec::new();
    for (number, line) in (1..).zip(names.lines()) {
        let profile = fs::read_to_string(directory.join(format!("profile.{number}")))?;
        let (name, calls) = line.split_once('\t').unwrap_or((line, ""));
        let sum = profile.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<f64>().ok());
        match (sum, calls.parse::<f64>()) {
            (Some(sum), Ok(calls)) if sum > 0.0 => cases.push((name.to_owned(), sum / calls)),
            _ => return Err(failed(format!("callgrind has counted nothing of '{name}'"))),
        }
    }
    fs::remove_dir_all(&directory)?;
    Ok(cases)
}

/// The output of a command that must succeed.
fn text(command: &mut Command) -> io::Result<String> {
    let Output { status, stdout, stderr } = command.output()?;
    if !status.success() {
        let program = command.get_program().to_string_lossy();
        return Err(failed(format!("{program}: {status}: {}", String::from_utf8_lossy(&stderr).trim())));
    }
    String::from_utf8(stdout).map_err(|error| failed(error.to_string()))
}

fn failed(why: String) -> io::Error {
    io::Error::other(why)
}
