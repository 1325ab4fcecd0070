//! docs/REPRODUCED.md: every row with its kind, and every mechanism of the source documents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{DOCUMENTS, Figure, Kind, Pair};

/// A mechanism of a source document.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// The document.
    pub document: &'static str,
    /// What it is.
    pub name: &'static str,
    /// File of the implementation.
    pub code: &'static str,
    /// Where it runs: on real memory and I/O, or only in the simulator, and then why.
    pub runs: &'static str,
    /// File of a test.
    pub file: &'static str,
    /// Name of the test.
    pub test: &'static str,
}

const CORE: &str = "engine and simulator";
const ENGINE_BASELINE: &str = "engine and simulator, as a policy for comparison";
const REGIONS: &str = "swap of real regions and simulator";
const CLOCK: &str =
    "engine and simulator; times of the published disk in the simulator only, as no such disk is left";

macro_rules! mechanisms {
    ($($document:literal, $name:literal, $code:literal, $runs:expr, $file:literal, $test:literal;)*) => {
        /// Every mechanism, in the order of the documents.
        pub const MECHANISMS: &[Mechanism] = &[$(Mechanism {
            document: $document, name: $name, code: $code, runs: $runs, file: $file, test: $test,
        }),*];
    };
}

mechanisms! {
    "000", "readahead on demand: sync on a miss, async on a marked page",
        "crates/bowwave-core/src/readahead/on_demand.rs", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs", "a_mark_hit_starts_the_next_window";
    "000", "the patch as published: order of tests, page 0",
        "crates/bowwave-baselines/src/patch.rs", ENGINE_BASELINE,
        "crates/bowwave-baselines/src/patch.rs", "the_texts_differ_at_page_zero_and_in_the_order_of_tests";
    "000", "no policy calls and no second look-up for cached files",
        "crates/bowwave-core/src/cache", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs",
        "reading_a_cached_file_again_costs_2_6_20_calls_and_lookups_and_on_demand_none";
    "000", "async readahead deferred by a congested queue",
        "crates/bowwave-core/src/cache", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs", "congestion_defers_async_readahead_which_comes_back_as_sync";
    "000", "no readahead with a window of 0 pages (ra_pages)",
        "crates/bowwave-core/src/readahead/on_demand.rs", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs", "a_window_of_0_pages_reads_single_pages_or_the_request";
    "000", "pipelining by a lookahead size that can be tuned, from 0",
        "crates/bowwave-core/src/readahead/on_demand.rs", CORE,
        "crates/bowwave-engine/tests/all/tuning.rs",
        "a_lookahead_size_of_0_requests_each_window_at_the_end_of_the_last";
    "000", "readahead thrashing: a new window at the missing page",
        "crates/bowwave-sim/src/reproduce/thrashing.rs", CLOCK,
        "crates/bowwave-core/tests/all/scenarios.rs", "thrashing_and_waste_are_counted_separately";
    "002", "the seven cases of table 2 with the windows of table 3",
        "crates/bowwave-core/src/readahead/on_demand.rs", CORE,
        "crates/bowwave-core/src/readahead/on_demand.rs", "every_case_of_table_2";
    "002", "2.6.20: two windows, cache-hit mode, miss flag",
        "crates/bowwave-baselines/src/legacy.rs", ENGINE_BASELINE,
        "crates/bowwave-baselines/src/legacy.rs", "windows_ramp_up_one_ahead_of_the_reader";
    "002", "2.6.20: no readahead after 256 cached pages",
        "crates/bowwave-baselines/src/legacy.rs", ENGINE_BASELINE,
        "crates/bowwave-baselines/src/legacy.rs",
        "windows_past_the_end_of_the_file_count_as_cached_and_end_in_cache_mode";
    "002", "2.6.20: windows two pages smaller after a lost page",
        "crates/bowwave-baselines/src/legacy.rs", ENGINE_BASELINE,
        "crates/bowwave-baselines/src/legacy.rs", "a_miss_shrinks_the_next_window_by_two_pages_to_at_least_four";
    "002", "reclaim of 2.6.20: lists scanned in proportion",
        "crates/bowwave-core/src/cache", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs",
        "scanning_in_proportion_protects_pages_touched_twice_for_a_while_only";
    "002", "readahead that persists on cache hits, for real-time readers",
        "crates/bowwave-core/src/cache/plan.rs", CORE,
        "crates/bowwave-core/tests/all/scenarios.rs", "readahead_persists_on_cache_hits_if_so_configured";
    "002", "a full queue drops arriving readahead",
        "crates/bowwave-engine/src/queue.rs", "engine; the simulator's queue holds what does not fit, as bios wait in Linux: without it, the least average request \
         of 2.6.20 under thrashing is 4 KB (published: 16)",
        "crates/bowwave-engine/tests/all/scheduling.rs",
        "a_full_queue_drops_readahead_and_its_reader_requests_the_page_again";
    "002", "situations of section 3: hits, congestion, thrashing, unaligned, retried and interleaved reads",
        "crates/bowwave-sim/src/reproduce/patterns/mod.rs", CORE,
        "crates/bowwave-sim/src/reproduce/patterns/mod.rs", "every_claim_of_the_paper_holds_but_its_misprint";
    "001", "windows by addresses, per region, from its own hits",
        "crates/bowwave-core/src/swap/vma.rs", REGIONS,
        "crates/bowwave-region/tests/swap_policies.rs",
        "windows_of_vma_and_cluster_grow_to_eight_in_order_and_shrink_to_one_at_random";
    "001", "windows by slots, from hits of all regions",
        "crates/bowwave-baselines/src/cluster.rs", REGIONS,
        "crates/bowwave-baselines/src/cluster.rs", "hits_of_any_region_grow_the_next_block_of_any_region";
    "001", "window sizes in powers of two from hits",
        "crates/bowwave-core/src/swap/size.rs", REGIONS,
        "crates/bowwave-core/src/swap/size.rs", "sizes_follow_hits_in_powers_of_two";
    "001", "windows within the region and one page table",
        "crates/bowwave-core/src/swap/vma.rs", REGIONS,
        "crates/bowwave-core/src/swap/vma.rs", "windows_stay_in_the_region_and_under_one_page_table";
    "001", "slots on rotating disks, addresses elsewhere",
        "crates/bowwave-region/src/anonymous/live.rs", REGIONS,
        "crates/bowwave-region/tests/swap_policies.rs",
        "linux_is_by_slots_on_a_disk_with_a_head_and_by_addresses_elsewhere";
    "001", "statistics of readahead: pages read ahead and hits",
        "crates/bowwave-core/src/swap/pager/stats.rs", REGIONS,
        "crates/bowwave-region/tests/swap_policies.rs",
        "windows_of_vma_and_cluster_grow_to_eight_in_order_and_shrink_to_one_at_random";
    "001", "page-cluster 0 turns it off",
        "crates/bowwave-core/src/swap/vma.rs", REGIONS,
        "crates/bowwave-core/src/swap/vma.rs", "page_cluster_0_is_off";
    "003", "range of a cluster of faults tracked and read around the next one",
        "crates/bowwave-core/src/readahead/range", CORE,
        "crates/bowwave-core/tests/all/range.rs", "the_width_of_a_cluster_is_the_window_of_the_next_one";
    "003", "a cluster recognised at its third fault",
        "crates/bowwave-core/src/readahead/range", CORE,
        "crates/bowwave-core/tests/all/range.rs",
        "the_third_touch_of_a_cluster_reads_around_itself_with_its_first_page";
    "003", "Lustre's engine before the patch",
        "crates/bowwave-baselines/src/clusters.rs", ENGINE_BASELINE,
        "crates/bowwave-core/tests/all/range.rs",
        "before_document_003_each_fault_was_single_until_four_were_sequential";
    "003", "pages lost before their use reset the window",
        "crates/bowwave-core/src/readahead/range", CORE,
        "crates/bowwave-core/tests/all/range.rs",
        "pages_evicted_before_their_use_reset_the_window_and_are_counted";
    "003", "counters of range reads",
        "crates/bowwave-core/src/readahead/range", CORE,
        "crates/bowwave-core/tests/all/maps.rs", "ranges_of_document_003_are_available";
    "004", "deadline scheduler of 2.6.29: reads before writes, batches, starvation limit",
        "crates/bowwave-baselines/src/deadline.rs", ENGINE_BASELINE,
        "crates/bowwave-core/tests/all/schedule.rs",
        "deadline_rw_serves_reads_first_and_writes_after_two_batches_of_them";
    "004", "sync before async in place of reads before writes",
        "crates/bowwave-core/src/schedule", CORE,
        "crates/bowwave-core/tests/all/schedule.rs",
        "sync_writes_wait_behind_reads_in_one_and_before_write_back_in_the_other";
    "004", "expiry by class, with the batch's direction kept as posted",
        "crates/bowwave-core/src/schedule", CORE,
        "crates/bowwave-core/tests/all/schedule.rs",
        "t8_async_is_served_at_its_turn_but_for_the_letter_where_a_sync_batch_goes_on";
    "004", "an fsync ahead of a bulk writer",
        "crates/bowwave-engine/src/queue.rs", CORE,
        "crates/bowwave-engine/tests/all/write_back.rs",
        "an_fsync_overtakes_a_bulk_writer_with_the_deadline_scheduler_only";
    "004", "priorities, and aging so that none starves",
        "crates/bowwave-core/src/schedule", CORE,
        "crates/bowwave-core/tests/all/schedule.rs", "priorities_are_strict_until_one_has_waited_too_long";
    "004", "priorities of the caller: an argument, or the mount's reader's ioprio",
        "crates/bowwave-engine/src/file.rs", "engine, C library and mount; traces and models have no priorities",
        "crates/bowwave-engine/tests/all/scheduling.rs",
        "an_idle_handle_waits_for_others_and_a_waiter_of_higher_priority_raises_its_request";
}

