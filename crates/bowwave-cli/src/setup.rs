//! Options of commands that read through the cache, and the engine they configure.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowwave_backend::{Backend, ErrorKind};
use bowwave_engine::{
    AheadBudget, DecisionLog, Engine, Options, Policy, RangeConfig, Settings, Store, StreamConfig,
    available_memory,
};

use crate::tunables::SetArgs;
use crate::{Failure, values};

/// How to reach stores.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// URL of the object store's server, in place of the cloud's own
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,

    /// Region of the object store
    #[arg(long)]
    region: Option<String>,

    /// Let the object store's endpoint be plain http
    #[arg(long)]
    allow_http: bool,

    /// Send the object store's requests unsigned, for public data
    #[arg(long)]
    anonymous: bool,

    /// Maximum requests in flight; without it, what suits the store
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Option<u32>,

    /// Maximum wait for a connection, for a response, or between two bytes of a response
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    timeout: Duration,

    /// Maximum time of a read or lookup over a network, all attempts together; without it, 1.25
    /// times --timeout
    ///
    /// After it, the program gets ETIMEDOUT. Uploads may take longer while their bytes are sent.
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = positive_duration)]
    deadline: Option<Duration>,

    /// Minimum throughput of a response over a network, in bytes a second, over each --timeout; 0
    /// for none
    ///
    /// A slower response is cancelled and requested again. Lower it for slower links.
    #[arg(long, hide_short_help = true, value_name = "SIZE", default_value = "4KiB", value_parser = values::size)]
    min_rate: u64,

    /// Refuse objects without a strong ETag: their versions cannot be distinguished for certain
    #[arg(long, hide_short_help = true)]
    require_version: bool,

    /// Do not compare data read from S3 with the checksums of the store
    #[arg(long, hide_short_help = true)]
    no_verify: bool,

    /// Maximum entries of a directory of an object store; each takes about 400 bytes while it is
    /// listed
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    list_max: u64,

    /// Largest file that is read whole from a web server without range requests; 0 for none
    ///
    /// Takes memory for at most two such files at once.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::size)]
    no_range_max: u64,

    /// Do not list the directories of a web server by its index pages
    ///
    /// Files are then opened by name alone. A mount does not check that its directory is there.
    #[arg(long, hide_short_help = true)]
    no_index: bool,

    /// Retries of a failed request, where a retry may help
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,

    /// Maximum share of demand reads that are sent a second time because they are late, in percent
    ///
    /// The first response counts. Each costs a request, so it is off by default. Useful where one
    /// request in a hundred takes a second. Writes are never sent a second time.
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    hedge: u32,
}

/// The disk cache.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Disk")]
pub(crate) struct DiskArgs {
    /// Also write pages read from the store to this directory, for later processes
    ///
    /// Pages are stored by version and with checksums. Several processes may share the directory,
    /// which is created if it is missing. It must belong to this user, and other users must not be
    /// able to write to it or replace it.
    #[arg(long, value_name = "DIR")]
    disk_cache: Option<PathBuf>,

    /// Maximum bytes that --disk-cache holds; at least 64MiB
    #[arg(long, value_name = "SIZE", default_value = "10GiB", requires = "disk_cache", value_parser = values::positive_size)]
    disk_size: u64,
}

impl DiskArgs {
    /// The URL of a store behind the disk cache, if one is requested.
    pub(crate) fn url(&self, url: &str) -> Result<String, Failure> {
        let Some(directory) = &self.disk_cache else { return Ok(url.to_owned()) };
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
        match directory.to_str().filter(|directory| !directory.contains([',', ':'])) {
            Some(directory) => Ok(format!("disk:directory={directory},size={}:{url}", self.disk_size)),
            None => Err(usage!(
                "--disk-cache {}: the name may hold no comma, no colon and nothing that is not UTF-8",
                directory.display()
            )),
        }
    }
}

