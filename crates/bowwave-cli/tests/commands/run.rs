//! `bowwave run`: installed programs on files of a store.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::explained::lines;
use crate::common::{bowwave, can_swap, failure, is_installed, output_with_input, run};
use bowwave_backend::pattern;
use bowwave_testkit::hostile::{Dialect, HostileServer};
use bowwave_testkit::{Content, Shape, ShapedS3, is_root, skipped};

/// `bowwave run OPTIONS -- sh -c SCRIPT`.
fn shell(options: &[&str], script: &str) -> Command {
    let mut command = bowwave();
    command.arg("run").args(options).args(["--cache", "16MiB", "--", "sh", "-c", script]);
    command
}

fn made_up(size: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern::fill(pattern::seed(Path::new(size)), 0, &mut bytes);
    bytes
}

#[test]
fn programs_and_their_children_read_stores_by_path_and_by_url() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let script = format!("cat /shown/300001 > {}; cat < pattern:/300001 > {}", one.display(), two.display());
    run(&mut shell(&["--map", "pattern:/=/shown", "--map", "pattern:/"], &script));
    let wanted = made_up("300001", 300_001);
    assert!(fs::read(one).expect("written") == wanted);
    assert!(fs::read(two).expect("written") == wanted);
}

#[test]
fn the_program_ends_as_it_ends_and_the_counters_of_its_processes_are_added_up() {
    let options = ["--map", "emulate:nvme:pattern:/=/shown", "--stats-on-exit", "--json"];
    let output = output_with_input(
        &mut shell(&options, "wc -c /shown/1MiB /shown/1MiB-b; tail -c 9 /shown/2MiB | wc -c; exit 7"),
        b"",
    );
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert!(stdout.ends_with("total\n9\n"), "{stdout}");
    let counters: serde_json::Value =
        serde_json::from_str(stderr.lines().last().expect("counters")).expect("JSON");
    // wc requests only sizes; tail reads the end.
    assert_eq!(counters["processes"], 2, "{stderr}");
    assert!(
        counters["bytes_read"].as_u64() >= Some(9) && counters["bytes_fetched"].as_u64() < Some(2 << 20),
        "{stderr}"
    );
    let table = output_with_input(&mut shell(&options[..3], "cat /shown/1MiB > /dev/null"), b"");
    assert!(String::from_utf8_lossy(&table.stderr).contains("requests to the store"));
    let killed = output_with_input(&mut shell(&options, "kill -9 $$"), b"");
    assert_eq!(killed.status.code(), Some(137));
}

#[test]
fn failed_calls_return_an_errno_and_never_zeros() {
    let options = ["--map", "fault:errors=1:pattern:/=/bad", "--map", "pattern:/=/shown", "--retries", "0"];
    let script =
        "cat /bad/1MiB; echo $?; echo x > /shown/new; cat /shown/none; cat /shown/1MiB/x; touch /shown/1KiB";
    let output = output_with_input(&mut shell(&options, script), b"");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "1\n", "{stderr}");
    for said in ["Input/output error", "Read-only file system", "No such file or directory"] {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    assert!(
        stderr.contains("bowwave run: ") && stderr.contains("fault read 1"),
        "the cause is said: {stderr}"
    );
    // A read that bypasses the C library gets no data, and no zeros.
    let script = "import ctypes, os\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        fd, buf = os.open('/shown/1MiB', os.O_RDONLY), ctypes.create_string_buffer(10)\n\
        print(libc.syscall(0, fd, buf, 10), ctypes.get_errno())\n\
        print(libc.syscall(9, 0, 4096, 1, 1, fd, 0), ctypes.get_errno())\n\
        print(os.read(fd, 10) == open('/shown/1MiB', 'rb').read(10))\n";
    if cfg!(target_arch = "x86_64") && is_installed("python3") {
        let said = run(bowwave().args(["run", "--map", "pattern:/=/shown", "--", "python3", "-c", script]));
        assert_eq!(said, "-1 9\n-1 13\nTrue\n", "EBADF, EACCES, and as it should be");
    }
}