/// The document.
#[must_use]
pub fn render(figures: &[Figure]) -> String {
    let mut text = String::new();
    _ = write!(text, "{HEAD}{}\n\n", counts(figures));
    text.push_str("| kind | rows | meaning |\n|---|---|---|\n");
    let by_kind = Kind::count(figures);
    for kind in Kind::ALL {
        _ = writeln!(text, "| {} | {} | {} |", kind.name(), by_kind[&kind], kind.meaning());
    }
    text.push_str(ASSUMED);
    text.push_str(
        "\n## Mechanisms\n\n| document | mechanism | code | runs in | test |\n|---|---|---|---|---|\n",
    );
    for one in MECHANISMS {
        _ = writeln!(
            text,
            "| {} | {} | [{}](../{}) | {} | [{}](../{}) |",
            one.document,
            one.name,
            short(one.code),
            one.code,
            one.runs,
            one.test,
            one.file
        );
    }
    let mut tables: BTreeMap<usize, Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        let place = DOCUMENTS.iter().position(|(document, _)| *document == figure.document);
        tables.entry(place.unwrap_or(DOCUMENTS.len())).or_default().push(figure);
    }
    for rows in tables.values() {
        let document = rows.first().map_or("", |figure| figure.document);
        _ = write!(text, "\n## {}\n", title(document));
        let mut table = "";
        for figure in rows {
            if figure.table != table {
                table = figure.table;
                _ = write!(text, "\n### {document}: {table}\n\n{COLUMNS}");
            }
            text.push_str(&line(figure));
        }
    }
    text
}

