//! Decisions of swap readahead on a trace of memory touches: the core's pager, unlimited memory, an
//! instant store.

use std::collections::HashMap;

use bowwave_core::explain::{SwapLine, SwapRange, in_order, slots};
use bowwave_core::swap::pager::{
    PageId, Pager, PagerAction, PagerConfig, RegionAdvice, RegionId, SwapDecision, SwapIn, Touch,
    TouchOutcome,
};
use bowwave_core::swap::{SwapConfig, SwapPolicy};
use bowwave_core::{Instant, PageCount, PageIndex, PageRange, PageSize, Waiter};
use bowwave_trace::{Op, Record};

use super::{Args, Input};
use crate::Failure;
use crate::output::{Output, plain};

/// Bytes of a page.
const PAGE: PageSize = PageSize::KIB_4;
/// Pages of an unbounded region: 16 TiB.
const ENDLESS: u64 = 1 << 32;
/// Maximum pages a row may touch or evict.
const ROW_PAGES_MAX: u64 = 1 << 20;

/// Options for swap only.
#[derive(Debug, clap::Args)]
pub(super) struct Knobs {
    /// Logarithm of the largest window of cluster and vma, in pages, as vm.page-cluster; 0 turns
    /// them off
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=31))]
    page_cluster: u32,

    /// Slots of the store, one of them its header
    #[arg(long, value_name = "SLOTS", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(2..1 << 32))]
    slots: u64,
}

/// The pager, and the process and file of each region.
struct Explainer {
    pager: Pager,
    region_pages: u64,
    regions: HashMap<(u64, String), RegionId>,
    names: Vec<(u64, String)>,
    now: Instant,
    out: Vec<PagerAction>,
    decided: Vec<(SwapDecision, Vec<SwapIn>)>,
}

/// Reads the trace and prints the decisions.
pub(super) fn run(args: &Args, policy: SwapPolicy) -> Result<(), Failure> {
    let explainer = Explainer::new(args, policy)?;
    let mut output = Output::stdout();
    let outcome = Input::open(&args.trace, args.format)
        .and_then(|input| explain(explainer, input, args.json, &mut output));
    let left_out = output.finish(outcome)?;
    if left_out > 0 {
        note!("{left_out} rows do not touch memory and were left out");
    }
    Ok(())
}

fn explain(mut explainer: Explainer, input: Input, json: bool, output: &mut Output) -> Result<u64, Failure> {
    if !json {
        output.line(columns(
            ["access", "pid", "page", "slot", "reason", "start", "count", "size"],
            "slots",
            "file",
        ))?;
    }
    let name = input.name.clone();
    input.each("explaining", |access, record| {
        if matches!(record.op, Op::Read | Op::Write | Op::Fsync | Op::Plan | Op::Done) {
            return Ok(false);
        }
        explainer.row(record).map_err(|message| failed!("{name}: row {access}: {message}"))?;
        for (decision, reads) in &explainer.decided {
            let reads = &in_order(reads.clone());
            let line = SwapLine { access, decision, reads, name: |id| explainer.name(id) };
            output.line(if json { line.to_string() } else { for_people(&line, record) })?;
        }
        Ok(true)
    })
}

impl Explainer {
    fn new(args: &Args, policy: SwapPolicy) -> Result<Self, Failure> {
        let window = SwapConfig { page_cluster: args.swap.page_cluster, ..SwapConfig::default() };
        let config = PagerConfig {
            window,
            explain: true,
            ahead_max: u64::from(args.ra_pages).max(8),
            ..PagerConfig::linux(1 << 40, args.swap.slots, policy)
        };
        Ok(Self {
            pager: Pager::new(config).map_err(Failure::usage)?,
            region_pages: args.file_pages.unwrap_or(ENDLESS).min(ENDLESS),
            regions: HashMap::new(),
            names: Vec::new(),
            now: Instant(0),
            out: Vec::new(),
            decided: Vec::new(),
        })
    }