#[test]
fn programs_that_cannot_be_served_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused =
        |program: &Path| failure(bowwave().args(["run", "--map", "pattern:/=/shown", "--"]).arg(program));
    let script = directory.path().join("script");
    let write = |text: &[u8]| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(&script, text).expect("room");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    };
    write(b"#!/no/such/interpreter\n");
    assert!(refused(&script).1.contains("cannot read /no/such/interpreter"));
    write(b"just text\n");
    assert!(refused(&script).1.contains("neither a program (ELF) nor a script"));
    write(b"\x7fELF\x01\x01\x01");
    assert!(refused(&script).1.contains("another machine"));
    assert!(refused(Path::new("no-such-program-anywhere")).1.contains("no such program"));
    // Our own executable without its interpreter: statically linked.
    let mut own = fs::read("/proc/self/exe").expect("it is there");
    let word = |at: usize| usize::from(u16::from_ne_bytes([own[at], own[at + 1]]));
    let (table, size, count) =
        (own[32..40].try_into().map(u64::from_ne_bytes).expect("eight") as usize, word(54), word(56));
    for index in 0..count {
        let at = table + index * size;
        if own[at..at + 4] == 3u32.to_ne_bytes() {
            own[at] = 0;
        }
    }
    own.truncate(1 << 20);
    write(&own);
    let (code, said) = refused(&script);
    assert!(code == 1 && said.contains("is linked statically") && said.contains("bowwave mount"), "{said}");
}

#[test]
fn a_missing_program_exits_127_and_one_that_is_not_executable_126() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("text");
    fs::write(&text, b"#!/bin/sh\n").expect("room");
    let refused = |options: &[&str], program: &Path| {
        let arguments = ["run", "--map", "pattern:/=/shown"];
        failure(bowwave().args(arguments).args(options).arg("--").arg(program))
    };
    for options in [&[][..], &["--stats"]] {
        let (code, said) = refused(options, Path::new("no-such-program-anywhere"));
        assert!(code == 127 && said.contains("no-such-program-anywhere: there is no such program"), "{said}");
        let (code, said) = refused(options, &directory.path().join("none"));
        assert!(code == 127 && said.contains("there is no such program"), "{said}");
        let (code, said) = refused(options, &text);
        assert!(code == 126 && said.contains("is not executable (try chmod +x "), "{said}");
        let (code, said) = refused(options, directory.path());
        assert!(code == 126 && said.contains("is a directory"), "{said}");
    }
}

/// The program in `PREFIX/bin` and the library in `PREFIX/lib/bowwave`, as `make install` puts
/// them.
#[test]
fn the_library_of_an_installation_is_used_and_one_of_another_version_is_refused_with_both_versions() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bin, lib) = (directory.path().join("bin"), directory.path().join("lib/bowwave"));
    fs::create_dir_all(&bin).expect("room");
    fs::create_dir_all(&lib).expect("room");
    let own = Path::new(env!("CARGO_BIN_EXE_bowwave")).with_file_name("deps").join("libbowwave_preload.so");
    let library = lib.join("libbowwave_preload.so");
    fs::copy(&own, &library).expect("room");
    let cache = directory.path().join("cache");
    let arguments =
        ["run", "--map", "pattern:/=/shown", "--", "sh", "-c", "echo $LD_PRELOAD; cat /shown/9 | wc -c"];
    let library_and_bytes = format!("{}\n9\n", library.canonicalize().expect("there").display());
    assert_eq!(run(alone(&bin, &cache).args(arguments)), library_and_bytes);
    assert!(!cache.exists(), "no copy is made");
    let version = env!("CARGO_PKG_VERSION");
    let mut bytes = fs::read(&library).expect("there");
    for at in 0..bytes.len() - version.len() {
        if bytes[at..].starts_with(version.as_bytes()) {
            bytes[at] = b'9';
        }
    }
    fs::write(&library, bytes).expect("room");
    let mut again = Command::new(bin.join("bowwave"));
    let (code, said) = failure(again.env("XDG_CACHE_HOME", &cache).args(arguments));
    let other = format!("is of bowwave 9{}, and this is bowwave {version}", &version[1..]);
    assert!(code == 1 && said.contains(&other), "{said}");
}

