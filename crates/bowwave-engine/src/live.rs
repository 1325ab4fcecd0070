//! Settings of a running engine as text, under bowwave's names and those of Linux and Lustre.

use std::time::Duration;

use bowwave_core::schedule::KNOBS;

use crate::{Engine, Error, Options, Result, Settings, Tuning};

/// A setting that can be changed at run time: the one definition of its name, meaning and values.
#[derive(Clone, Copy, Debug)]
pub struct LiveSetting {
    /// Its name.
    pub key: &'static str,
    /// What it changes.
    pub meaning: &'static str,
    set: fn(&mut Tuning, u64, &str) -> std::result::Result<(), String>,
    get: fn(&Tuning, u64) -> String,
}

/// Every setting that can be changed at run time. The functions also get the size of a page.
pub const LIVE_SETTINGS: &[LiveSetting] = &[
    LiveSetting {
        key: "policy",
        meaning: "The readahead policy; open files get a fresh state",
        set: |tuning, _, text| {
            of_settings(tuning, "policy", text).map_err(|why| {
                let names: Vec<_> = bowwave_baselines::ALL.iter().map(|policy| policy.name()).collect();
                format!("{why}; known: {}", names.join(", "))
            })
        },
        get: |tuning, _| tuning.policy.name().to_owned(),
    },
    LiveSetting {
        key: "ra_pages",
        meaning: "Largest readahead window in pages, or a size such as 4MiB; 0 for no readahead",
        set: |tuning, page_bytes, text| window(text, page_bytes).map(|pages| tuning.ra_pages = pages),
        get: |tuning, _| tuning.ra_pages.to_string(),
    },
    LiveSetting {
        key: "read_ahead_kb",
        meaning: "The same in KiB: Linux's read_ahead_kb. A multiple of the page",
        set: |tuning, page_bytes, text| {
            let kib = number(text)?;
            let page_kib = page_bytes >> 10;
            if kib % page_kib != 0 {
                return Err(format!("not a multiple of a page of {page_kib} KiB"));
            }
            pages(kib / page_kib).map(|pages| tuning.ra_pages = pages)
        },
        get: |tuning, page_bytes| (u64::from(tuning.ra_pages) * (page_bytes >> 10)).to_string(),
    },
    LiveSetting {
        key: "la_size",
        meaning: "Policies ondemand and ondemand-patch: most pages beyond a window's lookahead mark; auto: all",
        set: |tuning, _, text| of_settings(tuning, "la_size", text),
        get: |tuning, _| value_of(tuning, "la_size"),
    },
    LiveSetting {
        key: "persist",
        meaning: "Whether cached pages get lookahead marks, too, so readahead persists on hits, yes or no",
        set: |tuning, _, text| of_settings(tuning, "persist", text),
        get: |tuning, _| value_of(tuning, "persist"),
    },
    LiveSetting {
        key: "range_bytes",
        meaning: "Policy range: largest distance between page faults of one cluster; 0 for no clusters",
        set: |tuning, _, text| of_settings(tuning, "range_bytes", text),
        get: |tuning, _| value_of(tuning, "range_bytes"),
    },
    LiveSetting {
        key: "range_whole",
        meaning: "Policy range: files up to this size are read whole at the second read; 0 for never",
        set: |tuning, _, text| of_settings(tuning, "range_whole", text),
        get: |tuning, _| value_of(tuning, "range_whole"),
    },
    LiveSetting {
        key: "range_max",
        meaning: "Policy range: the largest window",
        set: |tuning, _, text| of_settings(tuning, "range_max", text),
        get: |tuning, _| value_of(tuning, "range_max"),
    },
    LiveSetting {
        key: "read_ahead_range_kb",
        meaning: "Policy range: range_bytes in KiB, Lustre's read_ahead_range_kb; 0 for no clusters",
        set: |tuning, _, text| kib(text).and_then(|bytes| of_settings(tuning, "range_bytes", &bytes)),
        get: |tuning, _| (tuning.range.range_bytes >> 10).to_string(),
    },
    LiveSetting {
        key: "max_read_ahead_whole_mb",
        meaning: "Policy range: range_whole in MiB, Lustre's max_read_ahead_whole_mb; 0 for never",
        set: |tuning, _, text| mib(text).and_then(|bytes| of_settings(tuning, "range_whole", &bytes)),
        get: |tuning, _| (tuning.range.whole_bytes >> 20).to_string(),
    },
    LiveSetting {
        key: "max_read_ahead_per_file_mb",
        meaning: "Policy range: range_max in MiB, Lustre's max_read_ahead_per_file_mb",
        set: |tuning, _, text| mib(text).and_then(|bytes| of_settings(tuning, "range_max", &bytes)),
        get: |tuning, _| (tuning.range.file_bytes_max >> 20).to_string(),
    },
    LiveSetting {
        key: "range_clusters",
        meaning: "Policy range: how clusters of page faults are read ahead",
        set: |tuning, _, text| of_settings(tuning, "range_clusters", text),
        get: |tuning, _| value_of(tuning, "range_clusters"),
    },
    LiveSetting {
        key: "sync_expire",
        meaning: "Scheduler deadline: milliseconds until a sync request is served out of order; auto: 500",
        set: |tuning, _, text| set_knob(tuning, "sync_expire_ms", text),
        get: |tuning, _| knob(tuning, "sync_expire_ms"),
    },
    LiveSetting {
        key: "async_expire",
        meaning: "Scheduler deadline: milliseconds until an async request is served out of order; auto: 5000",
        set: |tuning, _, text| set_knob(tuning, "async_expire_ms", text),
        get: |tuning, _| knob(tuning, "async_expire_ms"),
    },
    LiveSetting {
        key: "async_starved",
        meaning: "Scheduler deadline: sync batches that may begin while an async request waits; auto: 2",
        set: |tuning, _, text| set_knob(tuning, "starved", text),
        get: |tuning, _| knob(tuning, "starved"),
    },
    LiveSetting {
        key: "fifo_batch",
        meaning: "Schedulers: requests of a batch in disk order, on rotating disks only; auto: 4",
        set: |tuning, _, text| set_knob(tuning, "batch", text),
        get: |tuning, _| knob(tuning, "batch"),
    },
    LiveSetting {
        key: "front_merges",
        meaning: "Schedulers: whether a request merges with one behind it, 0 or 1; auto: 1",
        set: |tuning, _, text| set_knob(tuning, "front_merges", text),
        get: |tuning, _| knob(tuning, "front_merges"),
    },
    LiveSetting {
        key: "read_expire",
        meaning: "sync_expire under Linux's name: with the scheduler deadline-rw, of reads",
        set: |tuning, _, text| set_knob(tuning, "sync_expire_ms", text),
        get: |tuning, _| knob(tuning, "sync_expire_ms"),
    },
    LiveSetting {
        key: "write_expire",
        meaning: "async_expire under Linux's name: with the scheduler deadline-rw, of writes",
        set: |tuning, _, text| set_knob(tuning, "async_expire_ms", text),
        get: |tuning, _| knob(tuning, "async_expire_ms"),
    },
    LiveSetting {
        key: "writes_starved",
        meaning: "async_starved under Linux's name: with the scheduler deadline-rw, of writes",
        set: |tuning, _, text| set_knob(tuning, "starved", text),
        get: |tuning, _| knob(tuning, "starved"),
    },
    LiveSetting {
        key: "dirty_bytes",
        meaning: "Bytes of unwritten data at which writers wait: Linux's vm.dirty_bytes",
        set: |tuning, _, text| number(text).map(|bytes| tuning.dirty_bytes = bytes),
        get: |tuning, _| tuning.dirty_bytes.to_string(),
    },
    LiveSetting {
        key: "dirty_background_bytes",
        meaning: "Bytes of unwritten data at which write-back starts: vm.dirty_background_bytes",
        set: |tuning, _, text| number(text).map(|bytes| tuning.dirty_background_bytes = bytes),
        get: |tuning, _| tuning.dirty_background_bytes.to_string(),
    },
    LiveSetting {
        key: "dirty_expire_centisecs",
        meaning: "Age at which data is written back, in hundredths of a second: vm.dirty_expire_centisecs",
        set: |tuning, _, text| {
            number(text).map(|number| tuning.dirty_expire = Duration::from_millis(number.saturating_mul(10)))
        },
        get: |tuning, _| (tuning.dirty_expire.as_millis() / 10).to_string(),
    },
];