/// The number of rows of each kind, in a sentence.
#[must_use]
pub fn counts(figures: &[Figure]) -> String {
    let counts = Kind::count(figures);
    let total: usize = counts.values().sum();
    let kinds: Vec<_> = Kind::ALL.iter().map(|kind| format!("{} {}", counts[kind], kind.name())).collect();
    let copies = figures.len() - total;
    wrapped(&format!("{total} figures: {}. {copies} more rows are copies of a run.", kinds.join(", ")))
}

/// Breaks a sentence into lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let (mut out, mut columns) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if columns > 0 && columns + 1 + width > 100 {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += width;
    }
    out
}

/// Document, table, row and kind of each row of a rendered document.
#[must_use]
pub fn kinds(text: &str) -> BTreeMap<String, String> {
    let (mut all, mut place) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            place = heading.replacen(": ", "/", 1);
        } else if !place.is_empty() && line.starts_with("| ") {
            let cells: Vec<&str> = line.split(" | ").collect();
            if let [row, _, _, _, kind, ..] = cells[..] {
                all.insert(format!("{place}/{}", row.trim_start_matches("| ")), kind.to_owned());
            }
        }
    }
    all.retain(|_, kind| kind != "kind");
    all
}

fn line(figure: &Figure) -> String {
    let kind = figure.kind.name();
    let copy = figure.copy_of.as_ref().map(|of| format!("copy of {of}"));
    let remark: Vec<String> =
        [Some(figure.note.clone()).filter(|note| !note.is_empty()), copy].into_iter().flatten().collect();
    format!(
        "| {} | {} | {} | {} | {kind} | {} | {} |\n",
        figure.row,
        figure.unit,
        pair(figure.published),
        pair(figure.ours),
        figure.bar.replace('|', "\\|"),
        remark.join("; ").replace('|', "\\|")
    )
}

fn pair(pair: Pair) -> String {
    match (pair.baseline, pair.improved) {
        (None, None) => "–".to_owned(),
        (Some(baseline), None) => format!("{} → –", number(baseline)),
        (None, Some(improved)) => format!("– → {}", number(improved)),
        (Some(baseline), Some(improved)) => format!("{} → {}", number(baseline), number(improved)),
    }
}

/// Four significant digits or more.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        small if small >= 0.01 => format!("{value:.4}"),
        _ => format!("{value:.6}"),
    }
}

fn short(path: &str) -> &str {
    path.trim_start_matches("crates/bowwave-")
}

fn title(document: &str) -> &'static str {
    match document {
        "000" => "000: on-demand readahead, the patch (2007)",
        "001" => "001: swap readahead by addresses (2017)",
        "002" => "002: on-demand readahead, the paper (2007)",
        "003" => "003: mapped reads on Lustre (2021)",
        "004" => "004: sync and async in the deadline scheduler (2009)",
        _ => "Beyond the documents: algorithms of our own",
    }
}

const COLUMNS: &str =
    "| row | unit | published | ours | kind | bar | remark |\n|---|---|---|---|---|---|---|\n";
const HEAD: &str = "# Reproduced figures\n\n\
    Which published figures bowwave reproduces, and which not. `make reproduced` writes this file;\n\
    `make reproduce` runs everything again and fails when a row has another kind. Figures are pairs:\n\
    the old algorithm → the new one. Everything runs in virtual time, so the digits are the same each\n\
    time.\n\n";
const ASSUMED: &str = "\nThe rows of 000 and 002 share one machine and one disk,\n\
    [testbed.toml](../crates/bowwave-sim/src/reproduce/testbed.toml) and\n\
    [hdd.toml](../crates/bowwave-device/devices/hdd.toml), where each parameter has its source or the\n\
    word *fitted*. No independent measurement of such a disk validates the model. The machine of 004 is\n\
    another one and is not described: there the same disk takes one command at a time.\n";
