//! The library as C sees it: calls every function from compiled C programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bowwave_engine::backend::pattern;

/// Cargo's directory of the libraries that tests link.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().expect("we run from a file");
    program.parent().expect("in a directory").to_owned()
}

/// Whether there is a compiler; prints a message otherwise, and fails with `CI=true`.
#[expect(clippy::print_stdout, reason = "reports skipped tests")]
fn has(compiler: &str) -> bool {
    let has = Command::new(compiler).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have {compiler}");
        println!("skipped: there is no {compiler} here (try: tools/setup.sh build)");
    }
    has
}

/// Standard output of a command that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?}: {stderr}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Compiles a test program; `link` has the linker arguments.
fn compile(source: &str, into: &Path, link: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = into.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]);
    compiler.arg(here.join(source)).arg("-I").arg(here.join("include")).arg("-o").arg(&program);
    run(compiler.arg("-L").arg(libraries()).args(link).args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]));
    program
}

fn directory_with_data() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut bytes = vec![0; 3_000_001];
    pattern::fill(pattern::seed(Path::new("3000001")), 0, &mut bytes);
    let data = directory.path().join("data");
    fs::write(&data, bytes).expect("room for it");
    fs::write(directory.path().join("empty"), b"").expect("room for it");
    (directory, data)
}

#[test]
fn every_function_works_from_c_as_documented() {
    if !has("cc") {
        return;
    }
    let (directory, data) = directory_with_data();
    let program = compile("tests/calls.c", directory.path(), &["-lbowwave"]);
    let mut command = Command::new(program);
    command.arg(directory.path()).arg(data).env("LD_LIBRARY_PATH", libraries());
    assert_eq!(run(&mut command).trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_example_runs_linked_statically() {
    if !has("cc") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile("examples/touch.c", directory.path(), &["-l:libbowwave.a"]);
    let said = run(Command::new(&program).args(["emulate:nvme/16MiB", "", "policy=none cache=32MiB"]));
    assert!(said.contains("16777216 bytes mapped, 256 touched"), "{said}");
    let refused = Command::new(&program).arg("/no/such/file").output().expect("it starts");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("No such file or directory"), "{said}");
}

#[test]
fn the_header_is_valid_cplusplus() {
    if !has("c++") {
        return;
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/bowwave.h");
    run(Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
        .arg(header));
}