impl Engine {
    /// The value of a key of [`LIVE_SETTINGS`].
    ///
    /// # Errors
    /// `Error::Options` if there is no such key.
    pub fn setting(&self, key: &str) -> Result<String> {
        find(key).map(|setting| (setting.get)(&self.tuning(), self.options().page_bytes))
    }

    /// Changes the value of a key of [`LIVE_SETTINGS`], as [`tune`](Self::tune).
    ///
    /// # Errors
    /// `Error::Options` if there is no such key, or if the value does not fit it. Then nothing
    /// changes.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let setting = find(key)?;
        let mut tuning = self.tuning();
        let wrong = |why: String| Error::Options(format!("{key}={value}: {why}"));
        (setting.set)(&mut tuning, self.options().page_bytes, value).map_err(wrong)?;
        self.tune(tuning).map_err(|error| wrong(error.to_string()))
    }
}

fn find(key: &str) -> Result<&'static LiveSetting> {
    LIVE_SETTINGS.iter().find(|setting| setting.key == key).ok_or_else(|| {
        let keys: Vec<_> = LIVE_SETTINGS.iter().map(|setting| setting.key).collect();
        Error::Options(format!("{key}: no such setting of a running engine; known: {}", keys.join(", ")))
    })
}

fn settings(tuning: &Tuning) -> Settings {
    let mut settings = Settings::default();
    settings.options = tuning.apply(settings.options);
    settings
}

