//! A server and its mount, with measurements.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_testkit::hostile::{Dialect, HostileServer};

use crate::PEAK_KIB_MAX;
use crate::common::{bowwave, is_mounted, peak_memory};

bowwave_core::named_enum! {
    /// Cache configuration of a mount.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Config {
        KernelCache = "kernel",
        NoKernelCache = "direct",
        DiskCache = "disk",
        Hedging = "hedge",
    }
}

/// A running daemon and its server. On drop both end, and nothing stays mounted.
pub(crate) struct Mounted {
    pub(crate) server: HostileServer,
    pub(crate) at: PathBuf,
    root: PathBuf,
    child: Child,
    said: Arc<Output>,
    /// Peak of resident memory until the mount was ready, in KiB.
    pub(crate) idle_kib: u64,
    /// Reads of a correct store so far, each of another file.
    pub(crate) checks: u64,
    /// Names written so far.
    pub(crate) written: u64,
}

/// Standard error of the daemon.
#[derive(Default)]
struct Output {
    text: Mutex<(String, bool)>,
    changed: Condvar,
}

/// Result of starting a daemon.
pub(crate) enum Started {
    Mounted(Box<Mounted>),
    /// It exited with this status.
    Refused(Box<Mounted>, Option<i32>),
    /// Neither within the limit.
    Hung(Box<Mounted>),
}

impl Mounted {
    /// Mounts `server` and waits until it is ready or has failed.
    pub(crate) fn start(server: HostileServer, dialect: Dialect, config: Config, read_only: bool) -> Started {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("bowwave-stores-{}-{count}", std::process::id()));
        let at = root.join("at");
        fs::create_dir_all(&at).expect("the temporary directory is writable");
        let mut command = command(&server, dialect, &root);
        match config {
            Config::KernelCache => {}
            Config::NoKernelCache => drop(command.args(["--set", "kernel_cache=off"])),
            Config::DiskCache => {
                command.arg("--disk-cache").arg(root.join("disk")).args(["--disk-size", "64MiB"]);
            }
            Config::Hedging => drop(command.args(["--hedge", "50"])),
        }
        if read_only {
            command.arg("--read-only");
        }
        let mut child = command.spawn().expect("the program is there");
        let said = Arc::new(Output::default());
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let listener = Arc::clone(&said);
        thread::spawn(move || listener.hear(stderr));
        let mounted = Self { server, at, root, child, said, idle_kib: 0, checks: 0, written: 0 };
        let mut mounted = Box::new(mounted);
        let begun = Instant::now();
        loop {
            let ready = mounted.said.wait(Duration::from_millis(50));
            // For a daemon that is about to end, the last value counts.
            mounted.idle_kib = mounted.peak_kib().max(mounted.idle_kib);
            match ready {
                Some(true) => return Started::Mounted(mounted),
                Some(false) => {
                    let code = mounted.child.wait().ok().and_then(|status| status.code());
                    return Started::Refused(mounted, code);
                }
                None if begun.elapsed() > WATCHDOG || mounted.idle_kib > PEAK_KIB_MAX => {
                    return Started::Hung(mounted);
                }
                None => {}
            }
        }
    }

    /// The daemon's output.
    pub(crate) fn said(&self) -> String {
        self.said.text.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The highest resident memory since the start or [`Self::forget_peak`], in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        peak_memory(self.child.id()).unwrap_or(0) >> 10
    }

    /// Resets the peak.
    pub(crate) fn forget_peak(&self) {
        // Without it peaks cover the mount's whole life: larger, never smaller.
        let _best_effort = fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5");
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the daemon with SIGTERM; returns the duration, `None` if longer than `limit`.
    pub(crate) fn terminate(&mut self, limit: Duration) -> Option<Duration> {
        let begun = Instant::now();
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).ok()?;
        while begun.elapsed() < limit {
            if !self.is_alive() {
                return Some(begun.elapsed());
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Whether the kernel has a mount here.
    pub(crate) fn is_mounted(&self) -> bool {
        is_mounted(&self.at)
    }

    /// Kills the daemon, so that calls that hang in the kernel end.
    pub(crate) fn kill(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_ended = self.child.wait();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.kill();
        if self.is_mounted() {
            let _may_be_gone =
                Command::new("fusermount3").args(["-u", "-z"]).arg(&self.at).stderr(Stdio::null()).status();
        }
        let _best_effort = fs::remove_dir_all(&self.root);
    }
}

fn command(server: &HostileServer, dialect: Dialect, root: &Path) -> Command {
    let mut command = bowwave();
    command.stdout(Stdio::null()).stderr(Stdio::piped()).stdin(Stdio::null());
    // The environment's proxies and credentials are not part of the test.
    command.env_clear();
    for name in ["PATH", "HOME", "TMPDIR"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.args(["mount", &server.url()]).arg(root.join("at"));
    command.args(["--timeout", "2s", "--retries", "2", "--ttl", "10s", "--write-out-timeout", "2s"]);
    if dialect != Dialect::Http {
        command.args(["--endpoint", &server.endpoint(), "--allow-http"]);
    }
    match dialect {
        Dialect::S3 => {
            command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
            command.env("AWS_SESSION_TOKEN", "session-token").args(["--region", "us-east-1"]);
        }
        Dialect::Azure => {
            command.env("AZURE_STORAGE_ACCOUNT_NAME", "account");
            command.env("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0LXNlY3JldC1zZWNyZXQ=");
        }
        // Google's tokens come from another server, which a test does not have.
        Dialect::Google => drop(command.env("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY)),
        Dialect::Http => {}
    }
    command
}

impl Output {
    fn hear(&self, stderr: BufReader<ChildStderr>) {
        for line in stderr.lines().map_while(Result::ok) {
            let mut said = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            said.0.push_str(&line);
            said.0.push('\n');
            self.changed.notify_all();
        }
        self.text.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    /// `true` if the mount is ready, `false` if the daemon has ended; `None` if neither within
    /// `limit`.
    fn wait(&self, limit: Duration) -> Option<bool> {
        let end = Instant::now() + limit;
        let mut said = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if said.0.contains(" is mounted at ") || said.1 {
                return Some(!said.1);
            }
            let left = end.checked_duration_since(Instant::now())?;
            said = self.changed.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A service account that needs no token.
const GOOGLE_KEY: &str =
    r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#;
/// How long a call may take before its daemon is killed.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(15);
