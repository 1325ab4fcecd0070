//! Options in one line of text, for environment variables and the C interface.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bowwave_backend::{Backend, Profile, open_url, parse_duration, parse_size, size_text};
use bowwave_baselines::CLUSTERS;
use bowwave_core::{Policy, StreamConfig};

use crate::ahead::AheadBudget;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::memory::available_memory;
use crate::options::{FILL_BYTES, Options};
use crate::store::Store;

/// Settings of an engine and its stores, as `KEY=VALUE` separated by white space: [`SETTINGS`] has
/// all keys. Defaults are those of [`Options::default`], except the readahead window, which depends
/// on the store.
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
        let profiles: Vec<&Profile> = profiles.into_iter().collect();
        let seeks = !profiles.is_empty() && profiles.iter().all(|profile| profile.seeks);
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
            stream: StreamConfig {
                slow_window_pages,
                seeks: seeks || self.options.stream.seeks,
                ..self.options.stream
            },
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

    /// Sets the value of a key of [`SETTINGS`].
    ///
    /// # Errors
    /// `Error::Options` if there is no such key, or if the value does not fit it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(Error::Options(format!("{key}: no such option; known: {}", keys())));
        };
        (setting.set)(self, value).map_err(|why| Error::Options(format!("{key}={value}: {why}")))
    }
}

impl FromStr for Settings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut settings = Self::default();
        for part in text.split_whitespace() {
            let Some((key, value)) = part.split_once('=') else {
                return Err(Error::Options(format!("{part}: not KEY=VALUE; known keys: {}", keys())));
            };
            settings.set(key, value)?;
        }
        Ok(settings)
    }
}

/// The text form, as [`from_str`](Self::from_str) parses it.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = SETTINGS.iter().filter_map(|row| Some((row.key, row.value(self)?)));
        let parts: Vec<String> = parts.map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&parts.join(" "))
    }
}

/// A setting: the one definition of its name, meaning and values.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// What it changes, and what holds without it.
    pub meaning: &'static str,
    /// Parses a value; an error says what a value looks like.
    set: fn(&mut Settings, &str) -> std::result::Result<(), String>,
    get: fn(&Settings) -> Option<String>,
}

impl Setting {
    /// Its value as text; `None` if the engine chooses one.
    pub fn value(&self, settings: &Settings) -> Option<String> {
        (self.get)(settings)
    }
}

