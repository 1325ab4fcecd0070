//! Experiments: readers, a machine and what to vary, as a TOML file.
//!
//! ```toml
//! title = "Eight readers of one disk"
//!
//! [sweep]                            # every combination is run; each key has a default
//! policies = ["none", "ondemand"]    # without it: stream, none, ondemand
//! ra_pages = [32, 256]
//! cache_bytes = [67_108_864, 0]      # 0: unlimited
//! devices = ["hdd", "s3:slots=8"]
//! schedulers = ["noop", "deadline:starved=4"]   # before each device; without, its own
//! seeds = [1]
//!
//! [machine]                          # all optional
//! walk = "at-once"                   # or "page-by-page", as a kernel reads
//! eviction = "linux"                 # or "lru"
//! call_ns = 500                      # of a read call
//! wait_ns = 5_000                    # each time a reader blocks
//! copy_ns_a_kib = 100.0
//! failing = 0.0                      # share of requests that fail
//! check = false                      # check every invariant after every event
//! until_ms = 60_000                  # stop then; without it, when all readers have ended
//!
//! [[readers]]
//! workload = "scan"                  # optional: each name is a run of its own
//! count = 8                          # each with a file of its own, unless share_file
//! pattern = "sequential"             # or random, interleaved, strided, backward, clustered, zipf,
//!                                    # oltp
//! file_bytes = 268_435_456
//! read_bytes = 131_072
//! reads = 2_048
//!
//! [[readers]]
//! trace = "web.bwt"                  # any format that `import` knows; beside the experiment
//! file_bytes = 1_073_741_824         # of each file; without it, each ends with its last access
//! think_ns = 1_000_000               # after each read; only with pace = "closed", the default
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Eviction, FileId, Instant, Policy};
use bowwave_trace::generate::{Pattern, Spec};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use crate::device::DeviceSpec;
use crate::machine::{Access, AccessOp, Host, Machine, Pace, Process, Walk};
use crate::queue::QueueConfig;
use crate::replay::{DEVICE_BYTES_MAX, ReplayOptions, ReplayPace, Workload};
use crate::sweep::{Axes, Case, Common};

/// Maximum readers of a group: a machine supports no more.
const READERS_MAX: u32 = 1 << 16;
/// Default length of a file.
const FILE_BYTES: u64 = 64 << 20;
/// Maximum bytes of a read, as for a row of a trace.
const READ_BYTES_MAX: u64 = 4 << 30;
/// Maximum runs of a sweep: each adds a row.
const RUNS_MAX: usize = 1 << 20;
/// Longest time a key may give: 31 years.
const TIME_NS_MAX: u64 = 1_000_000_000_000_000_000;
/// Alignment of files on the device.
const FILE_ALIGNMENT: u64 = 1 << 20;

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Title.
    pub title: String,
    /// Varied settings.
    pub axes: Axes,
    /// Fixed settings.
    pub common: Common,
    /// Readers and their workload; an empty name belongs to all.
    groups: Vec<(String, Group)>,
}

/// An invalid experiment: one line with file, place and bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError(String);

#[derive(Clone, Debug)]
enum Group {
    Generated(Readers),
    Trace(Workload, ReplayOptions),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    title: String,
    #[serde(default)]
    sweep: Sweep,
    #[serde(default)]
    machine: MachineKeys,
    readers: Vec<Readers>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sweep {
    policies: Vec<String>,
    ra_pages: Vec<u32>,
    cache_bytes: Vec<u64>,
    devices: Vec<String>,
    schedulers: Vec<String>,
    seeds: Vec<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineKeys {
    walk: String,
    eviction: String,
    call_ns: u64,
    wait_ns: u64,
    copy_ns_a_kib: f64,
    failing: f64,
    check: bool,
    until_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Readers {
    workload: String,
    count: u32,
    pattern: String,
    trace: Option<PathBuf>,
    file_bytes: Option<u64>,
    read_bytes: u64,
    reads: u64,
    share_file: bool,
    streams: u32,
    stride_bytes: u64,
    cluster_bytes: u64,
    exponent: f64,
    pace: String,
    think_ns: u64,
    period_ns: u64,
    depth: u32,
    start_every_ns: u64,
    mapped: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            policies: Axes::POLICIES.map(|policy| policy.name().to_owned()).to_vec(),
            ra_pages: vec![32],
            cache_bytes: vec![0],
            devices: vec!["hdd".to_owned()],
            schedulers: vec![String::new()],
            seeds: vec![0],
        }
    }
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            workload: String::new(),
            count: 1,
            pattern: "sequential".to_owned(),
            trace: None,
            file_bytes: None,
            read_bytes: 128 << 10,
            reads: 512,
            share_file: false,
            streams: 2,
            stride_bytes: 1 << 20,
            cluster_bytes: 1 << 20,
            exponent: 1.0,
            pace: "closed".to_owned(),
            think_ns: 0,
            period_ns: 0,
            depth: 1,
            start_every_ns: 0,
            mapped: false,
        }
    }
}

