//! `bowwave mount`: shows a store as files.

mod background;
mod stats;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use bowwave_core::Policy;
use bowwave_fuse::{KernelCache, Mount, MountOptions, Unmounter};
use clap::ValueEnum;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::commands::uploads;
use crate::mounted::complaints;
use crate::output::{self, Output};
use crate::setup::{self, CacheArgs, DiskArgs, Opened, StoreArgs, WriteArgs};
use crate::{Failure, values};

/// Arguments of `bowwave mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What can be written in the store can be written in the mount: any byte of a folder's files, whole objects of a cloud. \
What was written is in the store when fsync returns, at the latest when the file is closed. The mount ends with Ctrl-C, SIGTERM, 'bowwave umount DIR', 'fusermount3 -u DIR' or 'umount DIR'. A store \
that is one file shows as a folder with that file.

Other processes cannot trace or dump this one, which holds credentials, unless BOWWAVE_DUMPABLE=1 is set.

Examples:
  bowwave mount s3://bucket/prefix /mnt/data --region eu-west-1
  bowwave mount /srv/data /mnt/data --read-only
  bowwave mount https://example.org/data/ /mnt/data --daemon
  bowwave mount emulate:s3:/srv/data /mnt/data --policy none --stats-on-exit
  bowwave mount gs://bucket /mnt/data --cache 8GiB --ra-pages 8192")]
pub struct Args {
    /// What to mount: a path, file:, http(s):, s3:, gs:, az:, pattern:/, emulate:PROFILE:URL
    #[arg(value_name = "URL")]
    url: String,

    /// Where: an empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Stay in the foreground (the default)
    #[arg(long, short, conflicts_with = "daemon")]
    foreground: bool,

    /// Go to the background once the mount is ready
    #[arg(long, short)]
    daemon: bool,

    /// The readahead policy
    #[arg(long, value_name = "POLICY", default_value = "stream", value_parser = values::policy())]
    policy: Policy,

    /// Requests of the kernel served at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Let other users use it, as permissions allow
    #[arg(long)]
    allow_other: bool,

    /// Refuse every change
    #[arg(long)]
    read_only: bool,

    /// How long the end of the mount may wait for the store to take what was written
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = values::duration)]
    write_out_timeout: Duration,

    /// First abort uploads in an object store that were begun at least so long ago and not finished
    ///
    /// Writers that were killed leave them. Who is writing for so long, from here or elsewhere, fails; 'bowwave uploads'
    /// lists them.
    #[arg(long, value_name = "AGE", value_parser = values::duration)]
    abort_uploads: Option<Duration>,

    /// How long the kernel may trust names, sizes and times
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    ttl: Duration,

    /// Whether the kernel keeps what was read, too
    ///
    /// off brings every read to bowwave with the offset and length that the program gave, and keeps nothing twice;
    /// small reads then cost a request each. auto is on, but off with '--policy none': where the kernel keeps pages it
    /// also reads ahead by itself.
    #[arg(long, value_enum, default_value_t = Keep::Auto)]
    kernel_cache: Keep,

    /// Largest window of the kernel's own readahead, which only joins small sequential reads into larger requests
    ///
    /// From 0 to 1 MiB; more than 128 KiB needs root. 0 makes each page a request of its own.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = values::size)]
    kernel_readahead: u64,

    /// At the end, print what the cache did
    #[arg(long, conflicts_with = "daemon")]
    stats_on_exit: bool,

    /// Print that as JSON
    #[arg(long, requires = "stats_on_exit")]
    json: bool,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// We are the process in the background: say on standard output when the mount is ready
    #[arg(long, hide = true)]
    tell_ready: bool,
}

/// What the kernel's page cache does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keep {
    /// On, but off without readahead
    Auto,
    /// The kernel's page cache keeps what was read
    On,
    /// It does not
    Off,
}

