//! `bowwave generate`: generates a trace, as CSV or binary.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bowwave_trace::Record;
use bowwave_trace::binary::{self, Row};
use bowwave_trace::generate::{FILE, Family, Generator, PID, Pattern, Spec, SpecError};
use clap::ValueEnum;

use super::trace::{self, Destination};
use crate::output::Output;
use crate::progress::Progress;
use crate::{Failure, values};

/// Rows between two progress updates.
const ROWS_A_REPORT: u64 = 1 << 16;

/// Arguments of `bowwave generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One process reads the file 'data' block by block. The same options give the same trace. The binary form takes 24 bytes a \
row; hundreds of millions of rows can be read in a second.

  sequential   block after block          backward     block before block
  random       any block, evenly          interleaved  --streams readers in turn, through one descriptor
  strided      each --stride bytes        clustered    runs of a quarter of --cluster bytes to all of it, anywhere
  zipf         rank k with weight 1/k^exponent, ranks scattered over the file
  oltp         64 regions, hot by zipf's law; random blocks, and after 1 of 8 the next block, too
  phases       the patterns of --phases one after the other, for equal shares of the rows
  family       a pattern that --seed draws from a grammar, also with several files and processes; --describe says which

Examples:
  bowwave generate zipf --rows 1000000 --file-size 4GiB --exponent 0.9 -o zipf.bwt
  bowwave generate oltp --seed 7 -o oltp.csv
  bowwave generate phases --phases sequential,random,sequential --rows 3000 | bowwave explain - --policy ondemand
  bowwave generate family --seed 17 --describe")]
pub(crate) struct Args {
    /// The order of reads
    #[arg(value_enum, value_name = "PATTERN")]
    pattern: Name,

    /// Rows; without it 100,000
    #[arg(long, value_name = "N")]
    rows: Option<u64>,

    /// Bytes of the file; without it 1 GiB
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    file_size: Option<u64>,

    /// Bytes of a read; without it 4 KiB, and 16 KiB (a database page) for oltp
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    bs: Option<u64>,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Time from one read to the next; without it 100 us
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    gap: Option<Duration>,

    /// Streams, for the pattern interleaved
    #[arg(long, value_name = "N", default_value_t = 2)]
    streams: u32,

    /// Bytes from block to block, for the pattern strided; without it, 8 blocks
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    stride: Option<u64>,

    /// Longest run, for the pattern clustered
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = values::positive_size)]
    cluster: u64,

    /// Exponent of Zipf's law, from 0 (even) to 10, of the patterns zipf and oltp
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    exponent: f64,

    /// Patterns of the pattern phases
    #[arg(long, value_enum, value_name = "PATTERNS", value_delimiter = ',')]
    phases: Vec<Name>,

    /// Print the pattern of the family in words instead of its rows
    #[arg(long, conflicts_with = "output")]
    describe: bool,

    /// Where to write: FILE.csv or FILE.bwt (the binary form); without it, CSV to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Patterns by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Sequential,
    Random,
    Interleaved,
    Strided,
    Backward,
    Clustered,
    Zipf,
    Oltp,
    Phases,
    Family,
}

/// Writes the trace.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.pattern == Name::Family {
        return args.family();
    }
    if args.describe {
        return Err(Failure::usage("--describe is for the pattern family")
            .try_this("generate family --seed 17 --describe"));
    }
    let spec = args.spec()?;
    let rows = spec.generate().map_err(|error| usage(&error))?;
    match Destination::new(args.output.as_deref())? {
        Destination::Binary(path) => trace::save_binary(path, |writer| {
            compact(rows, writer).map_err(|error| trace::cannot_write(path, &error))
        }),
        text => text.save(|write| {
            let mut record = Record { pid: PID, file: FILE.to_owned(), ..Record::default() };
            each(rows, |row| {
                (record.time_ns, record.op) = (row.time_ns, row.op);
                (record.offset, record.length) = (row.offset, row.length);
                write(&record)
            })
        }),
    }
}

