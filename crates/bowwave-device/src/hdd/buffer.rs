//! The disk's buffer: segments of adjacent sectors. The head may still be filling the last one.

use super::geometry::Geometry;

/// The buffer.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Least recently used first; the live segment, if any, last.
    segments: Vec<Segment>,
    segments_max: usize,
    /// Maximum sectors of a segment; older sectors are dropped.
    segment_sectors: u64,
    /// Whether the last segment is being filled, or can be.
    live: bool,
}

/// Sectors `start..end` are buffered as of `time`, when the head was over `end`; it continues to
/// `limit`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    time: f64,
    limit: u64,
}

/// What the buffer holds of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Found {
    /// All of it.
    Whole,
    /// The head is reading and has not reached the end of the request. The fields are a sector that
    /// the head has reached, and when.
    Coming(u64, f64),
    /// Its first sectors, up to this sector, where the head of the live segment stopped.
    Beginning(u64),
    Nothing,
}

impl Buffer {
    pub(super) fn new(segments_max: usize, segment_sectors: u64) -> Self {
        Self { segments: Vec::with_capacity(segments_max), segments_max, segment_sectors, live: false }
    }

    /// Looks up a request.
    pub(super) fn find(&self, geometry: &Geometry, now: f64, sector: u64, count: u64) -> Found {
        self.locate(geometry, now, sector, count).1
    }

    fn locate(&self, geometry: &Geometry, now: f64, sector: u64, count: u64) -> (usize, Found) {
        let end = sector + count;
        for (index, segment) in self.segments.iter().enumerate().rev() {
            if sector < segment.start || sector > segment.limit {
                continue;
            }
            let live = self.live && index + 1 == self.segments.len();
            let reached = if live { segment.reached(geometry, now) } else { segment.end };
            if sector < reached.saturating_sub(self.segment_sectors) {
                continue;
            }
            if end <= reached {
                return (index, Found::Whole);
            }
            if live && reached < segment.limit {
                return (index, Found::Coming(segment.end, segment.time));
            }
            if live && sector < reached {
                return (index, Found::Beginning(reached));
            }
        }
        (0, Found::Nothing)
    }

    /// Marks the segment of a fully buffered request as used. If the segment is live, the head
    /// reads on to `limit`, after a rotation if it had stopped.
    pub(super) fn used(&mut self, geometry: &Geometry, now: f64, sector: u64, count: u64, limit: u64) {
        let (index, found) = self.locate(geometry, now, sector, count);
        if found != Found::Whole {
            return;
        }
        let last = self.segments.len() - 1;
        if !(self.live && index == last) {
            let reading = self.live && self.segments[last].reached(geometry, now) < self.segments[last].limit;
            // The segment being filled stays last.
            let place = if reading { last - 1 } else { last };
            self.segments[index..=place].rotate_left(1);
            self.live = reading;
            return;
        }
        let segment = &mut self.segments[last];
        if limit > segment.limit {
            let reached = segment.reached(geometry, now);
            if reached == segment.limit {
                // The head had stopped: the sector must come round again.
                let place = geometry.place(reached.min(geometry.sectors - 1));
                (segment.end, segment.time) = (reached, now + geometry.wait_ns(now, &place));
            }
            segment.limit = limit;
        }
    }

    /// The head abandons the current fill.
    pub(super) fn stop(&mut self, geometry: &Geometry, now: f64) {
        if self.live
            && let Some(segment) = self.segments.last_mut()
        {
            segment.end = segment.reached(geometry, now);
            segment.limit = segment.end;
        }
        self.live = false;
    }

    /// The head reached `end` at `time` and continues to `limit`.
    pub(super) fn extend(&mut self, end: u64, time: f64, limit: u64) {
        if let Some(segment) = self.segments.last_mut() {
            (segment.end, segment.time, segment.limit) = (end, time, limit);
        }
    }

    /// Starts a live segment.
    pub(super) fn begin(&mut self, start: u64, end: u64, time: f64, limit: u64) {
        if self.segments.len() == self.segments_max {
            self.segments.remove(0);
        }
        self.segments.push(Segment { start, end, time, limit });
        self.live = true;
    }

    /// Drops segments that overlap a write.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        self.segments.retain(|segment| segment.end <= start || end <= segment.start);
    }
}

impl Segment {
    fn reached(&self, geometry: &Geometry, now: f64) -> u64 {
        geometry.reached(self.time, self.end, self.limit, now)
    }
}
