//! `bowwave import`: converts a trace of another tool.

use std::num::NonZeroU64;
use std::path::PathBuf;

use bowwave_trace::Record;
use bowwave_trace::import::{BlockAction, Format, Import, Objects, Options, TracefsEvents};
use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};

use super::trace::{self, Destination, WriteRow};
use crate::progress::Progress;
use crate::{Failure, values};

/// Rows between two progress updates.
const ROWS_A_REPORT: u64 = 4096;

/// Arguments of `bowwave import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Formats: csv and bwt (bowwave's own), fio (write_iolog, versions 2 and 3), strace (best with -f -ttt -y), blkparse, tracefs (the \
kernel's page-cache events), msr, alibaba, tencent, spc (published block traces), arc, lirs, mqsim, vscsi, vscsi-csv, oracle-general. \
Files compressed by gzip or zstd are decompressed. Rows that were repaired or left out are counted on standard error.

Examples:
  bowwave import app.strace -o app.csv
  bowwave import web.iolog | bowwave explain - --policy ondemand
  bowwave import P6.lis.zst --block-size 512 -o p6.bwt
  blkparse -i sda | bowwave import - --block-action dispatched -o sda.csv")]
pub(crate) struct Args {
    /// The trace; - reads standard input
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// The format of the trace; by default detected from its first bytes
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    format: Option<Format>,

    /// Where to write: FILE.csv or FILE.bwt (the binary form); without it, CSV to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Keep the times of the trace's own clock; without it, the first row is at 0
    #[arg(long)]
    keep_times: bool,

    /// Bytes of a block, in formats that count in blocks [default: that of the format, else 4096]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Option<NonZeroU64>,

    /// What objects are in oracle-general: blocks of one file (of 512 bytes by default), or files
    /// read whole
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ObjectsAs::Blocks)]
    objects: ObjectsAs,

    /// Which step of a request counts in blkparse's output
    #[arg(long, value_name = "STEP", default_value = "queued", value_parser = steps())]
    block_action: BlockAction,

    /// Which of the kernel's page-cache events count: reads of programs, or pages that were read in
    #[arg(long, value_name = "EVENTS", default_value = "accesses", value_parser = events())]
    tracefs_events: TracefsEvents,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ObjectsAs {
    Blocks,
    Files,
}

fn steps() -> impl TypedValueParser<Value = BlockAction> {
    let step = |name, help: &'static str, step| (PossibleValue::new(name).help(help), step);
    values::one_of([
        step("queued", "Q: queued by the file system", BlockAction::Queued),
        step("dispatched", "D: dispatched to the device", BlockAction::Dispatched),
        step("completed", "C: completed by the device", BlockAction::Completed),
    ])
}

fn events() -> impl TypedValueParser<Value = TracefsEvents> {
    let events = |name, help: &'static str, events| (PossibleValue::new(name).help(help), events);
    values::one_of([
        events("accesses", "mm_filemap_get_pages and mm_filemap_fault", TracefsEvents::Accesses),
        events("fills", "mm_filemap_add_to_page_cache", TracefsEvents::Fills),
    ])
}

/// A trace format by name, for clap.
pub(crate) fn format() -> impl TypedValueParser<Value = Format> {
    values::one_of(Format::ALL.map(|format| (format.name(), format)))
}

/// Bytes of a block, for clap.
pub(super) fn block_size(text: &str) -> Result<NonZeroU64, String> {
    values::positive_size(text).map(|bytes| NonZeroU64::new(bytes).expect("it is positive"))
}

impl Args {
    fn options(&self) -> Options {
        Options {
            keep_times: self.keep_times,
            block_bytes: self.block_size,
            objects: match self.objects {
                ObjectsAs::Blocks => Objects::Blocks(self.block_size.map_or(512, NonZeroU64::get)),
                ObjectsAs::Files => Objects::Files,
            },
            block_action: self.block_action,
            tracefs_events: self.tracefs_events,
        }
    }
}

/// Converts the trace.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let destination = Destination::new(args.output.as_deref())?;
    let (mut import, total) = trace::open(&args.trace, args.format, &args.options())?;
    let rows = destination.save(|write| each(&mut import, total, write))?;
    trace::note_repairs(import.repairs().iter());
    if rows == 0 {
        note!("the trace, read as {}, has no rows", import.format());
    }
    Ok(())
}

/// Writes the records and shows progress; returns their number.
fn each(import: &mut Import, total: Option<u64>, write: WriteRow<'_>) -> Result<u64, Failure> {
    let mut progress = Progress::bytes("importing", total);
    let mut record = Record::default();
    let mut rows = 0;
    while import.read(&mut record).map_err(Failure::failed)? {
        write(&record)?;
        rows += 1;
        if rows % ROWS_A_REPORT == 0 {
            progress.at(import.bytes_read());
        }
    }
    Ok(rows)
}
