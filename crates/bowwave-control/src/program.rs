//! The caches of a program, as a [`Subject`] of the control channel.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bowwave_engine::{Engine, EngineStats, LIVE_SETTINGS, SETTINGS, Settings};
use bowwave_region::{SWAP_SETTINGS, Swap, SwapReport};
use serde_json::{Map as Object, Value, json};

use crate::protocol::Setting;
use crate::server::{Server, Subject};

/// The caches that a program serves: its engine, its swap, or both. They live at least until the
/// [`Server`] is dropped.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The cache of its stores.
    pub engine: Option<Engine>,
    /// Its swapped memory.
    pub swap: Option<Swap>,
    /// Its stores.
    pub maps: Vec<Map>,
}

/// A store of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Its URL, without secrets.
    pub url: String,
    /// Path at which the program sees the store's files; empty if there is none.
    pub path: String,
}

impl Program {
    /// Serves the control channel of this process until the server is dropped: `bowwave ctl PID`
    /// and `bowwave status` reach it, if the same user or root runs them. `bowwave ctl` can
    /// change the settings in [`LIVE_SETTINGS`] and [`SWAP_SETTINGS`].
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn serve(self) -> io::Result<Server> {
        Server::start(Arc::new(Served { program: self, started: Instant::now() }))
    }
}

struct Served {
    program: Program,
    started: Instant,
}

impl Subject for Served {
    fn status(&self) -> Value {
        let Program { engine, swap, maps } = &self.program;
        let (mut used, mut limit, mut counters) = (0, 0, Vec::new());
        let mut status = json!({
            "pid": std::process::id(),
            "program": name(),
            "version": env!("CARGO_PKG_VERSION"),
            "age_seconds": self.started.elapsed().as_secs(),
            "maps": maps
                .iter()
                .map(|map| json!({ "url": map.url, "path": map.path }))
                .collect::<Vec<_>>(),
        });
        if let Some(engine) = engine {
            let stats = engine.stats();
            used += stats.frames_used * stats.page_bytes + stats.metadata_bytes;
            limit += engine.options().cache_bytes.unwrap_or(0);
            status["policy"] = json!(engine.tuning().policy.name());
            counters.extend(cache_counters(&stats));
        }
        if let Some(swap) = swap {
            let report = swap.report();
            used += report.load.frames_used * SWAP_PAGE;
            limit += report.load.frames * SWAP_PAGE;
            status["swap_policy"] = json!(swap.setting("swap.policy").unwrap_or_default());
            status["spill_used"] = json!(report.load.slots_used * SWAP_PAGE);
            status["spill_limit"] = json!(report.load.slots * SWAP_PAGE);
            counters.extend(swap_counters(&report));
        }
        status["memory_used"] = json!(used);
        status["memory_limit"] = json!(limit);
        let counters = counters.into_iter().map(|(name, count)| (name.to_owned(), json!(count)));
        status["counters"] = Value::Object(counters.collect::<Object<_, _>>());
        status
    }

    fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        let auto = |value: Option<String>| value.unwrap_or_else(|| "auto".to_owned());
        if let Some(engine) = &self.program.engine {
            let default = Settings::default();
            let default_of = |key| {
                let row = SETTINGS.iter().find(|row| row.key == key);
                auto(row.and_then(|row| row.value(&default)))
            };
            all.extend(LIVE_SETTINGS.iter().map(|row| Setting {
                key: row.key.to_owned(),
                value: engine.setting(row.key).unwrap_or_default(),
                default: default_of(row.key),
                live: true,
                meaning: row.meaning.to_owned(),
            }));
            let now = Settings { options: engine.options().clone(), ..Settings::default() };
            let fixed = SETTINGS.iter().filter(|row| LIVE_SETTINGS.iter().all(|live| live.key != row.key));
            all.extend(fixed.map(|row| Setting {
                key: row.key.to_owned(),
                value: auto(row.value(&now)),
                default: default_of(row.key),
                live: false,
                meaning: row.meaning.to_owned(),
            }));
        }
        if let Some(swap) = &self.program.swap {
            all.extend(SWAP_SETTINGS.iter().map(|row| Setting {
                key: row.key.to_owned(),
                value: swap.setting(row.key).unwrap_or_default(),
                default: "auto".to_owned(),
                live: true,
                meaning: row.meaning.to_owned(),
            }));
        }
        all
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        match (&self.program.engine, &self.program.swap) {
            (_, Some(swap)) if SWAP_SETTINGS.iter().any(|row| row.key == key) => {
                swap.set(key, value).map_err(|error| error.to_string())
            }
            (Some(engine), _) => engine.set(key, value).map_err(|error| error.to_string()),
            // Not reached: the server looks the setting up first.
            _ => Err(format!("{key}: no setting of this program")),
        }
    }

    fn announce(&self, _files: &[String], _append: bool) -> Result<(), String> {
        Err("only a mount reads announced files ahead; programs announce ranges with File::plan".to_owned())
    }
}

/// Counters of a cache by their names in `bowwave run --stats-on-exit --json`; in pages unless the
/// name says otherwise.
pub fn cache_counters(stats: &EngineStats) -> [(&'static str, u64); 13] {
    [
        ("page_bytes", stats.page_bytes),
        ("accesses", stats.cache.accesses),
        ("hits", stats.cache.hits),
        ("late", stats.cache.late),
        ("misses", stats.cache.misses),
        ("pages_readahead", stats.cache.pages_readahead),
        ("pages_used", stats.cache.pages_used),
        ("pages_wasted", stats.cache.pages_wasted),
        ("pages_evicted", stats.cache.pages_evicted),
        ("requests", stats.store.requests),
        ("requests_failed", stats.store.requests_failed),
        ("retries", stats.store.retries),
        ("bytes_fetched", stats.store.bytes_fetched),
    ]
}

/// Counters of a swap, likewise.
pub fn swap_counters(report: &SwapReport) -> [(&'static str, u64); 21] {
    let (stats, load) = (&report.stats, &report.load);
    [
        ("swap_minor_faults", stats.minor_faults),
        ("swap_major_faults", stats.major_faults),
        ("swap_late", stats.late),
        ("swap_ra", stats.swap_ra),
        ("swap_ra_hit", stats.swap_ra_hit),
        ("swap_mapped_ahead", stats.mapped_ahead),
        ("swap_wasted", stats.wasted),
        ("swap_in", stats.swap_in),
        ("swap_out", stats.swap_out),
        ("swap_dropped", stats.dropped),
        ("swap_zero_out", stats.zero_out),
        ("swap_zero_in", stats.zero_in),
        ("swap_read_errors", stats.read_errors),
        ("swap_write_errors", stats.write_errors),
        ("swap_requests", report.requests),
        ("swap_bytes_read", report.bytes_read),
        ("swap_bytes_written", report.bytes_written),
        ("swap_frames", load.frames),
        ("swap_frames_used", load.frames_used),
        ("swap_slots", load.slots),
        ("swap_slots_used", load.slots_used),
    ]
}

/// The program's name, as `ps` shows it.
fn name() -> String {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Bytes of a page of swapped memory.
const SWAP_PAGE: u64 = 4096;