/// How the cache works.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheArgs {
    /// Memory for pages and their metadata; without it, a quarter of the machine's, for a mount
    /// three eighths, at most 192 MiB
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    cache: Option<u64>,

    /// Size of a page: a power of two from 4 KiB to 2 MiB
    #[arg(long, hide_short_help = true, value_name = "SIZE", default_value = "4KiB", value_parser = values::positive_size)]
    page_size: u64,

    /// Largest readahead window, as a size (1MiB) or in pages; without it, what suits the store
    ///
    /// The default is 128 KiB for low-latency stores such as a local disk (as in Linux), else the
    /// store's best request size: about ten times latency × bandwidth of one connection; at most a
    /// sixteenth of the cache. For the policy stream it is at most 1 MiB, because that policy keeps
    /// several windows ahead of each reader.
    #[arg(long, value_name = "SIZE|PAGES", value_parser = values::window)]
    ra_pages: Option<values::Window>,

    /// Maximum readahead in flight, of all files together; without it, what memory allows
    ///
    /// Readahead beyond it is skipped. Demand reads do not count. 0 disables readahead.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::size)]
    ahead_max: Option<u64>,

    #[command(flatten)]
    pub(crate) set: SetArgs,

    /// Bytes that the kernel in front of a mount reads around a fault of a mapped page; 0 without
    /// one.
    #[arg(skip)]
    fault_bytes: u64,
}

impl CacheArgs {
    /// The same for a mount, whose kernel reads `fault_bytes` around a fault of a mapped page.
    pub(crate) fn behind_a_kernel(self, fault_bytes: u64) -> Self {
        let cache = self.cache.unwrap_or_else(|| mount_cache_bytes(available_memory()));
        Self { fault_bytes, cache: Some(cache), ..self }
    }
}

/// The default `--cache` of a mount, for the machine's or the control group's bytes of memory.
fn mount_cache_bytes(memory: u64) -> u64 {
    (memory / 8 * 3).min(MOUNT_CACHE_BYTES)
}

/// Most memory of a mount by default, in bytes. The kernel caches what was read, so more memory
/// keeps a second copy. Less: fewer windows of many readers.
const MOUNT_CACHE_BYTES: u64 = 192 << 20;

/// Dirty data: written, but not in the store yet.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WriteArgs {
    /// Dirty bytes at which writers wait; without it, a fifth of the cache
    ///
    /// At most half of the cache. Linux's dirty_bytes.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    dirty_limit: Option<u64>,

    /// Dirty bytes at which write-back starts; without it, half of --dirty-limit
    ///
    /// Linux's dirty_background_bytes. Below --dirty-limit.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::size)]
    dirty_background: Option<u64>,

    /// Age at which dirty bytes are written back, however few
    ///
    /// Linux's dirty_expire_centisecs.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    dirty_expire: Duration,
}

impl WriteArgs {
    fn add_to(self, options: Options) -> Options {
        Options {
            dirty_bytes: self.dirty_limit,
            dirty_background_bytes: self.dirty_background,
            dirty_expire: self.dirty_expire,
            ..options
        }
    }
}

/// A store behind a fresh cache.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The cache.
    pub(crate) engine: Engine,
    /// The store, read through it.
    pub(crate) store: Store,
    /// Whether `ra_pages` was chosen for the store.
    pub(crate) chosen: bool,
}

impl Opened {
    /// Opens `url` behind a cache of its own.
    pub(crate) fn new(
        url: &str,
        policy: Policy,
        cache: &CacheArgs,
        store: &StoreArgs,
    ) -> Result<Self, Failure> {
        let Settings { options, ra_pages } = settings(policy, cache, store);
        let opened = Self::over(open(url, &options)?, options, ra_pages)?;
        cache.set.apply(&opened.engine)?;
        Ok(opened)
    }

    /// The same for reading and writing; with `attributes`, the store keeps modes, owners and times
    /// of files if it can.
    pub(crate) fn for_writing(
        url: &str,
        policy: Policy,
        (cache, store): (&CacheArgs, &StoreArgs),
        (write, attributes): (WriteArgs, bool),
        decisions: Option<DecisionLog>,
    ) -> Result<Self, Failure> {
        let mut settings = settings(policy, cache, store);
        settings.options.store.attributes = attributes;
        settings.options.store.new_prefix = true;
        settings.options.decisions = decisions;
        let options = Options { yields_memory: true, ..write.add_to(settings.options) };
        let opened = Self::over(open(url, &options)?, options, settings.ra_pages)?;
        cache.set.apply(&opened.engine)?;
        Ok(opened)
    }

    /// Puts a new cache in front of `backend`, with windows of `ra_pages`, or of what suits the
    /// store.
    pub(crate) fn over(
        backend: Arc<dyn Backend>,
        options: Options,
        ra_pages: Option<u32>,
    ) -> Result<Self, Failure> {
        let settings = Settings { options, ra_pages };
        let engine = settings.engine([&backend.profile()])?;
        let store = engine.store_of(backend);
        Ok(Self { engine, store, chosen: ra_pages.is_none() })
    }