impl Experiment {
    /// Reads the experiment in the file `path`, and the traces it names.
    ///
    /// # Errors
    ///
    /// An unreadable file, an unknown key or a value out of bounds; with file and line.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ExperimentError(format!("{name}: cannot read it: {error}")))?;
        Self::parse(&text, &name, path.parent().unwrap_or_else(|| Path::new("")))
    }

    /// Parses an experiment. Errors call it `name`; traces are relative to `directory`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(text: &str, name: &str, directory: &Path) -> Result<Self, ExperimentError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            ExperimentError(format!("{name}:{line}: {}", error.message().replace('\n', " ")))
        })?;
        let wrong = |part: &str, group: usize, what: &str| {
            ExperimentError(format!("{name}:{}: {what}", line_of(text, part, group, what)))
        };
        let mut axes = file.sweep.axes().map_err(|what| wrong("sweep", 0, &what))?;
        let common = file.machine.common().map_err(|what| wrong("machine", 0, &what))?;
        if file.readers.is_empty() {
            return Err(wrong("readers", 0, "readers: there are none; add [[readers]]"));
        }
        let (mut groups, mut workloads) = (Vec::new(), Vec::new());
        let mut bytes = 0u64;
        for (number, readers) in file.readers.into_iter().enumerate() {
            let workload = readers.workload.clone();
            if !workload.is_empty() && !workloads.contains(&workload) {
                workloads.push(workload.clone());
            }
            let group = readers.group(directory).map_err(|what| wrong("readers", number, &what))?;
            bytes = bytes.saturating_add(group.device_bytes());
            if bytes > DEVICE_BYTES_MAX {
                let what = format!("file_bytes: all files together take more than {DEVICE_BYTES_MAX} bytes");
                return Err(wrong("readers", number, &what));
            }
            groups.push((workload, group));
        }
        if !workloads.is_empty() {
            axes.workloads = workloads;
        }
        let title = if file.title.is_empty() { name.to_owned() } else { file.title };
        Ok(Self { title, axes, common, groups })
    }

    /// Adds the experiment's files and readers to a machine.
    pub fn load(&self, machine: &mut Machine, case: &Case) {
        let mut address = 0u64;
        for (number, group) in self.groups_of(case) {
            match group {
                Group::Generated(readers) => {
                    address = readers.add_to(machine, address, case.seed.wrapping_add(number << 32));
                }
                Group::Trace(workload, options) => address = workload.add_at(machine, address, *options),
            }
        }
    }

    /// Total reads of a case, unless it is stopped early: for progress bars.
    pub fn reads(&self, case: &Case) -> u64 {
        self.groups_of(case).map(|(_, group)| group.reads()).fold(0, u64::saturating_add)
    }

    /// The reader groups of a case, with their numbers in the experiment.
    fn groups_of(&self, case: &Case) -> impl Iterator<Item = (u64, &Group)> {
        let is_in = |workload: &str| workload.is_empty() || workload == case.workload;
        let groups = (0u64..).zip(&self.groups).filter(move |(_, (workload, _))| is_in(workload));
        groups.map(|(number, (_, group))| (number, group))
    }
}

impl Group {
    /// Maximum bytes its files take on the device.
    fn device_bytes(&self) -> u64 {
        match self {
            Self::Generated(readers) => {
                let files = if readers.share_file { 1 } else { u64::from(readers.count) };
                files.saturating_mul(readers.file_bytes().saturating_add(FILE_ALIGNMENT))
            }
            Self::Trace(workload, _) => workload.device_bytes(),
        }
    }

    /// Total reads of its readers.
    fn reads(&self) -> u64 {
        match self {
            Self::Generated(readers) => readers.reads.saturating_mul(readers.count.into()),
            Self::Trace(workload, _) => workload.counts().reads,
        }
    }
}

/// The line of the key that a message starts with, within a section (for readers, in this group);
/// the section's own line if the key is absent.
fn line_of(text: &str, part: &str, group: usize, message: &str) -> usize {
    let key = message.split([':', ' ']).next().unwrap_or_default();
    let place = || {
        let table = DeTable::parse(text).ok()?;
        let whole = table.get_ref().get(part)?;
        let part = match whole.get_ref() {
            DeValue::Array(groups) => groups.get(group)?,
            _ => whole,
        };
        let named = part.get_ref().as_table().and_then(|table| table.get_key_value(key));
        Some(named.map_or_else(|| part.span().start, |(key, _)| key.span().start))
    };
    1 + place().map_or(0, |place: usize| text[..place.min(text.len())].matches('\n').count())
}