#[test]
fn bad_maps_are_reported_before_the_program_starts() {
    for (map, code, said) in [
        ("pattern:/=/", 2, "all of / cannot be served"),
        ("nowhere://x=/shown", 2, "unknown scheme"),
        ("/no/such/directory=/shown", 1, "No such file"),
        ("pattern:/a\tb=/shown", 2, "tabulators"),
    ] {
        let (got, text) = failure(bowwave().args(["run", "--map", map, "--", "true"]));
        assert!(got == code && text.contains(said), "{map}: {got} {text}");
    }
    let (code, text) =
        failure(bowwave().args(["run", "--map", "pattern:/=/shown", "--cache", "1KiB", "--", "true"]));
    assert!(code == 2 && text.contains("smaller than one readahead window"), "{text}");
    let (code, text) = failure(bowwave().args(["run", "--", "true"]));
    assert!(code == 2 && text.contains("--map"), "{text}");
    let (code, text) = failure(
        bowwave().args(["run", "--map", "pattern:/=/shown", "--", "true"]).env("BOWWAVE_PRELOAD", "/none"),
    );
    assert!(code == 1 && text.contains("BOWWAVE_PRELOAD=/none"), "{text}");
}

/// The program alone in a directory, as `cargo install` leaves it, which looks for the cache
/// directory here.
fn alone(directory: &Path, cache: &Path) -> Command {
    let program = directory.join("bowwave");
    fs::hard_link(env!("CARGO_BIN_EXE_bowwave"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_bowwave"), &program).map(drop))
        .expect("room");
    let mut command = Command::new(program);
    command.env_remove("XDG_RUNTIME_DIR").env("XDG_CACHE_HOME", cache);
    command
}

#[test]
fn the_program_needs_no_file_beside_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("cache");
    let mut program = alone(directory.path(), &cache);
    program.args(["run", "--map", "pattern:/=/shown", "--", "sh", "-c", "cat /shown/9 | wc -c"]);
    assert_eq!(run(&mut program), "9\n");
    let directory = cache.join("bowwave");
    assert_eq!(fs::metadata(&directory).expect("there").permissions().mode() & 0o777, 0o700);
    let file = || fs::read_dir(&directory).expect("readable").next().expect("a library").expect("an entry");
    assert_eq!(file().metadata().expect("there").permissions().mode() & 0o777, 0o500);
    let before = file().metadata().expect("there").ino();
    assert_eq!(run(&mut program), "9\n");
    assert_eq!(file().metadata().expect("there").ino(), before, "the copy is used again");
    if can_swap() {
        let swap =
            ["run", "--swap", "16MiB", "--memory", "8MiB", "--stats", "--json", "--", "sort", "-S", "4M"];
        let mut command = Command::new(program.get_program());
        let output = output_with_input(command.env("XDG_CACHE_HOME", &cache).args(swap), b"2\n1\n");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"1\n2\n", "{stderr}");
        assert!(!stderr.contains("swap_allocations\":0") && stderr.contains("swap_allocations"), "{stderr}");
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_not_used_for_libraries() {
    let home = tempfile::tempdir().expect("a directory");
    let cache = home.path().join("cache");
    let directory = cache.join("bowwave");
    fs::create_dir_all(&directory).expect("room");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("ours");
    let arguments = ["run", "--map", "pattern:/=/shown", "--", "true"];
    let (code, text) = failure(alone(home.path(), &cache).args(arguments));
    assert!(code == 1 && text.contains("may write to it") && text.contains("XDG_CACHE_HOME=DIR"), "{text}");
    fs::remove_dir(&directory).expect("empty");
    std::os::unix::fs::symlink("/tmp", &directory).expect("room");
    let mut command = Command::new(home.path().join("bowwave"));
    let command = command.env_remove("XDG_RUNTIME_DIR").env("XDG_CACHE_HOME", &cache).args(arguments);
    assert_eq!(failure(command).0, 1, "a link is not followed");
}

#[test]
fn a_library_of_another_version_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libbowwave_preload.so");
    let own = Path::new(env!("CARGO_BIN_EXE_bowwave")).with_file_name("deps").join("libbowwave_preload.so");
    let mut bytes = fs::read(own).expect("cargo builds it with the program");
    let name = b"\0.bowwave_version\0";
    let at = bytes.windows(name.len()).rposition(|window| window == name).expect("it names its version");
    // Without the section it says nothing.
    bytes[at + 1] = b'_';
    fs::write(&library, &bytes).expect("room");
    let arguments = ["run", "--map", "pattern:/=/shown", "--", "true"];
    let (code, text) = failure(bowwave().args(arguments).env("BOWWAVE_PRELOAD", &library));
    assert!(code == 1 && text.contains("is not the libbowwave_preload.so of bowwave"), "{text}");
    bytes[at + 1] = b'.';
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    // Wherever it stands: the section is one of the places.
    let places: Vec<usize> =
        (0..bytes.len() - version.len()).filter(|&at| bytes[at..].starts_with(version)).collect();
    for at in places {
        bytes[at] = b'9';
    }
    fs::write(&library, &bytes).expect("room");
    let (code, text) = failure(bowwave().args(arguments).env("BOWWAVE_PRELOAD", &library));
    assert!(code == 1 && text.contains("is of bowwave 9") && text.contains("install both again"), "{text}");
}

#[test]
fn a_program_sorts_more_than_it_may_have_in_memory() {
    if !can_swap() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let numbers = directory.path().join("numbers");
    let mut state = 1u64;
    let lines = (0..150_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{}\n", state >> 20)
    });
    fs::write(&numbers, lines.collect::<String>()).expect("room");
    let sort = ["sort", "--buffer-size=32M", "--parallel=2"];
    let plain = run(Command::new(sort[0]).args(&sort[1..]).arg(&numbers));
    let spill = directory.path().to_str().expect("UTF-8");
    for policy in ["adaptive", "vma"] {
        let options = ["run", "--swap", "256MiB", "--spill", spill, "--memory", "6MiB", "--stats", "--json"];
        let mut command = bowwave();
        command.args(options).args(["--swap-policy", policy, "--"]).args(sort).arg(&numbers);
        let output = output_with_input(&mut command, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == plain.as_bytes(), "{said}");
        let counters: serde_json::Value =
            serde_json::from_str(said.lines().last().expect("counters")).expect("JSON");
        let count = |name: &str| counters[name].as_u64().expect("a counter");
        assert!(count("swap_out") > 500 && count("swap_in") > 500, "{said}");
        assert!(
            count("swap_frames_used") <= count("swap_frames") && count("swap_frames") <= 6 << 8,
            "{said}"
        );
        // Only adaptive maps pages before their touch.
        assert_eq!(count("swap_mapped_ahead") > 0, policy == "adaptive", "{said}");
    }
    assert_eq!(fs::read_dir(&directory).expect("ours").count(), 1, "the spill has no name");
}