impl Args {
    /// Writes a trace of the family, or describes it.
    fn family(&self) -> Result<(), Failure> {
        let given = [
            ("--rows", self.rows.is_some()),
            ("--file-size", self.file_size.is_some()),
            ("--bs", self.bs.is_some()),
            ("--gap", self.gap.is_some()),
            ("--stride", self.stride.is_some()),
            ("--phases", !self.phases.is_empty()),
        ];
        if let Some((option, _)) = given.into_iter().find(|&(_, is_given)| is_given) {
            return Err(Failure::usage(format!("the seed decides all of the pattern family, also {option}"))
                .try_this("generate family --seed 17"));
        }
        let family = Family::new(self.seed);
        if self.describe {
            let mut output = Output::stdout();
            let outcome = output.line(family.description());
            return output.finish(outcome);
        }
        Destination::new(self.output.as_deref())?
            .save(|write| family.records().try_for_each(|record| write(&record)))
    }

    fn spec(&self) -> Result<Spec, Failure> {
        if (self.pattern == Name::Phases) == self.phases.is_empty() {
            let message = "the pattern phases and the option --phases need each other";
            return Err(Failure::usage(message).try_this("generate phases --phases sequential,random"));
        }
        let has_oltp = self.pattern == Name::Oltp || self.phases.contains(&Name::Oltp);
        let block_bytes = self.bs.unwrap_or(if has_oltp { 16 << 10 } else { 4 << 10 });
        let pattern = match self.pattern {
            Name::Phases => {
                Pattern::Phases(self.phases.iter().map(|&phase| self.pattern(phase, block_bytes)).collect())
            }
            other => self.pattern(other, block_bytes),
        };
        let default = Spec::default();
        Ok(Spec {
            pattern,
            rows: self.rows.unwrap_or(default.rows),
            file_bytes: self.file_size.unwrap_or(default.file_bytes),
            block_bytes,
            // A day in nanoseconds fits.
            gap_ns: self.gap.map_or(default.gap_ns, |gap| gap.as_nanos() as u64),
            seed: self.seed,
        })
    }

    fn pattern(&self, name: Name, block_bytes: u64) -> Pattern {
        match name {
            Name::Sequential => Pattern::Sequential,
            Name::Random => Pattern::Random,
            Name::Interleaved => Pattern::Interleaved { streams: self.streams },
            Name::Strided => Pattern::Strided {
                stride_bytes: self.stride.unwrap_or_else(|| block_bytes.saturating_mul(8)),
            },
            Name::Backward => Pattern::Backward,
            Name::Clustered => Pattern::Clustered { cluster_bytes: self.cluster },
            Name::Zipf => Pattern::Zipf { exponent: self.exponent },
            Name::Oltp => Pattern::Oltp { exponent: self.exponent },
            // Inside phases, which the generator does not nest; it refuses them by name.
            Name::Phases | Name::Family => Pattern::Phases(Vec::new()),
        }
    }
}

/// Names a bad option as the user gave it.
fn usage(error: &SpecError) -> Failure {
    let option = match error.field {
        "block_bytes" => "--bs",
        "file_bytes" => "--file-size",
        "stride_bytes" => "--stride",
        "cluster_bytes" => "--cluster",
        "streams" => "--streams",
        "exponent" => "--exponent",
        other => {
            return usage!("--{other} is {}, but must be {}", error.value, error.bound);
        }
    };
    usage!("{option} is {}, but must be {}", error.value, error.bound)
}

/// Registers file and process once: faster than a name per row.
fn compact(rows: Generator, writer: &mut binary::Writer<&mut File>) -> io::Result<()> {
    let file = writer.file(FILE)?;
    let stream = writer.stream(PID, file)?;
    each(rows, |row| writer.row(Row { stream, ..row }))
}

/// Writes the rows and shows progress.
fn each<E>(rows: Generator, mut write: impl FnMut(Row) -> Result<(), E>) -> Result<(), E> {
    let mut progress = Progress::rows("generating", rows.size_hint().0 as u64);
    for (row, index) in rows.zip(1u64..) {
        write(row)?;
        if index % ROWS_A_REPORT == 0 {
            progress.at(index);
        }
    }
    Ok(())
}
