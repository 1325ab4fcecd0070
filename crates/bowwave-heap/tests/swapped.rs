//! Programs get the same results in swapped memory, several times their budget, as in plain memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bowwave_region::uffd::{Delivery, Scope, Uffd};

/// MiB that the program uses, and its memory budget in bytes.
const HAS: u64 = 32;
const MEMORY: u64 = 8 << 20;

/// The library under test, in cargo's target directory.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("we run from a file");
    let library = program.with_file_name("libbowwave_heap.so");
    assert!(library.exists(), "cargo builds {} with this test", library.display());
    library
}

/// Compiles the program. Returns `None` with a message without a compiler, or if the kernel's page
/// faults cannot be served.
#[expect(clippy::print_stdout, reason = "reports skipped tests")]
fn program(into: &Path) -> Option<PathBuf> {
    if let Err(error) = Uffd::open(Scope::All, Delivery::Message) {
        println!("skipped: no userfaultfd that serves system calls here: {error}");
        return None;
    }
    let program = into.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/swapped.c");
    let mut compiler = Command::new("cc");
    // Otherwise the compiler removes allocations that are freed again.
    compiler.args(["-std=gnu11", "-O1", "-fno-builtin-malloc", "-Wall", "-Wextra", "-Werror", "-o"]);
    let Ok(output) = compiler.arg(&program).arg(source).arg("-lpthread").output() else {
        println!("skipped: there is no cc here (try: tools/setup.sh build)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn run(program: &Path, directory: &Path, swap: Option<(u64, u64)>) -> Output {
    let mut command = Command::new(program);
    command.arg(HAS.to_string()).arg(directory).env("BOWWAVE_RUN_REPORT", directory.join("report"));
    if let Some((from, memory)) = swap {
        let wanted = format!(
            "spill={} memory={memory} from={from} policy=adaptive {}",
            HAS << 22,
            directory.display()
        );
        command.env("LD_PRELOAD", library()).env("BOWWAVE_RUN_SWAP", wanted);
    }
    command.output().expect("it starts")
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{:?}\n{stdout}{stderr}", output.status)
}

/// Sum of a counter over processes.
fn counter(directory: &Path, name: &str) -> u64 {
    let report = std::fs::read_to_string(directory.join("report")).expect("counters");
    let named = report.split_whitespace().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    named.map(|count| count.parse::<u64>().expect("a number")).sum()
}

#[test]
fn swapped_memory_has_the_same_bytes_as_plain_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = program(directory.path()) else { return };
    let plain = run(&program, directory.path(), None);
    assert!(plain.status.success(), "{}", text(&plain));
    for from in [1, 1 << 16, 1 << 30] {
        let report = directory.path().join("report");
        std::fs::File::create(&report).expect("room");
        let swapped = run(&program, directory.path(), Some((from, MEMORY)));
        assert_eq!(text(&swapped), text(&plain), "from {from} bytes on");
        let (allocations, out) =
            (counter(directory.path(), "swap_allocations"), counter(directory.path(), "swap_out"));
        assert!(
            from > 1 << 16 || allocations > 100 && out > HAS << 8,
            "{allocations} allocations, {out} pages out"
        );
        assert_eq!(counter(directory.path(), "swap_read_errors"), 0);
    }
}

#[test]
fn a_failed_swap_is_reported_and_the_program_continues() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = program(directory.path()) else { return };
    let output = run(&program, directory.path(), Some((1 << 16, 1 << 20)));
    let said = text(&output);
    assert!(output.status.success() && said.contains("continues without swapped memory"), "{said}");
    assert!(said.contains("4194304 at least"), "{said}");
}
