//! How often recent windows were reached, by the number of windows before them in their streams.

/// Pages of a stream's first window.
pub(super) const FIRST: u64 = 8;
/// Stages, the number of earlier windows of a stream; the last stage holds all later windows.
pub(super) const STAGES: usize = 8;
/// Windows remembered for a stage; beyond this, counts are halved.
const REMEMBERED: u32 = 64;

/// Results of recent windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Odds {
    planned: u32,
    /// Windows of those that were reached.
    reached: u32,
}

impl Default for Odds {
    /// Optimistic at first.
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

    /// Largest window, in pages, with these odds: unlimited if half are reached, 0 if hardly any
    /// is.
    fn bound(self) -> u64 {
        if self.reached * 2 >= self.planned {
            u64::MAX
        } else {
            2 * FIRST * u64::from(self.reached) / u64::from(self.planned)
        }
    }
}

/// Largest window of a stage: limited by its own odds and by those of the next stage, since an
/// unreached next window means that this one is not read to its end.
pub(super) fn bound(odds: &[Odds; STAGES], stage: usize) -> u64 {
    let next = odds[(stage + 1).min(STAGES - 1)];
    odds[stage].bound().min(next.bound().max(1))
}
