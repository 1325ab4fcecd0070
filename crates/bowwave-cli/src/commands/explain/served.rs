//! `explain --scheduler`: a trace in front of a device, each dispatch with its reason.

mod layout;
mod lines;
mod pieces;
mod server;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::Policy;
use bowwave_core::schedule::Reason;
use bowwave_core::schedule::{Priority, SchedulerConfig, SchedulerStats};
use bowwave_sim::device::DeviceSpec;

use super::Input;
use crate::Failure;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::values::Explained;
use layout::Layout;
use lines::Lines;
use server::{Server, Setup};

/// Options of `--scheduler`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Served {
    /// Explain this scheduler instead: noop, deadline-rw, deadline or deadline-literal, optionally
    /// with settings, as in deadline:starved=4
    #[arg(long, value_name = "NAME", value_parser = known)]
    pub(super) scheduler: Option<String>,

    /// The device behind the scheduler, as `replay` has it
    #[arg(long, value_name = "DEVICE", default_value = "hdd", value_parser = device, requires = "scheduler")]
    device: String,

    /// Queue depth of the device; by default its own (depth or slots)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), requires = "scheduler")]
    device_depth: Option<u32>,

    /// The priority of a process: PID=real-time, best-effort or idle; may be given several times
    #[arg(long, value_name = "PID=CLASS", value_parser = priority, requires = "scheduler")]
    priority: Vec<(u64, Priority)>,
}

fn known(text: &str) -> Result<String, String> {
    bowwave_baselines::scheduler(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn device(text: &str) -> Result<String, String> {
    DeviceSpec::open(text, &ALGORITHMS).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Names of priorities, highest first.
const PRIORITIES: [(&str, Priority); 3] =
    [("real-time", Priority::RealTime), ("best-effort", Priority::BestEffort), ("idle", Priority::Idle)];

fn priority(text: &str) -> Result<(u64, Priority), String> {
    let parsed = text.split_once('=').and_then(|(pid, name)| {
        let known = PRIORITIES.iter().find(|&&(known, _)| known == name)?;
        Some((pid.parse().ok()?, known.1))
    });
    parsed.ok_or_else(|| "not of the form PID=CLASS; there are real-time, best-effort, idle".to_owned())
}

impl Served {
    /// The device and its scheduler, fully configured.
    fn setup(&self, scheduler: &str) -> Result<(DeviceSpec, SchedulerConfig), Failure> {
        let spec = DeviceSpec::open(&self.device, &ALGORITHMS).map_err(Failure::usage)?;
        let spec = match self.device_depth {
            None => spec,
            Some(depth) => spec.with_depth(depth).map_err(Failure::usage)?,
        };
        let (name, knobs) =
            scheduler.split_once(':').map_or((scheduler, None), |(name, knobs)| (name, Some(knobs)));
        let queue = spec.queue();
        let mut config = SchedulerConfig {
            algorithm: bowwave_baselines::scheduler(name).map_err(Failure::usage)?.algorithm,
            request_bytes_max: spec.build(0).request_bytes_max(),
            merge_back: queue.merge,
            ..queue.scheduler.clone()
        };
        if let Some(knobs) = knobs {
            config.turn(knobs).map_err(Failure::usage)?;
        }
        config.merge_front &= queue.merge;
        Ok((spec, config))
    }
}

/// Serves the trace and prints the dispatches; returns the number of skipped rows.
pub(super) fn run(args: &super::Args, scheduler: &str) -> Result<u64, Failure> {
    let (spec, scheduler) = args.served.setup(scheduler)?;
    let mut input = Input::open(&args.trace, args.format)?;
    let layout = Layout::read(&mut input, args.file_pages)?;
    let mut server = Server::new(Setup {
        policy: match args.policy {
            Some(Explained::Files(policy)) => policy,
            Some(Explained::Swap(policy)) => {
                let wrong = format!("--policy {} is of swap, and --scheduler serves files", policy.name());
                return Err(Failure::usage(wrong));
            }
            None => Policy::None,
        },
        ra_pages: args.ra_pages,
        device: spec.build(0),
        scheduler,
        priorities: args.served.priority.iter().copied().collect(),
        layout: &layout,
    })
    .map_err(Failure::usage)?;
    let mut output = Output::stdout();
    let outcome = serve(&mut server, &layout, Lines::new(&mut output, args.json, &layout));
    output.finish(outcome)?;
    output::note(said(server.stats()));
    Ok(layout.left_out)
}

fn serve(server: &mut Server<'_>, layout: &Layout, mut lines: Lines<'_>) -> Result<(), Failure> {
    let mut progress = Progress::rows("serving", layout.rows.len() as u64);
    lines.head()?;
    for rows in layout.rows.chunk_by(|one, other| one.time_ns == other.time_ns) {
        server.at(rows);
        progress.at(rows.last().map_or(0, |row| row.number));
        server.dispatched().try_for_each(|dispatch| lines.dispatch(&dispatch))?;
    }
    server.finish();
    server.dispatched().try_for_each(|dispatch| lines.dispatch(&dispatch))
}

/// The counters in one line.
fn said(stats: &SchedulerStats) -> String {
    let reasons = Reason::ALL.into_iter().filter(|&reason| stats.dispatched_for(reason) > 0);
    let reasons: Vec<String> =
        reasons.map(|reason| format!("{} {}", stats.dispatched_for(reason), reason.name())).collect();
    format!(
        "{} requests, {} merged, {} promoted, {} dropped; {} dispatches ({}), {} past their deadline",
        stats.added,
        stats.merged + stats.closed,
        stats.promoted,
        stats.cancelled,
        stats.dispatches(),
        reasons.join(", "),
        stats.late,
    )
}
