//! `bowwave import`: converts a trace of another tool.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use bowwave_trace::import::{self, BlockAction, Format, Import, Objects, Options, TracefsEvents};
use bowwave_trace::{Record, Writer, binary};
use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};

use crate::output::{self, Output};
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
    let binary = args.output.as_deref().map(output::is_binary_form).transpose()?;
    let (mut import, total) = open(args)?;
    let rows = match (&args.output, binary) {
        (Some(path), Some(true)) => {
            output::into_file(path, |file| into_binary(&mut import, total, file, path))
        }
        (Some(path), _) => output::into_file(path, |file| {
            let refused = |error| cannot_write(path, &error);
            let mut output = BufWriter::with_capacity(1 << 20, file);
            let rows = into_csv(&mut import, total, &mut output, refused)?;
            output.flush().map(|()| rows).map_err(refused)
        }),
        (None, _) => {
            let mut output = Output::stdout();
            let refused = |error| output::written(Err(error)).expect_err("it was an error");
            let outcome = into_csv(&mut import, total, &mut output, refused);
            output.finish(outcome)
        }
    }?;
    for (repair, count) in import.repairs().iter() {
        note!("{}: {count}", repair.name());
    }
    if rows == 0 {
        note!("the trace, read as {}, has no rows", import.format());
    }
    Ok(())
}

/// Opens the trace; returns its size in bytes, if it is a file.
fn open(args: &Args) -> Result<(Import, Option<u64>), Failure> {
    let options = args.options();
    if args.trace == Path::new("-") {
        let import = import::from_reader(io::stdin(), "standard input", args.format, &options);
        return Ok((import.map_err(Failure::failed)?, None));
    }
    let import = import::open(&args.trace, args.format, &options).map_err(Failure::failed)?;
    let total = args.trace.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((import, total))
}

fn into_csv(
    import: &mut Import,
    total: Option<u64>,
    output: impl Write,
    refused: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut writer = Writer::new(output).map_err(&refused)?;
    each(import, total, |record| writer.write(record).map_err(&refused))
}

fn into_binary(
    import: &mut Import,
    total: Option<u64>,
    file: &mut File,
    path: &Path,
) -> Result<u64, Failure> {
    let refused = |error| cannot_write(path, &error);
    let mut writer = binary::Writer::new(file).map_err(refused)?;
    let rows = each(import, total, |record| writer.write(record).map_err(refused))?;
    writer.finish().map(|_| rows).map_err(refused)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    failed!("cannot write {}: {error}", path.display())
}

/// Writes the records and shows progress; returns their number.
fn each(
    import: &mut Import,
    total: Option<u64>,
    mut write: impl FnMut(&Record) -> Result<(), Failure>,
) -> Result<u64, Failure> {
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