impl Sweep {
    fn axes(self) -> Result<Axes, String> {
        let policies = self.policies.iter().map(|name| {
            bowwave_baselines::policy(name).ok_or_else(|| {
                let all = bowwave_baselines::names().join(", ");
                format!("policies: there is no `{name}`; there are {all}")
            })
        });
        let policies = policies.collect::<Result<Vec<Policy>, String>>()?;
        for device in &self.devices {
            DeviceSpec::open(device, &ALGORITHMS).map_err(|error| format!("devices: {error}"))?;
        }
        for scheduler in self.schedulers.iter().filter(|name| !name.is_empty()) {
            let known = QueueConfig::default().with_scheduler(scheduler, &ALGORITHMS);
            known.map_err(|error| format!("schedulers: `{scheduler}`: {error}"))?;
        }
        let lengths = [
            ("policies", policies.len()),
            ("ra_pages", self.ra_pages.len()),
            ("cache_bytes", self.cache_bytes.len()),
            ("devices", self.devices.len()),
            ("schedulers", self.schedulers.len()),
            ("seeds", self.seeds.len()),
        ];
        if let Some((key, _)) = lengths.into_iter().find(|&(_, length)| length == 0) {
            return Err(format!("{key}: the list is empty, so nothing would run"));
        }
        let runs = lengths.into_iter().fold(1usize, |product, (_, length)| product.saturating_mul(length));
        if runs > RUNS_MAX {
            return Err(format!("policies: {runs} combinations are more than {RUNS_MAX} runs"));
        }
        if let Some(pages) = self.ra_pages.iter().find(|&&pages| pages > 1 << 20) {
            return Err(format!("ra_pages: {pages} is more than 1048576"));
        }
        let cache_bytes = self.cache_bytes.into_iter().map(|bytes| Some(bytes).filter(|&bytes| bytes > 0));
        let cache_bytes: Vec<Option<u64>> = cache_bytes.collect();
        if let Some(bytes) = cache_bytes.iter().flatten().find(|&&bytes| bytes < 4096) {
            return Err(format!("cache_bytes: {bytes} is less than a page of 4096; 0 is without end"));
        }
        Ok(Axes {
            policies,
            ra_pages: self.ra_pages,
            cache_bytes,
            devices: self.devices,
            schedulers: self.schedulers,
            seeds: self.seeds,
            workloads: vec![String::new()],
        })
    }
}

impl MachineKeys {
    fn common(self) -> Result<Common, String> {
        let walk = match self.walk.as_str() {
            "" | "at-once" => Walk::AtOnce,
            "page-by-page" => Walk::PageByPage,
            other => return Err(format!("walk: there is no `{other}`; there are at-once, page-by-page")),
        };
        let eviction = match self.eviction.as_str() {
            "" => Eviction::TwoList,
            name => name.parse().map_err(|error| format!("eviction: `{name}`: {error}"))?,
        };
        for (key, value, most) in [("failing", self.failing, 1.0), ("copy_ns_a_kib", self.copy_ns_a_kib, 1e9)]
        {
            if !(0.0..=most).contains(&value) {
                return Err(format!("{key}: {value} is not from 0 to {most}"));
            }
        }
        let host = Host { call_ns: self.call_ns, wait_ns: self.wait_ns, copy_ns_a_kib: self.copy_ns_a_kib };
        for (key, value) in [("call_ns", self.call_ns), ("wait_ns", self.wait_ns)] {
            if value > 1_000_000_000 {
                return Err(format!("{key}: {value} is more than a second"));
            }
        }
        if let Some(ms) = self.until_ms.filter(|ms| *ms > TIME_NS_MAX / 1_000_000) {
            return Err(format!("until_ms: {ms} is more than 31 years"));
        }
        let until = self.until_ms.map(|ms| Instant(ms.saturating_mul(1_000_000)));
        Ok(Common {
            host,
            walk,
            eviction,
            failing: self.failing,
            check: self.check,
            until,
            ..Common::default()
        })
    }
}

