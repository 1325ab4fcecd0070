//! Where runs begin, and how long they are.

use std::fmt;

use super::super::{Random, Scatter, Zipf};
use super::draw::{between, counted, log_uniform};

/// Length distribution of runs, in requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lengths {
    Fixed(u64),
    Uniform(u64, u64),
    /// Powers of two, each as likely as another.
    Wide(u64),
    /// The first, and the second once in eight runs.
    Two(u64, u64),
}

impl Lengths {
    pub(super) fn draw(random: &mut Random) -> Self {
        match random.below(5) {
            0 => Self::Fixed(1),
            1 => Self::Fixed(log_uniform(random, 2, 64)),
            2 => {
                let least = log_uniform(random, 1, 32);
                Self::Uniform(least, least + log_uniform(random, 1, 64))
            }
            3 => Self::Wide(log_uniform(random, 16, 256)),
            _ => Self::Two(log_uniform(random, 1, 8), log_uniform(random, 32, 256)),
        }
    }

    pub(super) fn next(self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed(length) => length,
            Self::Uniform(least, most) => between(random, least, most),
            Self::Wide(most) => log_uniform(random, 1, most),
            Self::Two(usual, rare) => {
                if random.below(8) == 0 {
                    rare
                } else {
                    usual
                }
            }
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(1) => f.write_str("single requests"),
            Self::Fixed(length) => write!(f, "runs of {}", counted(length, "request")),
            Self::Uniform(least, most) => write!(f, "runs of {least} to {most} requests"),
            Self::Wide(most) => write!(f, "runs of 1 to {most} requests, short ones more often,"),
            Self::Two(usual, rare) => {
                write!(f, "runs of {}, or {rare} in one of eight,", counted(usual, "request"))
            }
        }
    }
}

/// How the start of the next run follows.
#[derive(Clone, Debug)]
pub(super) enum Jumps {
    Uniform,
    /// At most this many requests from a centre that follows the runs.
    Local(u64),
    /// The law's exponent, in tenths.
    Power(u64),
    /// Upward, with gaps of up to this many requests.
    Sorted(u64),
    /// These deltas of starts, in requests, repeated.
    Repeated(Vec<i64>),
}

impl Jumps {
    /// For a range of `span` requests.
    pub(super) fn draw(random: &mut Random, span: u64) -> Self {
        match random.below(6) {
            0 | 1 => Self::Uniform,
            2 => Self::Local(log_uniform(random, 16, 4096)),
            3 => Self::Power(between(random, 5, 15)),
            4 => Self::Sorted(log_uniform(random, 1, 256)),
            _ => {
                let reach = (span / 64).max(2);
                let delta = |_| between(random, 1, reach).cast_signed() - (reach / 3).cast_signed();
                Self::Repeated((0..1 + reach % 6).map(delta).collect())
            }
        }
    }

    /// The starts, in requests below `span`. Call [`Starts::next`] with the end of the last run.
    pub(super) fn starts(&self, span: u64, random: &mut Random) -> Starts<'_> {
        let law = if let Self::Power(tenths) = *self {
            Some((Zipf::new(span, tenths as f64 / 10.0), Scatter::new(span, random)))
        } else {
            None
        };
        let centre = if let Self::Sorted(_) = self { 0 } else { random.below(span) };
        Starts { jumps: self, span, centre, number: 0, law }
    }
}

impl fmt::Display for Jumps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("anywhere"),
            Self::Local(reach) => write!(f, "at most {} from the last", counted(*reach, "request")),
            Self::Power(tenths) => {
                write!(f, "by a power law of exponent {}.{}", tenths / 10, tenths % 10)
            }
            Self::Sorted(gap) => write!(f, "upward with gaps of up to {}", counted(*gap, "request")),
            Self::Repeated(deltas) => write!(f, "at {} that repeat", counted(deltas.len() as u64, "delta")),
        }
    }
}

/// Starts of runs.
pub(super) struct Starts<'a> {
    jumps: &'a Jumps,
    span: u64,
    centre: u64,
    number: usize,
    law: Option<(Zipf, Scatter)>,
}

impl Starts<'_> {
    /// The next start; `end` is the end of the last run.
    pub(super) fn next(&mut self, end: u64, random: &mut Random) -> u64 {
        let first = self.number == 0;
        self.number += 1;
        self.centre = match self.jumps {
            Jumps::Uniform => random.below(self.span),
            Jumps::Local(reach) => {
                let low = self.centre.saturating_sub(*reach);
                between(random, low, (self.centre + reach).min(self.span - 1))
            }
            Jumps::Power(_) => {
                let drawn = self.law.as_ref().map(|(law, scatter)| scatter.of(law.draw(random)));
                drawn.unwrap_or_default()
            }
            Jumps::Sorted(_) if first => 0,
            Jumps::Sorted(gap) => (end + between(random, 1, *gap)) % self.span,
            Jumps::Repeated(deltas) => {
                let delta = deltas[self.number % deltas.len()];
                (self.centre.cast_signed() + delta).rem_euclid(self.span.cast_signed()).unsigned_abs()
            }
        };
        self.centre
    }
}
