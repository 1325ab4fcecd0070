//! The log: lines with level and module to standard error, a file, journald or syslog.
//!
//! Records of other crates are dropped: at lower levels, HTTP libraries log headers with
//! credentials.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use bowwave_engine::backend::sync::RwLock;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::Failure;

/// Destination and levels of the log.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// Append the log to this file; by default to journald or syslog with --daemon, else to
    /// standard error
    #[arg(long, value_name = "PATH")]
    log_file: Option<PathBuf>,

    /// Levels of the log: error, warn, info, debug or trace, or off, for all modules or one, as in
    /// info,store=debug
    ///
    /// Modules: mount (start and end), calls (file system calls that failed), store (retries,
    /// timeouts, throttling), cache (evictions), control (ctl and status).
    #[arg(long, value_name = "LEVEL[,MODULE=LEVEL]", default_value = "info", value_parser = spec, hide_short_help = true)]
    log: String,

    /// Also log retries, timeouts, throttling and evictions: --log debug
    #[arg(long, short, conflicts_with_all = ["log", "quiet"], hide_short_help = true)]
    verbose: bool,

    /// Log errors only: --log error
    #[arg(long, short, conflicts_with = "log", hide_short_help = true)]
    quiet: bool,
}

impl LogArgs {
    /// Whether only errors are logged.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Starts the log of a mount; returns a note on its destination unless it is standard error.
    pub(crate) fn start(&self, daemon: bool) -> Result<Option<String>, Failure> {
        let levels = match (self.verbose, self.quiet) {
            (true, _) => "debug",
            (_, true) => "error",
            _ => &self.log,
        };
        let (sink, place) = match &self.log_file {
            Some(path) => (Sink::file(path)?, Some(format!("its log is {}", path.display()))),
            None if daemon => match Sink::system() {
                Some((sink, place)) => (sink, Some(format!("its log is in {place}"))),
                None => (Sink::Stderr, Some("without a log (--log-file PATH writes one)".to_owned())),
            },
            None => (Sink::Stderr, None),
        };
        start(sink, levels);
        Ok(place)
    }
}

/// Starts a log on standard error.
pub(crate) fn to_stderr() {
    start(Sink::Stderr, "info");
}

fn start(sink: Sink, levels: &str) {
    let logger = LOGGER.get_or_init(|| Logger { sink, levels: RwLock::default() });
    // The only logger; a second call changes nothing.
    let _set_before = log::set_logger(logger);
    let _parsed_before = set_levels(levels);
}

/// Also logs panics: in the background, standard error is lost.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| log::error!(target: MOUNT, "a thread panicked: {panic}")));
}

/// Changes the levels of a running log.
pub(crate) fn set_levels(text: &str) -> Result<(), String> {
    let levels = Levels::parse(text)?;
    if let Some(logger) = LOGGER.get() {
        log::set_max_level(levels.most());
        *logger.levels.write() = levels;
    }
    Ok(())
}

/// The levels as last given.
pub(crate) fn levels() -> String {
    LOGGER.get().map_or_else(String::new, |logger| logger.levels.read().text.clone())
}

fn spec(text: &str) -> Result<String, String> {
    Levels::parse(text).map(|levels| levels.text)
}

/// The modules: targets of the records.
const MODULES: [&str; 5] = [MOUNT, CALLS, STORE, CACHE, CONTROL];
/// Start and end of a mount.
pub(crate) const MOUNT: &str = "mount";
/// Failed file system calls.
pub(crate) const CALLS: &str = "calls";
/// Events of the store.
pub(crate) const STORE: &str = "store";
/// Events of the cache.
pub(crate) const CACHE: &str = "cache";
/// Requests of `ctl` and `status`.
pub(crate) const CONTROL: &str = bowwave_control::LOG;

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Levels {
    text: String,
    /// Level of each of [`MODULES`].
    of: [LevelFilter; MODULES.len()],
}

impl Default for Levels {
    fn default() -> Self {
        Self { text: "off".to_owned(), of: [LevelFilter::Off; MODULES.len()] }
    }
}

impl Levels {
    fn parse(text: &str) -> Result<Self, String> {
        let level = |text: &str| {
            let unknown = |_| format!("'{text}' is no level; there are off, error, warn, info, debug, trace");
            text.parse::<LevelFilter>().map_err(unknown)
        };
        let (of_modules, of_all): (Vec<_>, Vec<_>) = text.split(',').partition(|part| part.contains('='));
        let mut of = [LevelFilter::Info; MODULES.len()];
        for part in of_all {
            of = [level(part)?; MODULES.len()];
        }
        for (module, text) in of_modules.into_iter().filter_map(|part| part.split_once('=')) {
            let unknown = || format!("there is no module '{module}'; there are {}", MODULES.join(", "));
            of[MODULES.iter().position(|known| *known == module).ok_or_else(unknown)?] = level(text)?;
        }
        Ok(Self { text: text.to_owned(), of })
    }

