//! `bowwave explain`: what a readahead policy decides on a trace, one decision a line.
//!
//! Drives `bowwave-core`'s cache with an instant device and unlimited memory, so that what it prints are the decisions
//! and nothing of a machine.

mod decisions;
mod lines;

use std::path::{Path, PathBuf};

use bowwave_core::Policy;
use bowwave_trace::import::{self, Format, Import, Options};
use bowwave_trace::{Op, Record};

use crate::Failure;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::values;
use decisions::Explainer;
use lines::Lines;

/// Rows between two reports to the progress bar.
const ROWS_A_REPORT: u64 = 4096;

/// Arguments of `bowwave explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The trace is CSV with the header time_ns,pid,op,file,offset,length, where offsets and lengths count bytes, or of any \
other format that `bowwave import` knows. Reads are walked \
page by page (4096 bytes), with one readahead state for each (pid, file). Each page of a 'load' or 'store' faults, as if \
it were not mapped. Memory is unlimited and the device instant: \
only 'evict' rows take pages out. The advice 'willneed', 'random' and 'sequential' is heeded; other rows only count.

Examples:
  bowwave explain trace.csv --policy ondemand
  bowwave explain app.strace --policy ondemand-patch --ra-pages 256 --json
  zcat trace.csv.gz | bowwave explain - --policy ondemand")]
pub struct Args {
    /// The trace; - reads standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The readahead policy
    #[arg(long, value_name = "POLICY", value_parser = values::policy())]
    policy: Policy,

    /// Most pages of a readahead window
    #[arg(long, value_name = "PAGES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ra_pages: u32,

    /// Pages of every file; without it, files have no end
    #[arg(long, value_name = "PAGES")]
    file_pages: Option<u64>,

    /// The format of the trace; without it, told from its first bytes
    #[arg(long, value_name = "FORMAT", value_parser = super::import::format())]
    format: Option<Format>,

    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Reads the trace and prints the decisions.
///
/// # Errors
/// If the trace cannot be read or is not one, with its line; if standard output cannot be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    let explainer = Explainer::new(args.policy, args.ra_pages, args.file_pages)?;
    let mut output = Output::stdout();
    let outcome = Input::open(&args.trace, args.format).and_then(|input| {
        let lines = Lines::new(&mut output, args.json);
        explain(explainer, input, lines)
    });
    let left_out = output.finish(outcome)?;
    if left_out > 0 {
        output::note(format_args!(
            "{left_out} rows are neither reads, memory accesses, advice nor evictions and were left out"
        ));
    }
    Ok(())
}

/// Explains a trace; the number of rows that mean nothing here.
fn explain(mut explainer: Explainer, input: Input, mut lines: Lines<'_>) -> Result<u64, Failure> {
    let Input { name, mut rows, total } = input;
    let mut progress = Progress::bytes("explaining", total);
    let mut record = Record::default();
    let (mut access, mut left_out) = (0, 0);
    lines.head()?;
    while rows.read(&mut record).map_err(Failure::failed)? {
        let at = |message: String| Failure::failed(format_args!("{name}: row {access}: {message}"));
        match record.op {
            Op::Read | Op::Load | Op::Store | Op::Evict | Op::WillNeed | Op::Random | Op::Sequential => {
                explainer.access(&record).map_err(at)?;
                for decision in explainer.decisions() {
                    lines.decision(access, &record, decision)?;
                }
            }
            Op::Write | Op::Fsync | Op::DontNeed => left_out += 1,
        }
        access += 1;
        if access % ROWS_A_REPORT == 0 {
            progress.at(rows.bytes_read());
        }
    }
    for (repair, count) in rows.repairs().iter() {
        output::note(format_args!("{}: {count}", repair.description()));
    }
    Ok(left_out)
}

/// An open trace.
struct Input {
    /// What errors call it.
    name: String,
    rows: Import,
    /// Its size in bytes, if it is a file.
    total: Option<u64>,
}

impl Input {
    fn open(path: &Path, format: Option<Format>) -> Result<Self, Failure> {
        let options = Options::default();
        if path == Path::new("-") {
            let name = "standard input".to_owned();
            let rows = import::from_reader(std::io::stdin(), &name, format, &options);
            return Ok(Self { name, rows: rows.map_err(Failure::failed)?, total: None });
        }
        let total = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
        let refused = |error| Failure::failed(error).try_this("the path of a trace, or - for standard input");
        let rows = import::open(path, format, &options).map_err(refused)?;
        Ok(Self { name: path.display().to_string(), rows, total })
    }
}
