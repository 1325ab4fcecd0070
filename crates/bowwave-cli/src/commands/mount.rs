//! `bowwave mount`: mounts a store.

mod background;
mod counters;
mod owners;
mod subject;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_control::{Server, Subject};
use bowwave_core::Policy;
use bowwave_fuse::{Consistency, Mount, MountOptions, Unmounter};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::cli::HelpArgs;
use crate::commands::uploads;
use crate::journal::{self, JournalArgs};
use crate::logging::{self, LogArgs};
use crate::mounted::Calls;
use crate::output::Output;
use crate::setup::{CacheArgs, DiskArgs, Opened, StoreArgs, WriteArgs};
use crate::values::{duration_text, size_text};
use crate::{Failure, persisted, values};
use counters::Monitor;
use owners::OwnerArgs;
use subject::Mounted;
pub(crate) use trace::ReadTrace;

/// Arguments of `bowwave mount`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  bowwave mount s3://bucket/prefix /mnt/data --region eu-west-1
  bowwave mount /srv/data /mnt/data --read-only
  bowwave mount https://example.org/data/ /mnt/data --daemon
  bowwave mount emulate:s3:/srv/data /mnt/data --policy none --stats-on-exit
  bowwave mount gs://bucket /mnt/data --cache 8GiB --ra-pages 32MiB
  bowwave mount s3://bucket /mnt/data --journal decisions.jsonl"
)]
pub(crate) struct Args {
    /// What to mount: a path, file:, http(s):, s3:, gs:, az:, pattern:/, emulate:PROFILE:URL
    #[arg(value_name = "URL")]
    url: String,

    /// The mount point: an empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Stay in the foreground (the default)
    #[arg(long, short, conflicts_with = "daemon", hide_short_help = true)]
    foreground: bool,

    /// Go to the background once the mount is ready
    #[arg(long, short)]
    daemon: bool,

    /// Refuse every change
    #[arg(long)]
    read_only: bool,

    /// Let other users use it, as permissions allow
    #[arg(long)]
    allow_other: bool,

    /// The readahead policy
    #[arg(long, value_name = "POLICY", default_value = "stream", hide_short_help = true, value_parser = values::policy())]
    policy: Policy,

    /// Requests of the kernel served at once
    #[arg(long, value_name = "N", default_value_t = 64, hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Maximum time to write dirty bytes to the store at the end of the mount
    #[arg(long, value_name = "TIME", default_value = "5min", hide_short_help = true, value_parser = values::duration)]
    write_out_timeout: Duration,

    /// First abort unfinished uploads in an object store that are at least this old
    ///
    /// Killed writers leave them behind; 'bowwave uploads' lists them. An upload of that age that
    /// is in progress fails, whichever machine runs it.
    #[arg(long, value_name = "AGE", hide_short_help = true, value_parser = values::duration)]
    abort_uploads: Option<Duration>,

    /// How long names, sizes and times may be kept
    #[arg(long, value_name = "TIME", default_value = "1s", hide_short_help = true, value_parser = values::duration)]
    ttl: Duration,

    /// How old names and versions of an object store may be
    ///
    /// Bytes of two versions never mix, in any mode. docs/SEMANTICS.md has the promises of each.
    #[arg(long, value_enum, value_name = "MODE", default_value = "ttl", hide_short_help = true)]
    consistency: Mode,

    /// Write the reads of programs to this file, as a trace for 'bowwave replay' and 'bowwave
    /// explain'
    ///
    /// Each row is a read that the kernel requests, with time, thread, file, offset and length; a
    /// second row has its end. docs/guide-traces.md describes them.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    trace: Option<PathBuf>,

    /// At the end, print the counters of the cache
    #[arg(long, conflicts_with = "daemon")]
    stats_on_exit: bool,

    /// Print the counters as JSON
    #[arg(long, requires = "stats_on_exit", hide_short_help = true)]
    json: bool,

    #[command(flatten)]
    journal: JournalArgs,

    #[command(flatten)]
    help: HelpArgs,

    // After the options without a heading: its heading would cover them.
    #[command(flatten)]
    owners: OwnerArgs,

    #[command(flatten)]
    log: LogArgs,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Internal: this is the process in the background, which reports on standard output when the
    /// mount is ready
    #[arg(long, hide = true)]
    tell_ready: bool,
}

/// How old may be what programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Each lookup and each open asks the store
    Strict,
    /// Each open asks the store; names and attributes are kept for --ttl
    Open,
    /// Names, attributes and versions are kept for --ttl; the first read of a file compares its
    /// version
    Ttl,
}