    /// Processes a row; an error says what is wrong with it.
    fn row(&mut self, record: &Record) -> Result<(), String> {
        self.decided.clear();
        self.now = self.now.max(Instant(record.time_ns));
        let region = self.region(record)?;
        let range = PAGE.range_of(record.offset, record.length).intersect(PageRange::new(0, ENDLESS));
        if PAGE.index_of(record.offset).0 >= ENDLESS {
            return Err(format!("offset {} is past the end of a region, 16 TiB", record.offset));
        }
        let pages = range.intersect(PageRange::new(0, self.region_pages));
        if pages.count().0 > ROW_PAGES_MAX {
            return Err(format!(
                "{} pages at once; a row may touch {ROW_PAGES_MAX} at most",
                pages.count().0
            ));
        }
        let advice = match record.op {
            Op::Evict => RegionAdvice::PageOut,
            Op::WillNeed => RegionAdvice::WillNeed,
            Op::DontNeed => RegionAdvice::DontNeed,
            Op::Random => RegionAdvice::Random,
            Op::Sequential => RegionAdvice::Sequential,
            _ => {
                let touch = if record.op == Op::Store { Touch::Store } else { Touch::Load };
                return (pages.start.0..pages.end.0)
                    .try_for_each(|page| self.touch(PageId { region, page: PageIndex(page) }, touch));
            }
        };
        self.pager.advise(self.now, region, pages, advice, &mut self.out);
        self.act();
        if self.pager.load().blocked {
            return Err(format!(
                "the store's {} slots are used up; give it more with --slots",
                self.pager.load().slots
            ));
        }
        Ok(())
    }

    fn touch(&mut self, id: PageId, touch: Touch) -> Result<(), String> {
        // An untouched page starts with contents: otherwise there would be nothing to write out.
        let known = self.pager.is_in_memory(id) || self.pager.slot(id).is_some();
        let touch = if known { touch } else { Touch::Store };
        let outcome = self.pager.touch(self.now, Waiter(0), id, touch, &mut self.out);
        let woken = self.act();
        if outcome == TouchOutcome::Go || woken { Ok(()) } else { Err("the page cannot be had".to_owned()) }
    }

    /// Performs the pager's actions at once; returns whether a waiter was woken with a page.
    fn act(&mut self) -> bool {
        let mut woken = false;
        while !self.out.is_empty() {
            for action in std::mem::take(&mut self.out) {
                match action {
                    PagerAction::Decided(decision) => self.decided.push((decision, Vec::new())),
                    PagerAction::Read(read) => {
                        self.pager.read_done(self.now, read.id, Ok(()), &mut self.out);
                        if let Some((_, reads)) = self.decided.last_mut() {
                            reads.push(read);
                        }
                    }
                    PagerAction::Write(write) => {
                        _ = self.pager.written(self.now, write.id, Ok(()), &[], &mut self.out)
                    }
                    PagerAction::Unmap { region, pages } => {
                        self.pager.unmapped(self.now, region, pages, None, &mut self.out);
                    }
                    PagerAction::Wake { result, .. } => woken |= result.is_ok(),
                    _ => {}
                }
            }
        }
        woken
    }

    fn region(&mut self, record: &Record) -> Result<RegionId, String> {
        let key = (record.pid, record.file.clone());
        if let Some(&region) = self.regions.get(&key) {
            return Ok(region);
        }
        let region = RegionId(u32::try_from(self.names.len()).map_err(|_| "too many regions".to_owned())?);
        let added = self.pager.add_region(region, PageIndex(0), PageCount(self.region_pages));
        added.map_err(|error| error.to_string())?;
        self.names.push(key.clone());
        self.regions.insert(key, region);
        Ok(region)
    }

    /// Process and file of a page.
    fn name(&self, id: PageId) -> (u64, &str) {
        let (pid, file) = &self.names[id.region.0 as usize];
        (*pid, file)
    }
}

fn for_people<N>(line: &SwapLine<'_, N>, record: &Record) -> String {
    let SwapLine { access, decision, reads, .. } = line;
    let SwapRange { start, count, .. } = SwapRange::of(decision);
    let numbers =
        [*access, record.pid, decision.page.page.0, decision.slot.0].map(|number| number.to_string());
    let window = [start, count, decision.size].map(|number| number.to_string());
    let runs = reads.iter().map(slots).map(|[start, end]| format!("{start}..{end}"));
    let runs: Vec<String> = runs.collect();
    let ([access, pid, page, slot], [start, count, size]) = (&numbers, &window);
    let cells = [access, pid, page, slot, decision.reason.name(), start, count, size];
    columns(cells, &runs.join(","), &plain(&record.file))
}

/// A line of columns; wide enough for most traces.
fn columns(cells: [&str; 8], slots: &str, file: &str) -> String {
    let [access, pid, page, slot, reason, start, count, size] = cells;
    format!(
        "{access:>7} {pid:>6} {page:>8} {slot:>8} {reason:<9} {start:>8} {count:>5} {size:>5} {slots:<23} {file}"
    )
}
