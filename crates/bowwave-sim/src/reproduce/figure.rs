//! Published figures compared with ours.

use std::collections::BTreeMap;

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
    /// How our figures relate to the published ones.
    pub kind: Kind,
    /// The acceptance bar.
    pub bar: String,
    /// Whether the row counts: *reproduced*, or *better* with its bar met.
    pub holds: bool,
    /// The row that has the same run and figures, as `document/table/row`. Counts skip copies.
    pub copy_of: Option<String>,
    /// Remarks, and the reason of a row that differs.
    pub note: String,
    /// What decides the kind.
    #[serde(skip)]
    claim: Claim,
}

bowwave_core::named_enum! {
    /// How our figures relate to the published ones, in the order of the summary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Kind {
        /// Within a stated, two-sided tolerance of each published figure.
        Reproduced = "reproduced",
        /// An algorithm of our own meets a bar of our own.
        Better = "better",
        /// Our improved figure lies on the published side of our baseline, but the sizes differ.
        Direction = "direction",
        /// Neither; the note has the reason.
        Differs = "differs",
        /// Parameters of the model were set by this very figure. Never counts.
        Fitted = "fitted",
        /// The model lacks what the figure measures.
        NotModelled = "not modelled",
    }
}

/// What a row compares.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claim {
    /// Published figures.
    Published(Bar),
    /// A published statement without figures.
    Stated(Bar),
    /// An algorithm of our own.
    Own(Bar),
    /// See [`Kind::Fitted`].
    Fitted(Bar),
    /// See [`Kind::NotModelled`].
    NotModelled,
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
    /// Our gain is from the first to the second.
    GainFrom(f64, f64),
    /// Each of our figures is within this share of the published one; a published zero is exact.
    Within(f64),
    /// The same, with a share for the baseline and one for the improved figure.
    Each(f64, f64),
    /// Baseline within the first range, improved within the second.
    Ranges((f64, f64), (f64, f64)),
}

impl Kind {
    /// Definition, for documents.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Reproduced => {
                "each of our figures is within the stated two-sided tolerance of the published one"
            }
            Self::Better => {
                "an algorithm of our own meets a bar of our own; published figures are shown where there are any"
            }
            Self::Direction => {
                "our improved figure lies on the published side of our baseline, but the size differs"
            }
            Self::Differs => "neither; the note has the reason",
            Self::Fitted => "parameters of the model were set by this very figure, so it shows nothing",
            Self::NotModelled => "the model lacks what the figure measures",
        }
    }

    /// Counts rows by kind. Copies of a run count once.
    #[must_use]
    pub fn count<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> BTreeMap<Self, usize> {
        let mut counts: BTreeMap<Self, usize> = Self::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for figure in figures.into_iter().filter(|figure| figure.copy_of.is_none()) {
            *counts.entry(figure.kind).or_default() += 1;
        }
        counts
    }
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

    /// The gain as a pair: 1 and the ratio.
    #[must_use]
    pub fn ratio(self) -> Self {
        self.gain().map_or_else(Self::default, |gain| Self::new(1.0, gain))
    }

    /// Relative change from the baseline to the improved figure.
    fn change(self) -> Option<f64> {
        match (self.baseline, self.improved) {
            (Some(0.0), Some(0.0)) => Some(0.0),
            (Some(baseline), Some(improved)) => {
                Some((improved - baseline) / baseline.abs().max(improved.abs()))
            }
            _ => None,
        }
    }
}

