//! The constants of the policy that can be tuned, in one table: unit, value, effect of a change.
//!
//! With the feature `ablation` the table can be exchanged at run time. The benchmark `ablation` of
//! `bowwave-sim` measures each constant halved and doubled, and each detector off. The values were
//! chosen by such measurements: `docs/BENCHMARKS.md` has the results, ADR 32 the variants that were
//! tried. Without the feature the table is a constant of the program.

#[cfg(feature = "ablation")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! tuning {
    ($($(#[$doc:meta])* $name:ident: $value:expr,)*) => {
        /// The constants of [`Stream`](super::Stream).
        #[cfg_attr(not(feature = "ablation"), expect(unreachable_pub, reason = "public with the feature"))]
        #[derive(Clone, Copy, Debug)]
        pub struct Tuning { $($(#[$doc])* pub $name: u64,)* }

        impl Tuning {
            /// The values in use.
            #[cfg_attr(not(feature = "ablation"), expect(unreachable_pub, reason = "public with the feature"))]
            pub const DEFAULT: Self = Self { $($name: $value,)* };

            /// The constants by name, to change one.
            #[cfg(feature = "ablation")]
            pub fn fields(&mut self) -> alloc::vec::Vec<(&'static str, &mut u64)> {
                alloc::vec![$((stringify!($name), &mut self.$name),)*]
            }
        }

        #[cfg(feature = "ablation")]
        static CURRENT: Shared = Shared { $($name: AtomicU64::new($value),)* };

        #[cfg(feature = "ablation")]
        struct Shared { $($name: AtomicU64,)* }

        #[cfg(feature = "ablation")]
        pub(super) fn tuning() -> Tuning {
            Tuning { $($name: CURRENT.$name.load(Relaxed),)* }
        }

        /// Exchanges the constants of all streams of the process.
        #[cfg(feature = "ablation")]
        pub fn set_tuning(tuning: Tuning) {
            $(CURRENT.$name.store(tuning.$name, Relaxed);)*
        }
    };
}

tuning! {
    // The waste budget.

    /// Windows. The budget of a stream before its reader has used a page. Larger: short scans waste
    /// more. Smaller: a stream waits for its second window.
    stream_windows: 2,
    /// Windows. The waste budget of a file before a page was used. Also the largest file that may
    /// be read whole, and the longest predicted run that is read ahead. Up to this many windows,
    /// and more on an object store, all used pages count in a stream's share. Times: a place found
    /// by runs in a row is at most this many times as long as these runs. Larger: random readers
    /// waste more. Smaller: a high-latency store is not filled at the beginning.
    file_windows: 16,
    /// Pages. The shortest readahead that is a request of its own, except of a run of known length.
    /// A mapped run of known length is read at its first miss only if it is this long. Also the
    /// least step of an outgrown run, and the shortest run with a tripwire. Half of it is the
    /// smallest share of memory of a stream. Larger: small remainders wait for a demand read.
    /// Smaller: more requests.
    speculation_min: 16,

    // Windows.

    /// Samples. Pages that are checked to estimate how much of a window was used. Larger: slower
    /// decisions. Smaller: coarser estimates.
    samples: 4,
    /// Parts. The distance of a stream grows to at most one part in this many of all frames. Memory
    /// is short if unread readahead exceeds one part in this many of the frames for pages read
    /// once. Larger: less readahead under memory pressure. Smaller: one stream evicts the others.
    memory_share: 4,
    /// Steps. A distance of more than two windows is requested in this many steps. Larger: more
    /// requests. Smaller: a reader waits for longer requests.
    steps: 64,
    /// Windows, and parts. A step is at most this many windows, and at least one part in this many
    /// of a window. Windows of slow readers may grow to the same part, and the first window at page
    /// 0 is requested in such parts. Larger: longer requests of long distances, and shorter ones of
    /// short distances. Smaller: all steps are near one window.
    step_windows: 4,
    /// Times, and parts. Each mark of a mapped file costs a page fault. So the shortest readahead
    /// of a mapped file is this many times that of others. A distance has one step where others
    /// have this many. Marks are at least as far apart as the shortest readahead, or as one part in
    /// this many of the distance if that is less. Larger: fewer faults in a long distance. Smaller:
    /// shorter requests, but more faults.
    mapped: 4,
    /// Parts. A predicted run is read in requests of one part in this many of the largest window,
    /// at least `in_order` pages. Larger: more requests. Smaller: the reader waits for a longer
    /// first request.
    parts: 8,
    /// Times. A window that lasts its reader this many times the time to first byte does not grow.
    /// Larger: slow readers waste more at the end. Smaller: slow readers cause more requests.
    first_bytes: 16,
    /// Fills. The distance of a reader that waits: the pages that it uses during this many fills.
    /// Larger: more memory. Smaller: a reader waits again.
    distance_fills: 2,

    /// Fills. After this many failures in a row only demand is read, until a fill succeeds. Larger:
    /// more requests to a broken store. Smaller: one failure interrupts a stream.
    failed_max: 2,

    // Sequential runs.

    /// Pages. A first read at page 0 of this length or more means a sequential reader: headers are
    /// shorter, and so are indices at the end of a file. It is also the shortest of the requests
    /// that are served side by side: shorter ones cost more than they save on a low-latency store.
    /// Windows of slow readers grow at least to this length, and strided blocks of at most this
    /// length have a smaller budget. Larger: fewer first reads get a long window, and requests are
    /// longer. Smaller: headers get a long window, and slow readers a short one.
    in_order: 32,
    /// Times. The first window of a reader whose first read has `in_order` pages or more, in
    /// lengths of that read. Larger: more waste if the reader stops early. Smaller: the reader
    /// waits until the windows have grown.
    in_order_times: 8,
    /// Parts, and times. A sequential reader may skip one page for this many pages that it used. It
    /// jumped within readahead if it left this many times the used pages unused, and `nearby` more.
    /// Larger: more misses end a stream, and fewer jumps are seen. Smaller: the reverse.
    slack_share: 3,
    /// Pages. If the next run begins at most this far from the end of the last one, the length of
    /// the last one is not counted: the next run may continue it. A sequential reader may skip at
    /// most this many pages. Larger: longer gaps are read ahead, and fewer lengths are counted.
    /// Smaller: skips end a stream, and reordered requests count as runs of their own.
    nearby: 64,

    // Places (`place`).

    /// Runs, and times. A reader is in a place if this many recent runs began there. A whole file
    /// counts as read once if random reads would have repeated more by now: this many requests, and
    /// this many times the pages that were repeated; and if its readers could use this many
    /// requests during a fill. Larger: places are found later. Smaller: random reads meet by
    /// chance.
    place_runs: 4,
    /// Parts. A place is at most one part in this many of its file: of uniformly random reads, four
    /// of 32 are then in one place about once in two million reads. A place found by runs in a row
    /// may be larger. By chance, such runs are as rare as three in a row in a place of one part.
    /// Larger: smaller places. Smaller: random reads meet by chance.
    place_chance: 2048,
    /// Parts. A place was used well if one part in this many of it was used. Larger: more bytes.
    /// Smaller: clusters that are not aligned are read request by request.
    place_used: 3,
    /// Samples. Pages of a place that are checked when its reader leaves it. Larger: slower
    /// decisions. Smaller: coarser estimates.
    place_samples: 64,

    /// Parts. A file counts as read once only if one part in this many of it was used. Larger: more
    /// bytes. Smaller: records that cover a file wait longer.
    rest_share: 12,

    // Runs between jumps (`runs`).

    /// Runs. The last runs whose starts and lengths are remembered. The starts show places and
    /// repeating offset deltas; the lengths predict what readahead of a run wastes. A new run may
    /// waste one part in this many of the file's budget. Larger: longer series of deltas are found,
    /// and changed lengths are noticed later. Smaller: the reverse, and a run may waste more.
    remembered: 32,
    /// Runs. The newest of the remembered runs. A stride is searched among their starts, so this
    /// many strided readers may alternate. Their lengths predict the next one. Larger: changed
    /// lengths are noticed later, and more strides are found by chance. Smaller: strides of
    /// alternating readers are missed.
    recent: 8,
    /// Times. Lengths are alike if the longest is at most this many times the shortest. Larger:
    /// runs of varied lengths are read to the longest, so short ones waste more. Smaller: they are
    /// read to the median, so readers of long ones wait.
    alike: 4,
    /// Runs. The counts of run lengths are halved when this many runs were counted, so older runs
    /// matter less. Larger: changed lengths are noticed later. Smaller: a few runs decide.
    runs_max: 1024,
    /// Times. A run may be read ahead although earlier runs of its length ended more often than
    /// they doubled, but at most this many times as often. Larger: more bytes, and fewer waits.
    /// Smaller: the reverse.
    seldom: 3,
    /// Parts, and times. A run that outgrew its expected length is extended by one part in this
    /// many of that length. Once it has this many times that length, it gets windows, like a run
    /// without a prediction. In a mapped run the last such part begins with a tripwire: a mark that
    /// requests nothing. Larger: an outgrown run waits more often. Smaller: longer steps and
    /// earlier windows, so more waste.
    outgrown: 4,
    /// Parts. Until a run exceeds the usual length, its readahead ends one part in this many of
    /// that length beyond it. Larger: runs that are slightly longer wait at their end. Smaller:
    /// more waste.
    usual_spare: 8,

    // Strides and repeating offset deltas.

    /// Blocks. Strided blocks in flight for each one that came as predicted, on a high-latency
    /// store, if the stride is a whole number of pages. Larger: more waste when the stride ends.
    /// Smaller: a strided reader waits more often at first.
    shown_times: 4,
    /// Times. The length of requests of a run that no reader waits for, in lengths of those of a
    /// run whose reader waits (`parts`). Larger: a reader that arrives early waits longer. Smaller:
    /// more requests.
    longer: 4,
    /// Log2 of runs. Maximum number of predicted runs ahead. A reader that uses a run in less time
    /// than a fill takes begins with the maximum; others begin with one. Larger: more waste.
    /// Smaller: more waits.
    ahead_log_max: 3,

    // Tails.

    /// Pages. The end of a file where its index may be: the first miss there reads all of it.
    /// Larger: more bytes. Smaller: a longer index takes more requests.
    tail_pages: 16,

    // Memory pressure (`pace`).

    /// Parts. One part in this many is held in reserve: of a stream's share of memory, and of the
    /// memory for unread readahead of all streams. A share is measured each time one part in this
    /// many of the frames for pages read once was replaced. Larger: more readahead is evicted
    /// before its use, and shares vary more. Smaller: less readahead under memory pressure, and
    /// shares follow later.
    reserve: 8,

    // Detectors (`scores`).

    /// Points. A detector with this score is trusted. Backward, stride, cluster and jumps must
    /// prove themselves and begin with half of it, so they need two correct predictions, or one
    /// that is exact. Larger: patterns are recognized later. Smaller: patterns that occur by chance
    /// are trusted.
    trusted: 8,
    /// Points. A correct prediction counts this much, a wrong one a point more: a detector stays
    /// trusted if more than three of five predictions are correct. Larger: fewer predictions
    /// decide. Smaller: more predictions are needed.
    score_step: 2,

    // The table of streams (`table`).

    /// Streams. Parked streams for each entry of the table. Larger: more memory, and more streams
    /// whose first windows do not count as waste. Smaller: a reader that returns to an evicted
    /// stream begins a new one.
    parked: 2,
    /// Times. While at least as many readers are active as the table has entries by configuration,
    /// it may grow to this many times that number. Larger: more memory, and slower lookups.
    /// Smaller: readers evict each other's streams.
    readers: 4,
    /// Bits, for ablation only: a set bit disables a detector, in the order of `Detector::ALL`. It
    /// is then never trusted. 0 disables none; larger and smaller have no meaning.
    disabled: 0,
}

/// The constants in use.
#[cfg(not(feature = "ablation"))]
#[inline(always)]
pub(super) const fn tuning() -> Tuning {
    Tuning::DEFAULT
}

/// Capacity of an array whose length is in the table. An ablation may double the length.
pub(super) const fn capacity(length: u64) -> usize {
    length as usize * if cfg!(feature = "ablation") { 2 } else { 1 }
}
