//! iozone's figures as the on-demand patch (000) prints them, in KB/s. Table 6 of the OLS paper
//! (002) repeats the means.

use super::pattern::Pattern;

/// A row of a table: the pattern, KB/s of Linux 2.6.20, and KB/s of on-demand readahead.
pub(super) type Row = (Pattern, f64, f64);

/// The name of a pattern's row.
pub(super) fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Write => "Initial write",
        Pattern::Rewrite => "Rewrite",
        Pattern::Read => "Read",
        Pattern::Reread => "Re-read",
        Pattern::Reverse => "Reverse Read",
        Pattern::Stride => "Stride read",
        Pattern::Random => "Random read",
        Pattern::Mixed => "Mixed workload",
        Pattern::RandomWrite => "Random write",
        Pattern::Pwrite => "Pwrite",
        Pattern::Pread => "Pread",
    }
}

/// The two runs.
pub(super) const RUNS: [(&str, [Row; 11]); 2] = [
    (
        "iozone, first run",
        [
            (Pattern::Write, 61437.27, 64521.53),
            (Pattern::Rewrite, 47893.02, 48335.20),
            (Pattern::Read, 62111.84, 62141.49),
            (Pattern::Reread, 62242.66, 62193.17),
            (Pattern::Reverse, 50031.46, 49989.79),
            (Pattern::Stride, 8657.61, 8652.81),
            (Pattern::Random, 13914.28, 13898.23),
            (Pattern::Mixed, 19069.27, 19033.32),
            (Pattern::RandomWrite, 14849.80, 14104.38),
            (Pattern::Pwrite, 62955.30, 65701.57),
            (Pattern::Pread, 62209.99, 62256.26),
        ],
    ),
    (
        "iozone, second run",
        [
            (Pattern::Write, 60810.31, 66258.69),
            (Pattern::Rewrite, 49373.89, 57833.66),
            (Pattern::Read, 62059.39, 62251.28),
            (Pattern::Reread, 62264.32, 62256.82),
            (Pattern::Reverse, 49970.96, 50565.72),
            (Pattern::Stride, 8654.81, 8638.45),
            (Pattern::Random, 13901.44, 13949.91),
            (Pattern::Mixed, 19041.32, 19092.04),
            (Pattern::RandomWrite, 14019.99, 14161.72),
            (Pattern::Pwrite, 64121.67, 68224.17),
            (Pattern::Pread, 62225.08, 62274.28),
        ],
    ),
];

/// The means of the two runs, for the patterns that read.
pub(super) const MEAN: [Row; 7] = [
    (Pattern::Read, 62085.61, 62196.38),
    (Pattern::Reread, 62253.49, 62224.99),
    (Pattern::Reverse, 50001.21, 50277.75),
    (Pattern::Stride, 8656.21, 8645.63),
    (Pattern::Random, 13907.86, 13924.07),
    (Pattern::Mixed, 19055.29, 19062.68),
    (Pattern::Pread, 62217.53, 62265.27),
];