/// Every setting, in the order of the text form.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "cache",
        meaning: "Memory for pages and their metadata; auto: a quarter of the machine's",
        set: |s, text| size(text).map(|bytes| s.options.cache_bytes = Some(bytes)),
        get: |s| s.options.cache_bytes.map(size_text),
    },
    Setting {
        key: "page_size",
        meaning: "Size of a page: a power of two from 4KiB to 2MiB",
        set: |s, text| size(text).map(|bytes| s.options.page_bytes = bytes),
        get: |s| Some(size_text(s.options.page_bytes)),
    },
    Setting {
        key: "ra_pages",
        meaning: "Largest readahead window in pages; 0 for no readahead; auto: what suits the store",
        set: |s, text| pages(text).map(|pages| s.ra_pages = Some(pages)),
        get: |s| s.ra_pages.map(|pages| pages.to_string()),
    },
    Setting {
        key: "la_size",
        meaning: "Policies ondemand and ondemand-patch: most pages of a window beyond its lookahead mark. 0: the \
                  next window is read at the end of the last one; auto: all of a window",
        set: |s, text| {
            let size = if text == "auto" { Ok(u32::MAX) } else { pages(text) };
            size.map(|pages| s.options.la_size = pages)
        },
        get: |s| (s.options.la_size < u32::MAX).then(|| s.options.la_size.to_string()),
    },
    Setting {
        key: "persist",
        meaning: "Whether cached pages get lookahead marks, too, so that readahead persists on cache hits: for \
                  readers that must not wait",
        set: |s, text| yes_or_no(text).map(|is| s.options.persist = is),
        get: |s| Some(yes(s.options.persist)),
    },
    Setting {
        key: "ahead_max",
        meaning: "Maximum readahead in flight, of all files together; auto: what memory allows",
        set: |s, text| size_or_0(text).map(|bytes| s.options.ahead_max = Some(AheadBudget::new(bytes))),
        get: |s| s.options.ahead_max.as_ref().map(|budget| size_text(budget.bytes())),
    },
    Setting {
        key: "policy",
        meaning: "The readahead policy",
        set: |s, text| {
            known(bowwave_baselines::policy(text), "a readahead policy").map(|it| s.options.policy = it)
        },
        get: |s| Some(s.options.policy.name().to_owned()),
    },
    Setting {
        key: "shards",
        meaning: "Parts of the cache with a lock each; auto: one per processor, at most 16",
        set: |s, text| count(text).map(|count| s.options.shards = Some(count as usize)),
        get: |s| s.options.shards.map(|count| count.to_string()),
    },
    Setting {
        key: "range_bytes",
        meaning: "Policy range: largest distance between page faults of one cluster, and the largest window \
                  around a fault; 0 for no clusters. Lustre's read_ahead_range_kb. From 64KiB to range_max",
        set: |s, text| size_or_0(text).map(|bytes| s.options.range.range_bytes = bytes),
        get: |s| Some(size_text(s.options.range.range_bytes)),
    },
    Setting {
        key: "range_whole",
        meaning: "Policy range: files up to this size are read whole at the second read; 0 for never. \
                  Lustre's max_read_ahead_whole_mb. At most range_max",
        set: |s, text| size_or_0(text).map(|bytes| s.options.range.whole_bytes = bytes),
        get: |s| Some(size_text(s.options.range.whole_bytes)),
    },
    Setting {
        key: "range_max",
        meaning: "Policy range: the largest window, from 64KiB to 1TiB. Lustre's max_read_ahead_per_file_mb",
        set: |s, text| size(text).map(|bytes| s.options.range.file_bytes_max = bytes),
        get: |s| Some(size_text(s.options.range.file_bytes_max)),
    },
    Setting {
        key: "range_clusters",
        meaning: "Policy range: readahead of clusters of page faults. literal: exactly as in Lustre's patch \
                  of 2021. fixed: also reads the first page of a cluster, and has clusters at page 0. \
                  learned: as fixed, and predicts the length of a cluster from earlier ones. before: Lustre \
                  before that patch. suited: learned in files that are mapped without a mount, else fixed",
        set: |s, text| {
            let clusters = CLUSTERS.iter().find(|(name, _)| *name == text).map(|(_, clusters)| *clusters);
            let all = CLUSTERS.map(|(name, _)| name).join(", ");
            known(clusters, &format!("one of {all}")).map(|clusters| s.options.range.clusters = clusters)
        },
        get: |s| {
            let clusters = CLUSTERS.iter().find(|(_, clusters)| *clusters == s.options.range.clusters);
            clusters.map(|(name, _)| (*name).to_owned())
        },
    },
    Setting {
        key: "scheduler",
        meaning: "Order of requests to the store. deadline: demand reads before speculative ones, which have \
                  a deadline of their own. deadline-literal: the patch of 2009 as published. deadline-rw: \
                  reads before writes, as Linux 2.6.29. noop: in order of arrival. Knobs follow a colon, as \
                  in deadline:starved=4,promotion=0",
        set: |s, text| {
            let config = bowwave_baselines::scheduler(text).map_err(|error| error.to_string())?;
            s.options.scheduler = config.algorithm;
            s.options.scheduler_knobs = text.split_once(':').map(|(_, knobs)| knobs.to_owned());
            Ok(())
        },
        get: |s| {
            let knobs = s.options.scheduler_knobs.iter().map(|knobs| format!(":{knobs}"));
            Some(knobs.fold(s.options.scheduler.name().to_owned(), |name, knobs| name + &knobs))
        },
    },
    Setting {
        key: "device_depth",
        meaning: "Maximum requests in flight at the store; auto: as many as it serves at once",
        set: |s, text| count(text).map(|count| s.options.device_depth = Some(count)),
        get: |s| s.options.device_depth.map(|count| count.to_string()),
    },
    Setting {
        key: "retries",
        meaning: "Retries of a failed request, where a retry may help",
        set: |s, text| known(text.parse().ok(), "a number").map(|count| s.options.retries = count),
        get: |s| Some(s.options.retries.to_string()),
    },
    Setting {
        key: "hedge",
        meaning: "Maximum share of demand reads that are sent a second time because they are late, in percent",
        set: |s, text| known(text.parse().ok(), "a percentage").map(|share| s.options.hedge_percent = share),
        get: |s| Some(s.options.hedge_percent.to_string()),
    },
    Setting {
        key: "connections",
        meaning: "Maximum requests in flight over a network; auto: what suits the store",
        set: |s, text| count(text).map(|count| s.options.store.connections = Some(count)),
        get: |s| s.options.store.connections.map(|count| count.to_string()),
    },
    Setting {
        key: "timeout",
        meaning: "Longest wait for a connection, a response, or between two bytes of a response",
        set: |s, text| {
            let time = parse_duration(text).filter(|time| !time.is_zero());
            known(time, "a time such as 10s").map(|time| s.options.store.timeout = time)
        },
        get: |s| Some(format!("{}ns", s.options.store.timeout.as_nanos())),
    },
    Setting {
        key: "endpoint",
        meaning: "URL of the object store's server; auto: the cloud's own",
        set: |s, text| {
            s.options.store.endpoint = Some(text.to_owned());
            Ok(())
        },
        get: |s| s.options.store.endpoint.clone(),
    },
    Setting {
        key: "region",
        meaning: "Region of the object store",
        set: |s, text| {
            s.options.store.region = Some(text.to_owned());
            Ok(())
        },
        get: |s| s.options.store.region.clone(),
    },
    Setting {
        key: "allow_http",
        meaning: "Whether the object store's endpoint may be plain http",
        set: |s, text| yes_or_no(text).map(|is| s.options.store.allow_http = is),
        get: |s| Some(yes(s.options.store.allow_http)),
    },
    Setting {
        key: "anonymous",
        meaning: "Whether requests to the object store are unsigned, for public data",
        set: |s, text| yes_or_no(text).map(|is| s.options.store.anonymous = is),
        get: |s| Some(yes(s.options.store.anonymous)),
    },
];