/// Mounts, and serves until the end.
///
/// # Errors
/// If the store cannot be opened, or nothing can be mounted there: before anything is mounted.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.daemon && !args.tell_ready {
        return background::start(&args.url, &args.dir);
    }
    background::hide(&args.url)?;
    let url = background::url(args);
    let opened =
        Opened::for_writing(&args.disk.url(&url)?, args.policy, (&args.cache(), &args.store), args.write)?;
    // Whatever takes long is asked for while Ctrl-C still simply ends us; the mount asks again.
    if let Some(note) = opened.store.probe().map_err(|error| setup::of_engine(&error))? {
        background::note(args.tell_ready, &note)?;
    }
    if let Some(age) = args.abort_uploads {
        let aborted = uploads::abort_old(&opened.store, age)?;
        if aborted > 0 {
            output::note(format_args!("{aborted} uploads that were not finished are aborted"));
        }
    }
    // What programs make has the permissions that they ask for: their umask counts, not ours.
    let _ours = rustix::process::umask(rustix::fs::Mode::empty());
    // From here on a signal must not end us with the mount left behind. Should the unmount hang, a second one still does.
    let impatient = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, the second finds it up.
        flag::register_conditional_default(signal, Arc::clone(&impatient))
            .and_then(|_| flag::register(signal, Arc::clone(&impatient)))
            .map_err(|error| Failure::failed(format_args!("cannot listen for signals: {error}")))?;
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::failed(format_args!("cannot listen for signals: {error}")))?;
    let options = MountOptions {
        caution: opened.store.network().is_some(),
        lists_sizes: opened.store.profile().lists_sizes,
        ..args.options()
    };
    let mount = Mount::with_listener(opened.store.clone(), &args.dir, options, complaints())
        .map_err(Failure::failed)?;
    let listener = Listener::start(signals, mount.unmounter())?;
    let access = access(&mount, args);
    if args.tell_ready {
        background::detach(access)?;
    } else {
        let dir = mount.point().display();
        output::note(format_args!(
            "{} is mounted at {dir}, {access}, {}; end it with Ctrl-C or 'bowwave umount {dir}'",
            opened.store.url(),
            opened.readahead()
        ));
    }
    let ended = mount.wait().map_err(Failure::failed);
    let unmounted = listener.outcome();
    drop(mount);
    if args.stats_on_exit {
        let mut output = Output::stdout();
        let printed = stats::print(&mut output, &opened, args.json);
        output.finish(printed)?;
    }
    ended.and(unmounted)
}

/// What can be done in a mount, and if only reading, why.
fn access(mount: &Mount, args: &Args) -> &'static str {
    match (mount.is_read_only(), args.read_only) {
        (false, _) => "for reading and writing",
        (true, true) => "read-only",
        (true, false) => "read-only (this store cannot be written)",
    }
}

impl Args {
    /// The cache is told what the kernel asks for when a mapped page is touched.
    fn cache(&self) -> CacheArgs {
        let asked = self.options().readahead_bytes();
        // Others are not granted more.
        let around = if rustix::process::geteuid().is_root() { asked } else { asked.min(128 << 10) };
        self.cache.clone().behind_a_kernel(around.into())
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            kernel_readahead_bytes: u32::try_from(self.kernel_readahead).unwrap_or(u32::MAX),
            kernel_cache: match self.kernel_cache {
                Keep::Auto if self.policy == Policy::None => KernelCache::Off,
                Keep::Auto | Keep::On => KernelCache::On,
                Keep::Off => KernelCache::Off,
            },
            ttl: self.ttl,
            requests_max: self.threads as usize,
            allow_other: self.allow_other,
            read_only: self.read_only,
            write_out_timeout: self.write_out_timeout,
            ..MountOptions::default()
        }
    }
}

/// Unmounts when a signal comes.
struct Listener {
    handle: signal_hook::iterator::Handle,
    thread: thread::JoinHandle<Result<(), Failure>>,
}

impl Listener {
    fn start(mut signals: Signals, unmounter: Unmounter) -> Result<Self, Failure> {
        let refused = |error| Failure::failed(format_args!("cannot listen for signals: {error}"));
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let Some(_asked) = signals.forever().next() else { return Ok(()) };
            unmounter.unmount().map_err(Failure::failed)
        });
        Ok(Self { handle, thread: thread.map_err(refused)? })
    }

    /// What became of it, once the mount has ended.
    fn outcome(self) -> Result<(), Failure> {
        self.handle.close();
        self.thread.join().unwrap_or_else(|_| Err(Failure::failed("the unmount broke down")))
    }
}
