//! `bowwave read`: reads a store through a cache in this process, and measures it.

mod kernel;
pub(super) mod pass;
pub(super) mod pattern;
mod row;
pub(super) mod source;

use bowwave_core::Policy;

use crate::cli::HelpArgs;
use crate::interrupt::{Interrupt, Second};
use crate::output::{self, Output};
use crate::setup::{CacheArgs, DiskArgs, Opened, StoreArgs};
use crate::{Failure, values};
use pass::{Pass, Verify};
use pattern::{Pattern, Shape, Share};
use row::Row;
pub(crate) use row::rate;
use source::{Mapper, Source};

/// Arguments of `bowwave read`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  bowwave read emulate:s3/256MiB --compare none,ondemand
  bowwave read s3://bucket/file.parquet --region eu-west-1 --pattern random --bs 4k
  bowwave read https://example.org/big.iso --size 1GiB --ra-pages 8192 --json
  bowwave read emulate:s3/4GiB --mmap --pattern clustered --compare none,linux,range
  bowwave read emulate:s3/1GiB --pattern random --bs 64KiB --plan
  bowwave read /data --threads 8 --warm"
)]
pub(crate) struct Args {
    /// What to read: a path, file:, http(s):, s3:, gs:, az:, pattern:/SIZE, emulate:PROFILE/SIZE,
    /// emulate:PROFILE:URL
    #[arg(value_name = "URL")]
    url: String,

    /// The order of reads
    #[arg(long, value_enum, default_value_t = Pattern::Seq)]
    pattern: Pattern,

    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Bytes of a read, up to 1 GiB
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = block)]
    bs: u64,

    /// Bytes to read in total; by default everything, 1000 random reads, or 64 MiB of clusters
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    size: Option<u64>,

    /// Bytes from block to block of the pattern stride; by default 8 blocks
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    stride: Option<u64>,

    /// Streams of the pattern interleaved
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,

    /// Seed of the patterns random and clustered
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// The readahead policy
    #[arg(long, value_name = "POLICY", default_value = "stream", value_parser = values::policy())]
    policy: Policy,

    /// Several policies, each with an empty cache and a row of its own
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', conflicts_with = "policy", value_parser = values::policy())]
    compare: Vec<Policy>,

    /// Each thread announces its reads, in order
    #[arg(long, hide_short_help = true, conflicts_with = "mmap")]
    plan: bool,

    /// Passes; from the second on, the cache is warm
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Map the files and touch their pages, in place of read calls; =kernel: have the kernel map
    /// them
    #[arg(
        long,
        value_name = "BY",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "region"
    )]
    mmap: Option<Mapper>,

    /// A second pass over the warm cache: --repeat 2
    #[arg(long, conflicts_with = "repeat")]
    warm: bool,

    /// Check every byte
    #[arg(long)]
    verify: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    help: HelpArgs,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    store: StoreArgs,
}

/// Reads and prints what was measured.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.cache.set.refuse_of_mounts()?;
    let interrupt = Interrupt::watch(Second::Kills)?;
    let mut rows = Vec::new();
    let mut readahead = None;
    if args.mmap == Some(Mapper::Kernel) && args.compare.len() > 1 {
        return Err(Failure::usage(
            "--mmap=kernel has the kernel's readahead, not the policies of --compare",
        )
        .try_this("one run for each, or --mmap alone"));
    }
    let outcome = args.policies().iter().try_for_each(|&policy| {
        let opened = Opened::new(&args.disk.url(&args.url)?, policy, &args.cache, &args.store)?;
        readahead = Some(opened.readahead());
        args.measure(policy, &opened, &interrupt, &mut rows)
    });
    let mut output = Output::stdout();
    let printed = if args.json && (outcome.is_ok() || !rows.is_empty()) {
        output.json_array(&rows)
    } else if rows.is_empty() {
        Ok(())
    } else {
        show(&mut output, &rows)
    };
    output.finish(printed)?;
    if let (Ok(()), Some(readahead)) = (&outcome, readahead)
        && args.mmap != Some(Mapper::Kernel)
    {
        output::note(readahead);
    }
    outcome
}

impl Args {
    fn policies(&self) -> &[Policy] {
        if self.compare.is_empty() { std::slice::from_ref(&self.policy) } else { &self.compare }
    }

    fn shape(&self) -> Shape {
        Shape {
            pattern: self.pattern,
            block: self.bs,
            stride: self.stride.unwrap_or_else(|| self.bs.saturating_mul(8)),
            streams: self.streams.into(),
        }
    }

    /// Reads with one policy; returns a row per pass.
    fn measure(
        &self,
        policy: Policy,
        opened: &Opened,
        interrupt: &Interrupt,
        rows: &mut Vec<Row>,
    ) -> Result<(), Failure> {
        let share =
            Share { shape: self.shape(), threads: self.threads.into(), size: self.size, seed: self.seed };
        let jobs = pattern::jobs(&opened.store, share)?;
        let verify = self.verification(opened)?;
        let source = Source::new(&opened.store, self.mmap, &self.url)?;
        let passes = if self.warm { 2 } else { self.repeat };
        for number in 1..=passes {
            let pass = Pass {
                what: "reading",
                opened,
                source: &source,
                jobs: &jobs,
                shape: self.shape(),
                threads: self.threads as usize,
                plan: self.plan,
                verify: &verify,
                interrupt,
            };
            let outcome = pass.run()?;
            rows.push(Row::of(policy, &pass, number, outcome));
            if interrupt.is_set() {
                return Err(Failure::interrupted());
            }
        }
        Ok(())
    }

    /// How to verify the bytes.
    fn verification(&self, opened: &Opened) -> Result<Verify, Failure> {
        let verify = if self.verify { Verify::of(opened.store.url()) } else { Verify::No };
        if verify == Verify::Digest && (self.pattern != Pattern::Seq || self.threads > 1) {
            return Err(usage!(
                "--verify of {} shows the SHA-256 of the bytes in order, which only one thread that reads \
                 sequentially has",
                opened.store.url()
            )
            .try_this("--pattern seq --threads 1, or data of pattern:"));
        }
        Ok(verify)
    }
}

/// Prints the rows for people.
fn show(output: &mut Output, rows: &[Row]) -> Result<(), Failure> {
    output.table(&row::table(rows), "a wider terminal and --json have all columns")?;
    for row in rows {
        if let Some(sha256) = &row.sha256 {
            output.line(format_args!(
                "sha256 {sha256} of {} bytes ({} pass {})",
                row.bytes_wanted, row.policy, row.pass
            ))?;
        }
    }
    if rows.iter().all(|row| row.verified && row.sha256.is_none()) {
        output.line("every byte was checked")?;
    }
    Ok(())
}

/// Parses a read size, bounded by a sensible buffer.
fn block(text: &str) -> Result<u64, String> {
    match values::positive_size(text)? {
        bytes if bytes <= 1 << 30 => Ok(bytes),
        _ => Err("must be at most 1GiB".to_owned()),
    }
}