impl Readers {
    fn group(self, directory: &Path) -> Result<Group, String> {
        let counts = [("count", self.count, READERS_MAX), ("depth", self.depth, 4096)];
        for (key, value, most) in counts {
            if !(1..=most).contains(&value) {
                return Err(format!("{key}: {value} is not from 1 to {most}"));
            }
        }
        let last_start = self.start_every_ns.saturating_mul(self.count.into());
        let times =
            [("think_ns", self.think_ns), ("period_ns", self.period_ns), ("start_every_ns", last_start)];
        if let Some((key, ns)) = times.into_iter().find(|&(_, ns)| ns > TIME_NS_MAX) {
            return Err(format!("{key}: {ns} ns in all is more than 31 years"));
        }
        if self.read_bytes > READ_BYTES_MAX {
            return Err(format!("read_bytes: {} is more than {READ_BYTES_MAX}", self.read_bytes));
        }
        if let Some(trace) = &self.trace {
            // Links are by the row of one trace; an experiment may have several.
            let mut paces = ReplayPace::ALL.into_iter().filter(|pace| *pace != ReplayPace::Think);
            let pace = paces.find(|pace| pace.name() == self.pace);
            let pace = pace.ok_or_else(|| {
                format!("pace: there is no `{}` for a trace; there are closed, trace, open", self.pace)
            })?;
            let workload = Workload::open(&directory.join(trace), self.file_bytes)
                .map_err(|error| format!("trace: {error}"))?;
            if self.think_ns > 0 && pace != ReplayPace::Closed {
                return Err(format!("think_ns: means nothing with pace = \"{}\"", self.pace));
            }
            let options = ReplayOptions {
                pace,
                depth: self.depth,
                think_ns: self.think_ns,
                ..ReplayOptions::default()
            };
            workload.check(options).map_err(|error| format!("trace: {error}"))?;
            return Ok(Group::Trace(workload, options));
        }
        self.pace().and_then(|_| self.spec(0).map(drop))?;
        Ok(Group::Generated(self))
    }

    /// Length of a file.
    fn file_bytes(&self) -> u64 {
        self.file_bytes.unwrap_or(FILE_BYTES)
    }

    /// Access pattern of one reader.
    fn spec(&self, seed: u64) -> Result<Spec, String> {
        let Self { streams, stride_bytes, cluster_bytes, exponent, .. } = *self;
        let pattern = match self.pattern.as_str() {
            "sequential" => Pattern::Sequential,
            "random" => Pattern::Random,
            "interleaved" => Pattern::Interleaved { streams },
            "strided" => Pattern::Strided { stride_bytes },
            "backward" => Pattern::Backward,
            "clustered" => Pattern::Clustered { cluster_bytes },
            "zipf" => Pattern::Zipf { exponent },
            "oltp" => Pattern::Oltp { exponent },
            other => {
                return Err(format!(
                    "pattern: there is no `{other}`; there are sequential, random, interleaved, strided, backward, \
                     clustered, zipf, oltp"
                ));
            }
        };
        let Self { reads: rows, read_bytes: block_bytes, .. } = *self;
        let spec = Spec { pattern, rows, file_bytes: self.file_bytes(), block_bytes, gap_ns: 0, seed };
        spec.generate().map_err(|error| {
            error.to_string().replace("block_bytes", "read_bytes").replace("rows", "reads")
        })?;
        Ok(spec)
    }

    fn pace(&self) -> Result<Pace, String> {
        match (self.pace.as_str(), self.period_ns) {
            ("closed", 0) => Ok(Pace::Closed { think_ns: self.think_ns }),
            ("closed", _) => Err("period_ns: means nothing with pace = \"closed\"".to_owned()),
            ("every", 0) => Err("period_ns: pace = \"every\" needs it, at least 1".to_owned()),
            ("every", period_ns) => Ok(Pace::Every { period_ns }),
            (other, _) => Err(format!("pace: there is no `{other}` here; there are closed, every")),
        }
    }

    /// Adds files and readers from `address` on; returns where the next file may start.
    fn add_to(&self, machine: &mut Machine, mut address: u64, seed: u64) -> u64 {
        let mut shared = None;
        for number in 0..u64::from(self.count) {
            let file = shared.unwrap_or_else(|| {
                let name = format!("{}-{}", self.pattern, machine.file_count());
                let file = machine.add_file(&name, self.file_bytes(), address);
                address = address.saturating_add(self.file_bytes()).next_multiple_of(FILE_ALIGNMENT);
                file
            });
            shared = self.share_file.then_some(file);
            machine.add_process(Process {
                start: Instant(number.saturating_mul(self.start_every_ns)),
                source: self.source(file, seed.wrapping_add(number)),
                pace: self.pace().unwrap_or(Pace::Closed { think_ns: 0 }),
                depth: self.depth,
            });
        }
        address
    }

    fn source(&self, file: FileId, seed: u64) -> Box<dyn Iterator<Item = Access> + Send> {
        let op = if self.mapped { AccessOp::Load } else { AccessOp::Read };
        let rows = self.spec(seed).ok().and_then(|spec| spec.generate().ok());
        let rows = rows.expect("the experiment was checked when it was read");
        Box::new(rows.map(move |row| Access {
            at: Instant(row.time_ns),
            op,
            file,
            offset: row.offset,
            bytes: row.length,
        }))
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExperimentError {}