impl Figure {
    /// A published figure. Its kind follows from a two-sided `bar`: see [`Kind`].
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
            kind: Kind::NotModelled,
            bar: bar.to_string(),
            holds: false,
            copy_of: None,
            note: String::new(),
            claim: Claim::Published(bar),
        }
        .judged()
    }

    /// The ratio of both figures, where the published sizes are another machine's.
    #[must_use]
    pub fn gain(
        table: (&'static str, &'static str),
        row: impl Into<String>,
        published: Pair,
        ours: Pair,
        share: f64,
    ) -> Self {
        Self::new(table, row, "ratio", published.ratio(), ours.ratio(), Bar::Within(share))
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
        Self { bar: String::new(), note: why.into(), claim: Claim::NotModelled, ..figure }.judged()
    }

    /// The improved figure is of an algorithm of our own: its bar is ours, and may be one-sided.
    #[must_use]
    pub fn own(self) -> Self {
        let Some(bar) = self.claim.bar() else { return self };
        Self { claim: Claim::Own(bar), ..self }.judged()
    }

    /// The document states a direction, but prints no figure.
    #[must_use]
    pub fn stated(self) -> Self {
        let Some(bar) = self.claim.bar() else { return self };
        Self { claim: Claim::Stated(bar), ..self }.judged()
    }

    /// Parameters of the model were set by this figure; `by` names them.
    #[must_use]
    pub fn fitted(self, by: &str) -> Self {
        let Some(bar) = self.claim.bar() else { return self };
        let note = if self.note.is_empty() { by.to_owned() } else { format!("{by}; {}", self.note) };
        Self { claim: Claim::Fitted(bar), note, ..self }.judged()
    }

    /// The same run and figures as another row.
    #[must_use]
    pub fn copy_of(self, (document, table): (&str, &str), row: &str) -> Self {
        Self { copy_of: Some(format!("{document}/{table}/{row}")), ..self }
    }

    /// Adds a remark.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        self.note = if self.note.is_empty() || note.is_empty() {
            self.note + &note
        } else {
            format!("{}; {note}", self.note)
        };
        self
    }

    /// The row with other figures of ours, judged again.
    #[must_use]
    pub fn with_ours(&self, ours: Pair) -> Self {
        Self { ours, gain_ours: ours.gain(), ..self.clone() }.judged()
    }

    /// `document/table/row`, unique among all rows.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.document, self.table, self.row)
    }

    /// Marks a row as different although its figures are near: what they stand for is not.
    pub(super) fn differ(&mut self) {
        (self.kind, self.holds) = (Kind::Differs, false);
    }

    fn judged(mut self) -> Self {
        self.kind = self.claim.kind(self.published, self.ours);
        self.holds = matches!(self.kind, Kind::Reproduced | Kind::Better);
        self
    }
}

impl Claim {
    fn kind(self, published: Pair, ours: Pair) -> Kind {
        match self {
            Self::NotModelled => Kind::NotModelled,
            Self::Fitted(_) => Kind::Fitted,
            Self::Own(bar) if bar.holds(published, ours) => Kind::Better,
            Self::Stated(bar) if bar.holds(published, ours) => Kind::Direction,
            Self::Own(_) | Self::Stated(_) => Kind::Differs,
            Self::Published(bar) if bar.is_two_sided() && bar.holds(published, ours) => Kind::Reproduced,
            Self::Published(bar) => match (published.change(), ours.change()) {
                (Some(theirs), Some(ours))
                    if theirs * ours > 0.0 && theirs.abs().min(ours.abs()) >= bar.change_min() =>
                {
                    Kind::Direction
                }
                _ => Kind::Differs,
            },
        }
    }

    const fn bar(self) -> Option<Bar> {
        match self {
            Self::Published(bar) | Self::Stated(bar) | Self::Own(bar) | Self::Fitted(bar) => Some(bar),
            Self::NotModelled => None,
        }
    }
}

/// Smaller changes have no direction: they are within the spread of a run.
const CHANGE_MIN: f64 = 0.01;

impl Bar {
    /// Least change that has a direction: a strict tolerance implies a small spread.
    const fn change_min(self) -> f64 {
        match self {
            Self::Within(share) if share > 0.0 => (share / 2.0).min(CHANGE_MIN),
            _ => CHANGE_MIN,
        }
    }

    /// Whether a figure may be too large as well as too small.
    const fn is_two_sided(self) -> bool {
        matches!(self, Self::Within(_) | Self::Each(..))
    }

