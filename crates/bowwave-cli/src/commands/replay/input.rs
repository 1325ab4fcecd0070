//! Input of a replay: a trace, or an experiment with its own readers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Eviction, Policy};
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::experiment::Experiment;
use bowwave_sim::fast::Writes;
use bowwave_sim::oracle::Bound;
use bowwave_sim::queue::QueueConfig;
use bowwave_sim::record::Run;
use bowwave_sim::replay::{self, ReplayOptions, Workload};
use bowwave_sim::sweep::{Axes, Case, Common, SweepError};
use bowwave_trace::import::{Objects, Options};

use super::Args;
use crate::commands::trace;
use crate::progress::Progress;
use crate::{Failure, values};

/// Input of a replay.
pub(super) enum Input {
    Experiment(Box<Experiment>),
    Trace(Workload, ReplayOptions),
}

impl Input {
    pub(super) fn open(args: &Args) -> Result<Self, Failure> {
        if args.input.extension().is_some_and(|extension| extension == "toml") {
            if let Some(option) = args.of_traces_only() {
                let message = format!("{option} is for traces; an experiment has it for each of its readers");
                return Err(Failure::usage(message).try_this("a key of [[readers]] in the experiment"));
            }
            return Experiment::read(&args.input)
                .map(|experiment| Self::Experiment(Box::new(experiment)))
                .map_err(Failure::failed);
        }
        let mut options = Options { block_bytes: args.block_size, ..Options::default() };
        if let Some(bytes) = args.block_size {
            options.objects = Objects::Blocks(bytes.get());
        }
        let (import, total) = trace::open(&args.input, args.format, &options)?;
        let mut progress = Progress::bytes("reading", total);
        let (trace, repairs) =
            replay::compact(import, &args.input, |bytes| progress.at(bytes)).map_err(Failure::failed)?;
        drop(progress);
        trace::note_repairs(repairs);
        let workload = Workload::new(trace, args.file_size).map_err(Failure::failed)?;
        let writes = args.writes.unwrap_or_default();
        let options = ReplayOptions {
            pace: args.pace.unwrap_or_default(),
            depth: args.depth.unwrap_or(1),
            writes,
            ..ReplayOptions::default()
        };
        workload.check(options).map_err(Failure::failed)?;
        let counts = workload.counts();
        if counts.reads == 0 && (writes == Writes::LeftOut || counts.writes == 0) {
            let message = format!("{} has nothing to read", workload.name());
            return Err(Failure::failed(message).try_this("a trace with reads, or --writes as-reads"));
        }
        Ok(Self::Trace(workload, options))
    }

    /// Default values to vary.
    pub(super) fn axes(&self) -> Axes {
        match self {
            Self::Experiment(experiment) => experiment.axes.clone(),
            Self::Trace(..) => Axes {
                policies: Axes::POLICIES.to_vec(),
                ra_pages: vec![32],
                cache_bytes: vec![None],
                devices: ["hdd", "nvme", "s3"].map(str::to_owned).to_vec(),
                schedulers: vec![String::new()],
                seeds: vec![0],
                workloads: vec![String::new()],
            },
        }
    }

    /// Default fixed settings.
    pub(super) fn common(&self) -> Common {
        match self {
            Self::Experiment(experiment) => experiment.common.clone(),
            Self::Trace(..) => Common::default(),
        }
    }

    /// Runs one case.
    pub(super) fn run(
        &self,
        case: &Case,
        common: &Common,
        reads: &Arc<AtomicU64>,
    ) -> Result<Run, SweepError> {
        match self {
            Self::Experiment(experiment) => {
                case.run(common, &|machine, case| experiment.load(machine, case), reads)
            }
            Self::Trace(workload, options) => workload.run(case, common, *options, reads),
        }
    }

    /// Rejects an explicitly requested oracle where none exists.
    pub(super) fn can_have(&self, oracle: Oracle, file_size: Option<u64>) -> Result<(), Failure> {
        match self {
            Self::Experiment(_) if oracle == Oracle::Yes => Err(Failure::usage(
                "only a trace has an oracle; the readers of an experiment generate their reads as they go",
            )
            .try_this("--policy all")),
            Self::Trace(..) if oracle == Oracle::Yes && file_size.is_some() => {
                Err(Failure::usage("the oracle takes files to end with their last access")
                    .try_this("without --file-size"))
            }
            _ => Ok(()),
        }
    }

