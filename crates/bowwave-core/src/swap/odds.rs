//! How often windows of late were reached by their readers, by how many windows of their streams came before.

/// Pages of a stream's first window.
pub(super) const FIRST: u64 = 8;
/// Windows of a stream that are told apart by how many came before: the last of these are all others.
pub(super) const STAGES: usize = 8;
/// Windows of a stage that are remembered, before all are halved.
const REMEMBERED: u32 = 64;

/// What became of windows lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Odds {
    planned: u32,
    /// Of them, those that their readers got to.
    reached: u32,
}

impl Default for Odds {
    /// Good ones, for a start.
    fn default() -> Self {
        Self { planned: 4, reached: 4 }
    }
}

impl Odds {
    pub(super) fn plan(&mut self) {
        self.planned += 1;
        if self.planned >= REMEMBERED {
            (self.planned, self.reached) = (self.planned / 2, self.reached / 2);
        }
    }

    pub(super) fn reach(&mut self) {
        self.reached = (self.reached + 1).min(self.planned);
    }

    /// Most pages of a window that has these odds: any number if half are reached, none if hardly any is.
    fn bound(self) -> u64 {
        if self.reached * 2 >= self.planned {
            u64::MAX
        } else {
            2 * FIRST * u64::from(self.reached) / u64::from(self.planned)
        }
    }
}

/// Most pages of a window of this stage: as its odds are, and where the next one is not reached, for this one is not to its end.
pub(super) fn bound(odds: &[Odds; STAGES], stage: usize) -> u64 {
    let next = odds[(stage + 1).min(STAGES - 1)];
    odds[stage].bound().min(next.bound().max(1))
}
