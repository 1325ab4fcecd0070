//! Options in one line of text, for environment variables and the C interface.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bowwave_backend::{Backend, Profile, open_url, parse_duration, parse_size};
use bowwave_baselines::CLUSTERS;
use bowwave_core::{Policy, StreamConfig};

use crate::ahead::AheadBudget;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::memory::available_memory;
use crate::options::{FILL_BYTES, Options};
use crate::store::Store;

/// Settings of an engine and its stores, as `KEY=VALUE` separated by white space. Defaults are those of
/// [`Options::default`], except the readahead window, which depends on the store.
///
/// ```text
///   cache=1GiB  page_size=64KiB  ra_pages=4096  ahead_max=64MiB  policy=range  shards=4    the cache
///   range_bytes=1MiB  range_whole=4MiB  range_max=256MiB  range_clusters=learned   the policy range
///   scheduler=deadline:starved=4  device_depth=16  retries=3  hedge=5  connections=64  timeout=10s    how stores are asked
///   endpoint=http://127.0.0.1:9000  region=eu-west-1  allow_http=yes  anonymous=no object stores
/// ```
///
/// ```
/// use bowwave_engine::Settings;
///
/// let settings: Settings = "cache=8MiB policy=none".parse()?;
/// let (_engine, store) = settings.open("pattern:/1MiB")?;
/// assert_eq!(store.open("".as_ref())?.size(), 1 << 20);
/// # Ok::<(), bowwave_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// All options except the window.
    pub options: Options,
    /// Largest readahead window, in pages; `None` for the store's best.
    pub ra_pages: Option<u32>,
}

impl Settings {
    /// Creates an engine with a window for stores with these profiles.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn engine<'a>(&self, profiles: impl IntoIterator<Item = &'a Profile>) -> Result<Engine> {
        let cache_bytes = self.options.cache_bytes.unwrap_or_else(|| available_memory() / 4);
        let page_bytes = self.options.page_bytes;
        let policy = self.options.policy;
        let suitable = profiles
            .into_iter()
            .map(|profile| {
                let ra_pages = suitable_ra_pages(policy, profile, page_bytes, cache_bytes);
                (ra_pages, suitable_slow_window(profile, page_bytes))
            })
            .max();
        let (suitable, suitable_slow) = suitable.unwrap_or((self.options.ra_pages, 0));
        let slow_window_pages = match self.options.stream.slow_window_pages {
            0 => suitable_slow,
            said => said,
        };
        Engine::new(Options {
            cache_bytes: Some(cache_bytes),
            ra_pages: self.ra_pages.unwrap_or(suitable),
            stream: StreamConfig { slow_window_pages, ..self.options.stream },
            ..self.options.clone()
        })
    }

    /// Opens the store at `url` without a cache.
    ///
    /// # Errors
    /// `InvalidUrl` if the URL cannot be parsed, or as the store says.
    pub fn backend(&self, url: &str) -> Result<Arc<dyn Backend>> {
        Ok(open_url(url, &self.options.store)?)
    }

    /// Opens the store at `url` with its own cache.
    ///
    /// # Errors
    /// As [`backend`](Self::backend) and [`Engine::new`].
    pub fn open(&self, url: &str) -> Result<(Engine, Store)> {
        let backend = self.backend(url)?;
        let engine = self.engine([&backend.profile()])?;
        let store = engine.store_of(backend);
        Ok((engine, store))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let wrong = |what: &str| Error::Options(format!("{key}={value}: not {what}"));
        let count = || value.parse::<u32>().ok().filter(|&count| count > 0).ok_or_else(|| wrong("a count"));
        let size = || parse_size(value).filter(|&size| size > 0).ok_or_else(|| wrong("a size such as 64MiB"));
        let size_or_0 = || parse_size(value).ok_or_else(|| wrong("a size such as 64MiB, or 0"));
        let switch = || match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(wrong("yes or no")),
        };
        let options = &mut self.options;
        match key {
            "cache" => options.cache_bytes = Some(size()?),
            "page_size" => options.page_bytes = size()?,
            "ra_pages" => self.ra_pages = Some(count()?),
            "policy" => {
                options.policy =
                    bowwave_baselines::policy(value).ok_or_else(|| wrong("a readahead policy"))?;
            }
            "ahead_max" => options.ahead_max = Some(AheadBudget::new(size_or_0()?)),
            "shards" => options.shards = Some(count()? as usize),
            "range_bytes" => options.range.range_bytes = size_or_0()?,
            "range_whole" => options.range.whole_bytes = size_or_0()?,
            "range_clusters" => {
                let known = CLUSTERS.iter().find(|(name, _)| *name == value);
                options.range.clusters = known.ok_or_else(|| wrong("mended, learned, literal or before"))?.1;
            }
            "range_max" => options.range.file_bytes_max = size()?,
            "scheduler" => {
                let (name, knobs) =
                    value.split_once(':').map_or((value, None), |(name, knobs)| (name, Some(knobs)));
                options.scheduler = bowwave_baselines::algorithm(name).ok_or_else(|| wrong("a scheduler"))?;
                options.scheduler_knobs = knobs.map(str::to_owned);
            }
            "device_depth" => options.device_depth = Some(count()?),
            "retries" => options.retries = value.parse().map_err(|_| wrong("a number"))?,
            "hedge" => options.hedge_percent = value.parse().map_err(|_| wrong("a percentage"))?,
            "connections" => options.store.connections = Some(count()?),
            "timeout" => {
                let time = parse_duration(value).filter(|time| !time.is_zero());
                options.store.timeout = time.ok_or_else(|| wrong("a time such as 10s"))?;
            }
            "endpoint" => options.store.endpoint = Some(value.to_owned()),
            "region" => options.store.region = Some(value.to_owned()),
            "allow_http" => options.store.allow_http = switch()?,
            "anonymous" => options.store.anonymous = switch()?,
            _ => return Err(Error::Options(format!("{key}: no such option; known: {KEYS}"))),
        }
        Ok(())
    }
}