impl Mode {
    fn consistency(self) -> Consistency {
        match self {
            Self::Strict => Consistency::Strict,
            Self::Open => Consistency::Open,
            Self::Ttl => Consistency::Ttl,
        }
    }
}

/// Applies the settings that `ctl set --persist` stored for this mount point.
fn apply_persisted(subject: &dyn Subject, point: &Path) {
    let stored = persisted::load(point);
    let settings = stored.unwrap_or_else(|error| {
        log::warn!(target: logging::CONTROL, "the stored settings cannot be read: {error}");
        Vec::new()
    });
    for (key, value) in settings {
        match subject.set(&key, &value) {
            Ok(()) => log::info!(target: logging::CONTROL, "{key} is {value}, as stored by 'bowwave ctl'"),
            Err(why) => log::warn!(
                target: logging::CONTROL,
                "a stored setting is ignored: {why}; 'bowwave ctl {} forget {key}' removes it",
                point.display()
            ),
        }
    }
}

/// Mounts, and serves until the end.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.daemon && !args.tell_ready {
        return background::start(args);
    }
    background::hide(&args.url)?;
    let log = args.log.start(args.daemon)?;
    let url = background::url(args);
    let journal = args.journal.open()?;
    let opened = Arc::new(Opened::for_writing(
        &args.disk.url(&url)?,
        args.policy(),
        (&args.cache(), &args.store),
        (args.write, args.owners.stores_attributes()),
        journal.clone(),
    )?);
    let metadata = args.owners.metadata_of(&opened)?;
    prepare(args, &opened)?;
    // Created files have the permissions that programs request: their umask applies, not ours.
    let _ours = rustix::process::umask(rustix::fs::Mode::empty());
    let signals = signals().map_err(|error| failed!("cannot listen for signals: {error}"))?;
    let options = MountOptions {
        warns_unversioned: opened.store.backend().network().is_some(),
        lists_sizes: opened.store.profile().lists_sizes,
        metadata,
        assumes_plain: args.owners.assumes_plain(),
        tells_reads: args.trace.is_some(),
        ..args.options()
    };
    let calls = Arc::<Calls>::default();
    let trace = args.trace.as_deref().map(ReadTrace::create).transpose()?.map(Arc::new);
    let mount = Mount::with_listener(opened.store.clone(), &args.dir, options, calls.listener(trace.clone()))
        .map_err(Failure::failed)?;
    let listener = Listener::start(signals, mount.unmounter())?;
    let monitor = Monitor::start(Arc::clone(&opened), Arc::clone(&calls));
    let subject = Arc::new(args.subject(&opened, calls, &mount));
    apply_persisted(&*subject, mount.point());
    let server = Server::start(subject);
    if let Err(error) = &server {
        log::warn!(target: logging::CONTROL, "'bowwave status', 'ctl' and 'umount' cannot ask this mount: {error}");
    }
    let access = access(&mount, args);
    let dir = mount.point().display();
    let mounted = format!("{} is mounted at {dir}, {access}, {}", opened.store.url(), opened.readahead());
    if log.is_some() {
        log::info!(target: logging::MOUNT, "{mounted}, by process {}", std::process::id());
        logging::panics();
    }
    if args.tell_ready {
        background::detach(&log.iter().fold(access.to_owned(), |access, log| format!("{access}, {log}")))?;
    } else {
        note!("{mounted}; end it with Ctrl-C or 'bowwave umount {dir}'");
    }
    let outcome = listener.outcome(&mount);
    drop(monitor);
    if log.is_some() {
        match &outcome {
            Ok(()) => log::info!(target: logging::MOUNT, "{dir} is unmounted"),
            Err(failure) => log::error!(target: logging::MOUNT, "{dir} has ended: {failure}"),
        }
    }
    if let Ok(server) = server {
        server.end(outcome.as_ref().map(drop).map_err(ToString::to_string));
    }
    drop(mount);
    journal::end(journal.as_ref());
    let traced = trace.map_or(Ok(()), |trace| trace.finish());
    if args.stats_on_exit {
        let mut output = Output::stdout();
        let printed = counters::print(&mut output, &opened, args.json);
        output.finish(printed)?;
    }
    outcome.and(traced)
}