/// Sets the policy, a setting of a policy or a setting of windows, as the option of that name does.
fn of_settings(tuning: &mut Tuning, key: &str, value: &str) -> std::result::Result<(), String> {
    let mut settings = settings(tuning);
    settings.set(key, value).map_err(|error| {
        let text = error.to_string();
        text.strip_prefix(&format!("{key}={value}: ")).map_or_else(|| text.clone(), str::to_owned)
    })?;
    let Options { policy, range, la_size, persist, .. } = settings.options;
    *tuning = Tuning { policy, range, la_size, persist, ..*tuning };
    Ok(())
}

fn value_of(tuning: &Tuning, key: &str) -> String {
    let row = crate::SETTINGS.iter().find(|row| row.key == key);
    row.and_then(|row| row.value(&settings(tuning))).unwrap_or_else(|| "auto".to_owned())
}

fn number(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "not a whole number".to_owned())
}

/// A window in pages: `256`, or `1MiB`, of which a part of a page counts as one.
fn window(text: &str, page_bytes: u64) -> std::result::Result<u32, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).and_then(pages);
    }
    let bytes = bowwave_backend::parse_size(text).ok_or("not pages, as in 256, or a size, as in 1MiB")?;
    pages(bytes.div_ceil(page_bytes.max(1)))
}

/// Sets a knob of the schedulers: a number, or `auto` for the scheduler's default.
fn set_knob(tuning: &mut Tuning, name: &str, text: &str) -> std::result::Result<(), String> {
    let value = if text == "auto" { Some(None) } else { text.parse().ok().map(Some) };
    if value.is_some_and(|value| tuning.scheduler.set(name, value).is_ok()) {
        return Ok(());
    }
    let knob = KNOBS.iter().find(|knob| knob.name == name).expect("a knob");
    let (low, high) = (knob.low, knob.high);
    Err(match high {
        _ if !knob.is_whole() => format!("not milliseconds from {low} to {high}; or auto"),
        1.0 => "not 0 or 1; or auto".to_owned(),
        _ => format!("not a whole number from {low} to {high}; or auto"),
    })
}

fn knob(tuning: &Tuning, name: &str) -> String {
    tuning.scheduler.get(name).map_or_else(|| "auto".to_owned(), |value| value.to_string())
}

fn pages(number: u64) -> std::result::Result<u32, String> {
    u32::try_from(number).map_err(|_| "too large".to_owned())
}

/// A number of KiB as a size.
fn kib(text: &str) -> std::result::Result<String, String> {
    number(text).map(|number| format!("{number}KiB"))
}

fn mib(text: &str) -> std::result::Result<String, String> {
    number(text).map(|number| format!("{number}MiB"))
}
