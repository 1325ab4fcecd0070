//! Distributions over the outcomes, and whether the bars hold.

use std::fmt::Write as _;

use serde::Serialize;

use super::Outcome;

/// Quantiles of ratios; lower is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// At most this in 90 %.
    pub p90: f64,
    /// At most this in 99 %.
    pub p99: f64,
    /// The worst.
    pub max: f64,
}

/// A share of points, with the share that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Part of the points, 0 to 1.
    pub share: f64,
    /// The part that the bar asks for.
    pub bar: f64,
}

/// The bars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Seconds at most 1.05 x those of the best other policy.
    pub within_5_percent: Share,
    /// Seconds at most 1.25 x those of the best other policy.
    pub within_25_percent: Share,
    /// Seconds at most 1.02 x those without readahead.
    pub no_worse_than_none: Share,
    /// Bytes at most 1.5 x those wanted, or at most the best other policy's.
    pub bytes: Share,
}

/// Distributions of the outcomes of a device, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The device, or `all`.
    pub device: String,
    /// Points.
    pub points: usize,
    /// Seconds as a multiple of the best other policy's.
    pub to_best: Spread,
    /// Seconds as a multiple of those without readahead.
    pub to_none: Spread,
    /// Seconds as a multiple of the oracle's.
    pub to_oracle: Spread,
    /// Bytes fetched per byte wanted.
    pub amplification: Spread,
    /// The bars.
    pub shares: Shares,
}

impl Spread {
    /// The quantiles of `values`; zeros if there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let index = (values.len() * percent).div_ceil(100).max(1) - 1;
            values.get(index).copied().unwrap_or_default()
        };
        Self { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

impl Share {
    fn of(outcomes: &[&Outcome], bar: f64, holds: impl Fn(&Outcome) -> bool) -> Self {
        let count = outcomes.iter().filter(|outcome| holds(outcome)).count();
        Self { share: count as f64 / outcomes.len().max(1) as f64, bar }
    }
}

impl Summary {
    /// All outcomes, then those of each device in order of appearance.
    pub fn of(outcomes: &[Outcome]) -> Vec<Self> {
        let all: Vec<&Outcome> = outcomes.iter().collect();
        let mut devices: Vec<&str> = Vec::new();
        for outcome in outcomes {
            if !devices.contains(&outcome.point.device.as_str()) {
                devices.push(&outcome.point.device);
            }
        }
        let of_device = |device: &str| {
            let these = all.iter().filter(|outcome| outcome.point.device == device);
            Self::of_some(device, &these.copied().collect::<Vec<_>>())
        };
        let mut summaries = vec![Self::of_some("all", &all)];
        if devices.len() > 1 {
            summaries.extend(devices.into_iter().map(of_device));
        }
        summaries
    }

    fn of_some(device: &str, outcomes: &[&Outcome]) -> Self {
        let spread = |value: fn(&Outcome) -> Option<f64>| {
            Spread::of(outcomes.iter().filter_map(|outcome| value(outcome)).collect())
        };
        Self {
            device: device.to_owned(),
            points: outcomes.len(),
            to_best: spread(|outcome| Some(outcome.to_best())),
            to_none: spread(Outcome::to_none),
            to_oracle: spread(Outcome::to_oracle),
            amplification: spread(|outcome| Some(outcome.amplification())),
            shares: Shares {
                within_5_percent: Share::of(outcomes, 0.99, |outcome| outcome.to_best() <= 1.05),
                within_25_percent: Share::of(outcomes, 1.0, |outcome| outcome.to_best() <= 1.25),
                no_worse_than_none: Share::of(outcomes, 1.0, |outcome| {
                    outcome.to_none().is_none_or(|ratio| ratio <= 1.02)
                }),
                bytes: Share::of(outcomes, 1.0, Outcome::are_bytes_in_bounds),
            },
        }
    }

    /// The worst outcomes against the best other policy, worst first.
    pub fn worst(outcomes: &[Outcome], count: usize) -> Vec<&Outcome> {
        let mut worst: Vec<&Outcome> = outcomes.iter().collect();
        worst.sort_by(|a, b| b.to_best().total_cmp(&a.to_best()));
        worst.truncate(count);
        worst
    }

    /// The table of several summaries, with a header.
    pub fn table(summaries: &[Self]) -> String {
        let mut text = format!(
            "{:<8} {:>6}  {:<31} {:<31} {:>6} {:>6} {:>6} {:>6}\n{:<8} {:>6}  {:>7} {:>7} {:>7} {:>7} {:>7} \
             {:>7} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6}\n",
            "",
            "",
            "seconds / best other",
            "seconds / none",
            "<=1.05",
            "<=1.25",
            "none",
            "bytes",
            "device",
            "points",
            "p50",
            "p90",
            "p99",
            "max",
            "p50",
            "p90",
            "p99",
            "max",
            "99 %",
            "100 %",
            "100 %",
            "100 %"
        );
        for summary in summaries {
            let Self { device, points, to_best, to_none, shares, .. } = summary;
            let _never_fails = write!(text, "{device:<8} {points:>6} ");
            for spread in [to_best, to_none] {
                for value in [spread.p50, spread.p90, spread.p99, spread.max] {
                    let _never_fails = write!(text, " {value:>7.2}");
                }
            }
            for share in
                [shares.within_5_percent, shares.within_25_percent, shares.no_worse_than_none, shares.bytes]
            {
                let _never_fails = write!(text, " {:>5.1}%", share.share * 100.0);
            }
            text.push('\n');
        }
        text
    }
}