fn keys() -> String {
    SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ")
}

type Parsed<T> = std::result::Result<T, String>;

fn known<T>(value: Option<T>, what: &str) -> Parsed<T> {
    value.ok_or_else(|| format!("not {what}"))
}

fn count(text: &str) -> Parsed<u32> {
    known(text.parse().ok().filter(|&count| count > 0), "a count of 1 or more")
}

fn pages(text: &str) -> Parsed<u32> {
    known(text.parse().ok(), "a number of pages")
}

fn size(text: &str) -> Parsed<u64> {
    known(parse_size(text).filter(|&size| size > 0), "a size such as 64MiB")
}

fn size_or_0(text: &str) -> Parsed<u64> {
    known(parse_size(text), "a size such as 1MiB, or 0")
}

fn yes_or_no(text: &str) -> Parsed<bool> {
    known(["no", "yes"].iter().position(|known| *known == text).map(|at| at == 1), "yes or no")
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
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
pub fn suitable_ra_pages(policy: Policy, profile: &Profile, page_bytes: u64, cache_bytes: u64) -> u32 {
    let window = match policy {
        _ if profile.latency <= LOCAL => LOCAL_WINDOW,
        Policy::Stream => profile.request_bytes_best.min(STREAM_WINDOW),
        _ => profile.request_bytes_best,
    };
    let pages = window.max(LOCAL_WINDOW).min(cache_bytes / 16) / page_bytes.max(1);
    u32::try_from(pages.clamp(1, 1 << 20)).expect("clamped")
}

/// [`StreamConfig::slow_window_pages`] for a store: one fill, where requests cost only time.
fn suitable_slow_window(profile: &Profile, page_bytes: u64) -> u64 {
    let costs_time_only = profile.latency >= HIGH_LATENCY && !profile.seeks;
    if costs_time_only { (FILL_BYTES / page_bytes.max(1)).max(1) } else { 0 }
}

/// Shortest TTFB of a high-latency store, which serves many requests at once.
const HIGH_LATENCY: Duration = Duration::from_millis(5);
/// Longest TTFB of a local disk.
const LOCAL: Duration = Duration::from_micros(100);
/// Window of `stream` on high-latency stores: of 512 KiB to 16 MiB, it wastes least at the same
/// speed.
const STREAM_WINDOW: u64 = 1 << 20;
/// Linux's default window.
const LOCAL_WINDOW: u64 = 128 << 10;

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
        assert_eq!(window(Duration::from_millis(30), false, 16), 16, "as set");
        assert_eq!(window(Duration::from_millis(8), true, 0), 0, "a disk");
        assert_eq!(window(Duration::from_micros(80), false, 0), 0, "near");
    }

    #[test]
    fn readahead_is_charged_for_its_delays_if_every_store_has_a_head() {
        let seeks = |heads: &[bool]| {
            let profiles: Vec<Profile> =
                heads.iter().map(|&seeks| Profile { seeks, ..Profile::read_only("x") }).collect();
            let options = Options { cache_bytes: Some(64 << 20), ..Options::default() };
            let engine = Settings { options, ra_pages: None }.engine(&profiles).expect("there is memory");
            engine.options().stream.seeks
        };
        let cases: [&[bool]; 4] = [&[], &[true], &[true, false], &[true, true]];
        assert_eq!(cases.map(seeks), [false, true, false, true]);
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
    fn every_setting_has_a_meaning_and_parses_its_own_default() {
        for (at, row) in SETTINGS.iter().enumerate() {
            assert!(!row.meaning.is_empty() && SETTINGS[..at].iter().all(|other| other.key != row.key));
            if let Some(value) = row.value(&Settings::default()) {
                Settings::default().set(row.key, &value).expect(row.key);
            }
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
