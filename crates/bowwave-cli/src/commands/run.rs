//! `bowwave run`: runs a program whose C library calls on store paths are served by bowwave.
//!
//! Preloads the library `crates/bowwave-preload`, configured by the environment, which children
//! inherit. With `--swap`, `crates/bowwave-heap` provides memory.

pub(crate) mod library;
mod program;
mod stats;
mod swap;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::SystemTime;

use bowwave_core::Policy;
use bowwave_engine::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempPath;

use self::library::Library;
use crate::cli::HelpArgs;
use crate::journal::{self, JournalArgs};
use crate::setup::{self, CacheArgs, DiskArgs, StoreArgs};
use crate::{Failure, values};

/// Arguments of `bowwave run`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  bowwave run --map s3://bucket/models=/models -- python3 infer.py /models/model.safetensors
  bowwave run --map https://example.org/data/=/data --policy range -- rg needle /data/log.txt
  bowwave run --map /nfs/genomes --stats-on-exit -- samtools view /nfs/genomes/a.bam
  bowwave run --map emulate:s3:/srv/data=/data -- md5sum /data/file
  bowwave run --swap 8GiB --spill /var/tmp --memory 2GiB -- sort --buffer-size 8G big.txt
  bowwave run --swap 64GiB --spill /scratch --swap-from 1KiB --stats -- redis-server --save ''
  bowwave run --swap 8GiB --spill /var/tmp --journal decisions.jsonl -- sort --buffer-size 8G big.txt"
)]
pub(crate) struct Args {
    /// A store's URL and the absolute path where the program sees it; without '=PATH', the URL, or
    /// a directory's own path
    #[arg(long = "map", value_name = "URL[=PATH]", required_unless_present = "swap")]
    maps: Vec<String>,

    /// The program and its arguments
    // Before the groups: their headings would cover it.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,

    /// The readahead policy
    #[arg(long, value_name = "POLICY", default_value = "stream", value_parser = values::policy())]
    policy: Policy,

    /// At the end, print the summed cache counters of all processes on standard error
    #[arg(long, visible_alias = "stats")]
    stats_on_exit: bool,

    /// Print these counters as JSON, on one line
    #[arg(long, requires = "stats_on_exit")]
    json: bool,

    #[command(flatten)]
    journal: JournalArgs,

    #[command(flatten)]
    help: HelpArgs,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    swap: swap::SwapArgs,
}

/// Runs the program, and exits as it does.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.cache.set.refuse_of_mounts()?;
    args.cache.set.refuse_later()?;
    let cached = |map: Map| Ok(Map { url: args.disk.url(&map.url)?, ..map });
    let maps = args.maps.iter().map(|text| cached(Map::parse(text)?)).collect::<Result<Vec<_>, Failure>>()?;
    let settings = setup::settings(args.policy, &args.cache, &args.store);
    if !maps.is_empty() {
        check(&settings, &maps)?;
    }
    let program = program::find(&args.program[0])?;
    let mut command = Command::new(&program);
    command.arg0(&args.program[0]).args(&args.program[1..]);
    let mut libraries = Vec::new();
    // First in order: calls it does not serve go to the other library.
    if let Some(wanted) = args.swap.check()? {
        command.env(swap::SWAP, wanted);
        libraries.push(swap::LIBRARY);
    }
    if !maps.is_empty() {
        let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
        command.env(OPTIONS, settings.to_string()).env(MAPS, Map::lines(&maps)?);
        command.env(STARTED, started.to_string());
        libraries.push(LIBRARY);
    }
    match args.journal.variable()? {
        Some(value) => command.env(journal::VARIABLE, value),
        None => command.env_remove(journal::VARIABLE),
    };
    command.env("LD_PRELOAD", preload(&libraries)?);
    if args.stats_on_exit {
        return counted(command, args.json);
    }
    command.env_remove(REPORT);
    Err(cannot_run(&program, &command.exec()))
}

/// Opens the stores and looks up their roots, so that an error is reported before the program
/// starts. The program itself would see a missing file.
fn check(settings: &Settings, maps: &[Map]) -> Result<(), Failure> {
    let mut profiles = Vec::new();
    for map in maps {
        let backend = bowwave_backend::open_url(&map.url, &settings.options.store)?;
        if let Some(note) = backend.probe()? {
            note!("{note}");
        }
        profiles.push(backend.profile());
    }
    settings.engine(&profiles).map(drop).map_err(Failure::from)
}

/// Runs the program as a child, and prints the counters of its processes.
fn counted(mut command: Command, json: bool) -> Result<(), Failure> {
    let report = report()?;
    command.env(REPORT, &report);
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])
        .map_err(|error| failed!("cannot listen for signals: {error}"))?;
    let mut child = command.spawn().map_err(|error| cannot_run(Path::new(command.get_program()), &error))?;
    let handle = signals.handle();
    let number = rustix::process::Pid::from_child(&child);
    let listener = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            // A terminal sends these to the program itself.
            if !matches!(signal, SIGINT | SIGQUIT)
                && let Some(signal) = rustix::process::Signal::from_named_raw(signal)
            {
                // It may have ended meanwhile.
                let _gone = rustix::process::kill_process(number, signal);
            }
        }
    });
    let ended = child.wait().map_err(|error| failed!("cannot wait for the program: {error}"))?;
    handle.close();
    // Without the thread there is nothing to join.
    let _nothing = listener.map(thread::JoinHandle::join);
    stats::print(&report, json)?;
    match (ended.code(), ended.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::ended(u8::try_from(code).unwrap_or(1))),
        (None, signal) => Err(Failure::ended(u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(1))),
    }
}