impl FromStr for Settings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut settings = Self::default();
        for part in text.split_whitespace() {
            let Some((key, value)) = part.split_once('=') else {
                return Err(Error::Options(format!("{part}: not KEY=VALUE; known keys: {KEYS}")));
            };
            settings.set(key, value)?;
        }
        Ok(settings)
    }
}

/// The text form, as [`from_str`](Self::from_str) parses it.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { cache_bytes, page_bytes, policy, range, ahead_max, shards, .. } = &self.options;
        let Options { scheduler, scheduler_knobs, device_depth, retries, hedge_percent, store, .. } =
            &self.options;
        let yes = |switch: bool| if switch { "yes" } else { "no" };
        let (policy, scheduler) = (policy.name(), scheduler.name());
        let knobs = scheduler_knobs.as_ref().map(|knobs| format!(":{knobs}")).unwrap_or_default();
        write!(f, "page_size={page_bytes} policy={policy} scheduler={scheduler}{knobs} retries={retries} ")?;
        write!(f, "range_bytes={} range_whole={} ", range.range_bytes, range.whole_bytes)?;
        write!(f, "range_max={} ", range.file_bytes_max)?;
        let clusters = CLUSTERS.iter().find(|(_, clusters)| *clusters == range.clusters);
        clusters.map_or(Ok(()), |(name, _)| write!(f, "range_clusters={name} "))?;
        write!(f, "timeout={}ns allow_http={} ", store.timeout.as_nanos(), yes(store.allow_http))?;
        write!(f, "anonymous={}", yes(store.anonymous))?;
        let numbers = [
            ("cache", *cache_bytes),
            ("ra_pages", self.ra_pages.map(u64::from)),
            ("ahead_max", ahead_max.as_ref().map(AheadBudget::bytes)),
            ("shards", shards.map(|shards| shards as u64)),
            ("device_depth", device_depth.map(u64::from)),
            ("hedge", (*hedge_percent > 0).then_some((*hedge_percent).into())),
            ("connections", store.connections.map(u64::from)),
        ];
        for (key, number) in numbers {
            number.map_or(Ok(()), |number| write!(f, " {key}={number}"))?;
        }
        for (key, text) in [("endpoint", &store.endpoint), ("region", &store.region)] {
            text.as_ref().map_or(Ok(()), |text| write!(f, " {key}={text}"))?;
        }
        Ok(())
    }
}

/// The best readahead window for a store, in pages: enough to keep it busy while the reader
/// processes pages.
///
/// Low-latency stores get Linux's 128 KiB. For others the best request size is about ten times
/// latency × bandwidth of one connection. The engine spreads it over several connections: one
/// reader of an object store keeps about 20 busy. With more than a sixteenth of the cache, a few
/// readers would evict each other's pages.
///
/// The policy `stream` keeps several windows ahead of waiting readers, and its waste budget is in
/// windows, so it gets smaller ones.
#[must_use]
pub fn suitable_ra_pages(policy: Policy, profile: &Profile, page_bytes: u64, cache_bytes: u64) -> u32 {
    let window = match policy {
        _ if profile.latency <= NEAR => NEAR_WINDOW,
        Policy::Stream => profile.request_bytes_best.min(STREAM_WINDOW),
        _ => profile.request_bytes_best,
    };
    let pages = window.max(NEAR_WINDOW).min(cache_bytes / 16) / page_bytes.max(1);
    u32::try_from(pages.clamp(1, 1 << 20)).expect("clamped")
}

/// [`StreamConfig::slow_window_pages`] for a store: one fill, where requests cost only time.
fn suitable_slow_window(profile: &Profile, page_bytes: u64) -> u64 {
    let costs_time_only = profile.latency >= DISTANT && !profile.seeks;
    if costs_time_only { (FILL_BYTES / page_bytes.max(1)).max(1) } else { 0 }
}