/// Probes a slow store while Ctrl-C still simply ends the process, and aborts old uploads.
fn prepare(args: &Args, opened: &Opened) -> Result<(), Failure> {
    if let Some(note) = opened.store.backend().probe()? {
        background::note(args.tell_ready, &note)?;
    }
    if let Some(age) = args.abort_uploads {
        let aborted = uploads::abort_old(opened.store.backend(), age)?;
        if aborted > 0 {
            note!("{aborted} uploads that were not finished are aborted");
        }
    }
    Ok(())
}

/// Catches signals: from here on the first one must not end the process and leave the mount behind.
/// If the unmount hangs, a second signal still ends it.
fn signals() -> std::io::Result<Signals> {
    let impatient = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag clear, the second finds it set.
        flag::register_conditional_default(signal, Arc::clone(&impatient))?;
        flag::register(signal, Arc::clone(&impatient))?;
    }
    Signals::new([SIGINT, SIGTERM, SIGHUP])
}

/// The permitted access, and the reason if it is read-only.
fn access(mount: &Mount, args: &Args) -> &'static str {
    match (mount.is_read_only(), args.read_only) {
        (false, _) => "for reading and writing",
        (true, true) => "read-only",
        (true, false) => "read-only (this store cannot be written)",
    }
}

impl Args {
    /// Configures the cache with the kernel's fault-around size.
    fn cache(&self) -> CacheArgs {
        let asked = self.options().readahead_bytes();
        // Unprivileged users are not granted more.
        let around = if rustix::process::geteuid().is_root() { asked } else { asked.min(128 << 10) };
        self.cache.clone().behind_a_kernel(around.into())
    }

    fn policy(&self) -> Policy {
        self.cache.set.policy().unwrap_or(self.policy)
    }

    /// Data for the control channel.
    fn subject(&self, opened: &Arc<Opened>, calls: Arc<Calls>, mount: &Mount) -> Mounted {
        let options = opened.engine.options();
        let auto = |value: Option<String>| value.unwrap_or_else(|| "auto".to_owned());
        let store = &options.store;
        let fixed = vec![
            ("cache", auto(options.cache_bytes.map(size_text))),
            ("page_size", size_text(options.page_bytes)),
            ("threads", self.threads.to_string()),
            ("ttl", duration_text(self.ttl)),
            ("consistency", values::name(&self.consistency)),
            ("write_out_timeout", duration_text(self.write_out_timeout)),
            ("connections", auto(store.connections.map(|count| count.to_string()))),
            ("timeout", duration_text(store.timeout)),
            ("deadline", auto(store.deadline.map(duration_text))),
            ("min_rate", size_text(store.least_rate)),
            ("list_max", store.list_entries_max.to_string()),
            ("retries", options.retries.to_string()),
            ("hedge", options.hedge_percent.to_string()),
        ];
        Mounted {
            opened: Arc::clone(opened),
            calls,
            dir: mount.point().to_owned(),
            device: mount.device(),
            announcer: mount.announcer(),
            read_only: mount.is_read_only(),
            started: (Instant::now(), SystemTime::now()),
            fixed,
            tunables: self.cache.set.values(),
        }
    }

    fn options(&self) -> MountOptions {
        self.owners.add_to(MountOptions {
            kernel_readahead_bytes: self.cache.set.kernel_readahead_bytes(),
            kernel_cache: self.cache.set.kernel_cache(self.policy()),
            ttl: self.ttl,
            consistency: self.consistency.consistency(),
            requests_max: self.threads as usize,
            allow_other: self.allow_other,
            read_only: self.read_only,
            write_out_timeout: self.write_out_timeout,
            ..MountOptions::default()
        })
    }
}

/// Unmounts on a signal.
struct Listener {
    handle: signal_hook::iterator::Handle,
    thread: thread::JoinHandle<Result<(), Failure>>,
}

impl Listener {
    fn start(mut signals: Signals, unmounter: Unmounter) -> Result<Self, Failure> {
        let refused = |error| failed!("cannot listen for signals: {error}");
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let Some(_asked) = signals.forever().next() else { return Ok(()) };
            unmounter.unmount().map_err(Failure::failed)
        });
        Ok(Self { handle, thread: thread.map_err(refused)? })
    }

    /// Waits for the end of the mount. Returns its failure, else the failure of an unmount by
    /// signal.
    fn outcome(self, mount: &Mount) -> Result<(), Failure> {
        let ended = mount.wait().map_err(Failure::failed);
        self.handle.close();
        let unmounted = self.thread.join();
        ended.and_then(|()| {
            unmounted.unwrap_or_else(|_| Err(Failure::failed("the thread that unmounts panicked")))
        })
    }
}
