//! Published figures compared with ours.

use serde::Serialize;

/// One row of `reproduce --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The document: 000 (patch), 002 (paper) and so on.
    pub document: &'static str,
    /// The table or experiment.
    pub table: &'static str,
    /// The row's name.
    pub row: String,
    /// Unit of the figures.
    pub unit: &'static str,
    /// The published figures.
    pub published: Pair,
    /// The simulator's figures.
    pub ours: Pair,
    /// Published ratio of improved to baseline.
    pub gain_published: Option<f64>,
    /// Our ratio of improved to baseline.
    pub gain_ours: Option<f64>,
    /// The acceptance bar.
    pub bar: String,
    /// Whether the bar holds.
    pub holds: bool,
    /// Remarks.
    pub note: String,
}

/// Figures of the old algorithm and its replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// The old algorithm; `None` if not published or unavailable.
    pub baseline: Option<f64>,
    /// The new algorithm.
    pub improved: Option<f64>,
}

/// Acceptance bar of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// Our gain differs from the published one by no more than this share of 1.
    GainWithin(f64),
    /// Our gain is from the first to the second.
    GainFrom(f64, f64),
    /// Both of our figures are within this share of the published ones.
    Within(f64),
    /// Baseline within the first range, improved within the second.
    Ranges((f64, f64), (f64, f64)),
    /// Both: a gain within, and values within.
    Both(f64, f64),
}

impl Pair {
    /// Both figures.
    #[must_use]
    pub const fn new(baseline: f64, improved: f64) -> Self {
        Self { baseline: Some(baseline), improved: Some(improved) }
    }

    /// Ratio of improved to baseline.
    #[must_use]
    pub fn gain(self) -> Option<f64> {
        match (self.baseline, self.improved) {
            (Some(baseline), Some(improved)) if baseline != 0.0 => Some(improved / baseline),
            _ => None,
        }
    }
}

impl Figure {
    /// A figure with both sides known.
    #[must_use]
    pub fn new(
        (document, table): (&'static str, &'static str),
        row: impl Into<String>,
        unit: &'static str,
        published: Pair,
        ours: Pair,
        bar: Bar,
    ) -> Self {
        Self {
            document,
            table,
            row: row.into(),
            unit,
            published,
            ours,
            gain_published: published.gain(),
            gain_ours: ours.gain(),
            bar: bar.to_string(),
            holds: bar.holds(published, ours),
            note: String::new(),
        }
    }

    /// An unavailable figure, and why.
    #[must_use]
    pub fn missing(
        table: (&'static str, &'static str),
        row: impl Into<String>,
        unit: &'static str,
        published: Pair,
        why: impl Into<String>,
    ) -> Self {
        let figure = Self::new(table, row, unit, published, Pair::default(), Bar::Within(0.0));
        Self { bar: String::new(), holds: false, note: why.into(), ..figure }
    }

    /// Adds a remark.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Bar {
    /// Whether our figures meet the bar.
    #[must_use]
    pub fn holds(self, published: Pair, ours: Pair) -> bool {
        let gains = (published.gain(), ours.gain());
        let near = |share: f64| {
            let pairs = [(published.baseline, ours.baseline), (published.improved, ours.improved)];
            pairs.into_iter().all(|pair| match pair {
                (Some(theirs), Some(ours)) => (ours / theirs - 1.0).abs() <= share,
                (None, _) => true,
                (Some(_), None) => false,
            })
        };
        let inside = |value: Option<f64>, (low, high): (f64, f64)| {
            value.is_some_and(|value| (low..=high).contains(&value))
        };
        match (self, gains) {
            (Self::GainWithin(share), (Some(theirs), Some(ours))) => (ours - theirs).abs() <= share,
            (Self::GainFrom(low, high), (_, Some(ours))) => (low..=high).contains(&ours),
            (Self::GainWithin(_) | Self::GainFrom(..), _) => false,
            (Self::Within(share), _) => near(share),
            (Self::Ranges(baseline, improved), _) => {
                inside(ours.baseline, baseline) && inside(ours.improved, improved)
            }
            (Self::Both(gain, share), (_, Some(ours))) => (ours - 1.0).abs() <= gain && near(share),
            (Self::Both(..), _) => false,
        }
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = |(low, high): (f64, f64)| match (low, high) {
            (low, f64::INFINITY) => format!(">={low}"),
            (low, high) => format!("{low}..{high}"),
        };
        match *self {
            Self::GainWithin(share) => write!(f, "gain within {:.1} %", share * 100.0),
            Self::GainFrom(low, f64::INFINITY) => write!(f, ">={low}"),
            Self::GainFrom(low, high) => write!(f, "gain {low}..{high}"),
            Self::Within(share) => write!(f, "within {:.0} %", share * 100.0),
            Self::Ranges(baseline, improved) => write!(f, "{} and {}", open(baseline), open(improved)),
            Self::Both(gain, share) => {
                write!(f, "|gain| <= {:.1} %, within {:.0} %", gain * 100.0, share * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_include_their_limits() {
        let (theirs, ours) = (Pair::new(100.0, 300.0), Pair::new(105.0, 315.0));
        assert!(Bar::Within(0.05 + 1e-12).holds(theirs, ours));
        assert!(!Bar::Within(0.049).holds(theirs, ours));
        assert!(Bar::GainFrom(2.9, f64::INFINITY).holds(theirs, ours));
        assert!(!Bar::GainFrom(3.1, f64::INFINITY).holds(theirs, ours));
        assert!(!Bar::Ranges((1.0, 2.0), (1.0, 400.0)).holds(theirs, ours));
        assert!(!Bar::GainWithin(1.0).holds(theirs, Pair::default()));
        assert!(!Bar::Both(0.007, 0.1).holds(Pair::new(1.0, 1.0), Pair::new(1.0, 1.01)));
    }
}