    /// The oracle that runs will have: none with an experiment, or with files of a given size.
    pub(super) fn oracle(&self, requested: Oracle, file_size: Option<u64>) -> Oracle {
        match self {
            Self::Trace(..) if file_size.is_none() => requested,
            _ => Oracle::No,
        }
    }

    /// Maximum reads of one run.
    pub(super) fn reads(&self, case: &Case) -> u64 {
        match self {
            Self::Experiment(experiment) => experiment.reads(case),
            Self::Trace(workload, _) => workload.counts().reads,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::Experiment(experiment) => experiment.title.clone(),
            Self::Trace(workload, _) => workload.name().to_owned(),
        }
    }

    /// Reports the skipped parts of a trace.
    pub(super) fn notes(&self) {
        let Self::Trace(workload, options) = self else { return };
        let counts = workload.counts();
        if counts.writes > 0 && options.writes == Writes::LeftOut {
            note!(
                "{} of {} rows are writes and were left out (--writes as-reads counts them as reads)",
                counts.writes,
                counts.rows
            );
        }
        if counts.left_out > 0 {
            let rows = if counts.left_out == 1 { "row is a sync and was" } else { "rows are syncs and were" };
            note!("{} {rows} left out", counts.left_out);
        }
    }
}

/// Some policies, and perhaps the oracle.
#[derive(Clone, Debug)]
pub(super) struct Policies {
    pub(super) policies: Vec<Policy>,
    pub(super) oracle: Oracle,
}

/// Whether the lower bound is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oracle {
    No,
    /// Where one exists.
    IfItCan,
    Yes,
}

/// Devices, as [`DeviceSpec::open`] takes them.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Devices(pub(in crate::commands) Vec<String>);

/// Schedulers, as [`QueueConfig::with_scheduler`] takes them.
#[derive(Clone, Debug)]
pub(super) struct Schedulers(pub(super) Vec<String>);

/// Bytes; `None` is unlimited.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheSize(pub(super) Option<u64>);

pub(super) fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" {
        return Ok(Policies { policies: bowwave_baselines::ALL.to_vec(), oracle: Oracle::IfItCan });
    }
    if text == Bound::ORACLE {
        return Ok(Policies { policies: Vec::new(), oracle: Oracle::Yes });
    }
    let known = bowwave_baselines::names().join(", ");
    bowwave_baselines::policy(text)
        .map(|policy| Policies { policies: vec![policy], oracle: Oracle::No })
        .ok_or_else(|| format!("not a policy; there are all, {known}, oracle"))
}

pub(super) fn eviction(text: &str) -> Result<Eviction, &'static str> {
    text.parse()
}

/// Devices separated by commas, which may also separate the overrides of one.
pub(in crate::commands) fn devices(text: &str) -> Result<Devices, String> {
    let devices = listed(text);
    for device in &devices {
        DeviceSpec::open(device, &ALGORITHMS).map_err(|error| error.to_string())?;
    }
    Ok(Devices(devices))
}

/// Schedulers separated by commas, which may also separate the settings of one.
pub(super) fn schedulers(text: &str) -> Result<Schedulers, String> {
    let schedulers = listed(text);
    for scheduler in &schedulers {
        QueueConfig::default().with_scheduler(scheduler, &ALGORITHMS)?;
    }
    Ok(Schedulers(schedulers))
}

/// Texts separated by commas, each optionally with settings after a colon, which use commas, too.
fn listed(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',') {
        match all.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => *last = format!("{last},{part}"),
            _ => all.push(part.to_owned()),
        }
    }
    all
}

pub(super) fn cache(text: &str) -> Result<CacheSize, String> {
    if text == "unlimited" {
        return Ok(CacheSize(None));
    }
    match values::size(text)? {
        bytes if bytes < 4096 => {
            Err("less than a page of 4096 bytes; write 'unlimited' for no limit".to_owned())
        }
        bytes => Ok(CacheSize(Some(bytes))),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("not a share from 0 to 1".to_owned()),
    }
}
