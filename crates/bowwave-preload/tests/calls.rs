//! Compares C library calls on files of a store with calls on the files themselves.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library under test, in cargo's target directory.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("we run from a file");
    let library = program.with_file_name("libbowwave_preload.so");
    assert!(library.exists(), "cargo builds {} with this test", library.display());
    library
}

/// Compiles a test program; without a compiler prints a message and returns `None`, or fails with
/// `CI=true`.
#[expect(clippy::print_stdout, reason = "reports skipped tests")]
fn compile(source: &str, into: &Path) -> Option<PathBuf> {
    let program = into.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    let Ok(output) = compiler.arg("-lpthread").output() else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have cc");
        println!("skipped: there is no cc here (try: tools/setup.sh build)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// A directory with all kinds of files that the program examines.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let mut number = 1u64;
    let bytes: Vec<u8> = (0..3_000_001)
        .map(|_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 56) as u8
        })
        .collect();
    fs::write(at("a.bin"), bytes).expect("room for it");
    fs::write(at("empty"), b"").expect("room for it");
    fs::create_dir(at("sub")).expect("room for it");
    fs::write(at("sub/t.txt"), "hello 42\nworld\n").expect("room for it");
    fs::write(at("run.sh"), "#!/bin/sh\necho ran\n").expect("room for it");
    fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    for (target, name) in [("a.bin", "link"), ("nowhere", "dangling"), ("sub", "sublink")] {
        symlink(target, at(name)).expect("a file system with links");
    }
    directory
}

/// The program's output about the files below `root`.
fn output_of(command: &mut Command, root: &str) -> String {
    let output = command.arg(root).env("ROOT", root).output().expect("it starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {stdout}{stderr}", output.status);
    stdout.into_owned()
}

#[test]
fn each_call_returns_the_same_as_for_the_file_itself() {
    let (directory, built) = (directory(), tempfile::tempdir().expect("a directory"));
    let Some(program) = compile("tests/calls.c", built.path()) else { return };
    let data = directory.path().to_str().expect("UTF-8");
    let expected = output_of(&mut Command::new(&program), data);
    assert!(expected.lines().count() > 250, "{expected}");
    // Without a store, mounted at a path, and by URL.
    for (url, prefix) in [
        (data.to_owned(), "/bowwave-test/shown".to_owned()),
        (data.to_owned(), data.to_owned()),
        (format!("emulate:nvme:{data}"), format!("emulate:nvme:{data}")),
    ] {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).env("BOWWAVE_RUN_MAPS", format!("{url}\t{prefix}"));
        command.env("BOWWAVE_RUN_OPTIONS", "cache=16MiB policy=range");
        let got = output_of(&mut command, &prefix);
        for (want, got) in expected.lines().zip(got.lines()) {
            assert_eq!(got, want, "{url} as {prefix}");
        }
        assert_eq!(got.len(), expected.len(), "{url} as {prefix}");
    }
}
