//! Frames lent to shards in lots: first from the pool, then from shards with free frames, then from
//! the shard with the fewest accesses a frame.

use crate::shard::{Effect, Shard};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Frames of the pool.
#[derive(Debug)]
pub(crate) struct Budget {
    pool: AtomicU32,
    /// All frames that there are.
    frames: u32,
    lot: u32,
    /// Frames that an idle shard keeps: enough for its largest read.
    floor: u32,
    /// Requests for frames that the pool could not satisfy.
    calls: AtomicU32,
    /// Whether the last check found a shard with free frames.
    spare: AtomicBool,
}

/// Unsatisfied requests between comparisons of the shards.
const REBALANCE_EVERY: u32 = 16;

impl Budget {
    pub(crate) fn new(frames: u32, pool: u32, lot: u32, floor: u32) -> Self {
        Self {
            pool: AtomicU32::new(pool),
            frames,
            lot: lot.max(1),
            floor,
            calls: AtomicU32::new(0),
            spare: AtomicBool::new(true),
        }
    }

    /// Frames in the pool.
    pub(crate) fn pool(&self) -> u32 {
        self.pool.load(Ordering::Relaxed)
    }

    /// Lends a lot to a shard that is short of frames, if one is available.
    pub(crate) fn relieve(
        &self,
        shards: &[Shard],
        needy: usize,
        mut perform: impl FnMut(usize, Vec<Effect>),
    ) {
        let (used, limit, stalled) = shards[needy]
            .with_cache(|cache| (cache.frames_used(), cache.frame_limit(), cache.writes_stalled() > 0));
        let free = limit.saturating_sub(used);
        // Free frames suffice for the next window: no policy uses more than a quarter of all frames
        // for one.
        let room = (self.frames / 4).saturating_sub(free);
        // At most half of the lent frames may be dirty.
        let short = stalled || used.saturating_add(self.lot) >= limit;
        if room == 0 && !short {
            return;
        }
        let wanted = room.max(self.lot);
        let mut got = self.draw(wanted);
        if got < wanted && shards.len() > 1 {
            let looks = self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(REBALANCE_EVERY);
            if looks || self.spare.load(Ordering::Relaxed) {
                let unused = self.take_unused(shards, needy, (wanted - got, free), &mut perform);
                self.spare.store(unused > 0, Ordering::Relaxed);
                got += unused;
            }
            if got == 0 && short && looks {
                got = self.take_from_idlest(shards, needy, &mut perform);
            }
        }
        if got > 0 {
            let mut effects = Vec::new();
            shards[needy].grant(got, &mut effects);
            perform(needy, effects);
        }
    }

    /// Takes up to `frames` frames, first from the pool, then from the shards; returns how many.
    pub(crate) fn take(
        &self,
        shards: &[Shard],
        frames: u32,
        mut perform: impl FnMut(usize, Vec<Effect>),
    ) -> u32 {
        let mut got = self.draw(frames);
        for (number, shard) in shards.iter().enumerate() {
            let left = u32::try_from(shards.len() - number).expect("few shards");
            let mut effects = Vec::new();
            got += shard.revoke((frames - got).div_ceil(left), self.floor, &mut effects);
            perform(number, effects);
        }
        got
    }

    /// Returns frames that were taken.
    pub(crate) fn give(&self, frames: u32) {
        self.pool.fetch_add(frames, Ordering::Relaxed);
    }

    /// Takes up to `frames` frames from the pool.
    fn draw(&self, frames: u32) -> u32 {
        let taken = self.pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pool| {
            (pool > 0).then(|| pool.saturating_sub(frames))
        });
        taken.map_or(0, |before| before.min(frames))
    }

    /// Takes up to `wanted` free frames from shards that have more of them than the needy one,
    /// which has `free`. Those shards keep half, so that shards which all fill up do not exchange
    /// the same frames.
    fn take_unused(
        &self,
        shards: &[Shard],
        needy: usize,
        (wanted, free): (u32, u32),
        perform: &mut impl FnMut(usize, Vec<Effect>),
    ) -> u32 {
        let mut got = 0;
        for (number, shard) in shards.iter().enumerate() {
            if number == needy || got == wanted {
                continue;
            }
            let (used, limit) = shard.with_cache(|cache| (cache.frames_used(), cache.frame_limit()));
            let unused = limit.saturating_sub(used);
            if unused / 2 <= free.saturating_add(got) {
                continue;
            }
            let mut effects = Vec::new();
            got += shard.revoke((wanted - got).min(unused / 2), self.floor, &mut effects);
            perform(number, effects);
        }
        got
    }

    /// Takes a lot from the shard with the fewest recent accesses a frame that can give one, if the
    /// needy one has at least twice as many.
    fn take_from_idlest(
        &self,
        shards: &[Shard],
        needy: usize,
        perform: &mut impl FnMut(usize, Vec<Effect>),
    ) -> u32 {
        let worth: Vec<f64> = shards.iter().map(Shard::recent_accesses_per_frame).collect();
        let mut others: Vec<usize> =
            (0..shards.len()).filter(|&shard| worth[shard] * 2.0 < worth[needy]).collect();
        others.sort_by(|&a, &b| worth[a].total_cmp(&worth[b]));
        // The idlest may have no frames to give.
        for idle in others {
            let mut effects = Vec::new();
            let got = shards[idle].revoke(self.lot, self.floor, &mut effects);
            perform(idle, effects);
            if got > 0 {
                return got;
            }
        }
        0
    }
}
