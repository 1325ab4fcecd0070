//! Sentences under the pictures, computed from the same data.

use super::pace::Pace;
use super::sizes::Sizes;
use super::units::{bytes, count, counted, percent, rate, three, time};
use crate::record::{Row, Run};

/// A device busy for at least this share of the time is the bottleneck.
const BUSY: f64 = 0.85;

/// With fewer waiting readers than this on average, storage does not limit them.
const HARDLY_WAITING: f64 = 0.05;

/// A device busy for less than this share of the time mostly waits.
const IDLE: f64 = 0.5;

/// If at least one window in this many exceeds `ra_pages`, the policy ignores it. Fewer come from
/// large reads.
const ONE_IN_BEYOND: f64 = 10.0;

/// Sentences of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSentences {
    pub(super) map: String,
    pub(super) windows: String,
    pub(super) latency: String,
    pub(super) sizes: String,
    pub(super) device: String,
}

impl RunSentences {
    pub(super) fn of(run: &Run, row: &Row, sizes: &Sizes, pace: &Pace) -> Self {
        Self {
            map: map(run),
            windows: windows(run, row),
            latency: latency_of(run, row),
            sizes: of_sizes(run, row, sizes),
            device: device(run, row, pace),
        }
    }
}

/// Where readers spent their time: hits, late reads, misses.
fn map(run: &Run) -> String {
    let reads = &run.reads;
    if reads.time_ns.is_empty() {
        return "No reads were recorded.".to_owned();
    }
    let (mut counts, mut waited) = ([0_u64; 3], [0.0; 3]);
    for (outcome, latency) in reads.outcome.iter().zip(&reads.latency_ns) {
        counts[usize::from(*outcome) % 3] += 1;
        waited[usize::from(*outcome) % 3] += *latency as f64;
    }
    let (all, time_all): (u64, f64) = (counts.iter().sum(), waited.iter().sum());
    let every = run.reads_every.max(1);
    let about = if every > 1 { "about " } else { "" };
    let mut text = format!(
        "Of {about}{}, {} found every page at hand, {} waited for readahead in flight, {} missed.",
        counted(all.saturating_mul(every), "read"),
        percent(counts[0] as f64, all as f64),
        percent(counts[1] as f64, all as f64),
        percent(counts[2] as f64, all as f64)
    );
    if time_all <= 0.0 {
        return text + " No read waited.";
    }
    text += &if waited[2] >= waited[1].max(waited[0]) {
        let why =
            if counts[2] * 10 >= all { "the policy does not predict these reads" } else { "few, but slow" };
        format!(" {} of the time that readers waited went into misses: {why}.", percent(waited[2], time_all))
    } else if waited[1] >= waited[0] {
        format!(
            " {} of the time that readers waited went into late pages: readahead is right and begins too late, so larger \
             windows or earlier marks would help, unless the device is at its limit.",
            percent(waited[1], time_all)
        )
    } else {
        format!(
            " {} of the time went into reads that found everything: readahead can gain no more.",
            percent(waited[0], time_all)
        )
    };
    text
}

/// Whether readers hardly wait for storage, so that readahead cannot gain more.
fn hardly_waits(run: &Run) -> bool {
    let reads = run.reads.outcome.iter().zip(&run.reads.latency_ns);
    let waited: f64 =
        reads.filter(|(outcome, _)| **outcome > 0).map(|(_, latency)| *latency as f64 / 1e9).sum();
    !run.reads.outcome.is_empty()
        && waited * run.reads_every.max(1) as f64 <= HARDLY_WAITING * run.row.seconds
}

/// How far windows grew, and whether `ra_pages` limited them.
fn windows(run: &Run, row: &Row) -> String {
    let decisions = &run.decisions;
    let (Some(&largest), number) = (decisions.size.iter().max(), decisions.size.len() as u64) else {
        return "No decisions were recorded.".to_owned();
    };
    let limit = u64::from(row.ra_pages);
    let at_limit = decisions.size.iter().filter(|size| **size >= limit).count() as f64;
    let mean = decisions.size.iter().map(|&size| size as f64).sum::<f64>() / number as f64;
    let mut text = format!(
        "{} windows of {} pages on average, the largest of {} with ra_pages {}.",
        match run.decisions_every {
            0 | 1 => count(number),
            every => format!("About {}", count(number.saturating_mul(every))),
        },
        three(mean),
        count(largest),
        count(limit)
    );
    let beyond = decisions.size.iter().filter(|size| **size > limit).count() as f64;
    text += &if beyond * ONE_IN_BEYOND >= number as f64 {
        format!(
            " {} of them are larger than ra_pages, which does not limit this policy.",
            percent(beyond, number as f64)
        )
    } else if at_limit * 2.0 >= number as f64 && hardly_waits(run) {
        format!(
            " {} of them are as large as allowed, and readers hardly wait: ra_pages is large enough.",
            percent(at_limit, number as f64)
        )
    } else if at_limit * 2.0 >= number as f64 {
        format!(
            " {} of them are as large as allowed: ra_pages is the limit, so try a larger one.",
            percent(at_limit, number as f64)
        )
    } else if at_limit > 0.0 {
        format!(" {} reach ra_pages: a larger one would change only these.", percent(at_limit, number as f64))
    } else {
        " None reaches ra_pages: a larger one would change nothing.".to_owned()
    };
    text + &reasons(run)
}

