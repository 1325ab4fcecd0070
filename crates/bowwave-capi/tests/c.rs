//! The library as C sees it: calls every function from compiled C programs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowwave_control::{Process, Request, Server, Setting, Subject};
use bowwave_engine::backend::pattern;
use serde_json::{Value, json};

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

/// A mount's control channel without a mount: keeps what is announced.
#[derive(Debug)]
struct Announced {
    point: PathBuf,
    lists: Mutex<Vec<(Vec<String>, bool)>>,
}

impl Subject for Announced {
    fn device(&self) -> Option<(u32, u32)> {
        Some((0, 0))
    }

    fn status(&self) -> Value {
        json!({ "dir": self.point.to_string_lossy(), "age_seconds": 0 })
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn set(&self, key: &str, _value: &str) -> Result<(), String> {
        Err(key.to_owned())
    }

    fn announce(&self, files: &[String], append: bool) -> Result<(), String> {
        self.lists.lock().expect("no panic").push((files.to_vec(), append));
        Ok(())
    }
}

#[test]
fn a_program_in_c_is_controlled_by_its_process_id_and_announces_files() {
    if !has("cc") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let point = directory.path().canonicalize().expect("it exists");
    let announced = Arc::new(Announced { point: point.clone(), lists: Mutex::default() });
    let mount = Server::start(announced.clone()).expect("a place for its socket");
    let program = compile("tests/served.c", directory.path(), &["-lbowwave"]);
    let mut command = Command::new(program);
    command.arg(directory.path()).arg(point.join("images/2")).args(["./images/1", "."]);
    command.env("LD_LIBRARY_PATH", libraries()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = move || lines.next().expect("a line").expect("UTF-8");
    let ready = line();
    let forked = ready.strip_prefix("ready ").expect("it is").to_owned();
    let sockets = |process: &str| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
        let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    assert_eq!(sockets(&child.id().to_string()), 1, "the program listens");
    wait_until("the child closes the socket", || sockets(&forked) == 0);
    let files = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let lists = announced.lists.lock().expect("no panic").clone();
    assert_eq!(lists, [(files(&["images/2", "images/1"]), false), (files(&["images/2"]), true)]);
    let process = Process::find(child.id()).expect("it serves");
    let set =
        |key: &str, value: &str| process.ask(&Request::Set { key: key.to_owned(), value: value.to_owned() });
    let refused = |answer: bowwave_control::Result<Value>| answer.expect_err("refused").to_string();
    assert!(refused(set("swap.policy", "best")).contains("adaptive, linux"));
    assert!(refused(set("cache", "1GiB")).contains("cannot be changed while the program runs"));
    assert!(refused(set("fifo", "1")).contains("there are policy, ra_pages"));
    let plan = Request::Plan { files: Vec::new(), append: false };
    assert!(refused(process.ask(&plan)).contains("only a mount"));
    assert_eq!(process.ask(&Request::Status).expect("it responds")["maps"][0]["url"], "pattern:/1MiB");
    assert_eq!(set("policy", "ondemand").expect("valid")["value"], "ondemand");
    set("swap.policy", "vma").expect("valid");
    assert_eq!(line(), "ondemand vma");
    wait_until("the socket is removed", || Process::find(child.id()).is_err());
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    run(Command::new("kill").arg(forked));
    drop(mount);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
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