fn cannot_run(program: &Path, error: &io::Error) -> Failure {
    failed!("cannot run {}: {error}", program.display()).with_code(program::NOT_EXECUTABLE)
}

/// A file for the counters of processes, removed on drop.
fn report() -> Result<TempPath, Failure> {
    let created = tempfile::Builder::new().prefix("bowwave-run-").tempfile();
    let failed = |error| {
        let place = env::temp_dir();
        failed!("cannot create a file in {}: {error}", place.display())
    };
    Ok(created.map_err(failed)?.into_temp_path())
}

/// A store and its path.
#[derive(Debug, PartialEq, Eq)]
struct Map {
    url: String,
    prefix: OsString,
}

impl Map {
    /// `URL=PATH`, or `URL`. A URL may contain `=`, so the path starts after the last `=` before a
    /// `/`.
    fn parse(text: &str) -> Result<Self, Failure> {
        let (url, path) = match text.rfind("=/") {
            Some(at) => (&text[..at], Some(PathBuf::from(&text[at + 1..]))),
            None => (text, None),
        };
        let is_path = !url.split('/').next().is_some_and(|start| start.contains(':'));
        let url = if is_path { whole(Path::new(url))? } else { url.to_owned() };
        let path = path.or_else(|| is_path.then(|| PathBuf::from(&url)));
        let prefix = path.map_or_else(|| OsString::from(&url), |path| plain(&path).into_os_string());
        if prefix.is_empty() || prefix == "/" {
            let text = bowwave_backend::redacted(text);
            return Err(usage!("--map {text}: all of / cannot be served").try_this("--map URL=/some/path"));
        }
        Ok(Self { url, prefix })
    }

    /// For the environment: one map per line.
    fn lines(maps: &[Self]) -> Result<OsString, Failure> {
        let mut lines = OsString::new();
        for Self { url, prefix } in maps {
            if [url.as_bytes(), prefix.as_bytes()]
                .iter()
                .any(|text| text.iter().any(|byte| b"\t\n".contains(byte)))
            {
                let url = bowwave_backend::redacted(url);
                return Err(usage!("--map {url}: no tabulators and line ends can be in it"));
            }
            lines.push(url);
            lines.push("\t");
            lines.push(prefix);
            lines.push("\n");
        }
        Ok(lines)
    }
}

/// An absolute path, valid in any working directory.
fn whole(path: &Path) -> Result<String, Failure> {
    let whole = fs::canonicalize(path)
        .map_err(|error| failed!("{}: {error}", path.display()).try_this("a path that exists"))?;
    let text = whole.into_os_string().into_string();
    text.map_err(|text| usage!("{}: not UTF-8", Path::new(&text).display()))
}

/// An absolute path without dots.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Paths of the libraries, or why one is missing.
pub(crate) fn libraries() -> Result<String, String> {
    let paths = [LIBRARY, swap::LIBRARY].map(|library| library.find());
    let [first, second] = paths.map(|found| found.map_err(|failure| failure.to_string()));
    Ok(format!("{}, {}, version {}", first?.display(), second?.display(), env!("CARGO_PKG_VERSION")))
}

/// The value of `LD_PRELOAD`: our libraries, and its previous value.
fn preload(libraries: &[Library]) -> Result<OsString, Failure> {
    let mut list = Vec::new();
    for library in libraries {
        list.push(library.find()?.into_os_string());
    }
    list.extend(env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()));
    Ok(list.join(OsStr::new(":")))
}

/// Serves files.
const LIBRARY: Library =
    Library { name: "libbowwave_preload.so", variable: "BOWWAVE_PRELOAD", embedded: |all| all.preload };
/// The variable that configures it.
const MAPS: &str = "BOWWAVE_RUN_MAPS";
const OPTIONS: &str = "BOWWAVE_RUN_OPTIONS";
const REPORT: &str = "BOWWAVE_RUN_REPORT";
const STARTED: &str = "BOWWAVE_RUN_STARTED";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_a_url_and_a_path_or_one_that_is_both() {
        let map =
            |text: &str| Map::parse(text).map(|map| (map.url, map.prefix.into_string().expect("UTF-8")));
        let both = |url: &str, path: &str| Ok((url.to_owned(), path.to_owned()));
        assert_eq!(map("s3://bucket/a=/data"), both("s3://bucket/a", "/data"));
        assert_eq!(map("s3://bucket/a=/data/./x/../y/"), both("s3://bucket/a", "/data/y"));
        assert_eq!(map("s3://bucket/a"), both("s3://bucket/a", "s3://bucket/a"));
        assert_eq!(map("emulate:s3,latency=10ms:/srv=/data"), both("emulate:s3,latency=10ms:/srv", "/data"));
        assert_eq!(
            map("emulate:s3,latency=10ms/1GiB"),
            both("emulate:s3,latency=10ms/1GiB", "emulate:s3,latency=10ms/1GiB")
        );
        assert_eq!(map("/usr=/data"), both("/usr", "/data"));
        assert_eq!(map("/usr/bin/.."), both("/usr", "/usr"));
        for bad in ["pattern:/=/", "/no/such/directory", ""] {
            assert!(map(bad).is_err(), "{bad}");
        }
    }
}