#[test]
fn a_journal_has_the_decisions_on_swapped_memory_and_on_mapped_files() {
    if !can_swap() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (numbers, journal) = (directory.path().join("numbers"), directory.path().join("journal"));
    fs::write(
        &numbers,
        (0..150_000).map(|n: u64| format!("{:014}\n", n * 7919 % 150_001)).collect::<String>(),
    )
    .expect("room");
    let spill = directory.path().to_str().expect("UTF-8");
    let mut command = bowwave();
    command.args(["run", "--swap", "256MiB", "--spill", spill, "--memory", "6MiB", "--swap-policy", "vma"]);
    command.arg("--map").arg(format!("{spill}=/bowwave-run-journal")).arg("--journal").arg(&journal);
    run(command.args(["--", "sort", "--buffer-size=32M", "--parallel=1", "/bowwave-run-journal/numbers"]));
    let all = lines(&fs::read_to_string(&journal).expect("the program's libraries created it"));
    let (files, swap): (Vec<_>, Vec<_>) = all.iter().partition(|line| line.get("trigger").is_some());
    assert!(files.len() > 4 && swap.len() > 100, "{} and {}", files.len(), swap.len());
    assert!(files.iter().all(|line| line["file"] == "numbers" && line["policy"] == "stream"), "{files:?}");
    for line in &swap {
        assert_eq!((&line["policy"], &line["unit"]), (&"vma".into(), &"pages".into()), "{line}");
        assert!((1..=8).contains(&line["size"].as_u64().expect("pages")), "{line}");
        assert!(line["pid"] == files[0]["pid"] && line["time_ns"].is_u64(), "{line}");
        let reads = line["pages"].as_array().expect("pages");
        assert!(reads.iter().any(|read| read[2] == line["page"] && read[1] == line["file"]), "{line}");
    }
    let reasons = ["forward", "backward", "centred", "single"];
    assert!(swap.iter().all(|line| line["reason"].as_str().is_some_and(|it| reasons.contains(&it))));
}