    fn most(&self) -> LevelFilter {
        self.of.into_iter().max().unwrap_or(LevelFilter::Off)
    }
}

struct Logger {
    sink: Sink,
    levels: RwLock<Levels>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let levels = self.levels.read();
        let module = MODULES.iter().position(|module| *module == metadata.target());
        module.is_some_and(|module| metadata.level() <= levels.of[module])
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.sink.write(record);
        }
    }

    fn flush(&self) {}
}

enum Sink {
    Stderr,
    File(File),
    /// journald's native protocol.
    Journal(UnixDatagram),
    Syslog(UnixDatagram),
}

impl Sink {
    fn file(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        let file =
            options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        file.open(path).map(Sink::File).map_err(|error| failed!("--log-file {}: {error}", path.display()))
    }

    /// The system log, if there is one.
    fn system() -> Option<(Self, &'static str)> {
        let socket = UnixDatagram::unbound().ok()?;
        // A full log queue must not block a mount.
        socket.set_nonblocking(true).ok()?;
        if Path::new(JOURNAL).exists() {
            return Some((Self::Journal(socket), "the journal (journalctl -t bowwave)"));
        }
        Path::new(SYSLOG).exists().then_some((Self::Syslog(socket), "syslog"))
    }

    /// A line that cannot be written is lost: there is nowhere to report it.
    fn write(&self, record: &Record<'_>) {
        let message = one_line(&record.args().to_string());
        let module = record.target();
        let _lost = match self {
            Self::Stderr => {
                let word = match record.level() {
                    Level::Error => "error",
                    Level::Warn => "warning",
                    _ => "note",
                };
                writeln!(io::stderr(), "bowwave: {word}: {message}")
            }
            Self::File(file) => {
                let time = humantime::format_rfc3339_millis(SystemTime::now());
                let level = record.level().as_str().to_lowercase();
                // One call: lines of several processes in one file stay whole.
                (&*file).write_all(format!("{time} {level} {module}: {message}\n").as_bytes())
            }
            Self::Journal(socket) => {
                let text = format!(
                    "PRIORITY={}\nSYSLOG_IDENTIFIER=bowwave\nBOWWAVE_MODULE={module}\nMESSAGE={module}: {message}\n",
                    priority(record.level())
                );
                socket.send_to(text.as_bytes(), JOURNAL).map(drop)
            }
            Self::Syslog(socket) => {
                let number = DAEMON * 8 + priority(record.level());
                let text = format!("<{number}>bowwave[{}]: {module}: {message}", std::process::id());
                socket.send_to(text.as_bytes(), SYSLOG).map(drop)
            }
        };
    }
}

/// A message without control characters that fits a datagram: store names may contain anything.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for letter in message.chars() {
        if line.len() >= MESSAGE_MAX {
            line.push('…');
            break;
        }
        let written = if letter.is_control() {
            write!(line, "{}", letter.escape_debug())
        } else {
            line.write_char(letter)
        };
        written.expect("a string takes it");
    }
    line
}

/// Severities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Maximum bytes of a message, without escapes.
const MESSAGE_MAX: usize = 4096;
/// Facility of syslog(3).
const DAEMON: u8 = 3;
const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(levels: &str, target: &str, level: Level) -> bool {
        let logger =
            Logger { sink: Sink::Stderr, levels: RwLock::new(Levels::parse(levels).expect("a level")) };
        logger.enabled(&Metadata::builder().target(target).level(level).build())
    }

    #[test]
    fn levels_hold_for_all_modules_or_one_and_never_for_other_crates() {
        assert!(enabled("info", CALLS, Level::Warn) && !enabled("info", CALLS, Level::Debug));
        assert!(enabled("warn,store=debug", STORE, Level::Debug));
        assert!(!enabled("warn,store=debug", CALLS, Level::Info));
        assert!(!enabled("trace", "hyper::proto", Level::Error));
        assert!(spec("loud").is_err_and(|why| why.contains("there are off, error")));
        assert!(spec("info,hyper=trace").is_err_and(|why| why.contains("there are mount, calls")));
    }

    #[test]
    fn a_name_with_control_characters_cannot_forge_a_line() {
        assert_eq!(one_line("a\nbowwave: note: b\x1b[2J"), "a\\nbowwave: note: b\\u{1b}[2J");
        assert!(one_line(&"x".repeat(1 << 20)).len() < MESSAGE_MAX + 8);
    }
}