    /// The chosen readahead window, as a sentence.
    pub(crate) fn readahead(&self) -> String {
        let (options, pages) = (self.engine.options(), self.engine.tuning().ra_pages);
        let bytes = u64::from(pages) * options.page_bytes;
        let why = if self.chosen && pages == options.ra_pages {
            format!(", which suits {}", self.store.profile().kind)
        } else {
            String::new()
        };
        format!("readahead windows of up to {} (--ra-pages {pages}{why})", size(bytes))
    }
}

fn open(url: &str, options: &Options) -> Result<Arc<dyn Backend>, Failure> {
    bowwave_backend::open_url(url, &options.store).map_err(Failure::from)
}

/// The engine and stores that the command line describes.
pub(crate) fn settings(policy: Policy, cache: &CacheArgs, store: &StoreArgs) -> Settings {
    let Settings { options, .. } = cache.set.settings();
    let options = Options {
        cache_bytes: cache.cache,
        page_bytes: cache.page_size,
        ahead_max: cache.ahead_max.map(AheadBudget::new),
        policy,
        range: RangeConfig { fault_bytes: cache.fault_bytes, ..options.range },
        stream: StreamConfig {
            reader_ahead_pages: cache.fault_bytes / cache.page_size,
            ..StreamConfig::default()
        },
        retries: store.retries,
        hedge_percent: store.hedge,
        store: store.options(),
        ..options
    };
    Settings { options, ra_pages: cache.ra_pages.map(|window| window.pages(cache.page_size)) }
}

impl StoreArgs {
    /// Options for opening a store by its URL.
    pub(crate) fn options(&self) -> bowwave_backend::Options {
        bowwave_backend::Options {
            allow_http: self.allow_http,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            anonymous: self.anonymous,
            timeout: self.timeout,
            deadline: self.deadline,
            retries: self.retries,
            least_rate: self.min_rate,
            require_version: self.require_version,
            verify: !self.no_verify,
            list_entries_max: self.list_max,
            web_index: !self.no_index,
            no_range_bytes_max: self.no_range_max,
            connections: self.connections,
            ..bowwave_backend::Options::default()
        }
    }
}

impl From<bowwave_engine::Error> for Failure {
    fn from(error: bowwave_engine::Error) -> Self {
        match error {
            bowwave_engine::Error::Store(error) => error.into(),
            _ => Self::usage(error),
        }
    }
}

impl From<bowwave_backend::Error> for Failure {
    fn from(error: bowwave_backend::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&bowwave_backend::Error> for Failure {
    fn from(error: &bowwave_backend::Error) -> Self {
        let failure = Self::failed(error);
        match error.kind() {
            ErrorKind::InvalidUrl => Self::usage(error),
            ErrorKind::NotFound => failure.try_this("a path or URL that exists"),
            ErrorKind::PermissionDenied => failure.try_this("another user, or other credentials"),
            ErrorKind::Unauthenticated => failure.try_this("--anonymous if the bucket is public"),
            ErrorKind::TimedOut => failure.try_this("a longer --timeout or --deadline"),
            ErrorKind::Corrupt => {
                failure.try_this("again, or another network path; --no-verify reads it anyway")
            }
            ErrorKind::Throttled => failure.try_this("fewer --connections, more --retries"),
            ErrorKind::Unavailable | ErrorKind::Truncated => {
                failure.try_this("again later, or more --retries")
            }
            ErrorKind::Protocol => failure.try_this("a server that keeps to HTTP ranges, or without a proxy"),
            ErrorKind::Changed => failure.try_this("again, when no program writes to it"),
            _ => failure,
        }
    }
}

/// A size for display: `16 MiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let scaled = bytes as f64 / (1u64 << (10 * unit)) as f64;
    let digits = usize::from(unit > 0 && scaled < 100.0 && scaled.fract() != 0.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    values::duration(text)
        .and_then(|time| if time.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(time) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_takes_three_eighths_of_little_memory() {
        assert_eq!([256 << 20, 4 << 30].map(mount_cache_bytes), [96 << 20, 192 << 20]);
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(
            [0, 4096, 1536, 16 << 20, 1_288_490_189].map(size),
            ["0 B", "4 KiB", "1.5 KiB", "16 MiB", "1.2 GiB"]
        );
    }
}
