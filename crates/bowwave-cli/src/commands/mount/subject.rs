//! The control channel of a mount: what it reports, and what can be changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bowwave_control::{Setting, Subject};
use bowwave_engine::LIVE_SETTINGS;
use bowwave_fuse::Announcer;
use clap::CommandFactory as _;
use serde_json::{Value, json};

use super::counters;
use crate::cli::Cli;
use crate::mounted::{self, Calls};
use crate::setup::Opened;
use crate::values::{duration_text, size_text};
use crate::{logging, tunables};

/// A mount.
pub(super) struct Mounted {
    pub(super) opened: Arc<Opened>,
    pub(super) calls: Arc<Calls>,
    pub(super) dir: PathBuf,
    pub(super) device: (u32, u32),
    pub(super) announcer: Announcer,
    pub(super) read_only: bool,
    pub(super) started: (Instant, SystemTime),
    /// Options fixed for the mount's lifetime, by key, as given.
    pub(super) fixed: Vec<(&'static str, String)>,
    pub(super) tunables: Vec<Setting>,
}

impl Subject for Mounted {
    fn device(&self) -> Option<(u32, u32)> {
        Some(self.device)
    }

    fn status(&self) -> Value {
        let Opened { engine, store, .. } = &*self.opened;
        let stats = engine.stats();
        let tuning = engine.tuning();
        let (failed, last) = self.calls.recent();
        let errors: Vec<_> = last
            .into_iter()
            .map(|call| {
                json!({
                    "time": humantime::format_rfc3339_seconds(call.time).to_string(),
                    "path": call.path.to_string_lossy(),
                    "errno": call.errno,
                    "error": mounted::name(call.errno),
                    "reason": call.reason,
                    "count": call.count,
                })
            })
            .collect();
        json!({
            "dir": self.dir.to_string_lossy(),
            "url": store.url(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "started": humantime::format_rfc3339_seconds(self.started.1).to_string(),
            "age_seconds": self.started.0.elapsed().as_secs(),
            "policy": tuning.policy.name(),
            "read_only": self.read_only,
            "page_bytes": stats.page_bytes,
            "ra_pages": tuning.ra_pages,
            "memory_used": stats.frames_used * stats.page_bytes + stats.metadata_bytes,
            "memory_limit": engine.options().cache_bytes,
            "dirty_bytes": stats.pages_unwritten * stats.page_bytes,
            "dirty_limit": tuning.dirty_bytes,
            "counters": counters::Counters::of(&self.opened),
            "calls_failed": failed,
            "errors": errors,
        })
    }

    fn settings(&self) -> Vec<Setting> {
        let tuning = self.opened.engine.tuning();
        let live = tunables::OPTIONS.map(|key| {
            let value = match key {
                "policy" => tuning.policy.name().to_owned(),
                "ra_pages" => tuning.ra_pages.to_string(),
                "dirty_limit" => size_text(tuning.dirty_bytes),
                "dirty_background" => size_text(tuning.dirty_background_bytes),
                "dirty_expire" => duration_text(tuning.dirty_expire),
                _ => logging::levels(),
            };
            (key, value)
        });
        let cli = Cli::command();
        let mount = cli.find_subcommand("mount").expect("it is one");
        let of_option = |live: bool| {
            move |(key, value): (&str, String)| {
                let option = mount.get_arguments().find(|argument| argument.get_id() == key);
                let default = option.and_then(|option| option.get_default_values().first());
                Setting {
                    key: key.to_owned(),
                    value,
                    default: default
                        .map_or_else(|| "auto".to_owned(), |text| text.to_string_lossy().into_owned()),
                    live,
                    meaning: option
                        .and_then(clap::Arg::get_help)
                        .map(ToString::to_string)
                        .unwrap_or_default(),
                }
            }
        };
        let fixed = self.fixed.clone().into_iter().map(of_option(false));
        let mut all: Vec<Setting> =
            live.into_iter().map(of_option(true)).chain(fixed).chain(self.tunables.clone()).collect();
        let engine = &self.opened.engine;
        for row in LIVE_SETTINGS {
            let value = engine.setting(row.key).expect("a known key");
            match all.iter_mut().find(|setting| setting.key == row.key) {
                Some(setting) if setting.live => {}
                Some(setting) => (setting.live, setting.value) = (true, value),
                None => all.push(Setting {
                    key: row.key.to_owned(),
                    value,
                    default: "auto".to_owned(),
                    live: true,
                    meaning: row.meaning.to_owned(),
                }),
            }
        }
        all
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        tunables::set_live(&self.opened.engine, key, value)
    }

    fn announce(&self, files: &[String], append: bool) -> Result<(), String> {
        let paths = files.iter().map(PathBuf::from).collect();
        self.announcer.announce(paths, append).map_err(|error| error.to_string())
    }
}
