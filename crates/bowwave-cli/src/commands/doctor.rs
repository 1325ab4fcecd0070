//! `bowwave doctor`: checks this machine for missing parts.

use std::{fs, io};

use bowwave_region::uffd::{Delivery, Scope, Uffd};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::output::Output;
use crate::{Failure, setup};

/// Arguments of `bowwave doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is 'ok' or 'missing'; what is missing is followed by what does not work without it, and by the command that \
provides it. Exits with 1 if no mount is possible. Run it as the user that mounts.

Examples:
  bowwave doctor
  bowwave doctor --json")]
pub(crate) struct Args {
    /// Print JSON: an array of objects with name, ok, found, without, remedy and needed_for_mount
    #[arg(long)]
    json: bool,
}

/// Prints what is there and what is missing.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checks = checks();
    let mut output = Output::stdout();
    let printed = if args.json { output.json_array(&checks) } else { print(&mut output, &checks) };
    output.finish(printed)?;
    let missing: Vec<_> =
        checks.iter().filter(|check| check.needed_for_mount && !check.ok).map(|check| check.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(failed!("no mount is possible here: {} is missing", missing.join(", ")))
}

fn print(output: &mut Output, checks: &[Check]) -> Result<(), Failure> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, ok, found, without, remedy, .. } in checks {
        let state = if *ok { "ok     " } else { "missing" };
        output.line(format_args!("{state}  {name:width$}  {found}"))?;
        if let Some(remedy) = remedy {
            output.line(format_args!("         {:width$}  without it: no {without}", ""))?;
            output.line(format_args!("         {:width$}  fix: {remedy}", ""))?;
        }
    }
    Ok(())
}

/// A requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    /// Its name.
    name: &'static str,
    /// Whether it is met.
    ok: bool,
    /// What was found or is missing.
    found: String,
    /// What does not work without it.
    without: &'static str,
    /// The command that provides it.
    remedy: Option<String>,
    /// Whether mounts need it.
    needed_for_mount: bool,
}

impl Check {
    fn new(name: &'static str, without: &'static str, found: Result<String, (String, String)>) -> Self {
        let needed_for_mount = false;
        match found {
            Ok(found) => Self { name, ok: true, found, without, remedy: None, needed_for_mount },
            Err((found, remedy)) => {
                Self { name, ok: false, found, without, remedy: Some(remedy), needed_for_mount }
            }
        }
    }

    fn for_mount(self) -> Self {
        Self { needed_for_mount: true, ..self }
    }
}

/// All checks.
fn checks() -> Vec<Check> {
    let lacks = |lack: bowwave_fuse::Lack| (lack.cause.clone(), lack.command.to_owned());
    vec![
        Check::new("kernel", "mounts and io_uring", kernel()),
        Check::new(
            "/dev/fuse",
            "bowwave mount",
            bowwave_fuse::device().map(|()| "accessible".to_owned()).map_err(lacks),
        )
        .for_mount(),
        Check::new(
            "permission to mount",
            "bowwave mount",
            bowwave_fuse::helper().map(str::to_owned).map_err(lacks),
        )
        .for_mount(),
        Check::new(
            "user_allow_other",
            "bowwave mount --allow-other, for users other than root",
            match rustix::process::geteuid().is_root() {
                true => Ok("root needs no entry in /etc/fuse.conf".to_owned()),
                false => bowwave_fuse::allow_other().map(|()| "in /etc/fuse.conf".to_owned()).map_err(lacks),
            },
        ),
        Check::new("io_uring", "fast reads of local files; threads read them instead", io_uring()),
        Check::new(
            "userfaultfd",
            "bowwave run --swap, and system calls on maps of stores",
            userfaultfd()
                .map(|()| "for this process and the kernel".to_owned())
                .map_err(|why| (why, "sysctl -w vm.unprivileged_userfaultfd=1".to_owned())),
        ),
        Check::new("open files", "many open files and connections at once", open_files()),
        Check::new("locked memory", "io_uring before Linux 5.12", locked_memory()),
        Check::new("memory", "a cache of a useful size", memory()),
        Check::new("library of bowwave run", "bowwave run", libraries()),
        Check::new(
            "runtime directory",
            "bowwave status and bowwave ctl",
            bowwave_control::own_directory()
                .map_err(|error| (error.to_string(), "mkdir -m 700 -p \"/tmp/bowwave-$(id -u)\"".to_owned())),
        ),
    ]
}

/// The kernel features bowwave uses, in one line.
pub(crate) fn kernel_parts() -> String {
    let word = |is: bool| if is { "yes" } else { "no" };
    format!(
        "Linux {}, FUSE {}, io_uring {}, userfaultfd {}",
        release(),
        word(bowwave_fuse::device().is_ok()),
        word(io_uring().is_ok()),
        word(userfaultfd().is_ok())
    )
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn version() -> (u32, u32) {
    let release = release();
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn kernel() -> Result<String, (String, String)> {
    if version() >= KERNEL_MIN {
        return Ok(format!("Linux {}", release()));
    }
    let (major, minor) = KERNEL_MIN;
    Err((format!("Linux {}, older than {major}.{minor}", release()), "apt full-upgrade".to_owned()))
}

fn io_uring() -> Result<String, (String, String)> {
    bowwave_backend::io_uring().map(|()| "available".to_owned()).map_err(|error| {
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
        match disabled.trim() {
            "1" | "2" => (
                format!("disabled by the sysctl kernel.io_uring_disabled={}", disabled.trim()),
                "sysctl -w kernel.io_uring_disabled=0".to_owned(),
            ),
            // A container's seccomp filter rejects the system call.
            _ => (error.to_string(), "docker run --security-opt seccomp=unconfined …".to_owned()),
        }
    })
}

fn userfaultfd() -> Result<(), String> {
    Uffd::open(Scope::All, Delivery::Message).map(drop).map_err(|error: io::Error| error.to_string())
}

fn open_files() -> Result<String, (String, String)> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => {
            Err((format!("at most {limit}"), format!("ulimit -n {OPEN_FILES_MIN}")))
        }
        Some(limit) => Ok(format!("at most {limit}")),
        None => Ok("no limit".to_owned()),
    }
}

fn locked_memory() -> Result<String, (String, String)> {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < LOCKED_MIN && version() < (5, 12) => {
            Err((format!("at most {}", setup::size(limit)), format!("ulimit -l {}", LOCKED_MIN >> 10)))
        }
        Some(limit) => Ok(format!("at most {}", setup::size(limit))),
        None => Ok("no limit".to_owned()),
    }
}

fn memory() -> Result<String, (String, String)> {
    let all = bowwave_engine::available_memory();
    let found = format!("{}, of which a cache has {} by default", setup::size(all), setup::size(all / 4));
    if all >= MEMORY_MIN { Ok(found) } else { Err((found, "docker run --memory 1g …".to_owned())) }
}

fn libraries() -> Result<String, (String, String)> {
    super::run::libraries().map_err(|why| (why, "make install".to_owned()))
}

/// The oldest tested kernel.
const KERNEL_MIN: (u32, u32) = (5, 10);
/// Descriptors for some hundred connections and a thousand files.
const OPEN_FILES_MIN: u64 = 4096;
/// Locked memory for rings, in bytes.
const LOCKED_MIN: u64 = 8 << 20;
/// In bytes; a quarter of it holds a few readahead windows.
const MEMORY_MIN: u64 = 128 << 20;
