//! `bowwave status` and `bowwave ctl`, asked of programs under `bowwave run`.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::{bowwave, can_swap, failure, is_installed, run, until};
use bowwave_testkit::{is_root, skipped};
use serde_json::Value;
use tempfile::TempDir;

/// A program under `bowwave run` that obeys lines on its standard input, and the directory of its
/// socket.
struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    words: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
}

impl Program {
    /// `bowwave run OPTIONS -- python3 -c SCRIPT`; `None` without python3. The script prints a line
    /// when it is ready, and one for each line that it gets.
    fn new(options: &[&str], script: &str) -> Option<Self> {
        if !is_installed("python3") {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = bowwave();
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.arg("run").args(options).args(["--", "python3", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bowwave starts");
        let words = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut program = Self { orders: child.stdin.take(), child, words, directory };
        assert_eq!(program.word(), "ready");
        Some(program)
    }

    fn word(&mut self) -> String {
        self.words.next().expect("a line").expect("UTF-8")
    }

    /// Sends a line, and waits for the response.
    fn order(&mut self, line: &str) -> String {
        writeln!(self.orders.as_mut().expect("open"), "{line}").expect("it reads");
        self.word()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bowwave();
        command.env("XDG_RUNTIME_DIR", self.directory.path()).args(arguments);
        command
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["ctl", &self.id()]);
        command.args(arguments);
        command
    }

    fn status(&self) -> Value {
        serde_json::from_str(&run(&mut self.command(&["status", &self.id(), "--json"]))).expect("JSON")
    }

    fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.status()))
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.path().join("bowwave")).into_iter().flatten();
        entries.map(|entry| entry.expect("readable").path()).collect()
    }

    /// Ends its input, and waits for its end.
    fn end(&mut self) {
        drop(self.orders.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Reads the bytes from A to B of a file, or of memory, as its lines `A B` say.
const READ_FILE: &str = "
import os, sys
fd = os.open('/shown/16777216', os.O_RDONLY)
os.pread(fd, 1, 0)
print('ready', flush=True)
for line in sys.stdin:
    if line == 'fork\\n':
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.pread(fd, 1, 8 << 20)
            print(os.getpid(), flush=True)
            sys.stdin.readline()
            os._exit(0)
        os.waitpid(child, 0)
        continue
    start, end = map(int, line.split())
    print(sum(len(os.pread(fd, 16384, at)) for at in range(start, end, 16384)), flush=True)
";
const READ_MEMORY: &str = "
import sys
data = bytearray(64 << 20)
for at in range(0, len(data), 4096):
    data[at] = (at >> 12) % 251
print('ready', flush=True)
for line in sys.stdin:
    start, end = map(int, line.split())
    print(all(data[at] == (at >> 12) % 251 for at in range(start, end, 4096)), flush=True)
";

const MIB: u64 = 1 << 20;

#[test]
fn ctl_changes_the_policy_of_a_program_in_the_middle_of_its_file() {
    let options = ["--map", "emulate:nvme:pattern:/=/shown", "--policy", "none", "--cache", "64MiB"];
    let Some(mut program) = Program::new(&options, READ_FILE) else { return };
    let requests = |program: &mut Program, line: &str| {
        let before = program.counter("requests");
        assert_eq!(program.order(line), (4 * MIB).to_string());
        program.counter("requests") - before
    };
    let alone = requests(&mut program, "0 4194304");
    run(&mut program.ctl(&["set", "policy", "ondemand"]));
    run(&mut program.ctl(&["set", "ra-pages", "1MiB"]));
    assert_eq!(run(&mut program.ctl(&["get", "policy"])), "ondemand\n");
    assert_eq!(run(&mut program.ctl(&["get", "read_ahead_kb"])), "1024\n");
    let ahead = requests(&mut program, "4194304 8388608");
    assert!(ahead * 4 < alone, "{alone} requests without readahead, {ahead} with it");
    assert!(program.counter("pages_readahead") > 512);
    program.end();
    assert_eq!(program.sockets(), Vec::<PathBuf>::new(), "an ended program leaves no socket");
}

#[test]
fn ctl_changes_the_policy_of_swapped_memory_in_the_middle_of_a_pass() {
    if !can_swap() {
        return;
    }
    let options = ["--swap", "128MiB", "--memory", "8MiB", "--swap-policy", "none"];
    let Some(mut program) = Program::new(&options, READ_MEMORY) else { return };
    let of = |program: &Program| ["swap_major_faults", "swap_ra"].map(|name| program.counter(name));
    let pass = |program: &mut Program, line: &str| {
        let before = of(program);
        assert_eq!(program.order(line), "True");
        let after = of(program);
        [after[0] - before[0], after[1] - before[1]]
    };
    let alone = pass(&mut program, "0 16777216");
    run(&mut program.ctl(&["set", "swap.policy", "vma"]));
    assert_eq!(run(&mut program.ctl(&["get", "swap.policy"])), "vma\n");
    let ahead = pass(&mut program, "16777216 33554432");
    // The region keeps its last pages: four windows of 8.
    assert!(alone[0] >= 4096 - 32 && alone[1] == 0, "none reads nothing ahead: {alone:?}");
    assert!(ahead[0] * 4 < alone[0] && ahead[1] > 2048, "{alone:?} with none, {ahead:?} with vma");
    run(&mut program.ctl(&["set", "swap.page_cluster", "0"]));
    run(&mut program.ctl(&["set", "swap.policy", "none"]));
    assert_eq!(pass(&mut program, "33554432 50331648")[1], 0);
    for (arguments, reason) in [
        (["set", "swap.policy", "best"], "known: none, cluster, vma, adaptive, linux"),
        (["set", "swap.ra_pages", "1"], "swap.ra_pages=1: "),
        (["set", "policy", "none"], "there is no setting 'policy'; there are swap.policy, swap.ra_pages"),
    ] {
        let (code, line) = failure(&mut program.ctl(&arguments));
        assert!(code == 2 && line.contains(reason), "{arguments:?}: {line}");
    }
    let status = program.status();
    let bytes = |name: &str| status[name].as_u64().expect("a size");
    assert!(bytes("memory_used") <= bytes("memory_limit") && bytes("memory_limit") <= 8 * MIB, "{status}");
    // A part of the spill describes it.
    let spill = bytes("spill_limit");
    assert!(bytes("spill_used") > 32 * MIB && (127 * MIB..=128 * MIB).contains(&spill), "{status}");
    program.end();
    assert_eq!(program.sockets(), Vec::<PathBuf>::new(), "an ended program leaves no socket");
}

#[test]
fn status_shows_programs_and_ctl_refuses_what_does_not_fit() {
    let options = ["--map", "emulate:nvme:pattern:/=/shown", "--set", "range_bytes=2MiB", "--cache", "64MiB"];
    let Some(mut program) = Program::new(&options, READ_FILE) else { return };
    let id = program.id();
    let list = run(&mut program.command(&["status"]));
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(&id)).expect("it is listed");
    assert!(line.contains("python") && line.contains("emulate:nvme:pattern:/ at /shown"), "{list}");
    let rows: Value = serde_json::from_str(&run(&mut program.command(&["status", "--json"]))).expect("JSON");
    let is_ours = |row: &&Value| row["pid"] == program.child.id();
    let row = rows.as_array().and_then(|rows| rows.iter().find(is_ours)).expect("it is listed");
    assert_eq!((&row["state"], &row["policy"]), (&Value::from("running"), &Value::from("stream")));
    let text = run(&mut program.command(&["status", &id]));
    for part in ["memory", " of 64 MiB", "emulate:nvme:pattern:/ at /shown", "\ncounters\n", "bytes_fetched"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (arguments, reason) in [
        (["set", "page_size", "64KiB"], "page_size cannot be changed while the program runs"),
        (["set", "policy", "best"], "policy=best: "),
        (["set", "ra_pages", "soon"], "ra_pages=soon: not pages, as in 256, or a size, as in 1MiB"),
        (["set", "fifo", "1"], "there is no setting 'fifo'; there are policy, "),
        (["set", "ra_pages", "1MiB"], ""),
    ] {
        match reason {
            "" => drop(run(&mut program.ctl(&arguments))),
            _ => {
                let (code, line) = failure(&mut program.ctl(&arguments));
                assert!(code == 2 && line.contains(reason), "{arguments:?}: {line}");
            }
        }
    }
    let list = run(&mut program.ctl(&["list"]));
    for (key, words) in [("range_bytes", ["2MiB", "changeable"]), ("cache", ["64MiB", "fixed"])] {
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(key)).expect(key);
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let (code, line) = failure(&mut program.ctl(&["set", "policy", "none", "--persist"]));
    assert!(code == 2 && line.contains("by mount point"), "{line}");
    let [socket] = &program.sockets()[..] else { panic!("{:?}", program.sockets()) };
    let metadata = fs::metadata(socket).expect("it is there");
    assert!(metadata.file_type().is_socket() && metadata.permissions().mode() & 0o777 == 0o600);
    program.child.kill().expect("ours");
    program.child.wait().expect("it ends");
    let (code, line) = failure(&mut program.ctl(&["list"]));
    assert!(code == 1 && line.contains("serves no cache of bowwave"), "{line}");
    assert_eq!(program.sockets(), Vec::<PathBuf>::new(), "a client removes the socket of an ended process");
}

#[test]
fn a_forked_child_that_uses_the_cache_serves_its_own_settings() {
    let options = ["--map", "pattern:/=/shown", "--cache", "16MiB"];
    let Some(mut program) = Program::new(&options, READ_FILE) else { return };
    let child = program.order("fork");
    let get = |id: &str| run(&mut program.command(&["ctl", id, "get", "fifo_batch"]));
    run(&mut program.command(&["ctl", &child, "set", "fifo_batch", "7"]));
    assert_eq!((get(&child), get(&program.id())), ("7\n".to_owned(), "auto\n".to_owned()));
    assert_eq!(program.sockets().len(), 2);
    writeln!(program.orders.as_mut().expect("open"), "end").expect("it reads");
    until("the child has removed its socket, by _exit", || program.sockets().len() == 1);
    assert_eq!(program.order("0 16384"), "16384");
    program.end();
    assert_eq!(program.sockets(), Vec::<PathBuf>::new());
}

#[test]
fn a_program_with_files_and_swapped_memory_has_both_settings() {
    if !can_swap() {
        return;
    }
    let options = ["--map", "pattern:/=/shown", "--cache", "16MiB", "--swap", "128MiB", "--memory", "8MiB"];
    let script = READ_FILE.replace("print('ready'", "data = bytearray(1 << 20)\nprint('ready'");
    let Some(mut program) = Program::new(&options, &script) else { return };
    run(&mut program.ctl(&["set", "swap.policy", "vma"]));
    run(&mut program.ctl(&["set", "policy", "linux"]));
    let status = program.status();
    assert_eq!((&status["policy"], &status["swap_policy"]), (&Value::from("linux"), &Value::from("vma")));
    // Tables and buffers of the swap are no pages.
    assert!(status["memory_limit"].as_u64() > Some(18 * MIB), "{status}");
    assert!(status["memory_limit"].as_u64() <= Some(24 * MIB), "{status}");
    let (code, line) = failure(&mut program.ctl(&["set", "fifo", "1"]));
    let knows = |key: &str| line.contains(&format!(" {key},"));
    assert!(code == 2 && knows("policy") && knows("swap.policy"), "{line}");
    program.end();
    assert_eq!(program.sockets(), Vec::<PathBuf>::new());
}

/// Connects to a socket, sends a request, and prints the response.
const CLIENT: &str = "
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
try:
    client.sendall(b'{\"command\":\"list\"}\\n')
    print(len(client.recv(10)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
";

#[test]
fn another_user_gets_no_answer_from_a_program() {
    if !is_root() {
        return skipped(&"only root can become another user");
    }
    let options = ["--map", "pattern:/=/shown", "--cache", "16MiB"];
    let Some(program) = Program::new(&options, READ_FILE) else { return };
    let as_another_user = |command: &mut Command| {
        let output = command.uid(65_534).gid(65_534).output().expect("it starts");
        (output.status.success(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let ctl = as_another_user(&mut program.ctl(&["list"]));
    assert_eq!(ctl, (false, String::new()));
    // Even if the socket could be reached.
    let [socket] = &program.sockets()[..] else { panic!("{:?}", program.sockets()) };
    for (path, mode) in [
        (program.directory.path().to_owned(), 0o755),
        (program.directory.path().join("bowwave"), 0o755),
        (socket.clone(), 0o666),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let python = fs::canonicalize("/usr/bin/python3");
    let Ok(python) = python else { return skipped(&"no python3 that another user may run") };
    let client = || {
        let mut command = Command::new(&python);
        command.args(["-c", CLIENT]).arg(socket);
        command
    };
    assert_eq!(as_another_user(&mut client()), (true, "0\n".to_owned()));
    assert_eq!(run(&mut client()), "10\n");
}