#[test]
fn files_of_stores_and_swapped_memory_go_together() {
    if !can_swap() {
        return;
    }
    let (directory, at) = (tempfile::tempdir().expect("a directory"), "/bowwave-run-both");
    let spill = directory.path().to_str().expect("UTF-8");
    // Reads a file of a store into memory that is swapped: a system call's touch, and the
    // program's.
    let sort = ["sort", "--buffer-size", "64M", "--parallel", "1", "-z"];
    let file = format!("{at}/16MiB");
    let options = ["run", "--map", &format!("pattern:/={at}"), "--swap", "256MiB", "--spill", spill];
    let rest = ["--memory", "6MiB", "--stats", "--json", "--"];
    let output =
        output_with_input(bowwave().args(options).args(rest).args(sort).arg(&file).env("LC_ALL", "C"), b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut bytes = vec![0; 16 << 20];
    pattern::fill(pattern::seed("16MiB".as_ref()), 0, &mut bytes);
    let mut want: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    want.sort_unstable();
    let mut found: Vec<&[u8]> = output.stdout.split(|&byte| byte == 0).collect();
    // Each record of sort's ends with a zero, the last one, too.
    assert_eq!(found.pop(), Some(&b""[..]));
    assert!(found == want, "{} records, not {}", found.len(), want.len());
    let counters: serde_json::Value =
        serde_json::from_str(said.lines().last().expect("counters")).expect("JSON");
    assert!(counters["swap_out"].as_u64() > Some(500), "{said}");
}

#[test]
fn a_bad_swap_is_reported_before_the_program_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "another user's").expect("room");
    let (file, none) = (file.to_str().expect("UTF-8"), directory.path().join("none/file"));
    let none = none.to_str().expect("UTF-8");
    for (options, code, said) in [
        (&["--swap", "1GiB", "--spill", file][..], 1, "is not a spill file"),
        (&["--swap", "1GiB", "--spill", none], 1, "--spill"),
        (&["--swap", "1GiB", "--memory", "1MiB"], 1, "4194304 at least"),
        (&["--swap", "much"], 2, "--swap"),
        (&["--memory", "1GiB"], 2, "--swap"),
    ] {
        let (got, text) = failure(bowwave().arg("run").args(options).args(["--", "true"]));
        assert!(got == code && text.contains(said), "{options:?}: {got} {text}");
    }
    assert_eq!(fs::read_to_string(file).expect("there"), "another user's");
    let path = directory.path().join("spill");
    let swap = ["run", "--swap", "1MiB", "--spill", path.to_str().expect("UTF-8"), "--", "true"];
    let (code, text) = failure(bowwave().args(swap).env("BOWWAVE_HEAP", "/none"));
    assert!(code == 1 && text.contains("BOWWAVE_HEAP=/none"), "{text}");
    // Another user's swap would answer only what the program itself touches.
    use std::os::unix::process::CommandExt as _;
    if is_root() && !may_anybody() {
        let temporary = std::env::temp_dir();
        let mut command = bowwave();
        command.args(["run", "--swap", "1MiB", "--spill"]).arg(&temporary).args(["--", "true"]);
        match command.uid(65534).gid(65534).current_dir("/").output() {
            // The directory of the build may be closed to others.
            Err(error) => skipped(&format_args!("the user `nobody` cannot run bowwave: {error}")),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.code() == Some(1), "{text}");
                assert!(text.contains("set the sysctl vm.unprivileged_userfaultfd=1"), "{text}");
            }
        }
    }
}

/// Whether any user may serve touches of the kernel's.
fn may_anybody() -> bool {
    fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1")
}

/// Without this, the program sees no more than a missing file.
#[test]
fn a_store_that_cannot_be_reached_is_an_error_before_the_program_starts() {
    let (code, line) =
        failure(bowwave().args(["run", "--map", "http://127.0.0.1:1/x/=/models", "--", "ls", "/models"]));
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("http://127.0.0.1:1/x/") && line.contains("refused"), "{line}");
}

/// Each file costs one round trip: the listing has its attributes, and its first bytes come with
/// the open. Regression: an open sent two lookups in turn, and the first read a third request.
#[test]
fn programs_wait_once_for_each_small_file_of_a_listed_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("requests");
    let server = small_files(&log);
    let script = "import os\n[open(f'/m/d/{name}', 'rb').read() for name in os.listdir('/m/d')]";
    run(&mut python(&server.endpoint(), script));
    let log = fs::read_to_string(log).expect("a log");
    let sent = |method: &str| log.lines().filter(|line| line.contains(&format!("{method} /data/d/"))).count();
    assert!(sent("HEAD") <= FILES && sent("GET") <= FILES, "{log}");
}

