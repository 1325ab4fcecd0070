//! The results: violations of a cell, and the table of all cells.

use std::fmt::Write as _;
use std::time::Duration;

use bowwave_testkit::hostile::{Fault, Requests};

use crate::calls::Outcome;
use crate::modes::Call;
use crate::mounted::Mounted;
use crate::{Group, LIMIT};

/// Measurements of a cell.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) group: Group,
    pub(crate) call: Call,
    pub(crate) outcome: Outcome,
    /// Of the call; for the end of a mount, from SIGTERM to the process exit.
    pub(crate) time: Duration,
    /// Of the honest read afterwards.
    pub(crate) recovery: Duration,
    /// Peak of resident memory above the idle mount's, in MiB.
    pub(crate) memory_mib: u64,
    pub(crate) requests: Requests,
    /// A secret header sent outside the store.
    pub(crate) leaks: Option<String>,
    /// Faults found afterwards.
    pub(crate) trouble: Option<String>,
}

impl Cell {
    pub(crate) fn new(group: Group, call: Call) -> Self {
        let outcome = Outcome::Wrong("not run".to_owned());
        let (time, recovery, requests) = (Duration::ZERO, Duration::ZERO, Requests::default());
        Self { group, call, outcome, time, recovery, memory_mib: 0, requests, leaks: None, trouble: None }
    }

    /// Records memory and requests since `before`.
    pub(crate) fn measure(&mut self, mounted: &Mounted, before: &Requests) {
        self.memory_mib = mounted.peak_kib().saturating_sub(mounted.idle_kib) >> 10;
        self.requests = mounted.server.requests().since(before);
    }

    pub(crate) fn fault(&self) -> Fault {
        self.group.mode.fault
    }

    /// Whether the next call can use the mount: memory left by this call would count there.
    pub(crate) fn is_well(&self) -> bool {
        self.trouble.is_none() && self.outcome != Outcome::Hung && self.memory_mib <= MEMORY_MIB_MAX / 2
    }

    fn limit(&self) -> Duration {
        if self.call == Call::End { END_LIMIT } else { LIMIT }
    }

    /// Whether it was too slow, possibly because of a busy machine.
    pub(crate) fn is_late(&self) -> bool {
        // The mount's own time-outs, such as that of a write-out, end calls, too.
        let timed_out = matches!(&self.outcome, Outcome::Fails(how) if how == "ETIMEDOUT");
        let works = self.group.row.letter(self.call) == '+';
        self.time > self.limit() || self.recovery > LIMIT || (timed_out && works)
    }

    /// All violations of the cell.
    fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let letter = self.group.row.letter(self.call);
        match (&self.outcome, letter) {
            (Outcome::Wrong(what), _) => found.push(what.clone()),
            (Outcome::Hung, _) => found.push(format!("is ended after {:.1?}", self.time)),
            (Outcome::Works, 'F') => found.push("works, and should fail".to_owned()),
            (Outcome::Fails(how), '+') => found.push(format!("fails with {how}, and should work")),
            _ => {}
        }
        if self.time > self.limit() && self.outcome != Outcome::Hung {
            found.push(format!("takes {:.1?} of at most {:?}", self.time, self.limit()));
        }
        if self.recovery > LIMIT {
            found.push(format!("an honest read afterwards takes {:.1?}", self.recovery));
        }
        if self.memory_mib > MEMORY_MIB_MAX {
            found.push(format!("takes {} MiB of at most {MEMORY_MIB_MAX}", self.memory_mib));
        }
        found.extend(self.leaks.iter().map(|name| format!("{name} reaches another host")));
        found.extend(self.trouble.clone());
        found
    }

    /// The environment that runs this cell alone.
    fn reproducer(&self) -> String {
        let Group { mode, dialect, config, .. } = self.group;
        let call = self.call.name();
        format!(
            "BOWWAVE_HOSTILE_MODE={mode} BOWWAVE_HOSTILE_STORE={} BOWWAVE_HOSTILE_CALL={call} \
             BOWWAVE_HOSTILE_CONFIG={}",
            dialect.scheme(),
            config.name()
        )
    }

    fn line(&self) -> String {
        let Group { mode, dialect, config, .. } = self.group;
        let outcome = match &self.outcome {
            Outcome::Works => "works".to_owned(),
            Outcome::Fails(how) => format!("fails: {how}"),
            Outcome::Wrong(what) => format!("WRONG: {what}"),
            Outcome::Hung => "HANGS".to_owned(),
        };
        let requests = self.requests;
        let Requests { head, get, list, put, post, delete, other_host } = requests;
        let violations = self.violations();
        let verdict = if violations.is_empty() { "ok".to_owned() } else { violations.join("; ") };
        format!(
            "{mode}\t{}\t{}\t{}\t{outcome}\t{:.2}\t{}\thead {head} get {get} list {list} put {put} post {post} \
             delete {delete} other {other_host}\t{verdict}",
            dialect.scheme(),
            self.call.name(),
            config.name(),
            self.time.as_secs_f64(),
            self.memory_mib
        )
    }
}

/// One line of a message, short enough for a table.
pub(crate) fn brief(text: &str) -> String {
    let line = text.trim().lines().next_back().unwrap_or_default();
    line.trim_start_matches("bowwave: error: ").chars().take(120).collect()
}

/// Writes the table where the environment says, and fails if a cell has violations.
#[expect(clippy::print_stdout, reason = "the number of cells says what was tried")]
pub(crate) fn report(mut cells: Vec<Cell>) {
    assert!(!cells.is_empty(), "the environment selects no cell");
    cells.sort_by_key(|cell| {
        let Group { mode, dialect, config, .. } = cell.group;
        (mode.to_string(), dialect.scheme(), config.name(), cell.call.name())
    });
    let mut table = "mode\tstore\tcall\tconfig\toutcome\tseconds\tMiB\trequests\tverdict\n".to_owned();
    let mut failures = String::new();
    let mut failed = 0;
    for cell in &cells {
        // Writing into a string cannot fail.
        let _ = writeln!(table, "{}", cell.line());
        let violations = cell.violations();
        if !violations.is_empty() {
            failed += 1;
            let _ = writeln!(failures, "{}: {}", cell.reproducer(), violations.join("; "));
        }
    }
    if let Some(file) = std::env::var_os("BOWWAVE_HOSTILE_TABLE") {
        std::fs::write(&file, table).expect("the table's file is writable");
    }
    println!("{} cells, {failed} with violations", cells.len());
    assert!(failed == 0, "{failed} of {} cells:\n{failures}", cells.len());
}

/// How long a read-only mount may take to end.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Memory that a hostile store may cost, in MiB.
const MEMORY_MIB_MAX: u64 = 64;