const KEYS: &str = "cache, page_size, ra_pages, ahead_max, policy, range_bytes, range_whole, range_max, range_clusters, shards, \
                    scheduler, device_depth, retries, hedge, connections, timeout, endpoint, region, allow_http, anonymous";
/// A longer TTFB is that of a store that serves many requests at once.
const DISTANT: Duration = Duration::from_millis(5);
/// A shorter TTFB is that of a local disk.
const NEAR: Duration = Duration::from_micros(100);
/// Window of `stream` on high-latency stores: of 512 KiB to 16 MiB, it wastes least at the same
/// speed.
const STREAM_WINDOW: u64 = 1 << 20;
/// Linux's default window.
const NEAR_WINDOW: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(latency: Duration, request_bytes_best: u64) -> Profile {
        Profile { request_bytes_best, slots: 8, latency, ..Profile::read_only("x") }
    }

    #[test]
    fn windows_of_slow_readers_are_short_where_requests_cost_only_time() {
        let window = |latency: Duration, seeks: bool, said: u64| {
            let profile = Profile { latency, seeks, ..Profile::read_only("x") };
            let stream = StreamConfig { slow_window_pages: said, ..StreamConfig::default() };
            let options = Options { cache_bytes: Some(64 << 20), stream, ..Options::default() };
            let engine = Settings { options, ra_pages: None }.engine([&profile]).expect("there is memory");
            engine.options().stream.slow_window_pages
        };
        assert_eq!(window(Duration::from_millis(30), false, 0), 64);
        assert_eq!(window(Duration::from_millis(30), false, 16), 16, "as it was said");
        assert_eq!(window(Duration::from_millis(8), true, 0), 0, "a disk");
        assert_eq!(window(Duration::from_micros(80), false, 0), 0, "near");
    }

    #[test]
    fn windows_suit_the_store_the_page_and_the_cache() {
        let near = profile(Duration::from_micros(100), 1 << 20);
        let far = profile(Duration::from_millis(30), 16 << 20);
        let suitable = |profile, page_bytes, cache_bytes| {
            [Policy::OnDemand, Policy::Stream]
                .map(|policy| suitable_ra_pages(policy, profile, page_bytes, cache_bytes))
        };
        assert_eq!(suitable(&near, 4096, 1 << 30), [32, 32]);
        assert_eq!(suitable(&far, 4096, 1 << 30), [4096, 256]);
        assert_eq!(suitable(&far, 2 << 20, 1 << 30), [8, 1]);
        assert_eq!(suitable(&far, 4096, 16 << 20), [256, 256]);
        assert_eq!(suitable(&far, 4096, 8 << 20), [128, 128]);
        assert_eq!(suitable(&far, 4096, 0), [1, 1]);
    }

    #[test]
    fn the_window_is_the_set_one_or_the_slowest_stores_best() {
        let (near, far) = (profile(Duration::ZERO, 4096), profile(Duration::from_secs(1), 2 << 20));
        let engine = |text: &str| {
            let settings: Settings = text.parse().expect("valid");
            settings.engine([&near, &far]).expect("an engine").options().ra_pages
        };
        assert_eq!(engine("cache=64MiB policy=ondemand"), 512);
        assert_eq!(engine("cache=64MiB"), 256);
        assert_eq!(engine("cache=64MiB ra_pages=7"), 7);
    }

    #[test]
    fn settings_round_trip_through_text() {
        for text in [
            "",
            "cache=1GiB page_size=64KiB ra_pages=4096 ahead_max=64MiB policy=range shards=4",
            "scheduler=deadline:starved=4,promotion=0 range_bytes=0 range_whole=1MiB range_max=1GiB range_clusters=literal",
            "scheduler=noop device_depth=16 retries=0 hedge=5 connections=64 timeout=1.5s",
            "endpoint=http://127.0.0.1:9000/a=b region=x\nallow_http=yes anonymous=yes",
        ] {
            let settings: Settings = text.parse().expect(text);
            let again: Settings = settings.to_string().parse().expect("its own words");
            assert_eq!(format!("{settings:?}"), format!("{again:?}"), "{text}");
        }
    }

    #[test]
    fn bad_settings_name_the_key_and_its_values() {
        for (text, want) in [
            ("cache", "cache: not KEY=VALUE; known keys: cache, "),
            ("cash=1", "cash: no such option; known: cache, "),
            ("cache=0", "cache=0: not a size such as 64MiB"),
            ("policy=best", "policy=best: not a readahead policy"),
            ("connections=-1", "connections=-1: not a count"),
            ("timeout=0s", "timeout=0s: not a time such as 10s"),
            ("anonymous=1", "anonymous=1: not yes or no"),
        ] {
            let error = text.parse::<Settings>().expect_err(text).to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