/// The most frequent reason.
fn reasons(run: &Run) -> String {
    let mut names: Vec<&str> = run.decisions.reason.iter().map(String::as_str).collect();
    names.sort_unstable();
    let most = names.chunk_by(|a, b| a == b).max_by_key(|chunk| chunk.len());
    most.map_or_else(String::new, |chunk| {
        let share = percent(chunk.len() as f64, names.len() as f64);
        format!(" The most frequent reason is '{}' ({share}).", super::units::visible(chunk[0]))
    })
}

/// Read latencies, and the weight of the slowest.
fn latency_of(run: &Run, row: &Row) -> String {
    let latency = row.latency_ns;
    let mut text = format!(
        "Half of the reads take at most {}, 99 of 100 at most {}, the slowest {}.",
        time(latency.p50 as f64),
        time(latency.p99 as f64),
        time(latency.max as f64)
    );
    let mut sorted = run.reads.latency_ns.clone();
    sorted.sort_unstable();
    let total: f64 = sorted.iter().map(|&latency| latency as f64).sum();
    if total > 0.0 {
        let slowest = sorted.len().div_ceil(100);
        let time: f64 = sorted[sorted.len() - slowest..].iter().map(|&latency| latency as f64).sum();
        let share = percent(time, total);
        text += &if time * 4.0 >= total && sorted.len() >= 100 {
            format!(" The slowest hundredth takes {share} of all waiting: look there first.")
        } else {
            format!(" The slowest hundredth takes {share} of all waiting: no few reads stand out.")
        };
    }
    if run.reads_every > 1 {
        text += &format!(" The picture counts one of {} reads.", count(run.reads_every));
    }
    text
}

/// Whether requests are large.
fn of_sizes(run: &Run, row: &Row, sizes: &Sizes) -> String {
    if sizes.requests == 0 {
        return format!(
            "{} to the device, {} on average; their sizes were not recorded.",
            counted(row.requests, "request"),
            bytes(row.avg_io_bytes)
        );
    }
    let mut text = format!(
        "{} of {} on average. As the cache asked for them, before neighbours were merged, half of the bytes come in requests \
         of {} or more, and {} of the requests are readahead.",
        counted(row.requests, "request"),
        bytes(row.avg_io_bytes),
        bytes(sizes.half_of_bytes as f64),
        percent(sizes.by_readahead as f64, sizes.requests as f64)
    );
    let single = percent(sizes.single_page as f64, sizes.requests as f64);
    text += &if sizes.single_page * 2 >= sizes.requests && run.page_bytes <= 1 << 16 {
        format!(
            " {single} fetch a single page: each pays the device's whole latency for {}.",
            bytes(run.page_bytes as f64)
        )
    } else {
        format!(
            " {} a single page.",
            if sizes.single_page == 0 { "None fetches".into() } else { format!("{single} fetch") }
        )
    };
    if run.requests_every > 1 {
        text += &format!(" Counted in one of {} requests.", count(run.requests_every));
    }
    text
}

/// Whether the device or latency is the limit.
fn device(run: &Run, row: &Row, pace: &Pace) -> String {
    let busy = percent(row.utilisation, 1.0);
    let mut text = format!("The device is busy for {busy} of the time");
    if !pace.is_empty {
        text += &format!(", has {} requests there on average", three(pace.queued_mean));
    }
    let fetched = if row.seconds > 0.0 { row.bytes_fetched as f64 / row.seconds } else { 0.0 };
    text += &format!(" and gives {}:", rate(fetched));
    text += if row.utilisation >= BUSY && row.amplification > 1.5 {
        " the device is the limit, and a good part of what it reads is not wanted."
    } else if row.utilisation >= BUSY {
        " the device is the limit; only larger or fewer requests could gain."
    } else if hardly_waits(run) {
        " readers hardly wait, so storage does not hold them up."
    } else if row.utilisation < IDLE {
        " the device mostly waits for requests, so more readahead could gain."
    } else {
        " neither the device nor the readers alone are the limit."
    };
    let expired: u64 = row.classes.iter().map(|class| class.expired).sum();
    if expired > 0 {
        text += &format!(" {} went there past their deadlines.", counted(expired, "request"));
    }
    if pace.joined > 1 {
        text += &format!(" Each point joins {} samples; the queue's is their highest.", pace.joined);
    }
    text
}
