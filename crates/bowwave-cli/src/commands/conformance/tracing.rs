//! The kernel's tracepoints, in a private trace instance.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bowwave_core::Advice;

use super::event::{Event, Line};
use super::script::Op;

/// Buffer for events: a pattern causes at most a few hundred thousand, of about 80 bytes.
const BUFFER_KIB: u64 = 16 << 10;

/// The traced events.
const EVENTS: [&str; 2] = ["events/readahead", "events/filemap/mm_filemap_delete_from_page_cache"];

/// A parsed trace.
#[derive(Debug)]
pub(super) struct Told {
    /// The readahead events of each step.
    pub(super) steps: Vec<Vec<Event>>,
    /// Whether the kernel dropped pages without being told to: memory pressure, or another process
    /// dropped caches.
    pub(super) disturbed: bool,
}

/// A trace instance with the readahead events of one file.
#[derive(Debug)]
pub(super) struct Tracing {
    instance: PathBuf,
    /// Closed first on drop: an instance in use cannot be removed.
    marker: Option<File>,
    cpu: usize,
}

impl Tracing {
    /// Whether this kernel has the tracepoints.
    pub(super) fn is_offered(tracefs: &Path) -> bool {
        tracefs.join("events/readahead/page_cache_ra_order").is_dir()
    }

    /// Creates the instance `name` for events of `cpu`.
    pub(super) fn start(tracefs: &Path, name: &str, cpu: usize) -> io::Result<Self> {
        let instance = tracefs.join("instances").join(name);
        fs::create_dir(&instance)?;
        let prepare = || {
            fs::write(instance.join(format!("per_cpu/cpu{cpu}/buffer_size_kb")), BUFFER_KIB.to_string())?;
            File::options().write(true).open(instance.join("trace_marker"))
        };
        match prepare() {
            Ok(marker) => Ok(Self { instance, marker: Some(marker), cpu }),
            Err(error) => {
                let _the_first_error_counts = fs::remove_dir(&instance);
                Err(error)
            }
        }
    }

    /// Traces only this file from now on, and drops earlier events.
    pub(super) fn watch(&self, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        let (major, minor) = (rustix::fs::major(metadata.st_dev()), rustix::fs::minor(metadata.st_dev()));
        // The kernel's device numbers have 20 bits for the minor.
        let device = (major << 20) | minor;
        let filter = format!("s_dev == {device} && i_ino == {}", metadata.st_ino());
        for events in EVENTS {
            let events = self.instance.join(events);
            fs::write(events.join("filter"), &filter)?;
            fs::write(events.join("enable"), "1")?;
        }
        fs::write(self.instance.join("trace"), "")
    }

    /// Marks the start of a step.
    pub(super) fn step(&mut self, step: usize) -> io::Result<()> {
        // One write is one entry of the trace.
        let marker = self.marker.as_mut().expect("closed only when dropped");
        marker.write_all(format!("step {step}\n").as_bytes())
    }

    /// The events since [`watch`](Self::watch), by step of a script.
    pub(super) fn told(&self, ops: &[Op]) -> io::Result<Told> {
        for events in EVENTS {
            fs::write(self.instance.join(events).join("enable"), "0")?;
        }
        let stats = fs::read_to_string(self.instance.join(format!("per_cpu/cpu{}/stats", self.cpu)))?;
        let lost = stats.lines().any(|line| {
            let (name, count) = line.split_once(": ").unwrap_or_default();
            matches!(name, "overrun" | "dropped events") && count.trim() != "0"
        });
        if lost {
            return Err(io::Error::other("the trace buffer ran over"));
        }
        let mut told = Told { steps: vec![Vec::new(); ops.len()], disturbed: false };
        let mut step = None;
        for line in fs::read_to_string(self.instance.join("trace"))?.lines() {
            match Line::parse(line) {
                Some(Line::Step(next)) => step = Some(next),
                Some(Line::Event(event)) => {
                    let events = step.and_then(|step: usize| told.steps.get_mut(step));
                    events.ok_or_else(|| io::Error::other("an event before the first step"))?.push(event);
                }
                Some(Line::Dropped) => {
                    let op = step.and_then(|step: usize| ops.get(step));
                    told.disturbed |= !matches!(op, Some(Op::Advise { advice: Advice::DontNeed, .. }));
                }
                None => {}
            }
        }
        Ok(told)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.marker = None;
        for events in EVENTS {
            let _gone_anyway = fs::write(self.instance.join(events).join("enable"), "0");
        }
        if let Err(error) = fs::remove_dir(&self.instance) {
            note!("{} is left behind: {error}", self.instance.display());
        }
    }
}