/// The program waits for requests of files that it does not open.
#[test]
fn files_are_requested_before_a_program_under_run_opens_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("requests");
    let server = small_files(&log);
    let script = format!(
        "import os, time
for name in sorted(os.listdir('/m/d'))[:4]:
    open(f'/m/d/{{name}}', 'rb').read()
until = time.monotonic() + 20
while 'GET /data/d/05' not in open('{}').read():
    assert time.monotonic() < until, 'no request'
    time.sleep(0.01)",
        log.display()
    );
    run(&mut python(&server.endpoint(), &script));
}

/// The listing or a lookup shows the old version, and each file is replaced before it is opened.
/// Files are opened in no order, so that none is read ahead. Regression: a large file was opened by
/// the version of the listing, and so was a small one that had just been looked up.
#[test]
fn a_program_under_run_opens_the_current_version_of_a_file() {
    let server = HostileServer::start(Dialect::S3).expect("loopback has free ports");
    for at in 0..FILES {
        server.put(&format!("d/{at:02}"), vec![b'a'; if at < 10 { 20_000 } else { 3_000_000 }]);
    }
    let script = format!(
        "import os, urllib.request as web
names = sorted(os.listdir('/m/d'))
for at, size in ((7, 20000), (3, 30000), (9, 0), (17, 10000), (11, 3000000), (14, 3000001)):
    name = names[at]
    if at in (3, 14):
        os.stat(f'/m/d/{{name}}')
    new = web.Request(f'{}/data/d/{{name}}', data=size * b'b', method='PUT')
    assert web.urlopen(new).status == 200
    assert open(f'/m/d/{{name}}', 'rb').read() == size * b'b', name
assert web.urlopen(web.Request(f'{}/data/d/{{names[1]}}', method='DELETE')).status == 204
try:
    open(f'/m/d/{{names[1]}}', 'rb')
except FileNotFoundError:
    pass
else:
    raise AssertionError('a deleted file was opened')",
        server.endpoint(),
        server.endpoint()
    );
    run(&mut python(&server.endpoint(), &script));
}

/// A shell closes a number and duplicates a file to it, or replaces a low number unasked. Bowwave's
/// descriptors had such numbers: the shell lost its input, or bowwave its connections.
#[test]
fn shells_replace_low_descriptors() {
    let logs = tempfile::tempdir().expect("a directory");
    let server = small_files(&logs.path().join("log"));
    let script = "\
        ls /proc/$$/fd > $0 # No pipe: the shell closes its ends while `ls` runs.
        before=$(cat $0)
        wc -c < /m/d/05
        ls /proc/$$/fd > $0
        for number in $(cat $0); do
            case \" $before \" in
                *[!0-9]$number[!0-9]*) ;;
                *) [ $number -ge 512 ] || echo descriptor $number ;;
            esac
        done
        exec 3< /m/d/00 4< /m/d/01 5> /dev/null 6< /m/d/02 7> /dev/null 8> /dev/null 9< /m/d/03
        for file in /m/d/*; do wc -c < $file; done
        wc -c <&3; wc -c <&6; wc -c <&9
        for number in 3 4 5 6 7 8 9; do eval \"exec $number< /m/d/1$number\"; done
        for file in /m/d/*; do wc -c < $file; done
        wc -c <&4";
    let mut command = bowwave();
    command.args(["run", "--map", "s3://data=/m", "--anonymous", "--allow-http", "--cache", "16MiB"]);
    command.args(["--endpoint", &server.endpoint(), "--", "sh", "-c", script]);
    command.arg(logs.path().join("descriptors"));
    assert_eq!(run(&mut command), "20000\n".repeat(2 * FILES + 5));
}

/// A Python program that sees the bucket `data` at `/m`.
fn python(endpoint: &str, script: &str) -> Command {
    let mut command = bowwave();
    command.args(["run", "--map", "s3://data=/m", "--anonymous", "--allow-http", "--cache", "16MiB"]);
    command.args(["--endpoint", endpoint, "--", "python3", "-c", script]);
    command
}

/// A bucket `data` with small files in its directory `d`, and a log of the requests.
fn small_files(log: &Path) -> ShapedS3 {
    let shape = Shape { first_byte: Duration::ZERO, connection_rate: 0, total_rate: 0 };
    let bytes = made_up("x", 20_000);
    let objects = (0..FILES).map(|at| (format!("d/{at:02}"), Content::Bytes(bytes.clone().into())));
    ShapedS3::serve_logged(shape, objects.collect(), Some(File::create(log).expect("a log")))
        .expect("loopback is there")
}

/// Files of a directory.
const FILES: usize = 20;
