//! Files that cannot be mapped: errors name cause and remedy, and other mappings continue.
#![allow(unsafe_code, reason = "drops rights and resources of this process")]

mod common;

use std::ops::Range;
use std::path::Path;
use std::{fs, io, iter, thread};

use bowwave_engine::{Advice, Engine, Policy};
use bowwave_region::uffd::Scope;
use bowwave_region::{Error, MapOptions, Region};
use common::{alone, can_serve, expected, map, succeeds};

fn engine() -> Engine {
    common::engine(8 << 20, Policy::OnDemand)
}

fn refused(engine: &Engine, url: &str, options: &MapOptions) -> Error {
    let store = engine.store(url).expect("a pattern");
    Region::map(&store, Path::new(""), options).expect_err("it cannot be mapped")
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: reads the structure, and lowers a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "{}", io::Error::last_os_error());
}

#[test]
fn empty_unaligned_and_too_long_ranges_are_rejected_by_name() {
    if !can_serve(Scope::Program) {
        return;
    }
    let engine = engine();
    for (range, why) in [
        (0..0, "cannot map bytes 0 to 0: it is empty"),
        (Range { start: 8192, end: 4096 }, "cannot map bytes 8192 to 4096: it is empty"),
        (0..20_000, "cannot map bytes 0 to 20000: the file has 10000 bytes"),
        (20_000..30_000, "cannot map bytes 20000 to 30000: the file has 10000 bytes"),
        (0..u64::MAX, "cannot map bytes 0 to 18446744073709551615: the file has 10000 bytes"),
        (1..10_000, "cannot map bytes 1 to 10000: it must begin at a multiple of 4096"),
    ] {
        let options = MapOptions { range: Some(range), ..MapOptions::default() };
        assert_eq!(refused(&engine, "pattern:/10000", &options).to_string(), why);
    }
    let store = engine.store("pattern:/10000").expect("a pattern");
    let region = map(&store, &MapOptions::default());
    for (offset, len) in [(0, 10_001), (10_001, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let why = region.populate(offset, len).expect_err("beyond the end").to_string();
        assert_eq!(why, format!("{len} bytes from {offset} of a region of 10000 bytes"));
    }
    region.populate(10_000, 0).expect("nothing is there");
    region.read(10_000, &mut []).expect("nothing is there");
    assert_eq!(region.as_slice()[9_999], expected("10000", 9_999));
    let options = MapOptions { range: Some(8192..9_999), ..MapOptions::default() };
    let part = map(&store, &options);
    assert_eq!((part.len(), part.as_slice()[1_806]), (1_807, expected("10000", 9_998)));
    assert!(part.populate(0, 1_808).is_err());
    assert!(part.read(1_807, &mut [0]).is_err());
    assert!(part.advise(1_808, 1, Advice::WillNeed).is_err());
    part.advise(0, 0, Advice::Random).expect("within");
    let why = refused(&engine, "pattern:/0", &MapOptions::default()).to_string();
    assert!(why.contains("an empty file cannot be mapped"), "{why}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    assert!(matches!(
        refused(&engine, &directory.path().display().to_string(), &MapOptions::default()),
        Error::Engine(_)
    ));
}

#[test]
fn without_permission_the_sysctl_is_named_and_program_faults_are_served() {
    let name = "without_permission_the_sysctl_is_named_and_program_faults_are_served";
    if !can_serve(Scope::All)
        || fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|on| on.trim() == "1")
    {
        return;
    }
    alone(name, succeeds, || {
        // SAFETY: drops the privileges of this process, whose other threads are idle.
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0, "{}", io::Error::last_os_error());
        let engine = engine();
        let all = MapOptions { scope: Some(Scope::All), ..MapOptions::default() };
        let why = refused(&engine, "pattern:/1MiB", &all).to_string();
        assert!(why.contains("vm.unprivileged_userfaultfd") && why.contains("/dev/userfaultfd"), "{why}");
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        let region = map(&store, &MapOptions::default());
        assert!(!region.serves_system_calls());
        assert_eq!(region.as_slice()[77_777], expected("1MiB", 77_777));
    });
}

#[test]
fn a_sandbox_that_forbids_userfaultfd_is_named() {
    alone("a_sandbox_that_forbids_userfaultfd_is_named", succeeds, || {
        for (errno, hint) in
            [(libc::EPERM, "vm.unprivileged_userfaultfd"), (libc::ENOSYS, "CONFIG_USERFAULTFD")]
        {
            forbid_userfaultfd(errno as u32);
            let why = refused(&engine(), "pattern:/1MiB", &MapOptions::default()).to_string();
            assert!(why.contains("userfaultfd") && why.contains(hint) && why.contains("sandbox"), "{why}");
        }
    });
}

/// Makes the system call fail from now on, as container runtimes do. With several filters, the last
/// one's error counts.
fn forbid_userfaultfd(errno: u32) {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_userfaultfd as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel checks and copies the program; it applies to this thread and its children.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter);
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }
    // The device is another way to open it.
    if fs::metadata("/dev/userfaultfd").is_ok() {
        // SAFETY: as above, in its own process.
        unsafe { libc::setresuid(65_534, 65_534, 65_534) };
    }
}

#[test]
fn a_limited_address_space_is_named() {
    alone("a_limited_address_space_is_named", succeeds, || {
        let engine = engine();
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        let region = map(&store, &MapOptions::default());
        let statm = fs::read_to_string("/proc/self/statm").expect("it is there");
        let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
        limit(libc::RLIMIT_AS, pages * common::PAGE + (256 << 20));
        // First no space for the memory, then for it but not for its mapping.
        for size in ["1TiB", "200MiB"] {
            let why = refused(&engine, &format!("pattern:/{size}"), &MapOptions::default()).to_string();
            assert!(why.contains("ulimit -v"), "{size}: {why}");
        }
        assert_eq!(region.as_slice()[77_777], expected("1MiB", 77_777), "what was mapped is served");
        let another = map(&store, &MapOptions::default());
        assert_eq!(another.as_slice()[77_777], expected("1MiB", 77_777));
    });
}

#[test]
fn too_many_regions_are_rejected_and_existing_ones_continue() {
    alone("too_many_regions_are_rejected_and_existing_ones_continue", succeeds, || {
        let engine = engine();
        let store = engine.store("pattern:/1MiB").expect("a pattern");
        // Each descriptor of a region in turn is the one that exceeds the limit.
        for descriptors in 60..66 {
            limit(libc::RLIMIT_NOFILE, 126 - descriptors);
            let mut regions = Vec::new();
            let why = loop {
                match Region::map(&store, Path::new(""), &MapOptions::default()) {
                    Ok(region) => regions.push(region),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(regions.len() > 5 && why.contains("ulimit -n"), "{} regions: {why}", regions.len());
            for region in &regions {
                assert_eq!(region.as_slice()[77_777], expected("1MiB", 77_777));
            }
            regions.pop();
            // Requests in flight keep a dropped region's memory a little longer.
            let again = iter::repeat_with(|| Region::map(&store, Path::new(""), &MapOptions::default()));
            let again = again.inspect(|_| thread::yield_now()).take(100_000).find_map(Result::ok);
            assert!(again.is_some(), "there is room for one");
        }
    });
}
