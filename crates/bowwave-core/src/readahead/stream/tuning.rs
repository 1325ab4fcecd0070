//! Every constant of the policy, in one table: unit, value, and for most the effect of a change.
//!
//! With the feature `ablation` the table can be exchanged at run time, and the benchmark `ablation`
//! of `bowwave-sim` measures what each constant is worth. Without it the table is a constant of the
//! program.

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
    /// Windows. The budget of a file before a page was used, the cap of a stream's share, and the
    /// largest file that may be read whole. Also, a place that runs in a row show is at most this
    /// many times as long as what was read in it. Larger: random readers waste more. Smaller: a
    /// high-latency store is not filled at the beginning.
    file_windows: 16,
    /// Pages. Shorter readahead is not worth a request; half of it is the smallest share of memory
    /// of a stream. Larger: small remainders wait for a demand read. Smaller: more requests.
    speculation_min: 16,

    // Windows.

    /// Samples. Pages that are checked to estimate how much of a window was used. Larger: slower
    /// decisions. Smaller: coarser estimates.
    samples: 4,
    /// Parts. Readahead of a stream is at most one part in this many of all frames, and memory is
    /// short if more than that was read ahead and not used. Larger: less readahead under memory
    /// pressure. Smaller: one stream evicts the others.
    memory_share: 4,
    /// Steps. A distance of more than two windows is requested in this many steps. Larger: more
    /// requests. Smaller: a reader waits for longer requests.
    steps: 64,
    /// Windows. A step is at most this many windows, and at least a window divided by this. Larger:
    /// longer requests.
    step_windows: 4,
    /// Times. The shortest readahead of a mapped file is this many times that of others, and a
    /// distance has this many marks: each mark is a page fault. Larger: more faults. Smaller: a
    /// reader waits for longer requests.
    mapped: 4,
    /// Parts. A window that covers an expected run is requested in this many parts.
    parts: 8,
    /// Times to first byte. A window that lasts its reader this long does not grow.
    first_bytes: 16,
    /// Fills. The distance of a reader that waits, in pages read during one fill. Larger: more
    /// memory. Smaller: a reader waits again.
    distance_fills: 2,

    /// Fills. After this many failures in a row only demand is read, until a fill succeeds. Larger:
    /// more requests to a broken store. Smaller: one failure interrupts a stream.
    failed_max: 2,

    // Sequential runs.

    /// Pages. A first read of this length means a sequential reader: headers are shorter. Requests
    /// that are read side by side are as long, too: shorter ones cost more than they save on a
    /// low-latency store. Strided blocks of at most this length have a smaller budget.
    in_order: 32,
    /// Times. The first window of such a reader, in lengths of its first read.
    in_order_times: 8,
    /// Parts, and times. A sequential reader may skip one page in this many of those that it used.
    /// A reader jumped within readahead if it left this many times the used pages unused, and
    /// `nearby` more. Larger: more misses end a stream, and fewer jumps are seen. Smaller: the
    /// reverse.
    slack_share: 3,
    /// Pages. A run that begins this near to the end of the last one may continue it, and a
    /// sequential reader may skip at most this many.
    nearby: 64,

    // Places (`place`).

    /// Runs. A reader is in a place if this many recent runs began there. A whole file is a place
    /// if random reads would have repeated this many requests by now, and this many times the pages
    /// that were. Larger: places are found later. Smaller: random reads meet by chance.
    place_runs: 4,
    /// Parts. A place is at most one part in this many of its file: of uniformly random reads, four
    /// of 32 are then in one place about once in two million reads. Runs in a row may show larger
    /// places: as rare by chance as three in a row in one of these. Larger: smaller places.
    /// Smaller: random reads meet by chance.
    place_chance: 2048,
    /// Parts. A place was used well if one part in this many of it was used. Larger: more bytes.
    /// Smaller: clusters that are not aligned are read piece by piece.
    place_used: 3,
    /// Samples. Pages of a place that are checked when its reader leaves it. Larger: slower
    /// decisions. Smaller: coarser estimates.
    place_samples: 64,

    /// Parts. A whole file is a place only if one part in this many of it was used. Larger: more
    /// bytes. Smaller: records that cover a file wait longer.
    rest_share: 12,

    // Runs between jumps (`runs`).

    /// Runs. The last runs that are remembered: where they began, for places and repeating offset
    /// deltas, and their lengths, which predict what readahead of a run wastes. One of them may
    /// waste one part in this many of the file's budget.
    remembered: 32,
    /// Runs. The last of these: a stride is searched among where they began, so this many strided
    /// readers may alternate, and their lengths predict the next one.
    recent: 8,
    /// Times. Lengths are alike if the longest is at most this many times the shortest.
    alike: 4,
    /// Runs. All counts of run lengths are halved at this number: older runs matter less.
    runs_max: 1024,
    /// Parts, and times. A run that outgrew its expected length is extended by one part in this
    /// many of it, up to this many times that length. Then it gets windows, like a run without a
    /// prediction. In a mapped run the last part begins with a tripwire: a mark that requests
    /// nothing.
    outgrown: 4,
    /// Parts. Until a run exceeds the usual length, its readahead ends one part in this many beyond
    /// that length.
    usual_spare: 8,

    // Strides and repeating offset deltas.

    /// Blocks. Strided blocks in flight for each one that came as predicted, on a high-latency
    /// store.
    shown_times: 4,
    /// Times. A speculative request of a predicted run, in lengths of a demand request.
    longer: 4,
    /// Log2 of runs. Most predicted runs ahead. A reader that uses a run in less time than a fill
    /// takes begins with this many; others begin with one. Larger: more waste. Smaller: more waits.
    ahead_log_max: 3,

    // Whole files and tails.

    /// Windows. A file of at most this many windows is read whole at its second run while costs are
    /// unknown, and on a store that takes no time.
    whole_windows: 4,
    /// Times. A small file is expected to get this many further runs for each run so far, and any
    /// file this many further pages used. Larger: more bytes. Smaller: more requests.
    again: 2,
    /// Pages. The end of a file where its index may be.
    tail_pages: 16,

    // Memory pressure (`pace`).

    /// Parts. One part in this many of a stream's share of memory, and of the memory that unread
    /// readahead of all streams may use, is held in reserve. A share is measured each time so much
    /// of memory was replaced.
    reserve: 8,

    // Detectors (`scores`).

    /// Points. A detector with this score is trusted. Those that must prove themselves (backward,
    /// stride, cluster, jumps) begin with half of it.
    trusted: 8,
    /// Points. A correct prediction counts this much, a wrong one a point more.
    score_step: 2,

    // The table of streams (`table`).

    /// Streams. Parked streams for each entry of the table.
    parked: 2,
    /// Times. While at least as many readers are active as the table has entries by configuration,
    /// it may grow to this many times that number.
    readers: 4,
    /// A bit for each detector that is never trusted, in the order of `Detector::ALL`.
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
