//! Regions under test, and views of them from outside.
#![allow(unsafe_code, reason = "queries the kernel about memory")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use bowwave_engine::backend::pattern;
use bowwave_engine::{Engine, Options, Policy, Store};
use bowwave_region::uffd::{Delivery, Scope, Uffd};
use bowwave_region::{MapOptions, Region};

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn engine(cache_bytes: u64, policy: Policy) -> Engine {
    let options = Options { cache_bytes: Some(cache_bytes), policy, ..Options::default() };
    Engine::new(options).expect("a small cache")
}

pub(crate) fn map(store: &Store, options: &MapOptions) -> Region {
    Region::map(store, Path::new(""), options).expect("userfaultfd works on this machine")
}

/// Prints why a test does not run here. With `CI=true` that is a failure.
#[expect(clippy::print_stdout, reason = "reports skipped tests")]
pub(crate) fn skipped(reason: impl std::fmt::Display) {
    assert!(env::var("CI").as_deref() != Ok("true"), "this test must run in CI: {reason}");
    println!("skipped: {reason}");
}

/// Whether a region can serve this scope here; see [`skipped`].
pub(crate) fn can_serve(scope: Scope) -> bool {
    match Uffd::open(scope, Delivery::Message) {
        Ok(_) => true,
        Err(error) => {
            skipped(format_args!("no userfaultfd: {error}"));
            false
        }
    }
}

/// Runs `act` alone in its own process, whose signals, rights and resources it may change, and
/// passes the exit status and the output to `check`. Does nothing where no region can be served.
pub(crate) fn alone(test: &str, check: impl FnOnce(ExitStatus, &str), act: impl FnOnce()) {
    const CHILD: &str = "BOWWAVE_REGION_CHILD";
    if !can_serve(Scope::Program) {
        return;
    }
    if env::var_os(CHILD).is_some() {
        return act();
    }
    let mut child = Command::new(env::current_exe().expect("we run from a file"));
    child.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(CHILD, "1");
    let output = child.output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("running 1 test"), "no test has the name {test}: {said}");
    check(output.status, &said);
}

pub(crate) fn succeeds(status: ExitStatus, said: &str) {
    assert!(status.success(), "{status}: {said}");
}

pub(crate) fn raises_sigbus(status: ExitStatus, said: &str) {
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}: {said}");
}

/// The byte of `pattern:/SIZE` at an offset.
pub(crate) fn expected(size: &str, offset: u64) -> u8 {
    let mut byte = [0];
    pattern::fill(pattern::seed(Path::new(size)), offset, &mut byte);
    byte[0]
}

/// A number from the environment: a test's length or seed.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// The byte at an address, read by a system call: an error where an access would raise a signal.
pub(crate) fn peek(address: usize) -> Result<u8, i32> {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: 1 };
    // SAFETY: the kernel writes one byte and checks itself whether the address is mapped.
    match unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) } {
        1 => Ok(byte),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Resident bytes of a region, mapped in any process.
pub(crate) fn resident_bytes(region: &Region) -> u64 {
    let len = region.len().next_multiple_of(PAGE as usize);
    let mut pages = vec![0u8; len / PAGE as usize];
    // SAFETY: there is a byte for each page.
    let told = unsafe { libc::mincore(region.as_ptr() as *mut _, len, pages.as_mut_ptr()) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|&&page| page & 1 == 1).count() as u64 * PAGE
}

/// Bytes mapped by this process at the region's addresses, from `/proc/self/smaps`.
pub(crate) fn mapped_bytes(region: &Region) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").expect("it is there");
    let start = format!("{:x}-", region.as_ptr() as usize);
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let rss = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the mapping is listed");
    rss.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Aborts the process if `progress` stalls for two minutes: a hang must be visible.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<AtomicU64>);

impl Watchdog {
    #[expect(clippy::print_stderr, reason = "reports before the process ends")]
    pub(crate) fn new(name: &'static str, progress: &Arc<AtomicU64>) -> Self {
        let stop = Arc::new(AtomicU64::new(0));
        let (watched, stopped) = (Arc::clone(progress), Arc::clone(&stop));
        thread::spawn(move || {
            let (mut last, mut quiet) = (0, 0);
            while stopped.load(Ordering::Relaxed) == 0 {
                thread::sleep(Duration::from_millis(200));
                let now = watched.load(Ordering::Relaxed);
                quiet = if now == last { quiet + 1 } else { 0 };
                last = now;
                if quiet > 600 {
                    eprintln!("{name}: nothing has moved for two minutes, after {now} steps: a deadlock");
                    std::process::abort();
                }
            }
        });
        Self(stop)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}