    /// Whether our figures meet the bar.
    #[must_use]
    pub fn holds(self, published: Pair, ours: Pair) -> bool {
        let near = |theirs: Option<f64>, ours: Option<f64>, share: f64| match (theirs, ours) {
            (Some(0.0), Some(ours)) => ours == 0.0,
            (Some(theirs), Some(ours)) => (ours / theirs - 1.0).abs() <= share,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let inside = |value: Option<f64>, (low, high): (f64, f64)| {
            value.is_some_and(|value| (low..=high).contains(&value))
        };
        match self {
            Self::GainFrom(low, high) => inside(ours.gain(), (low, high)),
            Self::Within(share) => Self::Each(share, share).holds(published, ours),
            Self::Each(baseline, improved) => {
                published != Pair::default()
                    && near(published.baseline, ours.baseline, baseline)
                    && near(published.improved, ours.improved, improved)
            }
            Self::Ranges(baseline, improved) => {
                inside(ours.baseline, baseline) && inside(ours.improved, improved)
            }
        }
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = |(low, high): (f64, f64)| match (low, high) {
            (low, f64::INFINITY) => format!(">={low}"),
            (low, high) => format!("{low}..{high}"),
        };
        let percent = |share: f64| match share {
            0.0 => "exact".to_owned(),
            share => format!("±{} %", (share * 1e4).round() / 1e2),
        };
        match *self {
            Self::GainFrom(low, f64::INFINITY) => write!(f, "gain >={low}"),
            Self::GainFrom(low, high) => write!(f, "gain {low}..{high}"),
            Self::Within(share) => f.write_str(&percent(share)),
            Self::Each(baseline, improved) => write!(f, "{} and {}", percent(baseline), percent(improved)),
            Self::Ranges(baseline, improved) => write!(f, "{} and {}", open(baseline), open(improved)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(published: Pair, ours: Pair, bar: Bar) -> Figure {
        Figure::new(("000", "table"), "row", "s", published, ours, bar)
    }

    #[test]
    fn bars_include_their_limits() {
        let (theirs, ours) = (Pair::new(100.0, 300.0), Pair::new(105.0, 315.0));
        assert!(Bar::Within(0.05 + 1e-12).holds(theirs, ours));
        assert!(!Bar::Within(0.049).holds(theirs, ours));
        assert!(Bar::Each(0.06, 0.051).holds(theirs, ours) && !Bar::Each(0.06, 0.04).holds(theirs, ours));
        assert!(Bar::GainFrom(2.9, f64::INFINITY).holds(theirs, ours));
        assert!(!Bar::GainFrom(3.1, f64::INFINITY).holds(theirs, ours));
        assert!(!Bar::Ranges((1.0, 2.0), (1.0, 400.0)).holds(theirs, ours));
        assert!(!Bar::Within(1.0).holds(theirs, Pair::default()));
        assert!(!Bar::Within(1.0).holds(Pair::default(), ours), "nothing was published");
    }

    #[test]
    fn a_figure_outside_its_tolerance_on_either_side_is_not_reproduced() {
        let theirs = Pair::new(100.0, 300.0);
        for (ours, kind) in [
            (Pair::new(100.0, 300.0), Kind::Reproduced),
            (Pair::new(109.0, 271.0), Kind::Reproduced),
            (Pair::new(111.0, 300.0), Kind::Direction),
            (Pair::new(100.0, 400.0), Kind::Direction),
            (Pair::new(100.0, 200.0), Kind::Direction),
            (Pair::new(100.0, 100.5), Kind::Differs),
            (Pair::new(100.0, 50.0), Kind::Differs),
            (Pair { baseline: Some(100.0), improved: None }, Kind::Differs),
        ] {
            let figure = figure(theirs, ours, Bar::Within(0.1));
            assert_eq!((figure.kind, figure.holds), (kind, kind == Kind::Reproduced), "{ours:?}");
        }
    }

    #[test]
    fn a_one_sided_bar_reproduces_nothing() {
        let (theirs, ours) = (Pair::new(5.0, 15.0), Pair::new(5.0, 150.0));
        assert_eq!(figure(theirs, ours, Bar::GainFrom(2.9, f64::INFINITY)).kind, Kind::Direction);
        let own = figure(theirs, ours, Bar::GainFrom(2.9, f64::INFINITY)).own();
        assert_eq!((own.kind, own.holds), (Kind::Better, true));
        assert_eq!(own.with_ours(Pair::new(5.0, 14.0)).kind, Kind::Differs);
    }

    #[test]
    fn fitted_and_missing_figures_never_hold() {
        let pair = Pair::new(1.0, 2.0);
        let fitted = figure(pair, pair, Bar::Within(0.1)).fitted("the seek time");
        assert_eq!((fitted.kind, fitted.holds, fitted.note.as_str()), (Kind::Fitted, false, "the seek time"));
        let missing = Figure::missing(("000", "table"), "row", "s", pair, "no processor");
        assert_eq!((missing.kind, missing.holds), (Kind::NotModelled, false));
    }

    #[test]
    fn copies_of_a_run_count_once() {
        let pair = Pair::new(1.0, 2.0);
        let first = figure(pair, pair, Bar::Within(0.1));
        let copy = first.clone().copy_of(("000", "table"), "row");
        let counts = Kind::count([&first, &copy, &copy]);
        assert_eq!(counts[&Kind::Reproduced], 1);
        assert_eq!(counts.values().sum::<usize>(), 1);
    }
}
